"""Records that are known, and that say what others say as well, or nothing about the run."""

from __future__ import annotations

SILENT_ROWS = frozenset({"session_meta", "world_state", "session_state", "ghost_snapshot"})
SILENT_EVENTS = frozenset(
    {
        "agent_message",
        "agent_reasoning",
        "agent_reasoning_raw_content",
        "agent_reasoning_section_break",
        "context_compacted",
        "entered_review_mode",
        "exited_review_mode",
        "image_generation_end",
        "item_started",
        "plan_update",
        "session_configured",
        "shutdown_complete",
        "thread_goal_updated",
        "thread_name_updated",
        "thread_settings_applied",
        "turn_diff",
        "undo_completed",
        "undo_started",
        "user_message",
        "warning",
        "web_search_end",
    }
)
# Items that stand among the records as well, or that no call of the model asked for.
SILENT_ITEMS = frozenset(
    {
        "AgentMessage",
        "CommandExecution",
        "ContextCompaction",
        "EnteredReviewMode",
        "ExitedReviewMode",
        "FileChange",
        "HookPrompt",
        "ImageGeneration",
        "ImageView",
        "Plan",
        "Reasoning",
        "Sleep",
        "SubAgentActivity",
        "UserMessage",
        "WebSearch",
    }
)
