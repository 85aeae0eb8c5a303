"""``otel-gym receive``: spans a second from the network into the store, beside its peers.

    python bench/receive.py [--rounds N] [--spans N]

Spans of 4 kB on average in messages below 4 MiB, over gRPC by 4 senders at a time, each told when its spans are stored.
Arms take turns; a ratio is the median of the rounds'. Peers: in one process, what protobuf and its official JSON cost
for the same messages, written to one file; and, where `make services` has built it, the Collector with
collector-config/rollout-store.yaml, which writes the same store.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

import services
from otel_gym.store.span import StoredSpan
from otel_gym.views.otlp.messages import Message, SentForm, Told, messages_of
from service_parts import COLLECTOR
from spans import attribute_sets
from table import Figure, print_table

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SENDERS = 4
OFFICIAL = "protobuf and its official JSON, one file"
# Network, filing by rollout, redaction and content once included, no slower than parsing and writing alone.
GREATEST_RATIO = 1.2

Arm = Callable[[list[Message]], float]


def messages(count: int) -> list[Message]:
    resource = {"service.name": "policy", "host.name": "a"}
    spans = [
        StoredSpan(
            f"{number // 20 + 1:032x}",
            f"{number + 1:016x}",
            None if number % 20 == 0 else f"{number - number % 20 + 1:016x}",
            "chat policy-model",
            3,
            1_790_000_000_000_000_000 + number,
            1_790_000_000_001_000_000 + number,
            attributes,
            resource=resource,
            scope_name="bench",
        )
        for number, attributes in enumerate(attribute_sets(count, count // 100))
    ]
    return list(messages_of(spans, SentForm(0, True, 3_900_000), Told()))


def official_json(sent: list[Message]) -> float:
    """Seconds of one process, without a network."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w") as file:
        for message in sent:
            file.write(MessageToJson(TracesData.FromString(message.content), indent=None) + "\n")
    return time.perf_counter() - began


def seconds_to_send(address: str, sent: list[Message]) -> float:
    channels = [grpc.insecure_channel(address) for _ in range(SENDERS)]
    exports = [channel.unary_unary(METHOD) for channel in channels]
    exports[0](b"")  # connected
    began = time.perf_counter()
    with ThreadPoolExecutor(SENDERS) as pool:
        for done in [pool.submit(exports[n % SENDERS], each.content) for n, each in enumerate(sent)]:
            done.result()
    took = time.perf_counter() - began
    for channel in channels:
        channel.close()
    return took


def receiver(sent: list[Message]) -> float:
    with _running_receiver() as address:
        return seconds_to_send(address, sent)


@contextmanager
def _running_receiver() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="otel_gym_receive_") as store:
        command = [sys.executable, "-m", "otel_gym.cli", "receive", "--http", "0", "--grpc", "0", "--dir", store]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            found = re.search(r" and (\S+) ", process.stdout.readline())
            assert found is not None
            yield found[1]
        finally:
            process.terminate()
            process.communicate()


def collector(sent: list[Message]) -> float:
    with tempfile.TemporaryDirectory(prefix="otel_gym_collector_") as folder:
        made = services.new_collector(Path(folder), "rollout-store.yaml")
        with services.running(made):
            return seconds_to_send(made.grpc_endpoint, sent)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spans", type=int, default=20_000)
    options = parser.parse_args()
    sent = messages(options.spans)
    arms: dict[str, Arm] = {"otel-gym receive": receiver, OFFICIAL: official_json}
    if COLLECTOR.lacks() is None:
        arms["the Collector"] = collector
    else:
        print(f"left out: the Collector, {COLLECTOR.lacks()}")
    took: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(options.rounds):
        for name in list(arms)[number % len(arms) :] + list(arms)[: number % len(arms)]:
            took[name].append(arms[name](sent))
    size = sum(len(message.content) for message in sent)
    ours = took.pop("otel-gym receive")
    figures = [
        Figure(
            "spans a second that `otel-gym receive` stores and acknowledges",
            f"{options.spans / statistics.median(ours):,.0f} ({size / options.spans / 1000:.1f} kB each)",
        )
    ]
    for name, theirs in took.items():
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        rate = options.spans / statistics.median(theirs)
        value = f"{statistics.median(ratios):.2f} ({rate:,.0f} spans a second)"
        goal, ok = "-", True
        if name == OFFICIAL:
            goal, ok = f"<= {GREATEST_RATIO}", statistics.median(ratios) <= GREATEST_RATIO
        figures.append(Figure(f"`otel-gym receive`, times of {name}", value, goal, ok))
    return print_table(figures)


if __name__ == "__main__":
    sys.exit(main())
