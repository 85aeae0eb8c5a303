from __future__ import annotations

import asyncio
import contextvars
import os
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest
from opentelemetry import trace

import otel_gym
from otel_gym.identity import current_identity
from otel_gym.store.reader import Store
from otel_gym.store.span import STATUS_ERROR
from otel_gym.tracing import api, current


def test_a_rollout_is_a_root_span_with_its_indices(live_store):
    with otel_gym.rollout(12, 3, attempt=2) as rollout:
        rollout.record_reward(0.5)

    (span,) = live_store.spans("12-3-a2")
    assert (span.name, span.parent_span_id) == ("rollout", None)
    assert span.attributes["gym.run.id"] == "run-1"
    assert span.attributes["nemo.gym.rollout.id"] == "12-3-a2"
    assert [span.attributes[f"gym.rollout.{name}"] for name in ("task_index", "index", "attempt")] == [12, 3, 2]
    assert span.attributes["gym.reward"] == 0.5


def test_a_trainers_span_around_a_rollout_is_linked_not_its_parent(live_store):
    with trace.get_tracer("trainer").start_as_current_span("step") as step, otel_gym.rollout(1, 0):
        pass

    (span,) = live_store.spans("1-0")
    assert span.parent_span_id is None
    assert [link.span_id for link in span.links] == [format(step.get_span_context().span_id, "016x")]


def test_every_span_inside_carries_the_ids(live_store):
    with otel_gym.rollout(rollout_id="mine", run_id="other-run"):
        trace.get_tracer("agent").start_span("anything").end()

    spans = live_store.spans("mine")
    assert {(span.name, span.run_id) for span in spans} == {("rollout", "other-run"), ("anything", "other-run")}


def test_the_rollout_reaches_asyncio_tasks_and_threads(live_store):
    async def work(name: str) -> None:
        trace.get_tracer("agent").start_span(name).end()
        await asyncio.to_thread(lambda: trace.get_tracer("agent").start_span(f"{name}-thread").end())

    async def main() -> None:
        async with otel_gym.rollout(2, 0):
            await asyncio.gather(work("a"), work("b"))

    asyncio.run(main())
    assert {span.name for span in live_store.spans("2-0")} == {"rollout", "a", "b", "a-thread", "b-thread"}


def test_spans_outside_of_any_rollout_are_not_stored(live_store):
    trace.get_tracer("sql").start_span("SELECT").end()
    assert live_store.is_empty()


def test_a_genai_span_without_rollout_goes_to_unassigned(live_store):
    trace.get_tracer("agent").start_span("chat m", attributes={"gen_ai.operation.name": "chat"}).end()
    assert [span.name for span in live_store.spans("unassigned")] == ["chat m"]


def test_a_reward_that_came_after_the_rollout_had_ended_was_lost_with_a_warning(live_store, caplog):
    with otel_gym.rollout(9, 0) as rollout:
        pass
    rollout.record_reward(1.0)

    root, reward = live_store.spans("9-0")
    assert (reward.name, reward.parent_span_id, reward.attributes["gym.reward"]) == ("record_reward", root.span_id, 1.0)
    assert caplog.records == []


def test_an_exception_ends_the_rollout_and_is_not_swallowed(live_store):
    with pytest.raises(KeyError), otel_gym.rollout(3, 0):
        raise KeyError("x")

    (span,) = live_store.spans("3-0")
    assert (span.status, span.attributes["error.type"]) == (STATUS_ERROR, "KeyError")


@pytest.mark.parametrize("bad", ["../../etc", "", "a/b", "unassigned"])
def test_an_id_that_may_not_touch_a_path_is_refused_at_once(live_store, bad):
    with pytest.raises(ValueError, match="refused"):
        otel_gym.rollout(rollout_id=bad)


def test_seeded_code_neither_repeats_ids_nor_is_moved_on(live_store):
    random.seed(0)
    expected = random.random()
    random.seed(0)
    for _ in range(2):
        with otel_gym.rollout(7, 0):
            pass
    assert random.random() == expected
    assert len({span.span_id for span in live_store.spans("7-0")}) == 2


