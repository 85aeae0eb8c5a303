"""A real run of NeMo Gym, unmodified, under `otel-gym run`: is what our spans tell what NeMo Gym captured itself?

    python bench/nemo_gym_run.py [--environment DIR] [--telemetry] [--no-overhead] [--only-install]

Collects 4 rollouts of each of three environments (a tool-calling agent, the same in sessions of the environment
server, a Gymnasium agent) with NeMo Gym's own capture on at the same time, and compares each record of ours with the
one that NeMo Gym builds, field by field. Ids are each side's own, and times are taken at two places: they may be
TOLERANCE_S apart. Each rollout must be one trace, with the reward that its row says, a session for each request to
its environment, and each tool joined with the call that asked for it; nothing of the configuration may be stored.

Then the same rollouts again with and without tracing, for the time that each takes. NeMo Gym needs Python 3.13 and
about 3 GB of memory; without it, or without packages from the registry, nothing is judged and the exit code is 2.
Last line: ``N rollouts, N records equal, N wrong``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nemo_gym_env import API_KEY, Gym, MissingError, install, rows
from otel_gym.demo.model_server import running_model_server
from otel_gym.store.reader import RolloutSpans, open_store
from otel_gym.store.span import StoredSpan
from otel_gym.views.model_calls import model_call_records

DEFAULT_ENVIRONMENT = Path(tempfile.gettempdir()) / "otel_gym_nemo_gym"
TOLERANCE_S = 0.25
OVERHEAD_REPEATS = 15
TRACED = (str(Path(sys.executable).parent / "otel-gym"), "run", "--")
_TIMES_S = frozenset({"started_at", "completed_at"})
_TIMES_MS = frozenset({"latency_total_ms", "latency_ttft_ms"})
_OWN = frozenset({"model_call_id"})

TASKS = ("Compare Oslo and Lima", "Plan a day in Paris")
# Agent → resources server, what it is asked, and the requests to its environment that every rollout of it has.
AGENTS: dict[str, tuple[str, tuple[str, ...], frozenset[str]]] = {
    "example_single_tool_call_simple_agent": (
        "example_single_tool_call",
        TASKS,
        frozenset({"POST /seed_session", "POST /verify"}),
    ),
    "example_single_tool_call_session_agent": (
        "example_single_tool_call",
        TASKS,
        frozenset({"POST /seed_session", "POST /verify", "POST /close_session"}),
    ),
    "blackjack_gymnasium_agent": (
        "blackjack",
        ("Deal me in.", "Deal again."),
        frozenset({"POST /reset", "POST /step"}),
    ),
}


@dataclass
class Verdict:
    rollouts: int = 0
    equal: int = 0
    wrong: list[str] = field(default_factory=list)

    def line(self) -> str:
        return f"{self.rollouts} rollouts, {self.equal} records equal, {len(self.wrong)} wrong"


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[str]:
    """Each field in which two records of one call differ."""
    for name, value in theirs.items():
        own = ours.get(name)
        if name in _OWN:
            continue
        scale = 1000 if name in _TIMES_MS else 1 if name in _TIMES_S else None
        if scale is not None and isinstance(own, float) and isinstance(value, float):
            if abs(own - value) > TOLERANCE_S * scale:
                yield f"{name}: {own}, NeMo Gym {value}"
        elif own != value:
            yield f"{name}: {str(own)[:200]}, NeMo Gym {str(value)[:200]}"


def compare_records(rollout: RolloutSpans, theirs: list[dict[str, Any]], verdict: Verdict) -> None:
    ours = {record.response_id: record.model_dump(mode="json") for record in model_call_records(rollout)}
    for record in theirs:
        own = ours.pop(record["response_id"], None)
        found = ["no record of ours"] if own is None else list(differences(own, record))
        if not found:
            verdict.equal += 1
        verdict.wrong += [f"{rollout.rollout_id} call {record['call_index']}: {each}" for each in found]
    verdict.wrong += [f"{rollout.rollout_id}: {each} is a call that NeMo Gym has not captured" for each in ours]


def check_tree(rollout: RolloutSpans, reward: float, expected: frozenset[str], verdict: Verdict) -> None:
    """One trace, one root, nothing cut off, and what the row and its environment say."""
    spans = rollout.spans
    by_id = {span.span_id: span for span in spans}
    roots = [span for span in spans if span.parent_span_id is None]

    def say(problem: str) -> None:
        verdict.wrong.append(f"{rollout.rollout_id}: {problem}")

    if len({span.trace_id for span in spans}) != 1 or [span.name for span in roots] != ["rollout"]:
        say(f"not one trace below one rollout, but {[span.name for span in roots]}")
    lost = [span.name for span in spans if span.parent_span_id is not None and span.parent_span_id not in by_id]
    if lost:
        say(f"spans without their parent: {lost}")
    if roots and roots[0].attributes.get("gym.reward") != reward:
        say(f"reward {roots[0].attributes.get('gym.reward')}, the row says {reward}")
    missing = expected - {span.name for span in spans if span.attributes.get("gym.session.id")}
    if missing:
        say(f"no {sorted(missing)} with a session")
    asked_for = {call.call_id for record in model_call_records(rollout) for call in record.tool_calls or ()}
    ran = [span.attributes.get("gen_ai.tool.call.id") for span in spans if is_tool(span)]
    if len(ran) != len(asked_for) or set(ran) != asked_for:
        say(f"tools {ran}, the model called {sorted(map(str, asked_for))}")
    if not any(span.name.startswith("invoke_agent ") for span in spans):
        say("no agent")


def is_tool(span: StoredSpan) -> bool:
    return span.attributes.get("gen_ai.operation.name") == "execute_tool"


def judge(gym: Gym, store: Path, verdict: Verdict) -> float:
    """4 rollouts of each agent, compared; then the time that one takes, in ms."""
    with gym.servers() as port:
        for agent, (server, tasks, expected) in AGENTS.items():
            run = replace(gym, environ={**gym.environ, "OTEL_GYM_RUN_ID": agent})
            collected = run.collect(port, agent, rows(gym.environment, server, tasks), 2)
            theirs = gym.records()
            ours = {each.rollout_id: each for each in open_store(store).rollouts() if each.run_id == agent}
            print(f"{agent}: {len(collected)} rollouts, rewards {[row['reward'] for row in collected]}", flush=True)
            for row in collected:
                judge_rollout(row, ours, theirs, expected, verdict)
        return duration_ms(gym, port)


def judge_rollout(
    row: dict[str, Any],
    ours: dict[str, RolloutSpans],
    theirs: dict[str, list[dict[str, Any]]],
    expected: frozenset[str],
    verdict: Verdict,
) -> None:
    verdict.rollouts += 1
    rollout_id = f"{row['_ng_task_index']}-{row['_ng_rollout_index']}"
    rollout = ours.get(rollout_id)
    if rollout is None:
        verdict.wrong.append(f"{rollout_id}: not in the store")
        return
    compare_records(rollout, theirs.get(rollout_id, []), verdict)
    check_tree(rollout, row["reward"], expected, verdict)


def duration_ms(gym: Gym, port: int) -> float:
    """Median over rollouts, one at a time, as NeMo Gym measures them; the first collection is not counted."""
    agent = "example_single_tool_call_simple_agent"
    run = replace(gym, environ={**gym.environ, "OTEL_GYM_RUN_ID": "overhead"} if gym.environ else {})
    asked = rows(gym.environment, "example_single_tool_call", TASKS)
    run.collect(port, agent, asked, 2)
    collected = run.collect(port, agent, asked, OVERHEAD_REPEATS, "++num_samples_in_parallel=1")
    return statistics.median(row["ng_perf"]["total_latency_ms"] for row in collected)


def leaks(store: Path) -> Iterator[str]:
    """The configuration holds keys of models: none of it may be on disk."""
    for path in store.rglob("*"):
        if path.is_file() and (API_KEY.encode() in (content := path.read_bytes()) or b"NEMO_GYM_CONFIG" in content):
            yield f"{path.relative_to(store)} holds a key, or the configuration"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, default=DEFAULT_ENVIRONMENT, help="where NeMo Gym is, or is put")
    parser.add_argument("--telemetry", action="store_true", help="with NeMo Gym's own OpenTelemetry packages")
    parser.add_argument("--no-overhead", action="store_true", help="leaves out the run without tracing")
    parser.add_argument("--only-install", action="store_true", help="for the test that runs it where it is installed")
    options = parser.parse_args()
    verdict = Verdict()
    try:
        install(options.environment, telemetry=options.telemetry)
        if options.only_install:
            return 0
        with tempfile.TemporaryDirectory(prefix="nemo-gym-run-") as folder, running_model_server() as (_, model_url):
            run(options.environment.resolve(), Path(folder), model_url, options.no_overhead, verdict)
    except MissingError as problem:
        print(problem, file=sys.stderr)
        return 2
    for problem in verdict.wrong:
        print(problem)
    print(verdict.line())
    return 1 if verdict.wrong or not verdict.rollouts else 0


def run(environment: Path, folder: Path, model_url: str, no_overhead: bool, verdict: Verdict) -> None:
    store = folder / "store"
    traced = Gym(environment, folder, model_url, TRACED, {"OTEL_GYM_DIR": str(store), "OTEL_GYM_RUN_ID": "servers"})
    with_tracing = judge(traced, store, verdict)
    verdict.wrong += leaks(store)
    if no_overhead:
        return
    bare = Gym(environment, folder, model_url)
    with bare.servers() as port:
        without = duration_ms(bare, port)
    ratio = with_tracing / without
    print(f"a rollout takes {with_tracing:.0f} ms with tracing, {without:.0f} ms without: x {ratio:.2f}")


if __name__ == "__main__":
    sys.exit(main())
