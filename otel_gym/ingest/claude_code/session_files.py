"""Which files hold which session: transcripts with those of their subagents, or the stream-json output of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from otel_gym.ingest.claude_code.lines import Row, parse
from otel_gym.ingest.files import readable
from otel_gym.records.steps import unix_nano

TRANSCRIPT = "transcript"
STREAM_JSON = "stream_json"

_AGENT_FILES = "agent-*.jsonl"
_HEAD_LINES = 5000
_HEAD_ROWS = 40
_TAIL_BYTES = 65536


@dataclass(slots=True)
class Head:
    """What the first records of a file tell: its kind and session, when it began, the first record with a uuid."""

    source: str
    session_id: str
    first_ns: int = 0
    first_uuid: str | None = None


@dataclass(slots=True)
class SessionFiles:
    """``paths``: one file after the other, as a session went on; none where only files of subagents are left."""

    head: Head
    paths: list[Path]
    agents: list[Path] = field(default_factory=list)


def find_sessions(path: Path, damage: list[str]) -> list[SessionFiles]:
    """The sessions at a file or anywhere below a folder, the earlier ones first.

    Where a folder holds transcripts, its stream-json files tell the same once more and worse: they are left aside.
    ``damage``: what cannot be read there.
    """
    if path.is_dir():
        files = readable(sorted(path.rglob("*.jsonl")), damage)
    elif path.match(_AGENT_FILES):
        files = [path]
    else:
        beside = [*sorted(path.parent.glob(_AGENT_FILES)), *sorted(path.with_suffix("").rglob(_AGENT_FILES))]
        files = [path, *readable(beside, damage)]
    sessions: list[SessionFiles] = []
    agents: list[tuple[Path, Head]] = []
    for file in files:
        head = read_head(file)
        if head is None:
            continue
        if file.match(_AGENT_FILES) and head.source == TRANSCRIPT:
            agents.append((file, head))
        else:
            sessions.append(SessionFiles(head, [file]))
    if any(session.head.source == TRANSCRIPT for session in sessions):
        sessions = [session for session in sessions if session.head.source == TRANSCRIPT]
    _join_agents(sessions, agents, only_theirs=path.is_file() and path not in [file for file, _ in agents])
    return _joined(sorted(sessions, key=_order))


def _order(session: SessionFiles) -> tuple[int, int, str]:
    last = session.paths[-1] if session.paths else None
    return session.head.first_ns, _last_ns(last), session.head.session_id


def _joined(sessions: list[SessionFiles]) -> list[SessionFiles]:
    """One for each session: a run that is resumed prints another stream, and may write another transcript."""
    by_id: dict[str, SessionFiles] = {}
    for session in sessions:
        first = by_id.setdefault(session.head.session_id, session)
        if first is not session:
            first.paths += session.paths
            first.agents += session.agents
    return list(by_id.values())


def _join_agents(sessions: list[SessionFiles], agents: list[tuple[Path, Head]], only_theirs: bool) -> None:
    """Each file of a subagent to its session: the one in whose folder it lies, else that whose id it names."""
    folders = {path.with_suffix(""): session for session in sessions for path in session.paths}
    by_id = {session.head.session_id: session for session in sessions}
    for path, head in agents:
        session = next((folders[folder] for folder in path.parents if folder in folders), by_id.get(head.session_id))
        if session is None and only_theirs:
            continue
        if session is None:
            session = by_id[head.session_id] = SessionFiles(head, [])
            sessions.append(session)
        session.agents.append(path)


def read_head(path: Path) -> Head | None:
    """None for a file that is neither: other JSON lines, no JSON, nothing at all."""
    head: Head | None = None
    for row in islice(_first_rows(path), _HEAD_ROWS):
        kind = _kind_of(row)
        if kind is None:
            continue
        source, session_id = kind
        if head is None:
            head = Head(source, session_id)
        if session_id == path.stem:
            head.session_id = session_id
        head.first_ns = head.first_ns or unix_nano(row.get("timestamp")) or 0
        uuid = row.get("uuid")
        if head.first_uuid is None and isinstance(uuid, str):
            head.first_uuid = uuid
        if head.first_ns and head.first_uuid and head.session_id == path.stem:
            break
    return head


def _kind_of(row: Row) -> tuple[str, str] | None:
    if not isinstance(row.get("type"), str):
        return None
    for name, source in (("sessionId", TRANSCRIPT), ("session_id", STREAM_JSON)):
        session_id = row.get(name)
        if isinstance(session_id, str) and session_id:
            return source, session_id
    return None


def _first_rows(path: Path) -> Iterator[Row]:
    with path.open("rb") as lines:
        for line in islice(lines, _HEAD_LINES):
            if not line.startswith((b"{", b"[")):
                continue
            try:
                value = parse(line)
            except ValueError:
                continue
            yield from (row for row in (value if isinstance(value, list) else [value]) if isinstance(row, dict))


def _last_ns(path: Path | None) -> int:
    """The last time that the end of a file names."""
    if path is None:
        return 0
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        lines = file.read().split(b"\n")
    for line in reversed(lines):
        try:
            row = parse(line)
        except ValueError:
            continue
        time_ns = unix_nano(row.get("timestamp")) if isinstance(row, dict) else None
        if time_ns is not None:
            return time_ns
    return 0


class Beginnings:
    """Which sessions begin with the same record: a fork begins as the session did that it continues."""

    def __init__(self, sessions: Iterable[SessionFiles]) -> None:
        """Looked at are the files beside those of ``sessions``, too."""
        folders = sorted({path.parent for session in sessions for path in session.paths})
        self._by_record: dict[str, list[SessionFiles]] = {}
        for path in (path for folder in folders for path in readable(sorted(folder.glob("*.jsonl")), [])):
            head = None if path.match(_AGENT_FILES) else read_head(path)
            if head is not None and head.source == TRANSCRIPT and head.first_uuid is not None:
                self._by_record.setdefault(head.first_uuid, []).append(SessionFiles(head, [path]))

    def before(self, session: SessionFiles) -> list[SessionFiles]:
        """The sessions that begin as this one does, and began before it."""
        others = self._by_record.get(session.head.first_uuid or "", [])
        others = [other for other in others if other.head.session_id != session.head.session_id]
        return [other for other in others if _order(other) < _order(session)]
