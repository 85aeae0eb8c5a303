"""From traced programs over OTLP to the real Collector, Jaeger and Kafka, and back from disk: nothing lost on the way.

    python bench/otlp_e2e.py [PART …]

Parts: records, large, jaeger, kafka, faults; without one, all of them. Starts the services itself, as `make services`
has built them, on free ports of 127.0.0.1. The last line is `N checks, N failed`; exit code 1 if any failed, 2 if a
service is not there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf.message import Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

import services
from otel_gym.store.reader import Store
from otel_gym.views.model_calls import model_call_records
from otlp_rollouts import SPANS
from service_parts import COLLECTOR, JAEGER, KAFKA, ROOT

# The end of a traced process waits for OTEL_GYM_EXIT_TIMEOUT (2 s) at most; the rest is Python's, on a busy machine.
EXIT_BOUND_S = 2.0 + 2.0
UNCUT = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY", "OTEL_GYM_OTLP_ATTRIBUTE_BYTES": "0"}
# For megabytes at once: what may wait for the endpoint, and how long the end may take to send it.
ROOMY = {"OTEL_GYM_QUEUE_BYTES": "400000000", "OTEL_GYM_EXIT_TIMEOUT": "60"}
HTTP = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
GRPC = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
GZIP = {"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}

Ids = dict[str, set[tuple[str, str]]]


@dataclass
class Checks:
    number: int = 0
    failed: int = 0

    def that(self, what: str, problem: str | None = None) -> None:
        """``problem``: None or empty where it holds."""
        self.number += 1
        self.failed += bool(problem)
        print(f"FAIL  {what}: {problem}" if problem else f"ok    {what}", flush=True)

    def same(self, what: str, found: Any, wanted: Any) -> None:
        self.that(what, None if found == wanted else f"{_short(found)} instead of {_short(wanted)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:200]}…"


# Programs that are traced


@dataclass
class Run:
    """A program that has ended; ``exit_s`` from the end of its work to its end."""

    returncode: int
    exit_s: float
    stderr: str


class Program:
    """otlp_rollouts.py as a process of its own, with a store of its own and an endpoint."""

    def __init__(self, store: Path, count: int, endpoint: Mapping[str, str], *arguments: str) -> None:
        environment = {**_plain(), "OTEL_GYM": "1", "OTEL_GYM_DIR": str(store), "OTEL_GYM_RUN_ID": "e2e", **endpoint}
        command = [sys.executable, str(ROOT / "bench" / "otlp_rollouts.py"), str(count), *arguments]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def end(self) -> Run:
        stdout, stderr = self.process.communicate(timeout=300)
        ended = time.time()
        exit_s = ended - float(stdout.split()[-1]) if stdout.split() else float("inf")
        return Run(self.process.returncode, exit_s, stderr)


def run_demo(store: Path, endpoint: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "otel_gym.cli", "demo", "--dir", str(store), "--rollouts", "8"]
    subprocess.run(command, env={**_plain(), **endpoint}, check=True, capture_output=True, timeout=300)


def _plain() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return {**kept, "PYTHONPATH": str(ROOT)}


# What stores hold


def ids_of(store: Path) -> Ids:
    found: Ids = {}
    if not (store / "spans").is_dir():
        return found
    for rollout in Store(store).rollouts():
        found.setdefault(rollout.rollout_id, set()).update((span.trace_id, span.span_id) for span in rollout.spans)
    return found


def records_of(store: Path) -> dict[str, Any]:
    return {
        rollout.rollout_id: [record.model_dump(mode="json") for record in model_call_records(rollout)]
        for rollout in Store(store).rollouts()
    }


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """In words; None for none."""
    missing, more = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    other = sorted(name for name in wanted.keys() & found.keys() if found[name] != wanted[name])
    said = []
    if missing:
        said.append(f"{len(missing)} missing, as {missing[0]}")
    if more:
        said.append(f"{len(more)} beyond, as {more[0]}")
    if other:
        said.append(f"{len(other)} differ, as {other[0]}: {_short(found[other[0]])}, {_short(wanted[other[0]])}")
    return "; ".join(said) or None


def lines_read_twice(store: Path) -> int:
    """Spans that stand in the files more than once, and are read once."""
    times = Counter(
        (span["traceId"], span["spanId"]) for path in store.glob("spans/*/*.jsonl") for span in _spans_of_lines(path)
    )
    return sum(count - 1 for count in times.values())


def _spans_of_lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines():
        try:
            document = json.loads(line)
        except ValueError:  # cut by a kill
            continue
        for resource in document["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                yield from scope["spans"]


def until(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (answer := holds()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return answer


def endpoint_of(url: str, *more: Mapping[str, str]) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": url, **{name: value for each in more for name, value in each.items()}}


# Parts


def check_records(checks: Checks, folder: Path) -> None:
    """Uncut and with content, what comes over OTLP gives the records of the direct store."""
    receiver = services.new_receiver(folder / "receive")
    collector = services.new_collector(folder / "collector", "rollout-store.yaml")
    ways = {
        "the Collector over HTTP": (collector, collector.http_url, (HTTP,)),
        "the Collector over gRPC, gzip": (collector, f"http://{collector.grpc_endpoint}", (GRPC, GZIP)),
        "otel-gym receive over HTTP": (receiver, receiver.http_url, (HTTP,)),
        "otel-gym receive over HTTP, gzip": (receiver, receiver.http_url, (HTTP, GZIP)),
        "otel-gym receive over gRPC": (receiver, f"http://{receiver.grpc_endpoint}", (GRPC,)),
        "otel-gym receive over gRPC, gzip": (receiver, f"http://{receiver.grpc_endpoint}", (GRPC, GZIP)),
    }
    with services.running(receiver, collector):
        for number, (way, (part, url, settings)) in enumerate(ways.items()):
            direct = folder / f"direct-{number}"
            run_demo(direct, {**endpoint_of(url, *settings, UNCUT), "OTEL_GYM_RUN_ID": f"run-{number}"})
            wanted, ids = records_of(direct), ids_of(direct)
            checks.that(
                f"demo → {way}: {sum(map(len, wanted.values()))} records",
                difference(_of_run(part.store, number), wanted),
            )
            checks.same(f"demo → {way}: none lost or refused", _lost(direct), {})
            arrived = {name: found & ids.get(name, set()) for name, found in ids_of(part.store).items()}
            checks.that(f"demo → {way}: {sum(map(len, ids.values()))} spans", difference(arrived, ids))


def check_large(checks: Checks, folder: Path) -> None:
    """Prompts that are larger than the usual message, where sender and receiver are told to take them."""
    collector = services.new_collector(folder / "collector", "rollout-store.yaml")
    larger = {"OTEL_GYM_OTLP_BATCH_BYTES": "15000000", **ROOMY}
    direct, count = folder / "direct", 3
    with services.running(collector):
        for way, url, protocol in (
            ("HTTP", collector.http_url, HTTP),
            ("gRPC", f"http://{collector.grpc_endpoint}", GRPC),
        ):
            first = "0" if protocol is HTTP else str(count)
            program = Program(
                direct / way,
                count,
                endpoint_of(url, protocol, UNCUT, larger),
                "--prompt-bytes",
                "6000000",
                "--first",
                first,
            )
            checks.same(f"prompts of 6 MB over {way}: the program ends well", program.end().returncode, 0)
            wanted = records_of(direct / way)
            found = {name: records for name, records in records_of(collector.store).items() if name in wanted}
            checks.that(f"prompts of 6 MB over {way}: whole", difference(found, wanted))
            checks.same(f"prompts of 6 MB over {way}: none lost or refused", _lost(direct / way), {})


def _of_run(store: Path, number: int) -> dict[str, Any]:
    """The records of one demo among those that the store holds."""
    return {
        rollout.rollout_id: [record.model_dump(mode="json") for record in model_call_records(rollout)]
        for rollout in Store(store).rollouts()
        if rollout.run_id == f"run-{number}"
    }


def _lost(store: Path) -> dict[str, int]:
    return {name: count for name, count in Store(store).counts().items() if name.startswith("otlp_") and count}


def check_jaeger(checks: Checks, folder: Path) -> None:
    """The slim copy in Jaeger, whether the program sends it or the Collector makes it, with prompts of 1 MB."""
    jaeger = services.new_jaeger(folder / "jaeger")
    collector = services.new_collector(
        folder / "collector",
        "rollout-store.yaml",
        "slim-copy.yaml",
        environment={"JAEGER_ENDPOINT": jaeger.grpc_endpoint},
        settings=("service::pipelines::traces/slim::exporters=[otlp_grpc/jaeger]",),
    )
    straight = f"http://{jaeger.grpc_endpoint}"
    ways = {
        "slim, straight to Jaeger over gRPC": (straight, (GRPC,)),
        "slim, straight to Jaeger over HTTP": (jaeger.http_url, (HTTP,)),
        "whole, straight to Jaeger": (straight, (GRPC, UNCUT, ROOMY)),
        "whole, by the Collector": (f"http://{collector.grpc_endpoint}", (GRPC, UNCUT, ROOMY)),
    }
    with services.running(jaeger, collector):
        for number, (way, (url, settings)) in enumerate(ways.items()):
            store, first = folder / f"direct-{number}", str(100 * number)
            name = {"OTEL_SERVICE_NAME": f"e2e-{number}"}
            program = Program(
                store, 12, endpoint_of(url, *settings, name), "--prompt-bytes", "1000000", "--first", first
            )
            run = program.end()
            checks.same(f"{way}: the program ends well", run.returncode, 0)
            wanted = ids_of(store)
            until(lambda: difference(_in_jaeger(jaeger, f"e2e-{number}", wanted), wanted) is None, 30)  # noqa: B023
            found = _in_jaeger(jaeger, f"e2e-{number}", wanted)
            checks.that(
                f"{way}: each of 12 rollouts is found by its id with all {SPANS} spans", difference(found, wanted)
            )
            checks.same(f"{way}: none lost or refused", _lost(store), {})
            if url != straight and "Collector" in way:
                checks.that(
                    f"{way}: the store has the records whole",
                    difference(records_of(collector.store), records_of(store)),
                )
        for tags, wanted_count in (({"gym.reward": "0"}, 6), ({"gym.reward": "1"}, 6), ({"gym.run.id": "e2e"}, 12)):
            found = services.jaeger_traces(jaeger, "e2e-0", tags)
            checks.same(f"Jaeger finds by {tags}", len(found), wanted_count)
        said = [line for line in collector.service.said().splitlines() if "error" in line.split("\t")[1:2]]
        checks.same("the Collector refused and dropped nothing", said, [])


def _in_jaeger(jaeger: services.Jaeger, service: str, rollout_ids: Any) -> Ids:
    """By rollout, by the tag; one trace each."""
    found: Ids = {}
    for rollout_id in rollout_ids:
        traces = services.jaeger_traces(jaeger, service, {"gym.rollout.id": rollout_id})
        if len(traces) == 1:
            found[rollout_id] = {(traces[0]["traceID"], span["spanID"]) for span in traces[0]["spans"]}
    return found


def check_kafka(checks: Checks, folder: Path) -> None:
    """1,000 rollouts of four programs through Kafka to two gateways, one of which is killed in the middle."""
    kafka = services.new_kafka(folder / "kafka")
    brokers = {"KAFKA_BROKERS": kafka.brokers}
    agent = services.new_collector(
        folder / "agent", "rollout-store.yaml", "kafka-agent.yaml", name="agent", environment=brokers
    )
    store = folder / "gateways"
    gateways = [
        services.new_collector(
            folder / name, "rollout-store.yaml", "kafka-gateway.yaml", name=name, store=store, environment=brokers
        )
        for name in ("gateway-1", "gateway-2")
    ]
    programs = 4
    directs = [folder / f"direct-{number}" for number in range(programs)]
    with services.running(kafka, agent, *gateways):
        endpoint = endpoint_of(f"http://{agent.grpc_endpoint}", GRPC, UNCUT)
        running = [
            Program(direct, 250, endpoint, "--first", str(250 * number), "--pause", "0.02")
            for number, direct in enumerate(directs)
        ]
        checks.that("Kafka: rollouts arrive", None if until(lambda: _rollouts_in(store) >= 300, 120) else "too slow")
        gateways[0].service.kill()
        at_kill = _rollouts_in(store)
        time.sleep(5)
        gateways[0].service.start()
        runs = [program.end() for program in running]
        checks.same("Kafka: the programs end well", [run.returncode for run in runs], [0] * programs)
        wanted = {name: ids for direct in directs for name, ids in ids_of(direct).items()}
        checks.same("Kafka: the programs lost nothing", [_lost(direct) for direct in directs], [{}] * programs)
        until(lambda: sum(map(len, ids_of(store).values())) >= SPANS * 1000, 180)
    found = ids_of(store)
    checks.same("Kafka: spans of 1,000 rollouts", sum(map(len, wanted.values())), SPANS * 1000)
    checks.that(f"Kafka: every rollout whole, one gateway killed at {at_kill} of them", difference(found, wanted))
    read = Counter((span.trace_id, span.span_id) for rollout in Store(store).rollouts() for span in rollout.spans)
    checks.same("Kafka: each span is read once", set(read.values()), {1})
    writers = Counter(path.name for path in store.glob("spans/*/*.jsonl"))
    checks.same("Kafka: both gateways wrote", set(writers), {"collector-gateway-1.jsonl", "collector-gateway-2.jsonl"})
    records = {name: each for direct in directs for name, each in records_of(direct).items()}
    checks.that("Kafka: records of 1,000 rollouts", difference(records_of(store), records))
    print(f"      files by gateway {dict(writers)}; spans written twice, read once: {lines_read_twice(store)}")


def _rollouts_in(store: Path) -> int:
    return sum(1 for _ in store.glob("spans/rollout_id=*"))


def check_faults(checks: Checks, folder: Path) -> None:
    """Whatever an endpoint does: the store is complete, the exit bounded, what did not arrive counted."""
    _check_restart(checks, folder / "restart")
    _check_hang(checks, folder / "hang")
    [port] = services.free_ports(1)
    _check_fault(checks, folder / "refused", "nobody listens", f"http://127.0.0.1:{port}", lost=5 * SPANS)
    for answer in (429, 503, 400):
        with answering([answer]) as endpoint:
            _check_fault(checks, folder / str(answer), f"always {answer}", endpoint.url, lost=5 * SPANS)
    for answer in (429, 503):
        with answering([answer, 200]) as endpoint:
            patient = {"OTEL_GYM_EXIT_TIMEOUT": "10"}  # the exporter waits for a second or so before it tries again
            _check_fault(checks, folder / f"{answer}-once", f"{answer} once", endpoint.url, settings=patient)
            checks.same(f"{answer} once: all arrives", endpoint.spans, 5 * SPANS)
    with answering([200], refused=3) as endpoint:
        _check_fault(checks, folder / "partial", "partial success", endpoint.url, refused=3)
        checks.same("partial success: nothing is sent again", endpoint.spans, 5 * SPANS)


def _check_fault(
    checks: Checks,
    folder: Path,
    what: str,
    url: str,
    lost: int = 0,
    refused: int = 0,
    settings: Mapping[str, str] | None = None,
) -> None:
    rollouts = 5
    run = Program(folder / "store", rollouts, endpoint_of(url, HTTP, settings or {})).end()
    _check_program(checks, what, run, folder / "store", rollouts)
    counted = {name: n for name, n in (("otlp_lost_spans", lost), ("otlp_refused_spans", refused)) if n}
    checks.same(f"{what}: what did not arrive is counted", _lost(folder / "store"), counted)
    said = [line for line in run.stderr.splitlines() if "OTLP" in line]
    checks.same(f"{what}: and said once", len(said), int(bool(counted)))


def _check_program(checks: Checks, what: str, run: Run, store: Path, rollouts: int) -> None:
    checks.same(f"{what}: the program ends well", run.returncode, 0)
    checks.that(
        f"{what}: its exit takes {run.exit_s:.1f} s", None if run.exit_s <= EXIT_BOUND_S else f"over {EXIT_BOUND_S} s"
    )
    sizes = {name: len(ids) for name, ids in ids_of(store).items()}
    checks.that(f"{what}: the store is complete", difference(sizes, {f"{n}-0": SPANS for n in range(rollouts)}))


def _check_restart(checks: Checks, folder: Path) -> None:
    collector = services.new_collector(folder / "collector", "rollout-store.yaml")
    what, rollouts = "the Collector is killed and restarted", 60
    with services.running(collector):
        program = Program(folder / "direct", rollouts, endpoint_of(collector.http_url, HTTP), "--pause", "0.1")
        until(lambda: _rollouts_in(collector.store) >= 15, 60)
        collector.service.kill()
        time.sleep(1.5)
        collector.service.start()
        run = program.end()
    _check_program(checks, what, run, folder / "direct", rollouts)
    direct, arrived = ids_of(folder / "direct"), ids_of(collector.store)
    sent = sum(map(len, direct.values()))
    got = sum(len(ids & direct[name]) for name, ids in arrived.items() if name in direct)
    lost = _lost(folder / "direct").get("otlp_lost_spans", 0)
    # A request that was killed while it was written may have arrived all the same, and may be counted as lost.
    checks.that(
        f"{what}: {got} of {sent} arrived, {lost} counted as lost",
        None if sent - lost <= got <= sent else "these do not add up",
    )


def _check_hang(checks: Checks, folder: Path) -> None:
    collector = services.new_collector(folder / "collector", "rollout-store.yaml")
    what, rollouts = "the Collector hangs", 5
    with services.running(collector):
        collector.service.pause()
        try:
            run = Program(folder / "direct", rollouts, endpoint_of(collector.http_url, HTTP)).end()
        finally:
            collector.service.resume()
    _check_program(checks, what, run, folder / "direct", rollouts)
    checks.same(f"{what}: counted", _lost(folder / "direct"), {"otlp_lost_spans": rollouts * SPANS})


# An endpoint that answers as it is told


@dataclass
class Endpoint:
    """Gives ``answers`` in this order, the last one for ever; ``spans`` counts those that it took."""

    answers: list[int]
    refused: int
    url: str = ""
    spans: int = 0
    asked: int = 0
    lock: Any = field(default_factory=threading.Lock)

    def answer(self, body: bytes) -> tuple[int, Message]:
        response = ExportTraceServiceResponse()
        with self.lock:
            status = self.answers[min(self.asked, len(self.answers) - 1)]
            self.asked += 1
            if status == 200:
                self.spans += _spans_in(body)
                response.partial_success.rejected_spans, self.refused = self.refused, 0
        return status, response


def _spans_in(body: bytes) -> int:
    request = ExportTraceServiceRequest.FromString(body)
    return sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans)


@contextmanager
def answering(answers: list[int], refused: int = 0) -> Iterator[Endpoint]:
    endpoint = Endpoint(answers, refused)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, response = endpoint.answer(self.rfile.read(int(self.headers["content-length"])))
            content = response.SerializeToString()
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield endpoint
    finally:
        server.shutdown()


PARTS: dict[str, tuple[Callable[[Checks, Path], None], tuple[Any, ...]]] = {
    "records": (check_records, (COLLECTOR,)),
    "large": (check_large, (COLLECTOR,)),
    "jaeger": (check_jaeger, (COLLECTOR, JAEGER)),
    "kafka": (check_kafka, (COLLECTOR, KAFKA)),
    "faults": (check_faults, (COLLECTOR,)),
}


def main() -> int:
    chosen = sys.argv[1:] or list(PARTS)
    unknown = [name for name in chosen if name not in PARTS]
    if unknown:
        print(f"no part {unknown[0]}: one of {', '.join(PARTS)}", file=sys.stderr)
        return 2
    lacking = {service.lacks() for name in chosen for service in PARTS[name][1]} - {None}
    if lacking:
        print(*sorted(map(str, lacking)), sep="\n", file=sys.stderr)
        return 2
    checks = Checks()
    for name in chosen:
        started = time.monotonic()
        with TemporaryDirectory(prefix=f"otlp-e2e-{name}-") as folder:
            PARTS[name][0](checks, Path(folder))
        print(f"      {name}: {time.monotonic() - started:.0f} s", flush=True)
    print(f"{checks.number} checks, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
