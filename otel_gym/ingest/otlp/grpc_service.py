"""OTLP over gRPC: the services that senders of traces, metrics and logs call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from otel_gym.ingest.otlp.http_app import (
    MAX_MESSAGE_BYTES,
    RETRY_AFTER_S,
    answer_of,
    proto_answer,
    proto_answer_of_logs,
)
from otel_gym.ingest.otlp.logs import logs_of_proto
from otel_gym.ingest.otlp.proto import spans_of_proto
from otel_gym.ingest.otlp.receiver import Answer, Decode, Receiver, Verdict

_SERVICE = "/opentelemetry.proto.collector.{}.v1.{}Service/Export"
# More calls at a time are refused, since each may hold a message of full size.
_MOST_CALLS = 64
_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # Else a second receiver on the port would take a part of the calls, unseen.
    ("grpc.so_reuseport", 0),
]

Call = Callable[[bytes, Any], Awaitable[bytes]]


def grpc_server(receiver: Receiver) -> grpc.aio.Server:
    """A server without a port yet. A call ends with OK when its spans are in the store's files, not before."""
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_MOST_CALLS)
    server.add_generic_rpc_handlers((_Services(receiver),))
    return server


class _Services(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Messages are taken as bytes, and decoded where they are written."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._calls: dict[str, Call] = {
            _SERVICE.format("trace", "Trace"): self._taking(spans_of_proto, proto_answer),
            _SERVICE.format("logs", "Logs"): self._taking(logs_of_proto, proto_answer_of_logs),
            _SERVICE.format("metrics", "Metrics"): self._metrics,
        }

    def service(self, handler_call_details: Any) -> Any:
        call = self._calls.get(handler_call_details.method)
        return None if call is None else grpc.unary_unary_rpc_method_handler(call)

    def _taking(self, decode: Decode, said: Callable[[Answer], bytes]) -> Call:
        async def take(content: bytes, context: Any) -> bytes:
            room = self._receiver.room
            if not room.take(len(content)):
                await _abort(
                    context, grpc.StatusCode.RESOURCE_EXHAUSTED, "the receiver is behind with writing; try again"
                )
            try:
                answer = await answer_of(self._receiver, content, decode)
            finally:
                room.give(len(content))
            if answer.verdict is Verdict.MALFORMED:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, answer.problem)
            if answer.verdict is Verdict.NOT_WRITTEN:
                await _abort(context, grpc.StatusCode.UNAVAILABLE, answer.problem or "")
            return said(answer)

        return take

    async def _metrics(self, _content: bytes, _context: Any) -> bytes:
        self._receiver.pass_over("metrics")
        return b""


async def _abort(context: Any, code: grpc.StatusCode, message: str) -> None:
    """With the time after which to try again: OTLP asks senders to retry RESOURCE_EXHAUSTED only then."""
    status = Status(code=code.value[0], message=message)
    status.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=RETRY_AFTER_S)))
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    await context.abort(code, message)
