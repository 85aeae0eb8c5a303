"""The OTLP copy at real receivers, from programs that know nothing of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import grpc
import pytest

from otel_gym.store.reader import Store
from otel_gym.store.span import StoredSpan

from .receivers import LIMIT, Received, attributes, free_port, grpc_receiver, http_receiver

Receiver = Callable[..., AbstractContextManager[Received]]

PROTOCOLS = {"grpc": grpc_receiver, "http/protobuf": http_receiver}
ROLLOUT = """
import otel_gym
from opentelemetry import trace

with otel_gym.rollout(1, 0) as rollout:
    with otel_gym.agent_step():
        with otel_gym.execute_tool("add", arguments={"a": 1}) as tool:
            tool.record_result({"sum": 2})
    rollout.record_reward(0.5)
with trace.get_tracer("app").start_as_current_span("SELECT"):
    pass
"""
NAMES = ["SELECT", "agent_step", "execute_tool add", "rollout"]
STORED = NAMES[1:]


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return request.param


class Program:
    """A program in a process of its own, traced into a store."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "store"

    def environ(self, **variables: str) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        return {**plain, "OTEL_GYM": "1", "OTEL_GYM_DIR": str(self.directory), **variables}

    def run(self, code: str, **variables: str) -> tuple[str, float]:
        """Its stderr, and how long it ran in seconds."""
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", code], env=self.environ(**variables), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stderr, time.monotonic() - began

    def stored(self) -> list[StoredSpan]:
        return [span for rollout in Store(self.directory).rollouts() for span in rollout.spans]

    def names(self) -> list[str]:
        return sorted(span.name for span in self.stored())

    def counts(self) -> dict[str, int]:
        return Store(self.directory).counts()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def to(received: Received | str, protocol: str, **more: str) -> dict[str, str]:
    endpoint = received if isinstance(received, str) else received.endpoint
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, **more}


def test_an_endpoint_gets_every_sampled_span_and_the_store_those_of_rollouts(program: Program, protocol: str):
    with PROTOCOLS[protocol]() as received:
        said, _ = program.run(ROLLOUT, **to(received, protocol, OTEL_SERVICE_NAME="my-agent"))
    assert (said, received.names(), program.names()) == ("", NAMES, STORED)
    root = received.one("rollout")
    assert (root["gym.rollout.id"], root["gym.reward"]) == ("1-0", 0.5)
    assert attributes(received.messages[0].resource_spans[0].resource)["service.name"] == "my-agent"
    assert "gen_ai.tool.call.arguments" not in received.one("execute_tool add")
    assert program.counts() == {}


def test_content_is_sent_where_the_standard_variable_asks_for_it(program: Program):
    with http_receiver() as received:
        asked = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "span_only"}
        program.run(ROLLOUT, **to(received, "http/protobuf", **asked))
    tool = received.one("execute_tool add")
    assert (tool["gen_ai.tool.call.arguments"], tool["gen_ai.tool.call.result"]) == ('{"a":1}', '{"sum":2}')


@pytest.mark.parametrize("exporters", ["none", "console", "zipkin, console"])
def test_nothing_is_sent_where_other_exporters_are_named_or_none(program: Program, exporters: str):
    with http_receiver() as received:
        program.run(ROLLOUT, **to(received, "http/protobuf", OTEL_TRACES_EXPORTER=exporters))
    assert (received.messages, program.names()) == ([], STORED)


def test_nothing_is_sent_beside_a_provider_of_others(program: Program):
    code = "from opentelemetry import trace\nfrom opentelemetry.sdk.trace import TracerProvider\n"
    with http_receiver() as received:
        program.run(f"{code}trace.set_tracer_provider(TracerProvider())\n{ROLLOUT}", **to(received, "http/protobuf"))
    assert (received.messages, program.names()) == ([], STORED)


def test_what_is_not_sampled_is_stored_and_not_sent(program: Program):
    with http_receiver() as received:
        program.run(ROLLOUT, **to(received, "http/protobuf", OTEL_TRACES_SAMPLER="always_off"))
    assert (received.messages, program.names()) == ([], STORED)


@pytest.mark.parametrize("compression", ["none", ""])
def test_compression_none_kept_every_span_from_a_grpc_endpoint(program: Program, protocol: str, compression: str):
    with PROTOCOLS[protocol]() as received:
        said, _ = program.run(ROLLOUT, **to(received, protocol, OTEL_EXPORTER_OTLP_COMPRESSION=compression))
    assert (said, received.names()) == ("", NAMES)


