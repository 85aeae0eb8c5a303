"""The agents of one session, and whose record is whose."""

from __future__ import annotations

from typing import Any

from otel_gym.content import finite_number
from otel_gym.ingest.claude_code.agent_log import AgentLog, Call, ToolRun
from otel_gym.ingest.claude_code.lines import Row, text_of
from otel_gym.ingest.claude_code.request_bodies import NotedRequest, RequestBodies
from otel_gym.records.steps import iso_time

AGENT = "claude-code"
_SUBAGENT = "subagent"


class SessionLog:
    """The agents of a session: ``main``, and ``agents`` by id."""

    def __init__(self, session_id: str, first_ns: int) -> None:
        self.session_id = session_id
        self.main = AgentLog(None, first_ns)
        # Of a fork: the session that it copied.
        self.continues: str | None = None
        self.agents: dict[str, AgentLog] = {}
        self.versions: list[str] = []
        self.bodies: list[RequestBodies] = []
        self.requests: dict[str, NotedRequest] = {}
        self._first_ns = first_ns
        # Sidechains of old versions name no agent: a record's agent is that of its parent.
        self._sidechains: dict[str, str] = {}

    def agent(self, agent_id: str) -> AgentLog:
        if agent_id not in self.agents:
            self.agents[agent_id] = AgentLog(agent_id, self._first_ns)
        return self.agents[agent_id]

    def saw_version(self, log: AgentLog, version: str) -> None:
        if version != log.version:
            log.version = version
            self.versions.append(version)

    def log_of(self, row: Row) -> AgentLog:
        """Whose record of the main file it is."""
        if row.get("isSidechain") is not True:
            return self.main
        agent_id = row.get("agentId")
        if not isinstance(agent_id, str):
            uuid = str(row.get("uuid"))
            agent_id = self._sidechains.get(str(row.get("parentUuid")), f"sidechain-{uuid}")
            self._sidechains[uuid] = agent_id
        return self.agent(agent_id)

    def request_of(self, call: Call) -> NotedRequest | None:
        """None where no record notes it."""
        return self.requests.get(call.request_ref or "")

    def start_of(self, call: Call) -> int:
        """When the call began, as its request's own record says where there is one."""
        request = self.request_of(call)
        if request is None or request.time_ns is None:
            return call.started_ns
        return min(request.time_ns, call.ended_ns)

    def model_of(self, call: Call) -> str | None:
        """The one that was asked for; after a fallback that is another one than the user's."""
        request = self.request_of(call)
        asked = None if request is None else request.params.get("model")
        return asked if isinstance(asked, str) else call.requested_model or call.model

    def noticed(self, notice: dict[str, str], time_ns: int | None) -> None:
        """A task in the background ended."""
        run = self._run_of_task(notice)
        if run is None:
            return
        if "status" in notice:
            run.extra["background_status"] = notice["status"]
        if time_ns is not None:
            run.extra.setdefault("background_ended_at", iso_time(time_ns))

    def _run_of_task(self, notice: dict[str, str]) -> ToolRun | None:
        """By the id of the call; where the notice lacks it, by the id of the task that the call's receipt names."""
        logs = (self.main, *self.agents.values())
        call_id, task_id = notice.get("tool-use-id"), notice.get("task-id")
        if call_id is not None:
            return next((log.runs[call_id] for log in logs if call_id in log.runs), None)
        runs = (run for log in logs for run in log.runs.values())
        return next((run for run in runs if task_id and task_id in _tasks_of(run)), None)

    def is_of_another(self, log: AgentLog, row: Row) -> bool:
        """Whether an agent's file holds a record of another agent, whose context it was started with."""
        others = [other for other in (self.main, *self.agents.values()) if other is not log]
        key = call_key(row, 0) if row.get("type") == "assistant" and row.get("requestId") else None
        return any(row.get("uuid") in other.said or key in other.calls for other in others)


def _tasks_of(run: ToolRun) -> tuple[Any, Any]:
    return run.extra.get("background_task_id"), run.extra.get("agent_id")


def name_of(log: AgentLog, run: ToolRun | None) -> str:
    """Of an agent; ``run`` is the tool call that started it."""
    if log.agent_id is None:
        return AGENT
    return log.agent_type or (run.agent_type if run else None) or _SUBAGENT


def call_key(row: Row, index: int) -> str:
    message = row.get("message")
    message_id = text_of(message.get("id")) if isinstance(message, dict) else None
    return key_of(text_of(row.get("requestRef")), text_of(row.get("requestId")), message_id, row.get("uuid") or index)


def key_of(request_ref: str | None, request_id: str | None, message_id: str | None, otherwise: Any) -> str:
    """What the records of one message share, and no two messages do: gateways leave out one id or the other."""
    if not (request_ref or request_id or message_id):
        return f"record {otherwise}"
    return f"{request_ref or '-'} {request_id or '-'} {message_id or '-'}"


def said_duration_ms(log: AgentLog, run: ToolRun | None) -> float | None:
    """Of the whole run, as the harness says; of a subagent the result of the call that started it does."""
    said = run.extra.get("duration_ms") if run is not None else None
    return log.totals.duration_ms if said is None else number_of(said)


def number_of(value: Any) -> float | None:
    number = finite_number(value)
    return None if number is None else float(number)
