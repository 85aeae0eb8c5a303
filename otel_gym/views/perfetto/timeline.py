"""The spans of a rollout → the processes of a trace: one an execution, with its agents, calls and tools in tracks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from otel_gym import conventions as names
from otel_gym.content import safe_text
from otel_gym.store.executions import Execution, Executions, ids_of
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import KIND_CLIENT, KIND_SERVER, STATUS_ERROR, StoredSpan
from otel_gym.views.agent_tree import OPERATION, Agent, AgentTree, is_agent, is_step, is_tool, text_of
from otel_gym.views.layers import asks_model, told_better
from otel_gym.views.perfetto.arguments import ArgsMode, args_of
from otel_gym.views.perfetto.counters import counters_of_group, counters_of_rollout
from otel_gym.views.perfetto.flows import FlowIds, Group, add_flows
from otel_gym.views.perfetto.lanes import Lanes
from otel_gym.views.perfetto.shapes import (
    AGENT,
    ENVIRONMENT,
    HTTP,
    MODEL,
    OTHER,
    TOOL,
    Instant,
    Lane,
    Process,
    Slice,
    Track,
)
from otel_gym.views.perfetto.stages import WantedStages, add_finish_facts, open_tool_name, stages_of
from otel_gym.views.rewards import reward_of

# Category of a client's own span around a call: it stands with the calls, and is none of its own.
CLIENT = "client calls"
_ORDER = (AGENT, MODEL, TOOL, ENVIRONMENT, HTTP, OTHER)
# Perfetto's times are signed.
_LATEST_NS = 2**63 - 1
# What NeMo Gym's agents, and gyms like it, ask of an environment's or a resources server.
_ENVIRONMENT_PATHS = frozenset({"seed_session", "reset", "step", "verify", "close", "close_session"})
_URLS = ("url.full", "http.url", "url.path", "http.target")
# Servers' spans of the ends of a request: noise beside the request itself.
_ASGI_NOISE = (" http send", " http receive")


class Shown(msgspec.Struct, frozen=True):
    """What of a rollout is shown. ``http``: also the spans of HTTP servers."""

    args: ArgsMode = "full"
    http: bool = False
    stages: WantedStages = WantedStages()


def processes_of(
    rollout: RolloutSpans,
    shown: Shown,
    flow_ids: FlowIds,
    *,
    names_run: bool = False,
    is_superseded: bool = False,
) -> Iterator[Process]:
    """One an execution; spans of which none can tell whose they are come last. ``names_run``: names say the run.

    ``is_superseded``: a later attempt counts in its place.
    """
    executions = rollout.executions()
    for each in executions.all:
        counts = each is executions.counting and not is_superseded
        name = _process_name(rollout, executions, each, counts, names_run)
        yield Process(name, _Timeline(each.spans, shown, flow_ids).tracks())
    if executions.ambiguous:
        name = f"rollout {rollout.address}: spans of no certain execution"
        yield Process(name, _Timeline(executions.ambiguous, shown, flow_ids).tracks())


def _process_name(
    rollout: RolloutSpans, executions: Executions, execution: Execution, counts: bool, names_run: bool
) -> str:
    reward, status = reward_of(executions, execution), execution.status
    parts = [f"rollout {rollout.rollout_id}"]
    if reward is not None:
        parts.append(f"reward={reward:g}")
    if status is not None:
        parts.append(status)
    if not counts:
        parts.append("superseded")
    if names_run and rollout.run_id is not None:
        parts.append(f"run={rollout.run_id}")
    return " ".join(parts)


class _Place(msgspec.Struct, eq=False):
    """A span's place in the tree of spans, and the slice that it became."""

    parent: _Place | None
    depth: int
    group: Group
    end_ns: int = 0
    step: int | None = None
    made: Slice | None = None
    track: tuple[int, str] | None = None

    def nearest_in(self, track: tuple[int, str]) -> Slice | None:
        """Of the nearest ancestor that stands in the same track."""
        above = self.parent
        for _ in range(self.depth):
            if above is None or above.track == track:
                break
            above = above.parent
        return None if above is None or above.track != track else above.made


