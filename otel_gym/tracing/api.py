"""The API for code that runs rollouts: the root span, and the URLs that carry its id.

With tracing off everything here still works and leaves URLs as they are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, StatusCode

from otel_gym import conventions as names
from otel_gym.agent_identity import agent_attributes
from otel_gym.content import described, safe_text
from otel_gym.id_rules import checked_id, is_valid_id
from otel_gym.identity import (
    Identity,
    baggage_of,
    current_identity,
    indices_from_rollout_id,
    rollout_id_from_indices,
    set_identity,
    split_url_prefix,
    url_path_for_rollout,
)
from otel_gym.tracing import open_rollouts
from otel_gym.tracing.current import ROLLOUT_KEY, Attachment, texts_of
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.membership import identity_attributes
from otel_gym.tracing.pipeline import active_pipeline
from otel_gym.tracing.rewards import checked_reward, write_reward
from otel_gym.tracing.step_numbers import StepNumbers


class Rollout(AbstractContextManager["Rollout"]):
    """One execution of a rollout; ``with`` or ``async with``. ``span`` is None where tracing is off."""

    def __init__(self, rollout_id: str, run_id: str | None) -> None:
        self.rollout_id = rollout_id
        self.run_id = run_id
        self.span: Span | None = None
        self._has_begun = False
        self._process = 0
        self.step_numbers = StepNumbers()
        self._attachment = Attachment()

    @property
    def identity(self) -> Identity:
        return Identity(self.rollout_id, self.run_id)

    def base_url(self, url: str) -> str:
        """``http://host:port`` (with or without ``/v1``) with this rollout's prefix."""
        return _prefixed_url(url, self.rollout_id) if active_pipeline() else url

    @property
    def headers(self) -> dict[str, str]:
        """``baggage`` and ``traceparent`` that tell a server which rollout, run and span a request belongs to.

        For a client's ``default_headers``. The span is the current one where it is part of the rollout, else the
        rollout's. Empty with tracing off.
        """
        pipeline = active_pipeline()
        if pipeline is None:
            return {}
        context = baggage_of(pipeline.identity(self.rollout_id, self.run_id), Context())
        if self.span is not None:
            current = trace.get_current_span()
            is_inside = current.get_span_context().trace_id == self.span.get_span_context().trace_id
            context = trace.set_span_in_context(current if is_inside else self.span, context)
        return texts_of(context)

    def record_reward(self, value: float) -> None:
        """The verifier's verdict; the last one wins. After the ``with`` block it is a span of its own.

        RuntimeError before the rollout has begun, ValueError for NaN.
        """
        if not self._has_begun:
            raise RuntimeError("record_reward() before the rollout has begun: call it inside `with rollout(…) as r:`")
        reward = checked_reward(value)
        pipeline = active_pipeline()
        if pipeline is None or self.span is None:
            return
        if self._is_open_here:
            self.span.set_attributes({names.REWARD: reward, names.REWARD_TIME: time.time_ns()})
        else:
            write_reward(pipeline, reward, self.identity, trace.set_span_in_context(self.span, Context()))

    @property
    def _is_open_here(self) -> bool:
        """Whether its span takes attributes: not after its end, nor in a process that was forked from its own."""
        return self.span is not None and self.span.is_recording() and self._process == os.getpid()

    def __enter__(self) -> Rollout:
        identity, context = current_identity(), otel_context.get_current()
        try:
            self._begin()
        except BaseException as error:  # an interrupt too: `with` calls no __exit__ then
            self._leave(error)
            set_identity(identity)
            otel_context.attach(context)
            raise
        return self

    def _begin(self) -> None:
        self._has_begun, self._process, self._attachment = True, os.getpid(), Attachment()
        self.step_numbers = StepNumbers()
        pipeline = active_pipeline()
        identity = self.identity
        if pipeline is not None:
            identity = pipeline.identity(self.rollout_id, self.run_id)
            self.run_id = identity.run_id
        surrounding = trace.get_current_span().get_span_context()
        self._attachment.attach_identity(identity)
        if pipeline is not None:
            links = [Link(surrounding)] if surrounding.is_valid else []
            # Always a root: a trainer's span around it is linked, so that each rollout is one trace.
            self.span = pipeline.tracer.start_span(
                names.ROLLOUT_SPAN,
                baggage_of(identity, Context()),
                SpanKind.INTERNAL,
                {**_rollout_attributes(identity), **agent_attributes()},
                links,
            )
            open_rollouts.enter(self)
        self._attachment.attach(self._inside())

    def _inside(self) -> Context:
        """OpenTelemetry's context within the rollout; the current one before it has begun."""
        if not self._has_begun:
            return otel_context.get_current()
        context = baggage_of(self.identity, otel_context.set_value(ROLLOUT_KEY, self, Context()))
        return context if self.span is None else trace.set_span_in_context(self.span, context)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._leave(error)
        except BaseException as interrupt:
            self._leave(error or interrupt)
            raise

    def _leave(self, error: BaseException | None) -> None:
        """Restores what surrounded the rollout and ends its span; called again it does what an interrupt cut off."""
        self._attachment.release()
        open_rollouts.leave(self)
        if self.span is None or not self.span.is_recording():
            return
        if error is not None and not isinstance(error, GeneratorExit):  # a consumer that has enough is no error
            self.span.set_attribute("error.type", type(error).__qualname__)
            self.span.set_status(StatusCode.ERROR, safe_text(described(error))[:1000])
        self.span.end()

    async def __aenter__(self) -> Rollout:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)


