"""Public fault reports as small inputs: does otel_gym get each of them right?

    python bench/reports.py DIR

DIR holds one folder a report: input files, ``expected.json``. What is driven is chosen by the shape of the input, never
by the report's id. Every key of ``expected.json`` is checked; an input or a key that nothing here can check makes the
report ``not driven``, never right. Exit code 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import json
import logging
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

import reference
import report_drivers_once
import report_drivers_parquet
import report_drivers_perfetto
from captured import CaptureSession, always
from otel_gym.records.model_call import extract_token_stats
from otel_gym.records.retries import Attempt, logical_calls
from otel_gym.settings import unknown_settings
from report_bench import (
    EVENT_STREAM,
    JSON,
    TOKEN_FIELDS,
    Bench,
    Driver,
    has_files,
    http_request,
    plain,
    record_problems,
    stream,
)
from report_drivers_atif import ATIF_DRIVERS
from report_drivers_content import CONTENT_DRIVERS
from report_drivers_dynamo import DYNAMO_DRIVERS
from report_drivers_join import JOIN_DRIVERS
from report_drivers_otlp import OTLP_DRIVERS
from report_drivers_store import STORE_DRIVERS
from report_drivers_trajectory import TRAJECTORY_DRIVERS
from report_problems import REMARKS, NotDrivenError, Object, unequal_of_known
from scripted import VirtualClock, http_scope, scripted_exception

# ── drivers: one a shape of input ──────────────────────────────────────────────────────────────────────────────────


def drive_streams(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``*.sse`` whole, one byte at a time, and in the transport chunks of ``chunks.json`` or ``*_split.json``; of
    chunks that come without their stream, the stream that they make, too."""
    files = sorted(folder.glob("*.sse"))
    splits = [*folder.glob("chunks.json"), *sorted(folder.glob("*_split.json"))]
    forms = [(file.stem, form, chunks) for file in files for form, chunks in _transports(file.read_bytes()).items()]
    for split in splits:
        stem = _stem_of_split(split, files)
        chunks = [bytes.fromhex(chunk) for chunk in json.loads(split.read_bytes())]
        forms.append((stem, split.name, chunks))
        if not files:
            forms += [(stem, form, parts) for form, parts in _transports(b"".join(chunks)).items()]
        whole = next((file.read_bytes() for file in files if file.stem == stem), None)
        if whole is not None and whole != b"".join(chunks):
            yield f"{split.name} is another stream than {stem}.sse"
    for stem, form, chunks in forms:
        wanted = expected_of(stem, expected, [name for name, _, _ in forms])
        dialect = wanted.get("dialect") or _dialect_of(expected, b"".join(chunks))
        call_id = bench.exchange(dialect, stream(chunks))
        found = bench.stored([call_id])
        if not found:
            yield f"{stem}, {form}: no record"
        for stored in found:
            yield from (f"{stem}, {form}: {problem}" for problem in record_problems(stored, wanted))


def _transports(body: bytes) -> dict[str, list[bytes]]:
    return {"whole": [body], "byte by byte": [body[at : at + 1] for at in range(len(body))]}


def _stem_of_split(split: Path, files: list[Path]) -> str:
    if split.stem.endswith("_split"):
        return split.stem.removesuffix("_split")
    return files[0].stem if len(files) == 1 else split.stem


def expected_of(stem: str, expected: Object, stems: list[str]) -> Object:
    """expected.json is one object for every file, or one a file stem (``all``: each of them)."""
    if "all" in expected:
        common = expected["all"]
        return {**common, **expected.get(stem, {})}
    if not any(isinstance(expected.get(name), dict) for name in stems):
        return expected
    if stem not in expected:
        raise NotDrivenError(f"nothing is expected of {stem}")
    wanted: Object = expected[stem]
    return wanted


def _dialect_of(expected: Object, body: bytes) -> str:
    stated = [part.get("dialect") for part in expected.values() if isinstance(part, dict) and part.get("dialect")]
    kinds = [event.kind for event in reference.events(body)]
    if any(kind.startswith("response.") for kind in kinds):
        return "responses"
    if any(kind.startswith(("message_", "content_block_")) for kind in kinds):
        return "messages"
    if any("choices" in event.payload for event in reference.events(body)):
        return "chat"
    if not stated:
        raise NotDrivenError("the dialect of the stream is not stated")
    return str(stated[0])