def test_standard_variables_for_headers_and_compression_keep_their_meaning(program: Program, protocol: str):
    with PROTOCOLS[protocol]() as received:
        asked = {"OTEL_EXPORTER_OTLP_HEADERS": "x-team=rl", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
        program.run(ROLLOUT, **to(received, protocol, **asked))
    assert received.names() == NAMES and received.headers[0]["x-team"] == "rl"


@pytest.mark.parametrize("kind", ["down", "hanging", "busy", "too many"])
def test_an_endpoint_that_takes_nothing_delays_no_exit_and_its_spans_are_counted(
    program: Program, protocol: str, kind: str
):
    """With nothing listening, the end of a process had waited about a minute for each batch."""
    statuses = {
        ("busy", "grpc"): grpc.StatusCode.UNAVAILABLE,
        ("busy", "http/protobuf"): 503,
        ("too many", "grpc"): grpc.StatusCode.RESOURCE_EXHAUSTED,
        ("too many", "http/protobuf"): 429,
    }
    with PROTOCOLS[protocol]() as received:
        received.status = statuses.get((kind, protocol))
        received.hang = threading.Event() if kind == "hanging" else None
        endpoint = f"http://127.0.0.1:{free_port()}" if kind == "down" else received.endpoint
        said, took_s = program.run(ROLLOUT, **to(endpoint, protocol, OTEL_GYM_EXIT_TIMEOUT="1"))
    assert took_s < 5
    assert program.names() == STORED
    assert program.counts() == {"otlp_lost_spans": len(NAMES)}
    assert said.count("otel_gym: ") == 1 == said.count("\n") and endpoint in said and "counted" in said


def test_a_partial_success_is_read_and_counted(program: Program, protocol: str):
    with PROTOCOLS[protocol]() as received:
        received.refuse = 3
        said, _ = program.run(ROLLOUT, **to(received, protocol))
    assert program.counts() == {"otlp_refused_spans": 3}
    assert "too old" in said and program.names() == STORED


MANY = """
import sys, time
import otel_gym
for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 60):
    with otel_gym.rollout(number, 0):
        with otel_gym.agent_step():
            pass
    time.sleep(0.1)
"""


def test_an_endpoint_that_is_killed_and_comes_again_costs_the_copy_what_is_counted(program: Program, protocol: str):
    port, received = free_port(), Received()
    variables = to(f"http://127.0.0.1:{port}", protocol, OTEL_BSP_SCHEDULE_DELAY="200")
    process = subprocess.Popen([sys.executable, "-c", MANY], env=program.environ(**variables))
    with PROTOCOLS[protocol](port, received):
        received.awaited(10)
    time.sleep(1)
    with PROTOCOLS[protocol](port, received):
        assert process.wait(60) == 0
    sent = {span.span_id for span in received.spans()}
    assert len(program.stored()) == 120
    assert len(sent) + program.counts().get("otlp_lost_spans", 0) == 120
    assert len(sent) > 60


BIG = """
import otel_gym
from opentelemetry import trace
with otel_gym.rollout(1, 0):
    for number in range(12):
        call = {"gen_ai.operation.name": "chat", "prompt": "世" * 350_000}
        with trace.get_tracer("mine").start_as_current_span("chat m", attributes=call):
            pass
"""


def test_prompts_of_a_megabyte_are_sent_whole_in_messages_that_receivers_take(program: Program, protocol: str):
    """Batches cut by count alone were refused whole, at 4 MiB."""
    with PROTOCOLS[protocol]() as received:
        asked = {
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
            "OTEL_GYM_OTLP_ATTRIBUTE_BYTES": "0",
        }
        said, _ = program.run(BIG, **to(received, protocol, **asked))
    prompts = [attributes(span)["prompt"] for span in received.spans() if span.name == "chat m"]
    assert said == "" and [len(prompt) for prompt in prompts] == [350_000] * 12
    assert max(received.sizes) < LIMIT and len(received.sizes) >= 4


FORKS = """
import os, sys, time
import otel_gym
with otel_gym.rollout(1, 0):
    with otel_gym.agent_step():
        pass
time.sleep(float(sys.argv[1]))
child = os.fork()
if child == 0:
    with otel_gym.rollout(2, 0):
        pass
else:
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize("pause_s", [0, 0.5])
def test_a_forked_child_sends_its_own_spans_once(program: Program, protocol: str, pause_s: float):
    with PROTOCOLS[protocol]() as received:
        variables = to(received, protocol, OTEL_BSP_SCHEDULE_DELAY="100")
        code = FORKS.replace("float(sys.argv[1])", str(pause_s))
        said, took_s = program.run(code, **variables)
    found = [(span.name, attributes(span)["gym.rollout.id"]) for span in received.spans()]
    assert sorted(found) == [("agent_step", "1-0"), ("rollout", "1-0"), ("rollout", "2-0")], said
    assert took_s < 10


WORKERS = """
import multiprocessing, otel_gym
def work(number):
    with otel_gym.rollout(number, 0):
        pass
if __name__ == "__main__":
    context = multiprocessing.get_context("METHOD")
    children = [context.Process(target=work, args=(number,)) for number in range(3)]
    [child.start() for child in children]
    [child.join() for child in children]
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_multiprocessing_send_what_they_made_before_they_end(
    program: Program, protocol: str, method: str, tmp_path: Path
):
    script = tmp_path / "workers.py"
    script.write_text(WORKERS.replace("METHOD", method))
    with PROTOCOLS[protocol]() as received:
        program.run(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')", **to(received, protocol))
    assert sorted(attributes(span)["gym.rollout.id"] for span in received.spans()) == ["0-0", "1-0", "2-0"]


TERMINATED = """
import time, otel_gym
otel_gym.configure(handle_sigterm=True)
with otel_gym.rollout(1, 0):
    with otel_gym.agent_step():
        pass
    with otel_gym.agent_step():
        print("ready", flush=True)
        time.sleep(60)
"""


def terminate(program: Program, **variables: str) -> tuple[int, float]:
    environ = program.environ(**variables)
    process = subprocess.Popen([sys.executable, "-c", TERMINATED], env=environ, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code = process.wait(30)
    process.stdout.close()
    return code, time.monotonic() - began


def test_sigterm_sends_ended_and_aborted_spans(program: Program, protocol: str):
    with PROTOCOLS[protocol]() as received:
        code, _ = terminate(program, **to(received, protocol, OTEL_BSP_SCHEDULE_DELAY="60000"))
    assert (code, received.names()) == (-signal.SIGTERM, ["agent_step", "agent_step", "rollout"])
    assert received.one("rollout")["error.type"] == "aborted"


def test_sigterm_waits_no_longer_for_an_endpoint_that_hangs(program: Program, protocol: str):
    with PROTOCOLS[protocol]() as received:
        received.hang = threading.Event()
        code, took_s = terminate(program, **to(received, protocol, OTEL_GYM_EXIT_TIMEOUT="1"))
    assert code == -signal.SIGTERM and took_s < 4
    assert program.counts() == {"otlp_lost_spans": 3} and len(program.names()) == 3


STOPPED_LIKE_UVICORN = """
import os, signal, otel_gym
pipeline = otel_gym.configure()
with otel_gym.rollout(1, 0):
    pass
pipeline.close()  # what a server's lifespan shutdown does
os.kill(os.getpid(), signal.SIGKILL)  # no exit handler follows
"""


def test_a_server_that_was_stopped_beside_a_dead_endpoint_counted_nothing(program: Program, protocol: str):
    environ = program.environ(**to(f"http://127.0.0.1:{free_port()}", protocol, OTEL_GYM_EXIT_TIMEOUT="1"))
    done = subprocess.run([sys.executable, "-c", STOPPED_LIKE_UVICORN], env=environ, capture_output=True, timeout=60)
    assert b"do not reach the OTLP endpoint" in done.stderr
    assert (program.names(), program.counts()) == (["rollout"], {"otlp_lost_spans": 1})


def test_spans_that_were_counted_as_lost_and_sent_after_all_are_not_lost(program: Program, protocol: str):
    code = """
import sys, otel_gym
pipeline = otel_gym.configure()
with otel_gym.rollout(1, 0):
    pass
pipeline.close()
print("closed", flush=True)
sys.stdin.readline()
"""
    with PROTOCOLS[protocol]() as received:
        received.hang = threading.Event()
        environ = program.environ(**to(received, protocol, OTEL_GYM_EXIT_TIMEOUT="1"))
        process = subprocess.Popen(
            [sys.executable, "-c", code], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and process.stdout.readline() == "closed\n"
        assert program.counts() == {"otlp_lost_spans": 1}
        received.hang.set()
        deadline = time.monotonic() + 30
        while program.counts() != {"otlp_lost_spans": 0} and time.monotonic() < deadline:
            time.sleep(0.05)
        process.communicate("\n", 60)
    assert (received.names(), program.counts()) == (["rollout"], {"otlp_lost_spans": 0})


def test_an_endpoint_that_redirects_took_nothing_and_nothing_was_said(program: Program):
    with http_receiver() as received:
        received.status = 307
        said, _ = program.run(ROLLOUT, **to(received, "http/protobuf"))
    assert "redirects to" in said
    assert program.counts() == {"otlp_lost_spans": 4} and program.names() == STORED


def test_a_header_that_was_written_with_a_colon_was_printed_with_its_key(program: Program, protocol: str):
    with PROTOCOLS[protocol]() as received:
        said, _ = program.run(ROLLOUT, **to(received, protocol, OTEL_EXPORTER_OTLP_HEADERS="x-key: s3cr3t,x-team=rl"))
    assert "s3cr3t" not in said and "OTEL_EXPORTER_OTLP_HEADERS" in said
    assert received.names() == NAMES


def test_a_protocol_that_nobody_knows_is_said(program: Program):
    with http_receiver() as received:
        said, _ = program.run(ROLLOUT, **to(received, "foo"))
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=foo is not known" in said
    assert received.names() == NAMES


def test_a_flush_waits_no_longer_than_the_exit_would(program: Program):
    """force_flush after each call had added 90 s to a call of 3 s."""
    code = ROLLOUT + "\nfor _ in range(3): print(trace.get_tracer_provider().force_flush())\nassert otel_gym.flush()\n"
    endpoint = f"http://127.0.0.1:{free_port()}"
    _, took_s = program.run(code, **to(endpoint, "http/protobuf", OTEL_GYM_EXIT_TIMEOUT="0.5"))
    assert took_s < 6


def test_one_that_wants_no_store_opens_none_for_counters(program: Program):
    code = "import otel_gym\nfrom opentelemetry import trace\notel_gym.configure()\n"
    code += "trace.get_tracer('app').start_span('SELECT').end()\n"
    said, _ = program.run(code, **to(f"http://127.0.0.1:{free_port()}", "http/protobuf", OTEL_GYM_EXIT_TIMEOUT="0.5"))
    assert "do not reach" in said and not program.directory.exists()


def test_a_program_that_makes_no_span_starts_no_thread(program: Program):
    code = "import otel_gym, threading\notel_gym.configure()\nassert threading.active_count() == 1"
    program.run(code, **to("http://127.0.0.1:1", "grpc"))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_BSP_SCHEDULE_DELAY", "x"),
    ],
)
def test_a_wrong_value_of_a_standard_variable_is_said_and_costs_no_span_of_the_store(
    program: Program, protocol: str, variable: str, value: str
):
    with PROTOCOLS[protocol]() as received:
        said, _ = program.run(ROLLOUT, **to(received, protocol, **{variable: value}))
    assert value in said and program.names() == STORED


def test_credentials_of_the_endpoint_are_never_said(program: Program, protocol: str):
    endpoint = f"http://me:hunter2@127.0.0.1:{free_port()}?key=hunter3"
    said, _ = program.run(ROLLOUT, **to(endpoint, protocol, OTEL_GYM_EXIT_TIMEOUT="0.5"))
    assert "do not reach" in said and "hunter" not in said
    assert "hunter" not in json.dumps(program.counts())


def test_grpc_is_not_needed(program: Program):
    """A pure-Python bundle has none: the leg then speaks http/protobuf."""
    hide = "import sys\nsys.modules['grpc'] = None\n"
    with http_receiver() as received:
        said, _ = program.run(hide + ROLLOUT, OTEL_EXPORTER_OTLP_ENDPOINT=received.endpoint)
        assert (said, received.names()) == ("", NAMES)
        said, _ = program.run(hide + ROLLOUT, **to(received, "grpc"))
    assert "http/protobuf" in said and received.names() == NAMES


def test_its_own_requests_are_no_spans_where_requests_are_instrumented(program: Program):
    code = """
import requests
from opentelemetry import trace
from opentelemetry.instrumentation.utils import is_instrumentation_enabled
send = requests.Session.send
def traced(self, *arguments, **named):
    if is_instrumentation_enabled():
        trace.get_tracer("requests").start_span("POST").end()
    return send(self, *arguments, **named)
requests.Session.send = traced
"""
    with http_receiver() as received:
        program.run(code + ROLLOUT, **to(received, "http/protobuf"))
    assert received.names() == NAMES


def test_long_attributes_are_cut_and_marked(program: Program) -> None:
    code = ROLLOUT.replace('"SELECT"', '"SELECT", attributes={"db.query": "世" * 5000, "rows": list(range(9000))}')
    with http_receiver() as received:
        program.run(code, **to(received, "http/protobuf"))
    found: dict[str, Any] = received.one("SELECT")
    assert len(found["db.query"].encode()) <= 2000 and found["db.query"].endswith("…[cut, 15000 bytes]")
    assert found["rows"][:3] == [0, 1, 2] and len(found["rows"]) < 2000 / 8
    assert [each.partition("=")[0] for each in found["gym.otlp.cut"]] == ["db.query", "rows"]


def test_what_waits_is_bounded(program: Program):
    code = """
import otel_gym
with otel_gym.rollout(1, 0):
    for number in range(2000):
        with otel_gym.agent_step():
            pass
"""
    with http_receiver() as received:
        received.hang = threading.Event()
        bound = {"OTEL_GYM_QUEUE_BYTES": "2000000", "OTEL_GYM_EXIT_TIMEOUT": "0.5"}
        said, _ = program.run(code, **to(received, "http/protobuf", **bound))
    assert program.counts()["otlp_lost_spans"] == 2001 and "queue is full" in said
