"""What the scripted model says: a reply for each turn of each task.

Knows nothing of dialects. Token counts follow from the conversation's size, a token for four characters, and what was
said up to the last turn counts as cached, in blocks of 64 tokens, as model servers do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

MODEL = "scripted-1"
MISSING_MODEL = "scripted-0"
CHARACTERS_PER_TOKEN = 4
CACHE_BLOCK_TOKENS = 64


@dataclass(frozen=True, slots=True)
class ToolRequest:
    name: str
    arguments: dict[str, str]


@dataclass(frozen=True, slots=True)
class Fault:
    """How a first try fails: a status, or a stream that breaks after some events."""

    status: int | None = None
    kind: str = ""
    message: str = ""
    cut_after_events: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    text: str = ""
    reasoning: str = ""
    tools: tuple[ToolRequest, ...] = ()
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply; ``cached`` and ``newly_cached`` are parts of ``prompt``."""

    prompt: int
    cached: int
    newly_cached: int
    completion: int
    reasoning: int


def _price(item: str) -> ToolRequest:
    return ToolRequest("get_price", {"item": item})


def _weather(city: str) -> ToolRequest:
    return ToolRequest("get_weather", {"city": city})


RATE_LIMIT = Fault(429, "rate_limit_error", "too many requests, try again")
CUT = Fault(cut_after_events=4)

# Task → its replies, turn by turn. A task is found by the word that its first message begins with.
SCRIPT: dict[str, tuple[Reply, ...]] = {
    "Compare": (
        Reply(reasoning="Two cities, so two lookups at once.", tools=(_weather("Oslo"), _weather("Lima"))),
        Reply("Oslo has 4 °C and Lima 19 °C, so Lima is warmer."),
    ),
    "Plan": (
        Reply(reasoning="The flight first.", tools=(_price("flight"),)),
        Reply(reasoning="Then a place to sleep.", tools=(_price("hotel"),)),
        Reply(reasoning="And what we came for.", tools=(_price("museum"),)),
        Reply("Flight 310, hotel 240, museum 18: the trip costs 568 euros."),
    ),
    "Name": (Reply("The Amazon carries the most water.", fault=RATE_LIMIT),),
    "Write": (Reply("Slow water, old stone; the river forgets its name before it meets the sea.", fault=CUT),),
}


class Script:
    """The replies, and which of them were already asked for: a fault hits a question's first try only."""

    def __init__(self) -> None:
        self._tries: Counter[tuple[str, int]] = Counter()

    def reply(self, task: str, turn: int) -> tuple[Reply, Fault | None]:
        """The reply to the conversation that began with ``task``, and the fault that hits this try of it."""
        replies = SCRIPT.get(task.split(" ", 1)[0], (Reply("I have no script for this."),))
        reply = replies[min(turn, len(replies) - 1)]
        self._tries[task, turn] += 1
        return reply, reply.fault if self._tries[task, turn] == 1 else None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a request says, whatever its dialect. Sizes are in characters of its JSON."""

    model: str
    task: str
    turn: int
    size: int
    size_before_last_turn: int
    stream: bool = False
    wants_usage: bool = True


def usage_of(conversation: Conversation, reply: Reply) -> Usage:
    prompt = conversation.size // CHARACTERS_PER_TOKEN
    cached = _blocks(conversation.size_before_last_turn // CHARACTERS_PER_TOKEN) if conversation.turn else 0
    reasoning = len(reply.reasoning) // CHARACTERS_PER_TOKEN
    said = len(reply.text) + sum(len(str(tool.arguments)) + len(tool.name) for tool in reply.tools)
    return Usage(
        prompt=prompt,
        cached=cached,
        newly_cached=_blocks(prompt) - cached,
        completion=reasoning + max(1, said // CHARACTERS_PER_TOKEN),
        reasoning=reasoning,
    )


def _blocks(tokens: int) -> int:
    return tokens // CACHE_BLOCK_TOKENS * CACHE_BLOCK_TOKENS
