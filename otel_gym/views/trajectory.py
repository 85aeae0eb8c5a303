"""Spans of a rollout → trajectories, one for each agent that ran on its own.

Whoever made the spans: code that uses our API, an imported session, captured model calls alone, or several of them at
once. A transcript's generation and the captured call of the same answer are one; what cannot be joined is a named gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from otel_gym import conventions as names
from otel_gym.content import safe_json
from otel_gym.records.output import boundary_of
from otel_gym.records.steps import AgentStep, Entry, ToolResult, UserMessage, iso_time
from otel_gym.records.trajectory import AgentTelemetry, Gap, Trajectory, trajectory_of
from otel_gym.store.json_text import parsed
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import STATUS_ERROR, SpanEvent, StoredSpan
from otel_gym.views.agent_tree import CALL_ID, Agent, AgentTree, is_step, is_tool, text_of
from otel_gym.views.captured_steps import add_results, request_items, said_between, trajectories_of_calls
from otel_gym.views.generations import Call, calls_of, content_gaps, step_of
from otel_gym.wire.items.shapes import function_call_item

_Order = tuple[int, int]
_ARGUMENTS = "gen_ai.tool.call.arguments"
_SAID = (names.USER_MESSAGE_EVENT, names.CONTEXT_MESSAGE_EVENT, names.CONTEXT_BOUNDARY_EVENT)


def trajectories(rollout: RolloutSpans) -> list[Trajectory]:
    """The agents of the execution that counts, the oldest first; agents that tool calls spawned stand within theirs."""
    counting = rollout.with_spans(rollout.executions().counting.spans)
    tree = AgentTree(counting.spans)
    calls = calls_of(counting)
    if not any(agent.turns for agent in tree.agents) and not any(map(is_step, counting.spans)):
        return trajectories_of_calls(calls)
    return _Reader(counting, tree, calls).trajectories()


@dataclass(slots=True, eq=False)
class _Step:
    """A step in the making, its place in its agent's run, and the spans that it was made of."""

    order: _Order
    step: AgentStep
    span: StoredSpan | None
    call: Call | None
    tools: list[tuple[_Order, ToolResult]] = field(default_factory=list)

    def call_ids(self) -> set[str | None]:
        ids = (item.get("call_id") for item in self.step.calls())
        return {call_id for call_id in ids if call_id is None or isinstance(call_id, str)}


@dataclass(slots=True, eq=False)
class _AgentRun:
    """``of_span`` and ``of_call``: its steps by the span that they ran in, and by the calls that they asked for."""

    agent: Agent | None
    steps: list[_Step] = field(default_factory=list)
    between: list[tuple[_Order, Entry]] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    lost_messages: int = 0
    of_span: dict[int, list[_Step]] = field(default_factory=dict)
    of_call: dict[str | None, list[_Step]] = field(default_factory=dict)

    def put_in_order(self) -> None:
        self.steps.sort(key=lambda step: step.order)
        for step in self.steps:
            if step.span is not None:
                self.of_span.setdefault(id(step.span), []).append(step)
            for call_id in step.call_ids():
                self.of_call.setdefault(call_id, []).append(step)


