"""A span of agent code: current within ``with`` or ``async with``, or within each call of what it decorates.

Knows how a span begins and ends, whatever happens between; what it says is its subclasses' (``agents``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, StatusCode
from opentelemetry.util.types import AttributeValue

from otel_gym import conventions as names
from otel_gym.agent_identity import agent_attributes
from otel_gym.content import described, known, safe_text
from otel_gym.identity import Identity, baggage_of, current_identity, identity_from_baggage, set_identity
from otel_gym.tracing import open_rollouts
from otel_gym.tracing.current import Attachment
from otel_gym.tracing.decorating import decorated
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.membership import identity_of_start
from otel_gym.tracing.pipeline import Pipeline, active_pipeline

P = ParamSpec("P")
R = TypeVar("R")

_MESSAGE_CHARACTERS = 1000


class Parent(Protocol):
    """A rollout, or a span of agent code."""

    def _inside(self) -> Context:
        """The context within it; where it has not begun, or tracing is off, the current one."""


class SpanScope:
    """``span`` is OpenTelemetry's, for attributes of your own; None where tracing is off."""

    def __init__(self, parent: Parent | Span | None) -> None:
        self.span: Span | None = None
        self._parent = parent
        self._around: Context | None = None
        self._attachment: Attachment | None = None
        self._keeps_content = False
        self._process = 0

    def __enter__(self) -> Self:
        pipeline = active_pipeline()
        if pipeline is None:
            return self
        before, identity = otel_context.get_current(), current_identity()
        try:
            self._begin(pipeline)
        except BaseException as error:  # an interrupt too: `with` calls no __exit__ then
            self._leave(error)
            set_identity(identity)
            otel_context.attach(before)
            if not isinstance(error, Exception):
                raise
            log_once("a span of agent code could not begin")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._attachment is None:
            return
        try:
            self._leave(error)
        except BaseException as interrupt:
            self._leave(error or interrupt)
            raise

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """``function``, plain, async or a generator of either kind, with a span of its own around each call."""
        return decorated(self, function)

    def _of_call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Self:
        """The scope of one call of what this one decorates."""
        return copy(self)

    def _inside(self) -> Context:
        """The context within the span; where it has not begun, or tracing is off, the current one."""
        if self.span is None or self._around is None:
            return otel_context.get_current()
        return self._inner(trace.set_span_in_context(self.span, self._around))

    @property
    def _is_open_here(self) -> bool:
        """Whether its span takes what is said: not after its end, nor in a process that was forked from its own."""
        return self.span is not None and self.span.is_recording() and self._process == os.getpid()

    def _suspended(self) -> AbstractContextManager[None]:
        """Within it the span is not current: a decorated generator hands a value to its consumer."""
        return nullcontext() if self._attachment is None else self._attachment.suspended()

    def _returned(self, value: Any) -> None:
        """Hears what a decorated function returned."""

    def _begin(self, pipeline: Pipeline) -> None:
        self._keeps_content = pipeline.content.bodies
        attachment = self._attachment = Attachment()
        self.span, self._process = None, os.getpid()
        context, identity, assumed = self._surroundings()
        self._around = context
        if identity is not None:
            attachment.attach_identity(identity)
        self.span = pipeline.tracer.start_span(
            self._name(),
            context,
            SpanKind.INTERNAL,
            known({**self._attributes(context), **assumed, **agent_attributes()}),
            self._links(context),
        )
        attachment.attach(self._inside())
        self._has_begun(context)

    def _surroundings(self) -> tuple[Context, Identity | None, dict[str, AttributeValue]]:
        """Where the span begins, ids that are not current there, and how these came about."""
        if self._parent is not None:
            context = _context_in(self._parent)
            return context, identity_from_baggage(context), {}
        context = otel_context.get_current()
        if trace.get_current_span(context).get_span_context().is_valid:
            return context, None, {}
        if identity_of_start(None, context).rollout_id is not None:
            return context, None, {}
        identity = open_rollouts.only_one()
        if identity is None:
            return context, None, {}
        return baggage_of(identity, context), identity, {names.ROLLOUT_ID_ASSUMED: True}

    def _leave(self, error: BaseException | None) -> None:
        """Restores what surrounded the span and ends it; called again it does what an interrupt cut off."""
        if self._attachment is not None:
            self._attachment.release()
        if self.span is None or not self.span.is_recording():
            return
        if error is not None and not isinstance(error, GeneratorExit):  # a consumer that has enough is no error
            try:
                self._fail(error)
            except Exception:
                log_once("how a span of agent code failed could not be recorded")
        self.span.end()

    def _fail(self, error: BaseException) -> None:
        self._set("error.type", type(error).__qualname__)
        self._set_error(described(error))

    def _set_error(self, message: str) -> None:
        if self.span is not None:
            self.span.set_status(StatusCode.ERROR, _short(message) if self._keeps_content else None)

    def _set(self, name: str, value: AttributeValue | None) -> None:
        if self.span is not None and value is not None:
            self.span.set_attribute(name, value)

    def _name(self) -> str:
        raise NotImplementedError

    def _attributes(self, context: Context) -> dict[str, AttributeValue | None]:
        """Those known when the span begins; None is left out."""
        raise NotImplementedError

    def _links(self, context: Context) -> Sequence[Link]:
        return ()

    def _inner(self, context: Context) -> Context:
        """What is current within the span, beside the span."""
        return context

    def _has_begun(self, context: Context) -> None:
        """After the span is current; ``context`` is what surrounds it."""


def _context_in(parent: Parent | Span) -> Context:
    return trace.set_span_in_context(parent) if isinstance(parent, Span) else parent._inside()


def _short(message: str) -> str:
    return safe_text(message)[:_MESSAGE_CHARACTERS]
