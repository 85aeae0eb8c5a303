"""Imports the sessions of real harnesses and holds them against what was on the wire.

    python bench/transcripts.py DIR [--show]

DIR holds claude_code/, claude_code_older/, codex/ (scenarios at any depth): each scenario has a ``wire.jsonl`` and the
session files of its run. Each generation that a transcript tells of must be exactly one exchange (by the request id and
the answer's id), with equal usage and equal tool calls; every other exchange has one reason that the wire alone gives.
Importing again, and importing a session as it grows, must change nothing. Then the wire is replayed through the capture
into the same store: each pair must be one generation with both sides, and what the transcript says that the model was
sent is compared with the captured request.

``--show`` prints the first difference of each input that is not equal. Last line: ``N scenarios, N right, N wrong``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import otel_gym
from captured import CaptureSession, StoredCall, always
from otel_gym import conventions as names
from otel_gym.conventions import REQUEST_BODY
from otel_gym.ingest.imported import ImportedRollout
from otel_gym.ingest.sources import SOURCES
from otel_gym.ingest.spans import write_rollout
from otel_gym.records.model_input import reconstruct_model_input
from otel_gym.records.trajectory import Generation, Trajectory
from otel_gym.store.reader import RolloutSpans, open_store
from otel_gym.views.generations import request_id_of
from otel_gym.views.trajectory import trajectories
from otel_gym.wire.items import input_items
from otel_gym.wire.items.shapes import CALL_TYPES
from replay_wire import ModelCall, lines_of, model_call
from scripted import ScriptedServer, VirtualClock, call
from transcript_inputs import difference, normal_items
from transcript_wire import completed_calls, reason_of, result_errors, session_of

RUN = "bench"
HARNESSES = {"claude_code": "claude-code", "claude_code_older": "claude-code", "codex": "codex"}
SESSION_FOLDERS = {"claude-code": "projects", "codex": "sessions"}
# At these parts of its lines a session is imported as it grows.
GROWTH = (0.2, 0.45, 0.7, 0.9)


@dataclass
class Exchange:
    """A model call of the wire: as it was replayed, and what the capture made of it."""

    line: dict[str, Any]
    replayed: ModelCall
    rollout_id: str
    stored: StoredCall | None = None

    @property
    def seq(self) -> Any:
        return self.line.get("seq")


@dataclass
class Scenario:
    folder: Path
    harness: str
    problems: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    inputs: Counter[str] = field(default_factory=Counter)
    bodies: Counter[str] = field(default_factory=Counter)
    generations: int = 0
    pairs: int = 0
    shown: list[str] = field(default_factory=list)

    def sessions(self) -> Path:
        return self.folder / SESSION_FOLDERS[self.harness]


def scenarios_below(directory: Path) -> Iterator[Scenario]:
    for name, harness in HARNESSES.items():
        for wire in sorted((directory / name).rglob("wire.jsonl")):
            yield Scenario(wire.parent, harness)


def run(scenario: Scenario) -> None:
    try:
        with tempfile.TemporaryDirectory(prefix="otel_gym_transcripts_") as store:
            _run(scenario, Path(store))
    except Exception as error:
        scenario.problems.append(f"{type(error).__name__}: {error}")
        raise


def _run(scenario: Scenario, store: Path) -> None:
    imported = read(scenario, scenario.sessions())
    for rollout in imported:
        write_rollout(store, rollout, RUN)
    before = counts(store) if imported else {}
    check_again(scenario, store, before)
    check_growth(scenario, store, before)
    told = Side(store)
    exchanges = replay(scenario, imported, store)
    joined = Side(store)
    check_pairs(scenario, told, joined, exchanges)
    check_errors(scenario, joined, exchanges)


def read(scenario: Scenario, folder: Path) -> list[ImportedRollout]:
    return SOURCES[scenario.harness].read(folder) if folder.is_dir() else []


def rollouts_of(store: Path) -> Iterator[RolloutSpans]:
    otel_gym.flush()
    if any(store.iterdir()):
        yield from open_store(store).rollouts()


def every(found: Iterable[Trajectory]) -> Iterator[Trajectory]:
    for trajectory in found:
        yield trajectory
        yield from every(trajectory.subagents)


class Side:
    """The trajectories of a store's transcripts, as they are now."""

    def __init__(self, store: Path) -> None:
        self.trajectories: list[Trajectory] = []
        self.requests: dict[str, str] = {}
        for rollout in rollouts_of(store):
            made = every(trajectories(rollout))
            self.trajectories += [each for each in made if each.agent_telemetry.source == "transcript"]
            for span in rollout.spans:
                body = span.attributes.get(REQUEST_BODY)
                if names.SOURCE in span.attributes and isinstance(body, str):
                    self.requests[span.span_id] = body


