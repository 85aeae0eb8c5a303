"""The models that people read; they know no OpenTelemetry and no files."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_HOMES = {
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
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Loaded at first use: what needs no records of model calls need not build their models."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return __all__