def rollout(
    task: int | None = None,
    index: int | None = None,
    attempt: int = 0,
    *,
    rollout_id: str | None = None,
    run_id: str | None = None,
) -> Rollout:
    """The root span of one execution of a rollout.

    Named by NeMo Gym's indices (``rollout(12, 0)`` is ``12-0``, its second try ``rollout(12, 0, 1)`` is
    ``12-0-a1``), or by an id of the caller's own. Raises InvalidIdError for an id that may not name a
    file, ValueError if neither form is given.
    """
    if rollout_id is None:
        if task is None or index is None:
            raise ValueError("rollout() takes a task and an index, or a rollout_id")
        rollout_id = rollout_id_from_indices(task, index, attempt)
    return Rollout(checked_id(rollout_id), checked_id(run_id, "run id") if run_id else None)


def _rollout_attributes(identity: Identity) -> dict[str, Any]:
    attributes: dict[str, Any] = dict(identity_attributes(identity))
    indices = indices_from_rollout_id(identity.rollout_id or "")
    if indices is None:
        return attributes
    attributes |= {names.TASK_INDEX: indices.task_index, names.ROLLOUT_INDEX: indices.rollout_index}
    if indices.attempt:
        attributes[names.ATTEMPT] = indices.attempt
    return attributes


def rollout_id_from_run(body: Any = None) -> str | None:
    """The rollout id of a NeMo Gym run request (a mapping or a model), else of the current rollout.

    ``_ng_rollout_id`` if it is valid, else ``{_ng_task_index}-{_ng_rollout_index}``, plus ``-a{n}`` for
    ``_ng_attempt_index`` > 0. None where there is none, and where tracing is off.
    """
    if active_pipeline() is None:
        return None
    fields = _run_fields(body)
    rollout_id = fields.get("_ng_rollout_id")
    task, index = fields.get("_ng_task_index"), fields.get("_ng_rollout_index")
    attempt = fields.get("_ng_attempt_index") or 0
    if isinstance(rollout_id, str) and is_valid_id(rollout_id):
        return rollout_id if not attempt else f"{rollout_id}-a{attempt}"
    if task is not None and index is not None:
        return rollout_id_from_indices(int(task), int(index), int(attempt))
    identity = current_identity()
    return identity.rollout_id if identity else None


def _run_fields(body: Any) -> Mapping[str, Any]:
    if body is None:
        return {}
    if isinstance(body, Mapping):
        return body
    fields = dict(getattr(body, "__dict__", {}))
    fields.update(getattr(body, "model_extra", None) or {})
    return fields


def url_path_for_run(url_path: str, body: Any = None) -> str:
    """``/v1/responses`` → ``/ng-rollout/<id>/v1/responses``; unchanged without an id or with tracing off."""
    rollout_id = rollout_id_from_run(body)
    return url_path_for_rollout(rollout_id, url_path) if rollout_id else url_path


def base_url_for_run(base_url: str, body: Any = None) -> str:
    """The root URL of a model server with the rollout's prefix; unchanged without an id or with tracing off."""
    rollout_id = rollout_id_from_run(body)
    return _prefixed_url(base_url, rollout_id) if rollout_id else base_url


def url_path_for_request(url_path: str, request: Any) -> str:
    """Carries the prefix of an inbound request on to a downstream path.

    ``request`` is Starlette's; the id is its path parameter ``rollout_id``, else that of its URL, else
    that of the current rollout (the capture middleware has taken it off the path by then).
    """
    parameters = getattr(request, "path_params", None)
    rollout_id = parameters.get("rollout_id") if isinstance(parameters, Mapping) else None
    if rollout_id is None:
        rollout_id, _ = split_url_prefix(getattr(getattr(request, "url", None), "path", ""))
    identity = current_identity()
    if rollout_id is None and identity is not None:
        rollout_id = identity.rollout_id
    if rollout_id is None or active_pipeline() is None:
        return url_path
    if not is_valid_id(rollout_id):
        log_once("a rollout id in a URL is refused, the call stays without one", with_traceback=False)
        return url_path
    return url_path_for_rollout(rollout_id, url_path)


def resolve_model_base_url(base_url: str, rollout_id: str | None = None) -> str:
    """Base URL for an OpenAI client: root URL of a model server, with the prefix, plus ``/v1``.

    ``rollout_id`` None: the current rollout's. Without a prefix where there is no id or tracing is off.
    """
    root = base_url.rstrip("/").removesuffix("/v1")
    identity = current_identity()
    rollout_id = rollout_id or (identity.rollout_id if identity else None)
    if rollout_id and active_pipeline() is not None:
        root = _prefixed_url(root, rollout_id)
    return f"{root}/v1"


def _prefixed_url(url: str, rollout_id: str) -> str:
    parts = urlsplit(url)
    path = url_path_for_rollout(rollout_id, parts.path)
    return urlunsplit(parts._replace(path=path.rstrip("/")))
