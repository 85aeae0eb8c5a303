"""The requests that the servers of NeMo Gym serve, as spans.

    model        each call captured, just outside of Gym's own capture
    resources    POST /seed_session, /reset, /step, /verify … with session and verdict; any other POST is a tool
    agent        POST /run, /v1/responses; the turn in it is invoke_agent
    environment  POST /run

All are given their paths as they came: Gym's own middlewares read the prefix.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from typing import Any

from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.trace import Span, StatusCode

from otel_gym import conventions as names
from otel_gym.capture.bodies import Answer, RequestBody
from otel_gym.capture.instrumentors.nemo_gym_rollouts import (
    MAX_VERDICT_BYTES,
    rollout_id_of_run,
    verdict_of,
    write_verdict,
)
from otel_gym.capture.middleware import (
    ModelCallCapture,
    Receive,
    Scope,
    Send,
    baggage_header,
    instrument_app,
)
from otel_gym.capture.routes import Route
from otel_gym.capture.served import RolloutRequest
from otel_gym.tracing.agents import execute_tool, invoke_agent
from otel_gym.tracing.current import restore
from otel_gym.tracing.pipeline import Pipeline
from otel_gym.tracing.rewards import write_reward

MODELS = "responses_api_models"
AGENTS = "responses_api_agents"
RESOURCES = "resources_servers"
ENVIRONMENTS = "environment_servers"

# By the name of a base class, as Gym's own telemetry knows them.
_ROLES = {
    "SimpleResponsesAPIModel": MODELS,
    "SimpleResponsesAPIAgent": AGENTS,
    "SimpleResourcesServer": RESOURCES,
    "BaseEnvironmentServer": ENVIRONMENTS,
}
_GYM_CAPTURE = "_CaptureMiddleware"

# In baggage, from the agent to the tool: by it the run of a tool is joined with the model's call.
TOOL_CALL_ID = "gen_ai.tool.call.id"

_RUN, _RESPONSES = "/run", "/v1/responses"
_VERDICTS = frozenset({"/verify", "/step"})
_OF_ENVIRONMENT = _VERDICTS | {"/seed_session", "/close_session", "/reset", "/close", "/aggregate_metrics"}
_OF_AGENT = frozenset({_RUN, _RESPONSES, "/v1/agent_sessions", "/v1/agent_sessions/close"})
_NO_TOOLS = ("/mcp", "/v1/")

# Of a longer argument or result of a tool the head is kept.
_KEPT_TOOL_BYTES = 1024 * 1024
_MAX_RUN_BYTES = 64 * 1024 * 1024


def install(server: Any, app: Any) -> None:
    """Before the first request. A server of no kind that is known is left to ``StarletteInstrumentor``."""
    role = next((_ROLES[base.__name__] for base in type(server).__mro__ if base.__name__ in _ROLES), None)
    name = str(server.config.name)
    if role is None:
        return
    if role == MODELS:
        reference = {"type": MODELS, "name": name}
        instrument_app(app, model_ref=reference, model=_model_of(server.config), strips_prefix=False)
        _move_to_gym_capture(app.user_middleware)
        return
    kind = {AGENTS: _AgentRequests, RESOURCES: _ResourcesRequests, ENVIRONMENTS: _EnvironmentRequests}[role]
    instrument_app(app, capture=kind, server_name=name, session_cookie=server.get_session_middleware_key())


def _model_of(config: Any) -> str | None:
    """Gym's agents name no model: each server has its one."""
    model = getattr(config, "openai_model", None) or getattr(config, "model", None)
    return model if isinstance(model, str) else None


def _move_to_gym_capture(middlewares: list[Any]) -> None:
    """Gym turns exceptions into answers and disconnects into cancellations, further out than it captures."""
    place = next((at for at, each in enumerate(middlewares) if getattr(each.cls, "__name__", "") == _GYM_CAPTURE), 0)
    if place:
        middlewares.insert(place - 1, middlewares.pop(0))


class _GymRequests(ModelCallCapture):
    """Requests of a rollout to a server that is no model's, each with a SERVER span of its route."""

    routes: frozenset[str]

    def __init__(self, app: Any, *, server_name: str, session_cookie: str) -> None:
        super().__init__(app, strips_prefix=False)
        self.server_name = server_name
        self.session_cookie = session_cookie

    def _route(self, scope: Scope) -> Route:
        return super()._route(scope)._replace(dialect=None, is_near_miss=False)

    def _span_name(self, route: Route, scope: Scope) -> str:
        method: str = scope["method"]
        return f"{method} {route.path}" if route.path in self.routes else method

    async def _pass_on(self, request: RolloutRequest, scope: Scope, receive: Receive, send: Send) -> None:
        span = trace.get_current_span()
        span.set_attribute(names.NEMO_SERVER_NAME, self.server_name)
        await self._serve(self._route(scope).path, request, span, scope, receive, send)

    async def _serve(
        self, path: str, request: RolloutRequest, span: Span, scope: Scope, receive: Receive, send: Send
    ) -> None:
        await self.app(scope, receive, send)


