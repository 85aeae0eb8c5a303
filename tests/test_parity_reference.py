"""bench/parity_model_calls.py looks at the whole of a streamed response: whatever is dropped from it is noticed."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from otel_gym.wire import Exchange, parse_exchange

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    yield importlib.import_module("parity_model_calls")
    for name in ("parity_model_calls", "parity_traffic", "reference", "captured", "scripted"):
        sys.modules.pop(name, None)


def traffic_and_response(script, case):
    http = json.loads((ROOT / "tests" / "fixtures" / "parity" / "http" / f"{case}.json").read_text("utf-8"))
    traffic = script.Traffic(http)
    chunks = [(round(at_ms * 10**6), chunk) for at_ms, chunk in traffic.chunks]
    exchange = Exchange(traffic.dialect, "call", 0, response_content_type="text/event-stream", chunks=chunks)
    return traffic, parse_exchange(exchange).response


def message(response):
    return response["choices"][0]["message"]


def set_finish_reason(response):
    response["choices"][0]["finish_reason"] = "stop"


DROPPED = {
    "own-annotations": [
        ("annotations", lambda response: message(response).pop("annotations")),
        ("one annotation", lambda response: message(response)["annotations"].pop()),
        ("audio", lambda response: message(response).pop("audio")),
    ],
    "own-details": [
        ("reasoning details", lambda response: message(response).pop("reasoning_details")),
        ("part of a detail", lambda response: message(response)["reasoning_details"][0].update(text="t")),
    ],
    "own-reasoning-both": [("one of two names", lambda response: message(response).pop("reasoning"))],
    "own-citations": [("citations", lambda response: response["content"][0].pop("citations"))],
    "own-finish-twice": [("the last finish_reason", set_finish_reason)],
    "own-empty-answer": [("the empty text", lambda response: message(response).update(content=None))],
    "own-cut-parts": [
        ("annotations", lambda response: response["output"][0]["content"][0].update(annotations=[])),
        ("log probabilities", lambda response: response["output"][0]["content"][0].pop("logprobs")),
        ("the second part", lambda response: response["output"][0]["content"].pop()),
    ],
}


@pytest.mark.parametrize(
    ("case", "drop"),
    [pytest.param(case, drop, id=f"{case}: {what}") for case, drops in DROPPED.items() for what, drop in drops],
)
def test_what_is_dropped_from_a_streamed_response_is_noticed(script, case, drop):
    traffic, response = traffic_and_response(script, case)
    assert list(script.stream_problems(traffic, response)) == []
    drop(response)
    assert list(script.stream_problems(traffic, response))
