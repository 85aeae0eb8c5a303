"""Files as kills, power cuts and careless writers leave them: what is whole is read, what is lost is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym.store.decode import decode_line
from otel_gym.store.lines import spans_of_file
from otel_gym.store.otlp_json import MalformedLineError, spans_of_line
from otel_gym.store.reader import Damage, Store

from .lines import encoded, ids_in, live_file

A, B, C = (encoded(span_id, text="ein “Wort” {[ \\ 世界") for span_id in "abc")


def read(path: Path, content: bytes) -> tuple[list[str], list[Damage]]:
    file = live_file(path)
    file.write_bytes(content)
    store = Store(path)
    return ids_in(store), store.damage


def test_a_record_glued_behind_a_torn_one_is_read(tmp_path: Path) -> None:
    """R064: a kill leaves half a line, the next append glues a good record to it."""
    ids, damage = read(tmp_path, A + b"\n" + B[:70] + C + b"\n")
    assert ids == ["a", "c"]
    assert [(each.line, each.offset, each.lost) for each in damage] == [(2, len(A) + 1, True)]
    assert "70 bytes of a record that was cut off" in damage[0].problem


def test_two_records_on_one_line_are_both_read_and_said(tmp_path: Path) -> None:
    """R063: body and newline were written in two calls by two processes."""
    ids, damage = read(tmp_path, A + B + b"\n\n" + C + b"\n")
    assert ids == ["a", "b", "c"]
    assert [(each.line, each.lost) for each in damage] == [(1, False)]
    assert "2 records on one line" in damage[0].problem


def test_interleaved_lines_are_said_with_file_line_and_byte(tmp_path: Path) -> None:
    """R063: a record written into the middle of another."""
    ids, damage = read(tmp_path, A[:60] + B + b"\n" + A[60:] + b"\n" + C + b"\n")
    assert ids == ["b", "c"]
    assert [(each.line, each.offset) for each in damage] == [(1, 0), (2, 61 + len(B))]
    assert str(damage[1]).startswith(f"{live_file(tmp_path)}:2: ")
    assert f"(at byte {61 + len(B)})" in str(damage[1])


def test_a_tail_cut_inside_a_character_loses_one_record(tmp_path: Path) -> None:
    """R065: decoding the whole file at once fails and takes every record with it."""
    cut = B.index("世".encode()) + 2
    ids, damage = read(tmp_path, A + b"\n" + B[:cut])
    assert ids == ["a"]
    assert "torn at the end of the file" in damage[0].problem


def test_a_file_that_a_power_cut_filled_with_nul_keeps_its_records(tmp_path: Path) -> None:
    ids, damage = read(tmp_path, A + b"\n" + B[:50] + b"\0" * 4096 + C + b"\n" + b"\0" * 512)
    assert ids == ["a", "c"]
    assert ["4,096 of them NUL" in damage[0].problem, "512 bytes of NUL" in damage[1].problem] == [True, True]


def test_an_inner_object_of_a_torn_record_is_never_taken_for_one(tmp_path: Path) -> None:
    quoted = encoded("e", body=A.decode(), nested={"resourceSpans": json.loads(B)["resourceSpans"]})
    for cut in range(1, len(quoted), 5):
        assert read(tmp_path, quoted[:cut])[0] == []
        ids, damage = read(tmp_path, quoted[:cut] + C + b"\n")
        assert (ids, len(damage)) == (["c"], 1)


def test_a_record_inside_another_that_happens_to_be_json_is_the_one_that_is_read(tmp_path: Path) -> None:
    """A head, a whole record and a tail on one line parse as one object whose spans would be lost."""
    for cut in range(1, len(A), 3):
        with pytest.raises(MalformedLineError):
            decode_line(A[:cut] + B + A[cut:])
        assert read(tmp_path, A[:cut] + B + A[cut:] + b"\n")[0] == ["b"]


def test_one_bad_span_does_not_hide_the_others_of_its_line(tmp_path: Path) -> None:
    document = json.loads(A)
    document["resourceSpans"] += [{"scopeSpans": [{"spans": [{"name": "no ids"}]}]}, *json.loads(B)["resourceSpans"]]
    ids, damage = read(tmp_path, json.dumps(document).encode() + b"\n")
    assert ids == ["a", "b"]
    assert "2 other spans of the line were read" in damage[0].cure


def test_a_line_of_another_signal_is_said_and_skipped(tmp_path: Path) -> None:
    ids, damage = read(tmp_path, b'{"resourceLogs":[]}\n' + A + b"\n")
    assert ids == ["a"]
    assert "no resourceSpans" in damage[0].problem


texts = st.text(st.characters(codec="utf-8"), max_size=12)
records = st.builds(
    lambda number, attributes: encoded(format(number, "x"), **{f"k{key}": value for key, value in attributes.items()}),
    st.integers(1, 2**60),
    st.dictionaries(texts, texts | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.lists(texts), max_size=3),
)


@st.composite
def damaged_files(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A file and the whole records in it. A cut end never meets a cut start: together they could be a record."""
    content, whole, after_cut = b"", [], False
    for record in draw(st.lists(records, max_size=6)):
        kind = draw(st.sampled_from(["whole", "head", "tail", "nul"]))
        cut = draw(st.integers(1, len(record) - 1))
        if kind == "whole":
            content, after_cut = content + record, False
            whole.append(record)
        elif kind == "head":
            content, after_cut = content + record[:cut], True
        elif kind == "tail" and not after_cut:
            content += record[cut:]
        elif kind == "nul":
            content, after_cut = content + b"\0" * (cut % 9), True
        if draw(st.booleans()):
            content, after_cut = content + b"\n", False
    return content, whole


@settings(max_examples=300, deadline=None)
@given(damaged_files())
def test_any_cut_or_glue_of_lines_every_whole_record_is_read_and_nothing_is_invented(
    tmp_path_factory: pytest.TempPathFactory, damaged: tuple[bytes, list[bytes]]
) -> None:
    content, whole = damaged
    path = tmp_path_factory.getbasetemp() / "damaged.jsonl"
    path.write_bytes(content)
    damage: list[Damage] = []
    assert list(spans_of_file(path, damage.append)) == [span for record in whole for span in spans_of_line(record)]
    lost = len(content.replace(b"\n", b"")) > sum(map(len, whole))
    assert any(each.lost for each in damage) == lost


@given(records)
def test_the_fast_decoder_says_what_the_tolerant_one_says(record: bytes) -> None:
    assert decode_line(record) == spans_of_line(record)


@given(st.binary())
def test_no_bytes_make_the_reader_raise(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(content)
    list(spans_of_file(path, lambda damage: None))
