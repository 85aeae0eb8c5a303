"""What the model was sent at a step, rebuilt from the items of a trajectory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from otel_gym.records.output import CONTEXT_BOUNDARY
from otel_gym.records.said import EXECUTION, STEP_NO
from otel_gym.wire.items.responses import input_items
from otel_gym.wire.items.shapes import CALL_TYPES, Item

_INSTRUCTION_ROLES = ("system", "developer")
_OURS = frozenset({STEP_NO, EXECUTION})


def reconstruct_model_input(
    output: Iterable[Item], agent_step_no: int, base_input: str | Sequence[Item] | None = None
) -> list[Item]:
    """The input items of the call that made step ``agent_step_no`` (from 1).

    ``base_input`` is what the agent began with: a text, or items. A context boundary replaces what came before it;
    the system and developer messages that the agent began with stay where the boundary says so. Items come without
    ``agent_step_no`` and ``execution``, as the API takes them. ValueError if there is no such step.
    """
    items = list(output)
    last = max(_step_numbers(items), default=0)
    if not 1 <= agent_step_no <= last + 1:
        raise ValueError(f"there is no step {agent_step_no}: this trajectory has steps 1 to {last}")
    base = input_items({"input": base_input})
    context = list(base)
    base += itertools.takewhile(lambda item: STEP_NO not in item and item.get("type") != CONTEXT_BOUNDARY, items)
    for item in itertools.takewhile(lambda item: item.get(STEP_NO, 0) < agent_step_no, items):
        context = _after_boundary(item, context, base) if item.get("type") == CONTEXT_BOUNDARY else [*context, item]
    return [plain_item(item) for item in context]


def to_response_create_params(
    params: Mapping[str, Any], output: Iterable[Item], agent_step_no: int | None = None
) -> dict[str, Any]:
    """Parameters of ``responses.create`` that ask for step ``agent_step_no`` again; None: for the one after the last.

    ``params`` are those of the first call (model, tools, instructions, input …); only ``input`` is made anew.
    """
    items = list(output)
    if agent_step_no is None:
        agent_step_no = max(_step_numbers(items), default=0) + 1
    return {**params, "input": reconstruct_model_input(items, agent_step_no, params.get("input"))}


def agent_step_slices(output: Sequence[Item]) -> dict[int, slice]:
    """Where each step stands in ``output``."""
    slices: dict[int, slice] = {}
    for place, item in enumerate(output):
        number = item.get(STEP_NO)
        if number is not None:
            slices[number] = slice(slices[number].start if number in slices else place, place + 1)
    return slices


def turn_slices(output: Sequence[Item]) -> list[slice]:
    """Where each turn stands. A turn begins with a user message after a step that called no tool, and at the start.

    After a step that did call one the agent still has control: a user message there is one in the middle of a turn.
    """
    calling = {item[STEP_NO] for item in output if STEP_NO in item and item.get("type") in CALL_TYPES}
    starts = [0] if output else []
    last_step: int | None = None
    for place, item in enumerate(output):
        if STEP_NO in item:
            last_step = item[STEP_NO]
        elif item.get("role") == "user" and last_step is not None and last_step not in calling:
            starts.append(place)
            last_step = None
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], len(output)], strict=True)]


def _step_numbers(items: Iterable[Item]) -> Iterator[int]:
    return (item[STEP_NO] for item in items if isinstance(item.get(STEP_NO), int))


def plain_item(item: Item) -> Item:
    """The item without what this project added to it."""
    return {name: value for name, value in item.items() if name not in _OURS}


def _after_boundary(boundary: Item, context: list[Item], base: list[Item]) -> list[Item]:
    content = boundary.get("content")
    items = content if isinstance(content, list) else []
    if boundary.get("boundary") != "replace":
        return context + items
    kept = [item for item in base if item.get("role") in _INSTRUCTION_ROLES]
    return items if boundary.get("keeps_instructions") is False else kept + items
