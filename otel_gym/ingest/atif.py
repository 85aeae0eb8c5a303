"""ATIF documents, versions 1.0 to 1.8 → spans.

A step of the agent is an ``agent_step`` with its ``chat`` and ``execute_tool`` spans; a step of the user or of the
system is an event of its turn, and so is a step that was copied from elsewhere: it is context, and was counted where
it was made. Each field stands in the attribute of its meaning, or in one of ``gym.atif.*`` (``records.atif_fields``),
from which ``views.atif`` gives the document back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_gym import conventions as names
from otel_gym.content import known
from otel_gym.ingest.atif_files import AtifError, AtifFile, AtifRun, is_atif, names_by_session, read_runs
from otel_gym.ingest.imported import ImportedEvent, ImportedRollout, ImportedSpan
from otel_gym.records.atif import AtifTrajectory
from otel_gym.records.atif_fields import (
    CALL,
    CALL_RESULT,
    DOCUMENT,
    GENERATION,
    INPUT_TOKENS,
    RESULT,
    STEP,
    TOOL_DEFINITIONS,
    TOTALS,
    Json,
    attributes_of,
    empty_fields,
    genai_tools,
    item_parts,
    value_at,
)
from otel_gym.records.atif_versions import version_number
from otel_gym.records.output import boundary_item
from otel_gym.records.steps import ContextBoundary, span_time, unix_nano
from otel_gym.wire.items.shapes import (
    Item,
    compact_json,
    function_call_item,
    function_output_item,
    message_item,
    reasoning_item,
)
from otel_gym.wire.usage import token_count

__all__ = ["AtifError", "is_atif", "read_atif"]

SOURCE = "atif"
# The time of what has none, where nothing before it has one either.
_NO_TIME_NS = 1
_SECOND = 10**9


def read_atif(path: str | Path) -> list[ImportedRollout]:
    """The runs of a file or a folder, each as one rollout. AtifError for what is no ATIF; OSError."""
    return [_rollout_of(run) for run in read_runs(Path(path))]


def _rollout_of(run: AtifRun) -> ImportedRollout:
    main = run.files[run.main].document
    rollout = ImportedRollout(SOURCE, run.key, [], service=main.agent.name, damage=run.damage, place=run.place)
    root = ImportedSpan(rollout.span_id("rollout"), names.ROLLOUT_SPAN, _NO_TIME_NS, _NO_TIME_NS)
    root.attributes[names.TIME_KNOWN] = False
    reward = (main.extra or {}).get("reward")
    if isinstance(reward, int | float) and not isinstance(reward, bool):
        root.attributes[names.REWARD] = float(reward)
    rollout.spans.append(root)
    times = (unix_nano(step.timestamp) for step in main.steps)
    first_ns = next((time for time in times if time is not None), _NO_TIME_NS)
    root.start_ns = root.end_ns = first_ns
    _Importer(rollout, run.files).add(run.main, main, _Place(root.span_id), first_ns)
    _spread_times(rollout.spans)
    return rollout


@dataclass(slots=True)
class _Place:
    """Where an agent stands: below which span, and by which call it was spawned. ``embedded``: the documents of the
    ones around it, by trajectory id, each with its key."""

    parent_id: int
    tool_id: int | None = None
    call_id: str | None = None
    embedded: dict[str, tuple[str, AtifTrajectory]] = field(default_factory=dict)
    is_subagent: bool = False


@dataclass(slots=True)
class _Moment:
    start_ns: int
    end_ns: int
    is_known: bool

    @property
    def attributes(self) -> dict[str, Any]:
        return {} if self.is_known else {names.TIME_KNOWN: False}


@dataclass(slots=True)
class _Agent:
    """A document in the making. ``step_number``: steps that its agent made so far, in the files before it too."""

    key: str
    document: Json
    place: _Place
    now_ns: int
    embedded: dict[str, tuple[str, AtifTrajectory]]
    leaves_out_cache: bool
    step_number: int
    turns: list[ImportedSpan] = field(default_factory=list)
    has_handed_back: bool = False

    def moment(self, timestamp: str | None, extra: Any) -> _Moment:
        """When it was: by an interval in its extra, by its timestamp, or after what was before."""
        time = unix_nano(timestamp)
        interval = _interval(extra) or (None if time is None else (time, time))
        if interval is None:
            return _Moment(self.now_ns, self.now_ns, False)
        self.now_ns = interval[1]
        return _Moment(*interval, True)


class _Importer:
    """Adds documents to a rollout; what they refer to comes below the call that refers to it, once."""

    def __init__(self, rollout: ImportedRollout, files: Mapping[str, AtifFile]) -> None:
        self._rollout = rollout
        self._files = files
        self._added: set[str] = set()
        self._index = 0

    def add(self, key: str, document: AtifTrajectory, place: _Place, now_ns: int) -> None:
        """With the files that go on with it."""
        step_number = 0
        while key not in self._added:
            self._added.add(key)
            agent = self._add_document(key, document, place, now_ns, step_number)
            step_number, now_ns = agent.step_number, agent.now_ns
            following = document.continued_trajectory_ref
            if following is None or following not in self._files:
                return
            key, document = following, self._files[following].document

    def _add_document(self, key: str, document: AtifTrajectory, place: _Place, now_ns: int, step_number: int) -> _Agent:
        own = {
            str(subagent.trajectory_id): (f"{key}{'/' if '#' in key else '#'}{_SUBAGENTS}/{number}", subagent)
            for number, subagent in enumerate(document.subagent_trajectories or ())
        }
        embedded = {**place.embedded, **own}
        written, leaves_out_cache = document.written(), _leaves_out_cache(document)
        agent = _Agent(key, written, place, now_ns, embedded, leaves_out_cache, step_number)
        for step in written["steps"]:
            if step["source"] == "agent" and not step.get("is_copied_context"):
                self._add_agent_step(agent, step)
            else:
                self._add_told_step(agent, step)
        for subagent_key, subagent in own.values():
            below = _Place(agent.turns[-1].span_id, embedded=embedded, is_subagent=True)
            self.add(subagent_key, subagent, below, agent.now_ns)
        agent.turns[-1].attributes |= attributes_of(written, TOTALS)
        return agent

    def _turn(self, agent: _Agent, *, user_speaks: bool = False) -> ImportedSpan:
        """The turn that the agent is in; a new one where it had handed back control and the user speaks."""
        if agent.turns and not (user_speaks and agent.has_handed_back):
            return agent.turns[-1]
        agent.has_handed_back = False
        document = agent.document
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            names.SOURCE_INDEX: self._next_index(),
            names.ATIF_DOCUMENT: agent.key,
            names.SPAWNED_BY: agent.place.call_id,
            names.TIME_KNOWN: False,
            **attributes_of(document, _ON_EACH_TURN if agent.turns else DOCUMENT),
        }
        if agent.place.is_subagent:
            attributes["gen_ai.agent.id"] = document.get("trajectory_id") or document.get("session_id") or agent.key
        if not agent.turns:
            said = {name: value for name, value in document.items() if name not in ("steps", _SUBAGENTS) or not value}
            attributes[names.ATIF_EMPTY_FIELDS] = list(empty_fields(said)) or None
            tools = genai_tools(document["agent"].get("tool_definitions"))
            if tools is not None:
                attributes |= {TOOL_DEFINITIONS: compact_json(tools), names.ATIF_TOOL_DEFINITIONS: None}
        span = self._span(
            (agent.key, "turn", str(len(agent.turns))),
            f"invoke_agent {document['agent']['name']}",
            agent.place.parent_id,
            _Moment(agent.now_ns, agent.now_ns, False),
            attributes,
        )
        span.link_id = agent.place.tool_id
        agent.turns.append(span)
        return span

    def _add_agent_step(self, agent: _Agent, step: Json) -> None:
        turn = self._turn(agent)
        agent.step_number += 1
        moment = agent.moment(step.get("timestamp"), step.get("extra"))
        step_key = (agent.key, "step", str(step["step_id"]))
        said = {**self._step_attributes(step), names.SOURCE_INDEX: self._next_index()}
        span = self._span(
            step_key, names.AGENT_STEP_SPAN, turn.span_id, moment, {names.STEP_INDEX: agent.step_number, **said}
        )
        made = {**_generation(agent, step), names.OUTPUT_ITEMS: compact_json(_output_items(step))}
        if step.get("llm_call_count") == 0:
            span.attributes |= known(made)
        else:
            self._add_call_of_model(agent, step, span, made, moment)
        self._add_tools(agent, step, span)
        agent.has_handed_back = not step.get("tool_calls") and not value_at(step, "observation.results")

    def _add_call_of_model(
        self, agent: _Agent, step: Json, span: ImportedSpan, made: dict[str, Any], moment: _Moment
    ) -> None:
        model = step.get("model_name") or agent.document["agent"].get("model_name")
        chat = self._span(
            (agent.key, "step", str(step["step_id"]), "chat"),
            f"chat {model}" if model else "chat",
            span.span_id,
            moment,
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": _provider(model),
                "gen_ai.request.model": model,
                **made,
                **_ids_told(step.get("extra")),
            },
        )
        chat.is_client = True
        extra = step.get("extra") or {}
        if isinstance(extra.get("error"), str):
            chat.error = extra["error"]
            chat.attributes |= {"error.type": chat.error, names.ERROR_CATEGORY: chat.error}
        if extra.get("unfinished") is True:
            chat.end_ns = span.end_ns = None

    def _add_tools(self, agent: _Agent, step: Json, span: ImportedSpan) -> None:
        """A tool of each call, with the first result that names it; other results are told beside."""
        results = list(enumerate(value_at(step, "observation.results") or ()))
        for number, call in enumerate(step.get("tool_calls") or ()):
            mine = next((found for found in results if found[1].get("source_call_id") == call["tool_call_id"]), None)
            if mine is not None:
                results.remove(mine)
            self._add_tool(agent, step, span, number, call, mine)
        for index, result in results:
            self._add_result_event(agent, step, index, result)

    def _add_tool(
        self, agent: _Agent, step: Json, span: ImportedSpan, number: int, call: Json, found: tuple[int, Json] | None
    ) -> None:
        index, result = found or (None, {})
        extra = {**(call.get("extra") or {}), **(result.get("extra") or {})}
        interval = _interval(extra)
        moment = _Moment(*interval, True) if interval else _Moment(span.start_ns, span.start_ns, False)
        tool = self._span(
            (agent.key, "step", str(step["step_id"]), "tool", str(number)),
            f"execute_tool {call['function_name']}",
            span.span_id,
            moment,
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.type": "function",
                names.ATIF_CALL_INDEX: number,
                **attributes_of(call, CALL),
            },
        )
        if index is None:
            return
        content = result.get("content")
        tool.attributes |= known(
            {
                names.ATIF_RESULT_INDEX: index,
                names.TOOL_INDEX: index,
                CALL_RESULT: None if content is None else _tool_result(content),
                **attributes_of({**result, "source_call_id": None}, RESULT),
            }
        )
        error = extra.get("error")
        if error or extra.get("is_error") is True:
            told = error if isinstance(error, dict) else {"message": error} if isinstance(error, str) else None
            tool.error = str(told.get("message") or "") if told else ""
            tool.attributes |= known({names.TOOL_ERROR: compact_json(told) if told else None})
        self._add_subagents(agent, result, _Place(tool.span_id, tool.span_id, call["tool_call_id"]))

    def _add_told_step(self, agent: _Agent, step: Json) -> None:
        """A step of the user or the system, or one that was copied: context that was given, as events of the turn."""
        self._turn(agent, user_speaks=step["source"] == "user")
        managed = value_at(step, "extra.context_management")
        is_boundary = step["source"] == "system" and isinstance(managed, dict)
        attributes = {
            **self._step_attributes(step),
            names.ATIF_SOURCE: step["source"],
            names.ATIF_MESSAGE_PARTS: isinstance(step["message"], list) or None,
        }
        if step["source"] == "agent":
            attributes |= _generation(agent, step) | {names.OUTPUT_ITEMS: _reasoning(step)}
        message = message_item(_ROLES[step["source"]], item_parts(_ROLES[step["source"]], step["message"]))
        attributes[names.ATIF_MESSAGE] = compact_json(message) if is_boundary else None
        self._event(
            agent,
            step,
            names.CONTEXT_BOUNDARY_EVENT if is_boundary else names.USER_MESSAGE_EVENT,
            _boundary(step, managed) if is_boundary else message,
            attributes,
        )
        for number, call in enumerate(step.get("tool_calls") or ()):
            item = function_call_item(call["tool_call_id"], call["function_name"], call["arguments"])
            told = {names.ATIF_CALL_INDEX: number, **attributes_of(call, CALL)}
            self._event(agent, step, names.USER_MESSAGE_EVENT, item, told)
        for index, result in enumerate(value_at(step, "observation.results") or ()):
            self._add_result_event(agent, step, index, result, is_told=is_boundary)

    def _add_result_event(self, agent: _Agent, step: Json, index: int, result: Json, is_told: bool = False) -> None:
        """A result that no call of its step waits for. ``is_told``: an event of the step says its content already."""
        content = result.get("content")
        parts = item_parts("user", content)
        call_id = result.get("source_call_id")
        item = message_item("user", parts) if call_id is None else function_output_item(call_id, parts)
        attributes = {
            names.ATIF_RESULT_INDEX: index,
            names.ATIF_MESSAGE_PARTS: isinstance(content, list) or None,
            **attributes_of(result, RESULT),
        }
        is_new = bool(parts) and not is_told
        name = names.USER_MESSAGE_EVENT if is_new else names.ATIF_PART_EVENT
        self._event(agent, step, name, item if parts else None, attributes)
        self._add_subagents(agent, result, _Place(agent.turns[-1].span_id, call_id=call_id))

    def _add_subagents(self, agent: _Agent, result: Json, place: _Place) -> None:
        place.embedded, place.is_subagent = agent.embedded, True
        for ref in result.get("subagent_trajectory_ref") or ():
            path, name = ref.get("trajectory_path"), ref.get("trajectory_id")
            if path is not None:
                found = [(path, self._files[path].document)] if path in self._files else []
            elif name is not None:
                found = [agent.embedded[name]] if name in agent.embedded else []
            else:
                found = [
                    (key, self._files[key].document) for key in names_by_session(ref.get("session_id"), self._files)
                ]
            for key, document in found:
                self.add(key, document, place, agent.now_ns)

    def _step_attributes(self, step: Json) -> dict[str, Any]:
        return {
            names.ATIF_STEP_ID: step["step_id"],
            names.ATIF_EMPTY_FIELDS: list(empty_fields(step)) or None,
            **attributes_of(step, STEP),
        }

    def _event(self, agent: _Agent, step: Json, name: str, item: Item | None, attributes: Mapping[str, Any]) -> None:
        moment = agent.moment(step.get("timestamp"), None)
        said = {
            names.ATIF_STEP_ID: step["step_id"],
            names.SOURCE_INDEX: self._next_index(),
            names.ITEM: None if item is None else compact_json(item),
            **attributes,
            **moment.attributes,
        }
        self._turn(agent).events.append(ImportedEvent(name, moment.end_ns, known(said)))

    def _span(
        self, key: tuple[str, ...], name: str, parent_id: int, moment: _Moment, attributes: Mapping[str, Any]
    ) -> ImportedSpan:
        span = ImportedSpan(
            self._rollout.span_id(*key),
            name,
            moment.start_ns,
            moment.end_ns,
            parent_id,
            known({**attributes, **moment.attributes}),
        )
        self._rollout.spans.append(span)
        return span

    def _next_index(self) -> int:
        self._index += 1
        return self._index


_SUBAGENTS = "subagent_trajectories"
_ON_EACH_TURN = tuple(row for row in DOCUMENT if row.path in ("session_id", "agent.name", "agent.version"))
_ROLES = {"user": "user", "system": "system", "agent": "assistant"}
# As routers write them before a slash, and as vendors' own models begin.
_VENDORS = {
    "openai": "openai",
    "anthropic": "anthropic",
    "gemini": "gcp.gemini",
    "vertex_ai": "gcp.vertex_ai",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "groq": "groq",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "perplexity": "perplexity",
    "xai": "x_ai",
}
_FAMILIES = (
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("claude", "anthropic"),
    ("gemini", "gcp.gemini"),
    ("grok", "x_ai"),
)
_OTHER_PROVIDER = "_OTHER"
_CONTAINERS = (names.ROLLOUT_SPAN, names.AGENT_STEP_SPAN)


def _leaves_out_cache(document: AtifTrajectory) -> bool:
    """Since 1.2 ``prompt_tokens`` is the whole prompt; before, some writers left the cached tokens out of it."""
    if version_number(document.schema_version) >= 2:
        return False
    metrics = [step.metrics for step in document.steps if step.metrics is not None]
    return any((each.cached_tokens or 0) > (each.prompt_tokens or 0) for each in metrics)


def _generation(agent: _Agent, step: Json) -> dict[str, Any]:
    """What is told of the model's call, without what it made."""
    attributes = attributes_of(step, GENERATION)
    metrics = step.get("metrics") or {}
    extra = metrics.get("extra") or {}
    attributes |= known(
        {
            "gen_ai.usage.reasoning.output_tokens": token_count(extra.get("reasoning_tokens")),
            "gen_ai.usage.cache_write.input_tokens": token_count(extra.get("cache_creation_input_tokens")),
            names.ATIF_MESSAGE_PARTS: isinstance(step["message"], list) or None,
        }
    )
    if agent.leaves_out_cache and INPUT_TOKENS in attributes:
        attributes[names.ATIF_PROMPT_TOKENS] = attributes[INPUT_TOKENS]
        attributes[INPUT_TOKENS] += metrics.get("cached_tokens") or 0
    return attributes


