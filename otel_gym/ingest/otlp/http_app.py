"""OTLP over HTTP: POST /v1/traces and /v1/logs, in protobuf and in JSON."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from otel_gym.ingest.otlp.json_text import spans_of_json
from otel_gym.ingest.otlp.logs import logs_of_json, logs_of_proto
from otel_gym.ingest.otlp.proto import spans_of_proto
from otel_gym.ingest.otlp.receiver import Answer, Decode, Receiver, Verdict

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
RETRY_AFTER_S = 1
PROTOBUF, JSON = "application/x-protobuf", "application/json"
_TOO_LARGE = f"larger than {MAX_MESSAGE_BYTES:,} bytes: send smaller batches"
_CHUNK = 256 * 1024
# Of zlib: gzip and deflate, told by their first bytes.
_ANY_HEADER = 47
# Codes of google.rpc.Code.
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _UNAVAILABLE = 3, 8, 14


class _RefusedError(Exception):
    """The request is not taken: the HTTP status, the code of google.rpc, and what is said."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class _Form(NamedTuple):
    """How a message is written, and how it is answered."""

    media_type: str
    decode: Decode
    answer: Callable[[Answer], bytes]
    refusal: Callable[[int, str], bytes]


def receiver_app(receiver: Receiver) -> Starlette:
    """Answers 200 when the spans are in the store's files, not before."""

    def taking(forms: Mapping[str, _Form]) -> Callable[[Request], Awaitable[Response]]:
        async def take(request: Request) -> Response:
            form = forms.get(_media_type(request))
            taken = _Taken(receiver)
            try:
                if form is None:
                    raise _RefusedError(415, _INVALID_ARGUMENT, f"send {PROTOBUF} or {JSON}")
                content = await _content(request, taken)
                return _answered(await answer_of(receiver, content, form.decode), form)
            except _RefusedError as error:
                return _refusal(error, form or forms[PROTOBUF])
            except ClientDisconnect:
                return Response(status_code=400)
            finally:
                taken.give_back()

        return take

    async def metrics(request: Request) -> Response:
        async for _ in request.stream():  # a client that is answered before it has sent all may see an error
            pass
        receiver.pass_over("metrics")
        form = _TRACES.get(_media_type(request), _TRACES[PROTOBUF])
        return Response(b"{}" if form.media_type == JSON else b"", media_type=form.media_type)

    endpoints = {"traces": taking(_TRACES), "logs": taking(_LOGS), "metrics": metrics}
    # A redirect for the slash would be taken for a success by exporters.
    routes = [
        Route(f"/v1/{signal}{slash}", endpoint, methods=["POST"])
        for signal, endpoint in endpoints.items()
        for slash in ("", "/")
    ]
    return Starlette(routes=routes)


async def answer_of(receiver: Receiver, content: bytes, decode: Decode) -> Answer:
    """What became of a message, as soon as that is certain."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[Answer] = loop.create_future()

    def tell(answer: Answer) -> None:
        loop.call_soon_threadsafe(lambda: None if told.done() else told.set_result(answer))

    receiver.submit(content, decode, tell)
    return await told


class _Taken:
    """The room that one request takes; given back whole."""

    def __init__(self, receiver: Receiver) -> None:
        self._room = receiver.room
        self._size = 0

    def take(self, size: int) -> None:
        if not self._room.take(size, self._size):
            raise _RefusedError(503, _RESOURCE_EXHAUSTED, "the receiver is behind with writing; try again")
        self._size += size

    def give_back(self) -> None:
        self._room.give(self._size)


async def _content(request: Request, taken: _Taken) -> bytes:
    """The request's body with its compression undone, as far as there is room for it."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "", "gzip", "deflate"):
        raise _RefusedError(415, _INVALID_ARGUMENT, f"Content-Encoding {coding[:40]!r} is not read: gzip or deflate is")
    chunks: list[bytes] = []
    size = 0
    stream = request.stream()
    async for chunk in stream if coding in ("identity", "") else _unpacked(stream):
        size += len(chunk)
        if size > MAX_MESSAGE_BYTES:
            raise _RefusedError(413, _INVALID_ARGUMENT, _TOO_LARGE)
        taken.take(len(chunk))
        chunks.append(chunk)
    return b"".join(chunks)


async def _unpacked(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Never more than a chunk at a time, whatever a few bytes may stand for."""
    unpacker, is_over = zlib.decompressobj(_ANY_HEADER), True
    try:
        async for packed in stream:
            is_full = False
            while packed or is_full:
                chunk = unpacker.decompress(packed, _CHUNK)
                yield chunk
                packed, is_over, is_full = unpacker.unconsumed_tail, unpacker.eof, len(chunk) == _CHUNK
                if is_over:  # another may follow
                    packed, unpacker, is_full = unpacker.unused_data, zlib.decompressobj(_ANY_HEADER), False
        if not is_over:
            raise zlib.error("it ends too early")
    except zlib.error as error:
        raise _RefusedError(400, _INVALID_ARGUMENT, f"the compressed body is damaged: {error}") from None


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _answered(answer: Answer, form: _Form) -> Response:
    problem = answer.problem or ""
    if answer.verdict is Verdict.MALFORMED:
        raise _RefusedError(400, _INVALID_ARGUMENT, problem)
    if answer.verdict is Verdict.NOT_WRITTEN:
        raise _RefusedError(503, _UNAVAILABLE, problem)
    return Response(form.answer(answer), media_type=form.media_type)


def _refusal(error: _RefusedError, form: _Form) -> Response:
    headers = {"retry-after": str(RETRY_AFTER_S)} if error.status == 503 else {}
    return Response(form.refusal(error.code, str(error)), error.status, headers, form.media_type)


def proto_answer(answer: Answer) -> bytes:
    """An ExportTraceServiceResponse."""
    response = ExportTraceServiceResponse()
    if answer.refused:
        response.partial_success.rejected_spans = answer.refused
        response.partial_success.error_message = answer.problem or ""
    return bytes(response.SerializeToString())


def proto_answer_of_logs(answer: Answer) -> bytes:
    """An ExportLogsServiceResponse."""
    response = ExportLogsServiceResponse()
    if answer.refused:
        response.partial_success.rejected_log_records = answer.refused
        response.partial_success.error_message = answer.problem or ""
    return bytes(response.SerializeToString())


def _json_answer(answer: Answer, refused: str = "rejectedSpans") -> bytes:
    if not answer.refused:
        return b"{}"
    said = {refused: str(answer.refused), "errorMessage": answer.problem}
    return json.dumps({"partialSuccess": said}).encode()


def _proto_refusal(code: int, message: str) -> bytes:
    return bytes(Status(code=code, message=message).SerializeToString())


def _json_refusal(code: int, message: str) -> bytes:
    return json.dumps({"code": code, "message": message}).encode()


_TRACES = {
    PROTOBUF: _Form(PROTOBUF, spans_of_proto, proto_answer, _proto_refusal),
    JSON: _Form(JSON, spans_of_json, _json_answer, _json_refusal),
}
_LOGS = {
    PROTOBUF: _Form(PROTOBUF, logs_of_proto, proto_answer_of_logs, _proto_refusal),
    JSON: _Form(JSON, logs_of_json, partial(_json_answer, refused="rejectedLogRecords"), _json_refusal),
}
