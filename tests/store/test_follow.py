"""A store that is read while it is written."""

from __future__ import annotations

from pathlib import Path

from otel_gym.store.follow import Follower
from otel_gym.store.reader import Damage

from .lines import encoded, live_file, write

A, B = encoded("a"), encoded("b", name="世")


def follower(path: Path, rollout_id: str | None = None) -> tuple[Follower, list[Damage]]:
    damage: list[Damage] = []
    return Follower(path, damage.append, rollout_id), damage


def look(follower: Follower) -> list[str]:
    return [each.span.span_id.lstrip("0") for each in follower.look()]


def test_a_line_that_is_being_written_is_ignored_and_taken_when_it_is_whole(tmp_path: Path) -> None:
    """R066: a poll between the bytes and the newline killed the tool. At every byte."""
    follow, damage = follower(tmp_path)
    file = live_file(tmp_path)
    file.write_bytes(A + b"\n")
    assert look(follow) == ["a"]
    for at in range(len(B)):
        with file.open("ab") as content:
            content.write(B[at : at + 1])
        assert look(follow) == (["b"] if at == len(B) - 1 else [])
    with file.open("ab") as content:  # a Collector writes the newline late
        content.write(b"\n" + A + b"\n")
    assert look(follow) == ["a"]
    assert damage == []


def test_only_what_was_added_is_shown_after_skipping_what_was_there(tmp_path: Path) -> None:
    follow, damage = follower(tmp_path)
    file = live_file(tmp_path)
    file.write_bytes(A + b"\n" + B[:20])
    follow.skip_what_is_there()
    assert look(follow) == []
    with file.open("ab") as content:
        content.write(B[20:] + b"\n")
    assert look(follow) == ["b"]
    write(live_file(tmp_path, "2-0"), A)
    assert look(follow) == ["a"]
    assert damage == []


def test_a_long_unfinished_line_is_left_when_what_is_there_is_skipped(tmp_path: Path) -> None:
    follow, _ = follower(tmp_path)
    long = encoded("c", text="x" * 200_000)
    live_file(tmp_path).write_bytes(A + b"\n" + long[:-10])
    follow.skip_what_is_there()
    with live_file(tmp_path).open("ab") as content:
        content.write(long[-10:])
    assert look(follow) == ["c"]


def test_one_rollout_can_be_followed_and_files_come_and_go(tmp_path: Path) -> None:
    follow, _ = follower(tmp_path, "2-0")
    assert look(follow) == []
    write(live_file(tmp_path), A)
    file = write(live_file(tmp_path, "2-0"), A)
    assert look(follow) == ["a"]
    file.unlink()
    assert look(follow) == []
    write(file, B)
    assert look(follow) == ["b"]


def test_a_finished_line_that_is_damaged_is_said_and_what_is_whole_in_it_shown(tmp_path: Path) -> None:
    follow, damage = follower(tmp_path)
    live_file(tmp_path).write_bytes(A[:50] + B + b"\n")
    assert look(follow) == ["b"]
    assert [each.line for each in damage] == [1]
