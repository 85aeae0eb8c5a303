"""Spans that an ATIF document was read into → the document, equal to the one that was read.

Each field is taken from the attribute that stands for it (``records.atif_fields``); nothing holds a whole step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_gym import conventions as names
from otel_gym.records.atif_fields import (
    CALL,
    CALL_RESULT,
    DOCUMENT,
    GENERATION,
    RESULT,
    STEP,
    TOOL_DEFINITIONS,
    TOTALS,
    Json,
    atif_parts,
    atif_tools,
    fields_of,
    put,
    put_empty_fields,
    text_of_parts,
)
from otel_gym.store.span import StoredSpan
from otel_gym.wire.items.shapes import objects_of

_OPERATION = "gen_ai.operation.name"
_EMBEDDED = "subagent_trajectories/"


def atif_of_spans(spans: Iterable[StoredSpan]) -> Json:
    """The main document that an import was made from. ValueError where none of the spans comes from ATIF."""
    return next(iter(atif_files_of_spans(spans).values()))


def atif_files_of_spans(spans: Iterable[StoredSpan]) -> dict[str, Json]:
    """All documents by the names of their files, the main one first; embedded ones stand within theirs."""
    documents = _documents(list(spans))
    if not documents:
        raise ValueError("no span says that it is from an ATIF document")
    files: dict[str, Json] = {}
    embedded: dict[str, tuple[str, Json]] = {}
    for key, parts in documents.items():
        owner = _owner(key, documents)
        document = _document(parts)
        if owner is None:
            files[key] = document
        else:
            embedded[key] = (owner, document)
    made = {**files, **{key: document for key, (_, document) in embedded.items()}}
    for key in sorted(embedded, key=_place):
        owner, document = embedded[key]
        made[owner].setdefault("subagent_trajectories", []).append(document)
    return files


@dataclass(slots=True)
class _Step:
    """What is told of one step: ``said`` of itself, ``made`` of its generation."""

    source: str
    said: dict[str, Any] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)
    message: Any = None
    calls: dict[int, Json] = field(default_factory=dict)
    results: dict[int, Json] = field(default_factory=dict)


@dataclass(slots=True)
class _Parts:
    attributes: dict[str, Any] = field(default_factory=dict)
    steps: dict[int, _Step] = field(default_factory=dict)

    def step(self, attributes: Mapping[str, Any]) -> _Step:
        return self.steps.setdefault(attributes.get(names.ATIF_STEP_ID) or 0, _Step("agent"))


def _documents(spans: list[StoredSpan]) -> dict[str, _Parts]:
    """The parts of each document, in the order of their turns."""
    turns = [span for span in spans if names.ATIF_DOCUMENT in span.attributes]
    turns.sort(key=lambda span: span.attributes.get(names.SOURCE_INDEX) or 0)
    found: dict[str, _Parts] = {}
    key_of: dict[str, str] = {}
    for span in turns:
        key = key_of[span.span_id] = span.attributes[names.ATIF_DOCUMENT]
        found.setdefault(key, _Parts()).attributes |= span.attributes
    steps: dict[str, _Step] = {}
    for span in spans:
        key = key_of.get(span.span_id, key_of.get(span.parent_span_id or "", ""))
        if span.span_id in key_of:
            for event in span.events:
                _take_event(found[key].step(event.attributes), event.attributes)
        elif names.ATIF_STEP_ID in span.attributes and key:
            step = steps[span.span_id] = found[key].step(span.attributes)
            step.said = step.made = span.attributes
    for span in spans:
        step_of = steps.get(span.parent_span_id or "")
        if step_of is not None and span.attributes.get(_OPERATION) == "chat":
            step_of.made = span.attributes
        elif step_of is not None and span.attributes.get(_OPERATION) == "execute_tool":
            _take_tool(step_of, span.attributes)
    return found


def _take_tool(step: _Step, attributes: Mapping[str, Any]) -> None:
    call = {"arguments": {}, **fields_of(attributes, CALL)}
    step.calls[attributes[names.ATIF_CALL_INDEX]] = call
    index = attributes.get(names.ATIF_RESULT_INDEX)
    if index is None:
        return
    result = fields_of(attributes, RESULT)
    if CALL_RESULT in attributes:
        content = json.loads(attributes[CALL_RESULT])["content"]
        result["content"] = content if isinstance(content, str) else atif_parts(content)
    step.results[index] = result


def _take_event(step: _Step, attributes: Mapping[str, Any]) -> None:
    item = json.loads(attributes.get(names.ITEM) or "{}")
    if names.ATIF_SOURCE in attributes:
        step.source = attributes[names.ATIF_SOURCE]
        step.said = step.made = dict(attributes)
        step.message = json.loads(attributes[names.ATIF_MESSAGE]) if names.ATIF_MESSAGE in attributes else item
    elif names.ATIF_CALL_INDEX in attributes:
        step.calls[attributes[names.ATIF_CALL_INDEX]] = {"arguments": {}, **fields_of(attributes, CALL)}
    else:
        result = fields_of(attributes, RESULT)
        if item:
            result["content"] = _content(attributes, item.get("content", item.get("output")))
        step.results[attributes[names.ATIF_RESULT_INDEX]] = result


def _document(parts: _Parts) -> Json:
    document = fields_of(parts.attributes, (*DOCUMENT, *TOTALS))
    if TOOL_DEFINITIONS in parts.attributes:
        put(document, "agent.tool_definitions", atif_tools(json.loads(parts.attributes[TOOL_DEFINITIONS])))
    document["steps"] = [_step(number, parts.steps[number]) for number in sorted(parts.steps)]
    put_empty_fields(document, parts.attributes.get(names.ATIF_EMPTY_FIELDS) or ())
    return document


def _step(number: int, step: _Step) -> Json:
    written: Json = {"step_id": number, "source": step.source, "message": ""}
    written |= fields_of(step.said, STEP)
    if step.source == "agent":
        written |= fields_of(step.made, GENERATION)
        if names.ATIF_PROMPT_TOKENS in step.made:
            put(written, "metrics.prompt_tokens", step.made[names.ATIF_PROMPT_TOKENS])
    items = list(objects_of(json.loads(step.made.get(names.OUTPUT_ITEMS) or "[]")))
    message = step.message or next((item for item in items if item["type"] == "message"), None)
    if message is not None:
        written["message"] = _content(step.made, message.get("content"))
    for item in items:
        if item["type"] == "reasoning":
            written["reasoning_content"] = text_of_parts(item["summary"])
    if step.calls:
        written["tool_calls"] = [step.calls[index] for index in sorted(step.calls)]
    if step.results:
        written["observation"] = {"results": [step.results[index] for index in sorted(step.results)]}
    put_empty_fields(written, step.said.get(names.ATIF_EMPTY_FIELDS) or ())
    return written


def _content(attributes: Mapping[str, Any], parts: Any) -> Any:
    return atif_parts(parts) if attributes.get(names.ATIF_MESSAGE_PARTS) is True else text_of_parts(parts)


def _owner(key: str, documents: Iterable[str]) -> str | None:
    """The document that an embedded one stands in."""
    head, _, place = key.rpartition(_EMBEDDED)
    owner = head.rstrip("#/") if place.isdigit() else ""
    return owner if owner in documents else None


def _place(key: str) -> tuple[str, int]:
    head, _, place = key.rpartition(_EMBEDDED)
    return head, int(place)