class _Timeline:
    """Puts the spans of one execution into tracks."""

    def __init__(self, spans: Sequence[StoredSpan], shown: Shown, flow_ids: FlowIds) -> None:
        self._spans = spans
        self._shown = shown
        self._flow_ids = flow_ids
        self._last_ns = max(map(last_moment, spans), default=0)
        self._end_ns = min(self._last_ns, _LATEST_NS - 1)
        self._agents = AgentTree(spans)
        self._has_one_first = sum(agent.parent is None for agent in self._agents.agents) == 1
        self._told_better = told_better(RolloutSpans(None, "", list(spans)))
        self._main = Group("", None)
        self._groups: dict[Agent, Group] = {}
        self._group_names: set[str] = set()
        self._lanes: dict[tuple[int, str], Lanes] = {}
        self._instants: dict[tuple[int, str], list[Lane]] = {}
        self._places: dict[int, _Place] = {}  # by the identity of spans, of which each is there once

    def tracks(self) -> list[Track]:
        for agent in self._agents.agents:
            self._groups[agent] = self._group_of(agent)
        for span in sorted(self._spans, key=self._order):
            self._show(span)
        groups = [self._main, *dict.fromkeys(group for group in self._groups.values() if group is not self._main)]
        add_flows(groups, self._flow_ids)
        tracks = self._tracks_of(self._main)
        for group in groups[1:]:
            kind = "agent" if group.parent is None else "subagent"
            tracks.append(Track(f"{kind} {group.name}", tracks=self._tracks_of(group)))
        counters = counters_of_rollout([call for group in groups for call in group.calls], self._end_ns)
        if counters:
            tracks.append(Track("rollout", counters=counters))
        return tracks

    def _group_of(self, agent: Agent) -> Group:
        is_first = agent.parent is None and agent.spawned_by is None
        if is_first and (agent.turns or self._has_one_first):
            return self._main
        parent = self._main if agent.spawned_by is not None else None
        if agent.parent is not None:
            parent = self._groups[agent.parent]
        name = " ".join(dict.fromkeys(filter(None, (agent.name, agent.agent_id)))) or "agent"
        if name in self._group_names:  # several without an id: told apart by what started them
            name = f"{name} {agent.spawned_by or len(self._group_names) + 1}"
        self._group_names.add(name)
        return Group(name, agent.spawned_by, parent)

    def _order(self, span: StoredSpan) -> tuple[int, int, int]:
        place = self._place_of(span)
        place.end_ns = end_ns = self._end_of(span)
        return span.start_ns, -end_ns, place.depth

    def _end_of(self, span: StoredSpan) -> int:
        """Of a span without end the last moment that is known of its rollout."""
        end_ns = self._last_ns if span.end_ns is None else span.end_ns
        if span.start_ns <= end_ns <= _LATEST_NS:
            return end_ns
        return min(max(end_ns, span.start_ns), _LATEST_NS)

    def _place_of(self, span: StoredSpan) -> _Place:
        """Where it stands in the tree; a cycle of a damaged file ends where it began."""
        places = self._places
        known = places.get(id(span))
        if known is not None:
            return known
        by_id = self._agents.by_id
        waiting: list[tuple[StoredSpan, _Place]] = []
        above: StoredSpan | None = span
        while above is not None and id(above) not in places:
            new = places[id(above)] = _Place(None, 0, self._main)
            waiting.append((above, new))
            above = None if above.parent_span_id is None else by_id.get((above.trace_id, above.parent_span_id))
        parent = None if above is None or any(above is each for each, _ in waiting) else places[id(above)]
        for each, place in reversed(waiting):
            if parent is not None:
                place.parent, place.depth = parent, parent.depth + 1
                place.group, place.step = parent.group, parent.step
            is_turn = is_agent(each)
            if is_step(each):
                index = each.attributes.get(names.STEP_INDEX)
                place.step = index if type(index) is int else None
            elif is_turn:
                place.step = None
            if is_turn and self._groups:
                agent = self._agents.agent_around(each)
                place.group = self._main if agent is None else self._groups[agent]
            else:
                named = self._agents.agent_named_by(each)
                if named is not None:
                    place.group = self._groups[named]
            parent = place
        return place

    def _show(self, span: StoredSpan) -> None:
        kind, name = _kind_of(span), safe_text(span.name)
        if kind == HTTP and not self._shown.http:
            return
        place = self._places[id(span)]
        track = (id(place.group), kind)
        args = args_of(span, self._shown.args)
        if span.attributes.get(names.TIME_KNOWN) is False:
            args["time_known"] = False
            _add_instant(self._instants.setdefault(track, []), Instant(name, span.start_ns, kind, args))
            return
        open_tool = open_tool_name(span) if kind == TOOL else None
        if open_tool is not None:
            _add_instant(self._instants.setdefault(track, []), Instant(safe_text(open_tool), span.start_ns, kind, args))
            return
        if span.end_ns is None:
            args["unfinished"] = True
        if self._shown.args != "none" and kind in (MODEL, TOOL):
            args["agent"] = place.group.name or "main"
            add_finish_facts(span, args)
            if place.step is not None:
                args["step"] = place.step
        is_outer = kind == MODEL and ids_of(span) in self._told_better  # a client's own, of a call that was captured
        made = Slice(name, min(span.start_ns, _LATEST_NS), place.end_ns, CLIENT if is_outer else kind, args)
        made.is_error = span.status == STATUS_ERROR
        lanes = self._lanes.get(track)
        if lanes is None:
            lanes = self._lanes[track] = Lanes()
        lanes.add(made, place.nearest_in(track))
        place.made, place.track = made, track
        if not is_outer:
            place.group.take(span, made, kind)

    def _tracks_of(self, group: Group) -> list[Track]:
        stages = self._stages_of(group)
        tracks = []
        for kind in _ORDER:
            key = (id(group), kind)
            lanes = self._lanes[key].lanes if key in self._lanes else []
            instants = self._instants.get(key, [])
            if lanes or instants:
                tracks.append(Track(kind, lanes + instants))
            if kind == MODEL and stages:
                tracks.append(Track("stages", stages))
        counters = counters_of_group(group.calls, self._end_ns)
        if counters:
            tracks.append(Track("context", counters=counters))
        return tracks

    def _stages_of(self, group: Group) -> list[Lane]:
        """Puts stages below their calls; returns those that are wanted apart, in lanes as their calls."""
        apart: dict[int, Lane] = {}
        for call in group.calls:
            made = call.slice
            if made.children:
                continue
            for stage in stages_of(call.span, made, self._shown.stages):
                if isinstance(stage, Instant) and not made.start_ns <= stage.time_ns <= made.end_ns:
                    _add_instant(self._instants.setdefault((id(group), MODEL), []), stage)
                elif self._shown.stages.apart:
                    apart.setdefault(made.lane, []).append(stage)
                else:
                    made.children.append(stage)
        return [apart[lane] for lane in sorted(apart)]


