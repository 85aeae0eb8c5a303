"""The ``chat MODEL`` span of one exchange: which attributes it has, and how it ends.

Attribute names and conditions are those of the GenAI conventions' ``gen_ai.client.inference`` span and
its OpenAI and Anthropic refinements; the rest is ``gym.*``. Nothing is set that the traffic does not say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from opentelemetry.trace import Span, StatusCode

from otel_gym import conventions as names
from otel_gym.content import KeptBody, count_unsafe, fits_int64, known, safe_attributes, safe_json, safe_text
from otel_gym.content_policy import ContentPolicy
from otel_gym.identity import Identity
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.membership import identity_attributes
from otel_gym.tracing.payloads import Payload, slots
from otel_gym.tracing.recorder import recorder_of_this_thread
from otel_gym.wire.agent_context import agent_context_of_request
from otel_gym.wire.bodies import decode_body
from otel_gym.wire.exchange import Exchange, JsonObject, ParsedExchange
from otel_gym.wire.parse import parse_exchange
from otel_gym.wire.parts import GenAiContent, content_of
from otel_gym.wire.usage import token_count, token_stats, with_thinking

OPERATION = "chat"
REQUEST_MODEL = "gen_ai.request.model"

# Categories that say how the call ended, not that it failed.
_NO_FAILURE = frozenset({None, "incomplete", "capture_parse_error"})

_PROVIDERS_BY_HOST = (
    ("openai.azure.com", "azure.ai.openai"),
    ("azure.com", "azure.ai.inference"),
    ("amazonaws.com", "aws.bedrock"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("anthropic.com", "anthropic"),
    ("x.ai", "x_ai"),
    ("deepseek.com", "deepseek"),
    ("groq.com", "groq"),
    ("mistral.ai", "mistral_ai"),
    ("moonshot.ai", "moonshot_ai"),
    ("moonshot.cn", "moonshot_ai"),
    ("perplexity.ai", "perplexity"),
    ("cohere.com", "cohere"),
)


@lru_cache(maxsize=256)
def provider_of(dialect: str, host: str | None = None) -> str:
    """``gen_ai.provider.name``: by host where the host is a vendor's, else by the API that is spoken."""
    host = (host or "").lower()
    for suffix, provider in _PROVIDERS_BY_HOST:
        if host == suffix or host.endswith("." + suffix):
            return provider
    return "anthropic" if dialect == "messages" else "openai"


@lru_cache(maxsize=1024)
def start_attributes(dialect: str, host: str | None, port: int | None, identity: Identity) -> Mapping[str, Any]:
    """What samplers may see; all else is set at the end, off the request's path."""
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": OPERATION,
        "gen_ai.provider.name": provider_of(dialect, host),
        **identity_attributes(identity),
    }
    # The same id once more: it costs as much as any attribute, and no sampler needs it.
    attributes.pop(names.NEMO_ROLLOUT_ID, None)
    if host:
        attributes["server.address"] = host
        if port:
            attributes["server.port"] = port
    return MappingProxyType(attributes)


# A name within a text has its quotes escaped, so that this finds members of objects alone.
_MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]{1,256})"')


def open_attributes(
    model_call_id: str, dialect: str, request: bytes, coding: str | None, policy: ContentPolicy
) -> dict[str, Any]:
    """What a start record says of a call that may never end. The request is searched, not parsed: that is done once,
    at the end. The model is told where only one is named, and the body is not kept: each call would be written twice.
    """
    attributes = {names.MODEL_CALL_ID: model_call_id, names.DIALECT: dialect}
    models = set() if coding else set(_MODEL.findall(request))
    if len(models) == 1:
        attributes[REQUEST_MODEL] = models.pop().decode("utf-8", "replace")
    safe, _ = safe_attributes(attributes)
    return dict(policy.attributes(safe))


def finish_model_call(span: Span, exchange: Exchange, cut: Payload | None, policy: ContentPolicy) -> Mapping[str, Any]:
    """Parses the exchange, completes its span and ends it with the time of the last byte; returns its attributes.

    ``cut`` is what is kept of bodies for which the queue had no room. Runs on the recorder's thread.
    """
    bodies = cut or payload_of(exchange)
    try:
        attributes = _complete(span, exchange, bodies, policy)
    except Exception:  # what the traffic holds must not cost the exchange itself
        log_once("a model call could not be parsed, it is stored as it came")
        attributes = dict(policy.attributes(exchange_attributes(exchange, ParsedExchange(), policy)))
    beside = {**(getattr(span, "attributes", None) or {}), **attributes}
    span.set_attributes(attributes)
    context = span.get_span_context()
    slots.put(context, replace(bodies if policy.bodies else Payload(), attributes=beside))
    span.end(exchange.started_unix_nano + duration_ns(exchange))
    recorder = recorder_of_this_thread()
    if slots.discard(context) and recorder is not None:
        recorder.count("dropped_calls")
    return beside


