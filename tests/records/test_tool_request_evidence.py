"""When a tool execution may hang under a model call."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_gym.records import tool_request_evidence
from tests.records.test_tool_calls import responses


def chat(*calls, **message):
    return {"choices": [{"message": {"tool_calls": list(calls), **message}}]}


def test_a_call_that_the_response_names_may_be_linked_and_no_other():
    evidence = tool_request_evidence(chat({"id": "a"}, {"id": "b"}), 200, None)
    assert (evidence.kind, evidence.call_ids) == ("available", ("a", "b"))
    assert evidence.permits_link("a")
    assert not evidence.permits_link("z")


@pytest.mark.parametrize(
    "response",
    [
        {"output": [{"type": "function_call", "call_id": "a"}, {"type": "custom_tool_call", "call_id": "b"}]},
        {"content": [{"type": "text"}, {"type": "tool_use", "id": "a"}, {"type": "tool_use", "id": "b"}]},
        {"choices": [{"message": {"tool_calls": [{"id": "a"}]}}, {"message": {"tool_calls": [{"id": "b"}]}}]},
    ],
)
def test_every_dialect_and_every_choice_is_read(response):
    assert tool_request_evidence(response, 200, None).call_ids == ("a", "b")


def test_hosted_tools_are_not_run_by_the_client():
    output = [{"type": "web_search_call", "id": "ws_1"}]
    assert tool_request_evidence({"output": output}, 200, "completed").call_ids == ()
    assert tool_request_evidence({"content": [{"type": "server_tool_use", "id": "s"}]}, 200, None).call_ids == ()


def test_an_answer_without_tools_proves_that_none_was_asked_for():
    for response in ({"output": []}, {"content": []}, {"choices": [{"message": {"content": "4"}}]}):
        evidence = tool_request_evidence(response, 200, None)
        assert evidence.kind == "available"
        assert not evidence.permits_link("a")


@pytest.mark.parametrize("response", [None, {}, {"id": "x"}, {"output": None}, {"choices": []}, {"choices": [{}]}])
def test_a_missing_list_may_keep_a_link_with_a_gap(response):
    evidence = tool_request_evidence(response, 200, None)
    assert evidence.kind == "omitted"
    assert evidence.permits_link("any")


def test_a_response_in_progress_may_still_name_more_calls():
    evidence = tool_request_evidence({"output": [{"type": "function_call", "call_id": "a"}]}, 200, "in_progress")
    assert (evidence.kind, evidence.call_ids) == ("omitted", ("a",))
    assert evidence.permits_link("later")


@pytest.mark.parametrize(
    "response",
    [
        "text",
        {"output": "text"},
        {"content": "text"},
        {"choices": {"a": 1}},
        {"choices": ["x"]},
        {"choices": [{"message": "x"}]},
        chat("x"),
        chat({"id": ""}),
        chat({"id": 5}),
        chat({"id": "a"}, {"id": "a"}),
        {"choices": [{"message": {"tool_calls": "x"}}]},
        {"content": [{"type": "tool_use"}]},
    ],
)
def test_a_broken_list_permits_no_link(response):
    evidence = tool_request_evidence(response, 200, None)
    assert evidence.kind == "malformed"
    assert not evidence.permits_link("a")


@pytest.mark.parametrize(
    ("response", "status_code", "response_status"),
    [
        (chat({"id": "a"}), 500, None),
        (None, 429, None),
        ({"output": [], "status": "failed"}, 200, "failed"),
        ({"output": [], "status": "cancelled"}, 200, None),
        ({"error": {"type": "overloaded"}}, 200, None),
        ({"type": "error"}, 200, None),
    ],
)
def test_a_failed_call_asked_for_nothing(response, status_code, response_status):
    evidence = tool_request_evidence(response, status_code, response_status)
    assert (evidence.kind, evidence.call_ids) == ("unsuccessful", ())
    assert not evidence.permits_link("a")


def test_an_answer_cut_at_its_limit_asked_for_what_it_names():
    output = [{"type": "function_call", "call_id": "a"}]
    assert tool_request_evidence({"output": output}, 200, "incomplete").permits_link("a")


def test_an_unknown_status_code_is_no_failure():
    assert tool_request_evidence(chat({"id": "a"}), None, None).kind == "available"


@given(responses, st.none() | st.integers(100, 599), st.none() | st.text(max_size=9))
def test_no_json_value_makes_it_raise(response, status_code, response_status):
    evidence = tool_request_evidence(response, status_code, response_status)
    assert evidence.kind in ("available", "omitted", "malformed", "unsuccessful")
