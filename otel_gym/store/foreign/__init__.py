"""Spans of others in the names and forms of ours, so that every view reads them.

What is stored stays as it came; a reader gets a copy with our names beside theirs. Adding a dialect is one module and
one line of ``DIALECTS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from otel_gym.conventions import SCOPE_NAME
from otel_gym.store.foreign import (
    agent_lightning,
    anthropic_sdk,
    claude_code,
    codex,
    dynamo,
    genai,
    nemo_relay,
    openinference,
    openllmetry,
    opentelemetry_genai,
)
from otel_gym.store.foreign.dialect import ForeignDialect, rename
from otel_gym.store.span import StoredSpan

# The first that knows a span for its own reads it. What none knows is read by the conventions' own older names.
DIALECTS: tuple[ForeignDialect, ...] = (
    claude_code.DIALECT,
    codex.DIALECT,
    dynamo.DIALECT,
    anthropic_sdk.DIALECT,
    agent_lightning.DIALECT,
    nemo_relay.DIALECT,
    openinference.DIALECT,
    opentelemetry_genai.DIALECT,
    openllmetry.DIALECT,
)
_CONVENTIONS = "gen_ai."


def as_gym_spans(spans: list[StoredSpan]) -> list[StoredSpan]:
    """The spans of a rollout, those of others with our names; in the same order, ours as they are."""
    if all(span.scope_name == SCOPE_NAME for span in spans):
        return spans
    read: list[StoredSpan] = []
    met: dict[str, ForeignDialect] = {}
    for span in spans:
        if span.scope_name == SCOPE_NAME:
            read.append(span)
            continue
        dialect = dialect_of(span)
        if dialect is not None:
            met[dialect.name] = dialect
        read.append(_as_gym_span(span, dialect))
    return _gathered(read, met)


def as_gym_span(span: StoredSpan) -> StoredSpan:
    """One span alone, without what spans beside it tell."""
    return span if span.scope_name == SCOPE_NAME else _as_gym_span(span, dialect_of(span))


def dialect_of(span: StoredSpan) -> ForeignDialect | None:
    return next((dialect for dialect in DIALECTS if dialect.is_made(span)), None)


def _as_gym_span(span: StoredSpan, dialect: ForeignDialect | None) -> StoredSpan:
    if dialect is None and not any(name.startswith(_CONVENTIONS) for name in span.attributes):
        return span
    attributes = dict(span.attributes)
    if dialect is not None:
        rename(attributes, dialect.renamed)
        genai.rename_old(attributes)
        dialect.read(span, attributes)
    genai.read(span, attributes)
    events = [*span.events, *genai.user_messages(span, attributes)]
    return replace(span, attributes=attributes, events=events)


def _gathered(spans: list[StoredSpan], met: dict[str, ForeignDialect]) -> list[StoredSpan]:
    for dialect in met.values():
        if dialect.gather is not None:
            spans = _gathered_of(spans, dialect)
    return spans


def _gathered_of(spans: Sequence[StoredSpan], dialect: ForeignDialect) -> list[StoredSpan]:
    assert dialect.gather is not None
    own = iter(dialect.gather([span for span in spans if dialect.is_made(span)]))
    return [next(own) if dialect.is_made(span) else span for span in spans]
