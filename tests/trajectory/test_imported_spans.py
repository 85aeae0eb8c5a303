"""Spans of an import: in memory they are what a reader finds in the store, and the store takes each once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from otel_gym import conventions as names
from otel_gym.id_rules import is_valid_id, rollout_id_of_session
from otel_gym.ingest.imported import ImportedEvent, ImportedRollout, ImportedSpan
from otel_gym.ingest.spans import Written, stored_spans, write_rollout
from otel_gym.store.reader import open_store

BEGAN = 1_800_000_000_000_000_000


@pytest.fixture
def rollout() -> ImportedRollout:
    made = ImportedRollout("transcript", "session 1", [])
    root = ImportedSpan(made.span_id("root"), "rollout", BEGAN, BEGAN + 9)
    event = ImportedEvent(names.USER_MESSAGE_EVENT, BEGAN, {names.ITEM: '{"role":"user"}', "unknown": None})
    agent = ImportedSpan(
        made.span_id("agent"),
        "invoke_agent x",
        BEGAN,
        BEGAN + 8,
        root.span_id,
        {"gen_ai.operation.name": "invoke_agent", "unknown": None, "words": ["a", "b"]},
        [event],
        link_id=root.span_id,
        error="it failed",
    )
    key = ImportedSpan(made.span_id("tool"), "execute_tool x", BEGAN + 1, None, agent.span_id, {"password": "hunter22"})
    made.spans += [root, agent, key]
    return made


def test_in_memory_they_are_what_a_reader_finds(rollout: ImportedRollout, tmp_path: Path) -> None:
    write_rollout(tmp_path, rollout, "run-1")
    [stored] = open_store(tmp_path).rollouts()
    in_memory = {span.span_id: span for span in stored_spans(rollout, "run-1")}
    assert {span.span_id: replace(span, blobs=None) for span in stored.spans} == in_memory
    assert stored.rollout_id.startswith("session_1-")


def test_an_import_that_is_repeated_adds_nothing(rollout: ImportedRollout, tmp_path: Path) -> None:
    assert write_rollout(tmp_path, rollout) == Written(new=3)
    assert write_rollout(tmp_path, rollout) == Written(same=3)


def test_of_a_session_that_has_grown_only_what_is_new_or_other_is_written(
    rollout: ImportedRollout, tmp_path: Path
) -> None:
    write_rollout(tmp_path, rollout)
    rollout.spans[0].end_ns = BEGAN + 20
    rollout.spans.append(ImportedSpan(rollout.span_id("more"), "agent_step", BEGAN + 9, BEGAN + 20))
    assert write_rollout(tmp_path, rollout) == Written(new=1, changed=1, same=2)
    [stored] = open_store(tmp_path).rollouts()
    assert len(stored.spans) == 4
    assert [span.end_ns for span in stored.spans if span.name == "rollout"] == [BEGAN + 20]


def test_secrets_of_a_transcript_never_land_on_disk(rollout: ImportedRollout, tmp_path: Path) -> None:
    write_rollout(tmp_path, rollout)
    assert not any(b"hunter22" in file.read_bytes() for file in tmp_path.rglob("*.jsonl"))
    assert stored_spans(rollout)[2].attributes["password"] == "[redacted]"


def test_errors_that_name_a_url_or_a_secret_were_other_in_memory_than_in_the_store(
    rollout: ImportedRollout, tmp_path: Path
) -> None:
    text = "GET https://api.example.com/v1?q=private failed: password=hunter22"
    rollout.spans[1].error = text
    rollout.spans[1].events.append(ImportedEvent("exception", BEGAN, {"exception.message": text}))
    assert write_rollout(tmp_path, rollout) == Written(new=3)
    assert write_rollout(tmp_path, rollout) == Written(same=3)
    [stored] = open_store(tmp_path).rollouts()
    in_memory = {span.span_id: span for span in stored_spans(rollout)}
    assert {span.span_id: replace(span, blobs=None) for span in stored.spans} == in_memory
    assert in_memory[f"{rollout.spans[1].span_id:016x}"].status_message == (
        "GET https://api.example.com/v1 failed: password=[redacted]"
    )


def test_the_request_of_a_call_that_changed_was_made_twice(rollout: ImportedRollout, tmp_path: Path) -> None:
    made: list[str] = []

    def body() -> str:
        made.append("once")
        return '{"model": "m"}'

    rollout.spans[2].attributes[names.REQUEST_BODY] = body
    for written in (Written(new=3), Written(same=3), Written(changed=1, same=2)):
        rollout.spans[2].end_ns = BEGAN + 5 if written.changed else None
        made.clear()
        assert write_rollout(tmp_path, rollout) == written
        assert made == ["once"]


@pytest.mark.parametrize("session_id", ["../../etc", "", "unassigned", "a b/c", "é" * 300, ".hidden"])
def test_any_session_has_a_rollout_id(session_id: str) -> None:
    assert is_valid_id(rollout_id_of_session(session_id))
