from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.store.otlp_json import any_value, attributes_of, encode_json, key_values, python_value, spans_of_line
from otel_gym.store.reader import Store, StoreError, natural_key
from otel_gym.store.span import StoredSpan
from otel_gym.store.writer import StoreWriter


def line(
    name: str, span_id: str, *, end: str | None = "20", start: object = "10", attributes: dict | None = None
) -> bytes:
    span = {
        "traceId": "A" * 32,
        "spanId": span_id * 16,
        "name": name,
        "kind": "SPAN_KIND_SERVER",
        "startTimeUnixNano": start,
    }
    span["attributes"] = key_values({"gym.rollout.id": "1-0", **(attributes or {})})
    if end is not None:
        span["endTimeUnixNano"] = end
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def store_of(directory: Path, content: bytes, name: str = "w.jsonl", rollout_id: str = "1-0") -> Store:
    folder = directory / "spans" / f"rollout_id={rollout_id}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return Store(directory)


def spans_of(store: Store) -> list[StoredSpan]:
    return [span for rollout in store.rollouts() for span in rollout.spans]


def test_good_spans_around_a_damaged_line_are_kept_and_the_damage_is_named(tmp_path):
    store = store_of(tmp_path, line("a", "1") + b"\n{broken\n[1]\n{}\n" + line("b", "2") + b"\n")

    assert [span.name for span in spans_of(store)] == ["a", "b"]
    assert [damage.line for damage in store.damage] == [2, 3, 4]
    assert all("w.jsonl" in str(damage) and "skipped" in str(damage) for damage in store.damage)


def test_a_torn_last_line_is_named_as_torn(tmp_path):
    store = store_of(tmp_path, line("a", "1") + b"\n" + line("b", "2")[:50])

    assert [span.name for span in spans_of(store)] == ["a"]
    (damage,) = store.damage
    assert "torn" in damage.problem


def test_a_last_line_without_its_newline_is_read(tmp_path):
    store = store_of(tmp_path, line("a", "1"))
    assert [span.name for span in spans_of(store)] == ["a"]
    assert store.damage == []


def test_a_line_separator_inside_a_text_does_not_cut_the_line(tmp_path):
    attributes = {"a": "x\u2028y\x85z"}
    raw = encode_json(json.loads(line("a", "1", attributes=attributes)))
    (span,) = spans_of(store_of(tmp_path, raw + b"\n"))
    assert span.attributes["a"] == "x\u2028y\x85z"


def test_a_span_that_was_written_twice_counts_once_and_the_ended_one_wins(tmp_path):
    store_of(tmp_path, line("open", "1", end=None) + b"\n", "a.jsonl")
    store = store_of(tmp_path, line("ended", "1") + b"\n" + line("open", "1", end=None) + b"\n", "b.jsonl")
    assert [span.name for span in spans_of(store)] == ["ended"]


def test_numbers_and_names_are_taken_in_every_form_of_otlp_json(tmp_path):
    (span,) = spans_of(store_of(tmp_path, line("a", "1", start=10, end="20")))
    assert (span.start_ns, span.end_ns, span.kind, span.trace_id) == (10, 20, 2, "a" * 32)
    tempo = {"batches": json.loads(line("a", "1"))["resourceSpans"]}
    assert [span.name for span in spans_of_line(json.dumps(tempo).encode())] == ["a"]


def test_two_runs_of_one_rollout_are_never_merged(tmp_path):
    content = b"\n".join(
        line(name, span_id, attributes={"gym.run.id": run})
        for name, span_id, run in (("a", "1", "r1"), ("b", "2", "r2"), ("c", "3", "r1"))
    )
    rollouts = list(store_of(tmp_path, content).rollouts())
    assert [(rollout.address, [span.name for span in rollout.spans]) for rollout in rollouts] == [
        ("r1/1-0", ["a", "c"]),
        ("r2/1-0", ["b"]),
    ]


