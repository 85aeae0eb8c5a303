"""What is wrong with an ATIF document, also where every public model accepts it.

``lint`` first says what the types of ``records.atif`` refuse, then what one field says against another. An *error* is
a document that readers get wrong numbers or wrong joins from; a *warning* is one that they may.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import ValidationError

from otel_gym.content import finite_number
from otel_gym.records.atif import AtifTrajectory
from otel_gym.records.atif_versions import AUDIO_VERSION, version_number
from otel_gym.wire.items.shapes import objects_of
from otel_gym.wire.usage import token_count

Level = Literal["error", "warning"]

_DOCUMENT = "the document"
_LONG_FRACTION = re.compile(r"[.,]\d{7,}")
_COST = "total_cost_usd"
_SUMS = (
    ("total_prompt_tokens", "prompt_tokens"),
    ("total_completion_tokens", "completion_tokens"),
    ("total_cached_tokens", "cached_tokens"),
    (_COST, "cost_usd"),
)
_BOUNDARIES = ("replace", "append", "truncate")


@dataclass(frozen=True, slots=True)
class Finding:
    """``str``: ``duplicate call_0 in step 2``, ``unknown sub-x in step 4 of subagent sub-a``."""

    level: Level
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.text} in {self.place}"


def lint(document: Mapping[str, Any]) -> list[Finding]:
    """Everything that is wrong, in the order of the document. A document without errors may be given away."""
    return [*_structure(document), *_Document(document).findings()]


def errors(document: Mapping[str, Any]) -> list[Finding]:
    return [finding for finding in lint(document) if finding.level == "error"]


def _structure(document: Mapping[str, Any]) -> Iterator[Finding]:
    try:
        AtifTrajectory.model_validate(document)
    except ValidationError as refused:
        seen = set()
        for problem in reversed(refused.errors(include_url=False)):
            # Of a union every branch complains: the last one is the richest.
            path = _field_path(document, problem["loc"])
            if path not in seen:
                seen.add(path)
                yield _refusal(document, path, problem["msg"])


def _field_path(document: Any, location: Sequence[int | str]) -> tuple[int | str, ...]:
    """The part of a pydantic location that leads through the document: names of union branches do not."""
    path: list[int | str] = []
    for index, name in enumerate(location):
        is_last = index == len(location) - 1
        if isinstance(document, Mapping) and (name in document or is_last):
            document = document.get(name)
        elif isinstance(document, list) and isinstance(name, int) and name < len(document):
            document = document[name]
        else:
            continue
        path.append(name)
    return tuple(path)


def _refusal(document: Mapping[str, Any], path: tuple[int | str, ...], message: str) -> Finding:
    place, rest = "", list(path)
    current: Any = document
    while len(rest) >= 2 and rest[0] == "subagent_trajectories" and isinstance(rest[1], int):
        current = current["subagent_trajectories"][rest[1]]
        name = current.get("trajectory_id") if isinstance(current, dict) else None
        place = f" of subagent {name or rest[1] + 1}"
        rest = rest[2:]
    if len(rest) >= 2 and rest[0] == "steps" and isinstance(rest[1], int):
        place, rest = f"step {rest[1] + 1}{place}", rest[2:]
    else:
        place = place.removeprefix(" of ") or _DOCUMENT
    field = ".".join(map(str, rest))
    message = message.removeprefix("Value error, ")
    return Finding("error", place, f"{field}: {message}" if field else message)


class _Document:
    """The rules of one document and, below it, of its subagents'. Takes any JSON: what is no object is skipped."""

    def __init__(self, document: Mapping[str, Any], path: str = "", known_ids: frozenset[str] = frozenset()) -> None:
        self._document = document
        self._path = path
        self._steps = list(objects_of(document.get("steps")))
        self._subagents = list(objects_of(document.get("subagent_trajectories")))
        ids = (subagent.get("trajectory_id") for subagent in self._subagents)
        self._ids = known_ids | {name for name in ids if isinstance(name, str)}
        self._version = version_number(document.get("schema_version"))

    def findings(self) -> Iterator[Finding]:
        place = self._path.removeprefix(" of ") or _DOCUMENT
        if "schema_version" not in self._document:
            yield Finding("error", place, "no schema_version")
        if self._version < 7 and self._document.get("session_id") is None:
            yield Finding("warning", place, "no session_id, which versions before 1.7 require")
        last: datetime | None = None
        for number, step in enumerate(self._steps, 1):
            here = f"step {number}{self._path}"
            yield from _calls(step, here)
            yield from _metrics(_object(step.get("metrics")), here, self._version)
            if step.get("is_copied_context") is True and step.get("metrics"):
                yield Finding("warning", here, "metrics of a copied step, which were counted where it was made,")
            yield from self._content(step, here)
            yield from self._refs(step, here)
            yield from _boundary(step, here)
            moment = _moment(step.get("timestamp"))
            yield from _timestamp(step.get("timestamp"), moment, last, here)
            last = moment or last
        yield from self._totals(f"final_metrics{self._path}")
        for number, subagent in enumerate(self._subagents, 1):
            path = f" of subagent {subagent.get('trajectory_id') or number}{self._path}"
            yield from _Document(subagent, path, self._ids).findings()

    def _content(self, step: Mapping[str, Any], here: str) -> Iterator[Finding]:
        contents = [step.get("message"), *(result.get("content") for result in _results(step))]
        for part in (part for content in contents for part in objects_of(content)):
            path = _object(part.get("source")).get("path")
            if isinstance(path, str) and path.startswith("data:"):
                yield Finding("error", here, "bytes in the path of a part, which is for a file or a URL,")
            if part.get("type") == "audio" and self._version < version_number(AUDIO_VERSION):
                yield Finding("warning", here, f"audio, which needs {AUDIO_VERSION},")

    def _refs(self, step: Mapping[str, Any], here: str) -> Iterator[Finding]:
        for ref in _refs(step):
            name = ref.get("trajectory_id")
            if name is not None and ref.get("trajectory_path") is None and name not in self._ids:
                yield Finding("error", here, f"unknown subagent {name}")

    def _totals(self, here: str) -> Iterator[Finding]:
        totals = _object(self._document.get("final_metrics"))
        own = [step for step in self._steps if step.get("is_copied_context") is not True]
        for total_name, name in _SUMS:
            total = finite_number(totals.get(total_name))
            known = _metric(own, name)
            if total is None or not known or _is_near(total, math.fsum(known)):
                continue
            if total_name == _COST and self._is_with_subagents(total, math.fsum(known)):
                continue
            yield self._wrong_sum(here, total_name, total, known, name)
        yield from self._step_count(here, totals.get("total_steps"), len(own))

    def _is_with_subagents(self, total: float, own: float) -> bool:
        """The cost of a run is with that of its subagents; those in files of their own are not at hand."""
        if any(ref.get("trajectory_path") for step in self._steps for ref in _refs(step)):
            return total > own
        totals = (_object(subagent.get("final_metrics")) for subagent in self._subagents)
        return _is_near(total, own + math.fsum(finite_number(each.get(_COST)) or 0 for each in totals))

    def _wrong_sum(self, here: str, total_name: str, total: float, known: Sequence[float], name: str) -> Finding:
        """Totals may hold more than the steps: subagents, files before this one, a call that was cut off."""
        own = math.fsum(known)
        said = f"{total_name} is {_shown(total)}, the steps have {_shown(own)}"
        copied = _metric([step for step in self._steps if step.get("is_copied_context") is True], name)
        if copied and _is_near(total, own + math.fsum(copied)):
            return Finding("error", here, f"{said}, copied steps are counted")
        return Finding("warning" if total > own else "error", here, said)

    def _step_count(self, here: str, total: Any, own: int) -> Iterator[Finding]:
        count = token_count(total)
        if count is None or count in (len(self._steps), own):
            return
        level: Level = "warning" if self._document.get("notes") else "error"
        yield Finding(level, here, f"total_steps is {count}, there are {len(self._steps)}")


