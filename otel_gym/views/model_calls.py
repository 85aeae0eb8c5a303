"""Spans → ModelCallRecords.

A span of our capture holds its exchange whole, and the record is the one that the live exchange gives.
A ``chat`` span of another instrumentation gives the same record from its attributes; what it did not
record is null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from otel_gym import conventions as names
from otel_gym.content import KeptBody, body_of_text, known, printable
from otel_gym.records.capture_line import CaptureLineError, record_of_capture_line
from otel_gym.records.model_call import ModelCallRecord, build_model_call_record, tool_call_fields
from otel_gym.settings import say_once
from otel_gym.store.blobs import BlobError
from otel_gym.store.json_text import parsed
from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import STATUS_ERROR, StoredSpan
from otel_gym.views.layers import is_model_call, without_client_layer
from otel_gym.wire.bodies import load_json_object
from otel_gym.wire.dialects import DIALECTS
from otel_gym.wire.exchange import Exchange, Execution, Raised
from otel_gym.wire.items.genai import items_of_messages
from otel_gym.wire.parse import is_event_stream
from otel_gym.wire.reasoning import reasoning_content
from otel_gym.wire.tool_calls import tool_calls
from otel_gym.wire.usage import token_count

_NO_BODY = KeptBody(b"")
_MODEL_REF_KIND = "responses_api_models"

_TOKENS: dict[str, str] = {
    "tokens_in": "gen_ai.usage.input_tokens",
    "tokens_out": "gen_ai.usage.output_tokens",
    "tokens_reasoning": "gen_ai.usage.reasoning.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_creation_tokens": "gen_ai.usage.cache_write.input_tokens",
}


_ANSWERED = frozenset({"gen_ai.response.id", "gen_ai.response.finish_reasons"})
_SAID_AT_START = {"model_call_id": names.MODEL_CALL_ID, "dialect": names.DIALECT}


@dataclass(slots=True)
class StoredModelCall:
    """A record and the span that it was made from."""

    span: StoredSpan
    record: ModelCallRecord


def model_call_records(rollout: RolloutSpans) -> list[ModelCallRecord]:
    """The records of a rollout in the order in which their calls began; ``call_index`` counts from 0."""
    return [call.record for call in model_calls(rollout)]


def model_calls(rollout: RolloutSpans) -> Iterator[StoredModelCall]:
    """A client's own span around a captured call is no second call (R033). One that has not ended has nulls."""
    calls = [span for span in without_client_layer(rollout).spans if is_model_call(span)]
    if calls and all(names.CAPTURE_LINE in span.attributes for span in calls):
        # As NeMo Gym counts them: by their place in its file.
        places = sorted((_place(span), number) for number, span in enumerate(calls))
        yield from (StoredModelCall(calls[number], record_of(calls[number], place)) for place, number in places)
        return
    for index, span in enumerate(calls):
        yield StoredModelCall(span, record_of(span, index))


def _place(span: StoredSpan) -> int:
    return _Facts(span.attributes).number(names.SOURCE_INDEX) or 0


def record_of(span: StoredSpan, call_index: int) -> ModelCallRecord:
    """The record of one model-call span, ours or another's. A call that never ended has what its start told."""
    if names.MODEL_CALL_ID not in span.attributes:
        return _record_of_attributes(span, call_index)
    if span.end_ns is None:
        facts = _Facts(span.attributes)
        said = {name: facts.text(key) for name, key in _SAID_AT_START.items()}
        return _record_of_attributes(span, call_index).model_copy(update=known(said))
    of_line = _record_of_capture_line(span, call_index)
    record = of_line or build_model_call_record(exchange_of(span), call_index)
    if not has_lost_answer(span):
        return record
    fields = fields_of_attributes(span)
    # Without its end a stream would look cut off: whether it was is what capture said.
    fields = known(fields) | {"error_category": fields["error_category"]}
    if of_line is None or _ANSWERED.intersection(span.attributes):  # else NeMo Gym's line had no answer
        fields |= {"response": None, **_said(span)}
    return ModelCallRecord.model_validate({**dict(record), **fields})