def test_a_surrogate_in_a_name_loses_no_span(live_store):
    with otel_gym.rollout(8, 0):
        trace.get_tracer("agent").start_span("odd \ud83e", attributes={"a": "x\ud83e", "n": float("nan")}).end()

    assert sorted(span.name for span in live_store.spans("8-0")) == ["odd \ufffd", "rollout"]


RUN_BODY = {"_ng_task_index": 4, "_ng_rollout_index": 1}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (RUN_BODY, "4-1"),
        (RUN_BODY | {"_ng_attempt_index": 2}, "4-1-a2"),
        (RUN_BODY | {"_ng_rollout_id": "mine"}, "mine"),
        (RUN_BODY | {"_ng_rollout_id": "../x"}, "4-1"),
        (SimpleNamespace(model_extra=RUN_BODY), "4-1"),
        ({}, None),
    ],
)
def test_the_id_of_a_run_request(live_store, body, expected):
    assert otel_gym.rollout_id_from_run(body) == expected


def test_urls_carry_the_rollout(live_store):
    assert otel_gym.url_path_for_run("/v1/responses", RUN_BODY) == "/ng-rollout/4-1/v1/responses"
    assert otel_gym.base_url_for_run("http://h:1", RUN_BODY) == "http://h:1/ng-rollout/4-1"
    assert otel_gym.resolve_model_base_url("http://h:1", "4-1") == "http://h:1/ng-rollout/4-1/v1"
    assert otel_gym.url_path_for_run("/v1/responses", {}) == "/v1/responses"
    with otel_gym.rollout(5, 5) as rollout:
        assert otel_gym.resolve_model_base_url("http://h:1/v1") == "http://h:1/ng-rollout/5-5/v1"
        assert rollout.base_url("http://h:1/v1/") == "http://h:1/ng-rollout/5-5/v1"


def test_a_prefix_is_carried_on_to_the_next_server(live_store):
    request = SimpleNamespace(path_params={}, url=SimpleNamespace(path="/ng-rollout/4-1/v1/responses"))
    assert otel_gym.url_path_for_request("/v1/responses", request) == "/ng-rollout/4-1/v1/responses"
    plain = SimpleNamespace(path_params={}, url=SimpleNamespace(path="/v1/responses"))
    assert otel_gym.url_path_for_request("/v1/responses", plain) == "/v1/responses"


def _run(program: str, cwd, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], **environ},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_with_tracing_off_nothing_is_made_and_urls_stay(tmp_path):
    program = (
        "import otel_gym, threading\n"
        "with otel_gym.rollout(1, 0) as r:\n"
        "    print(r.base_url('http://h'), otel_gym.resolve_model_base_url('http://h'), threading.active_count())\n"
    )
    result = _run(program, tmp_path)
    assert (result.stdout.strip(), result.stderr) == ("http://h http://h/v1 1", "")
    assert list(tmp_path.iterdir()) == []


def test_a_provider_that_is_already_set_is_joined(tmp_path):
    program = (
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor\n"
        "from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter\n"
        "theirs = InMemorySpanExporter()\n"
        "provider = TracerProvider(); provider.add_span_processor(SimpleSpanProcessor(theirs))\n"
        "trace.set_tracer_provider(provider)\n"
        "import otel_gym\n"
        "with otel_gym.rollout(1, 0): pass\n"
        "print(trace.get_tracer_provider() is provider, [s.name for s in theirs.get_finished_spans()])\n"
    )
    result = _run(program, tmp_path, OTEL_GYM="1", OTEL_GYM_DIR=str(tmp_path / "s"))
    assert result.stdout.strip() == "True ['rollout']"
    assert result.stderr == ""
    assert (tmp_path / "s" / "spans" / "rollout_id=1-0").is_dir()


def test_a_forked_child_writes_its_own_spans_and_none_of_its_parents(tmp_path):
    program = (
        "import os, otel_gym\n"
        "with otel_gym.rollout(1, 0): pass\n"
        "if os.fork() == 0:\n"
        "    with otel_gym.rollout(2, 0): pass\n"
        "    otel_gym.flush(); os._exit(0)\n"
        "os.wait()\n"
    )
    _run(program, tmp_path, OTEL_GYM="1", OTEL_GYM_DIR=str(tmp_path), OTEL_GYM_RUN_ID="r")
    files = sorted((tmp_path / "spans").rglob("*.jsonl"))
    assert [path.parent.name for path in files] == ["rollout_id=1-0", "rollout_id=2-0"]
    assert [len(path.read_bytes().splitlines()) for path in files] == [1, 1]
    assert files[0].name != files[1].name


