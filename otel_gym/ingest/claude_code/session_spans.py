"""What the agents of a session did → spans, in the shapes of docs/trajectories.md."""

from __future__ import annotations

from typing import Any

from otel_gym import conventions as names
from otel_gym.content import safe_text
from otel_gym.ingest.claude_code.agent_log import (
    AgentLog,
    Call,
    FailedCall,
    Note,
    ToolRun,
    Turn,
    UserNote,
)
from otel_gym.ingest.claude_code.lines import json_text
from otel_gym.ingest.claude_code.session import SessionLog, name_of, said_duration_ms
from otel_gym.ingest.claude_code.spawning import spawned_by_runs, unspawned_first
from otel_gym.ingest.imported import ImportedEvent, ImportedRollout, ImportedSpan
from otel_gym.tracing.model_call import provider_of, request_attributes, usage_attributes

_DIALECT = "messages"


def add_spans(rollout: ImportedRollout, session: SessionLog) -> None:
    """The spans of a session, from its root."""
    _SpanMaker(rollout, session).add_all()


class _SpanMaker:
    def __init__(self, rollout: ImportedRollout, session: SessionLog) -> None:
        self._rollout = rollout
        self._session = session
        self._spawned = spawned_by_runs(session)
        self._added: set[str] = set()

    def add_all(self) -> None:
        session = self._session
        for log in (session.main, *session.agents.values()):
            log.forget_records()
        root = ImportedSpan(
            self._rollout.span_id("rollout"),
            names.ROLLOUT_SPAN,
            session.main.last_ns,
            session.main.last_ns,
            attributes={
                names.SOURCE_VERSION: session.versions[-1] if session.versions else None,
                names.SOURCE_CONTINUES: session.continues,
            },
        )
        spans = self._rollout.spans
        spans.append(root)
        self._add_agent(session.main, root.span_id)
        # Agents that no call is known to have started: under the first turn, as if it had. Those of a circle come last.
        first_turn = spans[1].span_id if len(spans) > 1 else root.span_id
        for log in unspawned_first(session, self._spawned):
            self._add_subagent(log, first_turn)
        below = spans[1:]
        if below:
            root.start_ns = min(span.start_ns for span in below)
            root.end_ns = max(span.end_ns or span.start_ns for span in below)
            if all(span.attributes.get(names.TIME_KNOWN) is False for span in below):
                root.attributes[names.TIME_KNOWN] = False
        self._rollout.end_as_last_turn()

    def _add_subagent(self, log: AgentLog, parent_id: int, run: ToolRun | None = None) -> None:
        """Once: below the tool call ``run`` that spawned it, where that is known."""
        if log.agent_id is not None and log.agent_id not in self._added:
            self._added.add(log.agent_id)
            self._add_agent(log, parent_id, run)

    def _add_agent(self, log: AgentLog, parent_id: int, run: ToolRun | None = None) -> None:
        step_number = 0
        span: ImportedSpan | None = None
        for turn in log.turns:
            span = self._turn_span(log, turn, parent_id, run)
            self._rollout.spans.append(span)
            for call in turn.calls:
                step_number += 1
                self._add_step(log, call, step_number, span.span_id)
        if span is not None:
            span.attributes |= _totals(log, run)

    def _id(self, log: AgentLog, *parts: str) -> int:
        return self._rollout.span_id(log.name_in_ids, *parts)

    def _turn_span(self, log: AgentLog, turn: Turn, parent_id: int, run: ToolRun | None) -> ImportedSpan:
        name = name_of(log, run)
        start, end = turn.times()
        return ImportedSpan(
            self._id(log, "turn", turn.key),
            f"invoke_agent {name}",
            start,
            end,
            parent_id,
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.provider.name": provider_of(_DIALECT),
                "gen_ai.agent.name": name,
                "gen_ai.agent.id": log.agent_id,
                "gen_ai.agent.version": turn.version or log.version,
                "gen_ai.conversation.id": self._session.session_id,
                names.SPAWNED_BY: run.call_id if run else log.spawned_by,
                names.SOURCE_INDEX: turn.index,
                names.TIME_KNOWN: None if turn.has_known_times() else False,
            },
            [_event(note) for note in turn.notes],
            parent_id if run else None,
            turn.why(),
        )

    def _add_step(self, log: AgentLog, call: Call, number: int, turn_id: int) -> None:
        start = self._session.start_of(call)
        placed = {names.SOURCE_INDEX: call.index, names.TIME_KNOWN: None if call.time_known else False}
        step = ImportedSpan(
            self._id(log, "step", call.key),
            names.AGENT_STEP_SPAN,
            start,
            max(call.ends_with_tools(), start),
            turn_id,
            {names.STEP_INDEX: number, **placed},
        )
        model = self._session.model_of(call)
        chat = ImportedSpan(
            self._id(log, "chat", call.key),
            f"chat {model}" if model else "chat",
            start,
            call.ended_ns,
            step.span_id,
            {**self._chat_attributes(call, model), **placed},
        )
        call.places.clear()
        self._rollout.spans += (step, chat)
        for run in call.runs:
            self._add_run(log, call, run, step.span_id)

    def _chat_attributes(self, call: Call, model: str | None) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider_of(_DIALECT),
            "gen_ai.request.model": model,
            "gen_ai.request.reasoning.level": call.effort,
            "gen_ai.response.model": call.model,
            "gen_ai.response.id": call.response_id,
            "gen_ai.response.finish_reasons": [call.stop_reason] if call.stop_reason and not call.is_cut else None,
            names.REQUEST_ID: call.request_id,
            names.OUTPUT_ITEMS: f"[{','.join(call.items())}]",
            names.PROVIDER_USAGE: None if call.usage is None else json_text(call.usage),
            **usage_attributes(call.usage),
        }
        request = self._session.request_of(call)
        if request is not None:
            attributes |= request_attributes(_DIALECT, request.params)
            attributes[names.REQUEST_BODY] = request.body
            attributes[names.DIALECT] = _DIALECT
        return attributes

    def _add_run(self, log: AgentLog, call: Call, run: ToolRun, step_id: int) -> None:
        span = ImportedSpan(
            self._id(log, "tool", call.key, run.call_id),
            f"execute_tool {run.name}",
            run.started_ns,
            run.ended_ns,
            step_id,
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": run.name,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": run.call_id,
                "gen_ai.tool.call.arguments": json_text(run.given),
                "gen_ai.tool.call.result": run.result(),
                names.TOOL_INDEX: run.arrival,
                names.TOOL_ERROR: json_text(run.error) if run.error else None,
                names.TOOL_EXTRA: _extra(run),
                names.SOURCE_INDEX: run.index,
                names.TIME_KNOWN: None if run.time_known else False,
            },
            error=None if run.error is None else safe_text(str(run.error["message"]).partition("\n")[0]),
        )
        if run.error is not None:
            span.attributes["error.type"] = "tool_error"
        self._rollout.spans.append(span)
        for agent in self._spawned.get(id(run), ()):
            self._add_subagent(agent, span.span_id, run)