class _Reader:
    """Puts the spans of one execution together."""

    def __init__(self, rollout: RolloutSpans, tree: AgentTree, calls: Sequence[Call]) -> None:
        self._spans = rollout.spans
        self._tree = tree
        self._calls = calls
        self._runs = {agent: _AgentRun(agent) for agent in tree.agents}
        self._without_agent = _AgentRun(None)
        self._has_captured = any(call.captured is not None for call in calls)
        self._has_import = any(map(_is_import, rollout.spans))
        self._step_spans = [span for span in self._spans if is_step(span)]

    def trajectories(self) -> list[Trajectory]:
        self._take_calls()
        self._take_steps_without_calls()
        for span in self._spans:
            self._take_events(span)
        for run in self._all_runs():
            run.put_in_order()
        for span in filter(is_tool, self._spans):
            self._take_tool(span)
        for run in self._all_runs():
            _take_what_was_sent(run)
            self._finish(run)
            run.gaps += _failed_turns(run)
        return self._nested()

    def _all_runs(self) -> list[_AgentRun]:
        return [*self._runs.values(), self._without_agent]

    def _run_of(self, span: StoredSpan) -> _AgentRun:
        agent = self._tree.agent_around(span)
        return self._without_agent if agent is None else self._runs[agent]

    def _take_calls(self) -> None:
        """Each call to its step; of the attempts within one step those that failed count only if none was answered."""
        by_step: dict[int, list[tuple[_Step, _AgentRun]]] = {}
        for call in self._calls:
            placed = self._placed(call)
            if placed is None:
                continue
            step_span, run = placed
            step = _Step(_order(step_span or call.span), step_of(call), step_span, call)
            if step_span is None:
                run.steps.append(step)
            else:
                by_step.setdefault(id(step_span), []).append((step, run))
        for attempts in by_step.values():
            answered = [attempt for attempt in attempts if attempt[0].step.error is None]
            for number, (step, run) in enumerate(answered or attempts[-1:]):
                step.order = (step.order[0], number)
                run.steps.append(step)

    def _placed(self, call: Call) -> tuple[StoredSpan | None, _AgentRun] | None:
        """The step and the agent of a call; a captured one that nothing joins to an agent is a gap."""
        if self._has_captured and call.captured is None and _is_import(call.span):
            self._run_of(call.span).gaps.append(_gap("generation_without_model_call", call))
        if call.superseded:
            if self._has_import:
                self._main().gaps.append(_gap("model_call_without_generation", call))
            return None
        step_span = self._tree.step_around(call.span)
        if step_span is not None or self._tree.agent_around(call.span) is not None:
            return step_span, self._run_of(call.span)
        enclosing = self._only_step_around(call.span)
        if enclosing is not None:
            return enclosing, self._run_of(enclosing)
        if self._has_import or self._step_spans:
            self._main().gaps.append(_gap("model_call_without_generation", call))
            return None
        return None, self._main()

    def _only_step_around(self, span: StoredSpan) -> StoredSpan | None:
        """The step of this process's agents in which a call that came by URL alone ran, if it is one only."""
        around = [
            step
            for step in self._step_spans
            if not _is_import(step) and step.start_ns <= span.start_ns <= (step.end_ns or span.start_ns)
        ]
        innermost = [step for step in around if not any(self._tree.is_below(other, step) for other in around)]
        return innermost[0] if len(innermost) == 1 else None

    def _main(self) -> _AgentRun:
        return next((run for agent, run in self._runs.items() if agent.parent is None), self._without_agent)

    def _take_steps_without_calls(self) -> None:
        known = {id(step.span) for run in self._all_runs() for step in run.steps}
        for span in self._step_spans:
            if id(span) not in known:
                step = AgentStep(
                    started_at=_start(span),
                    ended_at=_end(span),
                    is_unfinished=span.end_ns is None,
                    error=text_of(span, "error.type") if span.status == STATUS_ERROR else None,
                    extra={"trace_id": span.trace_id, "span_id": span.span_id},
                )
                self._run_of(span).steps.append(_Step(_order(span), step, span, None))

    def _take_events(self, span: StoredSpan) -> None:
        for event in span.events:
            if event.name not in _SAID:
                continue
            run = self._run_of(span)
            run, entry = run if run.agent is not None else self._main(), _entry_of(event)
            if entry is None:
                run.lost_messages += 1
            else:
                run.between.append((_event_order(event), entry))

    def _take_tool(self, span: StoredSpan) -> None:
        call_id, run = text_of(span, CALL_ID), self._run_of(span)
        step = self._step_of_tool(span, call_id, run)
        if step is None:
            self._main().gaps.append(Gap(code="tool_call_without_step", detail=call_id or span.name))
            return
        call_id = call_id or _call_without_id(step, span)
        if call_id not in step.call_ids():
            # Its generation was recorded without content: the tool's own span says what was called.
            item = function_call_item(call_id, text_of(span, "gen_ai.tool.name"), "")
            step.step.items.append({**item, "arguments": _arguments(span)})
        if "gen_ai.tool.call.result" in span.attributes or span.status == STATUS_ERROR:
            step.tools.append((_tool_order(span), _result_of(span, call_id)))

    def _step_of_tool(self, span: StoredSpan, call_id: str | None, run: _AgentRun) -> _Step | None:
        """The step that it ran in, if that asked for the call or is silent on it; else the one that asked for it."""
        around = self._tree.step_around(span)
        steps = run.of_span.get(id(around), []) if around is not None else []
        asking = [step for step in steps if call_id in step.call_ids()]
        if asking or steps:
            return (asking or steps)[-1]
        runs = [run] if run.agent is not None else self._all_runs()
        asking = [step for each in runs for step in each.of_call.get(call_id, [])]
        before = [step for step in asking or filter(_is_silent, run.steps) if step.order <= _order(span)]
        return next(reversed(before or asking), None)

    def _finish(self, run: _AgentRun) -> None:
        for step in run.steps:
            step.step.results += [result for _, result in sorted(step.tools, key=lambda tool: tool[0])]
        for number, step in enumerate(run.steps):
            if step.call is not None and not (step.call.captured is None and _is_import(step.call.span)):
                add_results([before.step for before in run.steps[:number]], request_items(step.call))

    def _nested(self) -> list[Trajectory]:
        made = {agent: self._trajectory(run) for agent, run in self._runs.items()}
        top = []
        for agent, trajectory in made.items():
            owner = agent.parent or self._spawner(agent)
            if owner is None:
                top.append(trajectory)
            else:
                made[owner].subagents.append(trajectory)
        if self._without_agent.steps or not top:
            top.append(self._trajectory(self._without_agent))
        return top

    def _spawner(self, agent: Agent) -> Agent | None:
        """The agent whose call spawned this one, where the parent's span is not at hand."""
        if agent.spawned_by is None:
            return None
        for other, run in self._runs.items():
            if other is not agent and agent.spawned_by in run.of_call:
                return other
        return None

    def _trajectory(self, run: _AgentRun) -> Trajectory:
        ordered: list[tuple[_Order, Entry]] = [(step.order, step.step) for step in run.steps] + run.between
        ordered.sort(key=lambda entry: entry[0])
        gaps = run.gaps + content_gaps((step.step for step in run.steps), messages=run.lost_messages)
        trajectory = trajectory_of([entry for _, entry in ordered], _telemetry(run), gaps)
        if run.agent is not None:
            trajectory.agent_id, trajectory.spawned_by = run.agent.agent_id, run.agent.spawned_by
        return trajectory


