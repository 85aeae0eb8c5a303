"""What a request's ``finish_reason_metadata`` comes to, in the words of Dynamo's converter: ``finish.*``."""

from __future__ import annotations

import msgspec

from otel_gym.records.dynamo import Choice, FinishMetadata, RequestedTool


class FinishFacts(msgspec.Struct, omit_defaults=True, gc=False, rename=lambda name: f"finish.{name}"):
    """Encoded it has the names ``finish.finish_reason`` …; what is not known is left out. Lists are one text."""

    finish_reason: str | None = None
    backend_finish_reason: str | None = None
    stop_reason: str | int | list[int] | None = None
    tool_call_count: int | None = None
    tool_call_names: str | None = None
    choice_count: int | None = None
    choice_finish_reasons: str | None = None


def finish_facts(metadata: FinishMetadata) -> FinishFacts:
    facts = FinishFacts(metadata.finish_reason, metadata.backend_finish_reason, metadata.stop_reason)
    if metadata.tool_calls:
        facts.tool_call_count = len(metadata.tool_calls)
        facts.tool_call_names = _names(metadata.tool_calls) or None
    if metadata.choices:
        facts.choice_count = len(metadata.choices)
        facts.choice_finish_reasons = _reasons(metadata.choices) or None
    return facts


def _names(calls: list[RequestedTool]) -> str | None:
    return calls[0].name if len(calls) == 1 else ", ".join([call.name for call in calls if call.name])


def _reasons(choices: list[Choice]) -> str:
    return ", ".join(
        [
            f"{choice.choice_index}:{choice.finish_reason}"
            for choice in choices
            if choice.finish_reason and choice.choice_index is not None
        ]
    )
