"""NeMo Gym, unmodified: one trace a rollout across collector, environment, agent, model and resources servers.

Each server process is hooked where NeMo Gym hooks its own telemetry: after an application is whole, before it serves.
On the way out there are two places that all of Gym goes through: ``ServerClient.request``, which knows the server that
is asked, and ``request`` below it. What is asked of whom decides what a call is: ``/run`` outside of any rollout is the
collector's, and begins one.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any

from opentelemetry import baggage
from opentelemetry import context as otel_context
from opentelemetry.trace import StatusCode

from otel_gym.capture.instrumentors import nemo_gym_servers as servers
from otel_gym.capture.instrumentors.library import LibraryInstrumentor
from otel_gym.capture.instrumentors.nemo_gym_rollouts import rollout_id_of_run, verdict_of, write_verdict
from otel_gym.identity import split_url_prefix
from otel_gym.tracing.api import Rollout
from otel_gym.tracing.current import restore
from otel_gym.tracing.logs import log_once
from otel_gym.tracing.membership import identity_of_start
from otel_gym.tracing.pipeline import active_pipeline
from otel_gym.wire.dialects import dialect_for_path
from otel_gym.wire.tool_calls import RequestedToolCall, tool_arguments, tool_calls

Request = Callable[..., Awaitable[Any]]


class NemoGymInstrumentor(LibraryInstrumentor):
    module = "nemo_gym.server_utils"
    requires = "nemo-gym >= 0.7"

    def _patch(self, module: Any) -> None:
        self._replace(module.SimpleServer, "instrument_app_for_telemetry", _installing)
        self._replace(module.ServerClient, "request", _asking_server)
        self._replace(module, "request", _naming_tool_call)


def _installing(instrument: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    @wraps(instrument)
    def instrument_and_install(server: Any, app: Any) -> None:
        instrument(server, app)
        try:
            servers.install(server, app)
        except Exception:
            log_once("a server of NeMo Gym could not be instrumented")

    return instrument_and_install


def _asking_server(request: Request) -> Request:
    @wraps(request)
    async def ask(client: Any, server_name: str, url_path: str, method: str, **named: Any) -> Any:
        try:
            rollout = _rollout_of_collector(url_path, method, named.get("json"))
            is_model_call = rollout is None and _is_model_call(client, server_name, url_path)
        except Exception:
            log_once("a request of NeMo Gym could not be told apart")
            rollout, is_model_call = None, False
        if rollout is not None:
            return await _in_rollout(rollout, request(client, server_name, url_path, method, **named))
        if is_model_call:
            servers.begin_agent()
        response = await request(client, server_name, url_path, method, **named)
        if is_model_call:
            _asked_for.set(_ToolCalls(response))
        return response

    return ask


def _naming_tool_call(request: Request) -> Request:
    @wraps(request)
    async def ask(method: str, url: str, *arguments: Any, **named: Any) -> Any:
        asked_for = _asked_for.get()
        call_id = None if asked_for is None or method != "POST" else asked_for.take(url, named.get("json"))
        if call_id is None:
            return await request(method, url, *arguments, **named)
        token = otel_context.attach(baggage.set_baggage(servers.TOOL_CALL_ID, call_id))
        try:
            return await request(method, url, *arguments, **named)
        finally:
            restore(token)

    return ask


# ── the collector ──────────────────────────────────────────────────────────────────────────────────────────────────


def _rollout_of_collector(url_path: str, method: str, body: Any) -> Rollout | None:
    """What ``gym eval run`` asks an environment server for, once for each row."""
    if url_path != "/run" or method != "POST" or active_pipeline() is None:
        return None
    if identity_of_start(None, otel_context.get_current()).rollout_id is not None:
        return None
    rollout_id = rollout_id_of_run(body)
    return None if rollout_id is None else Rollout(rollout_id, None)


async def _in_rollout(rollout: Rollout, request: Awaitable[Any]) -> Any:
    with rollout:
        response = await request
        if rollout.span is not None:
            await _record_answer(rollout, response)
        return response


async def _record_answer(rollout: Rollout, response: Any) -> None:
    """The body is read here, as the collector does next: aiohttp keeps it. That of an error is left to be read."""
    assert rollout.span is not None
    if response.status != 200:
        rollout.span.set_attribute("error.type", str(response.status))
        rollout.span.set_status(StatusCode.ERROR)
        return
    try:
        write_verdict(rollout.span, verdict_of(await response.read()), rollout)
    except Exception:  # what cannot be read now fails again where the collector reads it
        log_once("the answer to a rollout could not be read")


# ── the agent ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _is_model_call(client: Any, server_name: str, url_path: str) -> bool:
    _, path = split_url_prefix(url_path.partition("?")[0])
    server = client.global_config_dict.get(server_name)
    return dialect_for_path(path) is not None and server is not None and servers.MODELS in server


class _ToolCalls:
    """Those that a model's answer asks for, by which the requests to tools that follow are told apart.

    The answer is looked into when a tool is asked, by then its reader has read it; never before, and never for it.
    """

    def __init__(self, response: Any) -> None:
        self._response = response
        self._open: list[RequestedToolCall] | None = None

    def take(self, url: str, arguments: Any) -> str | None:
        """Id of the call that the request to ``url`` runs, each once: the first with these arguments, else by name."""
        try:
            name = url.partition("?")[0].rpartition("/")[2]
            candidates = [call for call in self._calls() if call.name == name]
            same = [call for call in candidates if call.arguments == tool_arguments(arguments)]
            call = next(iter(same or candidates), None)
            if call is None or self._open is None:
                return None
            self._open.remove(call)
            return call.call_id if isinstance(call.call_id, str) else None
        except Exception:
            log_once("a tool call of NeMo Gym could not be told apart")
            return None

    def _calls(self) -> list[RequestedToolCall]:
        if self._open is None:
            body = getattr(self._response, "_body", None)
            if body is None:
                return []
            answer = json.loads(body)
            self._open, self._response = tool_calls(answer) if isinstance(answer, Mapping) else [], None
        return self._open


_asked_for: ContextVar[_ToolCalls | None] = ContextVar("otel_gym_asked_for", default=None)
