"""What the agents of a session did → their steps, as the reader of its spans would find them, without the spans.

A long session is read once and given on a step at a time; what was given on is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from otel_gym.content_policy import ContentPolicy
from otel_gym.ingest.claude_code.agent_log import AgentLog, BoundaryNote, Call, Note, ToolRun, UserNote
from otel_gym.ingest.claude_code.common_lines import Block
from otel_gym.ingest.claude_code.lines import json_text
from otel_gym.ingest.claude_code.session import SessionLog, name_of, said_duration_ms
from otel_gym.ingest.claude_code.spawning import spawned_by_runs, unspawned_first
from otel_gym.ingest.imported import ImportedRollout
from otel_gym.records.answers import Answer
from otel_gym.records.output import boundary_of
from otel_gym.records.steps import AgentRun, AgentStep, Entry, ToolResult, UserMessage, iso_time
from otel_gym.store.json_text import parsed
from otel_gym.wire.items.shapes import Item
from otel_gym.wire.usage import TokenStats, token_stats, with_thinking

# So many entries are looked at for secrets at once: one look at all costs a fraction of one at each text.
_LOOKED_AT = 16


def agent_run(session: SessionLog, rollout: ImportedRollout, policy: ContentPolicy) -> AgentRun:
    """The main agent, with the agents that it started in it. ``rollout`` says by which ids its spans would go."""
    return _RunMaker(session, rollout, policy).made()


class _RunMaker:
    def __init__(self, session: SessionLog, rollout: ImportedRollout, policy: ContentPolicy) -> None:
        self._session = session
        self._rollout = rollout
        self._policy = policy
        self._trace_id = f"{rollout.trace_id:032x}"
        self._spawned = spawned_by_runs(session)
        self._added: set[str] = set()

    def made(self) -> AgentRun:
        session = self._session
        for log in (session.main, *session.agents.values()):
            log.forget_records()
        main = self._run_of(session.main, None)
        for log in unspawned_first(session, self._spawned):
            self._add_subagent(main, log, None)
        return main

    def _add_subagent(self, parent: AgentRun, log: AgentLog, run: ToolRun | None) -> None:
        if log.agent_id is None or log.agent_id in self._added:
            return
        self._added.add(log.agent_id)
        made = self._run_of(log, run)
        if log.turns:
            parent.subagents.append(made)

    def _run_of(self, log: AgentLog, run: ToolRun | None) -> AgentRun:
        totals, duration_ms = log.totals, said_duration_ms(log, run)
        made = AgentRun(
            self._entries(log),
            agent=name_of(log, run),
            source=self._rollout.source,
            session_id=self._session.session_id,
            duration_ms=_duration_ms(log) if duration_ms is None else duration_ms,
            total_cost_usd=totals.cost_usd,
            provider_usage=None if totals.usage is None else parsed(self._policy.text(json_text(totals.usage))),
            dropped_records=log.dropped,
            agent_id=log.agent_id,
            spawned_by=run.call_id if run else log.spawned_by,
            gaps=[
                ("turn_failed", self._policy.message(why) or None)
                for turn in log.turns
                if (why := turn.why()) is not None
            ],
        )
        for tool in (tool for turn in log.turns for call in turn.calls for tool in call.runs):
            for spawned in self._spawned.get(id(tool), ()):
                self._add_subagent(made, spawned, tool)
        return made

    def _entries(self, log: AgentLog) -> Iterator[Entry]:
        span_id = self._rollout.span_ids(log.name_in_ids, "chat")
        waiting = sorted((entry for turn in log.turns for entry in (*turn.notes, *turn.calls)), key=_order)
        for turn in log.turns:
            turn.notes.clear()
            turn.calls.clear()
        log.calls.clear()
        waiting.reverse()
        while waiting:
            some = [waiting.pop() for _ in range(min(_LOOKED_AT, len(waiting)))]
            is_clean = self._policy.are_clean([text for entry in some for text in _texts_of(entry)])
            for entry in some:
                if isinstance(entry, Call):
                    yield self._step(entry, span_id(entry.key), is_clean)
                elif isinstance(entry, UserNote | BoundaryNote):
                    yield from self._told(entry)

    def _told(self, note: UserNote | BoundaryNote) -> Iterator[Entry]:
        item = parsed(self._policy.text(note.item if isinstance(note, UserNote) else note.item()))
        if isinstance(item, dict):
            yield UserMessage(item) if isinstance(note, UserNote) else boundary_of(item)

    def _step(self, call: Call, span_id: int, is_clean: bool) -> AgentStep:
        is_known = call.time_known
        said = call.said()
        call.places.clear()
        started_ns = self._session.start_of(call)
        safe = _as_it_is if is_clean else self._safe
        return AgentStep(
            items=[] if is_clean else self._items(said),
            answer=_answer(said) if is_clean else None,
            results=[self._result(run, is_clean) for run in call.answered_runs()],
            model=safe(call.model or self._session.model_of(call)),
            stop_reason=None if call.is_cut else safe(call.stop_reason),
            response_id=safe(call.response_id),
            request_id=safe(call.request_id),
            started_at=iso_time(started_ns) if is_known else None,
            ended_at=iso_time(call.ended_ns) if is_known else None,
            started_ns=started_ns if is_known else None,
            ended_ns=call.ended_ns if is_known else None,
            usage=_usage(call.usage),
            provider_usage=call.usage,
            extra={
                "trace_id": self._trace_id,
                "span_id": f"{span_id:016x}",
            },
        )

    def _safe(self, text: str | None) -> str | None:
        return None if text is None else self._policy.text(text)

    def _items(self, said: list[str | Block]) -> list[Item]:
        items = [parsed(one) if isinstance(one, str) else one.item() for one in said]
        return [item for item in parsed(self._policy.text(json_text(items))) if isinstance(item, dict)]

    def _result(self, run: ToolRun, is_clean: bool) -> ToolResult:
        output, error, extra = run.output, run.error or {}, run.extra
        if not is_clean:
            output, error, extra = parsed(self._policy.text(json_text([output, error, extra])))
        run.output = run.given = None
        ended_ns = run.ended_ns if run.time_known else None
        return ToolResult(
            call_id=run.call_id if is_clean else self._policy.text(run.call_id),
            output=_output(output),
            started_at=iso_time(run.started_ns) if run.time_known else None,
            completed_at=iso_time(ended_ns),
            duration_ms=None if ended_ns is None else (ended_ns - run.started_ns) / 10**6,
            error_message=error.get("message") or ("tool_error" if error else None),
            error_data=error.get("data"),
            extra=extra,
        )


def _answer(said: list[str | Block]) -> Answer:
    answer = Answer()
    for one in said:
        if not isinstance(one, str):
            one.add_to(answer)
        elif isinstance(item := parsed(one), dict):
            answer.add(item)
    return answer


def _texts_of(entry: Note | Call) -> list[str]:
    if not isinstance(entry, Call):
        return []
    call, names = entry, (entry.model, entry.stop_reason, entry.response_id, entry.request_id)
    texts = [name for name in names if name is not None]
    for _, said in call.places:
        texts += (said,) if isinstance(said, str) else said.texts()
    for run in call.runs:
        texts.append(run.call_id)
        texts.append(run.output if isinstance(run.output, str) else json_text(run.output))
        if run.error or str in map(type, run.extra.values()):
            texts.append(json_text([run.error, run.extra]))
    return texts


def _as_it_is(text: str | None) -> str | None:
    return text


def _output(output: Any) -> Any:
    """A text, or parts; anything else as JSON, as a span holds it."""
    if isinstance(output, dict) and output.keys() == {"content"}:
        return output["content"]
    return output if isinstance(output, str | list) else json_text(output)


def _order(entry: Note | Call) -> tuple[int, int]:
    """What was said comes before what was made of it."""
    return (entry.index, 0) if isinstance(entry, Call) else (entry.index, -1)


def _usage(usage: dict[str, Any] | None) -> TokenStats:
    """With the total as a model-call span would have it: the sum of both."""
    stats = with_thinking(token_stats(usage), usage)
    tokens_in, tokens_out = stats.tokens_in, stats.tokens_out
    total = None if tokens_in is None or tokens_out is None else tokens_in + tokens_out
    return stats if stats.tokens_total == total else stats._replace(tokens_total=total)


def _duration_ms(log: AgentLog) -> float | None:
    if not log.turns or not all(turn.has_known_times() for turn in log.turns):
        return None
    times = [turn.times() for turn in log.turns]
    return (max(end for _, end in times) - min(start for start, _ in times)) / 10**6
