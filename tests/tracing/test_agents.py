"""What agent code says through the API is what a store holds."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import weakref
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from pydantic import BaseModel

import otel_gym
from otel_gym.identity import current_identity
from otel_gym.store.reader import Store
from otel_gym.store.span import STATUS_ERROR, StoredSpan
from otel_gym.tracing import current, logs, pipeline, span_scope

from ..conftest import LiveStore
from ..weather import ROLLOUT_ID, run_weather


def tree_of(spans: list[StoredSpan]) -> list[str]:
    """Names in order of their start, indented by their depth."""
    parents = {span.span_id: span.parent_span_id for span in spans}

    def depth(span_id: str | None) -> int:
        return 0 if parents.get(span_id or "") is None else 1 + depth(parents[span_id or ""])

    return ["  " * depth(span.span_id) + span.name for span in spans]


def the(spans: list[StoredSpan], name: str) -> StoredSpan:
    (span,) = [span for span in spans if span.name == name]
    return span


def items_of(span: StoredSpan) -> list[tuple[str, dict[str, Any]]]:
    return [(event.name, json.loads(event.attributes["gym.item"])) for event in span.events]


def test_two_turns_of_four_steps_are_the_documented_tree(live_store: LiveStore):
    asyncio.run(run_weather())
    spans = live_store.spans(ROLLOUT_ID)
    assert tree_of(spans) == [
        "rollout",
        "  invoke_agent weather",
        "    agent_step",
        "      POST /v1/responses",
        "        chat gpt-weather",
        "      execute_tool get_weather",
        "    agent_step",
        "      POST /v1/responses",
        "        chat gpt-weather",
        "  invoke_agent weather",
        "    agent_step",
        "      POST /v1/responses",
        "        chat gpt-weather",
        "      execute_tool get_weather",
        "    agent_step",
        "      POST /v1/responses",
        "        chat gpt-weather",
    ]
    assert {span.trace_id for span in spans} == {spans[0].trace_id}
    assert [span.attributes["gym.step.index"] for span in spans if span.name == "agent_step"] == [1, 2, 3, 4]
    paris, berlin = [span for span in spans if span.name == "execute_tool get_weather"]
    said = {name: value for name, value in paris.attributes.items() if name.startswith(("gen_ai.", "gym.tool"))}
    assert said == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_weather",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.call.arguments": '{"city":"Paris"}',
        "gen_ai.tool.call.result": '{"content":"21 C"}',
        "gen_ai.agent.name": "weather",
        "gen_ai.conversation.id": "session-1",
        "gym.tool.extra": '{"station":"Paris"}',
    }
    assert (berlin.status, berlin.attributes["error.type"]) == (STATUS_ERROR, "ConnectionError")
    assert json.loads(berlin.attributes["gym.tool.error"]) == {
        "message": "the weather service of Berlin does not answer",
        "data": {"type": "ConnectionError"},
    }
    assert "gen_ai.tool.call.result" not in berlin.attributes
    assert all(span.end_ns - span.start_ns >= 10_000_000 for span in (paris, berlin))


def test_what_was_said_and_compacted_is_an_event_of_the_agent_else_of_the_rollout(live_store: LiveStore):
    with otel_gym.rollout(1, 0):
        with otel_gym.invoke_agent("a", user_message="hello"), otel_gym.agent_step():
            otel_gym.add_user_message([{"type": "input_image", "image_url": "https://x/y.png"}])
        otel_gym.context_compacted("short", trigger="auto", tokens_before=9, tokens_after=2)

    root, agent, _ = live_store.spans("1-0")
    assert items_of(agent) == [
        (
            "gym.user_message",
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        ),
        (
            "gym.user_message",
            {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "https://x/y.png"}]},
        ),
    ]
    assert items_of(root) == [
        (
            "gym.context_boundary",
            {
                "type": "context_boundary",
                "kind": "compaction",
                "boundary": "replace",
                "content": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "short"}]}],
                "trigger": "auto",
                "tokens_before": 9,
                "tokens_after": 2,
            },
        )
    ]


def test_a_message_while_nothing_is_open_is_said_once_and_harms_nothing(live_store, caplog, monkeypatch):
    monkeypatch.setattr(logs, "_said", set())
    with otel_gym.rollout(1, 0), otel_gym.invoke_agent("a"):
        left_over = otel_gym.in_context(lambda: otel_gym.add_user_message("late"))
    left_over()
    otel_gym.add_user_message("nowhere")
    otel_gym.record_tool_result("of nothing")
    assert [record.name for record in caplog.records] == ["otel_gym", "otel_gym"]
    assert not any(span.events for span in live_store.spans("1-0"))


def test_an_agents_attributes_are_those_of_the_conventions(live_store: LiveStore):
    agent = otel_gym.invoke_agent("a", agent_id="a-1", version="2", conversation_id="c", description="does it")
    with otel_gym.rollout(1, 0), agent:
        pass
    agent = the(live_store.spans("1-0"), "invoke_agent a")
    assert {name: value for name, value in agent.attributes.items() if name.startswith("gen_ai.")} == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "a",
        "gen_ai.agent.id": "a-1",
        "gen_ai.agent.version": "2",
        "gen_ai.agent.description": "does it",
        "gen_ai.conversation.id": "c",
    }


def test_steps_are_counted_per_agent_over_its_turns_and_anew_in_each_execution(live_store: LiveStore):
    numbers: list[int | None] = []

    def step() -> None:
        with otel_gym.agent_step() as current_step:
            numbers.append(current_step.n)

    for _ in range(2):
        with otel_gym.rollout(1, 0):
            with otel_gym.invoke_agent("main"):
                step()
                with otel_gym.execute_tool("spawn", "c1"), otel_gym.invoke_agent("sub"):
                    step()
                with otel_gym.execute_tool("spawn", "c2"), otel_gym.invoke_agent("sub"):
                    step()
            with otel_gym.invoke_agent("main"):
                step()
                with otel_gym.agent_step(7):
                    pass
                step()
            with otel_gym.invoke_agent("other", agent_id="o"):
                step()
            with otel_gym.invoke_agent("renamed", agent_id="o"):
                step()
    assert numbers == [1, 1, 1, 2, 8, 1, 2] * 2


def test_a_subagent_is_linked_both_ways_with_the_call_that_spawned_it(live_store: LiveStore):
    @otel_gym.invoke_agent("explore", agent_id="explore-1")
    def explore() -> None:
        with otel_gym.agent_step(), otel_gym.execute_tool("ls", "call_10"):
            pass

    with otel_gym.rollout(1, 0), otel_gym.invoke_agent("main"), otel_gym.execute_tool("task", "call_9") as tool:
        explore()
        explore()
        tool.record_result("done")
    spans = live_store.spans("1-0")
    task = the(spans, "execute_tool task")
    subagents = [span for span in spans if span.name == "invoke_agent explore"]
    assert [(span.parent_span_id, span.attributes["gym.spawned_by"]) for span in subagents] == [
        (task.span_id, "call_9"),
        (task.span_id, "call_9"),
    ]
    assert [[link.span_id for link in span.links] for span in subagents] == [[task.span_id]] * 2
    assert [link.span_id for link in task.links] == [span.span_id for span in subagents]
    assert task.attributes["gym.subagent.id"] == ["explore-1"]
    ls = [span for span in spans if span.name == "execute_tool ls"]
    assert all("gym.subagent.id" not in span.attributes for span in ls)
    assert the(spans, "invoke_agent main").links == []


def test_parallel_tools_overlap_below_one_step(live_store: LiveStore):
    @otel_gym.execute_tool()
    async def get_weather(city: str) -> str:
        await asyncio.sleep(0.02)
        return city

    async def main() -> None:
        async with otel_gym.rollout(1, 0), otel_gym.invoke_agent("a"), otel_gym.agent_step():
            await asyncio.gather(get_weather("Paris"), get_weather("Berlin"))

    asyncio.run(main())
    spans = live_store.spans("1-0")
    one, other = [span for span in spans if span.name == "execute_tool get_weather"]
    assert one.start_ns < other.end_ns and other.start_ns < one.end_ns
    assert one.parent_span_id == other.parent_span_id == the(spans, "agent_step").span_id


class City(BaseModel):
    name: str


@dataclass
class Answer:
    degrees: int


class Unreadable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("result", "stored"),
    [
        ("21 C", {"content": "21 C"}),
        ({"degrees": 21}, {"degrees": 21}),
        ([1, float("nan")], [1, None]),
        (None, None),
        (City(name="Paris"), {"name": "Paris"}),
        ([Answer(21)], [{"degrees": 21}]),
        ("\ud83e", {"content": "\ufffd"}),
        (Unreadable(), "<Unreadable>"),
    ],
)
def test_any_result_is_stored_as_json(live_store: LiveStore, result: Any, stored: Any):
    with otel_gym.rollout(1, 0), otel_gym.execute_tool("t", "c", {"any": result}) as tool:
        tool.record_result(result)
    span = the(live_store.spans("1-0"), "execute_tool t")
    assert json.loads(span.attributes["gen_ai.tool.call.result"]) == stored
    assert list(json.loads(span.attributes["gen_ai.tool.call.arguments"])) == ["any"]


@pytest.mark.parametrize(
    ("arguments", "stored"),
    [
        ('{"city": "Paris"}', '{"city": "Paris"}'),
        ('{"city": "Par', '"{\\"city\\": \\"Par"'),
        ('{"n": NaN}', '"{\\"n\\": NaN}"'),
        ({"city": "Paris"}, '{"city":"Paris"}'),
    ],
)
def test_arguments_of_the_model_stay_as_they_are_where_they_are_json(live_store: LiveStore, arguments, stored):
    with otel_gym.rollout(1, 0), otel_gym.execute_tool("t", "c", arguments):
        pass
    span = the(live_store.spans("1-0"), "execute_tool t")
    assert span.attributes["gen_ai.tool.call.arguments"] == stored


def test_a_result_that_tells_of_a_failure_makes_the_tool_fail(live_store: LiveStore):
    with otel_gym.rollout(1, 0), otel_gym.execute_tool("bash", "c", type="extension"):
        otel_gym.record_tool_result("Exit code 3", is_error=True, extra={"exit_code": 3})
    span = the(live_store.spans("1-0"), "execute_tool bash")
    assert (span.status, span.status_message, span.attributes["error.type"]) == (
        STATUS_ERROR,
        "Exit code 3",
        "tool_error",
    )
    assert json.loads(span.attributes["gym.tool.error"]) == {"message": "Exit code 3"}
    assert json.loads(span.attributes["gym.tool.extra"]) == {"exit_code": 3}
    assert span.attributes["gen_ai.tool.type"] == "extension"


def test_decorated_functions_are_tools_with_their_arguments_results_and_errors(live_store: LiveStore):
    class Tools:
        @otel_gym.execute_tool()
        def add(self, a: int, *more: int, b: int = 0, **rest: int) -> int:
            """Adds."""
            return a + sum(more) + b + sum(rest.values())

        @otel_gym.execute_tool("divide_by_zero")
        async def fail(self, a: int) -> float:
            return a / 0

    @otel_gym.execute_tool()
    def says_itself() -> str:
        otel_gym.record_tool_result("what it said itself")
        return "what it returned"

    @otel_gym.invoke_agent("calculator")
    async def run() -> None:
        assert Tools().add(1, 2, b=3, c=4) == 10
        with pytest.raises(ZeroDivisionError):
            await Tools().fail(1)
        says_itself()
        assert otel_gym.execute_tool("abs", "call_1")(abs)(-3) == 3

    assert Tools.add.__doc__ == "Adds."
    with otel_gym.rollout(1, 0):
        asyncio.run(run())
    spans = live_store.spans("1-0")
    assert tree_of(spans)[1:] == [
        "  invoke_agent calculator",
        "    execute_tool add",
        "    execute_tool divide_by_zero",
        "    execute_tool says_itself",
        "    execute_tool abs",
    ]
    add, fail, itself, absolute = spans[2:]
    assert json.loads(add.attributes["gen_ai.tool.call.arguments"]) == {"a": 1, "more": [2], "b": 3, "c": 4}
    assert add.attributes["gen_ai.tool.call.result"] == "10"
    assert (fail.status, fail.attributes["error.type"]) == (STATUS_ERROR, "ZeroDivisionError")
    assert itself.attributes["gen_ai.tool.call.result"] == '{"content":"what it said itself"}'
    assert absolute.attributes["gen_ai.tool.call.id"] == "call_1"


def test_a_decorated_function_that_runs_several_times_at_once_has_a_span_for_each(live_store: LiveStore):
    @otel_gym.agent_step()
    async def step(depth: int) -> None:
        await asyncio.sleep(0)
        if depth:
            await asyncio.gather(step(depth - 1), step(depth - 1))

    with otel_gym.rollout(1, 0):
        asyncio.run(step(2))
    spans = live_store.spans("1-0")[1:]
    assert sorted(span.attributes["gym.step.index"] for span in spans) == [1, 2, 3, 4, 5, 6, 7]
    assert all(span.end_ns for span in spans)


def test_a_decorator_without_parentheses_says_what_is_missing():
    with pytest.raises(TypeError, match=r"write @execute_tool\(\)"):
        otel_gym.execute_tool(print)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="takes the tool's name"), otel_gym.execute_tool():
        pass


def test_nothing_that_was_said_is_kept_with_content_off(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("OTEL_GYM_CONTENT", "none")
    otel_gym.configure(directory=tmp_path)

    @otel_gym.execute_tool()
    def ask(question: str) -> str:
        raise ValueError(f"secret {question}")

    with otel_gym.rollout(1, 0), otel_gym.invoke_agent("a", user_message="secret"):
        otel_gym.context_compacted("secret")
        with pytest.raises(ValueError, match="secret"):
            ask("secret")
        with otel_gym.execute_tool("t", "call_1", {"q": "secret"}) as tool:
            tool.record_result("secret", is_error=True, extra={"out": "secret"})
    assert otel_gym.flush(10)
    spans = list(Store(tmp_path).spans("1-0"))
    assert "secret" not in repr(spans)
    assert [event.name for event in spans[1].events] == ["gym.user_message", "gym.context_boundary"]
    assert [span.attributes.get("error.type") for span in spans[2:]] == ["ValueError", "tool_error"]


def test_with_tracing_off_everything_works_and_nothing_is_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pipeline, "_pipeline", None)

    @otel_gym.execute_tool()
    def tool(a: int) -> int:
        otel_gym.record_tool_result(a)
        return a + 1

    @otel_gym.execute_tool()
    def stream(a: int):
        yield a

    async def main() -> None:
        async with otel_gym.rollout(1, 0) as rollout, otel_gym.invoke_agent("a", user_message="x") as agent:
            with otel_gym.agent_step() as step, otel_gym.execute_tool("t") as own:
                own.record_result(1)
                otel_gym.record_reward(1.0)
                otel_gym.add_user_message("x")
                otel_gym.context_compacted("x")
                assert (tool(1), list(stream(2)), otel_gym.carrier()) == (2, [2], {})
                assert otel_gym.in_context(tool)(1) == 2
                with otel_gym.attached({"baggage": "gym.rollout.id=1-0"}):
                    pass
            assert (rollout.span, agent.span, step.span, own.span) == (None, None, None, None)

    asyncio.run(main())
    otel_gym.record_reward(1.0, "2-0")
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("step", ["otel_context.attach", "trace.set_span_in_context", "current.restore"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_an_interrupt_while_a_span_began_or_ended_leaves_nothing_current(live_store, monkeypatch, step, kind):
    module, name = step.split(".")
    owner = current if module == "current" else getattr(span_scope, module)
    original = getattr(owner, name)
    with otel_gym.rollout(1, 0) as rollout:
        outer = trace.get_current_span()
        interrupts = iter([kind])

        def interrupted(*arguments):
            for interrupt in interrupts:
                raise interrupt
            return original(*arguments)

        monkeypatch.setattr(owner, name, interrupted)
        try:
            with otel_gym.execute_tool("t", "c"):
                pass
        except (KeyboardInterrupt, RuntimeError):
            pass
        monkeypatch.setattr(owner, name, original)
        assert trace.get_current_span() is outer
        assert current_identity() == rollout.identity
    tool = the(live_store.spans("1-0"), "execute_tool t")
    assert (tool.end_ns is None, tool.attributes["error.type"]) == (False, kind.__name__)


def test_a_failure_of_tracing_itself_never_reaches_the_agent(live_store, monkeypatch, caplog):
    monkeypatch.setattr(logs, "_said", set())

    def broken(*_: object) -> None:
        raise RuntimeError("tracing is broken")

    monkeypatch.setattr(otel_gym.ToolScope, "_attributes", broken)
    with otel_gym.rollout(1, 0), otel_gym.execute_tool("t") as tool:
        tool.record_result(1)
    assert [span.name for span in live_store.spans("1-0")] == ["rollout"]
    assert "could not begin" in caplog.text


def test_under_a_provider_of_others_the_same_is_stored_and_their_processors_see_it(tmp_path):
    otel_gym.configure(directory=tmp_path, tracer_provider=TracerProvider(), run_id="run-1")
    asyncio.run(run_weather())
    assert otel_gym.flush(10)
    spans = list(Store(tmp_path).spans(ROLLOUT_ID))
    assert len(spans) == 17
    assert {(span.run_id, span.trace_id) for span in spans} == {("run-1", spans[0].trace_id)}


def test_spans_that_a_sampler_of_others_drops_are_no_late_ones(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logs, "_said", set())
    otel_gym.configure(directory=tmp_path, tracer_provider=TracerProvider(ALWAYS_OFF))
    with otel_gym.rollout(1, 0) as rollout, otel_gym.invoke_agent("a", user_message="x"):
        with otel_gym.agent_step(), otel_gym.execute_tool("t") as tool:
            tool.record_result(1)
        rollout.record_reward(1.0)
    assert caplog.records == []


def test_open_agents_steps_and_tools_have_start_records(live_store: LiveStore):
    open_records = live_store.directory / "open"
    with otel_gym.rollout(1, 0), otel_gym.invoke_agent("a"), otel_gym.agent_step():
        tool = otel_gym.execute_tool("t", "call_1", {"city": "Paris"})
        with tool:
            deadline = time.monotonic() + 5
            while not any("execute_tool t" in path.read_text() for path in open_records.glob("*")):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            spans = list(Store(live_store.directory).spans("1-0"))
    assert [(span.name, span.end_ns) for span in spans] == [
        ("rollout", None),
        ("invoke_agent a", None),
        ("agent_step", None),
        ("execute_tool t", None),
    ]
    assert spans[3].attributes["gen_ai.tool.call.arguments"] == '{"city":"Paris"}'


def test_what_a_tool_and_a_rollout_held_is_let_go_at_their_end_without_the_garbage_collector(live_store: LiveStore):
    def run() -> list[weakref.ref[Any]]:
        rollout, agent = otel_gym.rollout(1, 0), otel_gym.invoke_agent("a")
        step, tool = otel_gym.agent_step(), otel_gym.execute_tool("t")
        with rollout, agent, step, tool:
            tool.record_result("x")
        return [weakref.ref(held) for held in (rollout, agent, step, tool)]

    gc.collect()
    gc.disable()
    try:
        assert [held() for held in run()] == [None] * 4
    finally:
        gc.enable()
