"""``OTEL_GYM_FORMAT=parquet``: what a process leaves behind of rollouts that are over."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.store.reader import Store
from otel_gym.views.model_calls import exchange_of, is_model_call, model_call_records
from tests.capture.asgi import ANSWER, CHAT_PATH, json_app, send_request

MESSAGES = [{"role": "user", "content": f"{number} " + "text " * 300} for number in range(6)]


def wait_for(condition) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def live_files(store: Path) -> list[Path]:
    return list(store.glob("spans/*/*.jsonl"))


def wait_until_sealed(store: Path) -> None:
    wait_for(lambda: list(store.glob("parquet/*.parquet")) and not live_files(store))


async def agent(task: int) -> None:
    async with otel_gym.rollout(task, 0):
        for count in range(1, 6):
            request = {"model": "m", "messages": MESSAGES[:count], "tools": []}
            await send_request(ModelCallCapture(json_app(ANSWER)), CHAT_PATH, request)


def test_rollouts_that_ended_are_sealed_whole_and_their_live_files_go(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_GYM_FORMAT", "parquet")
    otel_gym.configure(directory=tmp_path, run_id="r")
    for task in range(3):
        asyncio.run(agent(task))
    assert otel_gym.flush(10)
    wait_until_sealed(tmp_path)

    table = pq.read_table(tmp_path / "parquet")
    assert table.num_rows == 3 * 11
    requests = [json.loads(body) for body in table["request_body"].to_pylist() if body]
    assert sorted(len(request["messages"]) for request in requests) == sorted([*range(1, 6)] * 3)
    (rollout,) = Store(tmp_path).rollouts("1-0")
    assert [len(record.request["messages"]) for record in model_call_records(rollout)] == [1, 2, 3, 4, 5]


def test_a_span_that_comes_after_the_sealing_is_kept_and_counted_once(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_GYM_FORMAT", "parquet")
    otel_gym.configure(directory=tmp_path, run_id="r")
    asyncio.run(agent(0))
    assert otel_gym.flush(10)
    wait_until_sealed(tmp_path)
    asyncio.run(send_request(ModelCallCapture(json_app(ANSWER)), f"/ng-rollout/0-0{CHAT_PATH}", {"model": "late"}))
    assert otel_gym.flush(10)

    (rollout,) = Store(tmp_path).rollouts("0-0")
    assert [record.request["model"] for record in model_call_records(rollout)] == ["m"] * 5 + ["late"]


AGENT = """
import otel_gym
with otel_gym.rollout(0, 0):
    pass
"""


def test_a_process_that_ends_at_once_has_sealed_its_rollouts(tmp_path):
    environment = {**os.environ, "OTEL_GYM": "1", "OTEL_GYM_DIR": str(tmp_path), "OTEL_GYM_FORMAT": "parquet"}
    subprocess.run([sys.executable, "-c", AGENT], env=environment, check=True, timeout=60)
    assert pq.read_table(tmp_path / "parquet")["name"].to_pylist() == ["rollout"]
    assert not live_files(tmp_path)


def late_call(request: dict) -> None:
    asyncio.run(send_request(ModelCallCapture(json_app(ANSWER)), f"/ng-rollout/0-0{CHAT_PATH}", request))
    assert otel_gym.flush(10)


def test_a_request_that_grew_out_of_a_sealed_one_is_read_back_as_it_was_sent(tmp_path, monkeypatch):
    """Its base is no longer in the writer's file: it was stored as an addition to it, and its body was gone."""
    monkeypatch.setenv("OTEL_GYM_FORMAT", "parquet")
    otel_gym.configure(directory=tmp_path, run_id="r")
    asyncio.run(agent(0))
    assert otel_gym.flush(10)
    wait_until_sealed(tmp_path)
    late_call({"model": "m", "messages": MESSAGES, "tools": []})

    (rollout,) = Store(tmp_path).rollouts("0-0")
    assert [len(record.request["messages"]) for record in model_call_records(rollout)] == [1, 2, 3, 4, 5, 6]


def test_a_picture_in_a_sealed_request_is_read_back_also_from_the_parquet_folder_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_GYM_FORMAT", "parquet")
    monkeypatch.setenv("OTEL_GYM_SEAL_AFTER", "0")
    otel_gym.configure(directory=tmp_path, run_id="r")
    url = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + os.urandom(5000)).decode()
    request = {"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]}
    late_call(request)
    wait_until_sealed(tmp_path)

    (part,) = tmp_path.glob("parquet/*.parquet")
    assert url not in str(pq.read_table(part)["request_body"].to_pylist())
    for path in (tmp_path, tmp_path / "parquet", part):
        store = Store(path)
        (rollout,) = store.rollouts("0-0")
        (call,) = filter(is_model_call, rollout.spans)
        assert exchange_of(call).request_body == json.dumps(request).encode()
        assert store.damage == []
    (blob,) = tmp_path.glob("blobs/*")
    blob.unlink()
    store = Store(tmp_path / "parquet")
    (rollout,) = store.rollouts("0-0")
    (call,) = filter(is_model_call, rollout.spans)
    assert exchange_of(call).request_body == b""
    assert [blob.name in damage.problem for damage in store.damage] == [True]
