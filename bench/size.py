"""How much smaller a growing request history is on disk when it is stored once.

An agent of N calls whose history grows by 4 kB a call (source text of the standard library) goes through capture into
two stores, with and without OTEL_GYM_CONTENT_ONCE; both are read back and must give the bytes that were sent. Redaction
is off, since source text holds examples of secrets, which come back as `[redacted]`.

    python bench/size.py
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["OTEL_GYM_REDACT"] = "off"

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.conventions import REQUEST_BODY
from otel_gym.store.content_once import RequestHistory
from otel_gym.store.media import extract_media
from otel_gym.store.otlp_json import attributes_of, encode_json, key_values
from otel_gym.store.reader import Store
from otel_gym.views.model_calls import exchange_of, is_model_call
from table import Figure, print_table

PATH = "/ng-rollout/1-0/v1/chat/completions"
GROWTH = 4000
GOALS = {50: 15, 150: 50}
# Of the 4 kB that a call adds, the model says this much; the rest is what a tool gave back.
ANSWER = 800
SYSTEM = 2000
TOOLS = 3000


def source_text(characters: int) -> str:
    """Real text: modules of the standard library, in order of name."""
    texts: list[str] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        texts.append(path.read_text("utf-8", errors="replace"))
        if sum(map(len, texts)) >= characters:
            break
    return "".join(texts)[:characters]


def conversation(calls: int) -> Iterator[tuple[bytes, bytes]]:
    """Request and answer of each call."""
    text = source_text(SYSTEM + TOOLS + calls * GROWTH)
    at = SYSTEM + TOOLS
    function = {"name": "shell", "description": text[SYSTEM:at], "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": function}]
    messages: list[dict[str, Any]] = [{"role": "system", "content": text[:SYSTEM]}]
    said: dict[str, Any] | None = None
    for number in range(calls):
        piece = text[at + number * GROWTH : at + (number + 1) * GROWTH]
        messages += [said] if said else []
        messages.append({"role": "tool" if said else "user", "content": piece[ANSWER:]})
        said = {"role": "assistant", "content": piece[:ANSWER]}
        choice = {"index": 0, "message": said, "finish_reason": "stop"}
        answer = {"id": f"chatcmpl-{number}", "object": "chat.completion", "model": "m", "choices": [choice]}
        request = {"model": "m", "messages": messages, "tools": tools, "temperature": 1.0}
        yield json.dumps(request, separators=(",", ":")).encode(), json.dumps(answer, separators=(",", ":")).encode()


def record(directory: Path, exchanges: list[tuple[bytes, bytes]], once: bool) -> float:
    """Sends the calls through capture; seconds until all is on disk."""
    os.environ["OTEL_GYM_CONTENT_ONCE"] = "1" if once else "0"
    otel_gym.configure(directory=directory, run_id="bench")
    start = time.perf_counter()
    asyncio.run(_call(exchanges))
    otel_gym.flush(60)
    return time.perf_counter() - start


async def _call(exchanges: list[tuple[bytes, bytes]]) -> None:
    for request, answer in exchanges:
        await _call_one(request, answer)


async def _call_one(request: bytes, answer: bytes) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": answer, "more_body": False})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": request, "more_body": False}

    async def send(_message: Any) -> None:
        return None

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 5000),
    }
    await ModelCallCapture(application)(scope, receive, send)


def bytes_on_disk(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def bytes_of_requests(directory: Path) -> int:
    """What of the lines is there for the request bodies: their text and all that says what it grew out of."""
    total = 0
    for path in (directory / "spans").rglob("*.jsonl"):
        with path.open("rb") as lines:
            for line in lines:
                span = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
                attributes = attributes_of(span["attributes"])
                body = {name: value for name, value in attributes.items() if name.startswith(REQUEST_BODY)}
                total += len(encode_json(key_values(body))) if body else 0
    return total


def requests_read(directory: Path) -> list[bytes]:
    spans = [span for rollout in Store(directory).rollouts() for span in rollout.spans]
    return [exchange_of(span).request_body for span in spans if is_model_call(span)]


def figures(calls: int, goal: int, directory: Path) -> list[Figure]:
    exchanges = list(conversation(calls))
    sent = [request for request, _ in exchanges]
    whole, once = directory / f"whole-{calls}", directory / f"once-{calls}"
    seconds = {each: record(each, exchanges, each is once) for each in (whole, once)}
    start = time.perf_counter()
    is_equal = requests_read(once) == sent
    read_s = time.perf_counter() - start
    ratio = bytes_of_requests(whole) / bytes_of_requests(once)
    files = bytes_on_disk(whole) / bytes_on_disk(once)
    name = f"{calls} calls, history grows by 4 kB a call"
    sizes = f"{bytes_of_requests(whole) / 1e6:.2f} MB → {bytes_of_requests(once) / 1e6:.2f} MB"
    return [
        Figure(
            f"{name}: request bodies, whole → once", f"{ratio:.1f} × smaller ({sizes})", f">= {goal} ×", ratio >= goal
        ),
        Figure(f"{name}: all that lies in the store, answers too", f"{files:.1f} × smaller"),
        Figure(f"{name}: read back", "equal" if is_equal else "NOT equal", "equal", is_equal),
        Figure(f"{name}: calls until on disk, whole → once", f"{seconds[whole]:.2f} s → {seconds[once]:.2f} s"),
        Figure(f"{name}: reading all requests back", f"{read_s:.2f} s"),
    ]


def cost_figures() -> list[Figure]:
    """What the writer's thread pays for one request of 600 kB, at best of some tries."""
    (before, _), (after, _) = list(conversation(151))[-2:]
    earlier, text = before.decode(), after.decode()
    history = RequestHistory()
    history.encode("1-0", "1", earlier)
    history.committed("1-0")

    def encode() -> None:
        history.encode("1-0", "2", text)
        history.failed("1-0")

    per_600_kb = 600_000 / len(text)
    scan_ms = best_ms(lambda: extract_media(text, lambda _content: None)) * per_600_kb
    encode_ms = best_ms(encode) * per_600_kb
    return [
        Figure("looking for media in a text without any, per 600 kB", f"{scan_ms:.2f} ms", "< 1 ms", scan_ms < 1),
        Figure("finding what a request keeps of earlier ones, per 600 kB", f"{encode_ms:.2f} ms"),
    ]


def best_ms(work: Callable[[], object], tries: int = 30) -> float:
    times = []
    for _ in range(tries):
        start = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - start)
    return min(times) / 1e6


def all_figures() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="otel_gym_size_") as directory:
        sizes = [figure for calls, goal in GOALS.items() for figure in figures(calls, goal, Path(directory))]
    return sizes + cost_figures()


if __name__ == "__main__":
    sys.exit(print_table(all_figures()))
