"""What a request's ``finish_reason_metadata`` comes to, in the words of Dynamo's converter."""

from __future__ import annotations

from otel_gym.records.dynamo import Choice, FinishMetadata, RequestedTool

# What of them is known is an argument ``finish.NAME``. Lists are one text.
FINISH_NAMES = (
    "finish_reason",
    "backend_finish_reason",
    "stop_reason",
    "tool_call_count",
    "tool_call_names",
    "choice_count",
    "choice_finish_reasons",
)
_StopReason = str | int | list[int] | None
FinishFacts = tuple[str | None, str | None, _StopReason, int | None, str | None, int | None, str | None]


def finish_facts(metadata: FinishMetadata) -> FinishFacts:
    """In the order of FINISH_NAMES; None: not known."""
    calls, choices = metadata.tool_calls, metadata.choices
    return (
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