def _complete(span: Span, exchange: Exchange, bodies: Payload, policy: ContentPolicy) -> dict[str, Any]:
    """Names the span and sets its status; returns its attributes, safe and redacted."""
    parsed = parse_exchange(exchange)
    attributes = {
        **exchange_attributes(exchange, parsed, policy),
        **request_attributes(exchange.dialect, parsed.request),
    }
    attributes |= response_attributes(exchange, parsed)
    attributes |= agent_attributes(exchange.request_headers, parsed.request)
    if policy.messages:
        attributes |= message_attributes(content_of(exchange.dialect, parsed.request, parsed.response))
    error_type = error_type_of(exchange, parsed)
    if error_type is not None:
        attributes["error.type"] = error_type
        message = _error_message(parsed.error)
        span.set_status(StatusCode.ERROR, policy.message(message) if message and policy.bodies else None)
    safe, replaced = safe_attributes(attributes)
    replaced += _replaced_in_bodies(bodies, parsed)
    if replaced:
        safe[names.CONTENT_REPLACED] = replaced
    attributes = dict(policy.attributes(safe))  # from here on every processor of the provider may see them
    model = attributes.get(REQUEST_MODEL) or getattr(span, "attributes", {}).get(REQUEST_MODEL)
    if model:
        span.update_name(f"{OPERATION} {model}")
    return attributes


# How a body may spell what no strict JSON carries: an escape that may be half a pair, or a number.
_UNSAFE_SPELLINGS = (b"\\ud", b"\\uD", b"NaN", b"Infinity")


def _replaced_in_bodies(bodies: Payload, parsed: ParsedExchange) -> int:
    """What readers replace in the objects that they make of the bodies."""
    contents = [body.content for body in (bodies.request, bodies.response) if body is not None]
    if not any(spelling in content for content in contents for spelling in _UNSAFE_SPELLINGS):
        return 0
    return count_unsafe((parsed.request, parsed.response))


def duration_ns(exchange: Exchange) -> int:
    """To the last byte of the answer; where there was none, to the server's return."""
    return exchange.returned_ns if exchange.last_byte_ns is None else exchange.last_byte_ns


def payload_of(exchange: Exchange) -> Payload:
    """The bodies as they are stored: without the compression of the wire where it can be undone."""
    return Payload(
        _kept(exchange.request_body, exchange.request_content_encoding),
        _kept(exchange.response_body, exchange.response_content_encoding),
    )


def _kept(content: bytes, coding: str | None) -> KeptBody | None:
    if not content:
        return None
    if not coding:
        return KeptBody(content)
    decoded = decode_body(content, coding)
    return KeptBody(content, coding) if decoded.failed else KeptBody(decoded.content)


def error_type_of(exchange: Exchange, parsed: ParsedExchange) -> str | None:
    """``error.type``: the provider's own word, else the status, else what broke; None if the call was fine."""
    if parsed.error_category in _NO_FAILURE and not parsed.error:
        return None
    error = parsed.error or {}
    for word in (error.get("type"), error.get("code")):
        if isinstance(word, str) and word and word != "error":
            return safe_text(word)
    if exchange.status_code is not None and exchange.status_code >= 400:
        return str(exchange.status_code)
    if exchange.raised is not None and parsed.error_category is not None:
        return exchange.raised.type_name
    return parsed.error_category or "_OTHER"


def _error_message(error: JsonObject | None) -> str | None:
    message = (error or {}).get("message")
    return safe_text(message[:1000]) if isinstance(message, str) else None


