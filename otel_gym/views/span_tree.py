"""The spans of a rollout as a tree, each model call with its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from otel_gym.conventions import REWARD
from otel_gym.records.model_call import ModelCallRecord
from otel_gym.store.executions import Intervals, ids_of, is_root, roots_of, topmost
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan
from otel_gym.views.agent_tree import Agent, AgentTree
from otel_gym.views.model_calls import model_calls
from otel_gym.views.rewards import reward_of


@dataclass(slots=True)
class SpanNode:
    """``joined``: no parent was recorded; the span stands here because it ran within this rollout's root.

    ``counts``: it belongs to the execution that counts. ``clock_skew``: it starts before its parent does, since their
    clocks differ; times are shown as they were recorded. ``reward``: a root has its execution's,
    the last one given. ``is_group``: it is no span of the store, but an agent whose calls stand below.
    """

    span: StoredSpan
    record: ModelCallRecord | None = None
    children: list[SpanNode] = field(default_factory=list)
    joined: bool = False
    counts: bool = True
    clock_skew: bool = False
    reward: float | None = None
    is_group: bool = False


def span_tree(rollout: RolloutSpans) -> list[SpanNode]:
    """The topmost spans, oldest first. A call that came by URL prefix alone hangs under the root that encloses it."""
    records = {ids_of(call.span): call.record for call in model_calls(rollout)}
    by_id = {(span.trace_id, span.span_id): span for span in rollout.spans}
    nodes = {ids: SpanNode(span, records.get(ids)) for ids, span in by_id.items()}
    intervals = Intervals(roots_of(rollout.spans))
    executions = rollout.executions()
    counting = {ids_of(span) for span in executions.counting.spans}
    rewards = {ids_of(each.root): reward_of(executions, each) for each in executions.all if each.root is not None}
    skewed = {ids_of(span) for span in spans_before_their_parent(rollout.spans)}
    top: list[SpanNode] = []
    for (trace_id, span_id), node in nodes.items():
        node.counts = (trace_id, span_id) in counting
        node.clock_skew = (trace_id, span_id) in skewed
        own = node.span.attributes.get(REWARD)
        node.reward = rewards.get((trace_id, span_id), float(own) if isinstance(own, int | float) else None)
        parent = nodes.get((trace_id, node.span.parent_span_id or ""))
        if parent is not None and topmost(node.span, by_id).span_id != span_id:
            parent.children.append(node)
            continue
        root = None if is_root(node.span) else intervals.only_one_around(node.span.start_ns)
        if root is None:
            top.append(node)
        else:
            node.joined = True
            nodes[root.trace_id, root.span_id].children.append(node)
    return top


def grouped_by_agent(top: list[SpanNode], spans: Sequence[StoredSpan]) -> list[SpanNode]:
    """The tree with a node for each agent that only contexts name, over what it did, at the first place of it. The same
    tree where ``invoke_agent`` spans tell of agents, or one agent did it all.
    """
    agents = AgentTree(spans)
    if not agents.agents or any(agent.turns for agent in agents.agents):
        return top
    return _grouped(top, agents)


def _grouped(nodes: list[SpanNode], agents: AgentTree) -> list[SpanNode]:
    groups: dict[Agent, SpanNode] = {}
    grouped: list[SpanNode] = []
    for node in nodes:
        doing = set() if is_root(node.span) else _doing(node, agents)
        if len(doing) != 1:
            node.children = _grouped(node.children, agents)
            grouped.append(node)
            continue
        [named] = doing
        above = grouped
        for agent in _family(named):
            if agent not in groups:
                groups[agent] = SpanNode(_span_of(agent, node.span), is_group=True)
                above.append(groups[agent])
            _widen(groups[agent].span, node.span)
            above = groups[agent].children
        above.append(node)
    return grouped


def _doing(node: SpanNode, agents: AgentTree) -> set[Agent]:
    """The agent that a span names, else those that are named below it: a SERVER span stands over its call."""
    named = agents.agent_named_by(node.span)
    return {named} if named is not None else set().union(*(_doing(child, agents) for child in node.children))


def _family(agent: Agent) -> list[Agent]:
    """From the first agent to this one."""
    family = [agent]
    while family[-1].parent is not None:
        family.append(family[-1].parent)
    return family[::-1]


def _span_of(agent: Agent, first: StoredSpan) -> StoredSpan:
    name = f"agent {agent.agent_id}"
    return StoredSpan(first.trace_id, "", first.parent_span_id, name, first.kind, first.start_ns, first.end_ns)


def _widen(group: StoredSpan, span: StoredSpan) -> None:
    group.start_ns = min(group.start_ns, span.start_ns)
    if group.end_ns is not None:
        group.end_ns = None if span.end_ns is None else max(group.end_ns, span.end_ns)


def spans_before_their_parent(spans: Sequence[StoredSpan]) -> list[StoredSpan]:
    """Spans that start before their parent: it was recorded by another clock. Their times are left as they are."""
    starts = {ids_of(span): span.start_ns for span in spans}
    return [span for span in spans if span.start_ns < starts.get((span.trace_id, span.parent_span_id or ""), 0)]
