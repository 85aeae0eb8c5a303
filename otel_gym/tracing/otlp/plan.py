"""What the standard variables ask for: whether spans or metrics leave over OTLP, where to, and in which protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal
from urllib.parse import urlsplit

Protocol = Literal["grpc", "http/protobuf"]
Signal = Literal["traces", "metrics"]

GRPC: Protocol = "grpc"
HTTP: Protocol = "http/protobuf"
_GRPC_PORT, _HTTP_PORT = 4317, 4318
# Names in OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER that mean OTLP → the protocol that they name.
_NOT_KNOWN = "is not known here"
OTLP_NAMES: dict[str, Protocol | None] = {"otlp": None, "otlp_proto_grpc": GRPC, "otlp_proto_http": HTTP}
_CURES: dict[Protocol, str] = {
    GRPC: "install opentelemetry-exporter-otlp-proto-grpc, or set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf and the "
    f"endpoint's HTTP port, {_HTTP_PORT} by default",
    HTTP: "install opentelemetry-exporter-otlp-proto-http",
}


@dataclass(frozen=True, slots=True)
class OtlpPlan:
    """``endpoint`` as it may be shown: without credentials and query. ``why`` the protocol is this one."""

    signal: Signal
    endpoint: str
    protocol: Protocol
    why: str

    @property
    def is_guess(self) -> bool:
        """A protocol was asked for that nobody knows."""
        return self.why.endswith(_NOT_KNOWN)


@dataclass(frozen=True, slots=True)
class NoOtlp:
    """``why`` nothing is sent; ``is_wrong``: something is asked for that cannot be done."""

    why: str
    is_wrong: bool = False


def plan_of(environ: Mapping[str, str], signal: Signal = "traces") -> OtlpPlan | NoOtlp:
    """What ``environ`` asks for: an endpoint, unless OTEL_<SIGNAL>_EXPORTER names other exporters, or none."""
    exporters = f"OTEL_{signal.upper()}_EXPORTER"
    names = exporter_names(environ, signal)
    found = [name for name in names if name in OTLP_NAMES]
    if names and not found:
        return NoOtlp(f"{exporters}={environ[exporters]}")
    own, common = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
    url = _said(environ, own) or _said(environ, common)
    # Spans go to any endpoint; metrics are asked for by name, or by an endpoint of their own.
    if not found and not (_said(environ, own) or (url and signal == "traces")):
        return NoOtlp(f"neither {exporters} nor {own}{f' nor {common}' if signal == 'traces' else ''} asks for it")
    protocol, why = protocol_of(environ, signal, OTLP_NAMES[found[0]] if found else None, url)
    if not has_exporter(protocol):
        return NoOtlp(f"{protocol} ({why}) is not installed: {_CURES[protocol]}", is_wrong=True)
    default = _GRPC_PORT if protocol == GRPC else _HTTP_PORT
    return OtlpPlan(signal, shown_url(url or f"http://localhost:{default}"), protocol, why)


def exporter_names(environ: Mapping[str, str], signal: Signal) -> list[str]:
    text = environ.get(f"OTEL_{signal.upper()}_EXPORTER", "")
    return [name.strip().lower() for name in text.split(",") if name.strip()]


def has_exporter(protocol: Protocol) -> bool:
    """Whether the SDK's exporter of this protocol and what it needs are there; nothing is imported for that."""
    package = "grpc" if protocol == GRPC else "http"
    needs = ["grpc"] if protocol == GRPC else []
    try:
        return all(map(find_spec, [*needs, f"opentelemetry.exporter.otlp.proto.{package}"]))
    except ImportError:  # a parent package is missing
        return False


def shown_url(url: str) -> str:
    """Without user, password, query and fragment, in which clients send keys."""
    head, separator, rest = url.partition("://")
    if not separator:
        head, rest = "", url
    return f"{head}{separator}{rest.partition('?')[0].partition('#')[0].rpartition('@')[2]}"


def protocol_of(
    environ: Mapping[str, str], signal: Signal, named: Protocol | None, url: str | None
) -> tuple[Protocol, str]:
    """How the endpoint at ``url`` is spoken to, and what says so."""
    if named is not None:
        return named, f"OTEL_{signal.upper()}_EXPORTER"
    for variable in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        text = (_said(environ, variable) or "").strip().lower()
        if text in (GRPC, HTTP):
            return (GRPC if text == GRPC else HTTP), variable
        if text:
            return HTTP, f"{variable}={text} {_NOT_KNOWN}"
    port = _port(url)
    if port == _HTTP_PORT:
        return HTTP, f"no protocol is set, and the port is {port}"
    if not has_exporter(GRPC) and port != _GRPC_PORT:
        return HTTP, "no protocol is set, and grpcio is not installed"
    return GRPC, "no protocol is set"


def _port(url: str | None) -> int | None:
    try:
        return urlsplit(url if "://" in url else f"//{url}").port if url else None
    except ValueError:
        return None


def _said(environ: Mapping[str, str], name: str) -> str | None:
    return environ.get(name, "").strip() or None