def has_lost_answer(span: StoredSpan) -> bool:
    """Whether the answer was not kept, or only its head: then the conventions' attributes know more of it."""
    attributes = span.attributes
    if names.RESPONSE_BODY in attributes:
        return names.RESPONSE_BODY + names.BODY_BYTES in attributes
    return names.REQUEST_BODY not in attributes or "gen_ai.response.id" in attributes


def _record_of_capture_line(span: StoredSpan, call_index: int) -> ModelCallRecord | None:
    """Of a line that was imported from NeMo Gym's own capture; None for any other span."""
    facts = _Facts(span.attributes)
    line = load_json_object(facts.text(names.CAPTURE_LINE) or "")
    if line is None:
        return None
    line |= load_json_object(facts.text(names.CAPTURE_CONTENT) or "") or {}
    for name, attribute in (("request", names.REQUEST_BODY), ("response", names.RESPONSE_BODY)):
        text = _body(span, attribute).content.decode("utf-8", "surrogatepass")
        is_stream = name == "response" and is_event_stream(facts.text(names.RESPONSE_CONTENT_TYPE))
        value = None if is_stream else load_json_object(text)
        if value is not None:
            line[name] = value
        elif text:
            line[f"{name}_raw"] = text
    try:
        return record_of_capture_line(line, call_index)
    except CaptureLineError:  # the stored line was changed by others
        return None


def exchange_of(span: StoredSpan) -> Exchange:
    """The exchange that our capture put on a span; an attribute of the wrong type counts as unknown."""
    facts = _Facts(span.attributes)
    dialect = facts.text(names.DIALECT)
    request, response = _body(span, names.REQUEST_BODY), _body(span, names.RESPONSE_BODY)
    duration_ns = (span.end_ns or span.start_ns) - span.start_ns
    returned_ns = facts.number(names.RETURNED_NS)
    return Exchange(
        dialect=dialect if dialect in DIALECTS else "chat",
        model_call_id=facts.text(names.MODEL_CALL_ID) or span.span_id,
        started_unix_nano=span.start_ns,
        model_ref=_model_ref(facts),
        request_headers=kept_headers(span.attributes, names.REQUEST_HEADER),
        request_body=request.content,
        request_content_encoding=request.coding,
        status_code=facts.number("http.response.status_code"),
        response_headers=kept_headers(span.attributes, names.RESPONSE_HEADER),
        response_content_type=facts.text(names.RESPONSE_CONTENT_TYPE),
        response_content_encoding=response.coding,
        chunks=[(facts.number(names.FIRST_CHUNK_NS) or 0, response.content)] if response.content else [],
        last_byte_ns=facts.number(names.LAST_BYTE_NS),
        returned_ns=duration_ns if returned_ns is None else returned_ns,
        first_content_ns=facts.number(names.FIRST_CONTENT_NS),
        raised=_raised(facts),
        execution=_execution(facts),
        live=False,
        is_cut=any(facts.number(name + names.BODY_BYTES) for name in (names.REQUEST_BODY, names.RESPONSE_BODY)),
    )


class _Facts:
    """Attributes by type: files come from anywhere, and one odd span must not cost its rollout."""

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        self._attributes = attributes

    def text(self, name: str) -> str | None:
        value = self._attributes.get(name)
        return value if isinstance(value, str) else None

    def number(self, name: str) -> int | None:
        value = self._attributes.get(name)
        return value if type(value) is int else None

    def flag(self, name: str) -> bool | None:
        value = self._attributes.get(name)
        return value if isinstance(value, bool) else None


def _body(span: StoredSpan, name: str) -> KeptBody:
    try:
        text = span.body(name)
        return (
            _NO_BODY if text is None else body_of_text(text, _Facts(span.attributes).text(name + names.BODY_ENCODING))
        )
    except BlobError as problem:
        say_once(printable(str(problem)))
        return _NO_BODY
    except ValueError:
        return _NO_BODY


def _model_ref(facts: _Facts) -> dict[str, Any] | None:
    kind, name = facts.text(names.MODEL_REF_TYPE), facts.text(names.MODEL_REF_NAME)
    return {"type": kind, "name": name} if name is not None and kind == _MODEL_REF_KIND else None


