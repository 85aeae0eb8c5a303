"""``dynamo``: what Dynamo's trace says of each model call and tool of a rollout, beside its row, with named gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from otel_gym import conventions as names
from otel_gym.agent_identity import AgentContext, agent_context_of_attributes
from otel_gym.content import known
from otel_gym.records.dynamo import RequestMetrics, ToolEvent, Worker
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan
from otel_gym.views.agent_tree import CALL_ID, agent_context_of, is_tool, text_of
from otel_gym.views.dynamo_join import (
    REQUEST_WITHOUT_CALL,
    TOOL_WITHOUT_CALL,
    AskedCall,
    DynamoJoin,
    DynamoRequest,
    DynamoTool,
    DynamoTrace,
    JoinedCall,
    JoinedTool,
    request_id_of_answer,
)
from otel_gym.views.model_calls import StoredModelCall, model_calls
from otel_gym.views.same_calls import DYNAMO_REQUEST_ID

Json = dict[str, Any]
_Struct = TypeVar("_Struct", bound=msgspec.Struct)

_TOOL = names.DYNAMO_PREFIX + "tool."
_X_REQUEST_ID_HEADER = names.REQUEST_HEADER + "x-request-id"
_USAGE = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
}
_WORKER = tuple(field.name for field in msgspec.structs.fields(Worker))


# Of a rollout without calls, or of which none can say which they are.
NO_DYNAMO: Json = {"calls": [], "tools": []}


def is_of_dynamo(span: StoredSpan) -> bool:
    """Whether it was imported from a trace of Dynamo's, or is a span of Dynamo's own, and no call that was captured."""
    if names.MODEL_CALL_ID in span.attributes:
        return False
    return span.attributes.get(names.SOURCE) == "dynamo" or DYNAMO_REQUEST_ID in span.attributes


def add_spans(trace: DynamoTrace, spans: Iterable[StoredSpan]) -> None:
    """The requests and tools that imported spans tell of."""
    for span in filter(is_of_dynamo, spans):
        told, context = span.attributes, agent_context_of_attributes(span.attributes)
        if is_tool(span):
            event = {name: told.get(_TOOL + name) for name in ToolEvent.__struct_fields__}
            event |= {"tool_call_id": told.get(CALL_ID), "tool_class": told.get("gen_ai.tool.name")}
            event |= {"tool_name_hash": told.get(_TOOL + "name_hash"), "error_type": told.get("error.type")}
            if told.get(_TOOL + "events") != ["tool_start"]:
                time_ms = told.get(names.DYNAMO_PREFIX + "event_time_unix_ms")
                trace.add_tool(_converted(event, ToolEvent), context, time_ms if type(time_ms) is int else None)
        elif DYNAMO_REQUEST_ID in told:
            trace.add_request(_metrics_of(span), context)


def _metrics_of(span: StoredSpan) -> RequestMetrics:
    told = span.attributes
    fields = {name: told.get(names.DYNAMO_PREFIX + name) for name in RequestMetrics.__struct_fields__}
    fields |= {name: told.get(attribute) for name, attribute in _USAGE.items()}
    fields |= {"model": told.get("gen_ai.request.model"), "replay": None, "finish_reason_metadata": None}
    worker = {name: told.get(names.DYNAMO_PREFIX + name) for name in _WORKER}
    if known(worker):
        fields["worker"] = _converted(worker, Worker)
    return _converted(fields, RequestMetrics)


def _converted(fields: Json, struct: type[_Struct]) -> _Struct:
    """Without what is of another type."""
    kept: Json = {}
    for name, kind in ((field.name, field.type) for field in msgspec.structs.fields(struct)):
        try:
            kept[name] = msgspec.convert(fields.get(name), kind, strict=False)
        except msgspec.ValidationError:
            continue
    return struct(**kept)


def dynamo_attachment(found: Sequence[RolloutSpans], trace: DynamoTrace) -> Json:
    """Of the execution that counts. ``found`` is what the store has under the id, each run apart; nothing is attached
    where several runs have it."""
    certain = [rollout for rollout in found if not rollout.is_ambiguous] or list(found)
    if len(certain) != 1:
        return NO_DYNAMO
    [rollout] = certain
    spans = rollout.executions().counting.spans
    joined = trace.join([_asked(call) for call in model_calls(rollout.with_spans(spans))], _runs(spans))
    return _attachment(joined, has_tools=bool(trace.tools))


def _asked(call: StoredModelCall) -> AskedCall:
    told, record = call.span.attributes, call.record
    header = told.get(_X_REQUEST_ID_HEADER)
    first = header[0] if isinstance(header, list) and header and isinstance(header[0], str) else None
    return AskedCall(
        name=record.model_call_id or record.response_id or call.span.span_id,
        x_request_id=text_of(call.span, names.X_REQUEST_ID) or first,
        request_id=text_of(call.span, DYNAMO_REQUEST_ID) or request_id_of_answer(record.response_id),
        context=agent_context_of(call.span),
        tools=[tool.call_id for tool in record.tool_calls or () if isinstance(tool.call_id, str)],
    )


def _runs(spans: Iterable[StoredSpan]) -> Iterator[tuple[AgentContext, str]]:
    for span in spans:
        call_id = text_of(span, CALL_ID) if is_tool(span) and not is_of_dynamo(span) else None
        context = None if call_id is None else agent_context_of(span)
        if call_id is not None and context is not None:
            yield context, call_id


def _attachment(joined: DynamoJoin, *, has_tools: bool) -> Json:
    """Of a trace without tools none is missing."""
    tools = [tool for tool in joined.tools if has_tools or tool.tool is not None]
    gaps = Counter(gap for gap in (*(call.gap for call in joined.calls), *(tool.gap for tool in tools)) if gap)
    gaps.update({REQUEST_WITHOUT_CALL: len(joined.requests), TOOL_WITHOUT_CALL: len(joined.unasked)})
    return {
        "calls": [_call(call) for call in joined.calls],
        "tools": [_tool(tool) for tool in tools],
        **_listed("requests_without_call", map(request_fields, joined.requests)),
        **_listed("tools_without_call", map(tool_fields, joined.unasked)),
        **_listed("gaps", [{"code": code, "count": count} for code, count in gaps.items() if count]),
    }


def _listed(name: str, items: Iterable[Json]) -> Json:
    found = list(items)
    return {name: found} if found else {}


def _call(call: JoinedCall) -> Json:
    said: Json = {"model_call_id": call.asked.name}
    if call.request is None:
        return said | {"gap": call.gap}
    return said | {"matched_by": call.matched_by} | request_fields(call.request)


def request_fields(request: DynamoRequest) -> Json:
    """As Dynamo names them; ids of workers are texts, since JSON readers lose digits of such numbers."""
    fields: Json = msgspec.to_builtins(request.metrics)
    worker = fields.get("worker")
    if worker is not None:
        fields["worker"] = {name: str(value) if name.endswith("_id") else value for name, value in worker.items()}
    return {**_agent(request.context), **fields}


def _tool(tool: JoinedTool) -> Json:
    if tool.tool is None:
        return {**_agent(tool.context), "tool_call_id": tool.call_id, "gap": tool.gap}
    return tool_fields(tool.tool)


def tool_fields(tool: DynamoTool) -> Json:
    fields: Json = msgspec.to_builtins(tool.event)
    return {**_agent(tool.context), **fields, **known({"status": tool.status})}


def request_names(request: DynamoRequest) -> Json:
    """What it can be found by."""
    metrics = request.metrics
    return {
        **_agent(request.context),
        **known({"request_id": metrics.request_id, "x_request_id": metrics.x_request_id}),
    }


def tool_names(tool: DynamoTool) -> Json:
    return {**_agent(tool.context), "tool_call_id": tool.event.tool_call_id}


def _agent(context: AgentContext | None) -> Json:
    if context is None:
        return {}
    return known({"session_id": context.session_id, "trajectory_id": context.trajectory_id})