def _event(note: Note) -> ImportedEvent:
    if isinstance(note, FailedCall):
        return ImportedEvent(
            "exception",
            note.time_ns,
            {
                "exception.type": note.type or (None if note.status is None else str(note.status)),
                "exception.message": note.message and safe_text(note.message),
                "http.response.status_code": note.status,
                "http.request.resend_count": note.attempt or None,
                names.REQUEST_ID: note.request_id,
                names.SOURCE_INDEX: note.index,
            },
        )
    if isinstance(note, UserNote):
        return ImportedEvent(
            names.USER_MESSAGE_EVENT, note.time_ns, {names.ITEM: note.item, names.SOURCE_INDEX: note.index}
        )
    return ImportedEvent(
        names.CONTEXT_BOUNDARY_EVENT,
        note.time_ns,
        {names.ITEM: note.item(), names.SOURCE_CONTINUES: note.continues, names.SOURCE_INDEX: note.index},
    )


def _totals(log: AgentLog, run: ToolRun | None) -> dict[str, Any]:
    """Of the whole run. Of a subagent the call's result says how long it took (its usage is that of the last call)."""
    totals = log.totals
    return {
        names.AGENT_DURATION_MS: said_duration_ms(log, run),
        names.AGENT_TOTAL_COST_USD: totals.cost_usd,
        names.AGENT_PROVIDER_USAGE: None if totals.usage is None else json_text(totals.usage),
        names.AGENT_DROPPED_RECORDS: log.dropped,
    }


def _extra(run: ToolRun) -> str | None:
    return json_text(run.extra) if run.extra else None
