"""Token ids and log probabilities of one answer, for the columns of the sealed form.

They are copies: the response's body stays whole beside them. What is partial, doubled (several choices) or of another
type gives no tokens, since training on wrong ones is worse than on none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from otel_gym import conventions as names
from otel_gym.wire.dialects import DIALECTS
from otel_gym.wire.exchange import Exchange, JsonObject
from otel_gym.wire.parse import parse_exchange

_INT32 = 2**31


class Tokens(NamedTuple):
    """None: the answer does not say. A log probability may be -inf or NaN, and None where the answer has null."""

    prompt_token_ids: list[int] | None = None
    generation_token_ids: list[int] | None = None
    generation_log_probs: list[float | None] | None = None


NO_TOKENS = Tokens()


def may_hold_tokens(body: str) -> bool:
    return "token_ids" in body or ("prob" in body and ("logprob" in body or "log_probs" in body))


def tokens_of(attributes: Mapping[str, Any], body: str) -> Tokens:
    """The tokens of the answer whose body is ``body``; never raises on what a server sent."""
    if not may_hold_tokens(body):
        return NO_TOKENS
    response = response_of(attributes, body)
    return NO_TOKENS if response is None else tokens_of_response(response)


def response_of(attributes: Mapping[str, Any], body: str) -> JsonObject | None:
    """The answer whose body is ``body``, a stream put together; None where it cannot be read."""
    if attributes.get(names.RESPONSE_BODY + names.BODY_ENCODING) is not None:
        return None
    dialect = attributes.get(names.DIALECT)
    exchange = Exchange(
        dialect=dialect if dialect in DIALECTS else "chat",
        model_call_id="",
        started_unix_nano=0,
        response_content_type=attributes.get(names.RESPONSE_CONTENT_TYPE),
        chunks=[(0, body.encode("utf-8", "surrogatepass"))],
        live=False,
    )
    return parse_exchange(exchange).response


def tokens_of_response(response: JsonObject) -> Tokens:
    """The same of an answer that was parsed."""
    bundles = [item for item in _messages(response) if "generation_token_ids" in item]
    if len(bundles) == 1:
        (bundle,) = bundles
        found = Tokens(
            _ids(bundle.get("prompt_token_ids")),
            _ids(bundle["generation_token_ids"]),
            _log_probs(bundle.get("generation_log_probs")),
        )
        return found if _agree(found) else NO_TOKENS
    choices = response.get("choices")
    if bundles or not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        return NO_TOKENS
    (choice,) = choices
    prompt = choice.get("prompt_token_ids", response.get("prompt_token_ids"))
    found = Tokens(_ids(prompt), _ids(choice.get("token_ids")), _choice_log_probs(choice.get("logprobs")))
    return found if _agree(found) else NO_TOKENS


def _messages(response: JsonObject) -> list[JsonObject]:
    """Where NeMo Gym puts a bundle: output items, or the choices' messages."""
    items = response.get("output")
    found = list(items) if isinstance(items, list) else []
    choices = response.get("choices")
    if isinstance(choices, list):
        found += [choice.get("message") for choice in choices if isinstance(choice, dict)]
    return [item for item in found if isinstance(item, dict)]


def _agree(tokens: Tokens) -> bool:
    ids, log_probs = tokens.generation_token_ids, tokens.generation_log_probs
    return ids is None or log_probs is None or len(ids) == len(log_probs)


def _ids(value: Any) -> list[int] | None:
    if isinstance(value, list) and all(type(item) is int and -_INT32 <= item < _INT32 for item in value):
        return value
    return None


def _log_probs(value: Any) -> list[float | None] | None:
    if isinstance(value, list) and all(item is None or type(item) in (int, float) for item in value):
        return [None if item is None else float(item) for item in value]
    return None


def _choice_log_probs(value: Any) -> list[float | None] | None:
    content = value.get("content") if isinstance(value, dict) else None
    if not isinstance(content, list) or not all(isinstance(item, dict) and "logprob" in item for item in content):
        return None
    return _log_probs([item["logprob"] for item in content])