def _is_silent(step: _Step) -> bool:
    """Whether its call was told of without what the model said, so that it may have asked for any tool."""
    told = step.call.told if step.call is not None and step.call.captured is None else None
    return told is not None and not _is_import(told) and "gen_ai.output.messages" not in told.attributes


def _take_what_was_sent(run: _AgentRun) -> None:
    """Where only the clients' instrumentations tell of the calls, and nothing tells what the user said."""
    calls = [step.call for step in run.steps if step.call is not None and step.call.captured is None]
    says_more = any(isinstance(entry, UserMessage) for _, entry in run.between)
    if says_more or len(calls) < len(run.steps) or any(_is_import(call.span) for call in calls):
        return
    orders = {id(step.call): step.order for step in run.steps}
    run.between += [((orders[id(call)][0], -1), entry) for call, entry in said_between(calls)]


def _call_without_id(step: _Step, span: StoredSpan) -> str:
    """Of a tool that was run without the id of its call: that of a call of the same name and arguments which nobody
    answered yet, else one of its own."""
    answered = {result.call_id for _, result in step.tools}
    name, arguments = text_of(span, "gen_ai.tool.name"), parsed(_arguments(span))
    for item in step.step.calls():
        call_id = item.get("call_id")
        is_free = isinstance(call_id, str) and call_id not in answered
        if is_free and item.get("name") == name and parsed(item.get("arguments")) == arguments:
            return str(call_id)
    return f"span_{span.span_id}"


def _arguments(span: StoredSpan) -> str | None:
    said: Any = span.attributes.get(_ARGUMENTS)
    return said if said is None or isinstance(said, str) else safe_json(said)


def _gap(code: str, call: Call) -> Gap:
    span = call.captured or call.span
    name = text_of(span, names.MODEL_CALL_ID) or text_of(span, "gen_ai.response.id") or span.span_id
    why = text_of(span, names.ERROR_CATEGORY)
    return Gap(code=code, detail=name if why is None else f"{name}: {why}")


def _failed_turns(run: _AgentRun) -> list[Gap]:
    """Turns of an import that ended without the answer that was asked for: the model could not be reached."""
    turns = run.agent.turns if run.agent is not None else []
    failed = [turn for turn in turns if turn.status == STATUS_ERROR and _is_import(turn)]
    return [Gap(code="turn_failed", detail=turn.status_message or text_of(turn, "error.type")) for turn in failed]


