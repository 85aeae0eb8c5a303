"""Spans of requests and tools as an import of Dynamo's traces makes them, and as a live rollout leaves them."""

import json

from otel_gym.agent_identity import AgentContext
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import STATUS_ERROR, StoredSpan
from otel_gym.views.mooncake.export import mooncake_trace
from otel_gym.views.mooncake.reading import Wanted

NS_OF_MS = 10**6
TRACE = "0" * 31 + "1"


def rollout(*spans, rollout_id="r"):
    """Span ids by place, where they have none."""
    for number, span in enumerate(spans, 1):
        span.span_id = span.span_id or f"{number:016x}"
    return RolloutSpans(None, rollout_id, sorted(spans, key=lambda span: (span.start_ns, span.span_id)))


def context_of(agent, parent=None, *, sessions=False):
    if sessions:
        return AgentContext(session_id=agent, parent_session_id=parent)
    return AgentContext(session_id="run", trajectory_id=agent, parent_trajectory_id=parent)


def request(request_id, agent, start, end, hashes=(1,), *, parent=None, size=2, sessions=False, **attributes):
    """Of an imported trace; ``agent`` None: it has no context. An attribute of None is left out."""
    said = {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.output_tokens": 5,
        "gym.source": "dynamo",
        "gym.dynamo.schema": "dynamo.request.trace.v1" if sessions else "dynamo.agent.trace.v1",
        "gym.dynamo.request_id": request_id,
        "gym.dynamo.event_time_unix_ms": end,
        "gym.dynamo.request_received_ms": start,
        "gym.dynamo.total_time_ms": float(end - start),
        "gym.dynamo.replay.trace_block_size": size,
        "gym.dynamo.replay.input_length": size * len(hashes),
        "gym.dynamo.replay.input_sequence_hashes": [str(value) for value in hashes],
        **({} if agent is None else context_of(agent, parent, sessions=sessions).attributes()),
        **{name.replace("__", "."): value for name, value in attributes.items()},
    }
    return span("chat m", start, end, {name: value for name, value in said.items() if value is not None})


def tool(agent, call_id, start, end, *, event="tool_end", claude=None, sessions=False, **attributes):
    said = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "ls",
        "gen_ai.tool.call.id": call_id,
        "gym.source": "dynamo",
        "gym.dynamo.event_time_unix_ms": end,
        "gym.dynamo.tool.events": [event],
        "gym.dynamo.tool.started_at_unix_ms": start,
        "gym.dynamo.tool.ended_at_unix_ms": end,
        "gym.dynamo.extra": None if claude is None else json.dumps({"tool": {"claude": claude}}),
        **context_of(agent, sessions=sessions).attributes(),
        **{name.replace("__", "."): value for name, value in attributes.items()},
    }
    return span("execute_tool ls", start, end, {name: value for name, value in said.items() if value is not None})


def span(name, start_ms, end_ms, attributes=None, *, span_id="", parent=None, failed=False):
    end_ns = None if end_ms is None else round(end_ms * NS_OF_MS)
    found = StoredSpan(TRACE, span_id, parent, name, 1, round(start_ms * NS_OF_MS), end_ns, attributes or {})
    found.status = STATUS_ERROR if failed else found.status
    return found


def rows_of(*spans, rules="2026-06", agentic=True, lenient=False, block_size=None):
    trace = mooncake_trace([rollout(*spans)], Wanted(agentic, block_size), rules, lenient=lenient)
    return [json.loads(line) for line in trace.lines()]


def by_id(rows):
    return {row["request_id"]: row for row in rows}
