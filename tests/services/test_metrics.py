"""The numbers of the dashboard, made from spans by the Collector, are those of the rollouts."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import httpx
import pytest

from otel_gym.store.reader import Store

from .conftest import awaited, lines_of, post, request_of, services

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


# Of each run of a tool: the class of its failure, or none.
TOOL_ERRORS = (None, None, "TimeoutError", None)


def tool_run(number: int, error: str | None) -> bytes:
    attributes = {"gym.rollout.id": "0-0", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_weather"}
    failed = {"error.type": error} if error else {}
    return request_of(
        name="execute_tool get_weather",
        spanId=format(number + 1, "016x"),
        resource={"service.name": "agent"},
        attributes={**attributes, **failed},
    )


def samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    found = [_SAMPLE.match(line) for line in text.splitlines() if line and not line.startswith("#")]
    return [(m[1], dict(re.findall(r'(\w+)="([^"]*)"', m[2] or "")), float(m[3])) for m in found if m]


@pytest.fixture(scope="module")
def scraped(
    collector_program: Path, demo_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[str, dict[str, str], float]]:
    collector = services.new_collector(tmp_path_factory.mktemp("metrics"), "rollout-store.yaml", "metrics.yaml")
    with services.running(collector):
        for line in lines_of(demo_store):
            post(collector.http_url, line)
        for number, error in enumerate(TOOL_ERRORS):
            post(collector.http_url, tool_run(number, error))
        text = awaited(lambda: "gym_rollout_reward" in (got := httpx.get(collector.metrics_url).text) and got)
        assert text, collector.service.said()
        return samples(text)


def by(scraped: list[tuple[str, dict[str, str], float]], name: str, label: str) -> dict[str, float]:
    totals: Counter[str] = Counter()
    for sample, labels, value in scraped:
        if sample == name:
            totals[labels.get(label, "")] += value
    return dict(totals)


def test_tokens_and_latency_count_each_captured_call_once(scraped, demo_store: Path) -> None:
    tokens_in, tokens_out, calls = Counter(), Counter(), Counter()
    for rollout in Store(demo_store).rollouts():
        for span in rollout.spans:
            if "gym.model_call.id" in span.attributes:
                model = span.attributes["gen_ai.request.model"]
                calls[model] += 1
                if "gen_ai.usage.input_tokens" in span.attributes:
                    tokens_in[model] += span.attributes["gen_ai.usage.input_tokens"]
                    tokens_out[model] += span.attributes["gen_ai.usage.output_tokens"]
    assert by(scraped, "gym_model_call_duration_seconds_count", "gen_ai_request_model") == dict(calls)
    assert by(scraped, "gym_tokens_input_total", "gen_ai_request_model") == dict(tokens_in)
    assert by(scraped, "gym_tokens_output_total", "gen_ai_request_model") == dict(tokens_out)
    assert sum(by(scraped, "gym_model_call_time_to_first_chunk_seconds_count", "gen_ai_request_model").values()) > 0
    assert any(by(scraped, "gym_model_call_duration_seconds_count", "error_type"))


def test_tools_count_and_their_errors_by_class(scraped) -> None:
    assert by(scraped, "gym_tool_duration_seconds_count", "gen_ai_tool_name") == {"get_weather": 4}
    assert by(scraped, "gym_tool_duration_seconds_count", "error_type") == {"": 3, "TimeoutError": 1}


def test_rewards_add_up_by_task(scraped, demo_store: Path) -> None:
    rewards = Counter()
    for rollout in Store(demo_store).rollouts():
        for span in rollout.spans:
            if span.name == "rollout" and "gym.reward" in span.attributes:
                rewards[str(span.attributes["gym.rollout.task_index"])] += span.attributes["gym.reward"]
    assert by(scraped, "gym_rollout_reward_sum", "gym_rollout_task_index") == dict(rewards)


def test_the_dashboard_asks_for_metrics_that_are_there(scraped) -> None:
    root = Path(__file__).parents[2]
    text = (root / "collector-config" / "grafana" / "dashboards" / "rollouts.json").read_text()
    asked = set(re.findall(r"\bgym_\w+?(?=[{\[ )])", text)) - {"gym_rollout_task_index"}
    there = {name for name, _, _ in scraped}
    assert asked and {name for name in asked if name not in there and not name.endswith("_id")} == set()
