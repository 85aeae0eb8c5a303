"""Many machines: Collectors hand spans to Kafka, and gateways write the store from it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_gym.store.reader import Store

from .conftest import awaited, ids_of, lines_of, needed, parts, post, records_of, request_of, services

ROLLOUTS, SPANS = 40, 3


class Setup:
    """An agent's Collector, Kafka, and two gateways with one store."""

    def __init__(self, folder: Path) -> None:
        self.kafka = services.new_kafka(folder / "kafka")
        self.store = folder / "store"
        self.agent = self._collector(folder, "agent", "kafka-agent.yaml", folder / "none")
        self.gateways = [
            self._collector(folder, name, "kafka-gateway.yaml", self.store) for name in ("gateway-1", "gateway-2")
        ]

    def _collector(self, folder: Path, name: str, configuration: str, store: Path) -> Any:
        return services.new_collector(
            folder / name,
            "rollout-store.yaml",
            configuration,
            name=name,
            store=store,
            environment={"KAFKA_BROKERS": self.kafka.brokers},
        )


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    needed(parts.COLLECTOR, parts.KAFKA)
    made = Setup(tmp_path)
    with services.running(made.kafka, made.agent, *made.gateways):
        yield made


def test_a_gateway_and_an_agent_that_are_killed_lose_nothing(setup: Setup, demo_store: Path, tmp_path: Path) -> None:
    for line in lines_of(demo_store):
        post(setup.agent.http_url, line)
    assert awaited(lambda: ids_of(setup.store) == ids_of(demo_store), 60)
    assert records_of(setup.store) == records_of(demo_store)
    assert not (tmp_path / "none").exists()

    # Kafka's own limit is 1 MB a message, and the exporter drops a span that is larger than its batches.
    large = {"gym.rollout.id": "large", "gym.request.body": random.Random(1).randbytes(5_000_000).hex()}
    post(setup.agent.http_url, request_of(traceId="a" * 32, spanId="a" * 16, attributes=large))
    assert awaited(lambda: "large" in ids_of(setup.store), 60)
    [span] = Store(setup.store).spans("large")
    assert span.attributes["gym.request.body"] == large["gym.request.body"]

    wanted = Counter({name: len(ids) for name, ids in ids_of(setup.store).items()})
    for span in range(SPANS):
        for rollout in range(ROLLOUTS):
            post(
                setup.agent.http_url,
                request_of(
                    traceId=format(rollout * 7919 + 1, "032x"),
                    spanId=format(rollout * SPANS + span + 1, "016x"),
                    attributes={"gym.rollout.id": f"many-{rollout}"},
                ),
            )
            wanted[f"many-{rollout}"] += 1
        if span == 0:
            setup.gateways[0].service.kill()
            setup.agent.service.kill()
            setup.agent.service.start()
            setup.gateways[0].service.start()
    counted = awaited(lambda: {n: len(i) for n, i in ids_of(setup.store).items()} == wanted, 90)
    assert counted, {n: len(i) for n, i in ids_of(setup.store).items()}
    read = Counter((span.trace_id, span.span_id) for each in Store(setup.store).rollouts() for span in each.spans)
    assert set(read.values()) == {1}
