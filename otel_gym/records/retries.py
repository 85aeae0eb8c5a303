"""Which records are attempts of one logical model call.

At the server's boundary every attempt is an exchange and a record of its own. A client that retries after 429 or
a lost connection makes one generation out of them: its tokens are those of the last attempt, and the wait
between attempts is nobody's latency. No client sends an id of the logical call by default, so attempts are
matched by what they do send.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from otel_gym.records.model_call import ModelCallRecord

RETRY_COUNT = "x-stainless-retry-count"
CLIENT_REQUEST_ID = "x-request-id"
TRACEPARENT = "traceparent"

# A client may fall back from streaming to one plain request; that is still the same question.
TRANSPORT_FIELDS = frozenset({"stream", "stream_options"})


@dataclass(frozen=True, slots=True)
class Attempt:
    """One record with the request headers (lower-case names) that capture kept; they may be missing.

    ``seen_on_wire``: false where the record was made from what a client told of its call, retries included.
    """

    record: ModelCallRecord
    request_headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    seen_on_wire: bool = True

    @property
    def failed(self) -> bool:
        """An error category, or a status of 400 and above. ``incomplete`` is an answer, cut at its limit."""
        category = self.record.error_category
        status = self.record.status_code
        return category not in (None, "incomplete") or (status is not None and status >= 400)

    def header(self, name: str) -> str | None:
        values = self.request_headers.get(name) or ()
        return values[0] if values else None

    @property
    def retry_count(self) -> int | None:
        text = self.header(RETRY_COUNT)
        return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None

    @property
    def trace_id(self) -> str | None:
        parts = (self.header(TRACEPARENT) or "").split("-")
        return parts[1] if len(parts) >= 4 else None


@dataclass(slots=True)
class LogicalCall:
    """Attempts in the order of their start; the last one is the generation."""

    attempts: list[Attempt]

    @property
    def record(self) -> ModelCallRecord:
        return self.attempts[-1].record

    @property
    def retries(self) -> int:
        return len(self.attempts) - 1

    @property
    def wait_ms(self) -> float | None:
        """First start to last end, back-off included; milliseconds, None if a time is unknown."""
        start, end = self.attempts[0].record.started_at, self.record.completed_at
        return None if start is None or end is None else round((end - start) * 1000, 2)


def logical_calls(attempts: Iterable[Attempt | ModelCallRecord]) -> list[LogicalCall]:
    """Groups the attempts of one rollout; groups stand in the order of their first attempt.

    An attempt continues an earlier group of the same dialect and the same request body (``stream`` aside) if

    - no header contradicts it: client request ids equal where both sent one, trace ids likewise;
    - and either the client itself counts this one as the next try (``x-stainless-retry-count``: it may have given up
      on an answer that the server still worked on, or thought delivered),
    - or the group's last attempt failed and had ended when this one started (where both times are known).

    Claude Code always counts 0 and several rollouts may ask the same question twice on purpose, so neither the
    count nor the body alone decides: equal questions after a good answer are calls of their own. So are calls of which
    nothing was seen on the wire.
    """
    groups: list[LogicalCall] = []
    newest_by_question: dict[str, list[LogicalCall]] = {}
    for attempt in sorted(map(_as_attempt, attempts), key=_started):
        candidates = newest_by_question.setdefault(_question(attempt), [])
        group = next((each for each in reversed(candidates) if _continues(attempt, each.attempts[-1])), None)
        if group is None:
            group = LogicalCall([])
            groups.append(group)
            candidates.append(group)
        group.attempts.append(attempt)
    return groups


def _as_attempt(attempt: Attempt | ModelCallRecord) -> Attempt:
    return attempt if isinstance(attempt, Attempt) else Attempt(attempt)


def _started(attempt: Attempt) -> tuple[float, int]:
    started_at = attempt.record.started_at
    return (float("-inf") if started_at is None else started_at, attempt.record.call_index)


def _question(attempt: Attempt) -> str:
    record = attempt.record
    if not attempt.seen_on_wire:
        return f"not seen on the wire: {id(record)}"
    if record.request is None:
        if record.request_raw is None and record.dialect is None and record.status_code is None:
            return f"not seen on the wire: {id(record)}"
        return f"{record.dialect} {record.request_raw or ''}"
    body = {name: value for name, value in record.request.items() if name not in TRANSPORT_FIELDS}
    return f"{record.dialect} {_canonical(body)}"


def _canonical(body: dict[str, Any]) -> str:
    try:
        return json.dumps(body, sort_keys=True)
    except RecursionError:
        return str(id(body))


def _continues(attempt: Attempt, previous: Attempt) -> bool:
    if _contradicts(attempt.header(CLIENT_REQUEST_ID), previous.header(CLIENT_REQUEST_ID)):
        return False
    if _contradicts(attempt.trace_id, previous.trace_id):
        return False
    if _counted_as_next(attempt, previous):
        return True
    return previous.failed and not _overlaps(attempt.record, previous.record)


def _contradicts(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other


def _overlaps(later: ModelCallRecord, earlier: ModelCallRecord) -> bool:
    if later.started_at is None or earlier.completed_at is None:
        return False
    return later.started_at < earlier.completed_at


def _counted_as_next(attempt: Attempt, previous: Attempt) -> bool:
    count = attempt.retry_count
    return count is not None and count > 0 and count == (previous.retry_count or 0) + 1
