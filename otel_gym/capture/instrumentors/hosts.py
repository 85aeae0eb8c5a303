"""Which hosts may be told of rollout and span: by default this machine and private networks."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from ipaddress import ip_address, ip_network
from socket import gethostname

from otel_gym.settings import PRIVATE_HOSTS

_PRIVATE_NETWORKS = tuple(
    ip_network(text)
    for text in (
        "127.0.0.0/8",
        "0.0.0.0/32",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",
        "::1/128",
        "::/128",
        "fc00::/7",
    )
)
# Names that no public resolver answers for.
_PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".lan", ".home.arpa")


@lru_cache(maxsize=1024)
def is_allowed(host: str, patterns: tuple[str, ...]) -> bool:
    """``patterns`` as OTEL_GYM_PROPAGATE_HOSTS has them: names, globs, ``private``. No name is resolved."""
    host = host.strip("[]").rstrip(".").lower()
    return any(_is_private(host) if pattern == PRIVATE_HOSTS else fnmatchcase(host, pattern) for pattern in patterns)


def _is_private(host: str) -> bool:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return bool(host) and ("." not in host or host.endswith(_PRIVATE_SUFFIXES) or host == gethostname().lower())
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in _PRIVATE_NETWORKS)
