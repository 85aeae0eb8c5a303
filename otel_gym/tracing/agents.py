"""The API for agent code: an agent's turns, its steps, the tools that it calls, and what is said on the way.

With tracing off all of it works, records nothing and costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link, Span, SpanContext
from opentelemetry.util.types import AttributeValue

from otel_gym import conventions as names
from otel_gym.content import described, known, safe_json
from otel_gym.id_rules import checked_id
from otel_gym.identity import Identity
from otel_gym.tracing import open_rollouts
from otel_gym.tracing.api import Rollout
from otel_gym.tracing.current import AGENT_KEY, ROLLOUT_KEY, TOOL_KEY
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.membership import GEN_AI_OPERATION, identity_of_start
from otel_gym.tracing.pipeline import active_pipeline
from otel_gym.tracing.rewards import checked_reward, write_reward
from otel_gym.tracing.span_scope import Parent, SpanScope
from otel_gym.tracing.step_numbers import StepNumbers
from otel_gym.tracing.tool_content import BoundArguments, arguments_json, json_of, result_json
from otel_gym.wire.items.shapes import Item, message_item

# A text is an input_text part of a user; else the message's parts, as the Responses API has them.
Content = str | Sequence[Item]


class AgentScope(SpanScope):
    """One turn of an agent; what ``invoke_agent`` returns."""

    def __init__(
        self,
        name: str,
        user_message: Content | None,
        agent_id: str | None,
        version: str | None,
        conversation_id: str | None,
        description: str | None,
        parent: Parent | Span | None,
    ) -> None:
        super().__init__(parent)
        self.name = name
        self.agent_id = agent_id
        self.conversation_id = conversation_id
        self._user_message = user_message
        self._version = version
        self._description = description
        self._spawner: SpawningTool | None = None

    @property
    def _key(self) -> tuple[str | None, ...]:
        """Tells one agent of a rollout from another: by its id, else by its name and the call that spawned it."""
        if self.agent_id is not None:
            return ("id", self.agent_id)
        return ("name", self.name, None if self._spawner is None else f"{self._spawner.span_context.span_id:x}")

    def _name(self) -> str:
        return f"invoke_agent {self.name}"

    def _attributes(self, context: Context) -> dict[str, AttributeValue | None]:
        self._spawner = spawning_tool(context)
        return {
            GEN_AI_OPERATION: "invoke_agent",
            "gen_ai.agent.name": self.name,
            "gen_ai.agent.id": self.agent_id,
            "gen_ai.agent.version": self._version,
            "gen_ai.agent.description": self._description,
            "gen_ai.conversation.id": self.conversation_id,
            names.SPAWNED_BY: None if self._spawner is None else self._spawner.call_id,
        }

    def _links(self, context: Context) -> Sequence[Link]:
        return () if self._spawner is None else (Link(self._spawner.span_context),)

    def _inner(self, context: Context) -> Context:
        return otel_context.set_value(TOOL_KEY, None, otel_context.set_value(AGENT_KEY, self, context))

    def _has_begun(self, context: Context) -> None:
        tool = otel_context.get_value(TOOL_KEY, context)
        if isinstance(tool, ToolScope) and self.span is not None:
            tool._spawned(self.agent_id or self.name, self.span.get_span_context())
        if self._user_message is not None:
            add_user_message(self._user_message)


class StepScope(SpanScope):
    """One step of an agent; what ``agent_step`` returns. ``n`` is its number once it has begun."""

    def __init__(self, n: int | None, parent: Parent | Span | None) -> None:
        super().__init__(parent)
        self.n = n
        self._given = n

    def _name(self) -> str:
        return names.AGENT_STEP_SPAN

    def _attributes(self, context: Context) -> dict[str, AttributeValue | None]:
        self.n = _step_number(context, self._given)
        return {names.STEP_INDEX: self.n}


class ToolScope(SpanScope):
    """One run of a tool; what ``execute_tool`` returns."""

    def __init__(
        self, name: str | None, call_id: str | None, arguments: Any, type_: str, parent: Parent | Span | None
    ) -> None:
        super().__init__(parent)
        self.name = name
        self.call_id = call_id
        self._arguments = arguments
        self._type = type_
        self._has_result = False
        self._subagents: tuple[str, ...] = ()

    def record_arguments(self, arguments: Any) -> None:
        """What the model asked for, JSON text or anything, where it is known only after the run began."""
        if self.span is not None and self._is_open_here and self._keeps_content:
            self._set("gen_ai.tool.call.arguments", arguments_json(arguments))

    def record_result(self, result: Any, *, is_error: bool = False, extra: Mapping[str, Any] | None = None) -> None:
        """What the tool gave back; the last one counts.

        result    a text, which is stored as {"content": text}, or anything, stored as its JSON
        is_error  the result tells of a failure: the span's status is ERROR
        extra     what else is known of the run: an exit code, for one
        """
        if self.span is None:
            return
        if not self._is_open_here:
            _say_late(self.span, "a tool's result came after its span had ended, or in a forked process: not stored")
            return
        try:
            self._record(result, is_error, extra)
        except Exception:
            log_once("a tool's result could not be recorded")

    def _record(self, result: Any, is_error: bool, extra: Mapping[str, Any] | None) -> None:
        self._has_result = True
        if self._keeps_content:
            self._set("gen_ai.tool.call.result", result_json(result))
            self._set(names.TOOL_EXTRA, None if extra is None else safe_json(extra))
        if is_error:
            self._set("error.type", "tool_error")
            self._set_tool_error(result if isinstance(result, str) else json_of(result))

    def _spawned(self, agent: str, span_context: SpanContext) -> None:
        """A subagent began within this run."""
        if self.span is None or not self._is_open_here:
            return
        self.span.add_link(span_context)
        if agent not in self._subagents:
            self._subagents += (agent,)
            self._set(names.SUBAGENT_ID, self._subagents)

    def _of_call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Self:
        own = super()._of_call(function, arguments, named)
        own.name = self.name or getattr(function, "__name__", type(function).__name__)
        if self._arguments is None:
            own._arguments = BoundArguments(function, arguments, named)
        return own

    def _returned(self, value: Any) -> None:
        if not self._has_result:
            self.record_result(value)

    def __enter__(self) -> Self:
        if self.name is None:
            raise ValueError("execute_tool() takes the tool's name, unless it decorates a function")
        return super().__enter__()

    def _name(self) -> str:
        return f"execute_tool {self.name}"

    def _attributes(self, context: Context) -> dict[str, AttributeValue | None]:
        self._has_result, self._subagents = False, ()
        held = otel_context.get_value(AGENT_KEY, context)
        agent = held if isinstance(held, AgentScope) else None
        return {
            GEN_AI_OPERATION: "execute_tool",
            "gen_ai.tool.name": self.name,
            "gen_ai.tool.type": self._type,
            "gen_ai.tool.call.id": self.call_id,
            "gen_ai.tool.call.arguments": arguments_json(self._arguments) if self._keeps_content else None,
            "gen_ai.agent.name": None if agent is None else agent.name,
            "gen_ai.conversation.id": None if agent is None else agent.conversation_id,
        }

    def _inner(self, context: Context) -> Context:
        return otel_context.set_value(TOOL_KEY, self, context)

    def _fail(self, error: BaseException) -> None:
        self._set("error.type", type(error).__qualname__)
        self._set_tool_error(described(error), {"type": type(error).__qualname__})

    def _set_tool_error(self, message: str, more: Any = None) -> None:
        self._set_error(message)
        if self._keeps_content:
            error = {"message": message} if more is None else {"message": message, "data": more}
            self._set(names.TOOL_ERROR, safe_json(error))


class SpawningTool(NamedTuple):
    """The tool call that a subagent begins in; of another process, what ``carrier`` told of it."""

    call_id: str | None
    span_context: SpanContext


def invoke_agent(
    name: str,
    *,
    user_message: Content | None = None,
    agent_id: str | None = None,
    version: str | None = None,
    conversation_id: str | None = None,
    description: str | None = None,
    parent: Parent | Span | None = None,
) -> AgentScope:
    """One turn of an agent, from the user's message until it hands control back; ``with``, ``async with`` or decorator.

    user_message     what the user said: a text, or parts as the Responses API has them
    agent_id         tells several agents of one name apart
    conversation_id  the session or thread that the turn belongs to
    parent           a rollout, agent, step, tool or span, where the context does not say it; default: what is current

    An agent that begins within a tool's run is its subagent: the two spans are linked, and it names the call.
    """
    return AgentScope(name, user_message, agent_id, version, conversation_id, description, parent)


def agent_step(n: int | None = None, *, parent: Parent | Span | None = None) -> StepScope:
    """One generation and the tools that it calls; ``with``, ``async with`` or decorator.

    n       number of the step; default: counted from 1 per agent, over its turns in this process
    parent  as for invoke_agent
    """
    return StepScope(n, parent)


def execute_tool(
    name: str | None = None,
    call_id: str | None = None,
    arguments: Any = None,
    *,
    type: str = "function",
    parent: Parent | Span | None = None,
) -> ToolScope:
    """One run of a tool; ``with``, ``async with`` or decorator.

    name       the tool's name; a decorator may leave it out: the function's
    call_id    the model's, which joins its call with this run
    arguments  what the model asked for, JSON text or anything; a decorator may leave it out: those of the call
    type       function, extension or datastore
    parent     as for invoke_agent

    A decorated function's return value is its result. An exception is noted, with type and message, and goes on.
    ``execute_tool(call.name, call.id)(function)(…)`` runs any function as the tool that a model called.
    """
    if callable(name):
        raise TypeError("execute_tool takes the tool's name: write @execute_tool()")
    return ToolScope(name, call_id, arguments, type, parent)


def record_tool_result(result: Any, *, is_error: bool = False, extra: Mapping[str, Any] | None = None) -> None:
    """What the tool that runs gave back: ``record_result`` of the current ``execute_tool``."""
    if active_pipeline() is None:
        return
    tool = otel_context.get_value(TOOL_KEY)
    if isinstance(tool, ToolScope):
        tool.record_result(result, is_error=is_error, extra=extra)
    else:
        log_once("record_tool_result() outside of any execute_tool() of this process", with_traceback=False)


def record_reward(value: float, rollout: Rollout | str | None = None) -> None:
    """The verdict on a rollout; the last one wins, wherever and whenever it is given.

    rollout  a Rollout, its id, or "run/rollout"; default: the current one

    After the rollout has ended, and in another process, the reward is a span of its own in the rollout's trace. Of
    several executions under one id it is that of the newest one that had begun. ValueError for NaN, InvalidIdError for
    an id that may not name a rollout, RuntimeError for a Rollout that has not begun.
    """
    reward = checked_reward(value)
    if isinstance(rollout, Rollout):
        rollout.record_reward(reward)
        return
    named = None if rollout is None else _identity_of(rollout)
    pipeline = active_pipeline()
    if pipeline is None:
        return
    context = otel_context.get_current() if named is None else Context()
    identity = identity_of_start(None, context) if named is None else named
    open_here = otel_context.get_value(ROLLOUT_KEY, context) or open_rollouts.find(identity)
    if isinstance(open_here, Rollout):
        open_here.record_reward(reward)
    elif identity.rollout_id is None:
        log_once("a reward of no rollout is not stored: record_reward(value, rollout) says which", with_traceback=False)
    else:
        write_reward(pipeline, reward, pipeline.identity(*identity), context)


def add_user_message(content: Content) -> None:
    """A user's message in the middle of a turn: an event on the current agent's span, else on the rollout's.

    ``content`` is a text, or parts as the Responses API has them.
    """
    if (span := _span_of_events()) is None:
        return
    item = message_item("user", content if isinstance(content, str) else list(content))
    if not _keeps_content():
        item["content"] = []
    span.add_event(names.USER_MESSAGE_EVENT, {names.ITEM: safe_json(item)})


def context_compacted(
    content: Content,
    *,
    kind: str = "compaction",
    boundary: str = "replace",
    trigger: str | None = None,
    tokens_before: int | None = None,
    tokens_after: int | None = None,
) -> None:
    """The agent's context was made anew: an event on the current agent's span, else on the rollout's.

    content   what later calls see instead: a text (a user message), or items as the Responses API has them
    kind      compaction, pruning …
    boundary  replace, append or truncate, as ATIF says it
    trigger   what made it happen: auto, manual …
    tokens_*  size of the context before and after
    """
    if (span := _span_of_events()) is None:
        return
    items = [message_item("user", content)] if isinstance(content, str) else list(content)
    item: Item = {
        "type": "context_boundary",
        "kind": kind,
        "boundary": boundary,
        "content": items if _keeps_content() else None,
        "trigger": trigger,
        "tokens_before": tokens_before,
        "tokens_after": tokens_after,
    }
    span.add_event(names.CONTEXT_BOUNDARY_EVENT, {names.ITEM: safe_json(known(item))})


# Of rollouts that another process runs.
_steps_elsewhere = StepNumbers()


def _step_number(context: Context, given: int | None) -> int:
    """Within one execution of the rollout, where it runs in this process; else of all that have its id."""
    held, rollout = otel_context.get_value(AGENT_KEY, context), otel_context.get_value(ROLLOUT_KEY, context)
    agent = held._key if isinstance(held, AgentScope) else None
    if isinstance(rollout, Rollout):
        return rollout.step_numbers.take(agent, given)
    return _steps_elsewhere.take((identity_of_start(None, context), agent), given)


def spawning_tool(context: Context) -> SpawningTool | None:
    """The tool call that runs in this context."""
    tool = otel_context.get_value(TOOL_KEY, context)
    if isinstance(tool, ToolScope) and tool.span is not None:
        return SpawningTool(tool.call_id, tool.span.get_span_context())
    return tool if isinstance(tool, SpawningTool) else None


def _span_of_events() -> Span | None:
    """The span of the current agent, else of the rollout."""
    if active_pipeline() is None:
        return None
    for key in (AGENT_KEY, ROLLOUT_KEY):
        holder = otel_context.get_value(key)
        if isinstance(holder, AgentScope | Rollout) and holder.span is not None:
            if holder._is_open_here:
                return holder.span
            _say_late(holder.span, _NO_AGENT)
            return None
    log_once(_NO_AGENT, with_traceback=False)
    return None


_NO_AGENT = "a message came while no agent and no rollout of this process was open: not stored"


def _say_late(span: Span, problem: str) -> None:
    """Unless another's sampler dropped the span, so that nothing of it is stored."""
    if isinstance(span, ReadableSpan):
        log_once(problem, with_traceback=False)
    return None


def _keeps_content() -> bool:
    pipeline = active_pipeline()
    return pipeline is not None and pipeline.content.bodies


def _identity_of(text: str) -> Identity:
    """Of ``run/rollout``, or of a rollout alone."""
    run_id, slash, rollout_id = text.rpartition("/")
    return Identity(checked_id(rollout_id), checked_id(run_id, "run id") if slash else None)
