"""A list of steps → the items of a trajectory's ``output``; nothing here needs its models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from otel_gym.records.said import EXECUTION, STEP_NO, said_item
from otel_gym.records.steps import AgentStep, ContextBoundary, Entry, ToolResult, UserMessage
from otel_gym.wire.items.shapes import OUTPUT_TYPES, Item

CONTEXT_BOUNDARY = "context_boundary"


def output_of(entries: Iterable[Entry]) -> Iterator[Item]:
    """The items of a list of steps: of each step what the model made, then what its tools gave back."""
    number = 0
    for entry in entries:
        if isinstance(entry, UserMessage):
            yield said_item(entry.item)
        elif isinstance(entry, ContextBoundary):
            yield boundary_item(entry)
        else:
            number += 1
            yield from items_of_step(entry, number)


def items_of_step(step: AgentStep, number: int) -> Iterator[Item]:
    types = {item["call_id"]: item["type"] for item in step.calls() if isinstance(item.get("call_id"), str)}
    for item in step.items:
        said = said_item(item)
        said[STEP_NO] = number
        yield said
    for result in step.results:
        yield _output_item(result, types, number)


def boundary_item(boundary: ContextBoundary) -> Item:
    item: Item = {
        "type": CONTEXT_BOUNDARY,
        "kind": boundary.kind,
        "boundary": boundary.boundary,
        "content": boundary.content,
        "keeps_instructions": boundary.keeps_instructions,
    }
    for name in ("trigger", "timestamp", "tokens_before", "tokens_after"):
        value = getattr(boundary, name)
        if value is not None:
            item[name] = value
    return item


def boundary_of(item: Item) -> ContextBoundary:
    """The boundary that an item tells of."""
    content = item.get("content")
    return ContextBoundary(
        content=content if isinstance(content, list) else [],
        kind=str(item.get("kind") or "compaction"),
        boundary=str(item.get("boundary") or "replace"),
        trigger=item.get("trigger"),
        timestamp=item.get("timestamp"),
        tokens_before=item.get("tokens_before"),
        tokens_after=item.get("tokens_after"),
        keeps_instructions=item.get("keeps_instructions") is not False,
    )


def _output_item(result: ToolResult, call_types: dict[str, str], number: int) -> Item:
    call_type = call_types.get(result.call_id or "", "function_call")
    failed = result.error_message is not None or result.error_data is not None
    execution = {
        "started_at": result.started_at,
        "completed_at": result.completed_at,
        "duration_ms": result.duration_ms,
        "error": {"message": result.error_message, "data": result.error_data} if failed else None,
        "extra": result.extra,
    }
    return {
        "type": OUTPUT_TYPES[call_type],
        "call_id": result.call_id,
        "output": result.output if result.has_output else "",
        STEP_NO: number,
        EXECUTION: execution,
    }