def kept_headers(attributes: Mapping[str, Any], prefix: str) -> dict[str, list[str]]:
    """The headers that a span kept, by their names in lower case."""
    return {
        name[len(prefix) :]: [str(value) for value in values]
        for name, values in attributes.items()
        if name.startswith(prefix) and isinstance(values, list)
    }


def _raised(facts: _Facts) -> Raised | None:
    type_name, body = facts.text(names.EXCEPTION_TYPE), facts.text(names.EXCEPTION_BODY)
    if type_name is None:
        return None
    return Raised(
        type_name,
        facts.text(names.EXCEPTION_CATEGORY) or "exception",
        facts.number(names.EXCEPTION_STATUS_CODE),
        None if body is None else body.encode("utf-8", "replace"),
    )


def _execution(facts: _Facts) -> Execution | None:
    source = facts.text(names.RESPONSE_SOURCE)
    execution = Execution(
        upstream_attempted=facts.flag(names.UPSTREAM_ATTEMPTED),
        response_source=source if source in ("upstream", "local") else None,
        upstream_status_code=facts.number(names.UPSTREAM_STATUS_CODE),
        local_response_reason=facts.text(names.LOCAL_RESPONSE_REASON),
    )
    return None if execution == Execution() else execution


def _record_of_attributes(span: StoredSpan, call_index: int) -> ModelCallRecord:
    end_ns = span.end_ns
    times = (
        {}
        if span.attributes.get(names.TIME_KNOWN) is False
        else {
            "started_at": span.start_ns / 10**9,
            "completed_at": None if end_ns is None else end_ns / 10**9,
            "latency_total_ms": None if end_ns is None else round((end_ns - span.start_ns) / 10**6, 2),
        }
    )
    facts = _Facts(span.attributes)
    first_content_ns = facts.number(names.FIRST_CONTENT_NS)
    told = {
        "dialect": facts.text(names.DIALECT),
        "status_code": facts.number("http.response.status_code"),
        "latency_ttft_ms": None if first_content_ns is None else round(first_content_ns / 10**6, 2),
        **_said(span),
    }
    return ModelCallRecord.model_validate({"call_index": call_index, **times, **told, **fields_of_attributes(span)})


def _said(span: StoredSpan) -> dict[str, Any]:
    """What the model said, by its messages; without them nobody knows, which is not the same as nothing."""
    messages = parsed(_Facts(span.attributes).text("gen_ai.output.messages"))
    if not isinstance(messages, list):
        return {"tool_calls": None, "reasoning_content": None}
    said = {"output": items_of_messages(messages)}
    return {
        "tool_calls": [tool_call_fields(call) for call in tool_calls(said)],
        "reasoning_content": reasoning_content(said),
    }


def fields_of_attributes(span: StoredSpan) -> dict[str, Any]:
    """What the conventions' attributes say, in the record's fields."""
    attributes, facts = span.attributes, _Facts(span.attributes)
    tokens = {name: token_count(attributes.get(attribute)) for name, attribute in _TOKENS.items()}
    tokens_in, tokens_out, cached = tokens["tokens_in"], tokens["tokens_out"], tokens["cached_tokens"]
    reasons = attributes.get("gen_ai.response.finish_reasons")
    first_reason = reasons[0] if isinstance(reasons, list) and reasons else None
    return {
        **tokens,
        "tokens_total": None if tokens_in is None or tokens_out is None else tokens_in + tokens_out,
        "cache_hit": None if cached is None else cached > 0,
        "response_id": facts.text("gen_ai.response.id"),
        "response_status": facts.text("gen_ai.response.status"),
        "model": facts.text("gen_ai.response.model") or facts.text("gen_ai.request.model"),
        "finish_reason": first_reason if isinstance(first_reason, str) else None,
        "error_category": facts.text(names.ERROR_CATEGORY) or _error_category(span),
    }


def _error_category(span: StoredSpan) -> str | None:
    return "exception" if span.status == STATUS_ERROR else None
