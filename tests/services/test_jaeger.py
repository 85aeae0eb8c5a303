"""The slim copy in the real Jaeger: every span, found by rollout id, nothing of the content."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from otel_gym.store.reader import Store

from .conftest import awaited, ids_of, needed, parts, post, post_store, request_of, services

JAEGER_ALONE = ("service::pipelines::traces/slim::exporters=[otlp_grpc/jaeger]",)


class Setup:
    """A Collector that writes the store and hands the slim copy to Jaeger."""

    def __init__(self, folder: Path, *more: str, environment: dict[str, str] | None = None) -> None:
        self.jaeger = services.new_jaeger(folder)
        self.collector = services.new_collector(
            folder,
            "rollout-store.yaml",
            "slim-copy.yaml",
            *more,
            environment={"JAEGER_ENDPOINT": self.jaeger.grpc_endpoint, **(environment or {})},
            settings=JAEGER_ALONE,
        )

    def traces(self, service: str, rollout_id: str) -> list[dict[str, Any]]:
        return services.jaeger_traces(self.jaeger, service, {"gym.rollout.id": rollout_id})


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setup]:
    needed(parts.COLLECTOR, parts.JAEGER)
    made = Setup(tmp_path_factory.mktemp("jaeger"))
    with services.running(made.jaeger, made.collector):
        yield made


def spans_of(traces: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(trace["traceID"], span["spanID"]): span for trace in traces for span in trace["spans"]}


def tags_of(span: dict[str, Any]) -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in span["tags"]}


def test_each_rollout_is_found_by_its_id_with_every_span_and_no_content(setup: Setup, demo_store: Path) -> None:
    post_store(setup.collector.http_url, demo_store)
    wanted = ids_of(demo_store)
    for rollout_id, ids in wanted.items():
        found = awaited(lambda: spans_of(setup.traces("otel-gym-demo", rollout_id)).keys() >= ids, 20)  # noqa: B023
        assert found, rollout_id
    spans = spans_of(setup.traces("otel-gym-demo", "0-0"))
    [root] = [span for span in spans.values() if span["operationName"] == "rollout"]
    assert tags_of(root)["gym.reward"] == 1.0
    keys = {key for span in spans.values() for key in tags_of(span)}
    assert "gen_ai.usage.input_tokens" in keys
    assert not {key for key in keys if "body" in key and not key.endswith("size")} - {"http.request.body.size"}
    assert not keys & {"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.arguments"}
    assert ids_of(setup.collector.store) == wanted


def test_a_batch_of_prompts_of_a_megabyte_arrives_cut_and_none_is_refused(setup: Setup) -> None:
    for number in range(12):
        attributes = {"gym.rollout.id": "big", "gym.request.body": "p" * 1_000_000, "other.text": "o" * 1_000_000}
        resource = {"service.name": "big-prompts"}
        post(
            setup.collector.http_url,
            request_of(spanId=format(number + 1, "016x"), resource=resource, attributes=attributes),
        )
    spans = awaited(lambda: len(found := spans_of(setup.traces("big-prompts", "big"))) == 12 and found, 20)
    assert spans, setup.collector.service.said()
    for span in spans.values():
        assert tags_of(span)["other.text"] == "o" * (2000 - len("… (cut)".encode())) + "… (cut)"
    assert len(list(Store(setup.collector.store).spans("big"))) == 12


def test_a_jaeger_that_is_down_holds_up_nothing_and_gets_all_of_it_later(tmp_path: Path, demo_store: Path) -> None:
    needed(parts.COLLECTOR, parts.JAEGER)
    made = Setup(tmp_path)
    wanted = ids_of(demo_store)
    with services.running(made.collector):
        post_store(made.collector.http_url, demo_store)
        assert ids_of(made.collector.store) == wanted
        made.collector.service.kill()
        made.collector.service.start()
        with services.running(made.jaeger):
            for rollout_id, ids in wanted.items():
                found = awaited(lambda: spans_of(made.traces("otel-gym-demo", rollout_id)).keys() >= ids, 60)  # noqa: B023
                assert found, rollout_id


def test_tail_sampling_keeps_failures_and_low_rewards_and_the_store_keeps_all(tmp_path: Path) -> None:
    needed(parts.COLLECTOR, parts.JAEGER)
    made = Setup(tmp_path, "tail-sampling.yaml", environment={"ROLLOUT_TIMEOUT": "2s", "ROLLOUT_SETTLE": "1s"})
    with services.running(made.jaeger, made.collector):
        for number in range(60):
            post(made.collector.http_url, rollout_of(number))
        assert len(ids_of(made.collector.store)) == 60
        wanted = {f"{number}-0" for number in range(40)}
        arrived = awaited(lambda: wanted <= (found := sampled(made)) and found)
    assert arrived, made.collector.service.said()
    assert len(arrived) < 40 + 12, "of 20 that went well, about 2"


def rollout_of(number: int) -> bytes:
    """Rollouts 0 to 19 failed, 20 to 39 have a low reward, the others went well."""
    body = json.loads(
        request_of(
            name="rollout",
            traceId=format(number * 7919 + 1, "032x"),
            spanId=format(number + 1, "016x"),
            resource={"service.name": "sampled"},
            attributes={"gym.rollout.id": f"{number}-0"},
        )
    )
    [span] = body["resourceSpans"][0]["scopeSpans"][0]["spans"]
    span["attributes"].append({"key": "gym.reward", "value": {"doubleValue": 0.0 if 20 <= number < 40 else 1.0}})
    if number < 20:
        span["status"] = {"code": 2}
    return json.dumps(body).encode()


def sampled(made: Setup) -> set[str]:
    answer = httpx.get(f"{made.jaeger.query_url}/api/traces", params={"service": "sampled", "limit": 1000, "start": 1})
    return {tags_of(span)["gym.rollout.id"] for trace in answer.json()["data"] or [] for span in trace["spans"]}