def counts(store: Path) -> dict[str, Any]:
    """What must not change when a session is imported again."""
    found: dict[str, Any] = {}
    for rollout in rollouts_of(store):
        for place, trajectory in enumerate(every(trajectories(rollout))):
            found[f"{rollout.address} {place}"] = (
                len(rollout.spans),
                len(trajectory.output),
                [generation.response_id for generation in trajectory.generations],
                trajectory.usage.model_dump(),
                trajectory.agent_telemetry.dropped_records,
            )
    return found


def check_again(scenario: Scenario, store: Path, before: dict[str, Any]) -> None:
    for rollout in read(scenario, scenario.sessions()):
        written = write_rollout(store, rollout, RUN)
        if written.new or written.changed:
            scenario.problems.append(f"imported again, {written.new} spans are new and {written.changed} other")
    if before and counts(store) != before:
        scenario.problems.append("imported again, the counts are other")


def check_growth(scenario: Scenario, store: Path, before: dict[str, Any]) -> None:
    """The whole session after its first parts, cut at lines and within them, in a store of its own."""
    if not before:
        return
    with tempfile.TemporaryDirectory(prefix="otel_gym_growth_") as scratch:
        grown, cut = Path(scratch) / "store", Path(scratch) / "session"
        for share in (*GROWTH, 1.0):
            shutil.rmtree(cut, ignore_errors=True)
            shutil.copytree(scenario.sessions(), cut)
            for file in cut.rglob("*.jsonl") if share < 1 else ():
                content = file.read_bytes()
                file.write_bytes(content[: int(len(content) * share)])
            for rollout in read(scenario, cut):
                write_rollout(grown, rollout, RUN)
        if counts(grown) != before:
            scenario.problems.append("imported as it grew, the counts are other")


def replay(scenario: Scenario, imported: list[ImportedRollout], store: Path) -> list[Exchange]:
    """Each exchange into the rollout of its session, so that both sides lie in one."""
    rollout_of_session = {rollout.session_id: rollout.identity_id for rollout in imported}
    exchanges = []
    for file, number, line in lines_of([scenario.folder / "wire.jsonl"]):
        found = None if line is None else model_call(file, number, line)
        if line is None or found is None:
            continue
        rollout_id = rollout_of_session.get(session_of(line) or "", "elsewhere")
        path = found.request["path"].split("/v1/", 1)[1]
        found.request["path"] = f"/ng-rollout/{rollout_id}/v1/{path}"
        exchanges.append(Exchange(line, found, rollout_id))
    session = CaptureSession(store, run_id=RUN)
    asyncio.run(_replay(session, exchanges))
    stored = {call.record.model_call_id: call for call in session.calls()}
    for exchange in exchanges:
        exchange.stored = stored.get(exchange.replayed.call_id)
        if exchange.stored is None:
            scenario.problems.append(f"exchange {exchange.seq} was not captured")
    return exchanges


async def _replay(session: CaptureSession, exchanges: list[Exchange]) -> None:
    clock = VirtualClock()
    for exchange in exchanges:
        application = ScriptedServer(exchange.replayed.upstream, clock)
        await call(
            session.wrap(application, clock, always(exchange.replayed.call_id)), exchange.replayed.request, clock
        )


def check_pairs(scenario: Scenario, told: Side, joined: Side, exchanges: list[Exchange]) -> None:
    """Each generation that the transcript delivered is one exchange, joined in the trajectory; the rest has reasons."""
    left = {exchange.replayed.call_id: exchange for exchange in exchanges}
    if len(told.trajectories) != len(joined.trajectories):
        scenario.problems.append(f"{len(told.trajectories)} agents, joined with the wire {len(joined.trajectories)}")
    for alone, both in zip(told.trajectories, joined.trajectories, strict=False):
        if len(alone.generations) != len(both.generations):
            scenario.problems.append(
                f"{len(alone.generations)} generations, joined with the wire {len(both.generations)}"
            )
        for ours, generation in zip(alone.generations, both.generations, strict=False):
            if ours.error is not None and not ours.usage.output_tokens:
                continue  # an attempt that failed: its exchange has its own reason
            scenario.generations += 1
            exchange = left.pop(generation.extra.get("model_call_id", ""), None)
            if exchange is None:
                scenario.problems.append(
                    f"generation {ours.response_id} ({ours.request_id}) is no exchange, or one twice"
                )
                continue
            scenario.pairs += 1
            check_pair(scenario, alone, ours, exchange)
            compare_input(scenario, told, alone, ours, exchange)
    for exchange in left.values():
        reason = reason_of(exchange.line, [other.line for other in exchanges], bool(told.trajectories))
        if reason is None:
            scenario.problems.append(f"exchange {exchange.seq} is in no transcript, and nothing says why")
        else:
            scenario.reasons[reason] += 1


