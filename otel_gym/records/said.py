"""Items as they were said, without what a trajectory adds to them."""

from __future__ import annotations

from otel_gym.wire.items.shapes import Item

STEP_NO = "agent_step_no"
EXECUTION = "execution"


def said_item(item: Item) -> Item:
    """The item as a model or user said it: its type is a text, and nothing in it goes by a name of ours."""
    said = dict(item)
    for name in (STEP_NO, EXECUTION):
        said.pop(name, None)
    if not isinstance(said.get("type", ""), str):
        said["type"] = str(said["type"])
    return said