def _provider(model: str | None) -> str:
    """Whose model it is, by its name: the conventions require it, and ATIF has no field for it."""
    name = (model or "").lower()
    vendor, _, rest = name.partition("/")
    if rest and vendor in _VENDORS:
        return _VENDORS[vendor]
    family = name.rpartition("/")[2]
    return next((provider for start, provider in _FAMILIES if family.startswith(start)), _OTHER_PROVIDER)


def _ids_told(extra: Any) -> dict[str, Any]:
    """What our own documents say of the call beside what ATIF has fields for."""
    told = extra if isinstance(extra, dict) else {}
    texts = {name: value for name, value in told.items() if isinstance(value, str)}
    return {
        "gen_ai.response.id": texts.get("response_id"),
        "gen_ai.response.finish_reasons": [texts["stop_reason"]] if "stop_reason" in texts else None,
        names.REQUEST_ID: texts.get("request_id"),
    }


def _output_items(step: Json) -> list[Item]:
    items = [reasoning_item(step["reasoning_content"])] if step.get("reasoning_content") else []
    parts = item_parts("assistant", step["message"])
    if parts:
        items.append(message_item("assistant", parts))
    for call in step.get("tool_calls") or ():
        items.append(function_call_item(call["tool_call_id"], call["function_name"], call["arguments"]))
    return items


