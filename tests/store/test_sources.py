"""One way in for every form of a store."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from otel_gym.store.reader import Store, StoreError, open_store
from otel_gym.views.model_calls import model_call_records
from otel_gym.views.summary import summarize_rollout

from .lines import encoded, ids_in, live_file, spans_in, write

MANY = [encoded(format(number, "x"), rollout=f"{number % 3}-0", start=100 - number) for number in range(1, 31)]


def packed(path: Path, content: bytes) -> Path:
    pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(content))
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_file_of_many_rollouts_is_read_rollout_by_rollout(tmp_path: Path, name: str) -> None:
    store = open_store(packed(tmp_path / name, b"\n".join(MANY) + b"\n"))
    assert store.rollout_ids() == ["0-0", "1-0", "2-0"]
    assert [len(rollout.spans) for rollout in store.rollouts()] == [10, 10, 10]
    starts = [span.start_ns for span in store.spans("1-0")]
    assert starts == sorted(starts)
    assert store.damage == []


def test_a_folder_of_files_is_one_store(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    packed(tmp_path / "a.jsonl", MANY[0] + b"\n")
    packed(tmp_path / "below" / "b.jsonl.gz", MANY[3])
    assert ids_in(open_store(tmp_path)) == ["4", "1"]


def test_a_collectors_file_names_the_rollout_on_the_resource(tmp_path: Path) -> None:
    """groupbyattrs moves it there; spans of several rollouts share a line."""
    resource = {"gym.rollout.id": "7-0", "gym.run.id": "r", "service.name": "x"}
    first, second = encoded("1", rollout=None, resource=resource), encoded("2", rollout="8-0")
    batch = first[: -len(b"]}")] + b"," + second[len(b'{"resourceSpans":[') :]
    store = open_store(packed(tmp_path / "collector.jsonl", batch + b"\n" + encoded("3", rollout=None)))
    found = [(rollout.run_id, rollout.rollout_id, len(rollout.spans)) for rollout in store.rollouts()]
    assert found == [("r", "7-0", 1), (None, "8-0", 1), (None, "unassigned", 1)]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_compressed_file_that_was_cut_is_read_as_far_as_it_goes_and_said(tmp_path: Path, suffix: str) -> None:
    lines = [encoded(format(number, "x"), noise=os.urandom(4000).hex()) for number in range(1, 200)]
    path = packed(tmp_path / f"a.jsonl{suffix}", b"\n".join(lines) + b"\n")
    path.write_bytes(path.read_bytes()[:-2000])
    store = open_store(path)
    assert 150 < len(spans_in(store)) < 199
    assert any("end-of-" in damage.problem and "source again" in damage.cure for damage in store.damage)


def test_a_compressed_file_that_was_appended_to_is_read_whole(tmp_path: Path) -> None:
    for suffix in (".gz", ".zst"):
        path = packed(tmp_path / f"a.jsonl{suffix}", MANY[0] + b"\n")
        more = packed(tmp_path / f"b.jsonl{suffix}", MANY[3] + b"\n")
        path.write_bytes(path.read_bytes() + more.read_bytes())
        assert ids_in(open_store(path)) == ["4", "1"]


def test_damage_in_a_file_of_many_rollouts_is_said_once_with_its_line(tmp_path: Path) -> None:
    content = b"\n".join([*MANY[:6], MANY[6][:90] + MANY[7], b"junk", MANY[8][:-30]])
    store = open_store(packed(tmp_path / "a.jsonl", content))
    assert len(spans_in(store)) == len(spans_in(store)) == 7
    assert sorted((damage.line, damage.offset is not None) for damage in store.damage) == [
        (7, True),
        (8, True),
        (9, True),
    ]


def test_what_is_no_file_of_spans_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(StoreError, match="none of the files that are read"):
        open_store(tmp_path / "x.txt")


def test_of_two_copies_of_a_span_the_ended_then_the_whole_then_the_later_one_is_kept(tmp_path: Path) -> None:
    whole = encoded("1", "whole", gym__request__body="{}")
    cut = encoded("1", "cut", gym__request__body="{", gym__request__body__bytes=99)
    slim = encoded("1", "slim")
    open_ = encoded("1", "open", end=None, gym__request__body="{}")
    later = encoded("1", "later", gym__request__body="{}")
    for order in ((open_, slim, cut, whole), (whole, cut, slim, open_), (cut, later, open_, whole)):
        write(live_file(tmp_path), *order)
        assert [span.name for span in spans_in(Store(tmp_path))] == ["whole"]
    write(live_file(tmp_path), whole, later)
    assert [span.name for span in spans_in(Store(tmp_path))] == ["later"]


def test_a_killed_run_keeps_its_shape(tmp_path: Path) -> None:
    """What had begun is in open/, without an end; what had ended is not open."""
    call = {"gen_ai__operation__name": "chat", "gym__model_call__id": "c", "gym__dialect": "chat"}
    write(live_file(tmp_path), encoded("2", "agent_step", start=5, end=9, parent="1"))
    write(
        tmp_path / "open" / "w.jsonl",
        encoded("1", "rollout", start=0, end=None, run="r"),
        encoded("2", "agent_step", start=5, end=None, parent="1"),
        encoded("3", start=6, end=None, parent="1", **call),
        encoded("9", "rollout", start=0, end=None, rollout="2-0"),
    )
    store = Store(tmp_path)
    assert store.rollout_ids() == ["1-0", "2-0"]
    first, second = store.rollouts()
    assert [(span.name, span.end_ns) for span in first.spans] == [
        ("rollout", None),
        ("agent_step", 9),
        ("chat m", None),
    ]
    row = summarize_rollout(first)
    assert (row.status, row.calls, row.unfinished, row.duration_ms) == ("unfinished", 1, 2, None)
    assert summarize_rollout(second).status == "unfinished"
    (record,) = model_call_records(first)
    assert (record.model_call_id, record.completed_at, record.latency_total_ms, record.error_category) == (
        "c",
        None,
        None,
        None,
    )


def test_a_span_that_ends_while_a_store_is_read_is_found_in_one_place_or_the_other(tmp_path: Path) -> None:
    write(tmp_path / "open" / "w.jsonl", encoded("1", "rollout", end=None))
    store = Store(tmp_path)
    assert [span.end_ns for span in store.spans("1-0")] == [None]
    write(live_file(tmp_path), encoded("1", "rollout"))
    write(tmp_path / "open" / "w.jsonl")
    assert [span.end_ns for span in store.spans("1-0")] == [20]


def test_listed_rollouts_hold_no_spans_until_they_are_asked_for(tmp_path: Path) -> None:
    for number in range(20):
        lines = [encoded(format(at, "x"), rollout=f"{number}-0", text="x" * 20_000) for at in range(1, 11)]
        write(live_file(tmp_path, f"{number}-0"), *lines)
    store = Store(tmp_path)
    tracemalloc.start()
    listed = list(store.rollouts())
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 300_000 and peak < 1_500_000  # of 4 MB
    assert [len(rollout.spans) for rollout in listed] == [10] * 20


def test_the_parent_of_a_store_was_read_as_a_folder_of_otlp_files(tmp_path: Path) -> None:
    write(live_file(tmp_path / "checkout" / "otel_gym_demo"), encoded("1"))
    write(tmp_path / "checkout" / "otel_gym_demo" / "model_calls.jsonl", b'{"model_call_id": "1"}')
    for path in (tmp_path / "checkout", tmp_path):
        with pytest.raises(StoreError, match=f"there is one at {tmp_path}/checkout/otel_gym_demo$"):
            open_store(path)
    write(live_file(tmp_path / "b"), encoded("1"))
    with pytest.raises(StoreError, match=f"there are 2 below it: {tmp_path}/b, {tmp_path}/checkout/otel_gym_demo$"):
        open_store(tmp_path)


def test_json_files_that_are_no_otlp_are_left_out_and_no_damage(tmp_path: Path) -> None:
    write(tmp_path / "tsconfig.json", b"{", b'  "strict": true', b"}")
    write(tmp_path / "metrics.jsonl", b'{"resourceMetrics":[]}')
    write(tmp_path / "said.jsonl", b'{"text": "{\\"resourceSpans\\": []}"}')
    with pytest.raises(StoreError, match="not a store of otel_gym, it has no folder spans/"):
        open_store(tmp_path)
    write(tmp_path / "traces.jsonl", b"junk", encoded("1"))
    store = open_store(tmp_path)
    assert ids_in(store) == ["1"]
    assert [path.name for path in store.left_out] == ["metrics.jsonl", "said.jsonl", "tsconfig.json"]
    assert [damage.path.name for damage in store.damage] == ["traces.jsonl"]
    with pytest.raises(StoreError, match="no OTLP/JSON lines"):
        open_store(tmp_path / "tsconfig.json")


@pytest.mark.parametrize("folder", [".venv", ".git", "web/node_modules", "lib/site-packages"])
def test_hidden_folders_and_packages_are_not_looked_at(tmp_path: Path, folder: str) -> None:
    write(tmp_path / folder / "x.jsonl", encoded("1"))
    write(live_file(tmp_path / folder / "store"), encoded("2"))
    write(tmp_path / "traces.ndjson", encoded("3"))
    assert ids_in(open_store(tmp_path)) == ["3"]
    assert ids_in(open_store(tmp_path / folder / "x.jsonl")) == ["1"]