def test_a_full_disk_never_reaches_the_program(tmp_path):
    (tmp_path / "spans").write_text("a file where the folder should be")
    program = "import otel_gym\nwith otel_gym.rollout(1, 0): print('done')\n"
    result = _run(program, tmp_path, OTEL_GYM="1", OTEL_GYM_DIR=str(tmp_path))
    assert (result.returncode, result.stdout.strip()) == (0, "done")
    assert result.stderr.count("spans are lost") == 1


def test_spans_are_on_disk_within_100_ms_of_their_end_without_a_flush(tmp_path):
    program = "import os, time, otel_gym\nwith otel_gym.rollout(1, 0): pass\ntime.sleep(0.1); os._exit(0)\n"
    _run(program, tmp_path, OTEL_GYM="1", OTEL_GYM_DIR=str(tmp_path))
    assert len(list((tmp_path / "spans").rglob("*.jsonl"))) == 1


def test_a_reward_before_the_rollout_began_was_lost_without_a_word(live_store):
    rollout = otel_gym.rollout(1, 0)
    with pytest.raises(RuntimeError, match="before the rollout has begun"):
        rollout.record_reward(1.0)
    with rollout:
        rollout.record_reward(0.5)
    (span,) = live_store.spans("1-0")
    assert span.attributes["gym.reward"] == 0.5


def test_a_reward_that_is_nan_is_refused_where_it_is_given(live_store):
    with otel_gym.rollout(1, 0) as rollout, pytest.raises(ValueError, match="NaN"):
        rollout.record_reward(float("nan"))


def test_spans_that_were_open_at_a_second_configure_stayed_unfinished_in_the_first_store(tmp_path):
    otel_gym.configure(directory=tmp_path / "one", run_id="run-1")
    with otel_gym.rollout(1, 0):
        otel_gym.configure(directory=tmp_path / "two", run_id="run-2")
    with otel_gym.rollout(2, 0):
        pass
    assert otel_gym.flush(10)
    (first,) = Store(tmp_path / "one").spans("1-0")
    (second,) = Store(tmp_path / "two").spans("2-0")
    assert [(span.rollout_id, span.run_id, span.end_ns is None) for span in (first, second)] == [
        ("1-0", "run-1", False),
        ("2-0", "run-2", False),
    ]


@pytest.mark.parametrize("step", ["otel_context.attach", "trace.set_span_in_context", "current.restore"])
def test_an_interrupt_while_a_rollout_began_or_ended_left_its_identity_set_and_its_span_open(
    live_store, monkeypatch, step
):
    module, name = step.split(".")
    owner = current if module == "current" else getattr(api, module)
    original = getattr(owner, name)
    interrupts = iter([KeyboardInterrupt])

    def interrupted(*arguments):
        for interrupt in interrupts:
            raise interrupt
        return original(*arguments)

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt), otel_gym.rollout(1, 0):
        pass
    assert current_identity() is None
    assert not trace.get_current_span().get_span_context().is_valid
    (span,) = live_store.spans("1-0")
    assert (span.end_ns is None, span.attributes["error.type"]) == (False, "KeyboardInterrupt")


def test_a_rollout_that_was_interrupted_can_begin_again(live_store):
    rollout = otel_gym.rollout(1, 0)
    with pytest.raises(KeyboardInterrupt), rollout:
        raise KeyboardInterrupt
    with rollout:
        pass
    assert len(live_store.spans("1-0")) == 2


def test_a_rollout_that_ends_in_another_context_raised_and_was_never_ended(live_store):
    rollout = otel_gym.rollout(1, 0)
    contextvars.copy_context().run(rollout.__enter__)
    rollout.__exit__(None, None, None)
    (span,) = live_store.spans("1-0")
    assert span.end_ns is not None
