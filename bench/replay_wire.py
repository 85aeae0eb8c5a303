"""Replays every model call of recorded ``wire.jsonl`` files through the middleware: does each yield a record?

    python bench/replay_wire.py DIR…

A line is one HTTP exchange as a server saw it. A model call is a POST on exactly /v1/responses, /v1/chat/completions or
/v1/messages, with or without /ng-rollout/<id> before it (without: replayed under rollout ``replay``). Prints how
many exchanges and records there are and, per field of the record, how many are null. Exit code 1 if one is missing.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captured import CaptureSession, always
from otel_gym.records.model_call import ModelCallRecord
from scripted import ScriptedServer, VirtualClock, call

Object = dict[str, Any]

MODEL_CALL_PATH = re.compile(r"^(?P<prefix>/ng-rollout/[^/]+)?(?P<rest>/v1/(?:responses|chat/completions|messages))$")
UNPREFIXED_ROLLOUT = "replay"
BASE64 = "base64:"

# How the recorded exchange ended → what the application below does after its last chunk.
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


@dataclass
class Replay:
    exchanges: int
    calls: int
    records: dict[str, ModelCallRecord]


def lines_of(folders: list[Path]) -> Iterator[tuple[Path, int, Object]]:
    for folder in folders:
        files = [folder] if folder.is_file() else sorted(folder.rglob("wire.jsonl"))
        for file in files:
            for number, line in enumerate(file.read_bytes().split(b"\n")):
                if line.strip():
                    yield file, number, json.loads(line)


def model_call(file: Path, number: int, line: Object) -> ModelCall | None:
    match = MODEL_CALL_PATH.match(line["path"])
    if match is None or line["method"] != "POST":
        return None
    path = line["path"] if match["prefix"] else f"/ng-rollout/{UNPREFIXED_ROLLOUT}{match['rest']}"
    body, headers = request_body(line)
    return ModelCall(
        call_id=hashlib.md5(f"{file}:{number}".encode()).hexdigest(),
        request={
            "method": line["method"],
            "path": path,
            "query": line.get("query") or "",
            "headers": headers,
            "body_chunks": [body],
        },
        upstream=upstream(line),
    )


def request_body(line: Object) -> tuple[Object, list[list[str]]]:
    """The body as one chunk. A body that was recorded decoded loses its content-encoding header."""
    body = line.get("request_body")
    headers = [header for header in line["request_headers"] if header[0].lower() != "content-length"]
    if isinstance(body, str) and body.startswith(BASE64):
        return {"b64": body.removeprefix(BASE64)}, headers
    text = body if isinstance(body, str) else "" if body is None else json.dumps(body, ensure_ascii=False)
    return {"text": text}, [header for header in headers if header[0].lower() != "content-encoding"]


def upstream(line: Object) -> Object:
    chunks = [chunk(milliseconds, text) for milliseconds, text in line.get("chunks") or []]
    last_ms = max((entry["at_ms"] for entry in chunks), default=0.0)
    end_ms = max(last_ms, line.get("t_disconnect_ms") or 0.0)
    return {
        "status": line.get("status") or 200,
        "headers": line.get("response_headers") or [],
        "chunks": chunks,
        "raise_at_ms": end_ms,
        **ENDINGS[line["ended"]],
    }


def chunk(milliseconds: float, text: str) -> Object:
    if text.startswith(BASE64):
        return {"at_ms": milliseconds, "b64": base64.b64encode(base64.b64decode(text.removeprefix(BASE64))).decode()}
    return {"at_ms": milliseconds, "text": text}


async def replay(folders: list[Path], session: CaptureSession) -> tuple[int, list[str]]:
    clock = VirtualClock()
    exchanges, call_ids = 0, list[str]()
    for file, number, line in lines_of(folders):
        exchanges += 1
        found = model_call(file, number, line)
        if found is None:
            continue
        call_ids.append(found.call_id)
        application = ScriptedServer(found.upstream, clock)
        captured = session.wrap(application, clock, always(found.call_id))
        await call(captured, found.request, clock)
    return exchanges, call_ids


def run(folders: list[Path], store: Path) -> Replay:
    session = CaptureSession(store, run_id="replay")
    exchanges, call_ids = asyncio.run(replay(folders, session))
    stored = {str(call.record.model_call_id): call.record for call in session.calls()}
    return Replay(exchanges, len(call_ids), {name: stored[name] for name in call_ids if name in stored})


def null_counts(records: list[ModelCallRecord]) -> dict[str, int]:
    """Per field: how many records do not know it. An empty list of tool calls is known."""
    return {name: sum(getattr(record, name) is None for record in records) for name in ModelCallRecord.model_fields}


def print_replay(replayed: Replay) -> int:
    records = list(replayed.records.values())
    missing = replayed.calls - len(records)
    print(f"{replayed.exchanges} exchanges, {len(records)} records")
    for name, number in null_counts(records).items():
        print(f"{name:28} {number:5} null")
    print(f"{replayed.calls} model calls, {len(records)} records, {missing} missing")
    return 1 if missing else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIR", help="searched for wire.jsonl files")
    folders = parser.parse_args().directories
    with tempfile.TemporaryDirectory(prefix="otel_gym_replay_") as store:
        return print_replay(run(folders, Path(store)))


if __name__ == "__main__":
    sys.exit(main())
