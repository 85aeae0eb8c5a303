"""Rollout rows with the model calls of a store: exact keys only, each row once, what does not fit named.

Three passes, in which memory holds an entry a row and one rollout: the rows say which rollouts are wanted; the store is
read once, in its own order, and the attachments go to a temporary file; then the rows are written with them.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_gym.content import safe_json
from otel_gym.conventions import UNASSIGNED
from otel_gym.records.call_references import join_references, references_of_observations
from otel_gym.store.reader import RolloutSpans, Store
from otel_gym.store.repair import Damage
from otel_gym.views.attempts import LaterAttempts
from otel_gym.views.capture_attachment import (
    AMBIGUOUS_RUN,
    NO_RECORDS,
    capture_attachment,
    duplicate_rows,
    no_rollout_id,
    number_of_calls,
)
from otel_gym.views.dynamo_attachment import (
    NO_DYNAMO,
    add_spans,
    dynamo_attachment,
    is_of_dynamo,
    request_names,
    tool_names,
)
from otel_gym.views.dynamo_join import DynamoTrace
from otel_gym.views.layers import asks_model
from otel_gym.views.rollout_rows import (
    CAPTURE,
    DYNAMO,
    RolloutRow,
    observations_of,
    rollout_rows,
    row_texts,
    with_member,
)
from otel_gym.views.selection import resolve_run

# A row's rollout: its run as far as that is known, and its id.
_Key = tuple[str | None, str]
Json = dict[str, Any]

_ANY_RUN = None


@dataclass(frozen=True, slots=True)
class JoinedRow:
    """``text``: the row as it was, ``capture`` and ``dynamo``: what is attached to it, all JSON; None where that was
    not asked for.
    """

    row: RolloutRow
    run_id: str | None
    text: bytes
    capture: bytes
    metrics: Json
    gaps: list[Json]
    status: str
    is_kept: bool
    dynamo: bytes | None = None

    @property
    def joined(self) -> bytes:
        text = self.text if self.is_kept else with_member(self.text, CAPTURE, self.capture)
        return text if self.dynamo is None else with_member(text, DYNAMO, self.dynamo)


@dataclass(slots=True)
class DynamoReport:
    """What of Dynamo's records was joined, and what no call of any row is."""

    requests: int = 0
    joined_requests: int = 0
    tools: int = 0
    joined_tools: int = 0
    gaps: dict[str, int] = field(default_factory=dict)
    unmatched_requests: list[Json] = field(default_factory=list)
    unmatched_tools: list[Json] = field(default_factory=list)


@dataclass(slots=True)
class JoinReport:
    """What a join found, for machines. ``kept``: rows whose own attachment stayed, since the store has nothing;
    ``references``: what of the calls that agents name in ``ng_agent_observations`` could not be joined for certain.
    """

    rows: int = 0
    joined: int = 0
    calls: int = 0
    kept: int = 0
    mean_reward: float | None = None
    scored: int = 0
    missing: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    gaps: dict[str, int] = field(default_factory=dict)
    unmatched: list[Json] = field(default_factory=list)
    ambiguous: list[Json] = field(default_factory=list)
    duplicates: list[Json] = field(default_factory=list)
    nameless: list[Json] = field(default_factory=list)
    orphans: list[Json] = field(default_factory=list)
    references: list[Json] = field(default_factory=list)
    bad_rows: int = 0
    dynamo: DynamoReport | None = None


@dataclass(frozen=True, slots=True)
class _Attached:
    run_id: str | None
    start: int
    length: int
    metrics: Json
    gaps: list[Json]
    dynamo_length: int = 0


