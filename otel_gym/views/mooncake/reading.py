"""Spans → requests and tools: from what Dynamo recorded where it did, else from token ids and the spans' own times."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from otel_gym import conventions as names
from otel_gym.agent_identity import AgentContext, agent_context_of_attributes
from otel_gym.content import finite_number, safe_text
from otel_gym.records.dynamo import AGENT_TRACE
from otel_gym.records.replay_hashes import ReplayHashError, sequence_hashes
from otel_gym.store.json_text import parsed
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import STATUS_ERROR, StoredSpan
from otel_gym.store.tokens import tokens_of_response
from otel_gym.views.agent_tree import Agent, AgentTree, is_tool
from otel_gym.views.dynamo.tools import events_of
from otel_gym.views.generations import Call, calls_of
from otel_gym.views.mooncake.requests import ClaudeLink, Recorded, Request, Session, Skipped, Tool, place_of
from otel_gym.wire.usage import token_count

_DYNAMO = "dynamo"
_SCHEMA = names.DYNAMO_PREFIX + "schema"
_REPLAY = names.DYNAMO_PREFIX + "replay."
_MEASURED = (
    names.DYNAMO_PREFIX + "request_received_ms",
    names.DYNAMO_PREFIX + "total_time_ms",
    _REPLAY + "input_length",
)
_TOOL_EVENTS = names.DYNAMO_PREFIX + "tool.events"
_NS_OF_MS = 10**6
# Records of a tool's end: whether it failed.
_FAILED = {"tool_end": False, "tool_error": True}
_NEEDS_SIZE = "give the size of its blocks with --trace-block-size N"


@dataclass(frozen=True, slots=True)
class Wanted:
    """``block_size`` None: that of the hashes which Dynamo recorded."""

    agentic: bool
    block_size: int | None = None


def read_rollouts(rollouts: Iterable[RolloutSpans], wanted: Wanted, skipped: Skipped) -> Recorded:
    """Of each rollout its newest finished execution. MooncakeError."""
    found = Recorded()
    for rollout in rollouts:
        _Reading(rollout.with_spans(rollout.executions().counting.spans), wanted, skipped, found).read()
    return found


class _Reading:
    def __init__(self, rollout: RolloutSpans, wanted: Wanted, skipped: Skipped, found: Recorded) -> None:
        self._rollout = rollout
        self._address = safe_text(rollout.address)
        self._wanted = wanted
        self._skipped = skipped
        self._found = found
        self._tree = AgentTree(rollout.spans)
        self._labels = _labels(self._tree.agents)
        self._said: dict[int, str] = {}
        self._sessions_of_name: dict[tuple[str | None, bool], Session] = {}

    def read(self) -> None:
        calls = [_Facts(call) for call in calls_of(self._rollout)]
        for facts in calls:
            agent = self._tree.agent_around(facts.call.span)
            if agent is not None and facts.context is not None and facts.context.agent_id:
                self._said.setdefault(id(agent), safe_text(facts.context.agent_id))
        for facts in calls:
            self._found.of_agent_trace |= facts.attributes.get(_SCHEMA) == AGENT_TRACE
            request = self._request(facts)
            if request is not None:
                self._found.requests.append(request)
        if self._wanted.agentic:
            tools = (self._tool(span) for span in self._rollout.spans if is_tool(span))
            self._found.tools += [tool for tool in tools if tool is not None]

    def _request(self, facts: _Facts) -> Request | None:
        if facts.is_refused:
            self._found.failed += 1
            return None
        if facts.is_payload_alone:
            self._found.payloads += 1
            return None
        request_id = safe_text(facts.request_id)
        place = place_of(self._address, request_id, facts.call.span.span_id)
        try:
            start_ms, end_ms = facts.times()
            block_size, input_length, hashes = facts.blocks(self._wanted.block_size)
            output_length = facts.output_length()
            if self._wanted.agentic and facts.of_dynamo and facts.context is None:
                raise _CannotReplayError(
                    "it has no agent_context, and agentic rows are an agent's", "export it without --agentic"
                )
        except _CannotReplayError as problem:
            self._skipped.met(place, problem.problem, problem.cure)
            return None
        span = facts.call.span
        session, parent = self._sessions(span, facts.context, facts.of_dynamo)
        return Request(
            request_id,
            session,
            parent,
            start_ms,
            end_ms,
            block_size,
            input_length,
            output_length,
            array("Q", hashes),
            span.span_id,
        )

    def _sessions(
        self, span: StoredSpan, context: AgentContext | None, of_dynamo: bool
    ) -> tuple[Session, Session | None]:
        """Its agent, and the one above that: what Dynamo recorded is believed, else the tree of spans tells."""
        agent = self._tree.agent_around(span)
        said = None if context is None else context.agent_id
        session = self._session_of(agent) if said is None else self._session(safe_text(said), is_said=True)
        if context is not None and context.parent_agent_id is not None:
            return session, self._session(safe_text(context.parent_agent_id), is_said=True)
        above = None if of_dynamo or agent is None or agent.parent is None else self._session_of(agent.parent)
        return session, None if above == session else above

    def _session_of(self, agent: Agent | None) -> Session:
        if agent is None:
            return self._session(None)
        said = self._said.get(id(agent))
        return self._session(self._labels[id(agent)]) if said is None else self._session(said, is_said=True)

    def _session(self, agent: str | None, *, is_said: bool = False) -> Session:
        """One object for all the requests of an agent."""
        return self._sessions_of_name.setdefault((agent, is_said), Session(self._address, agent, is_said))

    def _tool(self, span: StoredSpan) -> Tool | None:
        """None: it has not ended, its times are not known, or it ends before it begins."""
        ended = _last_event(span)
        if ended is None:
            return None
        event_ms, told = ended
        duration_ms = told.get("duration_ms")
        end_ms = told.get("ended_at_unix_ms", event_ms)
        start_ms = told.get("started_at_unix_ms")
        if start_ms is None:
            start_ms = end_ms if duration_ms is None else max(0, end_ms - _rounded(duration_ms))
        if end_ms < start_ms:
            return None
        of_dynamo = span.attributes.get(names.SOURCE) == _DYNAMO
        session, _ = self._sessions(span, agent_context_of_attributes(span.attributes), of_dynamo)
        return Tool(
            session,
            start_ms,
            end_ms,
            safe_text(told["tool_call_id"]),
            safe_text(told["tool_class"]),
            told["status"],
            float(end_ms - start_ms if duration_ms is None else duration_ms),
            told.get("output_bytes"),
            told.get("output_tokens"),
            told.get("error_type"),
            _claude_link(span.attributes),
        )


class _CannotReplayError(Exception):
    def __init__(self, problem: str, cure: str) -> None:
        self.problem = problem
        self.cure = cure


class _Facts:
    """Of one call what its spans say."""

    def __init__(self, call: Call) -> None:
        self.call = call
        captured = {} if call.captured is None else call.captured.attributes
        told = {} if call.told is None else call.told.attributes
        self.attributes: Mapping[str, Any] = {**captured, **told} if captured and told else told or captured
        self.of_dynamo = self.attributes.get(names.SOURCE) == _DYNAMO
        self.context = agent_context_of_attributes(self.attributes)

    @property
    def request_id(self) -> str:
        span = self.call.span
        return (
            _text(self.attributes, names.DYNAMO_PREFIX + "request_id")
            or _text(self.attributes, names.MODEL_CALL_ID)
            or f"{span.trace_id}-{span.span_id}"
        )

    @property
    def is_refused(self) -> bool:
        """It failed, and nothing says that the model was asked: Dynamo records nothing of such a call."""
        span = self.call.captured or self.call.span
        failed = span.status == STATUS_ERROR or names.ERROR_CATEGORY in self.attributes
        return failed and not self.of_dynamo and self._output_length() is None

    @property
    def is_payload_alone(self) -> bool:
        """Dynamo kept its bodies, and recorded no request: one with several choices, for example."""
        has_bodies = names.REQUEST_BODY in self.attributes or names.DYNAMO_PREFIX + "endpoint" in self.attributes
        is_measured = any(name in self.attributes for name in _MEASURED)
        return self.of_dynamo and has_bodies and not is_measured

    def times(self) -> tuple[int, int]:
        if self.of_dynamo:
            return self._dynamo_times()
        times = _span_times(self.call.captured or self.call.span)
        if times is None:
            raise _CannotReplayError("when it began and ended is not known", "export the rollouts that were captured")
        return times

    def _dynamo_times(self) -> tuple[int, int]:
        received = token_count(self.attributes.get(names.DYNAMO_PREFIX + "request_received_ms"))
        total = finite_number(self.attributes.get(names.DYNAMO_PREFIX + "total_time_ms"))
        event = token_count(self.attributes.get(names.DYNAMO_PREFIX + "event_time_unix_ms"))
        lasted = None if total is None else _rounded(total)
        if received is not None:
            if lasted is None:
                lasted = 0 if event is None else max(0, event - received)
            return received, received + lasted
        if event is None:
            raise _CannotReplayError("the record has neither request_received_ms nor event_time_unix_ms", "remove it")
        if self.attributes.get(_SCHEMA) != AGENT_TRACE:
            raise _CannotReplayError("the record has no request_received_ms", "remove it")
        return max(0, event - (lasted or 0)), event

    def blocks(self, wanted: int | None) -> tuple[int, int, list[int]]:
        """Size of a block, length of the prompt, and the hashes."""
        recorded = self._recorded_blocks()
        if recorded is not None and wanted in (None, recorded[0]):
            return recorded
        prompt = self._prompt()
        if prompt is None and recorded is not None:
            raise _CannotReplayError(
                f"its hashes are of blocks of {recorded[0]} tokens, and it has no token ids to make others of",
                f"export it with --trace-block-size {recorded[0]}",
            )
        if prompt is None:
            raise _CannotReplayError(
                "it has neither the token ids of its prompt nor replay hashes",
                "record with a server that returns token ids, or with DYN_*_TRACE_REPLAY_HASHES on",
            )
        if wanted is None:
            raise _CannotReplayError("it has token ids, and no replay hashes", _NEEDS_SIZE)
        try:
            return wanted, len(prompt), sequence_hashes(prompt, wanted)
        except ReplayHashError as problem:
            raise _CannotReplayError(str(problem), "correct it") from None

    def _recorded_blocks(self) -> tuple[int, int, list[int]] | None:
        size, length = (self.attributes.get(_REPLAY + name) for name in ("trace_block_size", "input_length"))
        if size is None and length is None:
            return None
        size, length = token_count(size), token_count(length)
        if not size:
            raise _CannotReplayError("its replay.trace_block_size is no size of blocks", "record it anew")
        if length is None:
            raise _CannotReplayError("its replay.input_length is no number of tokens", "record it anew")
        hashes = _hashes(self.attributes.get(_REPLAY + "input_sequence_hashes"))
        expected = -(-length // size)
        if hashes is None or len(hashes) != expected:
            number = "none that can be read" if hashes is None else str(len(hashes))
            raise _CannotReplayError(
                f"{length} tokens in blocks of {size} need {expected} replay hashes, there are {number}",
                "record it anew",
            )
        return size, length, hashes

    def _prompt(self) -> list[int] | None:
        response = None if self.call.record is None else self.call.record.response
        found = None if response is None else tokens_of_response(response).prompt_token_ids
        return found or _ints(self.attributes.get(names.PROMPT_TOKEN_IDS))

    def output_length(self) -> int:
        length = self._output_length()
        if length is None:
            raise _CannotReplayError("how many tokens it made is not known", "record it with its usage")
        return length

    def _output_length(self) -> int | None:
        """What the server counted; else the token ids, where they were kept."""
        counted = token_count(self.attributes.get("gen_ai.usage.output_tokens"))
        if counted is not None:
            return counted
        response = None if self.call.record is None else self.call.record.response
        found = None if response is None else tokens_of_response(response).generation_token_ids
        sampled = found or _ints(self.attributes.get(names.COMPLETION_TOKEN_IDS))
        return None if sampled is None else len(sampled)


def _labels(agents: Iterable[Agent]) -> dict[int, str]:
    """A name of its own for each agent of a rollout, parents first: those that `export dynamo` gives them."""
    labels: dict[int, str] = {}
    used: dict[str, int] = {}
    for agent in agents:
        name = agent.agent_id or agent.name or "agent"
        if agent.spawned_by and not agent.agent_id:
            name = f"{name}:{agent.spawned_by}"
        if agent.parent is not None:
            name = f"{labels[id(agent.parent)]}/{name}"
        name = safe_text(name)
        used[name] = used.get(name, 0) + 1
        labels[id(agent)] = name if used[name] == 1 else f"{name}#{used[name]}"
    return labels


def _span_times(span: StoredSpan) -> tuple[int, int] | None:
    if span.end_ns is None or span.attributes.get(names.TIME_KNOWN) is False:
        return None
    return span.start_ns // _NS_OF_MS, span.end_ns // _NS_OF_MS


def _last_event(span: StoredSpan) -> tuple[int, dict[str, Any]] | None:
    """Of a tool that has ended the record that Dynamo would have of that, by which alone its conversions go: its time,
    UNIX ms, and what it tells."""
    if span.attributes.get(names.TIME_KNOWN) is False and _TOOL_EVENTS not in span.attributes:
        return None
    for kind, event_ms, told in reversed(events_of(span)):
        if kind in _FAILED:
            return event_ms, {"status": "error" if _FAILED[kind] else "succeeded", **told}
    return None


def _claude_link(attributes: Mapping[str, Any]) -> ClaudeLink | None:
    extra = parsed(attributes.get(names.DYNAMO_PREFIX + "extra"))
    tool = extra.get("tool") if isinstance(extra, dict) else None
    said = tool.get("claude") if isinstance(tool, dict) else None
    if not isinstance(said, dict) or not isinstance(said.get("source_request_id"), str):
        return None
    consumer, child = said.get("consumer_request_id"), said.get("child_session_id")
    return ClaudeLink(
        said["source_request_id"],
        consumer if isinstance(consumer, str) else None,
        child if isinstance(child, str) else None,
        str(said.get("execution_mode")),
    )


def _rounded(ms: float) -> int:
    """Half away from zero; what is negative counts as 0."""
    whole = math.floor(max(ms, 0.0))
    return whole + (ms - whole >= 0.5)


def _text(attributes: Mapping[str, Any], name: str) -> str | None:
    value = attributes.get(name)
    return value if isinstance(value, str) else None


def _ints(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and all(type(item) is int for item in value) else None


def _hashes(value: Any) -> list[int] | None:
    """Unsigned 64-bit numbers, which attributes hold as text."""
    try:
        hashes = [int(item) for item in value]
    except (TypeError, ValueError):
        return None
    return hashes if all(0 <= item < 2**64 for item in hashes) else None
