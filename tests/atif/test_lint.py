"""The lint finds what the public models accept, says where, and leaves valid documents alone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import atif
import pytest

from otel_gym.records.atif_lint import errors, lint
from tests.atif.documents import FIXTURES, VALID, Json, agent, call, document, read, results, user


def said(value: Json) -> list[str]:
    return [str(finding) for finding in lint(value)]


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_nothing_is_wrong_with_a_valid_document(path: Path) -> None:
    assert lint(read(path)) == []


def test_calls_and_results_that_do_not_match_r086() -> None:
    value = read(FIXTURES / "reports" / "R086.json")
    assert said(value) == ["duplicate call_0 in step 2", "unknown call_9 in step 2"]
    assert {finding.level for finding in lint(value)} == {"error"}


def test_equal_ids_in_different_steps_are_fine() -> None:
    step = agent("", tool_calls=[call("call_0")], observation=results({"source_call_id": "call_0", "content": "x"}))
    assert lint(document(user(), step, step)) == []


def with_metrics(**metrics: Any) -> Json:
    return document(user(), agent(metrics=metrics))


# The public models accept these.
ACCEPTED = {
    "2 logprobs for 3 completion_token_ids in step 2": with_metrics(completion_token_ids=[1, 2, 3], logprobs=[-1, -2]),
    "2 prompt_token_ids for 3 prompt_tokens in step 2": with_metrics(prompt_tokens=3, prompt_token_ids=[1, 2]),
    "9 cached of 3 prompt tokens in step 2": with_metrics(prompt_tokens=3, cached_tokens=9),
    "unknown subagent sub-x in step 2": document(
        user(), agent("", observation=results({"subagent_trajectory_ref": [{"trajectory_id": "sub-x"}]}))
    ),
    "unknown call_1 in step 2": document(user(), agent("", observation=results({"source_call_id": "call_1"}))),
    "no observation of call_1 in step 2": document(user(), agent("", tool_calls=[call("call_1")])),
    "time goes back to 2020-01-01T00:00:00Z in step 2": document(
        user(timestamp="2026-01-02T03:04:05Z"), agent(timestamp="2020-01-01T00:00:00Z")
    ),
    "a date without a time (2026-01-02) in step 1": document(user(timestamp="2026-01-02")),
    "a time without a zone (2026-01-02T03:04:05) in step 1": document(user(timestamp="2026-01-02T03:04:05")),
    "total_steps is 7, there are 1 in final_metrics": document(user(), final_metrics={"total_steps": 7}),
    "metrics.prompt_tokens: Input should be a valid integer in step 2": with_metrics(prompt_tokens=3.0),
    "metrics.prompt_tokens: Input should be greater than or equal to 0 in step 2": with_metrics(prompt_tokens=-5),
    "metrics.logprobs.0: Input should be a finite number in step 2": with_metrics(logprobs=[float("nan")]),
    "steps: List should have at least 1 item after validation, not 0 in the document": document(),
    "unknown boundary merge in step 1": document(
        {"source": "system", "message": "", "extra": {"context_management": {"type": "x", "boundary": "merge"}}}
    ),
}


@pytest.mark.parametrize("words", ACCEPTED)
def test_what_the_public_models_accept_is_found(words: str) -> None:
    atif.Trajectory.model_validate(copy.deepcopy(ACCEPTED[words]))
    assert said(ACCEPTED[words]) == [words]


# What they refuse too is said with its place, and once.
REFUSED = {
    "step_id 3 where 2 comes next in the document": {
        **document(user()),
        "steps": [{"step_id": 1, **user()}, {"step_id": 3, **agent()}],
    },
    "duration_ms: Extra inputs are not permitted in step 1": document(user(duration_ms=5)),
    "reward: Extra inputs are not permitted in the document": document(user(), reward=1.0),
    "no schema_version in the document": {k: v for k, v in document(user()).items() if k != "schema_version"},
    "metrics: only steps of the agent have them in step 1": document(user(metrics={"prompt_tokens": 1})),
    "two subagents with one trajectory_id in the document": document(
        user(), subagent_trajectories=[document(user(), trajectory_id="a")] * 2
    ),
    "no model was called (llm_call_count 0), yet there are metrics or reasoning in step 2": document(
        user(), agent(llm_call_count=0, metrics={})
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_they_refuse_is_said_in_words(words: str) -> None:
    assert said(REFUSED[words]) == [words]


def test_a_subagents_step_is_named_with_its_subagent() -> None:
    inner = document(user(), agent(metrics={"prompt_tokens": 1, "cached_tokens": 2}), trajectory_id="sub-a")
    broken = {**inner, "steps": [{"step_id": 1, "source": "user"}]}
    assert said(document(user(), subagent_trajectories=[inner])) == [
        "2 cached of 1 prompt tokens in step 2 of subagent sub-a"
    ]
    assert said(document(user(), subagent_trajectories=[broken])) == [
        "message: Field required in step 1 of subagent sub-a"
    ]


def totals(*, copied: int, own: int, total: int) -> Json:
    return document(
        user(is_copied_context=True),
        agent(is_copied_context=True, metrics={"prompt_tokens": copied}),
        agent(metrics={"prompt_tokens": own}),
        final_metrics={"total_prompt_tokens": total},
    )


def test_totals_leave_out_copied_steps_r087() -> None:
    assert errors(totals(copied=20, own=30, total=30)) == []
    [wrong] = errors(totals(copied=20, own=30, total=50))
    assert str(wrong) == "total_prompt_tokens is 50, the steps have 30, copied steps are counted in final_metrics"


def test_totals_that_are_less_than_the_steps_are_an_error_and_more_a_warning() -> None:
    less = document(user(), agent(metrics={"cost_usd": 0.2}), final_metrics={"total_cost_usd": 0.1})
    more = document(user(), agent(metrics={"cost_usd": 0.2}), final_metrics={"total_cost_usd": 0.3})
    near = document(user(), agent(metrics={"cost_usd": 0.1 + 0.2}), final_metrics={"total_cost_usd": 0.3})
    assert [[finding.level for finding in lint(value)] for value in (less, more, near)] == [["error"], ["warning"], []]


@pytest.mark.parametrize(
    "value", [{}, {"steps": 3}, {"steps": [3, {"tool_calls": 1, "observation": []}]}, {"agent": []}]
)
def test_no_json_object_makes_it_raise(value: Json) -> None:
    assert lint(value)


def test_a_number_that_no_double_can_hold_does_not_make_it_raise() -> None:
    value = document(user(), agent(metrics={"cost_usd": 10**400}), final_metrics={"total_cost_usd": 1.0})
    assert lint(value) == []