def test_the_rollout_id_may_stand_on_the_resource(tmp_path):
    document = json.loads(line("a", "1"))
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"] = []
    document["resourceSpans"][0]["resource"] = {"attributes": key_values({"gym.rollout.id": "1-0", "gym.run.id": "r"})}
    (rollout,) = store_of(tmp_path, json.dumps(document).encode()).rollouts()
    assert (rollout.rollout_id, rollout.run_id) == ("1-0", "r")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "no such folder"),
        (lambda path: path.write_text("x"), "not a folder"),
        (lambda path: path.mkdir(), "empty"),
        (lambda path: (path.mkdir(), (path / "other.txt").write_text("x")), "not a store"),
    ],
)
def test_what_is_no_store_is_said_with_a_cure(tmp_path, make, said):
    path = tmp_path / "s"
    make(path)
    with pytest.raises(StoreError, match=said):
        Store(path)


def test_rollouts_come_in_natural_order_and_unassigned_last(tmp_path):
    for rollout_id in ("10-0", "2-0", "unassigned", "2-0-a1", "x"):
        store = store_of(tmp_path, line("a", "1"), rollout_id=rollout_id)
    assert store.rollout_ids() == ["2-0", "2-0-a1", "10-0", "x", "unassigned"]


def test_a_writer_names_its_own_file_and_appends(tmp_path):
    first, second = StoreWriter(tmp_path, "svc/../x"), StoreWriter(tmp_path, "svc")
    for writer in (first, second, first):
        for rollout_id in ("1-0", "2-0"):
            writer.append(rollout_id, b"{}\n")
    files = sorted((tmp_path / "spans" / "rollout_id=1-0").iterdir())
    assert sorted(path.read_bytes() for path in files) == [b"{}\n", b"{}\n{}\n"]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in files[0].parents[:2])


def test_a_store_that_was_cleared_under_a_writer_is_begun_anew(tmp_path):
    writer = StoreWriter(tmp_path)
    writer.append("1-0", b"1\n")
    (path,) = (tmp_path / "spans" / "rollout_id=1-0").iterdir()
    path.unlink()
    path.parent.rmdir()
    writer.append("1-0", b"2\n")
    assert path.read_bytes() == b"2\n"


def test_an_id_that_leaves_the_folder_is_never_written(tmp_path):
    writer = StoreWriter(tmp_path / "s")
    with pytest.raises(ValueError, match="may not name a folder"):
        writer.append("../../x", b"{}\n")


def test_a_write_that_fails_half_way_leaves_no_torn_line(tmp_path, monkeypatch):
    writer = StoreWriter(tmp_path)
    writer.append("1-0", b"first\n")
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: real_write(descriptor, content[:3]) and _full())
    with pytest.raises(OSError, match="No space"):
        writer.append("1-0", b"second\n")
    monkeypatch.undo()
    writer.append("1-0", b"third\n")
    (path,) = (tmp_path / "spans" / "rollout_id=1-0").iterdir()
    assert path.read_bytes() == b"first\nthird\n"


def _full() -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_short_writes_are_gone_on_with(tmp_path, monkeypatch):
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, content: real_write(descriptor, content[:2]))
    StoreWriter(tmp_path).append("1-0", b"a whole line\n")
    (path,) = (tmp_path / "spans" / "rollout_id=1-0").iterdir()
    assert path.read_bytes() == b"a whole line\n"


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8"))
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values)
def test_a_value_comes_back_as_it_went(value):
    assert python_value(json.loads(encode_json(any_value(value)))) == value


@given(st.dictionaries(st.text(), values))
def test_any_attributes_encode(attributes):
    attributes_of(json.loads(encode_json(key_values(attributes))))


@given(st.binary())
def test_no_line_makes_the_reader_raise(tmp_path_factory, content):
    store = store_of(tmp_path_factory.mktemp("s"), content)
    spans_of(store)


@given(st.lists(st.text(max_size=8), max_size=6))
def test_any_names_can_be_sorted(names):
    sorted(names, key=natural_key)
