"""A trace in several files, imported one after the other: what each tells is put to what the store has."""

from __future__ import annotations

from collections.abc import Mapping

from otel_gym import conventions as names
from otel_gym.ingest.imported import ImportedRollout, ImportedSpan
from otel_gym.store.span import StoredSpan

Known = Mapping[tuple[str, str], StoredSpan]


def put_to_known(rollout: ImportedRollout, known: Known, run_id: str | None) -> None:
    """Of a rollout that was traced itself the traced root counts: what is imported stands beside it, without one.

    Rollout and agents reach from the first to the last part. A call or tool of a known id is the known one where both
    may be; else, as of a session whose name was given again, it is another.
    """
    trace_id = f"{rollout.trace_id:032x}"
    if any(_is_root_of(span, run_id) and span.trace_id != trace_id for span in known.values()):
        _take_off_root(rollout)
    kept = []
    for span in rollout.spans:
        there = known.get((trace_id, f"{span.span_id:016x}"))
        if there is not None and _is_around_others(span):
            _reach(span, there)
        elif there is not None and _is_another(span, there):
            span.span_id = rollout.span_id("again", f"{span.span_id:016x}", str(span.start_ns))
        elif there is not None and span.end_ns is None and there.end_ns is not None:
            continue  # its end is known already
        kept.append(span)
    rollout.spans[:] = kept


def _is_root_of(span: StoredSpan, run_id: str | None) -> bool:
    return span.name == names.ROLLOUT_SPAN and span.parent_span_id is None and span.run_id == run_id


def _take_off_root(rollout: ImportedRollout) -> None:
    root, *below = rollout.spans
    for span in below:
        if span.parent_id == root.span_id:
            span.parent_id = None
    rollout.spans[:] = below


def _is_around_others(span: ImportedSpan) -> bool:
    return span.name == names.ROLLOUT_SPAN or span.attributes.get("gen_ai.operation.name") == "invoke_agent"


def _reach(span: ImportedSpan, there: StoredSpan) -> None:
    """From the earlier start to the later end, of those that are known."""
    if there.attributes.get(names.TIME_KNOWN) is False:
        return
    if span.attributes.pop(names.TIME_KNOWN, True) is False:
        span.start_ns, span.end_ns = there.start_ns, there.end_ns
        return
    span.start_ns = min(span.start_ns, there.start_ns)
    ends = [end for end in (span.end_ns, there.end_ns) if end is not None]
    span.end_ns = max(ends, default=None)


def _is_another(span: ImportedSpan, there: StoredSpan) -> bool:
    """Whether the two ended without having been at one time."""
    if span.end_ns is None or there.end_ns is None:
        return False
    if names.TIME_KNOWN in span.attributes or names.TIME_KNOWN in there.attributes:
        return False
    return span.end_ns < there.start_ns or there.end_ns < span.start_ns
