"""Imported spans → a store, or what a reader of one would find.

An import that is repeated, or made again after the source has grown, adds nothing twice: only spans that are new or
that changed are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from otel_gym import conventions as names
from otel_gym.content import KeptBody
from otel_gym.content_policy import DEFAULT_POLICY, ContentPolicy
from otel_gym.conventions import REQUEST_BODY, RESPONSE_BODY
from otel_gym.identity import Identity
from otel_gym.ingest.imported import ImportedEvent, ImportedRollout, ImportedSpan, SourceError
from otel_gym.ingest.in_parts import put_to_known
from otel_gym.ingest.kept_content import kept_attributes
from otel_gym.store.blobs import BlobStore
from otel_gym.store.content_once import ContentOnce
from otel_gym.store.decode import decode_line
from otel_gym.store.layout import rollout_folder
from otel_gym.store.reader import open_store
from otel_gym.store.span import STATUS_ERROR, STATUS_UNSET, SpanEvent, SpanLink, StoredSpan
from otel_gym.store.writer import StoreWriter
from otel_gym.tracing.encode import encode_span
from otel_gym.tracing.membership import identity_attributes
from otel_gym.tracing.payloads import Payload
from otel_gym.version import __version__

_BATCH_BYTES = 1024 * 1024
_BODIES = (REQUEST_BODY, RESPONSE_BODY)


class OtherRunError(SourceError):
    """The store holds another run under the same ids, which would be lost, or added up with this one; with a cure."""

    def __init__(
        self, problem: str, cure: str = "import it alone with --rollout ID, or give it a session_id of its own"
    ):
        super().__init__(f"{problem}: left out; {cure}")


@dataclass(frozen=True, slots=True)
class Written:
    """Of one import: spans that were not there, that are other than before, that are as they were."""

    new: int = 0
    changed: int = 0
    same: int = 0


def stored_spans(
    rollout: ImportedRollout, run_id: str | None = None, policy: ContentPolicy = DEFAULT_POLICY
) -> list[StoredSpan]:
    """The spans as a reader would find them, without a store between."""
    trace_id, shared = f"{rollout.trace_id:032x}", _shared_attributes(rollout, run_id)
    resource = {SERVICE_NAME: rollout.service}
    return [_stored(span, trace_id, shared, resource, policy) for span in rollout.spans]


def _kind(span: ImportedSpan) -> SpanKind:
    return SpanKind.CLIENT if span.is_client else SpanKind.INTERNAL


def _stored(
    span: ImportedSpan, trace_id: str, shared: Mapping[str, Any], resource: dict[str, Any], policy: ContentPolicy
) -> StoredSpan:
    return StoredSpan(
        trace_id,
        f"{span.span_id:016x}",
        None if span.parent_id is None else f"{span.parent_id:016x}",
        policy.text(span.name),
        _kind(span).value + 1,
        span.start_ns,
        span.end_ns,
        dict(policy.attributes({**shared, **kept_attributes(span.attributes, policy)})),
        [
            SpanEvent(event.name, event.time_ns, dict(policy.attributes(_without_urls(event, policy))))
            for event in span.events
        ],
        [] if span.link_id is None else [SpanLink(trace_id, f"{span.link_id:016x}", {})],
        STATUS_UNSET if span.error is None else STATUS_ERROR,
        policy.message(span.error) if span.error and policy.bodies else None,
        resource,
        names.SCOPE_NAME,
    )


def _without_urls(event: ImportedEvent, policy: ContentPolicy) -> dict[str, Any]:
    """As ``tracing.encode`` writes them: texts of an exception lose the queries of URLs."""
    return {
        name: policy.message(value) if name.startswith("exception.") and isinstance(value, str) else value
        for name, value in kept_attributes(event.attributes, policy).items()
    }


def write_rollout(
    directory: Path,
    rollout: ImportedRollout,
    run_id: str | None = None,
    policy: ContentPolicy = DEFAULT_POLICY,
    *,
    content_once: bool = True,
) -> Written:
    """Adds the spans to the store in ``directory``; those that lie there as they are, are not written again.

    ``content_once``: of requests that grow only what is new is written, as for live calls. OtherRunError.
    """
    once = ContentOnce(BlobStore(directory)) if content_once else None
    writer = StoreWriter(directory, rollout.service, content=once)
    rollout_id = rollout.identity_id
    known = _known_spans(directory, rollout_id)
    _refuse_another_run(rollout, rollout_id, run_id, known)
    if rollout.comes_in_parts:
        put_to_known(rollout, known, run_id)
    found = {"new": 0, "changed": 0, "same": 0}
    batch = bytearray()
    for span, payload, verdict in _judged(rollout, run_id, policy, known):
        found[verdict] += 1
        if verdict == "same":
            continue
        readable = _readable(span, rollout, run_id, policy)
        batch += encode_span(readable, payload, policy, None, rollout_id, writer.content_for(rollout_id))
        if len(batch) > _BATCH_BYTES:
            writer.append(rollout_id, batch)
            batch = bytearray()
    if batch:
        writer.append(rollout_id, batch)
    return Written(**found)


def is_stored(
    directory: Path, rollout: ImportedRollout, run_id: str | None = None, policy: ContentPolicy = DEFAULT_POLICY
) -> bool:
    """Whether the store has each of its spans, as it is."""
    known = _known_spans(directory, rollout.identity_id)
    if rollout.comes_in_parts:
        put_to_known(rollout, known, run_id)
    return all(verdict == "same" for *_, verdict in _judged(rollout, run_id, policy, known))


def _refuse_another_run(
    rollout: ImportedRollout, rollout_id: str, run_id: str | None, known: Mapping[tuple[str, str], StoredSpan]
) -> None:
    if rollout.comes_in_parts:
        runs = {span.run_id for span in known.values() if span.trace_id == f"{rollout.trace_id:032x}"} - {run_id}
        if runs:
            other = ", ".join(sorted(run or "none" for run in runs))
            raise OtherRunError(
                f"session {rollout.session_id}: the store has it of run {other}",
                "give its parts the same --run, and another launch a --rollout ID of its own",
            )
    elif rollout.is_whole_rollout:
        if _is_of_another_launch(rollout, run_id, known):
            cure = "import the files of each launch with a --run ID of its own"
            raise OtherRunError(f"{rollout.place}: the store has rollout {rollout_id} of another launch", cure)
    elif rollout.place is not None and _is_of_another_run(rollout, known):
        raise OtherRunError(f"{rollout.place}: the store has another run of session {rollout.session_id}")


def _is_of_another_run(rollout: ImportedRollout, known: Mapping[tuple[str, str], StoredSpan]) -> bool:
    """A run that goes on still begins when it began."""
    root = rollout.spans[0]
    there = known.get((f"{rollout.trace_id:032x}", f"{root.span_id:016x}"))
    if there is None or names.TIME_KNOWN in root.attributes or names.TIME_KNOWN in there.attributes:
        return False
    return there.start_ns != root.start_ns


def _is_of_another_launch(
    rollout: ImportedRollout, run_id: str | None, known: Mapping[tuple[str, str], StoredSpan]
) -> bool:
    """Whether the run has the rollout from another session. One that had no call in it yet is no other."""
    return any(
        session != rollout.session_id and session.startswith(f"{rollout.session_id.partition('/')[0]}/")
        for session in (
            str(span.attributes.get(names.SOURCE_SESSION_ID))
            for span in known.values()
            if span.attributes.get(names.SOURCE) == rollout.source and span.run_id == run_id
        )
    )


def _judged(
    rollout: ImportedRollout, run_id: str | None, policy: ContentPolicy, known: Mapping[tuple[str, str], StoredSpan]
) -> Iterator[tuple[ImportedSpan, Payload | None, str]]:
    """Each span, its bodies, and whether it is ``new``, ``changed`` or the ``same`` as in the store."""
    trace_id, shared = f"{rollout.trace_id:032x}", _shared_attributes(rollout, run_id)
    resource = {SERVICE_NAME: rollout.service}
    for span in rollout.spans:
        payload = _payload(span, policy)
        there = known.get((trace_id, f"{span.span_id:016x}"))
        if there is None:
            yield span, payload, "new"
            continue
        one = _stored(replace(span, attributes=_without_body(span.attributes)), trace_id, shared, resource, policy)
        bodies = _bodies_in(payload)
        is_same = _is_same(one, there, bodies) or _is_same(
            _as_read(_readable(span, rollout, run_id, policy), rollout.identity_id, policy), there, bodies
        )
        yield span, payload, "same" if is_same else "changed"


def _as_read(span: ReadableSpan, rollout_id: str, policy: ContentPolicy) -> StoredSpan:
    """What a reader makes of its line: some values cannot be written as they are."""
    [read] = decode_line(encode_span(span, None, policy, None, rollout_id))
    return read


def _is_same(one: StoredSpan, there: StoredSpan, bodies: set[str]) -> bool:
    """A body that was noted stays as it is: that it is there is enough."""
    if bodies != there.attributes.keys() & {*_BODIES} or one.attributes != _without_body(there.attributes):
        return False
    return all(getattr(one, name) == getattr(there, name) for name in _COMPARED)


_COMPARED = ("name", "parent_span_id", "start_ns", "end_ns", "events", "links", "status")


def _without_body(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if not name.startswith(_BODIES)}


def _payload(span: ImportedSpan, policy: ContentPolicy) -> Payload | None:
    if not policy.bodies:
        return None
    request, response = (_body(span.attributes.get(name)) for name in _BODIES)
    return None if request is None and response is None else Payload(request, response)


def _body(said: Any) -> KeptBody | None:
    text = said() if callable(said) else said
    return None if text is None else KeptBody(text.encode("utf-8", "surrogatepass"))


def _bodies_in(payload: Payload | None) -> set[str]:
    if payload is None:
        return set()
    return {name for name, body in zip(_BODIES, (payload.request, payload.response), strict=True) if body is not None}


def _known_spans(directory: Path, rollout_id: str) -> dict[tuple[str, str], StoredSpan]:
    if not rollout_folder(directory, rollout_id).is_dir() and not (directory / "parquet").is_dir():
        return {}
    return {(span.trace_id, span.span_id): span for span in open_store(directory).spans(rollout_id)}


def _readable(span: ImportedSpan, rollout: ImportedRollout, run_id: str | None, policy: ContentPolicy) -> ReadableSpan:
    """The same as a span of the SDK; its request's body goes beside it."""
    trace_id = rollout.trace_id
    attributes = kept_attributes(_without_body(span.attributes), policy)
    return ReadableSpan(
        name=span.name,
        context=_context(trace_id, span.span_id),
        parent=None if span.parent_id is None else _context(trace_id, span.parent_id),
        resource=_resource(rollout.service),
        attributes={**_shared_attributes(rollout, run_id), **attributes},
        events=[Event(event.name, kept_attributes(event.attributes, policy), event.time_ns) for event in span.events],
        links=[] if span.link_id is None else [Link(_context(trace_id, span.link_id))],
        kind=_kind(span),
        status=Status() if span.error is None else Status(StatusCode.ERROR, span.error or None),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=_SCOPE,
    )


_SCOPE = InstrumentationScope(names.SCOPE_NAME, __version__, names.SCHEMA_URL)


@lru_cache(maxsize=16)
def _resource(service: str) -> Resource:
    return Resource({SERVICE_NAME: service})


def _shared_attributes(rollout: ImportedRollout, run_id: str | None) -> dict[str, Any]:
    return {
        **identity_attributes(Identity(rollout.identity_id, run_id)),
        names.SOURCE: rollout.source,
        names.SOURCE_SESSION_ID: rollout.session_id,
    }


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
