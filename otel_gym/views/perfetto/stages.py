"""What a model call was busy with, where that is known."""

from __future__ import annotations

from typing import Any

import msgspec

from otel_gym import conventions as names
from otel_gym.records.dynamo import FinishMetadata
from otel_gym.records.dynamo_finish import FINISH_NAMES, finish_facts
from otel_gym.records.dynamo_times import stages
from otel_gym.store.span import StoredSpan
from otel_gym.views.perfetto.shapes import Args, Instant, Slice

STAGE = "model call stage"
_WAIT, _PREFILL, _TTFT = (names.DYNAMO_PREFIX + name for name in ("prefill_wait_time_ms", "prefill_time_ms", "ttft_ms"))
_TIMES = frozenset({_WAIT, _PREFILL, _TTFT})
FINISH_METADATA = f"{names.DYNAMO_PREFIX}finish_reason_metadata"
_metadata = msgspec.json.Decoder(FinishMetadata)


class WantedStages(msgspec.Struct, frozen=True):
    """``markers``: also the instant of the first token. ``apart``: in tracks of their own, not below their calls."""

    stages: bool = True
    markers: bool = True
    apart: bool = False


def first_content_ns(span: StoredSpan) -> int | None:
    """When the first token, or the first text, thought or call of a streamed answer came, UTC ns."""
    if span.end_ns is None:
        return None
    ttft_ms = _milliseconds(span, _TTFT)
    if ttft_ms is not None:
        after: Any = round(ttft_ms * 1e6)
    else:
        after = span.attributes.get(names.FIRST_CONTENT_NS)
        if type(after) is not int or span.attributes.get("gen_ai.request.stream") is not True:
            return None
    return span.start_ns + after if 0 <= after <= span.end_ns - span.start_ns else None


def stages_of(span: StoredSpan, made: Slice, wanted: WantedStages) -> list[Slice | Instant]:
    """In the order of time. A first token may come after the call's end: of one that was cancelled."""
    if not wanted.stages:
        return []
    found = _told_by_dynamo(span, made) or _seen_from_outside(span, made)
    return [stage for stage in found if wanted.markers or isinstance(stage, Slice)]


def _told_by_dynamo(span: StoredSpan, made: Slice) -> list[Slice | Instant]:
    if span.attributes.keys().isdisjoint(_TIMES):
        return []
    ttft_ms, start_ns = _milliseconds(span, _TTFT), made.start_ns
    wait_ms, prefill_ms = _milliseconds(span, _WAIT), _milliseconds(span, _PREFILL)
    wait_end, prefill_end, decode_from = stages(made.end_ns - start_ns, wait_ms, prefill_ms, ttft_ms)
    found: list[Slice | Instant] = []
    if wait_end > 0:
        found.append(Slice("prefill wait", start_ns, start_ns + wait_end, STAGE, {}))
    if prefill_end > wait_end:
        found.append(Slice("prefill", start_ns + wait_end, start_ns + prefill_end, STAGE, {}))
    if decode_from is not None and ttft_ms is not None:
        token = Instant("first token", max(start_ns + round(ttft_ms * 1e6), 0), STAGE, {})
        decode = Slice("decode", start_ns + decode_from, made.end_ns, STAGE, {})
        has_length = decode.end_ns > decode.start_ns
        found += [token, decode] if has_length else [token]
    return found


def _seen_from_outside(span: StoredSpan, made: Slice) -> list[Slice | Instant]:
    """Without what its server says, its queue and its prefill cannot be told apart: they are one stage."""
    first_ns = first_content_ns(span)
    if first_ns is None:
        return []
    found: list[Slice | Instant] = []
    if first_ns > made.start_ns:
        found.append(Slice("queue + prefill", made.start_ns, first_ns, STAGE, {}))
    found.append(Instant("first token", first_ns, STAGE, {}))
    if made.end_ns > first_ns:
        found.append(Slice("decode", first_ns, made.end_ns, STAGE, {}))
    return found


def _milliseconds(span: StoredSpan, name: str) -> float | None:
    value = span.attributes.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def add_finish_facts(span: StoredSpan, args: Args) -> None:
    """``finish.*``, of what Dynamo says of a request's end."""
    said = span.attributes.get(FINISH_METADATA)
    if isinstance(said, str):
        try:
            facts = finish_facts(_metadata.decode(said))
        except msgspec.MsgspecError:
            return
        args |= {f"finish.{name}": value for name, value in zip(FINISH_NAMES, facts, strict=True) if value is not None}


def open_tool_name(span: StoredSpan) -> str | None:
    """Of a tool of which Dynamo's trace has the start alone: when it ended is not known, nor whether it does."""
    if span.end_ns is not None or span.attributes.get(names.SOURCE) != "dynamo":
        return None
    return name_of_open_tool(str(span.attributes.get("gen_ai.tool.name") or "unknown-tool"))


def name_of_open_tool(tool: str) -> str:
    return f"tool start: {tool}"
