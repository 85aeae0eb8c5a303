"""Sends messages of OTLP and listens to what becomes of them. Trying again is left to the transports."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from http.client import BadStatusLine, RemoteDisconnected
from threading import Thread
from time import monotonic
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

import grpc
import requests
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.util.re import parse_env_headers
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from otel_gym.content import printable
from otel_gym.tracing.otlp.exporters import HEADERS_SPEAKER
from otel_gym.tracing.otlp.plan import shown_url

# Of each try.
_TIMEOUT_S = 30.0
_MOST_BACKOFF_S = 5
# An endpoint may ask for that long a wait.
_MOST_WAIT_S = 60
_TRIES = 5
_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_TRACES_PATH = "/v1/traces"
_SAID = 300
_RETRIED = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
_RETRY_POLICY = {
    "maxAttempts": _TRIES,
    "initialBackoff": "0.5s",
    "maxBackoff": f"{_MOST_BACKOFF_S}s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": list(_RETRIED),
}
_UNBOUNDED = ("grpc.max_send_message_length", -1)
_GRPC_OPTIONS = [
    ("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": _RETRY_POLICY}]})),
    # What is larger is not tried again.
    ("grpc.per_rpc_retry_buffer_size", 64 * 1024 * 1024),
    _UNBOUNDED,
]
_TRIED_ONCE = [("grpc.enable_retries", 0), _UNBOUNDED]
# What grpcio says of a peer that answers in HTTP/1.
_NO_GRPC = ("Failed parsing HTTP/2", "http1.x server")


class SendError(Exception):
    """The endpoint does not take messages; the text says which, why and what to do."""


class RefusedError(Exception):
    """The endpoint takes messages, and not this one; the text says why."""


class Sender(Protocol):
    def send(self, content: bytes) -> tuple[int, str]:
        """How many spans of the message were refused, and why. Raises SendError, RefusedError."""

    def close(self) -> None: ...


Say = Callable[[str], None]


def _silent(text: str) -> None:
    pass


def new_sender(endpoint: str, protocol: str, environ: Mapping[str, str], say: Say = _silent) -> Sender:
    """``protocol``: ``grpc`` or ``http/protobuf``. Headers and compression are those of OTEL_EXPORTER_OTLP_*.

    ``say`` is called with what a user should know meanwhile. Raises SendError for what is no endpoint.
    """
    _check_endpoint(endpoint)
    headers = _headers(_standard(environ, "HEADERS"), say)
    packs = _standard(environ, "COMPRESSION").strip().lower() == "gzip"
    return GrpcSender(endpoint, headers, packs) if protocol == "grpc" else HttpSender(endpoint, headers, packs, say)


def _check_endpoint(endpoint: str) -> None:
    try:
        host = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}").hostname
    except ValueError:
        host = None
    if not host:
        raise SendError(
            f"--endpoint {shown_url(endpoint)!r} names no host: give http://HOST:4318, or HOST:4317 for gRPC"
        )


def _headers(text: str, say: Say) -> Mapping[str, str]:
    with _without_text(say):
        return parse_env_headers(text, liberal=True)


@contextmanager
def _without_text(say: Say) -> Iterator[None]:
    """Of a header that cannot be read it is said that there is one: its text may be a key."""

    def refuse(record: logging.LogRecord) -> bool:
        say("an entry of OTEL_EXPORTER_OTLP_HEADERS is no name=value, and is left out")
        return False

    speaker = logging.getLogger(HEADERS_SPEAKER)
    speaker.addFilter(refuse)
    try:
        yield
    finally:
        speaker.removeFilter(refuse)


def _standard(environ: Mapping[str, str], name: str) -> str:
    return environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or environ.get(f"OTEL_EXPORTER_OTLP_{name}") or ""


class HttpSender:
    def __init__(self, endpoint: str, headers: Mapping[str, str], packs: bool = False, say: Say = _silent) -> None:
        self._url = _traces_url(endpoint)
        self._say = say
        self._deadline = 0.0
        self._pack = gzip.compress if packs else bytes
        self._session = requests.Session()
        self._session.headers.update({**headers, "content-type": "application/x-protobuf"})
        if packs:
            self._session.headers["content-encoding"] = "gzip"
        retry = _RetryOfHttp(
            total=_TRIES - 1,
            backoff_factor=0.5,
            backoff_max=_MOST_BACKOFF_S,
            status_forcelist=(429, 502, 503, 504),
            allowed_methods=None,
            raise_on_status=False,
        )
        retry.on_wait = self._wait
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=retry))

    def send(self, content: bytes) -> tuple[int, str]:
        try:
            answer = self._post(self._pack(content))
        except requests.RequestException as error:
            if _is_other_protocol(error):
                cure = "if it takes gRPC, give --protocol grpc"
                raise SendError(f"{shown_url(self._url)} does not answer in HTTP/1; {cure}") from None
            raise SendError(f"{shown_url(self._url)} does not answer: {_reason(error)}; is it up?") from None
        if answer.status_code in (400, 413, 422):
            raise RefusedError(f"HTTP {answer.status_code}: {_said(answer.content)}")
        if not answer.ok:
            said = _said(answer.content)
            cure = "see to its address, OTEL_EXPORTER_OTLP_HEADERS and its log"
            raise SendError(f"{shown_url(self._url)}: HTTP {answer.status_code}: {said}; {cure}")
        return _partial_success(answer.content)

    def _post(self, content: bytes) -> requests.Response:
        """The timeout of requests starts anew with each byte of an answer; this one does not."""
        answer: Future[requests.Response] = Future()

        def post() -> None:
            try:
                answer.set_result(self._session.post(self._url, data=content, timeout=_TIMEOUT_S))
            except BaseException as error:
                answer.set_exception(error)

        self._deadline = monotonic() + _TIMEOUT_S
        Thread(target=post, daemon=True, name="otel_gym-send").start()
        while not answer.done() and (left := self._deadline - monotonic()) > 0:
            wait([answer], left)
        if not answer.done():
            problem = f"its answer did not end within {_TIMEOUT_S:g} s"
            raise SendError(f"{shown_url(self._url)}: {problem}; see to its log, and what stands before it")
        return answer.result()

    def _wait(self, seconds: float) -> None:
        self._deadline = monotonic() + seconds + _TIMEOUT_S
        if seconds > _MOST_BACKOFF_S:
            self._say(f"{shown_url(self._url)} asks to wait: tried again in {seconds:.0f} s")

    def close(self) -> None:
        self._session.close()


class _RetryOfHttp(Retry):
    """Gives up at once on a peer that speaks another protocol; tells ``on_wait`` how many seconds it will wait."""

    on_wait: Callable[[float], None] = staticmethod(lambda seconds: None)

    def new(self, **parts: Any) -> Self:
        following = super().new(**parts)
        following.on_wait = self.on_wait
        return following

    def get_retry_after(self, response: Any) -> float | None:
        asked = super().get_retry_after(response)
        return None if asked is None else min(asked, _MOST_WAIT_S)

    def sleep(self, response: Any = None) -> None:
        asked = self.get_retry_after(response) if response is not None else None
        self.on_wait(asked or self.get_backoff_time())
        super().sleep(response)

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: Any = None,
        error: Exception | None = None,
        _pool: Any = None,
        _stacktrace: Any = None,
    ) -> Self:
        if error is not None and _is_other_protocol(error):
            raise error
        return super().increment(method, url, response, error, _pool, _stacktrace)


def _is_other_protocol(error: BaseException) -> bool:
    cause = _innermost(error)
    causes = [cause, *cause.args]  # urllib3's ProtocolError has it as an argument
    return any(isinstance(each, BadStatusLine) and not isinstance(each, RemoteDisconnected) for each in causes)


class GrpcSender:
    """The first message goes without trying again, so that a peer that speaks no gRPC is found out at once."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], packs: bool = False) -> None:
        url = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
        self._target, self._is_secure = url.netloc, url.scheme == "https"
        self._compression = grpc.Compression.Gzip if packs else grpc.Compression.NoCompression
        self._headers = tuple(headers.items())
        self._first: grpc.Channel | None = self._channel_of(_TRIED_ONCE)
        self._channel = self._channel_of(_GRPC_OPTIONS)

    def _channel_of(self, options: Any) -> grpc.Channel:
        if self._is_secure:
            return grpc.secure_channel(self._target, grpc.ssl_channel_credentials(), options, self._compression)
        return grpc.insecure_channel(self._target, options, self._compression)

    def send(self, content: bytes) -> tuple[int, str]:
        first, self._first = self._first, None
        if first is not None:
            try:
                return self._export(first, content)
            except grpc.RpcError as error:
                if error.code().name not in _RETRIED or _speaks_no_grpc(error):
                    raise self._problem(error) from None
            finally:
                first.close()
        try:
            return self._export(self._channel, content)
        except grpc.RpcError as error:
            raise self._problem(error) from None

    def _export(self, channel: grpc.Channel, content: bytes) -> tuple[int, str]:
        export = channel.unary_unary(_METHOD)
        return _partial_success(export(content, timeout=_TIMEOUT_S, metadata=self._headers))

    def _problem(self, error: grpc.RpcError) -> Exception:
        code, said = error.code(), str(error.details())[:_SAID]
        if code is grpc.StatusCode.INVALID_ARGUMENT or _is_too_large(code, said):
            return RefusedError(f"{code.name}: {said}")
        if _speaks_no_grpc(error):
            cure = "if it takes OTLP over HTTP, give --protocol http/protobuf"
            return SendError(f"{shown_url(self._target)} answers in HTTP/1, and not in gRPC; {cure}")
        cure = "is it up, and speaks gRPC? Else give --protocol http/protobuf"
        return SendError(f"{shown_url(self._target)}: {code.name}: {said}; {cure}")

    def close(self) -> None:
        for channel in filter(None, (self._first, self._channel)):
            channel.close()


