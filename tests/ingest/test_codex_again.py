"""A session of Codex that is imported again, or while it grows, adds nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_gym.ingest.codex import read_codex
from otel_gym.ingest.spans import Written, write_rollout
from otel_gym.store.reader import open_store
from tests.ingest.codex_sessions import SESSIONS

SCENARIOS = ("parallel_tools", "compaction_auto", "resume", "subagent", "response_failed", "exhaust_500")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_import_that_is_repeated_writes_nothing(scenario: str, tmp_path: Path) -> None:
    for rollout in read_codex(SESSIONS / scenario):
        count = len(rollout.spans)
        assert write_rollout(tmp_path, rollout) == Written(new=count)
        assert write_rollout(tmp_path, rollout) == Written(same=count)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_session_that_grows_ends_as_if_it_was_imported_whole(scenario: str, tmp_path: Path) -> None:
    growing, store = tmp_path / "sessions", tmp_path / "store"
    growing.mkdir()
    for path, line in _as_written(SESSIONS / scenario / "sessions"):
        with (growing / path.name).open("ab") as file:
            for part in (line[: len(line) // 2], line[len(line) // 2 :]):
                file.write(part)
                file.flush()
                for rollout in read_codex(growing):
                    write_rollout(store, rollout)
    for rollout in read_codex(SESSIONS / scenario):
        there = {span.span_id for span in open_store(store).spans(rollout.identity_id)}
        assert there == {f"{span.span_id:016x}" for span in rollout.spans}
        assert write_rollout(store, rollout) == Written(same=len(rollout.spans))


def _as_written(folder: Path) -> list[tuple[Path, bytes]]:
    """The lines of all files in the order of their times."""
    lines = [(path, line) for path in sorted(folder.iterdir()) for line in path.read_bytes().splitlines(keepends=True)]
    return sorted(lines, key=lambda line: line[1][:40])
