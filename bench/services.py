"""Starts the real parts on free ports of 127.0.0.1, with the configurations of collector-config/, and ends them by pid.

    with services.jaeger(folder) as jaeger, services.collector(folder, "rollout-store.yaml") as collector: ...

ServiceError: a part does not come up, with the last lines that it said. What is not built here is not started:
ask ``service_parts.JAEGER.lacks()`` before.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from service_parts import COLLECTOR, JAEGER, KAFKA, ROOT

CONFIGURATIONS = ROOT / "collector-config"
START_S = 90.0
STOP_S = 30.0
TAIL_LINES = 15


class ServiceError(Exception):
    """A part did not start or did not answer; the text says what it said last."""


class Service:
    """One process: started, killed, started again with the same folder and ports. ``is_up`` asks it."""

    def __init__(
        self, name: str, folder: Path, command: list[str], environment: Mapping[str, str], is_up: Callable[[], bool]
    ) -> None:
        self.name = name
        self.folder = folder
        self.log = folder / f"{name}.log"
        self._command = command
        self._environment = {**_plain_environment(), **environment}
        self._is_up = is_up
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Until it answers. Raises ServiceError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_S
        while not self._is_up():
            if self._process.poll() is not None:
                raise ServiceError(f"{self.name} ended with {self._process.returncode}:\n{self._last_lines()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ServiceError(f"{self.name} did not answer within {START_S:g} s:\n{self._last_lines()}")
            time.sleep(0.1)

    def stop(self) -> None:
        """As its operator would: SIGTERM, and what is in memory is written."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As the system would: SIGKILL."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """It keeps its ports and answers nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _last_lines(self) -> str:
        return "\n".join(self.said().splitlines()[-TAIL_LINES:])


@dataclass(frozen=True, slots=True)
class Jaeger:
    service: Service
    grpc_endpoint: str
    http_url: str
    query_url: str


@dataclass(frozen=True, slots=True)
class Collector:
    service: Service
    grpc_endpoint: str
    http_url: str
    store: Path
    metrics_url: str


@dataclass(frozen=True, slots=True)
class Kafka:
    service: Service
    brokers: str


def new_jaeger(folder: Path) -> Jaeger:
    """Not started."""
    grpc, http, query, query_grpc, health = (f"127.0.0.1:{port}" for port in free_ports(5))
    environment = {
        "JAEGER_GRPC_ENDPOINT": grpc,
        "JAEGER_HTTP_ENDPOINT": http,
        "JAEGER_QUERY_ENDPOINT": query,
        "JAEGER_QUERY_GRPC_ENDPOINT": query_grpc,
        "JAEGER_HEALTH_ENDPOINT": health,
    }
    command = [str(JAEGER.path), "--config", str(CONFIGURATIONS / "jaeger.yaml")]
    service = Service("jaeger", folder, command, environment, lambda: _answers(f"http://{query}/api/services"))
    return Jaeger(service, grpc, f"http://{http}", f"http://{query}")


def new_collector(
    folder: Path,
    *configurations: str,
    name: str = "collector",
    store: Path | None = None,
    environment: Mapping[str, str] | None = None,
    settings: tuple[str, ...] = (),
) -> Collector:
    """Not started. ``configurations`` of collector-config/, laid over each other; ``settings``: for ``--set``."""
    grpc, http, health, metrics = (f"127.0.0.1:{port}" for port in free_ports(4))
    store = store or folder / "store"
    ours = {
        "OTLP_GRPC_ENDPOINT": grpc,
        "OTLP_HTTP_ENDPOINT": http,
        "HEALTH_ENDPOINT": health,
        "METRICS_ENDPOINT": metrics,
        "QUEUE_DIR": str(folder / f"{name}-queue"),
        "OTEL_GYM_DIR": str(store),
        "COLLECTOR_NAME": name,
    }
    command = [str(COLLECTOR.path), *collector_arguments(configurations, settings)]
    service = Service(name, folder, command, {**ours, **(environment or {})}, lambda: _answers(f"http://{health}/"))
    return Collector(service, grpc, f"http://{http}", store, f"http://{metrics}/metrics")


def collector_arguments(configurations: tuple[str, ...], settings: tuple[str, ...] = ()) -> list[str]:
    arguments = [f"--config={CONFIGURATIONS / name}" for name in configurations]
    return arguments + [f"--set={setting}" for setting in settings]


def new_kafka(folder: Path, partitions: int = 4) -> Kafka:
    """Not started; its storage is formatted. One process in KRaft mode, topics made when first written to."""
    broker, controller = (f"127.0.0.1:{port}" for port in free_ports(2))
    folder.mkdir(parents=True, exist_ok=True)
    properties = folder / "server.properties"
    properties.write_text(
        (ROOT / "tests/services/kafka/server.properties")
        .read_text()
        .format(broker=broker, controller=controller, logs=folder / "kafka-logs", partitions=partitions)
    )
    java = ["java", "-cp", f"{KAFKA.path}/*"]
    storage = [*java, "kafka.tools.StorageTool", "format", "-t", "bW9kZXJhdGVseXJhbmRvbQ", "-c", str(properties)]
    done = subprocess.run(storage, env=_plain_environment(), capture_output=True, text=True)
    if done.returncode != 0:
        raise ServiceError(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")
    command = [java[0], "-Xmx512m", *java[1:], "kafka.Kafka", str(properties)]
    return Kafka(Service("kafka", folder, command, {}, lambda: _accepts(broker)), broker)


@dataclass(frozen=True, slots=True)
class Receiver:
    """`otel-gym receive`, the embedded one."""

    service: Service
    grpc_endpoint: str
    http_url: str
    store: Path


def new_receiver(folder: Path) -> Receiver:
    """Not started."""
    http, grpc = free_ports(2)
    store = folder / "store"
    command = [sys.executable, "-m", "otel_gym.cli", "receive", "--http", str(http), "--grpc", str(grpc)]
    service = Service(
        "receive",
        folder,
        [*command, "--dir", str(store)],
        {"PYTHONPATH": str(ROOT)},
        lambda: _accepts(f"127.0.0.1:{http}") and _accepts(f"127.0.0.1:{grpc}"),
    )
    return Receiver(service, f"127.0.0.1:{grpc}", f"http://127.0.0.1:{http}", store)


@contextmanager
def running(*parts: Jaeger | Collector | Kafka | Receiver) -> Iterator[None]:
    """Starts them in this order, and ends them in the other."""
    with ExitStack() as stack:
        for part in parts:
            stack.callback(part.service.stop)
            part.service.start()
        yield


def free_ports(count: int) -> list[int]:
    """All are held at once, so that none comes twice."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def _accepts(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), 2):
            return True
    except OSError:
        return False


def _plain_environment() -> dict[str, str]:
    """The parts are traced by nobody."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}


def jaeger_traces(jaeger: Jaeger, service: str, tags: Mapping[str, str], limit: int = 1000) -> list[dict[str, Any]]:
    """By Jaeger's query API; of all times."""
    params = {"service": service, "tags": json.dumps(dict(tags)), "limit": limit, "start": 1}
    answer = httpx.get(f"{jaeger.query_url}/api/traces", params=params, timeout=60)
    answer.raise_for_status()
    traces: list[dict[str, Any]] = answer.json()["data"] or []
    return traces
