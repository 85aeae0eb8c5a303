"""Sends messages of OTLP and listens to what becomes of them. Trying again is left to the transports."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import grpc
import requests
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.util.re import parse_env_headers
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from otel_gym.tracing.otlp.plan import shown_url

_TIMEOUT_S = 30.0
_TRIES = 5
_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_TRACES_PATH = "/v1/traces"
_SAID = 300
_RETRIED = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
_RETRY_POLICY = {
    "maxAttempts": _TRIES,
    "initialBackoff": "0.5s",
    "maxBackoff": "5s",
    "backoffMultiplier": 2,
    "retryableStatusCodes": list(_RETRIED),
}
_GRPC_OPTIONS = [
    ("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": _RETRY_POLICY}]})),
    # What is larger is not tried again.
    ("grpc.per_rpc_retry_buffer_size", 64 * 1024 * 1024),
    ("grpc.max_send_message_length", -1),
]


class SendError(Exception):
    """The endpoint does not take messages; the text says which, why and what to do."""


class RefusedError(Exception):
    """The endpoint takes messages, and not this one; the text says why."""


class Sender(Protocol):
    def send(self, content: bytes) -> tuple[int, str]:
        """How many spans of the message were refused, and why. Raises SendError, RefusedError."""

    def close(self) -> None: ...


def new_sender(endpoint: str, protocol: str, environ: Mapping[str, str]) -> Sender:
    """``protocol``: ``grpc`` or ``http/protobuf``. Headers and compression are those of OTEL_EXPORTER_OTLP_*."""
    headers = parse_env_headers(_standard(environ, "HEADERS"), liberal=True)
    packs = _standard(environ, "COMPRESSION").strip().lower() == "gzip"
    return GrpcSender(endpoint, headers, packs) if protocol == "grpc" else HttpSender(endpoint, headers, packs)


def _standard(environ: Mapping[str, str], name: str) -> str:
    return environ.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or environ.get(f"OTEL_EXPORTER_OTLP_{name}") or ""


class HttpSender:
    def __init__(self, endpoint: str, headers: Mapping[str, str], packs: bool = False) -> None:
        self._url = _traces_url(endpoint)
        self._pack = gzip.compress if packs else bytes
        self._session = requests.Session()
        self._session.headers.update({**headers, "content-type": "application/x-protobuf"})
        if packs:
            self._session.headers["content-encoding"] = "gzip"
        retry = Retry(
            total=_TRIES - 1,
            backoff_factor=0.5,
            backoff_max=5,
            status_forcelist=(429, 502, 503, 504),
            allowed_methods=None,
            raise_on_status=False,
        )
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=retry))

    def send(self, content: bytes) -> tuple[int, str]:
        try:
            answer = self._session.post(self._url, data=self._pack(content), timeout=_TIMEOUT_S)
        except requests.RequestException as error:
            raise SendError(f"{shown_url(self._url)} does not answer: {_reason(error)}; is it up?") from None
        if answer.status_code in (400, 413, 422):
            raise RefusedError(f"HTTP {answer.status_code}: {_said(answer.content)}")
        if not answer.ok:
            said = _said(answer.content)
            cure = "see to its address, OTEL_EXPORTER_OTLP_HEADERS and its log"
            raise SendError(f"{shown_url(self._url)}: HTTP {answer.status_code}: {said}; {cure}")
        return _partial_success(answer.content)

    def close(self) -> None:
        self._session.close()


class GrpcSender:
    def __init__(self, endpoint: str, headers: Mapping[str, str], packs: bool = False) -> None:
        url = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
        self._target = url.netloc
        compression = grpc.Compression.Gzip if packs else grpc.Compression.NoCompression
        if url.scheme == "https":
            credentials = grpc.ssl_channel_credentials()
            self._channel = grpc.secure_channel(self._target, credentials, _GRPC_OPTIONS, compression)
        else:
            self._channel = grpc.insecure_channel(self._target, _GRPC_OPTIONS, compression)
        self._export = self._channel.unary_unary(_METHOD)
        self._headers = tuple(headers.items())

    def send(self, content: bytes) -> tuple[int, str]:
        try:
            return _partial_success(self._export(content, timeout=_TIMEOUT_S, metadata=self._headers))
        except grpc.RpcError as error:
            code, said = error.code(), str(error.details())[:_SAID]
            if code is grpc.StatusCode.INVALID_ARGUMENT or _is_too_large(code, said):
                raise RefusedError(f"{code.name}: {said}") from None
            raise SendError(f"{shown_url(self._target)}: {code.name}: {said}; is it up, and speaks gRPC?") from None

    def close(self) -> None:
        self._channel.close()


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
    cause: BaseException = error
    while (inner := cause.__context__ or cause.__cause__) is not None:
        cause = inner
    return str(cause)[:_SAID] or type(cause).__name__