def exchange_attributes(exchange: Exchange, parsed: ParsedExchange, policy: ContentPolicy) -> dict[str, Any]:
    """The exchange itself, for whoever rebuilds it from disk. Without bodies its errors keep only their names: their
    texts repeat what was asked and answered."""
    execution, raised, model_ref = exchange.execution, exchange.raised, exchange.model_ref or {}
    attributes: dict[str, Any] = {
        names.MODEL_CALL_ID: exchange.model_call_id,
        names.DIALECT: exchange.dialect,
        names.MODEL_REF_TYPE: model_ref.get("type"),
        names.MODEL_REF_NAME: model_ref.get("name"),
        names.REQUEST_CONTENT_ENCODING: exchange.request_content_encoding,
        names.RESPONSE_CONTENT_ENCODING: exchange.response_content_encoding,
        names.RESPONSE_CONTENT_TYPE: exchange.response_content_type,
        names.FIRST_CONTENT_NS: parsed.first_content_ns,
        names.FIRST_CHUNK_NS: parsed.first_chunk_ns,
        names.LAST_BYTE_NS: exchange.last_byte_ns,
        names.RETURNED_NS: exchange.returned_ns,
        names.ERROR_CATEGORY: parsed.error_category,
        names.RESPONSE_ERROR: _error_json(parsed.error, policy) if parsed.error else None,
        "http.response.status_code": exchange.status_code,
    }
    for prefix, headers in (
        (names.REQUEST_HEADER, exchange.request_headers),
        (names.RESPONSE_HEADER, exchange.response_headers),
    ):
        attributes |= {prefix + name: values for name, values in headers.items()}
    if execution is not None:
        attributes |= {
            names.UPSTREAM_ATTEMPTED: execution.upstream_attempted,
            names.RESPONSE_SOURCE: execution.response_source,
            names.UPSTREAM_STATUS_CODE: execution.upstream_status_code,
            names.LOCAL_RESPONSE_REASON: execution.local_response_reason,
        }
    if raised is not None:
        attributes |= {
            names.EXCEPTION_TYPE: raised.type_name,
            names.EXCEPTION_CATEGORY: raised.category,
            names.EXCEPTION_STATUS_CODE: raised.status_code,
            names.EXCEPTION_BODY: raised.body.decode("utf-8", "replace")
            if raised.body is not None and policy.bodies
            else None,
        }
    return known(attributes)


def _error_json(error: JsonObject, policy: ContentPolicy) -> str:
    return safe_json(error if policy.bodies else {name: error[name] for name in ("type", "code") if name in error})


# How a request field becomes an attribute: the reader returns None for what is not of the right kind.
Reader = Callable[[Any], Any]


def _text(value: Any) -> str | None:
    return safe_text(value) if isinstance(value, str) and value else None


