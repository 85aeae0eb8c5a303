"""What is known of a model call whose proxy was killed while the model worked on it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from otel_gym.content_policy import DEFAULT_POLICY
from otel_gym.store.reader import Store
from otel_gym.tracing.model_call import open_attributes

from .conftest import CHAT, Invoke


@pytest.fixture
def model_that_thinks() -> Iterator[str]:
    """Has the request, and gives no answer."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            over.wait(30)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    over.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def killed_store(tmp_path: Path, model_that_thinks: str) -> Path:
    command = [sys.executable, "-m", "otel_gym.cli", "proxy", "--upstream", model_that_thinks, "--port", "0"]
    with subprocess.Popen(
        [*command, "--dir", str(tmp_path), "--run", "r"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+:\d+", process.stdout.readline())
        assert found is not None
        question = {"messages": [{"role": "user", "content": 'the "model" : "other"'}], "model": "toy-model"}

        def ask() -> None:
            with suppress(httpx.HTTPError):
                httpx.post(f"{found[0]}/ng-rollout/1-0{CHAT}", json=question, timeout=30)

        client = threading.Thread(target=ask)
        client.start()
        deadline = time.monotonic() + 10
        while not list(tmp_path.glob("open/*.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.1)
        process.kill()
        client.join()
    return tmp_path


def test_a_call_whose_proxy_was_killed_was_no_call_and_nothing_was_lost(killed_store: Path, invoke: Invoke) -> None:
    (span,) = Store(killed_store).spans("1-0")
    (row,) = map(json.loads, invoke("ls", "--json", "--dir", killed_store).stdout.splitlines())
    assert (row["calls"], row["unfinished_calls"], row["tokens_in"]) == (1, 1, None)
    listed = invoke("ls", "--dir", killed_store).stdout
    assert "unfinished, 1 call unfinished" in listed and "calls: 1 (1 unfinished)" in listed
    assert "1 (1 unfinished)" in invoke("stats", "--dir", killed_store).stdout
    assert "chat toy-model  +0.0 ms  unfinished" in invoke("show", "1-0", "--dir", killed_store).stdout
    result = invoke("doctor", killed_store)
    assert result.exit_code == 0  # the process might still run
    assert f"model calls without an answer: toy-model (span {span.span_id})" in result.stdout
    assert "nothing was lost" not in result.stdout and "1 model call has not ended" in result.stdout
    (record,) = map(json.loads, invoke("export", "model-calls", "--dir", killed_store).stdout.splitlines())
    assert (record["model"], record["dialect"], record["completed_at"]) == ("toy-model", "chat", None)


@pytest.mark.parametrize(
    ("request_body", "coding", "model"),
    [
        (b'{"messages":[{"content":"\\"model\\": \\"x\\""}],"model":"toy"}', None, "toy"),
        (b'{"metadata":{"model":"x"},"model":"toy"}', None, None),  # which of them is not told by looking alone
        (b'{"mod', None, None),
        (b'{"model":"toy"}', "gzip", None),
    ],
)
def test_the_model_of_an_open_call_is_told_where_it_is_certain(request_body, coding, model) -> None:
    attributes = open_attributes("call", "chat", request_body, coding, DEFAULT_POLICY)
    assert attributes.get("gen_ai.request.model") == model
    assert attributes["gym.model_call.id"] == "call"
