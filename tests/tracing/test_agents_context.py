"""Which span is whose parent: across tasks, threads, processes and generators."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from opentelemetry import trace

import otel_gym
from otel_gym.identity import current_identity
from otel_gym.store.span import StoredSpan

from ..conftest import LiveStore

ROOT = Path(__file__).parent.parent.parent


def run_tool(call_id: str) -> str:
    with otel_gym.execute_tool("t", call_id) as tool:
        tool.record_result(call_id)
    return call_id


def tools_of(spans: list[StoredSpan]) -> dict[str, StoredSpan]:
    return {span.attributes["gen_ai.tool.call.id"]: span for span in spans if span.name == "execute_tool t"}


def the(spans: list[StoredSpan], name: str) -> StoredSpan:
    (span,) = [span for span in spans if span.name == name]
    return span


def current_span_id() -> int:
    return trace.get_current_span().get_span_context().span_id


def test_tasks_and_to_thread_keep_the_step_by_themselves(live_store: LiveStore):
    async def main() -> None:
        async with otel_gym.rollout(1, 0), otel_gym.agent_step():
            await asyncio.gather(
                asyncio.to_thread(run_tool, "a"), asyncio.create_task(asyncio.to_thread(run_tool, "b"))
            )

    asyncio.run(main())
    spans = live_store.spans("1-0")
    assert {span.parent_span_id for span in tools_of(spans).values()} == {the(spans, "agent_step").span_id}


@pytest.mark.parametrize(
    "new_pool", [ThreadPoolExecutor, lambda n: ProcessPoolExecutor(n, multiprocessing.get_context("fork"))]
)
def test_a_pool_of_threads_or_processes_lost_the_step(live_store: LiveStore, new_pool):
    with otel_gym.rollout(1, 0), otel_gym.invoke_agent("a"), otel_gym.agent_step():
        pool: Executor = new_pool(2)
        with pool:
            assert list(pool.map(otel_gym.in_context(run_tool), ["a", "b", "c"])) == ["a", "b", "c"]
            assert pool.submit(otel_gym.in_context(run_tool), call_id="d").result() == "d"
    spans = live_store.spans("1-0")
    tools = tools_of(spans)
    assert sorted(tools) == ["a", "b", "c", "d"]
    assert {span.parent_span_id for span in tools.values()} == {the(spans, "agent_step").span_id}
    assert {span.run_id for span in spans} == {"run-1"}


def test_run_in_executor_and_threads_lost_the_step(live_store: LiveStore):
    async def main() -> None:
        async with otel_gym.rollout(1, 0), otel_gym.agent_step():
            await asyncio.get_running_loop().run_in_executor(None, otel_gym.in_context(run_tool), "a")
            thread = threading.Thread(target=otel_gym.in_context(run_tool), args=("b",))
            thread.start()
            thread.join()

    asyncio.run(main())
    spans = live_store.spans("1-0")
    assert {span.parent_span_id for span in tools_of(spans).values()} == {the(spans, "agent_step").span_id}


def test_a_parent_can_be_named_where_no_context_is(live_store: LiveStore):
    def work(parent) -> None:
        with otel_gym.execute_tool("outer", parent=parent):
            assert otel_gym.resolve_model_base_url("http://m").startswith("http://m/ng-rollout/")
            run_tool("inner")

    def in_thread(parent) -> None:
        thread = threading.Thread(target=work, args=(parent,))
        thread.start()
        thread.join()

    with otel_gym.rollout(1, 0) as rollout, otel_gym.rollout(2, 0), otel_gym.agent_step() as step:
        in_thread(rollout)
        in_thread(step)
        with otel_gym.execute_tool("by_span", parent=rollout.span):
            pass
    one, two = live_store.spans("1-0"), live_store.spans("2-0")
    assert [span.parent_span_id for span in one[:3]] == [None, one[0].span_id, one[1].span_id]
    assert the(two, "execute_tool outer").parent_span_id == the(two, "agent_step").span_id
    assert [span.name for span in one] == ["rollout", "execute_tool outer", "execute_tool t"]
    assert {span.parent_span_id for span in two if span.name == "execute_tool by_span"} == {one[0].span_id}


def test_a_tool_without_context_is_filed_under_the_only_rollout_that_is_open(live_store: LiveStore):
    with otel_gym.rollout(1, 0), otel_gym.agent_step(), ThreadPoolExecutor(1) as pool:
        pool.submit(run_tool, "a").result()
    tool = tools_of(live_store.spans("1-0"))["a"]
    assert (tool.parent_span_id, tool.attributes["gym.rollout.id.assumed"]) == (None, True)
    assert tool.trace_id == live_store.spans("1-0")[0].trace_id


def test_a_tool_without_context_is_never_guessed_to_be_one_of_several_rollouts(live_store: LiveStore):
    def in_thread(call_id: str) -> None:
        thread = threading.Thread(target=run_tool, args=(call_id,))
        thread.start()
        thread.join()

    with otel_gym.rollout(1, 0):
        with otel_gym.rollout(2, 0):
            in_thread("a")
        in_thread("b")  # may still be one of 2-0
    in_thread("c")
    assert sorted(tools_of(live_store.spans("unassigned"))) == ["a", "b", "c"]


def test_a_fire_and_forget_task_stays_below_what_started_it(live_store: LiveStore):
    async def late(begin: asyncio.Event) -> None:
        await begin.wait()
        run_tool("late")

    async def main() -> None:
        begin = asyncio.Event()
        async with otel_gym.rollout(1, 0):
            with otel_gym.agent_step():
                task = asyncio.create_task(late(begin))
            begin.set()
            await task

    asyncio.run(main())
    spans = live_store.spans("1-0")
    assert tools_of(spans)["late"].parent_span_id == the(spans, "agent_step").span_id


PROGRAM = """
import os, otel_gym
with otel_gym.attached(os.environ):
    with otel_gym.invoke_agent("sub"), otel_gym.agent_step():
        pass
    otel_gym.record_reward(0.25)
