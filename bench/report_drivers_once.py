"""Drivers of reports.py for content that is stored once: growing histories and media.

They go through capture and look twice: at the lines as they lie on disk, and at what is read back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from otel_gym.conventions import MODEL_CALL_ID, REQUEST_BODY
from otel_gym.store.blobs import BlobStore
from otel_gym.store.media import references
from otel_gym.store.otlp_json import spans_of_line
from otel_gym.store.span import StoredSpan
from report_bench import Bench

Object = dict[str, Any]

# Long enough that a message is worth more than what says where it is kept.
MESSAGE_CHARACTERS = 1500
HISTORY_KEYS = frozenset({"unique_messages", "naive_messages", "rebuilt_equal"})
MEDIA_KEYS = frozenset({"span_must_not_contain", "text_kept", "mime", "blob_count"})


def has_history(folder: Path) -> bool:
    """``calls.json``: calls with lists of symbolic messages, and a number of those that are stored."""
    return _expects(folder, "calls.json", HISTORY_KEYS) and all(
        isinstance(call, dict) and isinstance(call.get("messages"), list) for call in _read(folder / "calls.json")
    )


def has_media(folder: Path) -> bool:
    """``request.json``: a request whose media must not stand in its span."""
    return _expects(folder, "request.json", MEDIA_KEYS)


def drive_history(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """Each symbolic message is a long one; counted is how often the lines hold each.

    Its first and last characters may happen to be those of another, and are left out.
    """
    calls = _read(folder / "calls.json")
    contents = {symbol: _content(f"{folder.name} {symbol}") for call in calls for symbol in call["messages"]}
    requests = [_chat_request([contents[symbol] for symbol in call["messages"]]) for call in calls]
    call_ids = [bench.exchange("chat", _answer(), request) for request in requests]
    found = bench.stored(call_ids)
    stored = "".join(span.attributes[REQUEST_BODY] for span in _spans_on_disk(bench, call_ids))
    counts = {
        "unique_messages": sum(stored.count(content[16:-16]) for content in contents.values()),
        "naive_messages": sum(len(call["messages"]) for call in calls),
        "rebuilt_equal": [each.span.body(REQUEST_BODY) for each in found] == [json.dumps(each) for each in requests],
    }
    yield from _unequal(counts, expected)


def drive_media(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """The line and the SDK's span hold no media, blobs/ does, and the request is read back as it was sent."""
    request = _read(folder / "request.json")
    bench.spans.clear()
    call_id = bench.exchange(_dialect(request), _answer(), request)
    (read,) = bench.stored([call_id])
    (on_disk,) = _spans_on_disk(bench, [call_id])
    body = on_disk.attributes[REQUEST_BODY]
    named = references(body)
    yield from (f"blobs/{sha256} is not there" for sha256 in BlobStore(bench.session.directory).missing(named))
    if read.record.request != request or read.span.body(REQUEST_BODY) != json.dumps(request):
        yield "the request that is read back is not the one that was sent"
    spans = [dict(span.attributes or {}) for span in bench.spans.get_finished_spans()]
    everything = json.dumps([on_disk.attributes, spans], ensure_ascii=False, default=str)
    counts = {
        "span_must_not_contain": _kept_out(expected.get("span_must_not_contain"), everything),
        "text_kept": _contained(expected.get("text_kept"), body),
        "mime": _contained(expected.get("mime"), body),
        "blob_count": len(named),
    }
    yield from _unequal(counts, expected)


def _expects(folder: Path, file: str, keys: frozenset[str]) -> bool:
    if not (folder / file).exists():
        return False
    expected = _read(folder / "expected.json")
    return bool(keys & expected.keys()) and expected.keys() <= keys | {"note"}


def _read(file: Path) -> Any:
    return json.loads(file.read_bytes())


def _content(seed: str) -> str:
    """A text that has nothing in common with any other."""
    hashes = (hashlib.sha256(f"{seed} {number}".encode()).hexdigest() for number in range(MESSAGE_CHARACTERS // 64 + 1))
    return "".join(hashes)[:MESSAGE_CHARACTERS]


def _chat_request(contents: list[str]) -> Object:
    return {"model": "toy", "messages": [{"role": "user", "content": content} for content in contents]}


def _answer() -> Object:
    return {
        "status": 200,
        "headers": [["content-type", "application/json"]],
        "chunks": [{"at_ms": 10.0, "text": '{"id":"r1"}'}],
    }


def _dialect(request: Object) -> str:
    if "input" in request:
        return "responses"
    parts = [part for message in request.get("messages", []) for part in _parts(message)]
    return "messages" if any("source" in part for part in parts) else "chat"


def _parts(message: Object) -> list[Object]:
    content = message.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _spans_on_disk(bench: Bench, call_ids: list[str]) -> list[StoredSpan]:
    """The model calls as their lines have them, before anything is made whole; in the order of the ids."""
    found: dict[str, StoredSpan] = {}
    for file in (bench.session.directory / "spans").rglob("*.jsonl"):
        for line in file.read_bytes().splitlines():
            for span in spans_of_line(line):
                if span.attributes.get(MODEL_CALL_ID) in call_ids:
                    found[span.attributes[MODEL_CALL_ID]] = span
    return [found[call_id] for call_id in call_ids]


def _contained(part: Any, text: str) -> Any:
    return part if isinstance(part, str) and part in text else None


def _kept_out(parts: Any, text: str) -> Any:
    """What was asked for, if none of it is in the text; else what is."""
    found = [part for part in ([parts] if isinstance(parts, str) else parts or []) if part in text]
    return f"{found} in the span" if found else parts


def _unequal(ours: Object, expected: Object) -> Iterator[str]:
    for name, value in expected.items():
        if name in ours and ours[name] != value:
            yield f"{name}: {ours[name]!r}, should be {value!r}"