def check_pair(scenario: Scenario, trajectory: Trajectory, generation: Generation, exchange: Exchange) -> None:
    assert exchange.stored is not None
    record = exchange.stored.record
    place = f"generation {generation.response_id}"
    if generation.response_id != record.response_id:
        scenario.problems.append(f"{place}: the exchange answered {record.response_id}")
    if generation.request_id is not None and generation.request_id != request_id_of(exchange.stored.span):
        scenario.problems.append(f"{place}: the exchange is request {request_id_of(exchange.stored.span)}")
    for name, ours in counted_tokens(generation).items():
        if ours is not None and ours != getattr(record, name):
            scenario.problems.append(f"{place}: {name} is {ours}, on the wire {getattr(record, name)}")
    items = [item for item in trajectory.items() if item.get("agent_step_no") == generation.agent_step_no]
    calls = [(item.get("call_id"), item.get("name")) for item in items if item["type"] in CALL_TYPES]
    wanted = completed_calls(exchange.line)
    if sorted(map(str, calls)) != sorted(map(str, wanted)):
        scenario.problems.append(f"{place}: tool calls are {calls}, on the wire {wanted}")


def counted_tokens(generation: Generation) -> dict[str, int | None]:
    usage = generation.usage
    return {
        "tokens_in": usage.input_tokens,
        "tokens_out": usage.output_tokens,
        "cached_tokens": usage.input_tokens_details.cached_tokens,
    }


def compare_input(
    scenario: Scenario, told: Side, trajectory: Trajectory, generation: Generation, exchange: Exchange
) -> None:
    assert exchange.stored is not None
    record = exchange.stored.record
    rebuilt = reconstruct_model_input(trajectory.items(), generation.agent_step_no)
    ours, theirs = normal_items(rebuilt), normal_items(input_items(record.dialect or "", record.request))
    verdict = difference(ours, theirs)
    scenario.inputs[verdict.kind] += 1
    if verdict.kind != "equal":
        scenario.shown.append(f"{generation.response_id}: {verdict.kind}: {verdict.detail}")
    body = told.requests.get(generation.extra.get("span_id", ""))
    if body is not None:
        is_same = _same_messages(body, record.request)
        scenario.bodies["equal to the wire" if is_same else "other than the wire"] += 1


def _same_messages(body: str, request: Any) -> bool:
    try:
        return bool(json.loads(body).get("messages") == (request or {}).get("messages"))
    except ValueError:
        return False


def check_errors(scenario: Scenario, joined: Side, exchanges: list[Exchange]) -> None:
    """Claude's is_error of each tool result, as a later request sent it."""
    sent = result_errors([exchange.line for exchange in exchanges])
    for trajectory in joined.trajectories:
        for item in trajectory.items():
            said = (item.get("execution") or {}).get("extra", {}).get("is_error")
            if said is not None and item.get("call_id") in sent and said != sent[item["call_id"]]:
                scenario.problems.append(
                    f"result of {item['call_id']}: is_error {said}, on the wire {sent[item['call_id']]}"
                )


def print_scenarios(found: list[Scenario], show: bool) -> int:
    for scenario in found:
        name = "/".join(scenario.folder.parts[-2:])
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(scenario.reasons.items()))
        print(
            f"{name}: {scenario.generations} generations, {scenario.pairs} pairs"
            + (f"; else {reasons}" if reasons else "")
        )
        for problem in scenario.problems:
            print(f"    WRONG {problem}")
        for line in scenario.shown if show else ():
            print(f"    input {line}")
    for title, counter in (
        ("exchanges without a generation", sum((scenario.reasons for scenario in found), Counter())),
        ("inputs by the transcript", sum((scenario.inputs for scenario in found), Counter())),
        ("messages of requests that the session logged", sum((scenario.bodies for scenario in found), Counter())),
    ):
        print(f"{title}:")
        for name, count in counter.most_common():
            print(f"    {count:5} {name}")
    wrong = sum(bool(scenario.problems) for scenario in found)
    print(f"{len(found)} scenarios, {len(found) - wrong} right, {wrong} wrong")
    return 1 if wrong or not found else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--show", action="store_true", help="the first difference of each input that is not equal")
    options = parser.parse_args()
    found = list(scenarios_below(options.directory))
    for scenario in found:
        try:
            run(scenario)
        except Exception:  # said, and the next one goes on
            continue
    return print_scenarios(found, options.show)


if __name__ == "__main__":
    sys.exit(main())
