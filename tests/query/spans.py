"""Spans of rollouts as stores have them, at random: runs, executions, layers, rewards, times."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from otel_gym.store.rows import line_of_span
from otel_gym.store.span import StoredSpan

WRITER = "policy.elsewhere.1.{:08x}"


def span(span_id: str, name: str, start: int, end: int | None, rollout_id: str, **said: Any) -> StoredSpan:
    run, parent, status = said.pop("run", None), said.pop("parent", None), said.pop("status", 0)
    scope = said.pop("scope", "otel_gym")
    attributes = {"gym.rollout.id": rollout_id} | ({} if run is None else {"gym.run.id": run})
    attributes |= {name.replace("__", "."): value for name, value in said.items()}
    return StoredSpan(
        rollout_id.encode().hex().ljust(32, "0"),
        span_id,
        parent,
        name,
        1,
        start,
        end,
        attributes,
        status=status,
        resource={"service.name": "policy"},
        scope_name=scope,
    )


class RandomRollouts:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._number = 0

    def _id(self) -> str:
        self._number += 1
        return f"{self._number:016x}"

    def spans(self, rollout_id: str) -> list[StoredSpan]:
        chance = self._chance
        runs = chance.choice([["A"], ["A"], [None], ["A", "B"], ["A", None], ["A", "B", None]])
        spans = [span for run in runs for span in self._of_run(rollout_id, run)]
        for _ in range(chance.choice([0, 0, 1, 2])):
            parent = chance.choice([None, "f" * 16])
            spans += self._call(rollout_id, chance.choice([*runs, None]), parent, chance.randrange(1, 400))
        if chance.random() < 0.3:
            reward = chance.choice([0.25, 0.75])
            start = chance.randrange(1, 400)
            run = chance.choice([*runs, None])
            spans.append(span(self._id(), "record_reward", start, start + 1, rollout_id, run=run, gym__reward=reward))
        chance.shuffle(spans)
        return spans

    def _of_run(self, rollout_id: str, run: str | None) -> list[StoredSpan]:
        chance = self._chance
        spans: list[StoredSpan] = []
        for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
            start = chance.randrange(1, 300)
            end = None if chance.random() < 0.15 else start + chance.randrange(1, 120)
            said: dict[str, Any] = {}
            if chance.random() < 0.6:
                said["gym__reward"] = chance.choice([0.0, 0.5, 1.0])
                if chance.random() < 0.5:
                    said["gym__reward__time_ns"] = chance.randrange(1, 500)
            root = span(self._id(), "rollout", start, end, rollout_id, run=run, status=chance.choice([0, 2]), **said)
            spans.append(root)
            for number in range(chance.randrange(4)):
                spans += self._step(rollout_id, chance.choice([run, run, None]), root.span_id, start + number * 10)
        return spans

    def _step(self, rollout_id: str, run: str | None, parent: str, start: int) -> list[StoredSpan]:
        step = span(self._id(), "agent_step", start, start + 9, rollout_id, run=run, parent=parent)
        tool = span(
            self._id(),
            "execute_tool ls",
            start + 5,
            start + 6,
            rollout_id,
            run=run,
            parent=step.span_id,
            gen_ai__operation__name="execute_tool",
            gen_ai__tool__name="ls",
        )
        return [step, tool, *self._call(rollout_id, run, step.span_id, start)]

    def _call(self, rollout_id: str, run: str | None, parent: str | None, start: int) -> list[StoredSpan]:
        """Captured, told of by its client, or both, with a server's span between."""
        chance = self._chance
        end = None if chance.random() < 0.05 else start + chance.randrange(1, 5)
        said: dict[str, Any] = {"gen_ai__operation__name": chance.choice(["chat", "generate_content"])}
        response_id = chance.choice([None, f"resp_{chance.randrange(4)}"])
        answer = {} if response_id is None else {"gen_ai__response__id": response_id}
        tokens = {"gen_ai__usage__input_tokens": chance.randrange(100)} if chance.random() < 0.7 else {}
        if chance.random() < 0.1:
            tokens = {"gen_ai__usage__prompt_tokens": 5}
        captured = {"gym__model_call__id": self._id(), **answer, **tokens}
        shape = chance.choice(["captured", "captured", "client", "both", "between"])
        by_client: dict[str, Any] = {"scope": chance.choice([None, "otel_gym", "opentelemetry.instrumentation.x"])}
        if chance.random() < 0.2:  # OpenInference
            by_client |= {"openinference__span__kind": "LLM", "llm__token_count__prompt": chance.randrange(100)}
        told = {**by_client, **answer, **tokens} if "openinference__span__kind" in by_client else {**by_client, **said}
        told |= {**answer, **tokens}
        outer = span(self._id(), "chat m", start, end, rollout_id, run=run, parent=parent, **told)
        if shape == "client":
            return [outer]
        above, spans = parent, []
        if shape in ("both", "between"):
            spans, above = [outer], outer.span_id
        if shape == "between":
            server = span(self._id(), "POST /v1/x", start, end, rollout_id, run=run, parent=above)
            spans, above = [*spans, server], server.span_id
        inner = span(self._id(), "chat m", start, end, rollout_id, run=run, parent=above, **said, **captured)
        return [*spans, inner]


def write(store: Path, spans: list[StoredSpan], rollout_id: str, writer: int = 0) -> None:
    """What has not ended goes where start records are."""
    for folder, some in (
        (store / "spans" / f"rollout_id={rollout_id}", [each for each in spans if each.end_ns is not None]),
        (store / "open", [each for each in spans if each.end_ns is None]),
    ):
        if some:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / f"{WRITER.format(writer)}.jsonl").open("ab") as lines:
                lines.write(b"".join(line_of_span(each) + b"\n" for each in some))
