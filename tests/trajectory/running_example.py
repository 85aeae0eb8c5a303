"""Two turns, four steps: how warm is it in Paris, then in Berlin; once built by hand, once as spans."""

from __future__ import annotations

import json
from typing import Any

from otel_gym import conventions as names
from otel_gym.ingest.imported import ImportedEvent, ImportedRollout, ImportedSpan
from otel_gym.ingest.spans import stored_spans
from otel_gym.records.trajectory import Trajectory
from otel_gym.records.trajectory_builder import TrajectoryBuilder
from otel_gym.store.reader import RolloutSpans
from otel_gym.views.trajectory import trajectories

BASE_INPUT = [{"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be brief."}]}]
PARIS, BERLIN = "How warm is it in Paris?", "And in Berlin?"
USAGE = [
    {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 50},
    {"input_tokens": 10, "output_tokens": 8, "cache_read_input_tokens": 150},
    {"input_tokens": 12, "output_tokens": 21, "cache_read_input_tokens": 160},
    {"input_tokens": 9, "output_tokens": 7, "cache_read_input_tokens": 190},
]
SECOND = 10**9
BEGAN = 1_800_000_000 * SECOND


def iso(second: float) -> str:
    whole, part = divmod(second, 1)
    return f"2027-01-15T08:00:{int(whole):02}.{round(part * 1000):03}Z"


def built() -> Trajectory:
    builder = TrajectoryBuilder("weather")
    builder.set_session_id("s-1")
    builder.add_user_message(PARIS)
    builder.start_agent_step(
        response_id="r1", request_id="q1", model="m", timestamp=iso(1), stop_reason="tool_use", provider_usage=USAGE[0]
    )
    builder.add_reasoning("I have to ask.", "signed")
    builder.add_tool_call("c1", "get_weather", {"city": "Paris"})
    builder.add_tool_result("c1", "21 C", started_at=iso(1), completed_at=iso(2.5))
    builder.start_agent_step(
        response_id="r2", request_id="q2", model="m", timestamp=iso(3), stop_reason="end_turn", provider_usage=USAGE[1]
    )
    builder.add_output_text("21 degrees.")
    builder.add_user_message(BERLIN)
    builder.start_agent_step(
        response_id="r3", request_id="q3", model="m", timestamp=iso(11), stop_reason="tool_use", provider_usage=USAGE[2]
    )
    builder.add_tool_call("c2", "get_weather", {"city": "Berlin"})
    builder.add_tool_result(
        "c2",
        "no such city",
        started_at=iso(11),
        completed_at=iso(13),
        error="lookup failed",
        error_data={"code": 404},
    )
    builder.start_agent_step(
        response_id="r4", request_id="q4", model="m", timestamp=iso(14), stop_reason="end_turn", provider_usage=USAGE[3]
    )
    builder.add_output_text("I could not find out.")
    return builder.build()


def from_spans() -> Trajectory:
    rollout = ImportedRollout("in_process", "s-1", [], rollout_id="0-0")
    root = ImportedSpan(rollout.span_id("root"), names.ROLLOUT_SPAN, BEGAN, BEGAN + 15 * SECOND)
    rollout.spans.append(root)
    for number, (said, begin, end) in enumerate([(PARIS, 0, 3), (BERLIN, 10, 14)], 1):
        turn = _span(rollout, root, f"turn {number}", "invoke_agent weather", begin, end, AGENT)
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": said}]}
        turn.events.append(ImportedEvent(names.USER_MESSAGE_EVENT, turn.start_ns, {names.ITEM: json.dumps(item)}))
        _tool_step(rollout, turn, 2 * number - 1, begin, CALLS[number])
        _step(rollout, turn, 2 * number, begin + 2.5, end, [ANSWERS[number]], "end_turn")
    return trajectories(RolloutSpans(None, "0-0", stored_spans(rollout)))[0]


AGENT = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "weather",
    "gen_ai.conversation.id": "s-1",
}
REASONING = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "I have to ask."}],
    "encrypted_content": "signed",
}
CALLS: dict[int, Any] = {
    1: ([REASONING], "c1", "Paris", 2.5, "21 C", None),
    2: ([], "c2", "Berlin", 13, "no such city", {"message": "lookup failed", "data": {"code": 404}}),
}
ANSWERS = {
    number: {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    for number, text in ((1, "21 degrees."), (2, "I could not find out."))
}


def _tool_step(rollout: ImportedRollout, turn: ImportedSpan, number: int, begin: float, call: Any) -> None:
    items, call_id, city, end, result, error = call
    arguments = json.dumps({"city": city}, separators=(",", ":"))
    item = {"type": "function_call", "call_id": call_id, "name": "get_weather", "arguments": arguments}
    step = _step(rollout, turn, number, begin, begin + 1, [*items, item], "tool_use")
    step.end_ns = BEGAN + int(end * SECOND)
    tool = _span(
        rollout,
        step,
        call_id,
        "execute_tool get_weather",
        begin + 1,
        end,
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "get_weather",
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.call.arguments": arguments,
            "gen_ai.tool.call.result": json.dumps({"content": result}),
            names.TOOL_ERROR: json.dumps(error) if error else None,
        },
    )
    tool.error = error and error["message"]


def _step(
    rollout: ImportedRollout, turn: ImportedSpan, number: int, begin: float, end: float, items: Any, stop_reason: str
) -> ImportedSpan:
    step = _span(rollout, turn, f"step {number}", names.AGENT_STEP_SPAN, begin, end, {names.STEP_INDEX: number})
    usage = USAGE[number - 1]
    cached = usage["cache_read_input_tokens"]
    written = usage.get("cache_creation_input_tokens")
    _span(
        rollout,
        step,
        f"chat {number}",
        "chat m",
        begin,
        end,
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.response.model": "m",
            "gen_ai.response.id": f"r{number}",
            "gen_ai.response.finish_reasons": [stop_reason],
            "gen_ai.usage.input_tokens": usage["input_tokens"] + cached + (written or 0),
            "gen_ai.usage.output_tokens": usage["output_tokens"],
            "gen_ai.usage.cache_read.input_tokens": cached,
            "gen_ai.usage.cache_write.input_tokens": written,
            names.REQUEST_ID: f"q{number}",
            names.PROVIDER_USAGE: json.dumps(usage),
            names.OUTPUT_ITEMS: json.dumps(items),
        },
    )
    return step


def _span(
    rollout: ImportedRollout,
    parent: ImportedSpan,
    key: str,
    name: str,
    begin: float,
    end: float,
    attributes: dict[str, Any],
) -> ImportedSpan:
    start_ns, end_ns = BEGAN + int(begin * SECOND), BEGAN + int(end * SECOND)
    span = ImportedSpan(rollout.span_id(key), name, start_ns, end_ns, parent.span_id, attributes)
    rollout.spans.append(span)
    return span