def drive_timed_stream(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``*.sse`` with ``timing.json``: each event, comments too, is sent at its time; what has none, at the last one."""
    times = [float(entry["ms"]) for entry in json.loads((folder / "timing.json").read_bytes())]
    for file in sorted(folder.glob("*.sse")):
        body = file.read_bytes()
        blocks = [block for block in re.split(rb"(?<=\n\n)|(?<=\r\n\r\n)", body) if block.strip()]
        wanted = expected_of(file.stem, expected, [file.stem])
        at_ms = [*times, *[times[-1]] * len(blocks)][: len(blocks)]
        call_id = bench.exchange(wanted.get("dialect") or _dialect_of(expected, body), stream(blocks, at_ms))
        for stored in bench.stored([call_id]):
            yield from record_problems(stored, wanted)


def drive_timeline(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``timeline.json``: when the ASGI messages of a plain answer go, and when the application returns."""
    steps = json.loads((folder / "timeline.json").read_bytes())
    bodies = [step["ms"] for step in steps if step["ev"].startswith("response.body")]
    returned = [step["ms"] for step in steps if step["ev"].startswith("app returned")]
    known = ("request", "response.start", "response.body", "app returned")
    if not bodies or not all(step["ev"].startswith(known) for step in steps):
        raise NotDrivenError("a step of the timeline is not known")
    parts = [{"at_ms": at_ms, "text": text} for at_ms, text in zip(bodies, _pieces(len(bodies)), strict=True)]
    upstream: Object = {"status": 200, "headers": JSON, "chunks": parts}
    if returned:
        upstream["tail_ms"] = returned[-1]
    call_id = bench.exchange("chat", upstream)
    for stored in bench.stored([call_id]):
        yield from record_problems(stored, expected)


def _pieces(number: int) -> list[str]:
    return ["{", *[" "] * (number - 2), "}"] if number > 1 else ["{}"]


def drive_asgi_messages(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``asgi_messages.json``: what the application sends and receives, in this order; spans and logs are counted.

    With ``exception.json`` the application raises that after its last message.
    """
    steps = json.loads((folder / "asgi_messages.json").read_bytes())
    received = [_asgi_message(step) for step in steps if _is_received(step)]
    scope = http_scope(http_request(expected.get("dialect") or "chat", {"model": "toy", "stream": True}))
    scope["type"] = steps[0]["type"].split(".")[0]
    if scope["type"] not in ("http", "websocket", "lifespan"):
        raise NotDrivenError(f"messages of the kind {steps[0]['type']}")

    ending = folder / "exception.json"
    script = json.loads(ending.read_bytes()) if ending.exists() else None

    async def application(_scope: Any, receive: Any, send: Any) -> None:
        for step in steps:
            if _is_received(step):
                await receive()
            else:
                await send(_asgi_message(step))
        if script is not None:
            raise scripted_exception(script, None)

    async def receive() -> MutableMapping[str, Any]:
        return received.pop(0) if received else {"type": f"{scope['type']}.disconnect"}

    async def send(_message: MutableMapping[str, Any]) -> None:
        return None

    bench.spans.clear()
    call_id = bench.next_call_id()
    captured = bench.session.wrap(application, bench.clock, always(call_id))
    with _records_of("") as logged:
        asyncio.run(_serve(captured, scope, receive, send))
    stored = bench.stored([call_id])
    ended = sum(each.span.end_ns is not None for each in stored)
    counts = {**_span_counts(bench), "records": len(stored), "ended_spans": ended}
    counts |= {name: _log_count(name, logged) for name in expected if name.startswith("log_records")}
    yield from unequal_of_known(counts, {name: value for name, value in expected.items() if name in counts})
    rest = {name: value for name, value in expected.items() if name not in counts}
    if rest.keys() - REMARKS and not stored:
        raise NotDrivenError("there is no record to hold the rest against")
    for found in stored:
        yield from record_problems(found, rest)


async def _serve(application: Any, scope: Object, receive: Any, send: Any) -> None:
    # An application that raises is one of the things that are driven: its server would log it and go on.
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await application(scope, receive, send)


def _span_counts(bench: Bench) -> Object:
    spans = bench.spans.get_finished_spans()
    return {
        "server_spans": sum(span.kind is SpanKind.SERVER for span in spans),
        "internal_http_send_spans": sum(span.name.endswith("http send") for span in spans),
        "internal_http_receive_spans": sum(span.name.endswith("http receive") for span in spans),
    }


def _log_count(name: str, logged: list[logging.LogRecord]) -> int:
    """``log_records`` of any logger at WARNING and above, or ``log_records_on_NAME``."""
    logger = name.removeprefix("log_records").removeprefix("_on_")
    found = [record for record in logged if record.levelno >= logging.WARNING]
    return sum(record.name == logger or record.name.startswith(f"{logger}.") or not logger for record in found)


def _is_received(step: Object) -> bool:
    stated = step.get("dir")
    if stated is not None:
        return str(stated).startswith(("recv", "receive", "in"))
    return step["type"] in ("http.request", "http.disconnect", "websocket.connect", "websocket.receive")


def _asgi_message(step: Object) -> MutableMapping[str, Any]:
    message = {name: value for name, value in step.items() if name != "dir"}
    if "headers" in message:
        message["headers"] = [(name.encode(), value.encode()) for name, value in message["headers"]]
    if isinstance(message.get("body"), str):
        message["body"] = message["body"].encode()
    return message


def drive_usages(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``usages.json``: usage objects in, lists of counts out."""
    stats = [extract_token_stats(usage) for usage in json.loads((folder / "usages.json").read_bytes())]
    columns = {name: [each[name] for each in stats] for name in TOKEN_FIELDS}
    yield from unequal_of_known(columns, expected)


def drive_retries(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``exchanges.json``: attempts, each captured at its own time; grouped from what the store tells."""
    call_ids = [_attempt(exchange, bench) for exchange in json.loads((folder / "exchanges.json").read_bytes())]
    stored = bench.stored(call_ids)
    groups = logical_calls(Attempt(each.record, each.request_headers()) for each in stored)
    counts = {
        "records": len(stored),
        "logical_generations": len(groups),
        "attempts": sum(len(group.attempts) for group in groups),
        "retries": sum(group.retries for group in groups),
        "tokens_in": _total(group.record.tokens_in for group in groups),
        "tokens_out": _total(group.record.tokens_out for group in groups),
    }
    yield from unequal_of_known(counts, expected)


def _total(counts: Iterator[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


HEADER_FIELDS = ("x_request_id", "x_stainless_retry_count", "traceparent", "x_session_id")


def _attempt(exchange: Object, bench: Bench) -> str:
    if "request" not in exchange or "status_code" not in exchange:
        raise NotDrivenError("exchanges of another shape")
    sent = {name.replace("_", "-"): exchange.get(name) for name in HEADER_FIELDS}
    headers = [[name, str(value)] for name, value in sent.items() if value is not None]
    start_ms = (exchange.get("started_at") or 0.0) * 1000
    end_ms = (exchange.get("completed_at") or 0.0) * 1000
    upstream = plain(exchange.get("response") or {}, exchange["status_code"], max(start_ms, end_ms))
    return bench.exchange(exchange["dialect"], upstream, exchange["request"], headers, start_ms)


def drive_arguments(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``calls.json``: tool-call arguments as servers send them, in one Chat answer."""
    calls = json.loads((folder / "calls.json").read_bytes())
    tool_calls = [
        {"id": f"call_{number}", "type": "function", "function": {"name": "tool", "arguments": entry["arguments"]}}
        for number, entry in enumerate(calls)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": tool_calls}
    body = {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    stored = bench.stored([bench.exchange("chat", plain(body))])
    ours = [tool_call.arguments for each in stored for tool_call in each.record.tool_calls or ()]
    yield from unequal_of_known({"arguments": ours}, expected)


def drive_environment(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """``env.txt``: NAME=value lines; which names of ours are misspelt, and what was meant."""
    lines = (folder / "env.txt").read_text("utf-8").split("\n")
    environ = dict(line.split("=", 1) for line in lines if "=" in line)
    unknown = unknown_settings(environ)
    yield from unequal_of_known({"warnings": list(unknown), "nearest": unknown}, expected)


def drive_abandoned_stream(folder: Path, expected: Object, bench: Bench) -> Iterator[str]:
    """A ``*.py`` that leaves a generator with a span open: its parts go through capture, left after the first."""
    parts = _streamed_parts(next(folder.glob("*.py")))
    call_id = bench.next_call_id()
    captured = bench.session.wrap(_streaming_application(parts), bench.clock, always(call_id))
    with _records_of("opentelemetry.context") as logged:
        asyncio.run(_read_first_part(captured))
    stored = bench.stored([call_id])
    ended = sum(each.span.end_ns is not None for each in stored)
    yield from unequal_of_known({"log_records_on_opentelemetry.context": len(logged), "ended_spans": ended}, expected)


def _streamed_parts(program: Path) -> list[str]:
    """The texts that the program's async generator yields."""
    for function in ast.walk(ast.parse(program.read_text("utf-8"))):
        if not isinstance(function, ast.AsyncFunctionDef):
            continue
        if not any(isinstance(node, ast.Yield) for node in ast.walk(function)):
            continue
        loops = [node.iter for node in ast.walk(function) if isinstance(node, ast.For)]
        for texts in loops:
            with contextlib.suppress(ValueError):
                return [str(text) for text in ast.literal_eval(texts)]
    raise NotDrivenError("the program has no async generator over texts")


def _streaming_application(parts: list[str]) -> Any:
    async def application(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = [(name.encode(), value.encode()) for name, value in EVENT_STREAM]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for part in parts:
            await send({"type": "http.response.body", "body": f"data: {part}\n\n".encode(), "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return application


async def _read_first_part(application: Any) -> None:
    """A reader in a task of its own that breaks out of the stream; the generator is closed in yet another context."""
    scope = http_scope(http_request("chat", {"model": "toy", "stream": True}))

    async def parts() -> AsyncIterator[bytes]:
        queue: asyncio.Queue[bytes] = asyncio.Queue(1)

        async def receive() -> Object:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            await queue.put(message.get("body", b""))

        serving = asyncio.create_task(application(scope, receive, send))
        try:
            while True:
                yield await queue.get()
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    async def reader() -> None:
        async for part in parts():
            if part:
                break

    await asyncio.create_task(reader())
    await asyncio.sleep(0.05)


class _Collecting(logging.Handler):
    def __init__(self, records: list[logging.LogRecord]) -> None:
        super().__init__()
        self._records = records

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)


@contextlib.contextmanager
def _records_of(logger_name: str) -> Iterator[list[logging.LogRecord]]:
    records: list[logging.LogRecord] = []
    handler = _Collecting(records)
    logger = logging.getLogger(logger_name)
    logger.addHandler(handler)
    try:
        yield records
    finally:
        logger.removeHandler(handler)


def _list_of_arguments(folder: Path) -> bool:
    file = folder / "calls.json"
    if not file.exists():
        return False
    calls = json.loads(file.read_bytes())
    return isinstance(calls, list) and all(isinstance(entry, dict) and entry.keys() == {"arguments"} for entry in calls)


def _leaves_a_span_open(folder: Path) -> bool:
    return any("start_as_current_span" in program.read_text("utf-8") for program in folder.glob("*.py"))


# The first shape that fits decides.
DRIVERS: tuple[tuple[Callable[[Path], bool], Driver], ...] = (
    (has_files("*.sse", "timing.json"), drive_timed_stream),
    (has_files("*.sse"), drive_streams),
    (has_files("*_split.json"), drive_streams),
    (has_files("chunks.json"), drive_streams),
    (has_files("timeline.json"), drive_timeline),
    (has_files("asgi_messages.json"), drive_asgi_messages),
    (has_files("usages.json"), drive_usages),
    (has_files("exchanges.json"), drive_retries),
    (_list_of_arguments, drive_arguments),
    (has_files("env.txt"), drive_environment),
    (_leaves_a_span_open, drive_abandoned_stream),
    (report_drivers_once.has_history, report_drivers_once.drive_history),
    (report_drivers_once.has_media, report_drivers_once.drive_media),
    (report_drivers_parquet.has_rows, report_drivers_parquet.drive_rows),
    (report_drivers_perfetto.has_plain_spans, report_drivers_perfetto.drive_plain_spans),
    *TRAJECTORY_DRIVERS,
    *JOIN_DRIVERS,
    *STORE_DRIVERS,
    *CONTENT_DRIVERS,
    *OTLP_DRIVERS,
    *ATIF_DRIVERS,
    *DYNAMO_DRIVERS,
)


def drive(folder: Path, bench: Bench) -> list[str]:
    """Problems of one report; none: it is right. NotDrivenError if no driver knows its shape."""
    expected = json.loads((folder / "expected.json").read_bytes())
    driver = next((driver for fits, driver in DRIVERS if fits(folder)), None)
    if driver is None:
        inputs = sorted(file.name for file in folder.iterdir() if not file.name.startswith("expected."))
        raise NotDrivenError(f"no driver for {', '.join(inputs)}")
    try:
        return list(driver(folder, expected, bench))
    except (LookupError, TypeError, AttributeError, ValueError) as problem:
        raise NotDrivenError(f"{driver.__name__} cannot read it: {type(problem).__name__}: {problem}") from problem


def run(directory: Path, store: Path) -> int:
    session = CaptureSession(store, run_id="reports")
    spans = InMemorySpanExporter()
    session.pipeline.provider.add_span_processor(SimpleSpanProcessor(spans))
    bench = Bench(session, VirtualClock(), spans)
    counts = {"right": 0, "wrong": 0, "not driven": 0}
    folders = sorted(folder for folder in directory.iterdir() if (folder / "expected.json").is_file())
    for folder in folders:
        try:
            problems = drive(folder, bench)
        except NotDrivenError as reason:
            counts["not driven"] += 1
            print(f"{folder.name}: not driven: {reason}")
            continue
        counts["wrong" if problems else "right"] += 1
        print(f"{folder.name}: {'wrong' if problems else 'right'}")
        for problem in problems:
            print(f"    {problem}")
    print(f"{len(folders)} reports, " + ", ".join(f"{number} {word}" for word, number in counts.items()))
    return 1 if counts["wrong"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="a folder shaped like corpus/reports")
    directory = parser.parse_args().directory
    with tempfile.TemporaryDirectory(prefix="otel_gym_reports_") as store:
        return run(directory, Path(store))


if __name__ == "__main__":
    sys.exit(main())
