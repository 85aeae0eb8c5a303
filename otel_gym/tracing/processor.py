"""The span processor that stores gym spans: it stamps ids at the start and hands over at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import SpanKind

from otel_gym.content_policy import DEFAULT_POLICY, ContentPolicy
from otel_gym.conventions import ROLLOUT_ID, ROLLOUT_SPAN, RUN_ID, UNASSIGNED
from otel_gym.id_rules import is_valid_id
from otel_gym.identity import Identity
from otel_gym.tracing.encode import SERVER_SPAN_BYTES, encode_span
from otel_gym.tracing.live_sinks import LiveSink
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.membership import (
    identity_attributes,
    identity_of_start,
    is_asgi_message,
    is_gym_span,
    plain_attributes,
    whole_identity_of_start,
)
from otel_gym.tracing.open_spans import has_start_record
from otel_gym.tracing.otlp.leg import OtlpLeg
from otel_gym.tracing.payloads import Payload, slots
from otel_gym.tracing.recorder import Recorder, recorder_of_this_thread
from otel_gym.tracing.worker_end import POOL_WORKER_WAIT_S, is_pool_worker


class RolloutSpanProcessor(SpanProcessor):
    """Writes every gym span, sampled or not, to the recorder; ``run_id`` is for spans that name none.

    ``keeps_identity``: the provider's limits may drop attributes, so the ids of open spans are kept here too.
    """

    def __init__(
        self,
        recorder: Recorder,
        run_id: str | None = None,
        content: ContentPolicy = DEFAULT_POLICY,
        *,
        keeps_identity: bool = False,
    ) -> None:
        self.recorder = recorder
        # Those of before a later `configure` in whose stores spans are still open.
        self._earlier: tuple[Recorder, ...] = ()
        self.run_id = run_id
        self.content = content
        # The OTLP copy, where one is sent: it gets every span of the provider, and what travels beside it.
        self.leg: OtlpLeg | None = None
        # Other forms in which gym spans are written as they end.
        self.sinks: tuple[LiveSink, ...] = ()
        self._identities: dict[tuple[int, int], Mapping[str, Any]] | None = {} if keeps_identity else None

    @property
    def recorders(self) -> tuple[Recorder, ...]:
        return (*self._earlier, self.recorder)

    def redirect(self, recorder: Recorder, run_id: str | None, content: ContentPolicy) -> None:
        """Sends the spans that start from now on to ``recorder``; what came before is written first."""
        self._earlier = self.recorders
        self.recorder, self.run_id, self.content = recorder, run_id, content
        # One that cannot write is not waited for again.
        self._earlier = tuple(each for each in self._earlier if each.flush(30.0) and each.open_spans.spans())

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if self.leg is not None:
            self.leg.start()
        try:
            attributes = plain_attributes(span)
            if is_asgi_message(span.name, span.kind, attributes):
                return
            stamp: Mapping[str, Any] | None = None
            if ROLLOUT_ID not in attributes or RUN_ID not in attributes or self._identities is not None:
                identity = self._identity(span, attributes, parent_context)
                if not is_gym_span(attributes, identity):
                    return
                stamp = identity_attributes(Identity(identity.rollout_id, identity.run_id or self.run_id))
                span.set_attributes(stamp)
                if self._identities is not None:
                    self._identities[_key(span)] = stamp
            if has_start_record(span.name, attributes):
                self.recorder.open_spans.enter(span, self.content, stamp)
                self.recorder.wake()
            for sink in self.sinks:
                sink.on_start(span)
        except Exception:
            log_once("a span could not be stamped with its rollout")

    def _identity(self, span: Span, attributes: Mapping[str, Any], parent_context: Context | None) -> Identity:
        if self._identities is None:
            return identity_of_start(attributes, parent_context, span.kind)
        parent = self._identities.get((span.parent.trace_id, span.parent.span_id)) if span.parent else None
        return whole_identity_of_start(span, parent_context, parent)

    def on_end(self, span: ReadableSpan) -> None:
        identity = self._identities.pop(_key(span), None) if self._identities is not None else None
        attributes = identity or plain_attributes(span)
        if ROLLOUT_ID not in attributes:
            self._send(span, None, identity)
            return
        payload = slots.take(span.context)
        self._store(span, attributes, payload, identity)
        self._send(span, payload, identity)
        for sink in self.sinks:
            try:
                sink.add(span, payload)
            except Exception:
                log_once("a span could not be handed to a live sink")
        if self.sinks and _is_outermost(span) and is_pool_worker():
            self.flush_sinks(time.monotonic() + POOL_WORKER_WAIT_S)

    def _send(self, span: ReadableSpan, payload: Payload | None, identity: Mapping[str, Any] | None) -> None:
        if self.leg is None:
            return
        try:
            self.leg.add(span, payload, identity)
        except Exception:
            log_once("a span could not be handed to the OTLP copy")

    def _store(
        self,
        span: ReadableSpan,
        attributes: Mapping[str, Any],
        payload: Payload | None,
        identity: Mapping[str, Any] | None,
    ) -> None:
        recorder = recorder_of_this_thread() or self.recorder
        try:
            rollout_id = storable_rollout_id(attributes[ROLLOUT_ID])
            if not recorder.open_spans.leave(span.context) and self._earlier:
                recorder = self._recorder_that_knows(span) or recorder
            if payload is not None or span.kind is SpanKind.SERVER:
                # A SERVER span ends in the path of a request: hand over now, encode later.
                encode = partial(encode_span, span, payload, self.content, identity, rollout_id)
                recorder.add_span(rollout_id, encode, SERVER_SPAN_BYTES)
            else:
                # Encoding now costs less than keeping spans for later, and the queue holds bytes.
                recorder.add_line(rollout_id, encode_span(span, None, self.content, identity))
                if span.name == ROLLOUT_SPAN and span.parent is None:
                    recorder.rollout_ended(rollout_id)
                if _is_outermost(span) and is_pool_worker():
                    recorder.flush(POOL_WORKER_WAIT_S)
        except Exception:
            recorder.spans_lost += 1
            log_once("a span could not be handed over")

    def _recorder_that_knows(self, span: ReadableSpan) -> Recorder | None:
        return next((each for each in self._earlier if each.open_spans.leave(span.context)), None)

    def shutdown(self) -> None:
        deadline = self._close_recorders()
        self.flush_sinks(deadline)
        if self.leg is not None:
            self.leg.shutdown(deadline - time.monotonic())

    def close(self) -> None:
        """Waits until what ended is on disk and sent, within the exit's time limit; what ends later is taken too."""
        deadline = self._close_recorders()
        self.flush_sinks(deadline)
        if self.leg is not None:
            self.leg.close(deadline - time.monotonic())

    def _close_recorders(self) -> float:
        deadline = time.monotonic() + self.recorder.exit_timeout_s
        for recorder in self.recorders:
            recorder.close()
        return deadline

    def flush_sinks(self, deadline: float) -> bool:
        """``deadline`` by the monotonic clock; False if it came first."""
        flushed = [sink.flush(max(0.0, deadline - time.monotonic())) for sink in self.sinks]
        return all(flushed)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Also what is sent over OTLP, which is waited for no longer than the exit would wait."""
        deadline = time.monotonic() + timeout_millis / 1000
        flushed = self.flush(timeout_millis / 1000)
        if self.leg is None:
            return flushed
        return self.leg.flush(min(deadline - time.monotonic(), self.recorder.exit_timeout_s)) and flushed

    def flush(self, timeout_s: float) -> bool:
        """Waits until all that ended is on disk; False if the time ran out first."""
        deadline = time.monotonic() + timeout_s
        flushed = [recorder.flush(max(0.0, deadline - time.monotonic())) for recorder in self.recorders]
        return self.flush_sinks(deadline) and all(flushed)


def _is_outermost(span: ReadableSpan) -> bool:
    return span.parent is None or span.parent.is_remote


def _key(span: ReadableSpan) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


def storable_rollout_id(rollout_id: object) -> str:
    """The id if it may name a folder, else ``unassigned``; the span keeps what it said."""
    return rollout_id if isinstance(rollout_id, str) and is_valid_id(rollout_id) else UNASSIGNED
