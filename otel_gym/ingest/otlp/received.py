"""What one message of OTLP brought."""

from __future__ import annotations

from dataclasses import dataclass, field

from otel_gym.store.span import StoredSpan


class MalformedError(ValueError):
    """A message that is no OTLP at all; the text says what is wrong with it."""


@dataclass(slots=True)
class Received:
    """``refused`` counts spans that cannot be taken, ``problem`` says what the first of them is refused for."""

    spans: list[StoredSpan] = field(default_factory=list)
    refused: int = 0
    problem: str | None = None

    def refuse(self, problem: str) -> None:
        self.refused += 1
        self.problem = self.problem or problem
