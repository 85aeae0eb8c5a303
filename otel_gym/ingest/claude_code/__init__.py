"""Sessions of Claude Code → spans: its transcripts, or what a run printed as stream-json.

    for rollout in read_claude_code(Path("~/.claude/projects").expanduser()):
        write_rollout(store, rollout)

Read are the versions 2.0.70 to 2.1.332. What an unknown newer one adds is counted as dropped, not guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_gym.content_policy import ContentPolicy
from otel_gym.ingest.claude_code.agent_log import AgentLog
from otel_gym.ingest.claude_code.common_lines import Line, common_line
from otel_gym.ingest.claude_code.common_records import read_common
from otel_gym.ingest.claude_code.copies import CopiedRecordError, Copies, check_owner
from otel_gym.ingest.claude_code.lines import Damage, Row, parse, records, rows
from otel_gym.ingest.claude_code.records import read_row
from otel_gym.ingest.claude_code.request_bodies import RequestBodies
from otel_gym.ingest.claude_code.session import AGENT, SessionLog
from otel_gym.ingest.claude_code.session_files import (
    STREAM_JSON,
    Beginnings,
    SessionFiles,
    find_sessions,
    read_head,
)
from otel_gym.ingest.claude_code.session_steps import agent_run
from otel_gym.ingest.claude_code.stream_json import StreamReader
from otel_gym.ingest.files import with_damage
from otel_gym.ingest.imported import ImportedRollout
from otel_gym.records.steps import AgentRun

__all__ = ["SessionRun", "claude_code_runs", "is_claude_code", "read_claude_code"]


def is_claude_code(path: Path) -> bool:
    """Whether a file is a transcript, or stream-json output. OSError."""
    return read_head(path) is not None


def read_claude_code(path: str | Path) -> list[ImportedRollout]:
    """The sessions at ``path``: a transcript, a stream-json file, or a folder anywhere above some.

    A rollout for each session; a fork holds only what its session added, and says which one it continues. A file that
    is no session is passed over; one that cannot be read is damage. OSError for ``path`` itself; SourceError.
    """
    unreadable: list[str] = []
    rollouts: list[ImportedRollout] = []
    for rollout, session in _sessions(Path(path), unreadable):
        _add_spans(rollout, session)
        if len(rollout.spans) > 1 or rollout.damage:
            rollouts.append(rollout)
    return with_damage(rollouts, unreadable)


def claude_code_runs(path: Path, policy: ContentPolicy, damage: list[str]) -> Iterator[SessionRun | ImportedRollout]:
    """The same sessions, one at a time, each as the steps of its agents: what needs no spans is made from these.

    Of a session that holds subagents alone, its spans. ``damage``: what could not be read. OSError for ``path`` itself;
    SourceError.
    """
    for rollout, session in _sessions(path, damage):
        damage += rollout.damage
        if session.main.turns:
            version = session.versions[-1] if session.versions else None
            yield SessionRun(rollout.identity_id, agent_run(session, rollout, policy), version)
        elif session.agents:
            _add_spans(rollout, session)
            yield rollout


@dataclass(frozen=True, slots=True)
class SessionRun:
    """A session: the rollout that an import makes of it, its main agent, and the version of the harness."""

    rollout_id: str
    run: AgentRun
    version: str | None


def _add_spans(rollout: ImportedRollout, session: SessionLog) -> None:
    from otel_gym.ingest.claude_code.session_spans import add_spans  # loads the SDK, which runs do without

    add_spans(rollout, session)


def _sessions(path: Path, unreadable: list[str]) -> Iterator[tuple[ImportedRollout, SessionLog]]:
    sessions = find_sessions(path, unreadable)
    copies = Copies(several=len(sessions) > 1)
    beginnings = Beginnings(sessions)
    imported = {session.head.session_id for session in sessions}
    for session in sessions:
        earlier = beginnings.before(session)
        for other in earlier:
            if other.head.session_id not in imported:
                copies.learn(other.paths[0], other.head.session_id)
        copies.begin(earlier[0].head.session_id if earlier else None, session.head.first_ns)
        yield _read_session(session, copies)


def _read_session(files: SessionFiles, copies: Copies) -> tuple[ImportedRollout, SessionLog]:
    """Few sessions hold records of another one, so that it is read as one that holds none until there is one."""
    if copies.are_none():
        try:
            return _read_files(files, None)
        except CopiedRecordError:
            pass
    return _read_files(files, copies)


def _read_files(files: SessionFiles, copies: Copies | None) -> tuple[ImportedRollout, SessionLog]:
    head = files.head
    rollout = ImportedRollout(head.source, head.session_id, [], service=AGENT)
    first_index = 0
    session = SessionLog(head.session_id, head.first_ns or _written_ns(files))
    stream = StreamReader(session)
    for path in files.paths:
        damage = Damage(path, first_index)
        if head.source == STREAM_JSON:
            first_index = _read_stream(stream, path, damage)
        else:
            first_index = _read_transcript(path, session, copies, damage)
        _settle(session.main, damage, rollout)
    if session.main.totals.usage is not None and not session.main.turns:
        session.main.open_turn("turn without calls", 0, None)
    for path in files.agents:
        _read_agent(path, session, rollout)
    return rollout, session


def _written_ns(files: SessionFiles) -> int:
    """When the file was last written: the one time there is of a source that names none."""
    return [*files.paths, *files.agents][0].stat().st_mtime_ns


def _settle(log: AgentLog, damage: Damage, rollout: ImportedRollout) -> None:
    log.dropped += damage.records
    rollout.damage += damage.summary()


def _read_stream(reader: StreamReader, path: Path, damage: Damage) -> int:
    """Returns the place behind its last record."""
    index = damage.first_index
    reader.begin_run()
    for index, row in rows(path, damage):
        reader.read(row, index, damage)
    return index + 1


def _read_transcript(path: Path, session: SessionLog, copies: Copies | None, damage: Damage) -> int:
    """Returns the place behind its last record."""
    session.bodies.append(RequestBodies(path))
    if copies is None:
        return _read_alone(path, session, damage)
    copies.look_ahead(path, session.session_id, damage.first_index)
    index, copied_index = damage.first_index, None
    for index, row in rows(path, damage):
        owner = copies.owner(row, index, session.session_id)
        if owner is not None:
            session.continues = owner
            read_row(session, session.main.inherits(), row, index, damage)
            copied_index = index
            continue
        if copied_index is not None:
            session.main.goes_on(copied_index, session.continues)
            copied_index = None
        copies.saw(row, session.session_id)
        read_row(session, session.log_of(row), row, index, damage)
    return index + 1


def _read_alone(path: Path, session: SessionLog, damage: Damage) -> int:
    """Of a session that shares no record with another. CopiedRecordError if it does."""
    index = damage.first_index
    found: Iterator[tuple[int, Row | Line]] = records(path, damage, common_line)
    for index, row in found:
        if isinstance(row, dict):
            check_owner(row.get("requestSessionId"), session.session_id)
            read_row(session, session.log_of(row), row, index, damage)
        else:
            read_common(session, session.main, row, index, damage)
    return index + 1


def _read_agent(path: Path, session: SessionLog, rollout: ImportedRollout) -> None:
    damage = Damage(path)
    log = session.agent(path.stem.removeprefix("agent-"))
    about = _described(path.with_suffix(".meta.json"), damage)
    log.agent_type = about.get("agentType") if isinstance(about.get("agentType"), str) else None
    log.spawned_by = about.get("toolUseId") if isinstance(about.get("toolUseId"), str) else None
    log.parent_agent_id = about.get("parentAgentId") if isinstance(about.get("parentAgentId"), str) else None
    session.bodies.append(RequestBodies(path))
    may_be_copied = True
    for index, row in rows(path, damage):
        # What an agent was started with comes first.
        may_be_copied = may_be_copied and ("uuid" not in row or session.is_of_another(log, row))
        if may_be_copied and "uuid" in row:
            read_row(session, log.inherits(), row, index, damage)
            log.goes_on(index)
        else:
            read_row(session, log, row, index, damage)
    _settle(log, damage, rollout)


def _described(path: Path, damage: Damage) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        about = parse(path.read_bytes())
    except ValueError:
        about = None
    if isinstance(about, dict):
        return about
    damage.texts.append(f"{path}: no JSON object; which call started this agent is guessed by its prompt")
    return {}
