"""Replays every model call of recorded ``wire.jsonl`` files through the middleware: does each yield a record?

    python bench/replay_wire.py DIR…

A line is one HTTP exchange as a server saw it. A model call is a POST on exactly /v1/responses, /v1/chat/completions or
/v1/messages, with or without /ng-rollout/<id> before it (without: replayed under rollout ``replay``). Prints how
many exchanges and records there are and, per field of the record, how many are null. A call under an id that may name
no rollout is forwarded and not recorded: counted apart, and missing from the last line on both sides. Exit code 1 if a
record is missing, or a line can not be read.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from captured import CaptureSession, always
from otel_gym.id_rules import is_valid_id
from otel_gym.records.model_call import ModelCallRecord
from reference import load_object
from scripted import ScriptedServer, VirtualClock, call

Object = dict[str, Any]

MODEL_CALL_PATH = re.compile(
    r"(?P<prefix>/ng-rollout/(?P<id>[^/]+)(?:/training-token-capture)?)?(?P<rest>/v1/(?:responses|chat/completions|messages))"
)
UNPREFIXED_ROLLOUT = "replay"
BASE64 = "base64:"

# How the recorded exchange ended → what the application below does after its last chunk; a word that is not here is
# the name of what it raises ("timeout").
ENDINGS: dict[str, Object] = {
    "complete": {},
    "client_disconnect": {"raise": {"kind": "CancelledError"}},
    "server_abort": {"raise": {"kind": "ConnectionAbortedError"}},
    "server_drop_no_response": {"raise": {"kind": "ConnectionResetError"}, "raise_before_start": True},
}


@dataclass(frozen=True)
class ModelCall:
    """One model call, turned into a request and a script of the server (scripted.py)."""

    call_id: str
    request: Object
    upstream: Object
    is_refused: bool


@dataclass
class Replay:
    """What was driven. ``refused``: calls under an id that may name no rollout, which are in ``calls`` too."""

    exchanges: int = 0
    unreadable: int = 0
    calls: list[ModelCall] = field(default_factory=list)
    records: dict[str, ModelCallRecord] = field(default_factory=dict)

    @property
    def refused(self) -> int:
        return sum(call.is_refused for call in self.calls)


def lines_of(folders: list[Path]) -> Iterator[tuple[Path, int, Object | None]]:
    """Every line with its file and number; None for one that is no JSON object."""
    for folder in folders:
        files = [folder] if folder.is_file() else sorted(folder.rglob("wire.jsonl"))
        for file in files:
            for number, line in enumerate(file.read_bytes().split(b"\n")):
                if line.strip():
                    yield file, number, load_object(line)


def model_call(file: Path, number: int, line: Object) -> ModelCall | None:
    path, _, query = str(line.get("path")).partition("?")
    match = MODEL_CALL_PATH.fullmatch(path)
    if match is None or str(line.get("method")).upper() != "POST":
        return None
    path = path if match["prefix"] else f"/ng-rollout/{UNPREFIXED_ROLLOUT}{match['rest']}"
    body, headers = request_body(line)
    return ModelCall(
        call_id=hashlib.md5(f"{file}:{number}".encode()).hexdigest(),
        request={
            "method": "POST",
            "path": path,
            "query": line.get("query") or query,
            "headers": headers,
            "body_chunks": [body],
        },
        upstream=upstream(line),
        is_refused=match["id"] is not None and not is_valid_id(match["id"]),
    )


def request_body(line: Object) -> tuple[Object, list[list[str]]]:
    """The body as one chunk. A body that was recorded decoded loses its content-encoding header."""
    body = line.get("request_body")
    headers = [header for header in header_list(line.get("request_headers")) if header[0].lower() != "content-length"]
    if isinstance(body, str) and body.startswith(BASE64):
        return {"b64": body.removeprefix(BASE64)}, headers
    text = body if isinstance(body, str) else "" if body is None else json.dumps(body, ensure_ascii=False)
    return {"text": text}, [header for header in headers if header[0].lower() != "content-encoding"]


def header_list(headers: Any) -> list[list[str]]:
    """Headers as pairs of texts, of a list of pairs or of an object."""
    pairs = headers.items() if isinstance(headers, dict) else headers if isinstance(headers, list) else []
    return [[str(part) for part in pair] for pair in pairs if len(pair) == 2]


def ending(ended: Any) -> Object:
    if ended is None:
        return {}
    return ENDINGS[ended] if ended in ENDINGS else {"raise": {"kind": str(ended)}}


def upstream(line: Object) -> Object:
    chunks = [chunk(milliseconds, text) for milliseconds, text in line.get("chunks") or []]
    last_ms = max((entry["at_ms"] for entry in chunks), default=0.0)
    end_ms = max(last_ms, line.get("t_disconnect_ms") or 0.0)
    return {
        "status": line.get("status") or 200,
        "headers": header_list(line.get("response_headers")),
        "chunks": chunks,
        "raise_at_ms": end_ms,
        **ending(line.get("ended")),
    }


def chunk(milliseconds: float, text: str) -> Object:
    if text.startswith(BASE64):
        return {"at_ms": milliseconds, "b64": base64.b64encode(base64.b64decode(text.removeprefix(BASE64))).decode()}
    return {"at_ms": milliseconds, "text": text}


async def replay(folders: list[Path], session: CaptureSession) -> Replay:
    clock = VirtualClock()
    replayed = Replay()
    for file, number, line in lines_of(folders):
        if line is None:
            print(f"{file}, line {number + 1}: no JSON object")
            replayed.unreadable += 1
            continue
        replayed.exchanges += 1
        found = model_call(file, number, line)
        if found is None:
            continue
        replayed.calls.append(found)
        application = ScriptedServer(found.upstream, clock)
        captured = session.wrap(application, clock, always(found.call_id))
        await call(captured, found.request, clock)
    return replayed


def run(folders: list[Path], store: Path) -> Replay:
    session = CaptureSession(store, run_id="replay")
    replayed = asyncio.run(replay(folders, session))
    stored = {str(call.record.model_call_id): call.record for call in session.calls()}
    replayed.records = {call.call_id: stored[call.call_id] for call in replayed.calls if call.call_id in stored}
    return replayed


def null_counts(records: list[ModelCallRecord]) -> dict[str, int]:
    """Per field: how many records do not know it. An empty list of tool calls is known."""
    return {name: sum(getattr(record, name) is None for record in records) for name in ModelCallRecord.model_fields}


def print_replay(replayed: Replay) -> int:
    records = list(replayed.records.values())
    calls = len(replayed.calls) - replayed.refused
    missing = sum(call.call_id not in replayed.records for call in replayed.calls if not call.is_refused)
    print(f"{replayed.exchanges} exchanges, {len(records)} records")
    for name, number in null_counts(records).items():
        print(f"{name:28} {number:5} null")
    if replayed.refused:
        print(f"{replayed.refused} calls under an id that is refused: forwarded, not recorded")
    print(f"{calls} model calls, {len(records)} records, {missing} missing")
    return 1 if missing or replayed.unreadable else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIR", help="searched for wire.jsonl files")
    folders = parser.parse_args().directories
    with tempfile.TemporaryDirectory(prefix="otel_gym_replay_") as store:
        return print_replay(run(folders, Path(store)))


if __name__ == "__main__":
    sys.exit(main())
