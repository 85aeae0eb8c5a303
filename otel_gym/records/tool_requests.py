"""May a tool execution be linked to a model call? What the call's response proves of the tools it asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

EvidenceKind = Literal["available", "omitted", "malformed", "unsuccessful"]

FAILED_STATUSES = frozenset({"failed", "cancelled"})
UNFINISHED_STATUSES = frozenset({"queued", "in_progress"})


@dataclass(frozen=True, slots=True)
class ToolRequestEvidence:
    """``call_ids``: the ids that the response names, in its order; empty unless the kind is available or omitted."""

    kind: EvidenceKind
    call_ids: tuple[str, ...] = ()

    def permits_link(self, call_id: str) -> bool:
        """Whether an execution of ``call_id`` may hang under this model call.

        available: if the response asked for it. omitted: yes, nothing speaks against it, but the caller should
        note the gap. malformed, unsuccessful: no.
        """
        if self.kind == "omitted":
            return True
        return self.kind == "available" and call_id in self.call_ids


def tool_request_evidence(
    response: Any, status_code: int | None = None, response_status: str | None = None
) -> ToolRequestEvidence:
    """Which tools a response asked its client to run, and how far that can be trusted.

    The first rule that fits decides:

    1. *unsuccessful*: the status code is 400 or more, the response status is ``failed`` or ``cancelled``, or the
       body carries an error object. A failed call asked for nothing, even if parts of a list arrived.
    2. *omitted*: there is no body (payloads stripped, nothing arrived, connection lost), or the body has no list to
       read: no ``output``, ``choices`` or ``content`` or null there, no choices, a choice without message. Also a
       response that is still ``queued`` or ``in_progress``: what is listed is true, but more may follow.
    3. *malformed*: the body is no object, a list is something else than a list, an item is no object, a tool call
       has no id that is a non-empty text, or two calls share an id, so that an id would not tell which one ran.
    4. *available*: the rest. An empty list is available: the call is known to have asked for no tool.
       ``incomplete`` (cut at a limit) is available: the calls that it names were asked for.

    Counted are the calls that a client runs: Responses ``function_call`` and any other ``*_call`` item that carries
    a ``call_id`` (custom, shell, computer …; hosted tools have none), each entry of a Chat message's ``tool_calls`` in
    every choice, Messages ``tool_use`` (not ``server_tool_use``). The status code may be unknown (None).
    """
    if _unsuccessful(response, status_code, response_status):
        return ToolRequestEvidence("unsuccessful")
    if response is None:
        return ToolRequestEvidence("omitted")
    try:
        call_ids = _read_call_ids(response)
    except _MalformedError:
        return ToolRequestEvidence("malformed")
    if call_ids is None:
        return ToolRequestEvidence("omitted")
    if _status(response, response_status) in UNFINISHED_STATUSES:
        return ToolRequestEvidence("omitted", call_ids)
    return ToolRequestEvidence("available", call_ids)


class _MalformedError(Exception):
    """The response breaks its schema where its tool calls are listed."""


def _unsuccessful(response: Any, status_code: int | None, response_status: str | None) -> bool:
    if status_code is not None and status_code >= 400:
        return True
    if _status(response, response_status) in FAILED_STATUSES:
        return True
    return isinstance(response, Mapping) and (bool(response.get("error")) or response.get("type") == "error")


def _status(response: Any, response_status: str | None) -> str | None:
    if response_status is not None or not isinstance(response, Mapping):
        return response_status
    status = response.get("status")
    return status if isinstance(status, str) else None


def _read_call_ids(response: Any) -> tuple[str, ...] | None:
    """The ids, or None if there is no list to read them from."""
    if not isinstance(response, Mapping):
        raise _MalformedError
    for key, read in READERS:
        items = response.get(key)
        if items is not None:
            return _distinct(read(_objects(items)))
    return None


def _distinct(call_ids: list[Any] | None) -> tuple[str, ...] | None:
    if call_ids is None:
        return None
    if not all(isinstance(call_id, str) and call_id for call_id in call_ids):
        raise _MalformedError
    if len(set(call_ids)) != len(call_ids):
        raise _MalformedError
    return tuple(call_ids)


def _responses_ids(output: list[Mapping[str, Any]]) -> list[Any]:
    return list(_responses_id(output))


def _responses_id(output: list[Mapping[str, Any]]) -> Iterator[Any]:
    for item in output:
        kind = item.get("type")
        if kind == "function_call":
            yield item.get("call_id") or item.get("id")
        elif isinstance(kind, str) and kind.endswith("_call") and item.get("call_id"):
            yield item["call_id"]


def _chat_ids(choices: list[Mapping[str, Any]]) -> list[Any] | None:
    messages = [choice.get("message") for choice in choices]
    if not messages or None in messages:
        return None
    listed = [message.get("tool_calls") or [] for message in _objects(messages)]
    return [call.get("id") for calls in listed for call in _objects(calls)]


def _messages_ids(content: list[Mapping[str, Any]]) -> list[Any]:
    return [block.get("id") for block in content if block.get("type") == "tool_use"]


def _objects(items: Any) -> list[Mapping[str, Any]]:
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        raise _MalformedError
    return items


READERS: tuple[tuple[str, Callable[[list[Mapping[str, Any]]], list[Any] | None]], ...] = (
    ("output", _responses_ids),
    ("choices", _chat_ids),
    ("content", _messages_ids),
)
