"""Retries of one logical call are told apart from questions that are asked twice."""

from otel_gym.records import Attempt, ModelCallRecord, logical_calls

QUESTION = {"model": "toy", "messages": [{"role": "user", "content": "q"}]}


def attempt(index, start, end, status=200, category=None, request=None, **headers):
    record = ModelCallRecord(
        call_index=index,
        dialect="chat",
        status_code=status,
        error_category=category,
        request=QUESTION if request is None else request,
        started_at=start,
        completed_at=end,
    )
    return Attempt(record, {name.replace("_", "-"): [value] for name, value in headers.items()})


def sizes(*attempts):
    return [len(call.attempts) for call in logical_calls(attempts)]


def test_a_call_that_succeeds_at_the_third_try_is_one_generation():
    attempts = [
        attempt(0, 1.0, 1.1, 429, "rate_limit", x_request_id="llm-1"),
        attempt(1, 2.1, 2.2, 529, "upstream_error", x_request_id="llm-1"),
        attempt(2, 4.2, 5.0, x_request_id="llm-1"),
    ]
    (call,) = logical_calls(attempts)
    assert (call.retries, call.record.call_index, call.wait_ms) == (2, 2, 4000.0)


def test_a_client_that_sends_no_id_at_all_is_understood_by_body_and_failure():
    assert sizes(attempt(0, 1, 2, 500, "upstream_error"), attempt(1, 3, 4)) == [2]


def test_the_same_question_asked_again_after_a_good_answer_is_another_call():
    assert sizes(attempt(0, 1, 2), attempt(1, 3, 4)) == [1, 1]


def test_a_broken_stream_is_retried_by_a_plain_request():
    broken = attempt(0, 1, 2, category="stream_truncated", request={**QUESTION, "stream": True})
    assert sizes(broken, attempt(1, 3, 4, request={**QUESTION, "stream": False})) == [2]


def test_an_answer_cut_at_its_limit_is_no_failure():
    assert sizes(attempt(0, 1, 2, category="incomplete"), attempt(1, 3, 4)) == [1, 1]


def test_other_bodies_are_other_calls():
    assert sizes(attempt(0, 1, 2, 500), attempt(1, 3, 4, request={"model": "toy"})) == [1, 1]


def test_a_client_that_timed_out_counts_its_retry_though_the_server_finished():
    first = attempt(0, 1, 9, x_stainless_retry_count="0")
    assert sizes(first, attempt(1, 3, 4, x_stainless_retry_count="1")) == [2]


def test_two_failures_at_once_are_retries_of_nobody():
    assert sizes(attempt(0, 1, 5, 500), attempt(1, 2, 6, 500)) == [1, 1]


def test_parallel_calls_with_one_body_keep_their_own_retries():
    first = [attempt(0, 1, 2, 429, x_request_id="a"), attempt(1, 1, 2, 429, x_request_id="b")]
    again = [attempt(2, 3, 4, x_request_id="b"), attempt(3, 3, 4, x_request_id="a")]
    calls = logical_calls(first + again)
    assert [[each.record.call_index for each in call.attempts] for call in calls] == [[0, 3], [1, 2]]


def test_attempts_of_different_traces_are_not_joined():
    one, other = f"00-{'1' * 32}-{'2' * 16}-01", f"00-{'3' * 32}-{'2' * 16}-01"
    assert sizes(attempt(0, 1, 2, 500, traceparent=one), attempt(1, 3, 4, traceparent=other)) == [1, 1]


def test_each_attempt_may_have_a_client_span_of_its_own():
    one, other = f"00-{'1' * 32}-{'2' * 16}-01", f"00-{'1' * 32}-{'4' * 16}-03"
    assert sizes(attempt(0, 1, 2, 500, traceparent=one), attempt(1, 3, 4, traceparent=other)) == [2]


def test_records_without_headers_or_times_are_taken_as_they_come():
    record = ModelCallRecord(call_index=0, status_code=503)
    assert [call.retries for call in logical_calls([record, ModelCallRecord(call_index=1, status_code=200)])] == [1]
