"""A sealed store in which everything stands that makes reading by many processes differ from reading by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from otel_gym.store.compact import compact
from otel_gym.store.span import StoredSpan
from tests.store.stores import span, write

FIRST = 1_790_000_000_000_000_000


def execution(number: int, rollout_id: str, run_id: str | None = "r", calls: int = 2) -> list[StoredSpan]:
    """A finished rollout with calls, each span known by ``number``."""
    began = FIRST + number * 10**9
    trace_id = f"{number:032x}"
    root = f"{number:08x}{0:08x}"
    times: dict[str, Any] = {"start_ns": began, "end_ns": began + 10**8, "trace_id": trace_id}
    spans = [span(0, rollout_id, run_id, name="rollout", span_id=root, attributes={"gym.reward": number / 2}, **times)]
    del spans[0].attributes["gym.request.body"]
    return spans + [call(number, index, rollout_id, run_id, root) for index in range(1, calls + 1)]


def call(number: int, index: int, rollout_id: str, run_id: str | None, parent: str | None) -> StoredSpan:
    began = FIRST + number * 10**9 + index * 10**6
    answer = {"id": f"c{number}-{index}", "model": "m", "choices": [{"message": {"content": f"é {number} {index}"}}]}
    answer |= {"usage": {"prompt_tokens": number, "completion_tokens": index}, "prompt_token_ids": [1, 2, index]}
    said = {
        "gym.model_call.id": f"{number:016x}{index:016x}",
        "gym.dialect": "chat",
        "gym.request.body": json.dumps({"model": "m", "messages": [{"role": "user", "content": f"{number} {index}"}]}),
        "gym.response.body": json.dumps(answer),
        "http.response.status_code": 200,
        "odd": ["é", {"a": {}}],
    }
    ids = {"trace_id": f"{number:032x}", "span_id": f"{number:08x}{index:08x}", "parent_span_id": parent}
    return span(0, rollout_id, run_id, name="chat m", start_ns=began, end_ns=began + 10**5, attributes=said, **ids)


def sealed_store(store: Path, rollouts: int = 3) -> Path:
    """Earlier attempts, executions of one rollout, two runs, spans without a run, `unassigned`, several parts, and
    spans that came after their rollout was sealed."""
    spans = {f"{task}-0": execution(task + 1, f"{task}-0") for task in range(rollouts)}
    spans |= {"20-1": execution(20, "20-1"), "20-1-a1": execution(21, "20-1-a1"), "20-1-a2": execution(22, "20-1-a2")}
    spans |= {"30-0": execution(30, "30-0") + execution(31, "30-0")}
    spans |= {"40-0": [*execution(40, "40-0"), *execution(41, "40-0", "s"), call(42, 1, "40-0", None, None)]}
    spans |= {"50-0": [*execution(50, "50-0"), call(51, 1, "50-0", None, None)]}
    spans |= {"mine": execution(60, "mine"), "unassigned": [call(70, 1, "unassigned", None, None)]}
    late = {rollout_id: found.pop() for rollout_id, found in spans.items() if len(found) > 2}
    for rollout_id, found in spans.items():
        write(store, found, rollout_id)
        if rollout_id in ("20-1", "30-0"):
            compact(store, idle_s=0)
    compact(store, idle_s=0)
    for rollout_id, each in late.items():
        write(store, [each], rollout_id, "late.elsewhere.1.0000000a")
    compact(store, idle_s=0, remove=True)
    return store