def _is_import(span: StoredSpan) -> bool:
    return names.SOURCE in span.attributes


def _order(span: StoredSpan) -> _Order:
    index = span.attributes.get(names.SOURCE_INDEX)
    return (index, 0) if type(index) is int else (span.start_ns, 0)


def _event_order(event: SpanEvent) -> _Order:
    """Of several things at one time, what was said comes before what was made of it."""
    index = event.attributes.get(names.SOURCE_INDEX)
    return (index, -1) if type(index) is int else (event.time_unix_nano, -1)


def _tool_order(span: StoredSpan) -> _Order:
    """In which results arrived."""
    index = span.attributes.get(names.TOOL_INDEX)
    return (0, index) if type(index) is int else (1, span.end_ns or span.start_ns)


def _entry_of(event: SpanEvent) -> Entry | None:
    item = _json_object(event.attributes.get(names.ITEM))
    if item is None:
        return None
    return boundary_of(item) if event.name == names.CONTEXT_BOUNDARY_EVENT else UserMessage(item)


def _result_of(span: StoredSpan, call_id: str | None) -> ToolResult:
    error = _json_object(span.attributes.get(names.TOOL_ERROR)) or {}
    failed = span.status == STATUS_ERROR
    has_output = "gen_ai.tool.call.result" in span.attributes
    times_are_known = span.attributes.get(names.TIME_KNOWN) is not False and span.end_ns is not None
    return ToolResult(
        call_id=call_id,
        output=_tool_output(span.attributes.get("gen_ai.tool.call.result")),
        started_at=_start(span),
        completed_at=_end(span),
        duration_ms=((span.end_ns or 0) - span.start_ns) / 10**6 if times_are_known else None,
        error_message=_text(error.get("message"))
        or (span.status_message or text_of(span, "error.type") or "failed" if failed else None),
        error_data=error.get("data"),
        extra=_json_object(span.attributes.get(names.TOOL_EXTRA)) or {},
        has_output=has_output,
    )


def _tool_output(result: Any) -> Any:
    """A text, or parts, as the model got it."""
    value = parsed(result)
    if isinstance(value, dict) and value.keys() == {"content"}:
        return value["content"]
    return value if isinstance(value, list | str) else result


def _telemetry(run: _AgentRun) -> AgentTelemetry:
    turns = run.agent.turns if run.agent is not None else []
    said: dict[str, Any] = {}
    for turn in turns:
        said.update(turn.attributes)
    spans = turns or [step.span for step in run.steps if step.span is not None]
    return AgentTelemetry(
        agent=run.agent.name if run.agent is not None else None,
        source=_text(said.get(names.SOURCE)) or "in_process",
        session_id=_text(said.get("gen_ai.conversation.id")) or _text(said.get(names.SOURCE_SESSION_ID)),
        duration_ms=_figure(said[names.AGENT_DURATION_MS]) if names.AGENT_DURATION_MS in said else _duration_ms(spans),
        total_cost_usd=_figure(said.get(names.AGENT_TOTAL_COST_USD)),
        provider_usage=_json_object(said.get(names.AGENT_PROVIDER_USAGE)),
        dropped_records=dropped if type(dropped := said.get(names.AGENT_DROPPED_RECORDS)) is int else 0,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _figure(value: Any) -> float | None:
    return value if type(value) in (int, float) else None


def _duration_ms(spans: Sequence[StoredSpan]) -> float | None:
    if not spans or any(span.end_ns is None or span.attributes.get(names.TIME_KNOWN) is False for span in spans):
        return None
    return (max(span.end_ns or 0 for span in spans) - min(span.start_ns for span in spans)) / 10**6


def _start(span: StoredSpan) -> str | None:
    return None if span.attributes.get(names.TIME_KNOWN) is False else iso_time(span.start_ns)


def _end(span: StoredSpan) -> str | None:
    return None if span.attributes.get(names.TIME_KNOWN) is False else iso_time(span.end_ns)


def _json_object(text: Any) -> dict[str, Any] | None:
    value = text if isinstance(text, dict) else parsed(text)
    return value if isinstance(value, dict) else None