def _add_instant(lanes: list[Lane], new: Instant) -> None:
    """Those of one time would nest in one lane."""
    for lane in lanes:
        before = lane[-1]
        if isinstance(before, Instant) and before.time_ns < new.time_ns:
            lane.append(new)
            return
    lanes.append([new])


def _kind_of(span: StoredSpan) -> str:
    if OPERATION in span.attributes:
        if is_tool(span):
            return TOOL
        if asks_model(span):
            return MODEL
    if is_step(span) or span.name == names.ROLLOUT_SPAN or is_agent(span):
        return AGENT
    if span.kind == KIND_SERVER or span.name.endswith(_ASGI_NOISE):
        return HTTP
    return ENVIRONMENT if span.kind == KIND_CLIENT and _asks_environment(span) else OTHER


def _asks_environment(span: StoredSpan) -> bool:
    """By the last part of the path that was asked for."""
    urls = (text_of(span, name) for name in _URLS)
    path = next(filter(None, urls), span.name).partition("?")[0]
    return path.rstrip("/").rpartition("/")[2] in _ENVIRONMENT_PATHS


def last_moment(span: StoredSpan) -> int:
    """The last of its times: of a span without end, that of its last event."""
    last = span.start_ns if span.end_ns is None or span.end_ns < span.start_ns else span.end_ns
    return max(last, max(event.time_unix_nano for event in span.events)) if span.events else last
