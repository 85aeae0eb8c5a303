"""What a request's ``finish_reason_metadata`` comes to, in the words of Dynamo's converter."""

from __future__ import annotations

from typing import NamedTuple

from otel_gym.records.dynamo import Choice, FinishMetadata, RequestedTool


class FinishFacts(NamedTuple):
    """None: not known. Lists are one text."""

    finish_reason: str | None = None
    backend_finish_reason: str | None = None
    stop_reason: str | int | list[int] | None = None
    tool_call_count: int | None = None
    tool_call_names: str | None = None
    choice_count: int | None = None
    choice_finish_reasons: str | None = None


def finish_facts(metadata: FinishMetadata) -> FinishFacts:
    calls, choices = metadata.tool_calls, metadata.choices
    return FinishFacts(
        metadata.finish_reason or None,
        metadata.backend_finish_reason or None,
        metadata.stop_reason,
        len(calls) if calls else None,
        _names(calls) or None if calls else None,
        len(choices) if choices else None,
        _reasons(choices) or None if choices else None,
    )


def _names(calls: list[RequestedTool]) -> str | None:
    return calls[0].name if len(calls) == 1 else ", ".join([call.name for call in calls if call.name])


def _reasons(choices: list[Choice]) -> str:
    return _reason(choices[0]) if len(choices) == 1 else ", ".join(filter(None, map(_reason, choices)))


def _reason(choice: Choice) -> str:
    index, reason = choice.choice_index, choice.finish_reason
    return f"{index}:{reason}" if reason and index is not None else ""