def _reasoning(step: Json) -> str | None:
    reasoning = step.get("reasoning_content")
    return compact_json([reasoning_item(reasoning)]) if reasoning else None


def _tool_result(content: Any) -> str:
    return compact_json({"content": content if isinstance(content, str) else item_parts("user", content)})


def _boundary(step: Json, managed: Json) -> Item:
    """What later calls saw: the content of the step's results or, where these have none, its message."""
    contents = [result.get("content") for result in value_at(step, "observation.results") or ()]
    shown = [content for content in contents if content] or [step["message"]]
    content = [message_item("user", parts) for parts in (item_parts("user", each) for each in shown) if parts]
    trigger = managed.get("trigger")
    made = ContextBoundary(
        content,
        kind=str(managed.get("type") or "compaction"),
        boundary=str(managed.get("boundary") or "replace"),
        trigger=trigger if isinstance(trigger, str) else None,
        timestamp=step.get("timestamp"),
        tokens_before=token_count(managed.get("tokens_before")),
        tokens_after=token_count(managed.get("tokens_after")),
        keeps_instructions=managed.get("keeps_instructions") is not False,
    )
    return boundary_item(made)


def _interval(extra: Any) -> tuple[int, int] | None:
    """Start and end in ns, as our own documents say it, or those of the NeMo Agent Toolkit."""
    if not isinstance(extra, dict):
        return None
    start, end = unix_nano(extra.get("started_at")), unix_nano(extra.get("completed_at"))
    invocation = extra.get("invocation")
    if start is None and isinstance(invocation, dict):
        start, end = map(_of_seconds, (invocation.get("start_timestamp"), invocation.get("end_timestamp")))
    return None if start is None or end is None or end < start else (start, end)