class Join:
    """``rows`` may be drawn once; ``report`` is whole after that, ``damage`` is that of the rows' file.

    ``dynamo``: the records that calls and tools are joined with; ``with_imported``: what was imported of Dynamo's into
    the store is added to them.
    """

    def __init__(
        self,
        store: Store,
        path: Path,
        run: str | None = None,
        *,
        include_payloads: bool = False,
        dynamo: DynamoTrace | None = None,
        with_imported: bool = False,
    ) -> None:
        self.report = JoinReport()
        self._dynamo = dynamo or (DynamoTrace() if with_imported else None)
        self._with_imported = with_imported
        self._no_dynamo = None if self._dynamo is None else safe_json(NO_DYNAMO).encode("utf-8")
        self._dynamo_gaps: Counter[str] = Counter()
        self.damage: list[Damage] = []
        self._store = store
        self._path = path
        self._include_payloads = include_payloads
        self._is_of_run = run is not None
        self._run = None if run is None else resolve_run(store, run)
        self._attachments = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._attachments.close)
        self._end = 0
        self._attached: dict[_Key, _Attached] = {}
        self._rows = list(rollout_rows(path, self._report_row))
        self._lines: dict[_Key, list[int]] = {}
        for row in self._rows:
            if row.rollout_id is not None:
                self._lines.setdefault((row.run_id, row.rollout_id), []).append(row.line)

    def _report_row(self, damage: Damage) -> None:
        self.damage.append(damage)
        self.report.bad_rows += damage.line > 0

    def rows(self, steps: Callable[[Iterable[str]], Iterable[str]] = iter) -> Iterator[JoinedRow]:
        """The rows, in the order of the file. ``steps`` is what the store's rollout ids are drawn through."""
        if self._dynamo is not None and self._with_imported:
            # Apart: what is damaged is counted where the rollout of a row is read.
            for rollout in Store(self._store.directory).rollouts():
                add_spans(self._dynamo, rollout.spans)
        self._read_store(steps)
        rewards: list[float] = []
        statuses: Counter[str] = Counter()
        rows = iter(self._rows)
        row = next(rows, None)
        for number, text in row_texts(self._path, lambda damage: None):
            if row is None:
                break
            if number != row.line:
                continue
            joined = self._joined(row, text)
            self._count(joined)
            self._check_references(joined)
            statuses[joined.status] += 1
            if row.reward is not None:
                rewards.append(row.reward)
            yield joined
            row = next(rows, None)
        self.report.statuses = dict(statuses.most_common())
        self.report.scored, self.report.missing = len(rewards), self.report.rows - len(rewards)
        self.report.mean_reward = statistics.fmean(rewards) if rewards else None
        if self._dynamo is not None:
            self.report.dynamo = _dynamo_report(self._dynamo, self._dynamo_gaps)

    # --- the store

    def _read_store(self, steps: Callable[[Iterable[str]], Iterable[str]]) -> None:
        runs_of: dict[str, set[str | None]] = {}
        for run_id, rollout_id in self._lines:
            runs_of.setdefault(rollout_id, set()).add(run_id)
        attempts = LaterAttempts(self._store)
        # As parts are sorted, each of which is then read once.
        for rollout_id in steps(sorted(self._store.rollout_ids())):
            lost = self._lost()
            found = [rollout.with_spans(rollout.spans) for rollout in self._store.rollouts(rollout_id)]
            damaged = self._lost() - lost
            wanted = runs_of.get(rollout_id, set())
            for run_id in wanted:
                self._attach(run_id, rollout_id, self._of_run(found, run_id), damaged)
            self._note_orphans(found, wanted, attempts)

    def _lost(self) -> int:
        return sum(damage.lost for damage in self._store.damage)

    def _of_run(self, found: list[RolloutSpans], run_id: str | None) -> list[RolloutSpans]:
        """Those of the run that is asked for, and of the one that the row names; what is of no certain run stays."""
        if self._is_of_run:
            found = [rollout for rollout in found if rollout.run_id == self._run or rollout.is_ambiguous]
        if run_id is not None:
            found = [rollout for rollout in found if rollout.run_id == run_id or rollout.is_ambiguous]
        return found if any(not rollout.is_ambiguous for rollout in found) else []

    def _attach(self, run_id: str | None, rollout_id: str, found: list[RolloutSpans], damaged: int) -> None:
        lines = self._lines[run_id, rollout_id]
        if not found and not damaged:
            return
        if len(lines) > 1:
            attachment = duplicate_rows(rollout_id, lines)
        else:
            attachment = capture_attachment(rollout_id, found, damaged=damaged, include_payloads=self._include_payloads)
        certain = sorted((rollout.run_id for rollout in found if not rollout.is_ambiguous), key=lambda run: run or "")
        text = safe_json(attachment).encode("utf-8")
        dynamo = b"" if len(lines) > 1 else self._dynamo_text(found)
        self._attachments.seek(self._end)
        self._attachments.write(text + dynamo)
        self._attached[run_id, rollout_id] = _Attached(
            certain[0] if len(certain) == 1 else None,
            self._end,
            len(text),
            attachment["metrics"],
            attachment.get("gaps", []),
            len(dynamo),
        )
        self._end += len(text) + len(dynamo)
        if any(gap["code"] == AMBIGUOUS_RUN for gap in attachment.get("gaps", [])):
            self.report.ambiguous.append({"lines": lines, "rollout_id": rollout_id, "runs": certain})

    def _dynamo_text(self, found: list[RolloutSpans]) -> bytes:
        if self._dynamo is None:
            return b""
        attachment = dynamo_attachment(found, self._dynamo)
        for gap in attachment.get("gaps", []):
            self._dynamo_gaps[gap["code"]] += gap["count"]
        return safe_json(attachment).encode("utf-8")

    def _note_orphans(self, found: list[RolloutSpans], wanted: set[str | None], attempts: LaterAttempts) -> None:
        """Rollouts of which there is no row."""
        for rollout in found:
            if rollout.is_ambiguous or wanted & {_ANY_RUN, rollout.run_id}:
                continue
            if self._is_of_run and rollout.run_id != self._run:
                continue
            if self._with_imported and all(map(is_of_dynamo, filter(asks_model, rollout.spans))):
                continue  # it is the other side of the join
            orphan = {"run_id": rollout.run_id, "rollout_id": rollout.rollout_id, "calls": number_of_calls(rollout)}
            if rollout.rollout_id != UNASSIGNED and attempts.supersede(rollout):
                orphan["superseded"] = True
            self.report.orphans.append(orphan)

    # --- the rows

    def _joined(self, row: RolloutRow, text: bytes) -> JoinedRow:
        if row.rollout_id is None:
            return self._row(row, text, no_rollout_id(row.problem or ""))
        attached = self._attached.get((row.run_id, row.rollout_id))
        if attached is None:
            lines = self._lines[row.run_id, row.rollout_id]
            alone = duplicate_rows(row.rollout_id, lines) if len(lines) > 1 else capture_attachment(row.rollout_id, [])
            return self._row(row, text, alone)
        self._attachments.seek(attached.start)
        capture = self._attachments.read(attached.length)
        dynamo = self._attachments.read(attached.dynamo_length) or self._no_dynamo
        status = _status(row, attached.gaps)
        return JoinedRow(row, attached.run_id, text, capture, attached.metrics, attached.gaps, status, False, dynamo)

    def _row(self, row: RolloutRow, text: bytes, attachment: Json) -> JoinedRow:
        gaps = attachment["gaps"]
        capture = safe_json(attachment).encode("utf-8")
        kept = row.has_capture
        status = _status(row, [] if kept else gaps)
        return JoinedRow(row, row.run_id, text, capture, attachment["metrics"], gaps, status, kept, self._no_dynamo)

    def _count(self, joined: JoinedRow) -> None:
        report, row = self.report, joined.row
        report.rows += 1
        report.kept += joined.is_kept
        if joined.is_kept:
            return
        report.calls += joined.metrics["num_calls"] or 0
        for gap in joined.gaps:
            report.gaps[gap["code"]] = report.gaps.get(gap["code"], 0) + 1
        key = (row.run_id, row.rollout_id or "")
        lines = self._lines.get(key, [])
        if row.rollout_id is None:
            report.nameless.append({"line": row.line, "problem": row.problem})
            self.damage.append(Damage(self._path, row.line, f"{row.problem}", "its row has no model calls"))
        elif len(lines) > 1:
            if row.line == lines[0]:
                report.duplicates.append({"lines": lines, "rollout_id": row.rollout_id})
        elif key not in self._attached:
            report.unmatched.append({"line": row.line, "rollout_id": row.rollout_id})
        elif joined.metrics["num_calls"] is not None:
            report.joined += 1

    def _check_references(self, joined: JoinedRow) -> None:
        references = references_of_observations(observations_of(joined.text))
        if not references:
            return
        for gap in join_references(references, json.loads(joined.capture)["calls"]).gaps:
            said = {"line": joined.row.line, "rollout_id": joined.row.rollout_id, "code": gap.code}
            self.report.references.append({**said, "invocation_id": gap.owner, "detail": gap.detail})


def _dynamo_report(trace: DynamoTrace, gaps: Counter[str]) -> DynamoReport:
    unmatched = [request for request in trace.requests if request.joined_to is None]
    unmatched_tools = [tool for tool in trace.tools if not tool.is_joined]
    return DynamoReport(
        requests=len(trace.requests),
        joined_requests=len(trace.requests) - len(unmatched),
        tools=len(trace.tools),
        joined_tools=len(trace.tools) - len(unmatched_tools),
        gaps=dict(gaps),
        unmatched_requests=list(map(request_names, unmatched)),
        unmatched_tools=list(map(tool_names, unmatched_tools)),
    )


def _status(row: RolloutRow, gaps: Iterable[Json]) -> str:
    """What the row says of itself, else why it lacks something."""
    if row.status is not None:
        return row.status
    if any(gap["code"] == NO_RECORDS for gap in gaps):
        return "no_model_calls"
    return "ok" if row.reward is not None else "no_reward"
