"""Fragments of tool calls in Chat Completions chunks → whole calls.

Servers disagree about what a fragment says of its call: index, id and name may each be missing,
late, repeated or wrong. The rules of ``CallFragments`` come from public reports (R014, R015, R017).
"""

from __future__ import annotations

from otel_gym.wire.assembler import Fragments, append_text, fold_delta, is_index, settle, text_of
from otel_gym.wire.exchange import JsonObject

# Strings of a delta that name something, so that a repeat replaces; every other string is text.
NAMES = frozenset({"format", "id", "model", "name", "object", "phase", "provider", "role", "status", "type"})


def take_name(holder: JsonObject, fragment: object) -> None:
    """Join a name that comes in fragments; an exact repeat of the whole is no fragment (R017)."""
    if not isinstance(fragment, str) or not fragment:
        return
    known = holder.get("name")
    length = known.length if isinstance(known, Fragments) else len(known or "")
    if length == len(fragment) and settle(known) == fragment:
        return
    append_text(holder, "name", fragment)


class CallFragments:
    """Puts fragments of tool calls together (R014, R015, R017).

    Which call a fragment belongs to, first rule that applies:

    1. an id that is known, on the index where it is known or without an index: that call;
    2. an id that is new: the call on its index (without an index: the call being streamed) if that
       one still waits for its id, else a new call;
    3. no id, known index: the last call on it, unless the fragment is a second whole call;
    4. no id, no index or an unknown one: a new call if it has a name, else the call being streamed.
    """

    __slots__ = ("_by_id", "_by_id_and_index", "_calls", "_current", "_highest", "_last_on_index")

    def __init__(self) -> None:
        self._calls: list[tuple[int, JsonObject]] = []
        self._by_id: dict[str, JsonObject] = {}
        self._by_id_and_index: dict[tuple[str, int | None], JsonObject] = {}
        self._last_on_index: dict[int, JsonObject] = {}
        self._highest = -1
        self._current: JsonObject | None = None

    def take(self, fragment: JsonObject) -> None:
        raw_index = fragment.get("index")
        index = raw_index if is_index(raw_index) else None
        call_id = text_of(fragment, "id")
        call = self._find(fragment, call_id, index)
        if call is None:
            call = self._open(index)
        if call_id is not None and call["id"] is None:
            self._by_id[call_id] = self._by_id_and_index[call_id, index] = call
        self._current = call
        _fill_call(call, fragment)

    def _find(self, fragment: JsonObject, call_id: str | None, index: int | None) -> JsonObject | None:
        streaming = self._current if index is None else self._last_on_index.get(index)
        if call_id is None:
            return self._find_without_id(fragment, streaming)
        known = self._known(call_id, index)
        if known is not None:
            return known
        name = _name_of(fragment)
        if streaming is not None and streaming["id"] is None:
            is_second = index is None and name is not None and _has_name(streaming)
            return None if is_second else streaming
        # The tail of a call that repeats its id under another index; with a name it is a second
        # call from a server that gives every call the same id.
        return self._by_id.get(call_id) if name is None else None

    def _known(self, call_id: str, index: int | None) -> JsonObject | None:
        if index is None:
            return self._by_id.get(call_id)
        known = self._by_id_and_index.get((call_id, index))
        return self._by_id_and_index.get((call_id, None)) if known is None else known

    def _find_without_id(self, fragment: JsonObject, streaming: JsonObject | None) -> JsonObject | None:
        if _name_of(fragment) is None:
            return streaming or self._current
        if streaming is None or _starts_over(streaming, fragment):
            return None
        return streaming

    def _open(self, index: int | None) -> JsonObject:
        call: JsonObject = {"id": None, "type": None}
        if index is not None:
            self._last_on_index[index] = call
            self._highest = max(self._highest, index)
        # Without an index a call keeps the place in which it came.
        self._calls.append((self._highest if index is None else index, call))
        return call

    def result(self) -> list[JsonObject]:
        return [_finish_call(call) for _, call in sorted(self._calls, key=lambda entry: entry[0])]


def _name_of(fragment: JsonObject) -> str | None:
    for key in ("function", "custom"):
        body = fragment.get(key)
        if isinstance(body, dict) and text_of(body, "name") is not None:
            return text_of(body, "name")
    return None


def _has_name(call: JsonObject) -> bool:
    return any(isinstance(call.get(key), dict) and bool(call[key].get("name")) for key in ("function", "custom"))


def _starts_over(call: JsonObject, fragment: JsonObject) -> bool:
    """A named fragment that opens an arguments object after the call's own one was closed: a second
    call from a server that gives neither ids nor indexes of its own."""
    known, new = call.get("function"), fragment.get("function")
    if not isinstance(known, dict) or not isinstance(new, dict):
        return False
    arguments, more = known.get("arguments"), new.get("arguments")
    last = arguments.parts[-1] if isinstance(arguments, Fragments) else arguments
    if not isinstance(last, str) or not isinstance(more, str):
        return False
    return last.rstrip().endswith("}") and more.lstrip().startswith("{")


def _fill_call(call: JsonObject, fragment: JsonObject) -> None:
    for key, value in fragment.items():
        if key == "id":
            call["id"] = call["id"] or value or None
        elif key == "type":
            call["type"] = value or call["type"]
        elif key in ("function", "custom"):
            if not isinstance(value, dict):
                continue
            body = call.get(key)
            if not isinstance(body, dict):
                body = call[key] = {}
            take_name(body, value.get("name"))
            # A null, false or empty list where arguments should be adds nothing to them.
            fold_delta(body, {name: part for name, part in value.items() if part and name != "name"}, NAMES)
            for name in value.keys() - body.keys() - {"name"}:
                body[name] = value[name]
        elif key != "index":
            fold_delta(call, {key: value}, NAMES)


def _finish_call(call: JsonObject) -> JsonObject:
    finished: JsonObject = settle(call)
    if not finished["type"]:
        finished["type"] = "custom" if "custom" in finished and "function" not in finished else "function"
    if finished["type"] == "function":
        body = finished.get("function")
        known = body if isinstance(body, dict) else {}
        arguments = known.get("arguments")
        arguments = "" if arguments is None else arguments
        finished["function"] = {**known, "name": known.get("name") or "", "arguments": arguments}
    return finished
