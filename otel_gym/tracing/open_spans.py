"""Start records: what is known of spans that are still open, so that a killed run keeps its shape.

Traced code only enters a span here and takes it out again. What is still open when the recorder's
thread comes by gets a light record in ``open/<writer>.jsonl``; a span that ended before leaves none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from opentelemetry.sdk.trace import Span
from opentelemetry.trace import SpanContext

from otel_gym.content_policy import ContentPolicy
from otel_gym.conventions import AGENT_STEP_SPAN, ROLLOUT_SPAN
from otel_gym.store.writer import StoreWriter
from otel_gym.tracing.encode import encode_span
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.membership import GEN_AI_OPERATION, plain_attributes

_ROLLOUT_SHAPE = frozenset({ROLLOUT_SPAN, AGENT_STEP_SPAN})
_OPERATIONS = frozenset({"invoke_agent", "execute_tool", "chat", "generate_content", "text_completion"})


def has_start_record(name: str, attributes: Mapping[str, Any]) -> bool:
    """Rollouts, agents, steps, tools and model calls: the shape of a run. Not HTTP spans and the like."""
    return attributes.get(GEN_AI_OPERATION) in _OPERATIONS or name in _ROLLOUT_SHAPE


class Teller(Protocol):
    """Knows of an open span what is set on it when it ends; asked by the recorder's thread."""

    def known_so_far(self) -> Mapping[str, Any]: ...

    def knows_more(self) -> bool:
        """Whether ``known_so_far`` may say more than it did when it was last asked."""

    def is_over(self) -> bool:
        """Whether what the span tells of has ended, and the recorder will end it too."""


class _OpenSpan(NamedTuple):
    span: Span
    content: ContentPolicy
    identity: Mapping[str, Any] | None


class OpenSpans:
    """``_open`` is changed by traced code (one dict operation, atomic), all else by the recorder's thread."""

    def __init__(self) -> None:
        self._open: dict[int, _OpenSpan] = {}
        self._tellers: dict[int, Teller] = {}
        self._recorded: set[int] = set()
        self._lines_in_file = 0

    def enter(self, span: Span, content: ContentPolicy, identity: Mapping[str, Any] | None = None) -> None:
        """``content``: what of the span may be written; ``identity``: its ids, where a limit may drop them."""
        self._open[span.context.span_id] = _OpenSpan(span, content, identity)

    def ask(self, context: SpanContext, teller: Teller) -> None:
        if context.span_id in self._open:
            self._tellers[context.span_id] = teller

    def leave(self, context: SpanContext) -> bool:
        """Whether it was open here."""
        self._tellers.pop(context.span_id, None)
        return self._open.pop(context.span_id, None) is not None

    def spans(self) -> list[Span]:
        """Those that nobody will end if the process stops now."""
        tellers = dict(self._tellers)
        over = {span_id for span_id, teller in tellers.items() if teller.is_over()}
        return [entered.span for span_id, entered in list(self._open.items()) if span_id not in over]

    def has_changed(self) -> bool:
        return self._open.keys() != self._recorded or any(self._know_more())

    def _know_more(self) -> Iterator[int]:
        """Recorded spans of which more is known now: their first record came before the request did."""
        for span_id, teller in list(self._tellers.items()):
            if span_id in self._recorded and teller.knows_more():
                yield span_id

    def write(self, writer: StoreWriter) -> None:
        """Appends records of newly open spans; rewrites the file when more than half of its spans have ended."""
        open_spans = dict(self._open)
        wanted = (open_spans.keys() - self._recorded) | set(self._know_more())
        new = [entered for span_id, entered in open_spans.items() if span_id in wanted]
        if self._lines_in_file + len(new) > 2 * len(open_spans):
            writer.replace_open(self._lines(list(open_spans.values())))
            self._lines_in_file = len(open_spans)
        elif new:
            writer.append_open(self._lines(new))
            self._lines_in_file += len(new)
        self._recorded = set(open_spans)

    def _lines(self, entered: list[_OpenSpan]) -> bytes:
        return b"".join([self._line(*each) for each in entered])

    def _line(self, span: Span, content: ContentPolicy, identity: Mapping[str, Any] | None) -> bytes:
        try:
            teller = self._tellers.get(span.context.span_id)
            told = {} if teller is None else teller.known_so_far()
            # A copy, in one step: traced code may set attributes meanwhile.
            return encode_span(span, None, content, {**plain_attributes(span), **told, **(identity or {})})
        except Exception:
            log_once("a span that is open could not be made, it has no start record")
            return b""