"""


def test_another_program_joins_by_the_carrier_in_its_environment(live_store: LiveStore):
    with otel_gym.rollout(1, 0), otel_gym.execute_tool("bash", "call_1"):
        texts = otel_gym.carrier()
        assert sorted(texts) == ["baggage", "gym_spawned_by", "traceparent"]
        environment = {**os.environ, "OTEL_GYM": "1", "PYTHONPATH": str(ROOT)}
        environment |= {name.upper(): text for name, text in texts.items()}
        subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, timeout=60)
    spans = live_store.spans("1-0")
    bash, sub = the(spans, "execute_tool bash"), the(spans, "invoke_agent sub")
    assert (sub.parent_span_id, sub.attributes["gym.spawned_by"]) == (bash.span_id, "call_1")
    assert [link.span_id for link in sub.links] == [bash.span_id]
    assert {(span.trace_id, span.run_id) for span in spans} == {(bash.trace_id, "run-1")}
    assert the(spans, "record_reward").attributes["gym.reward"] == 0.25


def in_worker(texts: dict[str, str], directory: str) -> None:
    otel_gym.configure(directory=directory)
    with otel_gym.attached(texts):
        run_tool("worker")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_worker_of_multiprocessing_that_ended_at_once_lost_its_last_spans(live_store, monkeypatch, method):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with otel_gym.rollout(1, 0), otel_gym.agent_step():
        process = multiprocessing.get_context(method).Process(
            target=in_worker, args=(otel_gym.carrier(), str(live_store.directory))
        )
        process.start()
        process.join(60)
    assert process.exitcode == 0
    spans = live_store.spans("1-0")
    assert tools_of(spans)["worker"].parent_span_id == the(spans, "agent_step").span_id


def test_a_forked_child_goes_on_below_the_span_that_was_open(live_store: LiveStore):
    with otel_gym.rollout(1, 0), otel_gym.agent_step():
        child = os.fork()
        if child == 0:
            try:
                run_tool("child")
                otel_gym.record_reward(0.5)
                otel_gym.flush(10)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    spans = live_store.spans("1-0")
    assert tools_of(spans)["child"].parent_span_id == the(spans, "agent_step").span_id
    assert the(spans, "record_reward").attributes["gym.reward"] == 0.5
    assert [span.name for span in spans].count("rollout") == 1


def test_a_worker_that_was_forked_within_a_rollout_took_later_ones_for_it(live_store: LiveStore):
    def in_thread(call_id: str) -> None:
        thread = threading.Thread(target=run_tool, args=(call_id,))
        thread.start()
        thread.join()

    with otel_gym.rollout(1, 0), otel_gym.invoke_agent("a"):
        child = os.fork()
        if child == 0:
            try:
                in_thread("without context")
                otel_gym.add_user_message("cannot be kept")
                with otel_gym.rollout(2, 0):
                    in_thread("of the only one here")
                otel_gym.flush(10)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    assert list(tools_of(live_store.spans("unassigned"))) == ["without context"]
    assert list(tools_of(live_store.spans("2-0"))) == ["of the only one here"]
    assert not tools_of(live_store.spans("1-0"))


def test_a_carrier_that_says_nothing_changes_nothing(live_store: LiveStore):
    with otel_gym.rollout(1, 0):
        here = current_span_id()
        with otel_gym.attached({"PATH": "/bin", "traceparent": "nonsense"}):
            assert current_span_id() == here
        with otel_gym.attached({"baggage": "gym.rollout.id=2-0"}):
            run_tool("a")
        assert (current_span_id(), current_identity().rollout_id) == (here, "1-0")
    assert list(tools_of(live_store.spans("2-0"))) == ["a"]


# Generators


@otel_gym.execute_tool()
def numbers() -> Iterator[int]:
    for number in range(3):
        run_tool(f"inside-{number}")
        yield number


@otel_gym.execute_tool()
async def async_numbers() -> AsyncIterator[int]:
    for number in range(3):
        run_tool(f"inside-{number}")
        yield number


def test_the_span_of_a_decorated_generator_was_the_parent_of_its_consumers_spans(live_store: LiveStore):
    with otel_gym.rollout(1, 0), otel_gym.agent_step():
        here = current_span_id()
        for number in numbers():
            assert current_span_id() == here
            run_tool(f"outside-{number}")
        assert current_span_id() == here
    check_numbers(live_store, "execute_tool numbers", 3)


def test_the_span_of_a_decorated_async_generator_was_the_parent_of_its_consumers_spans(live_store: LiveStore, caplog):
    async def main() -> None:
        async with otel_gym.rollout(1, 0), otel_gym.agent_step():
            here = current_span_id()
            async for number in async_numbers():
                assert current_span_id() == here
                run_tool(f"outside-{number}")
                if number == 1:
                    break
            assert current_span_id() == here
            await asyncio.sleep(0.01)

    asyncio.run(main())
    check_numbers(live_store, "execute_tool async_numbers", 2)
    assert caplog.records == []


def check_numbers(live_store: LiveStore, name: str, count: int) -> None:
    spans = live_store.spans("1-0")
    step, generator = the(spans, "agent_step"), the(spans, name)
    parents = {call_id: span.parent_span_id for call_id, span in tools_of(spans).items()}
    assert parents == {f"inside-{n}": generator.span_id for n in range(count)} | {
        f"outside-{n}": step.span_id for n in range(count)
    }
    assert (generator.parent_span_id, generator.end_ns is None, generator.status) == (step.span_id, False, 0)


def test_a_decorated_generator_is_sent_to_thrown_at_and_returns_as_the_plain_one(live_store: LiveStore):
    @otel_gym.agent_step()
    def echo() -> Iterator[object]:
        got: object = None
        while got != "end":
            try:
                got = yield got
            except KeyError as error:
                got = error.args[0]
        return "returned"

    @otel_gym.agent_step()
    async def async_echo() -> AsyncIterator[object]:
        got: object = None
        while got != "end":
            try:
                got = yield got
            except KeyError as error:
                got = error.args[0]

    async def main() -> None:
        generator = async_echo()
        await anext(generator)
        assert (await generator.asend(1), await generator.athrow(KeyError("thrown"))) == (1, "thrown")
        with pytest.raises(StopAsyncIteration):
            await generator.asend("end")
        broken = async_echo()
        await anext(broken)
        with pytest.raises(ValueError, match="x"):
            await broken.athrow(ValueError("x"))

    with otel_gym.rollout(1, 0):
        generator = echo()
        next(generator)
        assert (generator.send(1), generator.throw(KeyError("thrown"))) == (1, "thrown")
        with pytest.raises(StopIteration) as stop:
            generator.send("end")
        assert stop.value.value == "returned"
        asyncio.run(main())
    steps = [span for span in live_store.spans("1-0") if span.name == "agent_step"]
    assert [span.attributes.get("error.type") for span in steps] == [None, None, "ValueError"]


async def undecorated() -> AsyncIterator[int]:
    with otel_gym.invoke_agent("inner"), otel_gym.agent_step():
        yield 1
        yield 2


def test_a_generator_that_was_broken_off_left_its_dead_span_current_and_logged_an_error(live_store, caplog):
    async def main() -> None:
        async with otel_gym.rollout(1, 0):
            here = current_span_id()
            async for _ in undecorated():
                break
            gc.collect()
            await asyncio.sleep(0.01)  # closed by the event loop, in a task of its own
            assert current_span_id() == here
            run_tool("after")
            trace.get_tracer("others").start_span("others").end()

    asyncio.run(main())
    spans = live_store.spans("1-0")
    root = the(spans, "rollout")
    assert tools_of(spans)["after"].parent_span_id == root.span_id
    assert the(spans, "others").parent_span_id == root.span_id
    assert [(span.end_ns is None, span.status) for span in spans] == [(False, 0)] * len(spans)
    assert caplog.records == []


def test_a_rollout_in_a_generator_that_was_broken_off_kept_its_consumer(live_store: LiveStore, caplog):
    async def run() -> AsyncIterator[int]:
        async with otel_gym.rollout(1, 0):
            yield 1

    async def main() -> None:
        generator = run()
        await anext(generator)
        await asyncio.create_task(generator.aclose())
        assert (current_identity(), current_span_id()) == (None, 0)
        trace.get_tracer("sql").start_span("SELECT").end()

    asyncio.run(main())
    assert [(span.name, span.status) for span in live_store.spans("1-0")] == [("rollout", 0)]
    assert caplog.records == []


def test_generators_that_take_turns_and_end_in_any_order_leave_what_was_current(live_store: LiveStore):
    def hold(name: str) -> Iterator[None]:
        with otel_gym.invoke_agent(name):
            yield
            yield

    with otel_gym.rollout(1, 0):
        here = current_span_id()
        one, two, three = hold("one"), hold("two"), hold("three")
        for generator in (one, two, three):
            next(generator)
        one.close()
        three.close()
        two.close()
        assert current_span_id() == here


def test_a_span_that_ends_in_another_context_ends_without_a_word(live_store: LiveStore, caplog):
    with otel_gym.rollout(1, 0):
        step = otel_gym.agent_step()
        contextvars.copy_context().run(step.__enter__)
        step.__exit__(None, None, None)
    assert the(live_store.spans("1-0"), "agent_step").end_ns is not None
    assert caplog.records == []


def test_what_others_left_current_inside_a_span_goes_with_it(live_store: LiveStore):
    with otel_gym.rollout(1, 0):
        here = current_span_id()
        with otel_gym.agent_step():
            trace.use_span(trace.get_tracer("others").start_span("leaked")).__enter__()
        assert current_span_id() == here


def test_steps_of_a_rollout_that_runs_elsewhere_are_counted_by_its_id(live_store: LiveStore):
    def turn(rollout_id: str) -> int | None:
        step = otel_gym.agent_step()
        with otel_gym.attached({"baggage": f"gym.rollout.id={rollout_id}"}), otel_gym.invoke_agent("server"), step:
            return step.n

    assert [turn(rollout_id) for rollout_id in ("21-0", "22-0", "21-0")] == [1, 1, 2]
