"""What became of spans that had ended: read by our reader, and by DuckDB without it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from otel_gym.conventions import MODEL_CALL_ID, REQUEST_BODY, RESPONSE_BODY
from otel_gym.store.blobs import BlobError
from otel_gym.store.reader import Store, StoreError
from otel_gym.store.span import StoredSpan

PROMISED_S = 0.1
TOOL_RESULT = "gen_ai.tool.call.result"
TEXTS = (REQUEST_BODY, RESPONSE_BODY, TOOL_RESULT)

# Attribute → sha256 of its text. None: this form of the store does not tell.
Texts = dict[str, str] | None
# Id of a model call or of a span → what was found under it, once for each time that it was.
Found = dict[str, list[Texts]]


@dataclass(frozen=True, slots=True)
class Note:
    """What a writer said of a span that had ended: ``at`` on the monotonic clock, and its texts.

    ``age_s`` is how long before the end of its process that was.
    """

    at: float
    id: str
    rollout_id: str
    texts: dict[str, str]
    age_s: float = 0.0


@dataclass(slots=True)
class Outcome:
    kills: int = 0
    checked: int = 0
    lost: int = 0
    duplicated: int = 0
    wrong: int = 0
    waited_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        for name in ("kills", "checked", "lost", "duplicated", "wrong", "problems"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def is_bad(self) -> bool:
        return bool(self.lost or self.duplicated or self.wrong)

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.checked} spans checked, {self.lost} lost, "
            f"{self.duplicated} duplicated, {self.wrong} wrong"
        )


def notes_before(file: Path, killed_at: float, spared_s: float) -> list[Note]:
    """What a writer noted of spans that had ended so long before it was killed."""
    notes = [Note(**json.loads(line)) for line in file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return [replace(note, age_s=killed_at - note.at) for note in notes if killed_at - note.at > spared_s]


def judge(directory: Path, notes: list[Note], outcome: Outcome, when: str) -> None:
    """Looks for every noted span, by all who read; ``when`` is said of what is not right."""
    looks = {"reader": found_by_reader(directory)}
    if any((directory / "parquet").glob("*.parquet")):
        looks["DuckDB"] = found_by_duckdb(directory)
    lost, duplicated, wrong = set(), set(), set()
    for who, found in looks.items():
        for name, times in found.items():
            if len(times) > 1:
                duplicated.add(name)
                outcome.problems.append(f"{when}, {who}: {name} is there {len(times)} times")
        for note in notes:
            texts = found.get(note.id)
            if not texts:
                lost.add(note.id)
                outcome.problems.append(
                    f"{when}, {who}: {note.id} of {note.rollout_id} lost, {1000 * note.age_s:.0f} ms old"
                )
            elif any(each is not None and each != note.texts for each in texts):
                wrong.add(note.id)
                names = [name for name in note.texts if (texts[0] or {}).get(name) != note.texts[name]]
                outcome.problems.append(f"{when}, {who}: {note.id} of {note.rollout_id} wrong: {names}")
    outcome.lost += len(lost)
    outcome.duplicated += len(duplicated)
    outcome.wrong += len(wrong)


def found_by_reader(directory: Path) -> Found:
    """Every span of the store that has ended."""
    found: Found = {}
    try:
        store = Store(directory)
    except StoreError:
        return {}
    for rollout in store.rollouts():
        for span in rollout.spans:
            if span.end_ns is not None:
                call_id = span.attributes.get(MODEL_CALL_ID)
                found.setdefault(call_id or span.span_id, []).append(_hashes(_texts_of(span)))
    return found


def _texts_of(span: StoredSpan) -> Iterator[tuple[str, str | None]]:
    for name in TEXTS:
        try:
            yield name, span.body(name)
        except BlobError as error:
            yield name, str(error)


def _hashes(texts: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    return {name: sha256(text.encode()).hexdigest() for name, text in texts if text is not None}


SEALED = """
    SELECT coalesce(model_call_id, span_id), request_body, response_body, tool_result
    FROM read_parquet(?) WHERE end_ns IS NOT NULL
"""
LIVE = f"""
    WITH spans AS (
        SELECT unnest(json_extract(json, '$.resourceSpans[*].scopeSpans[*].spans[*]')) AS span
        FROM read_ndjson_objects(?, ignore_errors = true)
    ), attributes AS (
        SELECT span, json_extract(span, '$.attributes[*]') AS attributes FROM spans
    )
    SELECT DISTINCT coalesce(
        list_filter(attributes, lambda each: each ->> '$.key' = '{MODEL_CALL_ID}')[1] ->> '$.value.stringValue',
        span ->> '$.spanId'
    ) FROM attributes
"""


def found_by_duckdb(directory: Path) -> Found:
    """Every row of ``parquet/``, and what stands in lines alone. Media is put back by what docs/store.md says of it."""
    import duckdb  # not in a process that is about to fork

    found: Found = {}
    connection = duckdb.connect()
    for name, *texts in connection.execute(SEALED, [str(directory / "parquet" / "*.parquet")]).fetchall():
        restored = [None if each is None else _with_media(each, directory) for each in texts]
        found.setdefault(name, []).append(_hashes(zip(TEXTS, restored, strict=True)))
    if any(directory.glob("spans/*/*.jsonl")):
        for (name,) in connection.execute(LIVE, [str(directory / "spans" / "*" / "*.jsonl")]).fetchall():
            found.setdefault(name, [None])
    return found


def _with_media(text: str, directory: Path) -> str:
    def content(reference: re.Match[str]) -> str:
        blob = directory / "blobs" / reference[1]
        return base64.b64encode(blob.read_bytes()).decode() if blob.exists() else "missing"

    return re.sub(r"otel_gym:blob:([0-9a-f]{64}):[0-9]+", content, text)