class _RunsRollouts(_GymRequests):
    """``/run``: where nobody said so before, its body names the rollout, and its answer is the verdict on it."""

    async def _trace(self, pipeline: Pipeline, route: Route, scope: Scope, receive: Receive, send: Send) -> None:
        if route.path == _RUN and scope["method"] == "POST" and route.prefix_id is None:
            header = baggage_header(scope)
            if header is None or names.ROLLOUT_ID not in header:
                body = RequestBody(receive, _MAX_RUN_BYTES)
                receive = body.receive
                route = route._replace(prefix_id=rollout_id_of_run(_json_of(await body.whole() or b"")))
        await super()._trace(pipeline, route, scope, receive, send)

    async def _serve(
        self, path: str, request: RolloutRequest, span: Span, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if path != _RUN or getattr(span, "parent", None) is not None:
            return await self.app(scope, receive, send)
        context = otel_context.get_current()

        def judge(answer: Answer) -> None:
            verdict = verdict_of(bytes(answer.head))
            write_verdict(span, verdict)
            if verdict.reward is not None:
                write_reward(request.pipeline, verdict.reward, request.identity, context)

        await self.app(scope, receive, Answer(send, judge, MAX_VERDICT_BYTES).send)


class _EnvironmentRequests(_RunsRollouts):
    routes = frozenset({_RUN})


class _AgentRequests(_RunsRollouts):
    routes = _OF_AGENT

    async def _serve(
        self, path: str, request: RolloutRequest, span: Span, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if path not in (_RUN, _RESPONSES):
            return await self.app(scope, receive, send)
        turn = _Turn(self.server_name)
        token = _turn.set(turn)
        try:
            if path == _RESPONSES:
                turn.begin()
            await super()._serve(path, request, span, scope, receive, Answer(send, turn.is_answered).send)
        except BaseException as error:
            turn.end(error)
            raise
        finally:
            restore(token)
            turn.end()


class _Turn:
    """What an agent does for one request, from its first model call on: before that it readies its environment."""

    def __init__(self, name: str) -> None:
        self._scope = invoke_agent(name)
        self._has_begun = False

    def begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._scope.__enter__()

    def is_answered(self, answer: Answer) -> None:
        """The application returns later than its caller goes on."""
        if self._scope.span is not None:
            if answer.is_error:
                self._scope.span.set_attribute("error.type", str(answer.status))
                self._scope.span.set_status(StatusCode.ERROR)
            self._scope.span.end()

    def end(self, error: BaseException | None = None) -> None:
        if self._has_begun:
            self._scope.__exit__(None if error is None else type(error), error, None)


_turn: ContextVar[_Turn | None] = ContextVar("otel_gym_turn", default=None)


def begin_agent() -> None:
    """The agent whose request is served in this context calls a model."""
    turn = _turn.get()
    if turn is not None:
        turn.begin()


class _ResourcesRequests(_GymRequests):
    routes = _OF_ENVIRONMENT

    async def _serve(
        self, path: str, request: RolloutRequest, span: Span, scope: Scope, receive: Receive, send: Send
    ) -> None:
        def conclude(answer: Answer) -> None:
            session_id = answer.session(self.session_cookie).get("session_id")
            if isinstance(session_id, str):
                span.set_attribute(names.SESSION_ID, session_id)
            if path in _VERDICTS:
                write_verdict(span, verdict_of(bytes(answer.head)))

        send = Answer(send, conclude, MAX_VERDICT_BYTES if path in _VERDICTS else 0).send
        tool_name = path.strip("/")
        if scope["method"] == "POST" and path not in self.routes and not path.startswith(_NO_TOOLS) and tool_name:
            await self._run_tool(tool_name, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _run_tool(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        asked = RequestBody(receive, _KEPT_TOOL_BYTES)
        with execute_tool(name, _tool_call_id(scope)) as tool:

            def conclude(answer: Answer) -> None:
                if asked.head:
                    tool.record_arguments(_text(asked.head))
                extra = {"http_status": answer.status} if answer.is_error else None
                tool.record_result(_json_of(answer.head) or _text(answer.head), is_error=answer.is_error, extra=extra)
                if tool.span is not None:  # its application returns later than its caller goes on
                    tool.span.end()

            # What the tool asks for in turn is not this call.
            token = otel_context.attach(baggage.remove_baggage(TOOL_CALL_ID))
            try:
                await self.app(scope, asked.receive, Answer(send, conclude, _KEPT_TOOL_BYTES).send)
            finally:
                restore(token)


def _text(body: bytearray) -> str:
    return body.decode("utf-8", "replace")


def _json_of(body: bytes | bytearray) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _tool_call_id(scope: Scope) -> str | None:
    header = baggage_header(scope)
    if header is None or TOOL_CALL_ID not in header:
        return None
    call_id = baggage.get_baggage(TOOL_CALL_ID, W3CBaggagePropagator().extract({"baggage": header}, Context()))
    return call_id if isinstance(call_id, str) else None
