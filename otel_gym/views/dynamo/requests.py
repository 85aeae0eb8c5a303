"""A model call's span → the ``request_end`` record of its request.

What Dynamo measured and an import kept comes back as it was. Of a call that was captured live start, end and, where it
was told, the first token are known; nothing is made up for what happened within the server.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from otel_gym import conventions as names
from otel_gym.records.replay_hashes import sequence_hashes
from otel_gym.store.span import StoredSpan
from otel_gym.store.tokens import may_hold_tokens, response_of, tokens_of_response
from otel_gym.views.dynamo.places import OPERATION
from otel_gym.wire.exchange import JsonObject
from otel_gym.wire.tool_calls import tool_calls

Record = dict[str, Any]

_RESPONSE_ID = "gen_ai.response.id"
_SCHEMA = names.DYNAMO_PREFIX + "schema"
_ENDPOINT = names.DYNAMO_PREFIX + "endpoint"
_RECEIVED = names.DYNAMO_PREFIX + "request_received_ms"
_FINISH_REASONS = "gen_ai.response.finish_reasons"

# Of other providers' words those that mean the same.
_REASONS = {
    **{word: word for word in ("stop", "length", "tool_calls", "content_filter", "function_call")},
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
# In a body, one of them stands for each tool that is asked for.
_TOOL_MARKS = ("tool_calls", "tool_use", "function_call")

_LARGEST_U64 = 2**64 - 1
_WORKER_IDS = ("prefill_worker_id", "decode_worker_id")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the bodies of a call tell: the tokens that the model was sent, and which tools it asked for."""

    prompt_token_ids: Sequence[int] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()


NO_ANSWER = Answer()


def is_answered(attributes: Mapping[str, Any]) -> bool:
    """Whether a call has an answer, if only a part of it: Dynamo writes nothing of a request that it refused.

    Of what was imported from Dynamo, whether it had a record of the request, and not of its bodies alone.
    """
    operation = attributes.get(OPERATION)
    if not isinstance(operation, str) or operation not in names.INFERENCE_OPERATIONS:
        return False
    if _SCHEMA in attributes:
        return _ENDPOINT not in attributes or _RECEIVED in attributes
    status = attributes.get("http.response.status_code")
    if isinstance(status, int) and status >= 400:
        return False
    return any(name in (_RESPONSE_ID, names.FIRST_CHUNK_NS) or name.startswith("gen_ai.usage.") for name in attributes)


def answer_of(attributes: Mapping[str, Any], body: str | None) -> Answer:
    """``body``: the response's, None where it was not kept. It is parsed only if it may say what is asked for."""
    told = attributes.get(names.PROMPT_TOKEN_IDS)
    prompt = told if isinstance(told, list | tuple) else None
    has_tokens = body is not None and prompt is None and may_hold_tokens(body)
    if body is None or not (has_tokens or any(mark in body for mark in _TOOL_MARKS)):
        return Answer(prompt)
    response = response_of(attributes, body)
    if response is None:
        return Answer(prompt)
    return Answer(tokens_of_response(response).prompt_token_ids if has_tokens else prompt, tuple(_tools(response)))


def _tools(response: JsonObject) -> list[Mapping[str, Any]]:
    choices = response.get("choices")
    alternatives = [{"choices": [each]} for each in choices] if isinstance(choices, list) else [response]
    return [
        {"choice_index": choice, "tool_call_index": place, **_texts({"id": call.call_id, "name": call.name})}
        for choice, alternative in enumerate(alternatives)
        for place, call in enumerate(tool_calls(alternative))
    ]


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in values.items() if isinstance(value, str)}


def request_of(span: StoredSpan, answer: Answer, block_size: int | None) -> tuple[int, Record]:
    """The time of the record, UNIX ms, and its ``request``. ``block_size`` None: no replay hashes but those that an
    import brought. ReplayHashError where the token ids have none."""
    told = span.attributes
    is_timed = told.get(names.TIME_KNOWN) is not False
    imported = _SCHEMA in told
    received = _count(told, "request_received_ms")
    total = _measure(told, "total_time_ms")
    if not imported and is_timed and span.end_ns is not None:
        received, total = span.start_ns // 10**6, (span.end_ns - span.start_ns) / 10**6
    ended = _count(told, "event_time_unix_ms")
    if ended is None:
        ended = received + round(max(total or 0.0, 0.0)) if received is not None else span.start_ns // 10**6
    request = {
        "request_id": _request_id(span),
        "x_request_id": _text(told, "x_request_id"),
        "model": _model(told),
        "input_tokens": _tokens(told, "input_tokens"),
        "output_tokens": _tokens(told, "output_tokens"),
        "cached_tokens": _tokens(told, "cache_read.input_tokens"),
        "request_received_ms": received,
        "prefill_wait_time_ms": _measure(told, "prefill_wait_time_ms"),
        "prefill_time_ms": _measure(told, "prefill_time_ms"),
        "ttft_ms": _ttft_ms(told),
        "total_time_ms": total,
        "avg_itl_ms": _measure(told, "avg_itl_ms"),
        "kv_hit_rate": _measure(told, "kv_hit_rate"),
        "kv_transfer_estimated_latency_ms": _measure(told, "kv_transfer_estimated_latency_ms"),
        "queue_depth": _count(told, "queue_depth"),
        "worker": _worker(told),
        "replay": _replay(told, answer, block_size),
        "finish_reason_metadata": _finish(told, answer),
    }
    return ended, {name: value for name, value in request.items() if value is not None}


