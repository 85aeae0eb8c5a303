"""Which agent a request is of: as its body tells Dynamo up to 1.2, else as its headers do.

Of headers Dynamo's own count first, then those of Claude Code, Codex and OpenCode, as Dynamo 1.3 and newer reads them:
each agent is a session, below its parent session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from otel_gym.agent_identity import (
    PARENT_SESSION_HEADER,
    SESSION_FINAL_HEADER,
    SESSION_HEADER,
    AgentContext,
    agent_context_from,
)
from otel_gym.wire.bodies import load_json_object
from otel_gym.wire.exchange import JsonObject

# Names in lower case, each with its values.
Headers = Mapping[str, Sequence[str]]

_CLAUDE_SESSION = "x-claude-code-session-id"
_CLAUDE_AGENT = "x-claude-code-agent-id"
_CLAUDE_PARENT = "x-claude-code-parent-agent-id"
_CODEX_THREAD = "thread-id"
_CODEX_PARENT = "x-codex-parent-thread-id"
_CODEX_SESSION = "session-id"
_CODEX_TURN = "x-codex-turn-metadata"
_OPEN_CODE_SESSION = "x-session-id"
_OPEN_CODE_PARENT = "x-parent-session-id"
_SWITCHES = {"true": True, "1": True, "false": False, "0": False}
AGENT_HEADERS = (
    SESSION_HEADER,
    PARENT_SESSION_HEADER,
    SESSION_FINAL_HEADER,
    _CLAUDE_SESSION,
    _CLAUDE_AGENT,
    _CLAUDE_PARENT,
    _CODEX_THREAD,
    _CODEX_PARENT,
    _CODEX_SESSION,
    _CODEX_TURN,
    _OPEN_CODE_SESSION,
    _OPEN_CODE_PARENT,
)


def agent_context_of_request(headers: Headers, request: JsonObject | None) -> AgentContext | None:
    """What the body says, else what the headers say; None for a request that names no agent."""
    extension = (request or {}).get("nvext")
    said = extension.get("agent_context") if isinstance(extension, dict) else None
    context = agent_context_from(said) if isinstance(said, dict) else None
    return context if context is not None and context.agent_id else agent_context_of_headers(headers)


def agent_context_of_headers(headers: Headers) -> AgentContext | None:
    return next((found for read in _HARNESSES if (found := read(headers)) is not None), None)


def session_above(headers: Headers) -> tuple[str, str] | None:
    """(an agent's session, the session above it as far as the headers go; itself if it is the first).

    Claude Code and Codex name the session that all of a run's agents belong to.
    """
    context = agent_context_of_headers(headers)
    session = None if context is None else context.session_id
    if context is None or session is None:
        return None
    if _text(headers, SESSION_HEADER) is None:
        named = _text(headers, _CLAUDE_SESSION) or _codex_session(headers)
        if named is not None:
            return session, named
    return session, context.parent_session_id or session


def _of_dynamo(headers: Headers) -> AgentContext | None:
    session = _text(headers, SESSION_HEADER)
    if session is None:
        return None
    final = {"true": True, "1": True, "false": False, "0": False}.get(
        (_text(headers, SESSION_FINAL_HEADER) or "").lower()
    )
    return _session(session, _text(headers, PARENT_SESSION_HEADER), session_final=final)


def _of_claude_code(headers: Headers) -> AgentContext | None:
    session, agent = _text(headers, _CLAUDE_SESSION), _text(headers, _CLAUDE_AGENT)
    if session is None:
        return None
    if agent is None:
        return _session(session, None)
    return _session(agent, _text(headers, _CLAUDE_PARENT) or session)


def _of_codex(headers: Headers) -> AgentContext | None:
    turn = _turn(headers)
    thread = _text(headers, _CODEX_THREAD) or _said(turn, "thread_id") or _text(headers, _CODEX_SESSION)
    if thread is None:
        return None
    parent = _text(headers, _CODEX_PARENT) or _said(turn, "parent_thread_id")
    compaction = turn.get("compaction")
    if not isinstance(compaction, dict):
        compaction = None
    return _session(thread, parent, compaction=compaction)


def _of_open_code(headers: Headers) -> AgentContext | None:
    session = _text(headers, _OPEN_CODE_SESSION)
    return None if session is None else _session(session, _text(headers, _OPEN_CODE_PARENT))


_HARNESSES: tuple[Callable[[Headers], AgentContext | None], ...] = (
    _of_dynamo,
    _of_claude_code,
    _of_codex,
    _of_open_code,
)


def _session(session: str, parent: str | None, **more: Any) -> AgentContext:
    return AgentContext(session_id=session, parent_session_id=None if parent == session else parent, **more)


def _codex_session(headers: Headers) -> str | None:
    return _text(headers, _CODEX_SESSION) or _said(_turn(headers), "session_id")


def _turn(headers: Headers) -> JsonObject:
    return load_json_object(_text(headers, _CODEX_TURN) or "") or {}


def _said(turn: JsonObject, name: str) -> str | None:
    value = turn.get(name)
    return value if isinstance(value, str) and value else None


def _text(headers: Headers, name: str) -> str | None:
    """The first value, trimmed, as Dynamo reads it; None for an empty one."""
    values = headers.get(name)
    return (values[0].strip() or None) if values else None
