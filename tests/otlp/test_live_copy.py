"""The OTLP copy of traced programs, whole, into ``otel-gym receive``: the records of the direct store."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_gym.store.reader import Store
from otel_gym.views.model_calls import model_call_records
from tests.otlp.conftest import Receive


def records(directory: Path) -> dict[str, list[str]]:
    store = Store(directory)
    found = {
        rollout.address: [each.model_dump_json() for each in model_call_records(rollout)]
        for rollout in store.rollouts()
    }
    assert store.damage == []
    return found


@pytest.mark.parametrize(("protocol", "compression"), [("grpc", "gzip"), ("grpc", None), ("http/protobuf", "gzip")])
def test_the_received_records_are_those_of_the_direct_store(
    tmp_path: Path, receive: Receive, protocol: str, compression: str | None
) -> None:
    receiver = receive()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | {
        "OTEL_GYM_OTLP_ATTRIBUTE_BYTES": "0",
        "OTEL_GYM_EXIT_TIMEOUT": "30",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{receiver.grpc}" if protocol == "grpc" else receiver.http,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
    }
    if compression:
        environment["OTEL_EXPORTER_OTLP_COMPRESSION"] = compression
    directory = tmp_path / "direct"
    command = [sys.executable, "-m", "otel_gym.cli", "demo", "--dir", str(directory), "--rollouts", "8"]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=180)
    code, said, problems = receiver.stop()
    assert (code, problems) == (0, ""), said
    assert records(receiver.directory) == records(directory)
