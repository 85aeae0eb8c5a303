"""The reward of an execution: the last one that was given, on its root span or in a ``record_reward`` span."""

from __future__ import annotations

from collections.abc import Iterator

from otel_gym.conventions import REWARD, REWARD_SPAN, REWARD_TIME
from otel_gym.store.executions import Execution, Executions
from otel_gym.store.foreign import agent_lightning
from otel_gym.store.span import StoredSpan

_REWARD_SPANS = (REWARD_SPAN, *agent_lightning.REWARD_SPANS)

# When it was given, the span that says so (to order equal times), and what it says.
_Given = tuple[int, str, float]


def reward_of(executions: Executions, execution: Execution) -> float | None:
    """None where none was given. A reward that names no execution is that of the newest that had begun."""
    given = [*_on_root(execution.root), *_in_spans(execution.spans)]
    given += _in_spans([span for span in executions.ambiguous if _newest_begun(executions, span) is execution])
    return max(given)[2] if given else None


def _on_root(root: StoredSpan | None) -> Iterator[_Given]:
    reward = None if root is None else root.attributes.get(REWARD)
    if root is None or not isinstance(reward, int | float):
        return
    time_ns = root.attributes.get(REWARD_TIME)  # spans of others do not say
    last_ns = root.start_ns if root.end_ns is None else root.end_ns
    yield time_ns if isinstance(time_ns, int) else last_ns, root.span_id, float(reward)


def _in_spans(spans: list[StoredSpan]) -> Iterator[_Given]:
    for span in spans:
        reward = span.attributes.get(REWARD)
        if span.name in _REWARD_SPANS and isinstance(reward, int | float):
            yield span.start_ns, span.span_id, float(reward)


def _newest_begun(executions: Executions, span: StoredSpan) -> Execution | None:
    begun = [each for each in executions.all if each.root is not None and each.root.start_ns <= span.start_ns]
    return begun[-1] if begun else None
