"""A rollout by hand: an agent with parallel tools, a subagent, a retry, and what else there is to draw."""

from __future__ import annotations

from itertools import count
from typing import Any

from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import STATUS_ERROR, StoredSpan

START = 1_796_000_000_123_456_789
TRACE = "ab" * 16
MS = 10**6


class Spans:
    """Makes spans of one rollout; times are ms after its start."""

    def __init__(self, rollout_id: str = "3-1", run_id: str | None = "run-1", start_ns: int = START) -> None:
        self.rollout_id, self.run_id, self.start_ns = rollout_id, run_id, start_ns
        self.all: list[StoredSpan] = []
        self._ids = count(1)

    def add(
        self,
        name: str,
        parent: StoredSpan | None,
        start: float,
        end: float | None,
        attributes: dict[str, Any] | None = None,
        *,
        kind: int = 1,
        failed: bool = False,
    ) -> StoredSpan:
        span = StoredSpan(
            TRACE,
            f"{next(self._ids):016x}",
            None if parent is None else parent.span_id,
            name,
            kind,
            self.start_ns + round(start * MS),
            None if end is None else self.start_ns + round(end * MS),
            {"gym.rollout.id": self.rollout_id, **(attributes or {})},
            status=STATUS_ERROR if failed else 0,
        )
        self.all.append(span)
        return span

    def rollout(self, end: float | None = 1000, **attributes: Any) -> StoredSpan:
        return self.add("rollout", None, 0, end, {"gym.reward": 0.5, **attributes})

    def agent(self, parent: StoredSpan, start: float, end: float | None, name: str = "main", **more: Any) -> StoredSpan:
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name, **more}
        return self.add(f"invoke_agent {name}", parent, start, end, attributes)

    def step(self, parent: StoredSpan, start: float, end: float | None, number: int = 1) -> StoredSpan:
        return self.add("agent_step", parent, start, end, {"gym.step.index": number})

    def chat(
        self, parent: StoredSpan | None, start: float, end: float | None, *, failed: bool = False, **more: Any
    ) -> StoredSpan:
        number = next(self._ids)
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "toy-1",
            "gym.model_call.id": f"{number:032x}",
            "gen_ai.response.id": f"resp_{number}",
        }
        attributes |= {name.replace("__", "."): value for name, value in more.items()}
        return self.add("chat toy-1", parent, start, end, attributes, kind=3, failed=failed)

    def tool(self, parent: StoredSpan, start: float, end: float | None, call_id: str, **more: Any) -> StoredSpan:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "bash",
            "gen_ai.tool.call.id": call_id,
            **more,
        }
        return self.add("execute_tool bash", parent, start, end, attributes)

    def spans(self) -> RolloutSpans:
        return RolloutSpans(self.run_id, self.rollout_id, self.all)


def everything() -> RolloutSpans:
    made = Spans()
    root = made.rollout()
    turn = made.agent(root, 1, 900)
    step = made.step(turn, 2, 500)
    answer = '[{"type":"function_call","call_id":"a"},{"type":"function_call","call_id":"b"}]'
    made.chat(step, 2, 60, failed=True, gym__error_category="http_error")
    made.chat(
        step,
        80,
        200.000001,
        gym__request__header__x_stainless_retry_count=["1"],
        gym__output__items=answer,
        gen_ai__request__stream=True,
        gym__response__time_to_first_content_ns=40 * MS + 1,
        gen_ai__usage__input_tokens=1000,
        gen_ai__usage__output_tokens=80,
        gen_ai__usage__cache_read__input_tokens=600,
    )
    retried = made.all[-1].attributes
    retried["gym.request.header.x-stainless-retry-count"] = retried.pop("gym.request.header.x_stainless_retry_count")
    made.tool(step, 200.000001, 400, "a")
    spawning = made.tool(step, 210, 480, "b")
    child = made.agent(spawning, 215, 470, "explorer", **{"gen_ai.agent.id": "e1"})
    inner = made.step(child, 215, 470)
    made.chat(inner, 216, 300, gen_ai__usage__input_tokens=10, gen_ai__usage__output_tokens=5)
    made.add("POST /v1/messages", inner, 216, 300, {"http.request.method": "POST"}, kind=2)
    second = made.step(turn, 500, 890, 2)
    made.chat(second, 500, 700, gen_ai__usage__input_tokens=1200, gen_ai__usage__cache_read__input_tokens=1000)
    made.add("something else", second, 700, 710)
    made.tool(second, 720, None, "c")
    made.tool(second, 600, 600, "d", **{"gym.time.known": False})
    return made.spans()
