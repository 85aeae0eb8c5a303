"""Tees the exchange of one request, and hands it to the recorder when it is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import SpanKind

from otel_gym import conventions as names
from otel_gym.capture.clock import Clock
from otel_gym.capture.durability import DurableSend, wait_until_written
from otel_gym.capture.exceptions import raised_of
from otel_gym.content import KEPT_HEAD_BYTES, KeptBody, safe_text
from otel_gym.id_rules import MAX_ID_BYTES
from otel_gym.identity import Identity
from otel_gym.tracing.current import restore
from otel_gym.tracing.ids import random_id128
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.membership import identity_attributes
from otel_gym.tracing.model_call import (
    OPERATION,
    REQUEST_MODEL,
    duration_ns,
    finish_model_call,
    open_attributes,
    start_attributes,
)
from otel_gym.tracing.payloads import Payload
from otel_gym.tracing.pipeline import Pipeline
from otel_gym.wire.exchange import DialectName, Exchange, Execution, Raised

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]

# In-flight bytes are booked with the recorder in steps; the first is free.
_HOLD_STEP_BYTES = 1024 * 1024

# What a call holds beside its bodies while it waits.
CALL_BYTES = 4096

# Of a larger request that is still open the model is not told.
SEARCHED_BYTES = 1024 * 1024

_EXECUTION = "nemo_gym_model_execution"


class _Body:
    """A body as it passes: (monotonic ns, bytes) of each message that was not empty.

    After ``cut`` only the head is kept; length and hash go on over the rest. ``left`` counts down the bytes that may
    come before room must be asked for: the one number that each chunk of a stream moves.
    """

    keep: Callable[[tuple[int, bytes]], None]
    left = _room = _HOLD_STEP_BYTES
    _head_room = 0
    _digest: Any = None

    def __init__(self) -> None:
        self.chunks: list[tuple[int, bytes]] = []
        self.keep = self.chunks.append

    @property
    def size(self) -> int:
        return self._room - self.left

    def give_room(self) -> None:
        self._room = self.size + _HOLD_STEP_BYTES
        self.left = _HOLD_STEP_BYTES

    def cut(self) -> None:
        whole = b"".join(content for _, content in self.chunks)
        self._digest = sha256(whole)
        self.chunks[:] = [(self.chunks[0][0], whole[:KEPT_HEAD_BYTES])] if whole else []
        self._head_room = KEPT_HEAD_BYTES - self.kept_size()
        self.keep = self._keep_head
        self._room, self.left = self.size - 1, -1  # whoever counts down asks from now on

    def _keep_head(self, chunk: tuple[int, bytes]) -> None:
        moment, content = chunk
        self._digest.update(content)
        if self._head_room > 0:
            self.chunks.append((moment, content[: self._head_room]))
            self._head_room -= len(content)

    def kept_size(self) -> int:
        return self.size if self._digest is None else sum(len(content) for _, content in self.chunks)

    def head(self, coding: str | None) -> KeptBody | None:
        if not self.chunks:
            return None
        kept = b"".join(content for _, content in self.chunks)
        return KeptBody(kept, coding, self.size, self._digest.hexdigest())


class CapturedCall:
    """One exchange in the making. Its span starts here and ends on the recorder's thread.

    ``on_last_byte`` is called before the final body message goes on: whatever the server starts after
    that (the next request of the connection) does not belong to this call. ``refused_id`` is what the URL
    said instead of a valid rollout id. ``model_call_id``: None for 32 random hex digits. ``model``: of a request that
    names none.
    """

    __slots__ = (
        "_clock",
        "_dialect",
        "_disconnected",
        "_held",
        "_identity",
        "_is_cut",
        "_is_handed_over",
        "_last_byte_ns",
        "_model_call_id",
        "_model_ref",
        "_on_last_byte",
        "_pipeline",
        "_raised",
        "_recorder",
        "_request",
        "_request_headers",
        "_response",
        "_response_headers",
        "_returned_ns",
        "_scope",
        "_span",
        "_start_ns",
        "_started_unix_nano",
        "_status_code",
        "_told_size",
    )

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        identity: Identity,
        dialect: DialectName,
        scope: Scope,
        clock: Clock,
        model_call_id: str | None,
        model_ref: dict[str, Any] | None,
        span_kind: SpanKind,
        server_address: tuple[str | None, int | None],
        on_last_byte: Callable[[], None],
        refused_id: str | None = None,
        model: str | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._identity = identity
        self._recorder = pipeline.recorder
        self._clock = clock
        self._scope = scope
        # Copies: what stands inside and outside of this takes headers off these lists, and adds some.
        self._request_headers: Headers = tuple(scope["headers"])
        self._response_headers: Headers = ()
        self._start_ns = clock.monotonic_ns()
        self._started_unix_nano = clock.wall_ns()
        self._dialect: DialectName = dialect
        self._model_call_id = model_call_id
        self._model_ref = model_ref
        self._status_code: int | None = None
        self._last_byte_ns: int | None = None
        self._returned_ns = 0
        self._raised: Raised | None = None
        self._request, self._response = _Body(), _Body()
        self._disconnected = False
        self._told_size = 0
        self._held = 0
        self._is_cut = False
        self._is_handed_over = False
        self._on_last_byte = on_last_byte
        host, port = server_address
        attributes = start_attributes(dialect, host, port, identity)
        if model is not None:
            attributes = {**attributes, REQUEST_MODEL: safe_text(model)}
        if refused_id is not None:
            attributes = {**attributes, names.REFUSED_ROLLOUT_ID: safe_text(refused_id[:MAX_ID_BYTES])}
        self._span = pipeline.tracer.start_span(
            OPERATION, kind=span_kind, attributes=attributes, start_time=self._started_unix_nano
        )
        self._recorder.open_spans.ask(self._span.get_span_context(), self)

    def _call_id(self) -> str:
        """Made on the recorder's thread, which alone asks, unless whoever captures names it."""
        if self._model_call_id is None:
            self._model_call_id = f"{random_id128():032x}"
        return self._model_call_id

    def knows_more(self) -> bool:
        return self._told_size != self._request.size <= SEARCHED_BYTES

    def is_over(self) -> bool:
        return self._is_handed_over

    def known_so_far(self) -> Mapping[str, Any]:
        """On the recorder's thread, while the request may still arrive."""
        self._told_size = self._request.size
        chunks = list(self._request.chunks) if self._told_size <= SEARCHED_BYTES else []
        request = b"".join(content for _, content in chunks)
        coding = _header(self._request_headers, b"content-encoding")
        told = open_attributes(self._call_id(), self._dialect, request, coding, self._pipeline.content)
        return {**identity_attributes(self._identity), **told}

    async def run(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves the request through ``app``; its exceptions go on to the server."""
        if self._pipeline.settings.durability == "sync":
            send = DurableSend(send, self._make_durable)
        token = otel_context.attach(trace.set_span_in_context(self._span))
        try:
            await app(scope, self._tee_receive(receive), self._tee_send(send))
        except BaseException as error:
            self._raised = raised_of(error)
            raise
        finally:
            restore(token)
            self._hand_over()

    def _tee_receive(self, receive: Receive) -> Receive:
        request = self._request

        async def tee() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                body = message.get("body")
                if body and not self._is_handed_over:
                    body = body if type(body) is bytes else bytes(body)
                    request.left -= len(body)
                    request.keep((0, body))
                    if request.left < 0:
                        self._book()
            elif message["type"] == "http.disconnect":
                self._disconnected = self._last_byte_ns is None
            return message

        return tee

    def _tee_send(self, send: Send) -> Send:
        # Runs once for each chunk of a stream: names are bound outside, bytes are only noted.
        response, clock_ns, keep = self._response, self._clock.monotonic_ns, self._response.chunks.append

        async def tee(message: Message) -> None:
            if message["type"] == "http.response.body":
                body = message.get("body")
                if body:
                    if type(body) is not bytes:
                        body = bytes(body)
                    left = response.left = response.left - len(body)
                    if left >= 0:
                        keep((clock_ns(), body))
                    else:
                        response.keep((clock_ns(), body))
                        self._book()
                if not message.get("more_body"):
                    self._last_byte_ns = clock_ns() - self._start_ns
                    self._on_last_byte()
            elif message["type"] == "http.response.start":
                self._status_code = message["status"]
                self._response_headers = tuple(message.get("headers") or ())
            await send(message)

        return tee

    def _book(self) -> None:
        """Books a long exchange with the recorder as it grows; without room its bodies are cut."""
        size = self._request.size + self._response.size
        if self._is_cut or size <= self._held + _HOLD_STEP_BYTES:
            return
        if self._recorder.hold(size - self._held):
            self._held = size
            self._request.give_room()
            self._response.give_room()
        else:
            self._cut()

    def _cut(self) -> None:
        self._is_cut = True
        self._request.cut()
        self._response.cut()
        self._recorder.count("cut_bodies")

    async def _make_durable(self) -> None:
        if not await wait_until_written(self._hand_over):
            self._recorder.count("not_durable")

    def _hand_over(self, written: Callable[[bool], None] | None = None) -> bool:
        """Once: at the end, or, where the client waits for the disk, before its last bytes. False: nothing is run."""
        if self._is_handed_over:
            return False
        self._is_handed_over = True
        try:
            self._returned_ns = self._clock.monotonic_ns() - self._start_ns
            return self._offer(written)
        except Exception:
            log_once("a model call could not be handed to the recorder")
            return False

    def _offer(self, written: Callable[[bool], None] | None) -> bool:
        """Whole, else the heads of its bodies, else without them, as the queue has room."""
        if not self._is_cut and self._recorder.add_job(self._finish, self._size(), self._held, written):
            return True
        if not self._is_cut:
            self._cut()
        if self._recorder.add_job(self._finish, self._size(), self._held, written):
            return True
        self._request.chunks.clear()
        self._response.chunks.clear()
        if self._recorder.add_job(self._finish, self._size(), self._held, written):
            return True
        self._recorder.release(self._held)
        self._recorder.open_spans.leave(self._span.get_span_context())
        self._recorder.count("lost_calls")
        return False

    def _size(self) -> int:
        """About what this call holds while it waits, in bytes."""
        return CALL_BYTES + self._request.kept_size() + self._response.kept_size()

    def _finish(self) -> None:
        exchange = self._exchange()
        self._span.set_attributes(identity_attributes(self._identity))
        if self._scope["method"] != "POST":
            self._span.set_attribute(names.REQUEST_METHOD, self._scope["method"])
        cut = None
        if self._is_cut:
            cut = Payload(
                self._request.head(exchange.request_content_encoding),
                self._response.head(exchange.response_content_encoding),
            )
        attributes = finish_model_call(self._span, exchange, cut, self._pipeline.content)
        if self._pipeline.metrics is not None:
            self._pipeline.metrics.record(attributes, duration_ns(exchange) / 10**9)

    def _exchange(self) -> Exchange:
        raised = self._raised
        if self._disconnected and raised is None and self._last_byte_ns is None:
            raised = Raised("ClientDisconnect", "cancelled")
        return Exchange(
            dialect=self._dialect,
            model_call_id=self._call_id(),
            started_unix_nano=self._started_unix_nano,
            model_ref=self._model_ref,
            request_headers=kept_headers(self._request_headers),
            request_body=b"".join(content for _, content in self._request.chunks),
            request_content_encoding=_header(self._request_headers, b"content-encoding"),
            status_code=self._status_code,
            response_headers=kept_headers(self._response_headers),
            response_content_type=_header(self._response_headers, b"content-type"),
            response_content_encoding=_header(self._response_headers, b"content-encoding"),
            chunks=[(moment - self._start_ns, content) for moment, content in self._response.chunks],
            last_byte_ns=self._last_byte_ns,
            returned_ns=self._returned_ns,
            raised=raised,
            execution=_execution(self._scope),
            is_cut=self._is_cut,
        )


def kept_headers(headers: Headers) -> dict[str, list[str]]:
    """The allow-listed headers, names in lower case; a name that came twice has two values."""
    kept: dict[str, list[str]] = {}
    for name, value in headers:
        name = bytes(name).lower()
        if names.is_kept_header(name):
            kept.setdefault(name.decode("latin-1"), []).append(bytes(value).decode("latin-1"))
    return kept


def _header(headers: Headers, wanted: bytes) -> str | None:
    values = [bytes(value).decode("latin-1") for name, value in headers if bytes(name).lower() == wanted]
    return ", ".join(values) if values else None


def _execution(scope: Scope) -> Execution | None:
    """What NeMo Gym's model server says of itself, as a mapping or an object; values of another type are left out."""
    said = (scope.get("state") or {}).get(_EXECUTION)
    if said is None:
        return None
    fields = said if isinstance(said, dict) else {name: _field(said, name) for name in _EXECUTION_TYPES}
    known = {name: fields.get(name) for name, kind in _EXECUTION_TYPES.items() if type(fields.get(name)) is kind}
    return Execution(**known)


def _field(said: object, name: str) -> Any:
    with suppress(Exception):  # a property of another's
        return getattr(said, name, None)
    return None


_EXECUTION_TYPES: dict[str, type] = {
    "upstream_attempted": bool,
    "response_source": str,
    "upstream_status_code": int,
    "local_response_reason": str,
}
