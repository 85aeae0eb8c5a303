"""Listening sockets of the servers that commands run."""

from __future__ import annotations

import errno
import socket

BACKLOG = 2048


class ListenError(Exception):
    """The address cannot be had; the text says why and what to do."""


_PORT_IS_AT_FAULT = frozenset({errno.EADDRINUSE, errno.EACCES, errno.EPERM})


def listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """A listening socket; port 0 picks a free one. Raises ListenError, which names the option to give another by."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP: only then does asyncio set TCP_NODELAY, without which every answer waits 40 ms for the client's ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        if getattr(error, "errno", None) in _PORT_IS_AT_FAULT:
            cure = f"give another {option} (0 picks a free one)"
        else:
            cure = "give an address of this machine as --host, such as 127.0.0.1 or 0.0.0.0"
        raise ListenError(f"cannot listen on {host}:{port}: {reason}; {cure}") from None
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
