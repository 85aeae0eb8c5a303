"""Drivers of fault reports on agents: trees of spans, symbolic calls, transcripts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from otel_gym import conventions as names
from otel_gym.ingest.claude_code import read_claude_code
from otel_gym.ingest.spans import stored_spans
from otel_gym.records.trajectory import Trajectory, TrajectoryItem, concurrent_calls
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan
from otel_gym.views.trajectory import trajectories
from otel_gym.wire.items.shapes import CALL_TYPES
from report_bench import Bench, Driver
from report_problems import Object, unequal_of_known

TRACE = "1" * 32


def _load(file: Path) -> Any:
    return json.loads(file.read_bytes())


def _span(
    span_id: str, name: str, parent: str | None, start_ns: int, end_ns: int | None, **attributes: Any
) -> StoredSpan:
    known = {key: value for key, value in attributes.items() if value is not None}
    return StoredSpan(TRACE, span_id, parent, name, 1, start_ns, end_ns, {names.ROLLOUT_ID: "0-0", **known})


def _named(**attributes: Any) -> Object:
    """Attributes by the dotted names of the conventions."""
    return {name.replace("__", "."): value for name, value in attributes.items()}


def _agent(span_id: str, start_ns: int, end_ns: int | None, name: str = "toy") -> StoredSpan:
    attributes = _named(gen_ai__operation__name="invoke_agent", gen_ai__agent__name=name)
    return _span(span_id, f"invoke_agent {name}", None, start_ns, end_ns, **attributes)


def _of(spans: list[StoredSpan]) -> list[Trajectory]:
    return trajectories(RolloutSpans(None, "0-0", spans))


def _call_items(call_ids: list[str]) -> str:
    return json.dumps(
        [{"type": "function_call", "call_id": call_id, "name": "t", "arguments": "{}"} for call_id in call_ids]
    )


# ── spans ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def drive_lost_parent(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``spans.json``: tool spans in traces of their own; each joins the step that asked for its call."""
    spans = []
    tools = [span for span in _load(folder / "spans.json")["spans"] if span["name"].startswith("execute_tool")]
    call_ids = {span["span_id"]: span["attributes"]["gen_ai.tool.call.id"] for span in tools}
    for number, given in enumerate(_load(folder / "spans.json")["spans"]):
        kind, _, name = given["name"].partition(" ")
        attributes = {"gen_ai.operation.name": kind, "gen_ai.tool.name": name or None, **given["attributes"]}
        spans.append(
            StoredSpan(
                given["trace_id"],
                given["span_id"],
                given.get("parent_span_id"),
                given["name"],
                1,
                number,
                10 + number,
                attributes,
            )
        )
        if kind == "invoke_agent":
            chat = {
                "gen_ai.operation.name": "chat",
                "gen_ai.response.id": "r",
                names.ROLLOUT_ID: given["attributes"].get(names.ROLLOUT_ID),
                names.OUTPUT_ITEMS: _call_items(list(call_ids.values())),
                names.SOURCE: "in_process",
            }
            spans.append(StoredSpan(given["trace_id"], "chat", given["span_id"], "chat m", 1, number, number + 1, chat))
    rollout_id = spans[0].rollout_id
    found = _of(spans)
    orphans = sum(gap.code == "tool_call_without_step" for trajectory in found for gap in trajectory.gaps)
    placed = {item["call_id"] for trajectory in found for item in trajectory.items() if item["type"] in CALL_TYPES}
    roots = {span["span_id"] for span in tools if span.get("parent_span_id") is None}
    by_call = {call_id: span_id for span_id, call_id in call_ids.items() if call_id in placed}
    yield from unequal_of_known(
        {
            "rollout": rollout_id,
            "orphans": orphans,
            "tool_calls": by_call,
            "relinked": sum(span_id in roots for span_id in by_call.values()),
        },
        expected,
    )


# ── symbolic calls ─────────────────────────────────────────────────────────────────────────────────────────────────


def _chat(
    span_id: str, parent: str | None, start_ns: int, end_ns: int | None, *, items: str | None = None, **more: Any
) -> StoredSpan:
    attributes = {"gen_ai.operation.name": "chat", names.OUTPUT_ITEMS: items, names.SOURCE: "in_process", **more}
    return _span(span_id, "chat m", parent, start_ns, end_ns, **attributes)


