"""Where the relay of tool events binds, as the command and Dynamo's own variables say."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from otel_gym.dynamo_settings import DEFAULT_TOPIC, REQUEST_TRACE, read_tool_events

# Which Dynamo has had as its default, and its documents bind.
DEFAULT_ADDRESS = "tcp://127.0.0.1:20390"


class EndpointError(ValueError):
    """The address is not bound; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """``topic`` None: in the nested shape any is taken, in the flat one Dynamo's default."""

    address: str
    topic: str | None = None

    @property
    def said_topic(self) -> str:
        if self.topic is None:
            return f"any topic, {DEFAULT_TOPIC} in the flat shape"
        return f"topic {self.topic}"


def endpoints_of(addresses: Sequence[str], topic: str | None, environ: Mapping[str, str]) -> list[Endpoint]:
    """Those that are given, else those of Dynamo's variables, else its default."""
    if addresses:
        return [Endpoint(address, topic) for address in dict.fromkeys(addresses)]
    found: dict[str, Endpoint] = {}
    for each in read_tool_events(environ):
        said = topic or each.topic or (DEFAULT_TOPIC if each.schema == REQUEST_TRACE else None)
        there = found.get(each.endpoint)
        # Bound once; where Dynamo's versions disagree on the topic, each shape follows its own.
        found[each.endpoint] = Endpoint(each.endpoint, said if there is None or there.topic == said else None)
    return list(found.values()) or [Endpoint(DEFAULT_ADDRESS, topic)]


def check_address(address: str, *, is_public: bool) -> None:
    """EndpointError for what is no address to bind, and, unless ``is_public``, for one that others can reach."""
    if address.startswith("ipc://") and len(address) > len("ipc://"):
        return
    host, port = _parts_of(address)
    if host is None or not port:
        cure = "give tcp://HOST:PORT, such as tcp://127.0.0.1:20390 (port 0 picks a free one), or ipc://PATH"
        raise EndpointError(f"{address}: no endpoint to bind; {cure}")
    if not is_public and not _is_of_this_machine(host):
        cure = "bind tcp://127.0.0.1, or say --public"
        raise EndpointError(f"{address}: others could reach it, and ZeroMQ asks nobody for a password; {cure}")


def bound_address(address: str) -> str:
    """As ZeroMQ takes it: a free port is ``*``."""
    return f"{address[:-2]}:*" if address.startswith("tcp://") and address.endswith(":0") else address


def _parts_of(address: str) -> tuple[str | None, str]:
    if not address.startswith("tcp://"):
        return None, ""
    host, _, port = urlsplit(address).netloc.rpartition(":")
    return host or None, port if port.isdigit() or port == "*" else ""


def _is_of_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:  # a name, an interface, or *
        return False