def _calls(step: Mapping[str, Any], here: str) -> Iterator[Finding]:
    ids = [call.get("tool_call_id") for call in objects_of(step.get("tool_calls"))]
    ids = [name for name in ids if isinstance(name, str)]
    for name, count in Counter(ids).items():
        if count > 1:
            yield Finding("error", here, f"duplicate {name}")
    named = [name for result in _results(step) if isinstance(name := result.get("source_call_id"), str)]
    for name in dict.fromkeys(named):
        if name not in ids:
            yield Finding("error", here, f"unknown {name}")
    if any(result.get("source_call_id") is None for result in _results(step)):
        return  # it may be theirs: some harnesses have one screen for all calls
    for name in dict.fromkeys(ids):
        if name not in named:
            yield Finding("warning", here, f"no observation of {name}")


def _metrics(metrics: Mapping[str, Any], here: str, version: int) -> Iterator[Finding]:
    prompt, completion = token_count(metrics.get("prompt_tokens")), token_count(metrics.get("completion_tokens"))
    cached = token_count(metrics.get("cached_tokens"))
    if prompt is not None and cached is not None and cached > prompt:
        yield Finding("error" if version >= 2 else "warning", here, f"{cached} cached of {prompt} prompt tokens")
    prompt_ids, ids = _length(metrics.get("prompt_token_ids")), _length(metrics.get("completion_token_ids"))
    log_probs = _length(metrics.get("logprobs"))
    if log_probs is not None and ids is not None and log_probs != ids:
        yield Finding("error", here, f"{log_probs} logprobs for {ids} completion_token_ids")
    elif log_probs is not None and ids is None and completion is not None and log_probs != completion:
        yield Finding("warning", here, f"{log_probs} logprobs for {completion} completion_tokens")
    for name, length, count in (("prompt", prompt_ids, prompt), ("completion", ids, completion)):
        if length is not None and count is not None and length != count:
            yield Finding("warning", here, f"{length} {name}_token_ids for {count} {name}_tokens")


def _boundary(step: Mapping[str, Any], here: str) -> Iterator[Finding]:
    managed = _object(step.get("extra")).get("context_management")
    if not isinstance(managed, Mapping):
        return
    if step.get("source") != "system":
        yield Finding("warning", here, "context_management, which is for system steps,")
    if managed.get("boundary") not in _BOUNDARIES:
        yield Finding("warning", here, f"unknown boundary {managed.get('boundary')}")


def _timestamp(text: Any, moment: datetime | None, last: datetime | None, here: str) -> Iterator[Finding]:
    if not isinstance(text, str) or moment is None:
        return
    if "T" not in text and " " not in text.strip():
        yield Finding("error", here, f"a date without a time ({text})")
    elif datetime.fromisoformat(text).tzinfo is None:
        yield Finding("warning", here, f"a time without a zone ({text})")
    elif _LONG_FRACTION.search(text):
        yield Finding("warning", here, f"a time finer than a microsecond, which readers cut or refuse ({text})")
    if last is not None and moment < last:
        yield Finding("error", here, f"time goes back to {text}")


def _moment(text: Any) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _metric(steps: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    values = (finite_number(_object(step.get("metrics")).get(name)) for step in steps)
    return [value for value in values if value is not None]


def _is_near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)


def _shown(number: float) -> str:
    return f"{number:.10g}"


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, list) else None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _results(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(objects_of(_object(step.get("observation")).get("results")))


def _refs(step: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for result in _results(step):
        yield from objects_of(result.get("subagent_trajectory_ref"))