def _double(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _int(value: Any) -> int | None:
    return value if type(value) is int and fits_int64(value) else None


def _texts(value: Any) -> list[str] | None:
    if isinstance(value, str):
        return [safe_text(value)]
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return [safe_text(item) for item in value]
    return None


def _several(value: Any) -> int | None:
    return value if type(value) is int and value != 1 else None


def _output_type(value: Any) -> str | None:
    """``response_format`` or ``text.format``: ``json`` for either form of JSON, else ``text``."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind in ("json_object", "json_schema"):
        return "json"
    return "text" if kind == "text" else None


_REQUEST_FIELDS: tuple[tuple[str, tuple[str, ...], Reader], ...] = (
    (REQUEST_MODEL, ("model",), _text),
    ("gen_ai.request.temperature", ("temperature",), _double),
    ("gen_ai.request.top_p", ("top_p",), _double),
    ("gen_ai.request.top_k", ("top_k",), _int),
    ("gen_ai.request.frequency_penalty", ("frequency_penalty",), _double),
    ("gen_ai.request.presence_penalty", ("presence_penalty",), _double),
    ("gen_ai.request.seed", ("seed",), _int),
    ("gen_ai.request.choice.count", ("n",), _several),
    ("gen_ai.request.max_tokens", ("max_completion_tokens",), _int),
    ("gen_ai.request.max_tokens", ("max_output_tokens",), _int),
    ("gen_ai.request.max_tokens", ("max_tokens",), _int),
    ("gen_ai.request.stop_sequences", ("stop",), _texts),
    ("gen_ai.request.stop_sequences", ("stop_sequences",), _texts),
    ("gen_ai.request.reasoning.level", ("reasoning_effort",), _text),
    ("gen_ai.request.reasoning.level", ("reasoning", "effort"), _text),
    ("gen_ai.request.reasoning.level", ("output_config", "effort"), _text),
    ("gen_ai.request.previous_response.id", ("previous_response_id",), _text),
    ("gen_ai.conversation.id", ("conversation", "id"), _text),
    ("gen_ai.conversation.id", ("conversation",), _text),
    ("gen_ai.output.type", ("response_format",), _output_type),
    ("gen_ai.output.type", ("text", "format"), _output_type),
)


def request_attributes(dialect: str, request: JsonObject | None) -> dict[str, Any]:
    """``gen_ai.request.*`` of a request object; of two fields that mean the same the first counts."""
    if not request:
        return {}
    attributes: dict[str, Any] = {}
    for name, path, read in _REQUEST_FIELDS:
        value = read(_at(request, path))
        if value is not None:
            attributes.setdefault(name, value)
    if request.get("stream") is True:
        attributes["gen_ai.request.stream"] = True
    if dialect != "messages":
        attributes["openai.api.type"] = "responses" if dialect == "responses" else "chat_completions"
        tier = _text(request.get("service_tier"))
        if tier and tier != "auto":
            attributes["openai.request.service_tier"] = tier
    return attributes


def agent_attributes(headers: Mapping[str, Sequence[str]], request: JsonObject | None) -> dict[str, Any]:
    """``gym.agent_context.*`` as the request tells it, and the client's own id of the request."""
    context = agent_context_of_request(headers, request)
    attributes = {} if context is None else context.attributes()
    request_id = next(iter(headers.get("x-request-id", ())), "").strip()
    if request_id:
        attributes[names.X_REQUEST_ID] = request_id
    return attributes


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def response_attributes(exchange: Exchange, parsed: ParsedExchange) -> dict[str, Any]:
    """``gen_ai.response.*`` and ``gen_ai.usage.*``; input_tokens is the whole prompt, cache included."""
    response = parsed.response or {}
    attributes: dict[str, Any] = {
        "gen_ai.response.id": _text(response.get("id")),
        "gen_ai.response.model": _text(response.get("model")),
        "gen_ai.response.finish_reasons": list(finish_reasons(response)) or None,
    }
    if parsed.streamed:
        attributes["gen_ai.request.stream"] = True
        if parsed.first_chunk_ns is not None:
            attributes["gen_ai.response.time_to_first_chunk"] = parsed.first_chunk_ns / 10**9
    if exchange.dialect != "messages":
        attributes["openai.response.service_tier"] = _text(response.get("service_tier"))
        attributes["openai.response.system_fingerprint"] = _text(response.get("system_fingerprint"))
    return known(attributes | usage_attributes(response.get("usage")))


def usage_attributes(usage: Any) -> dict[str, Any]:
    stats = with_thinking(token_stats(usage), usage)
    attributes = {
        "gen_ai.usage.input_tokens": stats.tokens_in,
        "gen_ai.usage.output_tokens": stats.tokens_out,
        "gen_ai.usage.cache_read.input_tokens": stats.cached_tokens,
        "gen_ai.usage.cache_write.input_tokens": stats.cache_creation_tokens,
        "gen_ai.usage.reasoning.output_tokens": stats.tokens_reasoning,
    }
    for direction, groups in _MODALITY_DETAILS.items():
        for modality in ("text", "image", "audio"):
            found = (token_count(_at(usage, (group, f"{modality}_tokens"))) for group in groups)
            attributes[f"gen_ai.usage.{modality}.{direction}_tokens"] = next((n for n in found if n is not None), None)
    return attributes


_MODALITY_DETAILS = {
    "input": ("prompt_tokens_details", "input_tokens_details"),
    "output": ("completion_tokens_details", "output_tokens_details"),
}


def finish_reasons(response: JsonObject) -> Iterator[str]:
    """The provider's own words, one a choice, in the order of the choices' indices."""
    choices = response.get("choices")
    if isinstance(choices, list):
        reasons = [choice.get("finish_reason") for choice in choices if isinstance(choice, dict)]
    else:
        reasons = [response.get("stop_reason"), _at(response, ("incomplete_details", "reason"))]
    return (safe_text(reason) for reason in reasons if isinstance(reason, str) and reason)


def message_attributes(content: GenAiContent) -> dict[str, Any]:
    """What was said to the model and by it, as JSON texts; what is empty is absent."""
    attributes = {
        "gen_ai.system_instructions": content.system_instructions,
        "gen_ai.input.messages": content.input_messages,
        "gen_ai.output.messages": content.output_messages,
        "gen_ai.tool.definitions": content.tool_definitions,
    }
    return {name: safe_json(value) for name, value in attributes.items() if value}
