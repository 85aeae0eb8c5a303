"""Which rollout a span that came is of: what it says itself, else what the nearest ancestor says that does.

A child ends, and comes, before its parent: a span whose ancestors are not known yet waits for them, within bounds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from otel_gym.conventions import UNASSIGNED
from otel_gym.id_rules import is_valid_id
from otel_gym.store.span import ROLLOUT_IDS, StoredSpan

# Spans whose rollout is remembered for children that come later; bytes of spans that wait for their ancestors.
MOST_KNOWN = 200_000
MOST_WAITING_BYTES = 16 * 1024 * 1024
# About what a span takes beside its texts.
_SPAN_BYTES = 2048


_Ids = tuple[str, str]


class Filed(NamedTuple):
    rollout_id: str
    span: StoredSpan


class Filing:
    """``file`` gives the spans whose rollout is known now, those that waited among them; ``unassigned`` for none.

    ``elsewhere``: asked for a span whose ancestors did not come here, since another process may have stored them.
    """

    def __init__(
        self,
        most_known: int = MOST_KNOWN,
        most_waiting_bytes: int = MOST_WAITING_BYTES,
        elsewhere: Callable[[StoredSpan], str | None] = lambda span: None,
    ) -> None:
        self._elsewhere = elsewhere
        self._most_known = most_known
        self._most_waiting_bytes = most_waiting_bytes
        self._known: OrderedDict[_Ids, str] = OrderedDict()
        # By trace and parent, the oldest first.
        self._waiting: OrderedDict[_Ids, list[StoredSpan]] = OrderedDict()
        self._waiting_bytes = 0

    @property
    def waiting(self) -> Iterator[StoredSpan]:
        return (span for spans in self._waiting.values() for span in spans)

    def file(self, spans: Iterable[StoredSpan]) -> list[Filed]:
        filed: list[Filed] = []
        unknown = []
        for span in spans:
            rollout_id = said_rollout_id(span)
            if rollout_id is None:
                unknown.append(span)
            else:
                self._learn(span, rollout_id, filed)
        for span in unknown:
            self._file_by_parent(span, filed)
        while self._waiting_bytes > self._most_waiting_bytes:
            _, spans_of_parent = self._waiting.popitem(last=False)
            filed += self._given_up(spans_of_parent)
        return filed

    def found_meanwhile(self) -> list[Filed]:
        """Those that waited, and are known elsewhere by now."""
        filed: list[Filed] = []
        for spans in list(self._waiting.values()):
            rollout_id = self._elsewhere(spans[0])
            parent = (spans[0].trace_id, spans[0].parent_span_id or "")
            if rollout_id is not None and self._waiting.pop(parent, None) is not None:
                self._waiting_bytes -= sum(map(_size, spans))
                for span in spans:
                    self._learn(span, rollout_id, filed)
        return filed

    def give_up(self) -> list[Filed]:
        """Those that still wait, under ``unassigned``: their ancestors will not come."""
        filed = self._given_up(list(self.waiting))
        self._waiting.clear()
        return filed

    def _file_by_parent(self, span: StoredSpan, filed: list[Filed]) -> None:
        if span.parent_span_id is None:
            self._learn(span, UNASSIGNED, filed)
            return
        parent = (span.trace_id, span.parent_span_id)
        rollout_id = self._known.get(parent) or self._elsewhere(span)
        if rollout_id is not None:
            self._learn(span, rollout_id, filed)
            return
        self._waiting.setdefault(parent, []).append(span)
        self._waiting_bytes += _size(span)

    def _learn(self, span: StoredSpan, rollout_id: str, filed: list[Filed]) -> None:
        """Of the span, and of those that waited for it and for each other."""
        found = [span]
        while found:
            span = found.pop()
            ids = (span.trace_id, span.span_id)
            filed.append(Filed(rollout_id, span))
            self._remember(ids, rollout_id)
            waited = self._waiting.pop(ids, [])
            self._waiting_bytes -= sum(map(_size, waited))
            found += waited

    def _remember(self, ids: _Ids, rollout_id: str) -> None:
        self._known[ids] = rollout_id
        self._known.move_to_end(ids)
        if len(self._known) > self._most_known:
            self._known.popitem(last=False)

    def _given_up(self, spans: list[StoredSpan]) -> list[Filed]:
        self._waiting_bytes -= sum(map(_size, spans))
        return [Filed(UNASSIGNED, span) for span in spans]


def _size(span: StoredSpan) -> int:
    return _SPAN_BYTES + sum(len(value) for value in span.attributes.values() if isinstance(value, str))


def said_rollout_id(span: StoredSpan) -> str | None:
    """What the span says, or its resource, where a Collector may have put it; None if neither does.

    ``unassigned`` is said by who knows of none. An id that may not name a folder is filed under it too, and stays
    on the span.
    """
    for attributes in (span.attributes, span.resource):
        for name in ROLLOUT_IDS:
            value = attributes.get(name)
            if isinstance(value, str) and value not in ("", UNASSIGNED):
                return value if is_valid_id(value) else UNASSIGNED
    return None
