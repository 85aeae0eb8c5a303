"""Spans of foreign instrumentations, read as records: which fields are right, null or wrong against the wire?

    python bench/foreign_spans.py [DIR]

DIR holds the samples that bench/foreign_samples.py makes: ``NAME.jsonl.gz``, and ``NAME.truth.jsonl`` with what each
call was on the wire. A record is that of the call whose response or request id it names, else of the one that began
while its span ran. Right: equal; a finish reason also in the conventions' word for it; an error also where its client
saw another kind of it (a stream that breaks off is a lost connection). Null: not told. Exit code 1 if one is wrong.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_gym.records.model_call import ModelCallRecord
from otel_gym.store.foreign import dialect_of
from otel_gym.store.reader import Store, open_store
from otel_gym.views.model_calls import StoredModelCall, model_calls
from otel_gym.views.same_calls import request_id_of
from otel_gym.wire.parts.shapes import normal_finish_reason

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures" / "foreign"
PACKED, TRUTH = ".jsonl.gz", ".truth.jsonl"
FIELDS = (
    "response_id",
    "model",
    "dialect",
    "status_code",
    "finish_reason",
    "tokens_in",
    "tokens_out",
    "tokens_reasoning",
    "cached_tokens",
    "cache_creation_tokens",
    "error_category",
    "tool_calls",
    "reasoning_content",
)
RIGHT, NULL, WRONG = "right", "null", "wrong"


@dataclass(slots=True)
class Verdict:
    """``untold``: exchanges on the wire that no span tells of; a client's retries, hidden within a call, and broken
    streams. ``never_told``: fields that were known on the wire, and that no span of the sample tells."""

    name: str
    dialect: str
    version: str
    calls: int = 0
    untold: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    never_told: set[str] = field(default_factory=set)


def samples(directory: Path = FIXTURES) -> list[str]:
    return sorted(path.name.removesuffix(PACKED) for path in directory.glob(f"*{PACKED}"))


def store_of(name: str, directory: Path = FIXTURES) -> Store:
    return open_store(directory / f"{name}{PACKED}")


def truth_of(name: str, directory: Path = FIXTURES) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / f"{name}{TRUTH}").read_text(encoding="utf-8").splitlines()]


def calls_of(store: Store) -> list[StoredModelCall]:
    return [call for rollout in store.rollouts() for call in model_calls(rollout)]


def judge(name: str, directory: Path = FIXTURES) -> Verdict:
    store, truth = store_of(name, directory), truth_of(name, directory)
    verdict = Verdict(name, *_maker(name, directory))
    told: dict[str, bool] = dict.fromkeys(FIELDS, False)
    left = list(truth)
    for call in calls_of(store):
        verdict.calls += 1
        row = _same(call, left)
        if row is None:
            verdict.wrong.append(f"{call.span.name}: a call that was not made")
            continue
        left.remove(row)
        for name_of_field in FIELDS:
            outcome = judged(name_of_field, getattr(call.record, name_of_field), row[name_of_field])
            verdict.counts[outcome] += 1
            told[name_of_field] |= outcome == RIGHT and row[name_of_field] not in (None, [])
            if outcome == WRONG:
                found = getattr(call.record, name_of_field)
                verdict.wrong.append(f"{call.span.name}: {name_of_field} {found!r}, not {row[name_of_field]!r}")
    told_on_wire = {each for each in FIELDS for row in truth if row[each] not in (None, [])}
    verdict.never_told = {each for each in told_on_wire if not told[each]}
    verdict.untold = len(left)
    return verdict


def judged(name: str, found: Any, true: Any) -> str:
    if name == "tool_calls" and found is not None:
        return _judged_calls([call.model_dump() for call in found], true)
    if found == true or (name == "finish_reason" and normal_finish_reason(found) == normal_finish_reason(true)):
        return RIGHT
    if found is None:
        return NULL
    return RIGHT if name == "error_category" and true is not None else WRONG


def _judged_calls(found: list[dict[str, Any]], true: list[dict[str, Any]]) -> str:
    """Of calls without ids the rest must be right."""
    if found == true:
        return RIGHT
    return NULL if found == [{**call, "call_id": None} for call in true] else WRONG


def _same(call: StoredModelCall, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    record: ModelCallRecord = call.record
    request_id = request_id_of(call.span)
    for key, value in (("response_id", record.response_id), ("request_id", request_id)):
        named = [row for row in rows if value is not None and row[key] == value]
        if named:
            return named[0]
    start, end = call.span.start_ns / 10**9, (call.span.end_ns or call.span.start_ns) / 10**9
    during = [row for row in rows if start <= row["started_at"] <= end]
    return during[-1] if during else None


def _maker(name: str, directory: Path) -> tuple[str, str]:
    """The dialect, and the version that the scope of its spans says."""
    store = store_of(name, directory)
    spans = [span for rollout_id in store.rollout_ids() for span in store.spans(rollout_id)]
    dialects = {dialect.name if (dialect := dialect_of(span)) else "conventions" for span in spans}
    versions = {span.origin.scope_version for span in spans if span.origin.scope_version}
    return ", ".join(sorted(dialects)), ", ".join(sorted(versions)) or "–"


def main(directory: Path) -> int:
    verdicts = [judge(name, directory) for name in samples(directory)]
    head = ("sample", "read as", "scope version", "calls", "right", "null", "wrong", "not told", "never told")
    rows = [
        (
            each.name,
            each.dialect,
            each.version,
            str(each.calls),
            *(str(each.counts[outcome]) for outcome in (RIGHT, NULL)),
            str(len(each.wrong)),
            str(each.untold),
            ", ".join(sorted(each.never_told)) or "–",
        )
        for each in verdicts
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, ["-" * width for width in widths], *rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |")
    for each in verdicts:
        for text in each.wrong:
            print(f"WRONG {each.name}: {text}")
    wrong = sum(len(each.wrong) for each in verdicts)
    print(f"{len(verdicts)} instrumentations, {sum(each.calls for each in verdicts)} calls, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FIXTURES))
