"""What a tool was asked and what it gave back, as the JSON that its span carries; never an exception."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from otel_gym.content import safe_json, safe_text


class BoundArguments(NamedTuple):
    """A call's arguments, bound to the function's parameters only if they are recorded."""

    function: Callable[..., Any]
    positional: tuple[Any, ...]
    named: dict[str, Any]

    def by_name(self) -> dict[str, Any]:
        try:
            signature = _signature_of(self.function)
            bound = signature.bind(*self.positional, **self.named).arguments
        except (TypeError, ValueError):  # a call that will fail, or a function that says nothing of itself
            return {"arguments": list(self.positional), **self.named}
        kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
        found: dict[str, Any] = {}
        for name, value in bound.items():
            found |= value if kinds[name] is inspect.Parameter.VAR_KEYWORD else {name: value}
        return {name: value for name, value in found.items() if name not in ("self", "cls")}


def _signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Kept for plain functions: to find it costs more than all else that a tool's span does."""
    return _known_signature(function) if inspect.isfunction(function) else inspect.signature(function)


_known_signature = lru_cache(maxsize=1024)(inspect.signature)


def arguments_json(arguments: Any) -> str | None:
    if arguments is None:
        return None
    if isinstance(arguments, BoundArguments):
        return json_of(arguments.by_name())
    if isinstance(arguments, str) and _is_json(arguments):
        return arguments
    return json_of(arguments)


def result_json(result: Any) -> str:
    return safe_json({"content": result}) if isinstance(result, str) else json_of(result)


def json_of(value: Any) -> str:
    """Also of what describes itself in JSON's terms (a pydantic model, a dataclass); never an exception."""
    try:
        return safe_text(
            json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_as_plain)
        )
    except Exception:  # NaN, a cycle, an object of the user's that fails when it is read
        return safe_json(value)


def _as_plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError("safe_json knows what to do")


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError):
        return False
    return True


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
