"""How the current rollout and span reach code that does not inherit them: pools of threads and processes, workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import Context as Variables
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context

from otel_gym.agent_identity import (
    agent_context,
    agent_context_of_text,
    agent_context_text,
    current_agent_context,
)
from otel_gym.identity import baggage_of, identity_from_baggage
from otel_gym.tracing.agents import SpawningTool, spawning_tool
from otel_gym.tracing.current import TOOL_KEY, Attachment, context_of_texts, texts_of
from otel_gym.tracing.membership import identity_of_start
from otel_gym.tracing.pipeline import Pipeline, active_pipeline

P = ParamSpec("P")
R = TypeVar("R")

# The model's id of the tool call that runs: it says by which call a subagent in another process was spawned.
_SPAWNED_BY = "gym_spawned_by"
_AGENT_CONTEXT = "gym_agent_context"


def carrier() -> dict[str, str]:
    """The current rollout, run and span as texts, for ``attached`` in another process: Ray, a queue, an environment.

    Keys: baggage, traceparent, tracestate, gym_spawned_by (id of the tool call that runs), gym_agent_context (see
    ``agent_context``), those that are known; as environment variables in capitals. With tracing off only the last.
    """
    agent, pipeline = current_agent_context(), active_pipeline()
    texts = {} if agent is None else {_AGENT_CONTEXT: agent_context_text(agent)}
    return texts if pipeline is None else {**texts, **_texts_of_tracing(pipeline)}


def _texts_of_tracing(pipeline: Pipeline) -> dict[str, str]:
    context = otel_context.get_current()
    identity = identity_of_start(None, context)
    if identity.rollout_id is not None:
        context = baggage_of(pipeline.identity(*identity), context)
    texts = texts_of(context)
    tool = spawning_tool(context)
    if tool is not None and tool.call_id is not None:
        texts[_SPAWNED_BY] = tool.call_id
    return texts


@contextmanager
def attached(carrier: Mapping[str, str]) -> Iterator[None]:
    """Within ``with``, the rollout and span of ``carrier()`` are current: spans and rewards belong to them.

    ``carrier`` may be ``os.environ``, with the keys in capitals. One that says nothing changes nothing. The process
    needs tracing turned on itself: ``OTEL_GYM=1``, which children inherit, or ``configure``.
    """
    texts = {name.lower(): text for name, text in carrier.items()}
    agent = agent_context_of_text(texts.get(_AGENT_CONTEXT))
    with nullcontext() if agent is None else agent_context(agent), _attached_tracing(texts):
        yield


@contextmanager
def _attached_tracing(texts: Mapping[str, str]) -> Iterator[None]:
    context = _context_of(texts) if active_pipeline() is not None else None
    if context is None:
        yield
        return
    attachment = Attachment()
    try:
        identity = identity_from_baggage(context)
        if identity is not None:
            attachment.attach_identity(identity)
        attachment.attach(context)
        yield
    finally:
        attachment.release()


def in_context(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` as it would run here and now, for a pool's ``submit`` or ``map``, and for ``Thread``.

    Each call has its own copy of all context variables. Pickled, for a pool of processes, it takes the carrier along.
    """
    return _InContext(function, copy_context())


class _InContext(Generic[P, R]):
    def __init__(self, function: Callable[P, R], variables: Variables) -> None:
        self._function = function
        self._variables = variables

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        return self._variables.copy().run(self._function, *arguments, **named)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial, (_run_attached, self._function, self._variables.copy().run(carrier))


def _run_attached(function: Callable[..., Any], texts: Mapping[str, str], *arguments: Any, **named: Any) -> Any:
    with attached(texts):
        return function(*arguments, **named)


def _context_of(texts: Mapping[str, str]) -> Context | None:
    """None where they say neither a span nor a rollout."""
    context = context_of_texts(texts)
    span_context = trace.get_current_span(context).get_span_context()
    if not span_context.is_valid and identity_from_baggage(context) is None:
        return None
    if _SPAWNED_BY in texts:
        context = otel_context.set_value(TOOL_KEY, SpawningTool(texts[_SPAWNED_BY], span_context), context)
    return context
