"""Spans of several layers that tell of one call, and those that only look so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otel_gym.store.reader import RolloutSpans, open_store
from otel_gym.views.health import examine
from otel_gym.views.layers import doubtful_calls
from otel_gym.views.model_calls import StoredModelCall, model_calls
from otel_gym.views.summary import summarize_rollout
from tests.store.lines import encoded, live_file, write


def call(span_id: str, **said: Any) -> bytes:
    """A span of a call; ``id``, ``tokens`` and ``request`` are what it names."""
    named = {
        "gen_ai.response.id": said.pop("id", None),
        "gen_ai.usage.output_tokens": said.pop("tokens", None),
        "gym.request.id": said.pop("request", None),
        "gen_ai.request.model": said.pop("model", "m"),
    }
    known = {name: value for name, value in named.items() if value is not None}
    return encoded(span_id, gen_ai__operation__name="chat", **known, **said)


def rollout_of(tmp_path: Path, *lines: bytes) -> RolloutSpans:
    write(live_file(tmp_path), *lines)
    [rollout] = open_store(tmp_path).rollouts()
    return rollout


def calls_of(rollout: RolloutSpans) -> list[StoredModelCall]:
    return list(model_calls(rollout))


def ids_of(rollout: RolloutSpans) -> list[str]:
    return [each.span.span_id.lstrip("0") for each in calls_of(rollout)]


def test_client_and_server_named_one_answer_and_both_counted(tmp_path: Path) -> None:
    """R033."""
    rollout = rollout_of(
        tmp_path, call("a", id="x", tokens=2), call("b", parent="a", start=12, end=18, id="x", tokens=2)
    )
    [counted] = calls_of(rollout)
    assert (counted.span.span_id[-1], counted.record.tokens_out) == ("b", 2)
    assert [link.span_id[-1] for link in counted.span.links] == ["a"]
    assert summarize_rollout(rollout).tokens_out == 2
    assert len(rollout.spans) == 2


def test_the_richer_one_counts_and_has_what_the_other_knows(tmp_path: Path) -> None:
    inner = call("b", parent="a", start=12, end=18, scope="x", id="x", gym__dialect="chat")
    rollout = rollout_of(
        tmp_path, call("a", scope="y", tokens=2, gen_ai__usage__input_tokens=3, gen_ai__request__top_p=1.0), inner
    )
    [counted] = calls_of(rollout)
    assert counted.span.span_id[-1] == "a"
    assert (counted.record.response_id, counted.record.tokens_in, counted.record.dialect) == ("x", 3, "chat")
    assert counted.span.name == "chat m" and counted.span.start_ns == 10


def test_a_server_gave_one_id_to_all_its_answers(tmp_path: Path) -> None:
    """Siblings of one instrumentation are calls of their own."""
    lines = [call(str(number), scope="x", start=10 * number, end=10 * number + 5, id="same") for number in range(1, 4)]
    assert ids_of(rollout_of(tmp_path, *lines)) == ["1", "2", "3"]


def test_two_instrumentations_of_a_server_with_one_id(tmp_path: Path) -> None:
    lines = [
        call(f"{number}{scope}", scope=scope, start=100 * number + shift, end=100 * number + 50 - shift, id="same")
        for number in (1, 2)
        for shift, scope in enumerate("ab")
    ]
    rollout = rollout_of(tmp_path, *lines)
    assert len(ids_of(rollout)) == 2 and doubtful_calls(rollout) == []


def test_two_calls_at_one_time_of_a_server_with_one_id_became_one_with_half_the_tokens(tmp_path: Path) -> None:
    for number, other in enumerate(({"model": "other"}, {"tokens": 99, "gen_ai__usage__input_tokens": 8})):
        first = call("a", scope="x", parent="1", id="same", tokens=10, gen_ai__usage__input_tokens=5)
        second = call("b", scope="y", parent="2", id="same", **other)
        rollout = rollout_of(tmp_path / str(number), first, second)
        assert sorted(ids_of(rollout)) == ["a", "b"] and len(doubtful_calls(rollout)) == 1


def test_a_routers_name_of_the_model_is_the_same_model(tmp_path: Path) -> None:
    first, second = call("a", scope="x", id="n", model="openai/m"), call("b", scope="y", id="n", model="m")
    assert len(ids_of(rollout_of(tmp_path, first, second))) == 1


def test_parallel_calls_of_two_instrumentations_without_ids_are_not_merged_and_said(tmp_path: Path) -> None:
    lines = [
        call("1", scope="a", start=10, end=50, tokens=1),
        call("2", scope="b", start=11, end=49, tokens=1),
        call("3", scope="b", start=12, end=48, tokens=1),
    ]
    rollout = rollout_of(tmp_path, *lines)
    assert ids_of(rollout) == ["1", "2", "3"]
    assert len(doubtful_calls(rollout)) == 2
    [finding] = [each for each in examine(open_store(tmp_path)).findings if each.kind == "perhaps_one_call"]
    assert "nothing proves it" in finding.finding


def test_a_frameworks_span_around_its_clients(tmp_path: Path) -> None:
    inner = call("b", parent="a", start=12, end=18, scope="client", id="x", tokens=2)
    assert ids_of(rollout_of(tmp_path, call("a", scope="framework", tokens=2), inner)) == ["b"]


def test_a_span_around_two_calls_of_its_model_is_doubtful(tmp_path: Path) -> None:
    inner = [call(str(n), parent="a", start=10 + n, end=11 + n, scope="client", id=f"x{n}", tokens=1) for n in (1, 3)]
    rollout = rollout_of(tmp_path, call("a", scope="framework", tokens=2), *inner)
    assert len(ids_of(rollout)) == 3 and len(doubtful_calls(rollout)) == 2


def test_a_framework_that_tried_twice_is_the_try_that_was_answered(tmp_path: Path) -> None:
    refused = call("b", parent="a", start=11, end=12, scope="client", error__type="RateLimitError")
    answered = call("c", parent="a", start=13, end=18, scope="client", id="x", tokens=2)
    rollout = rollout_of(tmp_path, call("a", scope="framework", tokens=2), refused, answered)
    assert ids_of(rollout) == ["b", "c"]
    assert [each.record.error_category for each in calls_of(rollout)] == ["rate_limit", None]


def test_another_model_below_is_another_call(tmp_path: Path) -> None:
    inner = call("b", parent="a", start=12, end=18, model="judge", scope="client", tokens=2)
    rollout = rollout_of(tmp_path, call("a", scope="framework", tokens=2), inner)
    assert ids_of(rollout) == ["a", "b"] and doubtful_calls(rollout) == []


def test_other_figures_below_are_not_merged_and_said(tmp_path: Path) -> None:
    inner = call("b", parent="a", start=12, end=18, scope="client", tokens=3)
    rollout = rollout_of(tmp_path, call("a", scope="framework", tokens=2), inner)
    assert ids_of(rollout) == ["a", "b"] and len(doubtful_calls(rollout)) == 1


def test_what_claude_code_tells_of_a_captured_call_is_joined_by_the_requests_id(tmp_path: Path) -> None:
    """Its spans have no answer's id, and without CLAUDE_CODE_PROPAGATE_TRACEPARENT no tie to the server's."""
    told = call("a", scope="com.anthropic.claude_code.tracing", tokens=2, request="req_1")
    header = {"gym.response.header.request-id": ["req_1"]}
    captured = encoded("b", gen_ai__operation__name="chat", gym__model_call__id="m1", start=12, end=18, **header)
    [counted] = calls_of(rollout_of(tmp_path, told, captured))
    assert counted.span.span_id[-1] == "b"
    assert [link.span_id[-1] for link in counted.span.links] == ["a"]


def test_an_import_counts_before_a_span_of_the_same_request(tmp_path: Path) -> None:
    told = encoded(
        "a",
        gen_ai__operation__name="chat",
        gym__source="transcript",
        gen_ai__response__id="msg_1",
        gym__request__id="req_1",
    )
    span = call("b", scope="com.anthropic.claude_code.tracing", tokens=2, request="req_1", start=11, end=19)
    assert ids_of(rollout_of(tmp_path, told, span)) == ["a"]


def test_a_refused_call_without_capture_is_a_failed_one(tmp_path: Path) -> None:
    lines = [
        call("1", scope="x", error__type="openai.RateLimitError"),
        call("2", scope="x", error__type="APITimeoutError"),
        call("3", scope="x", error__type="500"),
        call("4", scope="x", error__type="APIConnectionError"),
        call("5", scope="x", error__type="NotFoundError"),
    ]
    rollout = rollout_of(tmp_path, *lines)
    assert [each.record.error_category for each in calls_of(rollout)] == ["rate_limit", "timeout", "upstream_error"]
    assert summarize_rollout(rollout).errors == 3
    assert summarize_rollout(rollout).retries == 0  # a client's span covers its retries


def test_a_trace_file_of_ours_imported_beside_the_capture_doubled_its_calls(tmp_path: Path) -> None:
    captured = call("a", id="chatcmpl-1", tokens=2, gym__model_call__id="c" * 32)
    told = call("b", tokens=2, gym__source="dynamo", gym__dynamo__request_id="c" * 32)
    assert ids_of(rollout_of(tmp_path, captured, told)) == ["a"]