def _request_id(span: StoredSpan) -> str:
    """One that no other request has: Dynamo's tools refuse a trace with one id twice."""
    return _text(span.attributes, "request_id") or _own(span.attributes, names.MODEL_CALL_ID) or span.span_id


def _model(told: Mapping[str, Any]) -> str | None:
    return _own(told, "gen_ai.request.model") or _own(told, "gen_ai.response.model")


def _ttft_ms(told: Mapping[str, Any]) -> float | None:
    measured = _measure(told, "ttft_ms")
    first_ns = told.get(names.FIRST_CONTENT_NS)
    if measured is not None or type(first_ns) is not int or told.get("gen_ai.request.stream") is not True:
        return measured  # an answer that came at once does not tell when its first token was made
    return first_ns / 10**6


def _worker(told: Mapping[str, Any]) -> Record | None:
    worker = {
        "prefill_worker_id": _number(told.get(names.DYNAMO_PREFIX + "prefill_worker_id")),
        "prefill_dp_rank": _count(told, "prefill_dp_rank"),
        "decode_worker_id": _number(told.get(names.DYNAMO_PREFIX + "decode_worker_id")),
        "decode_dp_rank": _count(told, "decode_dp_rank"),
    }
    return {name: value for name, value in worker.items() if value is not None} or None


def _replay(told: Mapping[str, Any], answer: Answer, block_size: int | None) -> Record | None:
    size, length = _count(told, "replay.trace_block_size"), _count(told, "replay.input_length")
    hashes = told.get(names.DYNAMO_PREFIX + "replay.input_sequence_hashes")
    if size is not None and length is not None and isinstance(hashes, list | tuple):
        numbers = [_number(each) for each in hashes]
        if None not in numbers:
            return {"trace_block_size": size, "input_length": length, "input_sequence_hashes": numbers}
    tokens = answer.prompt_token_ids
    if tokens is None or block_size is None:
        return None
    return {
        "trace_block_size": block_size,
        "input_length": len(tokens),
        "input_sequence_hashes": sequence_hashes(tokens, block_size),
    }


def _finish(told: Mapping[str, Any], answer: Answer) -> Record | None:
    kept = told.get(names.DYNAMO_PREFIX + "finish_reason_metadata")
    if isinstance(kept, str):
        return _object(kept)
    if _SCHEMA in told:
        return None
    reasons = told.get(_FINISH_REASONS)
    words = [word for word in reasons if isinstance(word, str)] if isinstance(reasons, list | tuple) else []
    choices = [{"choice_index": place, **_reason(word, answer)} for place, word in enumerate(words)]
    metadata: Record = _reason(words[-1], answer) if words else {}
    if answer.tools:
        metadata["tool_calls"] = list(answer.tools)
    if choices:
        metadata["choices"] = choices
    return metadata or None


def _reason(word: str, answer: Answer) -> Record:
    """The provider's own word stands beside, where it is another one."""
    meaning = _REASONS.get(word)
    if meaning is None:
        return {"backend_finish_reason": word}
    return {"finish_reason": meaning} if meaning == word else {"finish_reason": meaning, "backend_finish_reason": word}


def _object(text: str) -> Record | None:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _own(told: Mapping[str, Any], name: str) -> str | None:
    value = told.get(name)
    return value if isinstance(value, str) and value else None


def _text(told: Mapping[str, Any], field: str) -> str | None:
    value = told.get(names.DYNAMO_PREFIX + field)
    return value if isinstance(value, str) else None


def _count(told: Mapping[str, Any], field: str) -> int | None:
    return _number(told.get(names.DYNAMO_PREFIX + field))


def _tokens(told: Mapping[str, Any], field: str) -> int | None:
    return _number(told.get("gen_ai.usage." + field))


def _number(value: Any) -> int | None:
    """Unsigned 64-bit, also as decimal text."""
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value) if len(value) <= 20 else None
    return value if type(value) is int and 0 <= value <= _LARGEST_U64 else None


def _measure(told: Mapping[str, Any], field: str) -> float | None:
    value = told.get(names.DYNAMO_PREFIX + field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
