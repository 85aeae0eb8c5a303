"""OpenTelemetry tracing for LLM rollouts: capture, spans, store and views.

The public names are those below; everything else may change.
"""

from typing import TYPE_CHECKING

from otel_gym.loading import loading_from

if TYPE_CHECKING:
    from otel_gym.agent_identity import AgentContext, agent_context, child_context, current_agent_context
    from otel_gym.id_rules import InvalidIdError
    from otel_gym.tracing.agents import (
        AgentScope,
        StepScope,
        ToolScope,
        add_user_message,
        agent_step,
        context_compacted,
        execute_tool,
        invoke_agent,
        record_reward,
        record_tool_result,
    )
    from otel_gym.tracing.api import (
        Rollout,
        base_url_for_run,
        resolve_model_base_url,
        rollout,
        rollout_id_from_run,
        url_path_for_request,
        url_path_for_run,
    )
    from otel_gym.tracing.carriers import attached, carrier, in_context
    from otel_gym.tracing.llm_requests import instrument_llm_request
    from otel_gym.tracing.pipeline import Pipeline, configure, flush
    from otel_gym.tracing.tool_events import ToolEventPublisher
    from otel_gym.version import __version__

__all__ = [
    "AgentContext",
    "AgentScope",
    "InvalidIdError",
    "Pipeline",
    "Rollout",
    "StepScope",
    "ToolEventPublisher",
    "ToolScope",
    "__version__",
    "add_user_message",
    "agent_context",
    "agent_step",
    "attached",
    "base_url_for_run",
    "carrier",
    "child_context",
    "configure",
    "context_compacted",
    "current_agent_context",
    "execute_tool",
    "flush",
    "in_context",
    "instrument_llm_request",
    "invoke_agent",
    "record_reward",
    "record_tool_result",
    "resolve_model_base_url",
    "rollout",
    "rollout_id_from_run",
    "url_path_for_request",
    "url_path_for_run",
]

if not TYPE_CHECKING:  # for whom a name that is not above is an error
    # What only reads a store need not load what makes spans.
    __getattr__, __dir__ = loading_from(
        __name__,
        {
            "otel_gym.agent_identity": (
                "AgentContext",
                "agent_context",
                "child_context",
                "current_agent_context",
            ),
            "otel_gym.id_rules": ("InvalidIdError",),
            "otel_gym.tracing.agents": (
                "AgentScope",
                "StepScope",
                "ToolScope",
                "add_user_message",
                "agent_step",
                "context_compacted",
                "execute_tool",
                "invoke_agent",
                "record_reward",
                "record_tool_result",
            ),
            "otel_gym.tracing.api": (
                "Rollout",
                "base_url_for_run",
                "resolve_model_base_url",
                "rollout",
                "rollout_id_from_run",
                "url_path_for_request",
                "url_path_for_run",
            ),
            "otel_gym.tracing.carriers": (
                "attached",
                "carrier",
                "in_context",
            ),
            "otel_gym.tracing.llm_requests": ("instrument_llm_request",),
            "otel_gym.tracing.pipeline": (
                "Pipeline",
                "configure",
                "flush",
            ),
            "otel_gym.tracing.tool_events": ("ToolEventPublisher",),
            "otel_gym.version": ("__version__",),
        },
    )
