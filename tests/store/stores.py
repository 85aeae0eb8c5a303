"""Small stores for the tests of the sealed form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otel_gym.store.sources import LiveFolders
from otel_gym.store.span import StoredSpan
from otel_gym.store.span_lines import line_of_span

# A host that is never this one, so that a file's age alone says whether its writer has ended.
WRITER = "policy.elsewhere.1.0000000a"


def span(number: int, rollout_id: str = "1-0", run_id: str | None = "r", **changes: Any) -> StoredSpan:
    attributes = {"gym.rollout.id": rollout_id, "gen_ai.operation.name": "chat", "gym.request.body": f"body {number} é"}
    attributes |= {} if run_id is None else {"gym.run.id": run_id}
    fields: dict[str, Any] = {
        "trace_id": "a" * 32,
        "span_id": f"{number:016x}",
        "parent_span_id": None,
        "name": f"chat {number}",
        "kind": 3,
        "start_ns": 1_790_000_000_000_000_000 + number,
        "end_ns": 1_790_000_000_000_001_000 + number,
        "attributes": attributes | changes.pop("attributes", {}),
        "resource": {"service.name": "policy"},
        "scope_name": "otel_gym",
    }
    return StoredSpan(**(fields | changes))


def write(
    directory: Path,
    spans: list[StoredSpan],
    rollout_id: str = "1-0",
    writer: str = WRITER,
    tail: bytes = b"",
) -> Path:
    """Appends the spans to the writer's file of the rollout."""
    path = directory / "spans" / f"rollout_id={rollout_id}" / f"{writer}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"".join(line_of_span(span) + b"\n" for span in spans) + tail)
    return path


def live_spans(directory: Path) -> list[StoredSpan]:
    """What stands in live files; each span once."""
    source, said = LiveFolders(directory), lambda damage: None
    spans = [span for rollout_id in source.rollout_ids(said) for span in source.spans(rollout_id, said)]
    return list({(span.trace_id, span.span_id): span for span in spans}.values())
