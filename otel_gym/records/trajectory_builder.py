"""Builds a trajectory in the process that runs the agent, without spans.

builder = TrajectoryBuilder("weather")
builder.add_user_message("How warm is it in Paris?")
builder.start_agent_step(model="m", response_id="resp_1", provider_usage=usage)
builder.add_tool_call("call_1", "get_weather", {"city": "Paris"})
builder.add_tool_result("call_1", "21 C", started_at=..., completed_at=...)
trajectory = builder.build()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from otel_gym.records.steps import AgentStep, ContextBoundary, Entry, ToolResult, UserMessage, unix_nano
from otel_gym.records.trajectory import AgentTelemetry, Gap, Trajectory, trajectory_of
from otel_gym.wire.items.shapes import (
    CALL_TYPES,
    Item,
    function_call_item,
    message_item,
    reasoning_item,
    text_part,
)
from otel_gym.wire.usage import token_stats


class TrajectoryBuilder:
    """Takes what happened in the order in which it happened. RuntimeError where no step was started yet."""

    def __init__(self, agent: str | None = None, source: str = "in_process") -> None:
        self._entries: list[Entry] = []
        self._telemetry = AgentTelemetry(agent=agent, source=source)
        self._step_of_call: dict[str, AgentStep] = {}
        self._gaps: list[Gap] = []

    def set_session_id(self, session_id: str) -> None:
        self._telemetry.session_id = session_id

    def add_user_message(self, content: str | Sequence[Item]) -> None:
        self._entries.append(UserMessage(message_item("user", content)))

    def add_context_boundary(
        self,
        content: str | Sequence[Item] = (),
        *,
        kind: str = "compaction",
        boundary: str = "replace",
        trigger: str | None = None,
        timestamp: str | None = None,
        tokens_before: int | None = None,
        tokens_after: int | None = None,
    ) -> None:
        """Later steps saw ``content`` (a text is a user message) instead of what came before."""
        items = [message_item("user", content)] if isinstance(content, str) else list(content)
        self._entries.append(ContextBoundary(items, kind, boundary, trigger, timestamp, tokens_before, tokens_after))

    def start_agent_step(
        self,
        *,
        response_id: str | None = None,
        request_id: str | None = None,
        model: str | None = None,
        timestamp: str | None = None,
        stop_reason: str | None = None,
        provider_usage: Mapping[str, Any] | None = None,
    ) -> int:
        """A generation; what is added next belongs to it. ``timestamp``: when it ended. Returns its number, from 1."""
        step = AgentStep(
            model=model,
            stop_reason=stop_reason,
            response_id=response_id,
            request_id=request_id,
            ended_at=timestamp,
            usage=token_stats(provider_usage),
            provider_usage=None if provider_usage is None else dict(provider_usage),
        )
        self._entries.append(step)
        return sum(isinstance(entry, AgentStep) for entry in self._entries)

    def add_output_text(self, text: str) -> None:
        self.add_item(message_item("assistant", [text_part("assistant", text)]))

    def add_reasoning(self, text: str | None, encrypted_content: str | None = None) -> None:
        self.add_item(reasoning_item(text, encrypted_content))

    def add_tool_call(self, call_id: str | None, name: str, arguments: Any = None) -> None:
        self.add_item(function_call_item(call_id, name, arguments))

    def add_item(self, item: Item) -> None:
        """An item of the Responses API, as the model made it."""
        step = self._current_step()
        step.items.append(item)
        call_id = item.get("call_id")
        if item.get("type") in CALL_TYPES and isinstance(call_id, str):
            self._step_of_call[call_id] = step

    def add_tool_result(
        self,
        call_id: str | None,
        output: Any,
        *,
        started_at: str | None = None,
        completed_at: str | None = None,
        duration_ms: float | None = None,
        error: str | None = None,
        error_data: Any = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """What a tool gave back. It joins the step that made the call; the result of an unknown call is a gap.

        ``duration_ms`` None: the time between ``started_at`` and ``completed_at``, if both are known. ValueError for
        a duration below 0.
        """
        if duration_ms is None:
            duration_ms = _milliseconds(started_at, completed_at)
        if duration_ms is not None and duration_ms < 0:
            raise ValueError(f"the tool call {call_id} cannot have taken {duration_ms} ms")
        step = self._step_of_call.get(call_id or "")
        if step is None:
            self._gaps.append(Gap(code="tool_result_without_call", detail=call_id))
            step = self._current_step()
        step.results.append(
            ToolResult(call_id, output, started_at, completed_at, duration_ms, error, error_data, dict(extra or {}))
        )

    def count_dropped(self, count: int = 1) -> None:
        """Records that were not understood, and so are in no step."""
        self._telemetry.dropped_records += count

    def set_run_totals(
        self,
        *,
        duration_ms: float | None = None,
        total_cost_usd: float | None = None,
        provider_usage: Mapping[str, Any] | None = None,
    ) -> None:
        """What the harness says of the whole run."""
        self._telemetry.duration_ms = duration_ms
        self._telemetry.total_cost_usd = total_cost_usd
        self._telemetry.provider_usage = None if provider_usage is None else dict(provider_usage)

    def build(self) -> Trajectory:
        return trajectory_of(self._entries, self._telemetry, self._gaps)

    def _current_step(self) -> AgentStep:
        for entry in reversed(self._entries):
            if isinstance(entry, AgentStep):
                return entry
        raise RuntimeError("no step was started: call start_agent_step() before what the model made")


def _milliseconds(started_at: str | None, completed_at: str | None) -> float | None:
    start, end = unix_nano(started_at), unix_nano(completed_at)
    return None if start is None or end is None else (end - start) / 10**6
