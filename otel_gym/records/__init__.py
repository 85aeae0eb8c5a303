"""The models that people read; they know no OpenTelemetry and no files."""

from typing import TYPE_CHECKING

from otel_gym.loading import loading_from

if TYPE_CHECKING:
    from otel_gym.records.model_call import (
        ModelCallRecord,
        ModelRef,
        ToolCall,
        aggregate_model_call_records,
        build_model_call_record,
        extract_token_stats,
    )
    from otel_gym.records.retries import Attempt, LogicalCall, logical_calls
    from otel_gym.records.tool_requests import ToolRequestEvidence, tool_request_evidence

__all__ = [
    "Attempt",
    "LogicalCall",
    "ModelCallRecord",
    "ModelRef",
    "ToolCall",
    "ToolRequestEvidence",
    "aggregate_model_call_records",
    "build_model_call_record",
    "extract_token_stats",
    "logical_calls",
    "tool_request_evidence",
]

if not TYPE_CHECKING:  # for whom a name that is not above is an error
    # What needs no records of model calls need not build their models.
    __getattr__, __dir__ = loading_from(
        __name__,
        {
            "otel_gym.records.model_call": (
                "ModelCallRecord",
                "ModelRef",
                "ToolCall",
                "aggregate_model_call_records",
                "build_model_call_record",
                "extract_token_stats",
            ),
            "otel_gym.records.retries": (
                "Attempt",
                "LogicalCall",
                "logical_calls",
            ),
            "otel_gym.records.tool_requests": (
                "ToolRequestEvidence",
                "tool_request_evidence",
            ),
        },
    )
