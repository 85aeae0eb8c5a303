"""What the drivers of fault reports share: capture into one store, and what the record of a call must say."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import reference
from captured import CaptureSession, StoredCall, always
from report_problems import REMARKS, NotDrivenError, Object, unequal
from scripted import ScriptedServer, VirtualClock, call

PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}
EVENT_STREAM = [["content-type", "text/event-stream"]]
JSON = [["content-type", "application/json"]]
TOKEN_FIELDS = ("tokens_in", "tokens_out", "tokens_reasoning", "tokens_total", "cached_tokens", "cache_creation_tokens")
SPAN_STATUSES = {0: "UNSET", 1: "OK", 2: "ERROR"}


@dataclass
class Bench:
    """Capture into one store; every driven exchange gets an id of its own."""

    session: CaptureSession
    clock: VirtualClock
    spans: InMemorySpanExporter
    calls: int = 0

    def exchange(
        self,
        dialect: str,
        upstream: Object,
        request: Object | None = None,
        headers: list[list[str]] | None = None,
        start_ms: float = 0.0,
        **options: Any,
    ) -> str:
        """Drives one exchange and returns its id."""
        call_id = self.next_call_id()
        body = request or {"model": "toy", "stream": upstream["headers"] == EVENT_STREAM}
        captured = self.session.wrap(ScriptedServer(upstream, self.clock), self.clock, always(call_id), **options)
        asyncio.run(call(captured, http_request(dialect, body, headers), self.clock, start_ms))
        return call_id

    def next_call_id(self) -> str:
        self.calls += 1
        return f"{self.calls:032x}"

    def stored(self, call_ids: list[str]) -> list[StoredCall]:
        found = {stored.record.model_call_id: stored for stored in self.session.calls()}
        return [found[call_id] for call_id in call_ids if call_id in found]


def http_request(dialect: str, body: Object, headers: list[list[str]] | None = None) -> Object:
    return {
        "method": "POST",
        "path": f"/ng-rollout/0-0{PATHS[dialect]}",
        "headers": [*JSON, *(headers or [])],
        "body_chunks": [{"text": json.dumps(body)}],
    }


def stream(chunks: list[bytes], times_ms: list[float] | None = None) -> Object:
    times = times_ms or [10.0 + number for number in range(len(chunks))]
    return {
        "status": 200,
        "headers": EVENT_STREAM,
        "chunks": [{"at_ms": at_ms, "b64": _base64(chunk)} for at_ms, chunk in zip(times, chunks, strict=True)],
    }


def plain(body: Object, status: int = 200, at_ms: float = 10.0) -> Object:
    return {"status": status, "headers": JSON, "chunks": [{"at_ms": at_ms, "text": json.dumps(body)}]}


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


# ── what a record of a streamed call must say ──────────────────────────────────────────────────────────────────────


def output_text(response: Object | None) -> str:
    """All text of the answer, whatever the dialect; a refusal is none."""
    response = response or {}
    texts = [_choice_text(choice) for choice in reference.objects(response.get("choices"))]
    for item in reference.objects(response.get("output")):
        texts += [_part_texts(item.get("content"), "text")] if item.get("type") == "message" else []
    texts += [block["text"] for block in reference.objects(response.get("content")) if block.get("type") == "text"]
    return "".join(texts)


def _choice_text(choice: Object) -> str:
    message = choice.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, str) else _part_texts(content, "text")


def _part_texts(parts: Any, name: str) -> str:
    return "".join(part[name] for part in reference.objects(parts) if isinstance(part.get(name), str))


def _refusal(stored: StoredCall) -> str | None:
    response = stored.record.response or {}
    messages = [choice.get("message") for choice in reference.objects(response.get("choices"))]
    contents = [item.get("content") for item in reference.objects(response.get("output"))]
    return "".join([_part_texts(messages, "refusal"), *(_part_texts(parts, "refusal") for parts in contents)]) or None


def _of_blocks(name: str) -> Callable[[StoredCall], Any]:
    """What the content blocks of a Messages answer carry under ``name``: texts joined, lists put together."""

    def read(stored: StoredCall) -> Any:
        blocks = reference.objects((stored.record.response or {}).get("content"))
        found = [block[name] for block in blocks if block.get(name)]
        if not found:
            return None
        return [entry for each in found for entry in each] if isinstance(found[0], list) else "".join(found)

    return read


def _first_choice(stored: StoredCall) -> Object:
    choices = reference.objects((stored.record.response or {}).get("choices"))
    return choices[0] if choices else {}


def _choices(stored: StoredCall) -> list[Object]:
    return [
        {"index": choice.get("index"), "text": _choice_text(choice), "finish_reason": choice.get("finish_reason")}
        for choice in reference.objects((stored.record.response or {}).get("choices"))
    ]


def _log_probs(stored: StoredCall) -> list[Any]:
    logprobs = _first_choice(stored).get("logprobs") or {}
    return [token.get("logprob") for token in reference.objects(logprobs.get("content"))]


def _prompt_token_ids(stored: StoredCall) -> Any:
    response = stored.record.response or {}
    return reference.first(response.get("prompt_token_ids"), _first_choice(stored).get("prompt_token_ids"))


READERS: dict[str, Callable[[StoredCall], Any]] = {
    "text": lambda stored: output_text(stored.record.response),
    "reasoning": lambda stored: stored.record.reasoning_content,
    "stream_truncated": lambda stored: stored.record.error_category == "stream_truncated",
    "error_type": lambda stored: stored.span.attributes.get("error.type"),
    "span_status": lambda stored: SPAN_STATUSES.get(stored.span.status),
    "finish_reasons": lambda stored: list(stored.span.attributes.get("gen_ai.response.finish_reasons") or []),
    "choices": _choices,
    "prompt_token_ids": _prompt_token_ids,
    "generation_token_ids": lambda stored: _first_choice(stored).get("token_ids"),
    "generation_log_probs": _log_probs,
    "refusal": _refusal,
    "signature": _of_blocks("signature"),
    "citations": _of_blocks("citations"),
}


# Fields that an answer, or a part of one, may carry: null is expected of them where nothing said them.
ANSWER_FIELDS = frozenset(
    [
        "annotations",
        "audio",
        "container",
        "context_management",
        "created",
        "created_at",
        "encrypted_content",
        "error",
        "function_call",
        "id",
        "images",
        "incomplete_details",
        "logprobs",
        "model",
        "object",
        "prompt_filter_results",
        "prompt_logprobs",
        "prompt_token_ids",
        "reasoning_details",
        "role",
        "service_tier",
        "status",
        "stop_details",
        "stop_reason",
        "stop_sequence",
        "system_fingerprint",
        "token_ids",
    ]
)


def record_problems(stored: StoredCall, expected: Object) -> Iterator[str]:
    """Every key of ``expected`` against the record, its span and all that is written of them."""
    fields = json.loads(stored.record.to_json())
    for name, value in expected.items():
        if name in REMARKS:
            continue
        if name.startswith("must_not_contain"):
            yield from found_in(json.dumps([fields, stored.span.attributes], ensure_ascii=False, default=str), value)
        elif name == "usage":
            wanted = value or dict.fromkeys(TOKEN_FIELDS)
            yield from unequal({key: fields[key] for key in wanted}, wanted)
        elif name in READERS:
            yield from unequal({name: READERS[name](stored)}, {name: value})
        elif name in fields:
            yield from unequal({name: fields[name]}, {name: value})
        elif name in (fields["response"] or {}):
            yield from unequal({name: fields["response"][name]}, {name: value})
        elif value is None and name in ANSWER_FIELDS:
            # Unknown is what it should be: nothing of that name may be said anywhere in the response.
            yield from (f"{name}: {found!r}, should be None" for found in _said_under(name, fields["response"]))
        else:
            raise NotDrivenError(f"no check for the key {name!r}")


def _said_under(name: str, value: Any) -> Iterator[Any]:
    """What is not null under a key, anywhere in a JSON value."""
    if isinstance(value, dict):
        if value.get(name) is not None:
            yield value[name]
        for item in value.values():
            yield from _said_under(name, item)
    elif isinstance(value, list):
        for item in value:
            yield from _said_under(name, item)


def found_in(text: str, forbidden: Any) -> Iterator[str]:
    for part in [forbidden] if isinstance(forbidden, str) else forbidden:
        if part in text:
            yield f"{part!r} is in the output"


Driver = Callable[[Path, Object, Bench], Iterator[str]]


def has_files(*patterns: str) -> Callable[[Path], bool]:
    return lambda folder: all(any(folder.glob(pattern)) for pattern in patterns)
