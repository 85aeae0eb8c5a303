"""Records of tools → rollouts with a span a tool. Stands in until ``import dynamo`` makes these spans."""

from __future__ import annotations

from collections.abc import Iterable

from otel_gym.agent_identity import AgentContext
from otel_gym.ingest.imported import ImportedRollout, ImportedSpan
from otel_gym.records.dynamo import DynamoRecord, ToolEvent

_MS = 1_000_000


def rollouts_of_tools(calls: Iterable[list[DynamoRecord]]) -> list[ImportedRollout]:
    rollouts: dict[str, ImportedRollout] = {}
    for records in calls:
        context = records[0].context or AgentContext()
        session = context.session_id or "dynamo-requests"
        rollout = rollouts.get(session)
        if rollout is None:
            rollout = rollouts[session] = ImportedRollout("dynamo", session, [], "dynamo")
            rollout.spans.append(ImportedSpan(rollout.span_id("rollout"), "rollout", 2**63 - 1, 0))
        agent_id = context.agent_id or session
        span_id = rollout.span_id("agent", agent_id)
        agent = next((span for span in rollout.spans if span.span_id == span_id), None)
        if agent is None:
            named = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.id": agent_id}
            root_id = rollout.spans[0].span_id
            agent = ImportedSpan(span_id, f"invoke_agent {agent_id}", 2**63 - 1, 0, root_id, named)
            rollout.spans.append(agent)
        span = _tool_span(rollout, agent, records)
        rollout.spans.append(span)
        for above in (rollout.spans[0], agent):
            above.start_ns = min(above.start_ns, span.start_ns)
            above.end_ns = max(above.end_ns or 0, span.end_ns or span.start_ns)
    return list(rollouts.values())


def _tool_span(rollout: ImportedRollout, agent: ImportedSpan, records: list[DynamoRecord]) -> ImportedSpan:
    terminal = next((record for record in reversed(records) if record.event_type != "tool_start"), None)
    last = terminal or records[-1]
    tool = last.tool or ToolEvent()
    end = None if terminal is None else (tool.ended_at_unix_ms or last.event_time_unix_ms or 0) * _MS
    start = (tool.started_at_unix_ms or records[0].event_time_unix_ms or 0) * _MS
    span_id = rollout.span_id("tool", str(agent.attributes["gen_ai.agent.id"]), tool.tool_call_id or "")
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool.tool_class,
        "gen_ai.tool.call.id": tool.tool_call_id,
    }
    return ImportedSpan(span_id, f"execute_tool {tool.tool_class}", start, end, agent.span_id, attributes)