def _speaks_no_grpc(error: grpc.RpcError) -> bool:
    return any(words in str(error.details()) for words in _NO_GRPC)


def _is_too_large(code: grpc.StatusCode, said: str) -> bool:
    return code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than" in said.lower()


def _traces_url(endpoint: str) -> str:
    """As the standard's base URL is read; one that names the path already is taken as it is."""
    url = endpoint if "://" in endpoint else f"http://{endpoint}"
    return url if urlsplit(url).path.endswith(_TRACES_PATH) else url.rstrip("/") + _TRACES_PATH


def _partial_success(content: bytes) -> tuple[int, str]:
    try:
        partial: Any = ExportTraceServiceResponse.FromString(content).partial_success
    except Exception:  # an answer in another form, which its status says is good
        return 0, ""
    return partial.rejected_spans, partial.error_message


def _said(content: bytes) -> str:
    try:
        message = str(Status.FromString(content).message)
    except Exception:
        message = content.decode("utf-8", "replace")
    return message[:_SAID].strip() or "no reason is given"


def _reason(error: requests.RequestException) -> str:
    """The innermost: what is around it repeats URL and object addresses."""
    cause = _innermost(error)
    return printable(str(cause))[:_SAID] or type(cause).__name__


def _innermost(error: BaseException) -> BaseException:
    while (inner := error.__context__ or error.__cause__) is not None:
        error = inner
    return error