def drive_steps(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``calls.json`` with ``calls`` and ``tools``: a step a call, its tools with it, and whether they overlapped."""
    given = _load(folder / "calls.json")
    spans = [_agent("agent", 0, 10**12)]
    for call in given["calls"]:
        at = call["call_index"] * 10**11
        more = {"gen_ai.response.id": call["response_id"]}
        spans.append(_span(f"s{at}", "agent_step", "agent", at, at + 10**10))
        spans.append(_chat(f"c{at}", f"s{at}", at, at + 1, items=_call_items(call["tool_calls"]), **more))
    for tool in given["tools"]:
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.id": tool["id"]}
        result = {"gen_ai.tool.call.result": '{"content":""}'}
        start_ns, end_ns = tool["start_ms"] * 10**6, tool["end_ms"] * 10**6
        spans.append(_span(tool["id"], "execute_tool t", "agent", start_ns, end_ns, **attributes, **result))
    [trajectory] = _of(spans)
    output = trajectory.items()
    ran = [item["execution"]["duration_ms"] for item in output if "execution" in item]
    yield from unequal_of_known(
        {
            "agent_steps": trajectory.agent_telemetry.num_agent_steps,
            "step_of": {item["call_id"]: item["agent_step_no"] for item in output if item["type"] in CALL_TYPES},
            "concurrent": bool(concurrent_calls(output)),
            "tool_wait_ms_union": max(ran) if ran else 0,
        },
        expected,
    )


# ── transcripts ────────────────────────────────────────────────────────────────────────────────────────────────────


def _sessions(path: Path) -> list[tuple[str, Trajectory]]:
    """(session id, trajectory) of each agent, subagents behind their parent."""
    found = []
    for rollout in read_claude_code(path):
        for trajectory in trajectories(RolloutSpans(None, rollout.identity_id, stored_spans(rollout))):
            found += [(rollout.session_id, agent) for agent in _every(trajectory)]
    return found


def _every(trajectory: Trajectory) -> Iterator[Trajectory]:
    yield trajectory
    for subagent in trajectory.subagents:
        yield from _every(subagent)


def drive_session(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``session.jsonl`` or ``S*.jsonl``: what was said, and each generation once."""
    found = _sessions(folder)
    generations = [(session, each) for session, agent in found for each in agent.generations]
    texts = [_text(item) for _, agent in found for item in agent.items() if item["type"] == "message"]
    ours: Object = {
        "generations": len(generations),
        "tokens_out": [each.usage.output_tokens for _, each in generations],
        "messages": texts,
    }
    for session in {session for session, _ in found}:
        ours[f"{session}_new_generations"] = sum(of == session for of, _ in generations)
    yield from unequal_of_known(ours, expected)


def drive_tree(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``tree/``: a session with the files of its subagents."""
    found = [agent for _, agent in _sessions(folder / "tree")]
    outputs = [generation.usage.output_tokens or 0 for agent in found for generation in agent.generations]
    yield from unequal_of_known(
        {
            "trajectories": len(found),
            "child_parent_tool_call": next((agent.spawned_by for agent in found if agent.spawned_by), None),
            "generations": {agent.agent_id or "main": len(agent.generations) for agent in found},
            "tokens_out_total": sum(outputs),
        },
        expected,
    )


def drive_items(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``items.json``: output items with and without a type; every item that is written has one."""
    items = [TrajectoryItem.model_validate(item).model_dump() for item in _load(folder / "items.json")]
    if not all(item.get("type") for item in items):
        yield "an item was written without its type"
    yield from unequal_of_known({"final_text": [_text(item) for item in items]}, expected)


def _text(item: Object) -> str:
    content = item.get("content")
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or [])


# ── which driver ───────────────────────────────────────────────────────────────────────────────────────────────────


def _fits(pattern: str, fits: Callable[[Any], bool]) -> Callable[[Path], bool]:
    """The folder has such a file, and its content is of the shape."""

    def asked(folder: Path) -> bool:
        file = next(iter(sorted(folder.glob(pattern))), None)
        if file is None:
            return False
        try:
            return fits(_load(file) if file.suffix == ".json" else file.read_text())
        except (ValueError, LookupError, TypeError, AttributeError):
            return False

    return asked


def _is_list_with(key: str) -> Callable[[Any], bool]:
    return lambda given: isinstance(given, list) and any(key in entry for entry in given)


TRAJECTORY_DRIVERS: tuple[tuple[Callable[[Path], bool], Driver], ...] = (
    (_fits("spans.json", lambda given: any("trace_id" in span for span in given["spans"])), drive_lost_parent),
    (_fits("calls.json", lambda given: isinstance(given, dict) and {"calls", "tools"} <= given.keys()), drive_steps),
    (_fits("session.jsonl", lambda text: '"sessionId"' in text), drive_session),
    (_fits("S*.jsonl", lambda text: '"sessionId"' in text), drive_session),
    (lambda folder: (folder / "tree").is_dir(), drive_tree),
    (_fits("items.json", _is_list_with("role")), drive_items),
)

__all__ = ["TRAJECTORY_DRIVERS"]
