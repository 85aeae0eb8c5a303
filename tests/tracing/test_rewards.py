"""A reward counts whenever and wherever it was given; the last one wins."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from opentelemetry import trace
from typer.testing import CliRunner

import otel_gym
from otel_gym.cli.main import app
from otel_gym.id_rules import InvalidIdError
from otel_gym.tracing import logs
from otel_gym.views.summary import summarize_rollout

from ..conftest import LiveStore

ROOT = Path(__file__).parent.parent.parent


def rewards(live_store: LiveStore) -> dict[str, float | None]:
    return {rollout.address: summarize_rollout(rollout).reward for rollout in live_store.rollouts()}


def give_elsewhere(value: float, rollout: str) -> None:
    """By a process of its own, as a verifier's."""
    program = f"import otel_gym; otel_gym.record_reward({value}, {rollout!r})"
    environment = {**os.environ, "OTEL_GYM": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)


def test_the_last_reward_wins_before_and_after_the_end(live_store: LiveStore):
    with otel_gym.rollout(1, 0) as rollout:
        otel_gym.record_reward(0.1)
        with otel_gym.invoke_agent("a"), otel_gym.execute_tool("t"):
            otel_gym.record_reward(0.2)
    assert rewards(live_store) == {"run-1/1-0": 0.2}
    for number, name in ((0.3, rollout), (0.4, "1-0"), (0.5, "run-1/1-0")):
        otel_gym.record_reward(number, name)
        assert rewards(live_store) == {"run-1/1-0": number}
    assert len({span.trace_id for span in live_store.spans("1-0")}) == 1
    shown = CliRunner().invoke(app, ["show", "1-0", "--dir", str(live_store.directory)]).stdout
    assert "reward 0.5" in shown.splitlines()[1]


def test_a_verifier_in_another_process_rewards_the_rollout(live_store: LiveStore):
    with otel_gym.rollout(1, 0):
        give_elsewhere(0.25, "run-1/1-0")
    assert rewards(live_store) == {"run-1/1-0": 0.25}
    give_elsewhere(0.75, "1-0")  # without the run, which its store knows
    assert rewards(live_store) == {"run-1/1-0": 0.75}


def test_of_a_reward_on_the_rollout_and_one_from_elsewhere_the_later_counts(live_store: LiveStore):
    with otel_gym.rollout(1, 0) as rollout:
        rollout.record_reward(1.0)
        give_elsewhere(0.0, "run-1/1-0")
    with otel_gym.rollout(2, 0) as rollout:
        give_elsewhere(0.0, "run-1/2-0")
        rollout.record_reward(1.0)
    assert rewards(live_store) == {"run-1/1-0": 0.0, "run-1/2-0": 1.0}


def test_an_id_names_an_open_rollout_of_this_process_also_without_its_run(live_store: LiveStore):
    with otel_gym.rollout(1, 0, rollout_id=None, run_id="other"):
        otel_gym.record_reward(0.5, "1-0")
    (root,) = live_store.spans("1-0")
    assert (root.run_id, root.attributes["gym.reward"]) == ("other", 0.5)


def test_a_reward_for_a_rollout_that_ran_again_is_that_of_the_newest_execution(live_store: LiveStore):
    with otel_gym.rollout(1, 0) as first:
        pass
    with otel_gym.rollout(1, 0):
        pass
    give_elsewhere(1.0, "run-1/1-0")
    assert rewards(live_store) == {"run-1/1-0": 1.0}
    first.record_reward(0.0)  # of the first, so it does not count
    assert rewards(live_store) == {"run-1/1-0": 1.0}
    with otel_gym.rollout(1, 0):
        pass
    assert rewards(live_store) == {"run-1/1-0": None}


def test_a_reward_outside_of_any_rollout_is_said_and_lost(live_store: LiveStore, caplog, monkeypatch):
    monkeypatch.setattr(logs, "_said", set())
    otel_gym.record_reward(1.0)
    assert live_store.is_empty()
    assert "record_reward(value, rollout)" in caplog.text


def test_what_is_no_reward_or_no_rollout_is_refused_where_it_is_given(live_store: LiveStore):
    with pytest.raises(ValueError, match="NaN"):
        otel_gym.record_reward(float("nan"), "1-0")
    for refused in ("unassigned", "a b", "run/", "/1-0", "a/b/c"):
        with pytest.raises(InvalidIdError):
            otel_gym.record_reward(1.0, refused)
    with pytest.raises(RuntimeError, match="before the rollout has begun"):
        otel_gym.record_reward(1.0, otel_gym.rollout(1, 0))


def test_a_reward_that_others_put_on_the_root_counts_as_of_its_end(live_store: LiveStore):
    with otel_gym.rollout(1, 0) as rollout:
        give_elsewhere(0.0, "run-1/1-0")
        trace.get_current_span().set_attribute("gym.reward", 1.0)
        time.sleep(0.001)
    assert rewards(live_store) == {"run-1/1-0": 1.0}
    assert rollout.span is not None
