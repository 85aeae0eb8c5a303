"""Drivers of reports.py for ATIF: documents that come in, and calls that become one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from otel_gym import conventions as names
from otel_gym.ingest.atif import read_atif
from otel_gym.ingest.imported import ImportedRollout, ImportedSpan
from otel_gym.ingest.spans import stored_spans
from otel_gym.records.atif_lint import lint
from otel_gym.records.model_input import reconstruct_model_input
from otel_gym.records.steps import AgentStep, ContextBoundary, Entry, UserMessage, iso_time
from otel_gym.records.trajectory import AgentTelemetry, Trajectory, trajectory_of
from otel_gym.store.reader import RolloutSpans
from otel_gym.views.atif import atif_of
from otel_gym.views.trajectory import trajectories
from otel_gym.wire.items.shapes import Item, message_item
from otel_gym.wire.usage import TokenStats
from report_bench import Bench
from report_problems import unequal_of_known

Object = dict[str, Any]

_ANSWER = re.compile(r"a\d+")


def has_document(folder: Path) -> bool:
    return (folder / "trajectory.json").exists()


def has_compaction(folder: Path) -> bool:
    """``calls.json``: symbolic messages of each call, with compactions between."""
    return any("event" in entry and "boundary" in entry for entry in _calls(folder))


def has_outcomes(folder: Path) -> bool:
    """``calls.json``: how each call ended, or that it did not."""
    calls = _calls(folder)
    return bool(calls) and all("status_code" in call or "started_at" in call for call in calls)


def drive_document(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """What the lint says of it, and the totals that we give for it."""
    found = lint(json.loads((folder / "trajectory.json").read_bytes()))
    [rollout] = read_atif(folder / "trajectory.json")
    [trajectory] = trajectories(RolloutSpans(None, rollout.identity_id, stored_spans(rollout)))
    totals = _document(trajectory)["final_metrics"]
    valid = all(finding.level != "error" for finding in found)
    yield from unequal_of_known({"valid": valid, "findings": list(map(str, found)), **totals}, expected)


def drive_compaction(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """The input of every call, rebuilt from the trajectory; the compactions of its ATIF document."""
    calls = _calls(folder)
    asked = [call for call in calls if "messages" in call]
    trajectory = _trajectory(list(_entries(calls)))
    base = [_message("system")] if "system" in asked[0]["messages"] else []
    rebuilt = {
        f"input_of_call_index_{call['call_index']}": [
            item["content"][0]["text"] for item in reconstruct_model_input(trajectory.items(), number, base)
        ]
        for number, call in enumerate(asked, 1)
    }
    steps = _document(trajectory)["steps"]
    compactions = sum("context_management" in step.get("extra", {}) for step in steps)
    yield from unequal_of_known({**rebuilt, "compaction_steps": compactions}, expected)


def drive_outcomes(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """The ATIF document of calls that succeeded, failed and never ended."""
    document = _document(_trajectory([_step(call) for call in _calls(folder)]))
    steps = [step for step in document["steps"] if step["source"] == "agent"]
    ours = {
        "agent_steps": len(steps),
        "errors": sum("error" in step.get("extra", {}) for step in steps),
        "unfinished": sum("unfinished" in step.get("extra", {}) for step in steps),
        "trajectory_complete": document["extra"]["complete"],
    }
    yield from map(str, lint(document))
    yield from unequal_of_known(ours, expected)


def drive_events(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """Calls that overlap, as spans of their agents: each step of the documents has its own model and usage."""
    rollout = ImportedRollout("in_process", "events", [])
    rollout.spans.append(ImportedSpan(rollout.span_id("rollout"), names.ROLLOUT_SPAN, 0, None))
    open_calls: dict[str, ImportedSpan] = {}
    for event in _events(folder):
        if event["ev"] == "start":
            open_calls[event["call"]] = _started(rollout, event)
        elif event["ev"] == "end":
            call = open_calls[event["call"]]
            call.end_ns = event["t"] * 10**9
            usage = event.get("usage", {})
            call.attributes |= {"gen_ai.usage.input_tokens": usage["in"], "gen_ai.usage.output_tokens": usage["out"]}
    found = {}
    for trajectory in trajectories(RolloutSpans(None, "0-0", stored_spans(rollout))):
        for step in _document(trajectory)["steps"]:
            metrics = step.get("metrics", {})
            told = {"model": step["model_name"], "in": metrics["prompt_tokens"], "out": metrics["completion_tokens"]}
            name = step["extra"]["response_id"]
            found[name] = {key: told.get(key) for key in expected.get(name, ())}
    yield from unequal_of_known(found, expected)


def _started(rollout: ImportedRollout, event: Object) -> ImportedSpan:
    """The open chat span of a call, below a turn of its agent."""
    turn_id, at_ns = rollout.span_id("agent", event["agent"]), event["t"] * 10**9
    if all(span.span_id != turn_id for span in rollout.spans):
        turn = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": event["agent"]}
        rollout.spans.append(ImportedSpan(turn_id, "invoke_agent", at_ns, None, rollout.spans[0].span_id, turn))
    step_id, call_id = (rollout.span_id(kind, event["call"]) for kind in ("step", "call"))
    asked = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": event["model"],
        "gen_ai.response.id": event["call"],
    }
    call = ImportedSpan(call_id, "chat", at_ns, None, step_id, asked)
    rollout.spans += [ImportedSpan(step_id, names.AGENT_STEP_SPAN, at_ns, None, turn_id), call]
    return call


def has_events(folder: Path) -> bool:
    """``events.jsonl``: starts and ends of calls."""
    events = _events(folder)
    return bool(events) and all("ev" in event and "t" in event for event in events)


def _events(folder: Path) -> list[Object]:
    file = folder / "events.jsonl"
    return [json.loads(line) for line in file.read_bytes().splitlines()] if file.exists() else []


def _calls(folder: Path) -> list[Object]:
    file = folder / "calls.json"
    calls = json.loads(file.read_bytes()) if file.exists() else []
    return calls if isinstance(calls, list) and all(isinstance(call, dict) for call in calls) else []


def _entries(calls: list[Object]) -> Iterator[Entry]:
    """Messages that a call has first are said before it; an answer is found in the messages of a later call."""
    seen = {"system"}
    answers = iter([name for call in calls for name in call.get("messages", ()) if _ANSWER.fullmatch(name)])
    for call in calls:
        if "messages" not in call:
            seen.add(call["summary"])
            yield ContextBoundary([_message(call["summary"])], boundary=call["boundary"], kind=call["event"])
            continue
        for name in call["messages"]:
            if name not in seen and not _ANSWER.fullmatch(name):
                yield UserMessage(_message(name))
            seen.add(name)
        yield AgentStep(items=[message_item("assistant", next(answers, "answer"))], model="toy")


def _message(name: str) -> Item:
    return message_item("system" if name == "system" else "user", name)


def _step(call: Object) -> AgentStep:
    usage = call.get("usage", {})
    failed = (call.get("status_code") or 200) >= 400
    return AgentStep(
        items=[message_item("assistant", call["text"])] if "text" in call else [],
        started_at=iso_time(round(call["started_at"] * 10**9)) if "started_at" in call else None,
        usage=TokenStats(tokens_in=usage.get("in"), tokens_out=usage.get("out")),
        error=call.get("error", "error") if failed else None,
        is_unfinished="completed_at" in call and call["completed_at"] is None,
    )


def _trajectory(entries: list[Entry]) -> Trajectory:
    return trajectory_of(entries, AgentTelemetry(agent="toy", source="in_process"))


def _document(trajectory: Trajectory) -> Object:
    return atif_of(trajectory, rollout_id="0-0", agent_version="1").written["trajectory.json"]


ATIF_DRIVERS: tuple[tuple[Callable[[Path], bool], Callable[[Path, Object, Bench], Iterator[str]]], ...] = (
    (has_document, drive_document),
    (has_compaction, drive_compaction),
    (has_outcomes, drive_outcomes),
    (has_events, drive_events),
)
