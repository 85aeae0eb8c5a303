"""Lines of OTLP/JSON for tests: one span each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otel_gym.store.otlp_json import encode_json, key_values
from otel_gym.store.reader import Store
from otel_gym.store.span import StoredSpan


def encoded(
    span_id: str = "1",
    name: str = "chat m",
    *,
    start: int = 10,
    end: int | None = 20,
    parent: str | None = None,
    trace: str = "a",
    rollout: str | None = "1-0",
    run: str | None = None,
    resource: dict[str, Any] | None = None,
    scope: str | None = None,
    **attributes: Any,
) -> bytes:
    """A line without its newline; ids are repeated to full length, ``__`` in names of attributes is a dot."""
    said = {name.replace("__", "."): value for name, value in attributes.items()}
    ids = {"gym.rollout.id": rollout, "gym.run.id": run}
    span: dict[str, Any] = {
        "traceId": (trace * 32)[:32],
        "spanId": span_id.rjust(16, "0"),
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(start),
        "attributes": key_values({key: value for key, value in {**ids, **said}.items() if value is not None}),
    }
    if end is not None:
        span["endTimeUnixNano"] = str(end)
    if parent is not None:
        span["parentSpanId"] = parent.rjust(16, "0")
    named = {} if scope is None else {"scope": {"name": scope}}
    group: dict[str, Any] = {"scopeSpans": [{**named, "spans": [span]}]}
    if resource is not None:
        group = {"resource": {"attributes": key_values(resource)}, **group}
    return encode_json({"resourceSpans": [group]})


def live_file(directory: Path, rollout_id: str = "1-0", name: str = "w.jsonl") -> Path:
    folder = directory / "spans" / f"rollout_id={rollout_id}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def write(path: Path, *lines: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def spans_in(store: Store) -> list[StoredSpan]:
    return [span for rollout in store.rollouts() for span in rollout.spans]


def ids_in(store: Store) -> list[str]:
    return [span.span_id.lstrip("0") for span in spans_in(store)]
