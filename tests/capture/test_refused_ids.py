"""A rollout id in a URL that may not name a file: said, counted and kept, and the call goes on."""

from __future__ import annotations

import asyncio
import logging

import pytest

import otel_gym
from otel_gym.capture import routes
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.tracing import logs

from .asgi import ANSWER, CHAT_PATH, REQUEST, json_app, send_request


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(routes, "_refusals_said", set())
    monkeypatch.setattr(logs, "_said", set())
    caplog.set_level(logging.WARNING, "otel_gym")
    return caplog


def ask(rollout_id: str, path: str = CHAT_PATH) -> None:
    sent = asyncio.run(send_request(ModelCallCapture(json_app(ANSWER)), f"/ng-rollout/{rollout_id}{path}", REQUEST))
    assert sent.status == 200


def test_calls_under_an_invalid_id_vanished_without_a_word(tmp_path, said) -> None:
    otel_gym.configure(directory=tmp_path / "store", capture_unassigned=True)
    ask("task 12")
    ask("task 13")
    ask("unassigned")
    ask("task 14", "/v1/models")  # no model call

    from tests.conftest import LiveStore

    spans = LiveStore(tmp_path / "store").spans("unassigned")
    chats = [span for span in spans if span.attributes.get("gym.model_call.id")]
    assert [span.attributes["gym.rollout.id.refused"] for span in chats] == ["task 12", "task 13", "unassigned"]
    assert LiveStore(tmp_path / "store").read().counts() == {"refused_ids": 3}
    assert len(said.messages) == 2
    assert "'task 12'" in said.messages[0] and "use letters, digits" in said.messages[0]
    assert "stands for calls without a rollout id" in said.messages[1]


def test_they_are_counted_where_they_are_not_stored(live_store, said) -> None:
    ask("../etc")
    ask("x" * 300)
    asyncio.run(send_request(ModelCallCapture(json_app(ANSWER)), "/ng-rollout/1-0" + CHAT_PATH, REQUEST))
    assert live_store.read().counts() == {"refused_ids": 1, "uncaptured_calls": 1, "uncaptured_paths": 1}
