"""Drivers of bench/reports.py for what content may hold: secrets, half characters, numbers that JSON lacks, media.

Each exchange goes through capture as it lies in its folder; what is checked is everything that was written of it (the
files of the store), every span that any other exporter saw, and the record that is rebuilt from the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from captured import StoredCall, always
from otel_gym import conventions
from otel_gym.media import REFERENCE
from report_bench import (
    JSON,
    PATHS,
    Bench,
    Driver,
    found_in,
    has_files,
    plain,
    record_problems,
)
from report_problems import REMARKS, NotDrivenError, Object, unequal, unequal_of_known
from scripted import ScriptedServer, call

_REFERENCE = re.compile(re.escape(REFERENCE) + r"[0-9a-f]{64}:[0-9]+")


@contextlib.contextmanager
def content_policy(bench: Bench, **changes: Any) -> Iterator[None]:
    """Capture under another policy: ``messages=True`` also sets the conventions' content attributes."""
    pipeline = bench.session.pipeline
    before = pipeline.content
    pipeline.content = pipeline.processor.content = replace(before, **changes)
    try:
        yield
    finally:
        pipeline.recorder.flush(10)
        pipeline.content = pipeline.processor.content = before


def captured(bench: Bench, request: Object, upstream: Object) -> StoredCall:
    """One exchange; ``request`` as HTTP: method, path, query, headers, body_chunks."""
    bench.spans.clear()
    call_id = bench.next_call_id()
    application = bench.session.wrap(ScriptedServer(upstream, bench.clock), bench.clock, always(call_id))
    asyncio.run(call(application, request, bench.clock))
    found = bench.stored([call_id])
    if not found:
        raise NotDrivenError("there is no record")
    return found[0]


def post(dialect: str, body: bytes, headers: list[list[str]] | None = None, query: str = "") -> Object:
    return {
        "method": "POST",
        "path": f"/ng-rollout/0-0{PATHS[dialect]}",
        "query": query,
        "headers": [*JSON, *(headers or [])],
        "body_chunks": [{"text": body.decode()}],
    }


def lines_of(bench: Bench, stored: StoredCall) -> str:
    """The lines of the store that hold the call or a span of its trace, as they lie on disk."""
    files = sorted((bench.session.directory / "spans").rglob("*.jsonl"))
    lines = [line for file in files for line in file.read_text("utf-8").split("\n")]
    return "\n".join(line for line in lines if stored.span.trace_id in line)


def outputs(bench: Bench, stored: StoredCall) -> str:
    """All that leaves the process: the store, the spans that other exporters saw, the record."""
    exported = [span.to_json(indent=None) for span in bench.spans.get_finished_spans()]
    return "\n".join([lines_of(bench, stored), *exported, stored.record.to_json()])


