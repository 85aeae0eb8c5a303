"""The rollouts of the demo: which agent does which task, and what answer earns the reward."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from otel_gym.demo import agents
from otel_gym.demo.agents import Endpoint
from otel_gym.tracing.api import rollout

CONCURRENT = 4
MAX_ATTEMPTS = 2

Agent = Callable[[Endpoint, str], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Task:
    """``agent`` takes where its model is and the task's words; ``expected`` must stand in its answer."""

    what: str
    words: str
    expected: str
    agent: Agent
    path: str = "/v1"


def _in_thread(agent: Callable[[Endpoint, str], str]) -> Agent:
    async def run(model: Endpoint, words: str) -> str:
        return await asyncio.to_thread(agent, model, words)

    return run


COMPARE = "Compare the weather of Oslo and Lima: which is warmer?"
PLAN = "Plan a trip: what do a flight, a hotel and a museum cost together?"

TASKS: tuple[Task, ...] = (
    Task(
        "chat, plain", COMPARE, "Lima", _in_thread(lambda model, words: agents.chat_agent(model, words, stream=False))
    ),
    Task("chat, streaming", PLAN, "568", _in_thread(lambda model, words: agents.chat_agent(model, words, stream=True))),
    Task("responses, plain", COMPARE, "Lima", lambda model, words: agents.responses_agent(model, words, stream=False)),
    Task("responses, streaming", PLAN, "568", lambda model, words: agents.responses_agent(model, words, stream=True)),
    Task("messages, plain", PLAN, "568", _in_thread(agents.messages_agent), path=""),
    Task("messages, streaming", COMPARE, "Lima", agents.streaming_messages_agent, path=""),
    Task("error and retry", "Name the river with the most water.", "Amazon", _in_thread(agents.falling_back_agent)),
    Task("cut stream", "Write a line about a river.", "sea", _in_thread(agents.poet_agent)),
)


async def run_rollouts(proxy_url: str, count: int) -> list[str]:
    """Runs rollouts ``0-0``, ``1-0`` … a few at a time; returns what failed for good, a line each."""
    room = asyncio.Semaphore(CONCURRENT)

    async def run(number: int) -> str | None:
        async with room:
            return await _run_rollout(proxy_url, number % len(TASKS), number // len(TASKS))

    outcomes = await asyncio.gather(*(run(number) for number in range(count)))
    return [problem for problem in outcomes if problem is not None]


async def _run_rollout(proxy_url: str, task_index: int, rollout_index: int) -> str | None:
    """Attempts until one ends without an exception; None if one did."""
    task = TASKS[task_index]
    problem = None
    for attempt in range(MAX_ATTEMPTS):
        try:
            with rollout(task_index, rollout_index, attempt) as current:
                model = Endpoint(current.base_url(proxy_url + task.path), current.headers)
                answer = await task.agent(model, f"{task.words} (#{rollout_index})")
                current.record_reward(float(task.expected in answer))
                return None
        except Exception as error:  # whatever a client raises ends this attempt, and the next one begins
            problem = f"rollout {current.rollout_id} ({task.what}): {type(error).__name__}: {error}"
    return problem
