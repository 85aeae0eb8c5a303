"""What stands beside a slice: the attributes of its span, of which texts are cut."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

from otel_gym import conventions as names
from otel_gym.content import safe_text
from otel_gym.store.span import STATUS_ERROR, StoredSpan
from otel_gym.views.perfetto.shapes import Args

ArgsMode = Literal["none", "ids", "full"]

# So much of a text is shown; a trace of whole prompts stalls the browser.
SHOWN_CHARACTERS = 256
_MOST_ITEMS = 16

# Ids, usage, how it ended: what is asked of a trace, whatever else a span holds.
_TOLD_BY_ID = (
    names.RUN_ID,
    names.ROLLOUT_ID,
    names.REWARD,
    names.STEP_INDEX,
    names.MODEL_CALL_ID,
    names.REQUEST_ID,
    names.SPAWNED_BY,
    names.TURN_END,
    names.CALL_KIND,
    names.COST_USD,
    names.ERROR_CATEGORY,
    names.DIALECT,
    names.FIRST_CONTENT_NS,
    "error.type",
    "http.response.status_code",
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.agent.name",
    "gen_ai.agent.id",
    "gen_ai.conversation.id",
    "gen_ai.request.model",
    "gen_ai.request.stream",
    "gen_ai.response.id",
    "gen_ai.response.model",
    "gen_ai.response.finish_reasons",
    "gen_ai.tool.name",
    "gen_ai.tool.call.id",
)
_USAGE = "gen_ai.usage."
# Shown by other means, of no use to a reader, or long and said elsewhere.
_LEFT_OUT = ("net.", "http.host", "http.flavor", "http.server_name", "http.scheme", "nemo.gym.", names.TIME_KNOWN)


def args_of(span: StoredSpan, mode: ArgsMode) -> Args:
    if mode == "none":
        return {}
    attributes = span.attributes
    args: Args = {"trace_id": span.trace_id, "span_id": span.span_id}
    if mode == "ids":
        for name in _TOLD_BY_ID:
            if name in attributes:
                args[name] = _shown(attributes[name])
        for name, value in attributes.items():
            if name.startswith(_USAGE):
                args[name] = _shown(value)
    else:
        left_out, args = _left_out(tuple(attributes)), args | attributes
        for name in left_out:
            del args[name]
        for name, value in args.items():
            if type(value) is not str:
                if type(value) is not int:
                    args[name] = _shown(value)
            elif len(value) > SHOWN_CHARACTERS or not value.isascii():
                args[name] = cut(value)
    if span.status == STATUS_ERROR:
        args["status"] = "error"
        if span.status_message:
            args["status_message"] = _shown(span.status_message)
    return args


@lru_cache(maxsize=512)
def _left_out(attributes: tuple[str, ...]) -> list[str]:
    """Spans of one kind have the same names."""
    return [name for name in attributes if name.startswith(_LEFT_OUT)]


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, list | tuple):
        more = [f"… ({len(value):,} items)"] if len(value) > _MOST_ITEMS else []
        return [_shown(item) for item in value[:_MOST_ITEMS]] + more
    if isinstance(value, dict):
        shown = {cut(str(name)): _shown(item) for name, item in list(value.items())[:_MOST_ITEMS]}
        return {**shown, "…": f"{len(value):,} members"} if len(value) > _MOST_ITEMS else shown
    return value


def cut(text: str) -> str:
    """Its beginning, with the length of the whole."""
    if len(text) <= SHOWN_CHARACTERS:
        return text if text.isascii() else safe_text(text)
    return f"{safe_text(text[:SHOWN_CHARACTERS])}… ({len(text):,} characters)"
