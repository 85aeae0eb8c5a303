"""Segments and lines as Dynamo writes them, whoever else writes there."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym.store.dynamo_files import lines_of_trace
from otel_gym.views.dynamo.files import LinesFile, SegmentFiles, gzip_member

LINE = b'{"x":1}\n'


def segments(folder: Path) -> list[list[bytes]]:
    """The lines of each segment, in order."""
    return [gzip.decompress(path.read_bytes()).splitlines(True) for path in sorted(folder.glob("t.*.jsonl.gz"))]


def test_a_member_has_the_header_that_dynamo_writes():
    member = gzip_member(b"abc" * 100)
    assert member[:10].hex() == "1f8b08000000000000ff"
    assert gzip.decompress(member) == b"abc" * 100


@pytest.mark.parametrize("name", ["t", "t.jsonl", "t.jsonl.gz"])
def test_segments_are_numbered_behind_the_name_without_its_endings(tmp_path, name):
    files = SegmentFiles(tmp_path / name, 1000, 1000, None)
    files.add(LINE)
    files.flush()
    assert [path.name for path in tmp_path.iterdir()] == ["t.000000.jsonl.gz"]


def test_each_flush_is_one_whole_member(tmp_path):
    files = SegmentFiles(tmp_path / "t", 1000, 1000, None)
    for _ in range(3):
        files.add(LINE)
        files.flush()
    files.flush()
    assert (tmp_path / "t.000000.jsonl.gz").read_bytes() == gzip_member(LINE) * 3


def test_a_segment_rolls_before_the_line_that_is_too_much(tmp_path):
    by_lines = SegmentFiles(tmp_path / "lines" / "t", 1000, 1000, 2)
    by_bytes = SegmentFiles(tmp_path / "bytes" / "t", 1000, len(LINE) * 3, None)
    for files in (by_lines, by_bytes):
        for _ in range(5):
            files.add(LINE)
        files.flush()
    assert [len(lines) for lines in segments(tmp_path / "lines")] == [2, 2, 1]
    assert [len(lines) for lines in segments(tmp_path / "bytes")] == [3, 2]


def test_a_line_longer_than_a_segment_stands_in_one_of_its_own(tmp_path):
    files = SegmentFiles(tmp_path / "t", 1000, 10, None)
    for line in (LINE, b"y" * 50 + b"\n", LINE):
        files.add(line)
    files.flush()
    assert [len(lines) for lines in segments(tmp_path)] == [1, 1, 1]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 60), st.integers(1, 60), st.none() | st.integers(1, 5))
def test_no_line_is_lost_or_moved_whatever_the_limits(tmp_path_factory, lengths, buffer_bytes, roll_bytes, roll_lines):
    folder = tmp_path_factory.mktemp("segments")
    files = SegmentFiles(folder / "t", buffer_bytes, roll_bytes, roll_lines)
    lines = [str(number).encode() + b"." * length + b"\n" for number, length in enumerate(lengths)]
    for line in lines:
        files.add(line)
    files.flush()
    written = segments(folder)
    assert [line for segment in written for line in segment] == lines
    assert all(len(segment) == 1 or sum(map(len, segment)) <= roll_bytes for segment in written)
    assert all(roll_lines is None or len(segment) <= roll_lines for segment in written)


def test_a_segment_of_another_writer_is_never_appended_to(tmp_path):
    theirs = tmp_path / "t.000000.jsonl.gz"
    theirs.write_bytes(gzip_member(b"theirs\n"))
    (tmp_path / "t.000002.jsonl.gz").write_bytes(b"")
    one, other = (SegmentFiles(tmp_path / "t", 1000, 1000, 1) for _ in range(2))
    for files in (one, other, one):
        files.add(LINE)
        files.flush()
    assert theirs.read_bytes() == gzip_member(b"theirs\n")
    assert sorted(path.name for path in tmp_path.iterdir() if path.stat().st_size) == [
        f"t.00000{number}.jsonl.gz" for number in (0, 1, 3, 4)
    ]


def test_a_segment_that_was_taken_away_is_followed_by_the_next(tmp_path):
    files = SegmentFiles(tmp_path / "t", 1000, 1000, None)
    files.add(LINE)
    files.flush()
    (tmp_path / "t.000000.jsonl.gz").rename(tmp_path / "kept.gz")
    files.add(LINE)
    files.flush()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.gz", "t.000001.jsonl.gz"]


def test_what_cannot_be_written_whole_is_taken_back(tmp_path, monkeypatch):
    files = SegmentFiles(tmp_path / "t", 1000, 1000, None)
    files.add(LINE)
    files.flush()
    write = os.write

    def full_disk(file: int, content: bytes) -> int:
        if len(content) > 5:
            return write(file, content[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full_disk)
    files.add(LINE)
    with pytest.raises(OSError, match="No space"):
        files.flush()
    monkeypatch.undo()
    files.add(LINE)
    files.flush()
    assert segments(tmp_path) == [[LINE, LINE]]


def test_lines_go_behind_those_of_others_and_behind_a_torn_one(tmp_path):
    path = tmp_path / "sub" / "t.jsonl"
    one, other = LinesFile(path, 1000), LinesFile(path, 1)
    one.add(LINE)
    one.flush()
    other.add(b"other\n")
    assert path.read_bytes() == LINE + b"other\n"
    path.write_bytes(LINE + b'{"half')
    killed_before = LinesFile(path, 1000)
    killed_before.add(LINE)
    killed_before.flush()
    assert path.read_bytes() == LINE + b'{"half\n' + LINE


def test_the_ingest_reads_every_member(tmp_path):
    files = SegmentFiles(tmp_path / "t", 1000, 1000, None)
    for _ in range(3):
        files.add(LINE)
        files.flush()
    damage: list[object] = []
    assert [line for _, line in lines_of_trace(tmp_path / "t.000000.jsonl.gz", damage.append)] == [LINE.strip()] * 3
    assert damage == []
