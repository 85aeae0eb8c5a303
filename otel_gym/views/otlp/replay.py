"""Rollouts of a store, sent to an endpoint as they were."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from otel_gym.store.reader import RolloutSpans
from otel_gym.store.span import StoredSpan
from otel_gym.views.otlp.messages import SentForm, Told, messages_of
from otel_gym.views.otlp.sending import RefusedError, Sender, SendError


@dataclass(slots=True)
class Sent:
    """Spans that the endpoint took, and that it refused, with its first reason."""

    rollouts: int = 0
    spans: int = 0
    messages: int = 0
    refused: int = 0
    problem: str = ""
    told: Told = field(default_factory=Told)

    def refuse(self, count: int, problem: str) -> None:
        self.refused += count
        self.problem = self.problem or problem


def replay(rollouts: Iterable[RolloutSpans], form: SentForm, sender: Sender) -> Sent:
    """Raises SendError, which says how far it came, where the endpoint takes no more."""
    sent = Sent()
    for message in messages_of(_spans(rollouts, sent), form, sent.told):
        try:
            refused, problem = sender.send(message.content)
        except RefusedError as error:
            refused, problem = message.spans, str(error)
        except SendError as error:
            so_far = f"; {sent.spans:,} spans were sent before" if sent.spans else ""
            raise SendError(f"{error}{so_far}") from None
        sent.messages += 1
        sent.spans += message.spans - refused
        if refused:
            sent.refuse(refused, problem)
    return sent


def _spans(rollouts: Iterable[RolloutSpans], sent: Sent) -> Iterator[StoredSpan]:
    for rollout in rollouts:
        sent.rollouts += 1
        yield from rollout.spans


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing if number == 1 else thing + 's'}"


def summary_lines(sent: Sent) -> Iterator[str]:
    """What was sent, and what was not, or not whole."""
    spans, rollouts = _counted(sent.spans, "span"), _counted(sent.rollouts, "rollout")
    yield f"{spans} of {rollouts} sent in {_counted(sent.messages, 'message')}"
    told = sent.told
    if told.open:
        yield f"{told.open:,} spans never ended, and are not sent"
    if told.not_otlp:
        yield f"{told.not_otlp:,} spans have ids or times that OTLP cannot carry, and are not sent"
    if told.cut_to_fit:
        yield f"{told.cut_to_fit:,} spans alone were larger than a message, and are cut: see --message-bytes"
    if told.missing_media:
        yield f"{told.missing_media:,} bodies are sent without their media, which is missing"