def _of_seconds(value: Any) -> int | None:
    is_time = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 10**11
    return span_time(round(value * _SECOND)) if is_time else None


def _spread_times(spans: list[ImportedSpan]) -> None:
    """A span that holds others lasts as long as they do; one that has no time of its own gets theirs."""
    by_id = {span.span_id: span for span in spans}
    timed = {span.span_id for span in spans if names.TIME_KNOWN not in span.attributes}
    for span in reversed(spans):
        for event in span.events:
            if names.TIME_KNOWN not in event.attributes:
                _enclose(span, event.time_ns, event.time_ns, timed)
        if span.span_id in timed and span.parent_id is not None:
            _enclose(by_id[span.parent_id], span.start_ns, span.end_ns or span.start_ns, timed)


def _enclose(span: ImportedSpan, start_ns: int, end_ns: int, timed: set[int]) -> None:
    if span.span_id not in timed:
        timed.add(span.span_id)
        span.start_ns = start_ns
        span.end_ns = None if span.end_ns is None else end_ns
        if span.attributes.get("gen_ai.operation.name") == "invoke_agent" or span.name in _CONTAINERS:
            del span.attributes[names.TIME_KNOWN]
        return
    span.start_ns = min(span.start_ns, start_ns)
    span.end_ns = None if span.end_ns is None else max(span.end_ns, end_ns)
