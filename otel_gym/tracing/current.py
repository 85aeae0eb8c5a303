"""What is current while a span of ours is open: an OpenTelemetry context and the ids, made so and taken back.

A generator that is broken off is closed later, and in another context: what it made current can then not be taken back
where its consumer still has it. So the context itself is made to say what surrounded it, wherever it is still current.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context, create_key
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from otel_gym.identity import HeldIdentity, Identity, current_identity, set_identity

# What a context of ours holds beside the span: the rollout, agent and tool call that are open in this process.
ROLLOUT_KEY = create_key("otel_gym.rollout")
AGENT_KEY = create_key("otel_gym.agent")
TOOL_KEY = create_key("otel_gym.tool")

_PROPAGATORS = (W3CBaggagePropagator(), TraceContextTextMapPropagator())


def texts_of(context: Context) -> dict[str, str]:
    """What is known of ``baggage``, ``traceparent`` and ``tracestate``; OTEL_PROPAGATORS changes nothing."""
    texts: dict[str, str] = {}
    for propagator in _PROPAGATORS:
        propagator.inject(texts, context)
    return texts


def context_of_texts(texts: Mapping[str, str]) -> Context:
    """The context that such texts tell of."""
    context = Context()
    for propagator in _PROPAGATORS:
        context = propagator.extract(texts, context)
    return context


class OwnContext(Context):
    """A context that one span of ours made current; ``outer`` is the one that it found."""

    def __init__(self, values: Context, outer: Context) -> None:
        super().__init__(values)
        self.outer = outer
        self.is_open = True
        self._say_the_same: list[OwnContext] = []

    def give_way(self) -> None:
        """Says from now on what surrounded it, to whoever still has it: each look-up finds the old or the new."""
        ours = [self, *self._say_the_same]
        for context in ours:
            dict.update(context, self.outer)
            for key in list(context.keys() - self.outer.keys()):
                dict.pop(context, key, None)
        if isinstance(self.outer, OwnContext):
            self.outer._say_the_same += ours


class Attachment:
    """What one span of ours makes current until ``release``: first the ids, then the context."""

    def __init__(self) -> None:
        self.context: OwnContext | None = None
        self._context_token: Token[Context] | None = None
        self._identity: HeldIdentity | None = None
        self._identity_token: Token[Identity | None] | None = None

    def attach_identity(self, identity: Identity) -> None:
        self._identity = HeldIdentity(*identity)
        self._identity.outer = current_identity()
        self._identity_token = set_identity(self._identity)

    def attach(self, context: Context) -> None:
        self.context = OwnContext(context, otel_context.get_current())
        self._context_token = otel_context.attach(self.context)

    def release(self) -> None:
        """Called again it does what an interrupt cut off. Never logs, in whatever context it is called."""
        if self._identity_token is not None:
            is_restored = restore(self._identity_token)
            if self._identity is not None:
                self._identity.is_taken_back = not is_restored
            self._identity_token = None
        if self.context is None:
            return
        self.context.is_open = False
        if self._context_token is not None:
            current = otel_context.get_current()
            is_covered = isinstance(current, OwnContext) and current.is_open  # by a generator that goes on
            if is_covered or not restore(self._context_token):
                self.context.give_way()
            self._context_token = None
        self.context = None  # it holds what holds this: they would wait for the garbage collector

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Within it what surrounded the span is current again: a generator that hands a value to its consumer."""
        if self.context is None:
            yield
            return
        context, identity = otel_context.get_current(), current_identity()
        for token in (self._context_token, self._identity_token):
            if token is not None:
                restore(token)
        try:
            yield
        finally:
            self._identity_token = set_identity(identity)
            self._context_token = otel_context.attach(context)


def restore(token: Token[Any]) -> bool:
    """Resets a context variable; False where that cannot be: it was set in another context, or reset before.

    OpenTelemetry's own ``detach`` would log an error in that case.
    """
    try:
        token.var.reset(token)
    except (ValueError, RuntimeError):
        return False
    return True
