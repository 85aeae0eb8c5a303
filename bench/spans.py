"""Spans as an agent makes them: 40 % model calls, 40 % tools, 20 % steps; about 4 kB a line.

Texts are real source code (this Python's standard library), lengths are lognormal as prompts are.
"""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path
from typing import Any

LONGEST_TEXT = 200_000


def source_text(megabytes: int = 4) -> str:
    """Source code of the standard library."""
    texts: list[str] = []
    size = 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        texts.append(path.read_text(encoding="utf-8", errors="ignore"))
        size += len(texts[-1])
        if size > megabytes * 1_000_000:
            break
    return "".join(texts)


def attribute_sets(count: int, rollouts: int, seed: int = 1) -> list[dict[str, Any]]:
    """Attributes of ``count`` spans over ``rollouts`` rollouts, in turn."""
    source, draw = source_text(), random.Random(seed)

    def text(length: int) -> str:
        start = draw.randrange(len(source) - length)
        return source[start : start + length]

    sets = []
    for number in range(count):
        rollout_id = f"{number % rollouts}-0"
        ids = {"gym.rollout.id": rollout_id, "nemo.gym.rollout.id": rollout_id, "gym.run.id": "bench"}
        kind = draw.random()
        if kind < 0.4:
            sets.append(ids | _chat(text(min(LONGEST_TEXT, int(draw.lognormvariate(8, 1)))), text(800), number))
        elif kind < 0.8:
            sets.append(ids | _tool(text(1500), number))
        else:
            sets.append(ids | {"gym.step.index": number, "gym.step.kind": "agent", "gym.step.last": False})
    return sets


def _chat(prompt: str, answer: str, number: int) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "policy-model",
        "gen_ai.response.model": "policy-model-2026",
        "gen_ai.response.id": f"chatcmpl-{number:012d}",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.request.temperature": 0.7,
        "gen_ai.request.max_tokens": 4096,
        "gen_ai.usage.input_tokens": 1000 + number,
        "gen_ai.usage.output_tokens": 200,
        "gen_ai.usage.cache_read.input_tokens": 800,
        "gen_ai.response.time_to_first_chunk": 0.25,
        "gen_ai.request.stream": True,
        "server.address": "127.0.0.1",
        "server.port": 8000,
        "http.response.status_code": 200,
        "gym.dialect": "chat",
        "gym.model_call.id": f"{number:032x}",
        "gym.response.returned_ns": 123456789,
        "gym.response.last_byte_ns": 123456700,
        "gen_ai.input.messages": prompt,
        "gen_ai.output.messages": answer,
    }


def _tool(result: str, number: int) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "run_tests",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": f"call_{number:08d}",
        "gen_ai.tool.call.arguments": '{"path": "tests/test_store.py", "verbose": true}',
        "gen_ai.tool.call.result": result,
        "gym.tool.exit_code": 0,
        "gym.tool.cached": False,
    }
