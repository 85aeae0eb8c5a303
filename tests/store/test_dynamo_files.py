"""The files that Dynamo writes: gzip members, segments, and every way in which they are damaged."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_gym.store.dynamo_files import NoTraceFileError, lines_of_trace, records_of_trace, trace_files

LINES = [json.dumps({"n": number, "text": "é" * number}).encode() + b"\n" for number in range(6)]


def read(path: Path) -> tuple[list[bytes], list[str]]:
    damage: list[str] = []
    lines = [line for _, line in lines_of_trace(path, lambda each: damage.append(str(each)))]
    return lines, damage


def bare(lines: list[bytes]) -> list[bytes]:
    return [line.rstrip(b"\n") for line in lines]


@given(st.lists(st.lists(st.sampled_from(LINES))), st.booleans())
@settings(max_examples=60, deadline=None)
def test_lines_are_those_that_were_written_however_they_are_packed(
    tmp_path_factory: pytest.TempPathFactory, members: list[list[bytes]], packed: bool
) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl.gz"
    texts = [b"".join(member) for member in members]
    path.write_bytes(b"".join(map(gzip.compress, texts)) if packed else b"".join(texts))
    assert read(path) == (bare([line for member in members for line in member]), [])


def test_numbers_are_those_that_zcat_and_sed_would_count(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(LINES[0] + b"\n" + LINES[1]) + gzip.compress(LINES[2]))
    assert [number for number, line in lines_of_trace(path, print) if line.strip()] == [1, 3, 4]


@pytest.mark.parametrize("kept", range(1, 60))
def test_a_cut_member_costs_what_is_cut_and_is_told_once(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "trace.jsonl.gz"
    first, second = gzip.compress(b"".join(LINES)), gzip.compress(b"".join(LINES))
    path.write_bytes(first + second[:kept])
    lines, damage = read(path)
    assert lines[:6] == bare(LINES)
    assert lines[6:] == bare(LINES)[: len(lines) - 6]
    [text] = damage
    assert f"gzip member 2 (from byte {len(first)} of the file) is cut" in text


def test_a_member_that_was_cut_and_written_behind_costs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    member = gzip.compress(b"".join(LINES))
    path.write_bytes(member + member[:40] + member + member)
    lines, damage = read(path)
    assert lines[:6] == lines[-6:] == bare(LINES)
    assert len(lines) >= 18
    assert len(damage) == 1


def test_the_lines_of_a_member_whose_checksum_is_wrong_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    member = gzip.compress(b"".join(LINES))
    path.write_bytes(member[:-8] + b"\xff\xff\xff\xff" + member[-4:] + member)
    lines, damage = read(path)
    assert lines == bare(LINES) * 2
    assert "gzip member 1 (from byte 0 of the file) is damaged: its checksum is wrong" in damage[0]
    assert len(damage) == 1


@given(st.integers(0, 400), st.integers(1, 255))
@settings(max_examples=150, deadline=None)
def test_a_byte_that_is_wrong_costs_its_member_at_most(
    tmp_path_factory: pytest.TempPathFactory, place: int, flip: int
) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl.gz"
    members = [gzip.compress(b"".join(LINES), mtime=0) for _ in range(4)]
    content = bytearray(b"".join(members))
    place %= len(content)
    content[place] ^= flip
    path.write_bytes(content)
    lines, damage = read(path)
    if place == 0 and not damage:  # the file is no gzip any more
        return
    header = 10
    assert damage or place % len(members[0]) < header
    assert sum(line in bare(LINES) for line in lines) >= 18 or place < header


def test_what_is_no_gzip_between_members_is_told_and_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    member = gzip.compress(b"".join(LINES))
    path.write_bytes(member + b"garbage" + member + bytes(512) + member + b"more")
    lines, damage = read(path)
    assert lines == bare(LINES) * 3
    assert [text.partition(": ")[2] for text in damage] == [
        f"{number} bytes from byte {place} of the file are no gzip; every member was read; "
        "take the file from its source again"
        for number, place in ((7, len(member)), (4, 3 * len(member) + 7 + 512))
    ]


def test_a_cut_last_line_is_told_and_a_whole_one_without_newline_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(LINES[0] + LINES[1].rstrip())
    assert read(path) == (bare(LINES[:2]), [])
    path.write_bytes(LINES[0] + LINES[1][:9])
    lines, damage = read(path)
    assert lines == bare(LINES[:1])
    assert f"{path}:2: the last line is cut" in damage[0]


def test_lines_of_windows_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    record = {"schema": "dynamo.agent.trace.v1", "event_type": "tool_end"}
    path.write_bytes(
        b"\xef\xbb\xbf" + json.dumps(record).encode() + b"\r\n\r\n" + json.dumps({"event": record}).encode()
    )
    damage: list[object] = []
    assert [number for number, _ in records_of_trace(path, damage.append)] == [1, 3]
    assert damage == []


def test_a_large_file_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(LINES[5] * 400_000) * 3)  # 28 MB unpacked
    tracemalloc.start()
    assert sum(1 for _ in lines_of_trace(path, print)) == 1_200_000
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()


def test_a_path_is_a_file_a_folder_a_glob_or_what_dynamo_was_told(tmp_path: Path) -> None:
    names = ["b/trace.000001.jsonl.gz", "b/trace.000000.jsonl.gz", "a.jsonl", "notes.txt", "[x].jsonl"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    first, second = (tmp_path / "b" / f"trace.00000{number}.jsonl.gz" for number in (0, 1))
    for path in ("b", "b/trace", "b/trace.jsonl", "b/trace.jsonl.gz", "b/*.gz", "**/*.gz"):
        assert trace_files([tmp_path / path]) == [first, second], path
    assert trace_files([tmp_path / "[x].jsonl"]) == [tmp_path / "[x].jsonl"]
    assert trace_files([second, tmp_path]) == [second, tmp_path / "[x].jsonl", tmp_path / "a.jsonl", first]
    assert trace_files([tmp_path / "notes.txt"]) == [tmp_path / "notes.txt"]
    (tmp_path / "empty").mkdir()
    for path, said in (("none", "no such file or folder"), ("empty", "no file in it is called")):
        with pytest.raises(NoTraceFileError, match=said):
            trace_files([tmp_path / path])
