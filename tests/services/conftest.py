"""The real Collector, Jaeger and Kafka, where `make services` has built them; a demo's spans to send through them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from otel_gym.store.reader import Store
from otel_gym.views.model_calls import model_call_records

BENCH = Path(__file__).parents[2] / "bench"

ROLLOUTS = 8


def of_bench(name: str) -> Any:
    """A module of bench/, whose own folder is on the path only while it is loaded."""
    sys.path.append(str(BENCH))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(BENCH))


parts = of_bench("service_parts")
services = of_bench("services")


def needed(*wanted: Any) -> None:
    for part in wanted:
        lacking = part.lacks()
        if lacking is not None:
            pytest.skip(lacking)


@pytest.fixture(scope="session")
def collector_program() -> Path:
    needed(parts.COLLECTOR)
    path: Path = parts.COLLECTOR.path
    return path


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `otel-gym demo` leaves it, every body whole in its line."""
    directory = tmp_path_factory.mktemp("demo") / "store"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    command = [sys.executable, "-m", "otel_gym.cli", "demo", "--dir", str(directory), "--rollouts", str(ROLLOUTS)]
    subprocess.run(
        command, env={**environment, "OTEL_GYM_CONTENT_ONCE": "0"}, check=True, capture_output=True, timeout=120
    )
    return directory


def lines_of(store: Path) -> Iterator[bytes]:
    """The store's lines: each is an OTLP/JSON request."""
    for path in sorted(store.glob("spans/*/*.jsonl")):
        yield from path.read_bytes().splitlines()


def post(url: str, body: bytes) -> httpx.Response:
    answer = httpx.post(f"{url}/v1/traces", content=body, headers={"content-type": "application/json"}, timeout=30)
    answer.raise_for_status()
    return answer


def post_store(url: str, store: Path) -> None:
    for line in lines_of(store):
        post(url, line)


def ids_of(store: Path) -> dict[str, set[tuple[str, str]]]:
    """Trace and span ids by rollout id."""
    if not (store / "spans").exists():
        return {}
    found: dict[str, set[tuple[str, str]]] = {}
    for rollout in Store(store).rollouts():
        found.setdefault(rollout.rollout_id, set()).update((span.trace_id, span.span_id) for span in rollout.spans)
    return found


def awaited(ask: Callable[[], Any], seconds: float = 30) -> Any:
    """The first answer that is true, else the last one."""
    deadline = time.monotonic() + seconds
    while not (found := ask()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def request_of(**span: Any) -> bytes:
    """One span as an OTLP/JSON request; ``resource`` and ``attributes`` are plain dicts of strings."""
    resource, attributes = span.pop("resource", {}), span.pop("attributes", {})
    times = {"startTimeUnixNano": "1000000000", "endTimeUnixNano": "2000000000"}
    one = {"name": "chat m", "traceId": "0" * 31 + "1", **times, **span, "attributes": typed(attributes)}
    scope = {"scope": {"name": "test"}, "spans": [one]}
    return json.dumps(
        {"resourceSpans": [{"resource": {"attributes": typed(resource)}, "scopeSpans": [scope]}]}
    ).encode()


def typed(attributes: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]


def records_of(store: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        rollout.rollout_id: [record.model_dump(mode="json") for record in model_call_records(rollout)]
        for rollout in Store(store).rollouts()
    }
