"""An answer of Jaeger's or Tempo's query API, and what comes through a pipe, as a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfileobj
from tempfile import NamedTemporaryFile
from typing import IO

import httpx

from otel_gym.tracing.otlp.plan import shown_url

_TIMEOUT_S = 60.0
_MOST_BYTES = 1024 * 1024 * 1024
_SAID = 200


class UrlError(Exception):
    """The URL gave no traces; the text says why and what to do."""


def is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


@contextmanager
def fetched(url: str) -> Iterator[Path]:
    """The answer in a temporary file. Raises UrlError."""
    with NamedTemporaryFile(prefix="otel_gym_") as file:
        try:
            _fetch(url, file)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UrlError(
                f"{shown_url(url)}: {str(error) or type(error).__name__}; is it up, and the URL right?"
            ) from None
        file.flush()
        yield Path(file.name)


@contextmanager
def piped(pipe: Path) -> Iterator[Path]:
    """All that its writers write, in a temporary file: what a file is takes more than one look. OSError."""
    with NamedTemporaryFile(prefix="otel_gym_") as file:
        with pipe.open("rb") as content:
            copyfileobj(content, file)
        file.flush()
        yield Path(file.name)


def _fetch(url: str, file: IO[bytes]) -> None:
    headers = {"accept": "application/json"}
    with httpx.stream("GET", url, headers=headers, timeout=_TIMEOUT_S, follow_redirects=True) as answer:
        if answer.is_error:
            said = answer.read()[:_SAID].decode("utf-8", "replace").strip()
            cure = "give the URL of a trace, such as …/api/traces/<trace id>"
            raise UrlError(f"{shown_url(url)}: HTTP {answer.status_code}{f': {said}' if said else ''}; {cure}")
        size = 0
        for chunk in answer.iter_bytes():
            size += len(chunk)
            if size > _MOST_BYTES:
                raise UrlError(f"{shown_url(url)}: more than {_MOST_BYTES:,} bytes; ask for fewer traces at a time")
            file.write(chunk)