def drive_secrets(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``exchange.json``: method, path with its query, headers and request; the answer says the request again."""
    exchange = json.loads((folder / "exchange.json").read_bytes())
    path, _, query = exchange["path"].partition("?")
    dialect = next((name for name, known in PATHS.items() if known == path), None)
    if dialect is None:
        raise NotDrivenError(f"a path of no model API: {path}")
    headers = [[name, value] for name, value in exchange.get("headers", {}).items()]
    body = json.dumps(exchange["request"]).encode()
    answer = {"id": "r", "choices": [{"index": 0, "message": {"role": "assistant", "content": body.decode()}}]}
    with content_policy(bench, messages=True):
        stored = captured(bench, post(dialect, body, headers, query), plain(answer))
    for name, value in expected.items():
        if name.startswith("must_not_contain"):
            yield from found_in(outputs(bench, stored), value)
        elif name == "kept_headers":
            yield from unequal({name: sorted(stored.request_headers())}, {name: sorted(value)})
        elif name not in REMARKS:
            raise NotDrivenError(f"no check for the key {name!r}")


def drive_long_conversation(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``messages.json``: the messages of one Chat request, with the content attributes switched on."""
    messages = json.loads((folder / "messages.json").read_bytes())
    body = json.dumps({"model": "toy", "messages": messages}).encode()
    answer = {"id": "r", "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}}]}
    with content_policy(bench, messages=True):
        stored = captured(bench, post("chat", body), plain(answer))
    sizes = [len(stored.span.attributes), *(len(span.attributes or {}) for span in bench.spans.get_finished_spans())]
    dropped = [stored.span.dropped, *(span.dropped_attributes for span in bench.spans.get_finished_spans())]
    in_one_attribute = json.loads(stored.span.attributes.get("gen_ai.input.messages", "[]"))
    counts = {
        "dropped_attributes": max(dropped),
        "messages_in_record": len((stored.record.request or {}).get("messages", ())),
    }
    if len(in_one_attribute) != len(messages):
        yield f"gen_ai.input.messages holds {len(in_one_attribute)} of {len(messages)} messages"
    limit = expected.get("attributes_below")
    if limit is not None and max(sizes) >= limit:
        yield f"a span has {max(sizes)} attributes"
    yield from unequal_of_known(counts, {name: value for name, value in expected.items() if name != "attributes_below"})


def drive_odd_response(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``response.json``: the body of a plain answer, byte for byte, strict JSON or not."""
    body = (folder / "response.json").read_bytes()
    response = json.loads(body)
    dialect = next((name for field, name in _DIALECTS.items() if field in response), None)
    if dialect is None:
        raise NotDrivenError("an answer of no model API")
    upstream = {"status": 200, "headers": JSON, "chunks": [{"at_ms": 10.0, "text": body.decode()}]}
    stored = captured(bench, post(dialect, b'{"model":"toy"}'), upstream)
    if stored.span.attributes.get(conventions.RESPONSE_BODY) != body.decode():
        yield "the body was not kept as it came"
    checks = {
        "replaced": lambda: stored.span.attributes.get(conventions.CONTENT_REPLACED),
        "strict_json": lambda: _is_strict(lines_of(bench, stored)) and _is_strict(stored.record.to_json()),
        "jsonl_logprob": lambda: _first_logprob(json.loads(stored.record.to_json())["response"]),
        # Parquet's column is this text, so what it holds is still the real number.
        "parquet_logprob": lambda: str(_first_logprob(json.loads(stored.span.attributes[conventions.RESPONSE_BODY]))),
    }
    for name in expected.keys() & checks.keys():
        yield from unequal({name: checks[name]()}, {name: expected[name]})
    yield from record_problems(stored, {name: value for name, value in expected.items() if name not in checks})


_DIALECTS = {"choices": "chat", "output": "responses", "content": "messages"}


def _first_logprob(response: Object) -> Any:
    return response["choices"][0]["logprobs"]["content"][0]["logprob"]


def _is_strict(lines: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        for line in lines.split("\n"):
            json.loads(line, parse_constant=refuse)
        lines.encode("utf-8")
    except ValueError:
        return False
    return True


def drive_media(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``request.json`` with a picture, kept without its bytes: a reference by hash and length, the type beside it."""
    body = (folder / "request.json").read_bytes()
    dialect = "responses" if "input" in json.loads(body) else "messages" if b'"source"' in body else "chat"
    answer = {"id": "r", "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}}]}
    with content_policy(bench, messages=True, media=False):
        stored = captured(bench, post(dialect, body), plain(answer))
    text = str(stored.span.attributes.get(conventions.REQUEST_BODY))
    for name, value in expected.items():
        if name == "span_must_not_contain":
            yield from found_in(outputs(bench, stored), value)
        elif name in ("text_kept", "mime"):
            if value not in text:
                yield f"{name}: {value!r} is not in the stored request"
        elif name == "blob_count":
            yield from unequal({name: len(set(_REFERENCE.findall(text)))}, {name: value})
        elif name not in REMARKS:
            raise NotDrivenError(f"no check for the key {name!r}")


def _is_answer(folder: Path) -> bool:
    file = folder / "response.json"
    return file.exists() and isinstance(json.loads(file.read_bytes()), dict)


def _holds_media(folder: Path) -> bool:
    file = folder / "request.json"
    return file.exists() and b"base64" in file.read_bytes()


CONTENT_DRIVERS: tuple[tuple[Any, Driver], ...] = (
    (has_files("exchange.json"), drive_secrets),
    (has_files("messages.json"), drive_long_conversation),
    (_is_answer, drive_odd_response),
    (_holds_media, drive_media),
)
