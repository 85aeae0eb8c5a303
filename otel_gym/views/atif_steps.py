"""Items and generations of a trajectory → steps of an ATIF document.

A step of the agent is one generation with its tool calls and what these gave back. A call that failed or never ended
is a step too. What is unknown is absent; what ATIF has no field for stands in ``extra``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from otel_gym.content import finite_number, known
from otel_gym.records.answers import RESULT_TYPES, Answer
from otel_gym.records.output import CONTEXT_BOUNDARY, boundary_item
from otel_gym.records.said import EXECUTION, STEP_NO, said_item
from otel_gym.records.steps import AgentStep, ContextBoundary, Entry, ToolResult, UserMessage, unix_nano
from otel_gym.store.json_text import parsed
from otel_gym.views.atif_content import Media, content_of, joined
from otel_gym.wire.items.shapes import CALL_TYPES, Item, objects_of
from otel_gym.wire.usage import UNKNOWN

Json = dict[str, Any]

_OF_THE_AGENT = frozenset({"reasoning", *CALL_TYPES, *RESULT_TYPES})
# What ``Generation.extra`` may carry for ``metrics``, in the words of ATIF and in those of NeMo Gym.
_PROMPT_IDS = ("prompt_token_ids",)
_COMPLETION_IDS = ("completion_token_ids", "generation_token_ids")
_LOG_PROBS = ("logprobs", "generation_log_probs")
_COST = "cost_usd"
_IN_METRICS = frozenset({*_PROMPT_IDS, *_COMPLETION_IDS, *_LOG_PROBS, _COST})
_DONE = {"compaction": "Context compaction performed", "pruning": "Context pruned", "injection": "Context injected"}


class Steps:
    """The steps of one agent. ``refs``: call id → references to the subagents that it spawned; ``refs_of_no_call``
    are of its last step. ``has_generations``: else nothing tells what the model made from what it was shown.
    """

    def __init__(
        self,
        refs: Mapping[str, Sequence[Json]],
        media: Media,
        *,
        has_generations: bool = True,
        refs_of_no_call: list[Json] | None = None,
    ) -> None:
        self._refs = refs
        self._media = media
        self._has_generations = has_generations
        self._refs_of_no_call = refs_of_no_call
        self._last_ns: int | None = None
        # Given on when the next one is there: results may still be added to it.
        self._last: Json | None = None

    def made(self, items: Iterable[Item], generations: dict[int, AgentStep]) -> Iterator[Json]:
        """Without ``step_id``: these are given where it is known which steps a document has.

        ``generations`` by their numbers, in order; each must be there before its items come, and is taken out.
        """
        return self._one_behind(self._told_by(items, generations))

    def made_of(self, entries: Iterable[Entry]) -> Iterator[Json]:
        """The same of a list of steps: what is not looked at as items needs not be made into items first."""
        return self._one_behind(map(self._entry, entries))

    def _entry(self, entry: Entry) -> Json:
        if isinstance(entry, UserMessage):
            return self._told(said_item(entry.item))
        if isinstance(entry, ContextBoundary):
            return self._boundary(boundary_item(entry))
        return self._generation(entry, entry.answer or _answer_of(entry.items)[0], entry.results)

    def _one_behind(self, steps: Iterable[Json]) -> Iterator[Json]:
        for step in steps:
            if self._last is not None:
                yield self._last
            self._last = step
        last = self._last or _nothing_done()
        if self._refs_of_no_call is not None:
            observation = last.setdefault("observation", {"results": []})
            observation["results"].append({"subagent_trajectory_ref": self._refs_of_no_call})
        yield last

    def _told_by(self, items: Iterable[Item], generations: dict[int, AgentStep]) -> Iterator[Json]:
        for number, group in _groups(items):
            if number is None:
                yield from self._tell(group)
                continue
            while generations and (waiting := next(iter(generations))) < number:
                # It has no items: it failed, or was cut off.
                yield self._generation(generations.pop(waiting), Answer(), [])
            yield self._generation(generations.pop(number, None), *_answer_of(group))
        while generations:
            yield self._generation(generations.pop(next(iter(generations))), Answer(), [])

    def _tell(self, items: list[Item]) -> Iterator[Json]:
        [first, *_] = items
        if first.get("type") == CONTEXT_BOUNDARY:
            yield self._boundary(first)
        elif first.get("type") in RESULT_TYPES and self._last is not None:
            self._add_results(self._last, items)
        elif _is_agents(first):
            step = self._agent_step(*_answer_of(items))
            if self._has_generations:
                step["is_copied_context"] = True
            yield step
        else:
            yield self._told(first)

    def _add_results(self, step: Json, items: list[Item]) -> None:
        """Results that no call is known for belong to what was done last."""
        results = step.setdefault("observation", {"results": []})["results"]
        results += [self._result(result, None) for result in _answer_of(items)[1]]

    def _told(self, item: Item) -> Json:
        role = item.get("role")
        message = content_of(item.get("content"), self._media)
        step: Json = {"source": "user" if role == "user" else "system", "message": message}
        if role not in ("user", "system"):
            step["extra"] = {"role": role} if isinstance(role, str) else {"item": item}
        return step

    def _boundary(self, item: Item) -> Json:
        kind = str(item.get("kind") or "compaction")
        managed = {
            "type": kind,
            "boundary": item.get("boundary"),
            "trigger": item.get("trigger"),
            "tokens_before": item.get("tokens_before"),
            "tokens_after": item.get("tokens_after"),
            "keeps_instructions": item.get("keeps_instructions"),
        }
        results = [self._kept(kept) for kept in objects_of(item.get("content"))]
        step = {
            "source": "system",
            "message": _DONE.get(kind, f"Context changed: {kind}"),
            "timestamp": self._time(item.get("timestamp"), unix_nano(item.get("timestamp"))),
            "observation": {"results": results} if results else None,
            "extra": {"context_management": known(managed)},
        }
        return known(step)

    def _kept(self, item: Item) -> Json:
        """What later calls saw: messages as content, other items as they are."""
        if item.get("type", "message") != "message":
            return {"extra": {"item": item}}
        role = item.get("role")
        result: Json = {"content": content_of(item.get("content"), self._media)}
        return result if role == "user" else {**result, "extra": {"role": role}}

    def _generation(self, generation: AgentStep | None, answer: Answer, results: list[ToolResult]) -> Json:
        step = self._agent_step(answer, results)
        if generation is not None:
            told = {
                "model_name": generation.model,
                "metrics": _metrics(generation),
                "llm_call_count": 1 if _had_call(generation) else None,
                "timestamp": self._time_of(generation),
                "extra": _extra(generation) | step.get("extra", {}) or None,
            }
            step |= known(told)
        return step

    def _agent_step(self, answer: Answer, told: list[ToolResult]) -> Json:
        calls, same_ids = _calls(answer.calls)
        results = self._results(told, calls, same_ids)
        message = joined([content_of(each, self._media) for each in answer.messages])
        step: Json = {"source": "agent", "message": message}
        if answer.reasoning:
            step["reasoning_content"] = "\n".join(answer.reasoning)
        if calls:
            step["tool_calls"] = calls
        if results:
            step["observation"] = {"results": results}
        if same_ids or answer.others:
            step["extra"] = known({"tool_call_ids": same_ids or None, "other_items": answer.others or None})
        return step

    def _results(self, told: list[ToolResult], calls: list[Json], same_ids: Mapping[str, str | None]) -> list[Json]:
        """Each with the id of its call; of calls that had one id the first result is of the first call."""
        open_ids = [call["tool_call_id"] for call in calls]
        results = []
        for result in told:
            mine = _first_open(open_ids, same_ids, result.call_id)
            if mine is not None:
                open_ids.remove(mine)
            results.append(self._result(result, mine))
        if not self._refs:
            return results
        spawned = {name: list(self._refs.get(same_ids.get(name, name) or "", ())) for name in open_ids}
        return results + [
            {"source_call_id": name, "subagent_trajectory_ref": refs} for name, refs in spawned.items() if refs
        ]

    def _result(self, told: ToolResult, call_id: str | None) -> Json:
        failed = told.error_message is not None or told.error_data is not None
        content = content_of(told.output, self._media)
        refs = self._refs.get(told.call_id) if self._refs and isinstance(told.call_id, str) else None
        extra = known(told.extra) if told.extra else {}
        if told.started_at is not None:
            extra["started_at"] = told.started_at
        if told.completed_at is not None:
            extra["completed_at"] = told.completed_at
        if told.duration_ms is not None:
            extra["duration_ms"] = told.duration_ms
        if failed:
            extra["error"] = {"message": told.error_message, "data": told.error_data}
        if call_id is None:
            extra["tool_call_id"] = told.call_id
        result: Json = {} if call_id is None else {"source_call_id": call_id}
        if content or not failed:
            result["content"] = content
        if refs:
            result["subagent_trajectory_ref"] = list(refs)
        if extra:
            result["extra"] = extra
        return result

    def _time_of(self, generation: AgentStep) -> str | None:
        if generation.started_at is not None:
            return self._time(generation.started_at, generation.start_ns())
        return self._time(generation.ended_at, generation.end_ns())

    def _time(self, text: str | None, moment: int | None) -> str | None:
        """A step's time, unless it would go back: then it is only in ``extra``."""
        if moment is None or (self._last_ns is not None and moment < self._last_ns):
            return None
        self._last_ns = moment
        return text


def _answer_of(items: Iterable[Item]) -> tuple[Answer, list[ToolResult]]:
    """An answer, and what its tools gave."""
    answer, results = Answer(), []
    for item in items:
        if item.get("type") in RESULT_TYPES:
            results.append(_result_of(item))
        else:
            answer.add(item)
    return answer, results


def _result_of(item: Item) -> ToolResult:
    execution = item.get(EXECUTION) or {}
    error = execution.get("error") or {}
    return ToolResult(
        item.get("call_id"),
        item.get("output"),
        execution.get("started_at"),
        execution.get("completed_at"),
        execution.get("duration_ms"),
        error.get("message"),
        error.get("data"),
        execution.get("extra") or {},
    )


def _groups(items: Iterable[Item]) -> Iterator[tuple[int | None, list[Item]]]:
    """The items of each step of the agent together; of what has no number, an answer with its calls and results."""
    group: list[Item] = []
    number: int | None = None
    for item in items:
        its_number = item.get(STEP_NO)
        goes_on = bool(group) and its_number == number
        if goes_on and number is None:
            goes_on = _is_agents(item) and _is_agents(group[-1]) and not _opens_answer(item, group[-1])
        if group and not goes_on:
            yield number, group
            group = []
        number = its_number
        group.append(item)
    if group:
        yield number, group


def _nothing_done() -> Json:
    return {"source": "system", "message": "The run ended before anything was said."}


def _is_agents(item: Item) -> bool:
    return item.get("role") == "assistant" or item.get("type") in _OF_THE_AGENT


def _opens_answer(item: Item, last: Item) -> bool:
    """What a model makes after results of tools, or after it had spoken, is a new answer."""
    if item.get("type") in RESULT_TYPES:
        return False  # it is of the calls before
    return last.get("type") in RESULT_TYPES or (last.get("role") == "assistant" and item.get("role") == "assistant")


def _calls(items: list[Item]) -> tuple[list[Json], dict[str, str | None]]:
    """Calls with ids of their own, and which of these stand for what the source said (R086)."""
    calls: list[Json] = []
    same: dict[str, str | None] = {}
    used: set[str] = set()
    for item in items:
        told = item.get("call_id")
        if isinstance(told, str) and told not in used:
            name = told
        else:
            name = _unused(told, used, items)
            same[name] = told if isinstance(told, str) else None
        used.add(name)
        calls.append(_call(item, name))
    return calls, same


def _unused(told: Any, used: set[str], items: list[Item]) -> str:
    taken = used | {other for item in items if isinstance(other := item.get("call_id"), str)}
    name = told if isinstance(told, str) else "call"
    number = 2 if name in used else 1
    while (unique := f"{name}-{number}") in taken:
        number += 1
    return unique


def _first_open(open_ids: list[str], same_ids: Mapping[str, str | None], told: str | None) -> str | None:
    """Of the calls without a result the first of that id."""
    if not same_ids:
        return told if told in open_ids else None
    return next((name for name in open_ids if same_ids.get(name, name) == told), None)


def _call(item: Item, call_id: str) -> Json:
    arguments, raw = _arguments(item)
    call: Json = {"tool_call_id": call_id, "function_name": str(item.get("name") or ""), "arguments": arguments}
    if item.get("arguments", "") is None:  # told by its run, which kept no content
        raw, call["extra"] = None, {"content_not_recorded": True}
    return call if raw is None else {**call, "extra": {"raw_arguments": raw}}


def _arguments(item: Item) -> tuple[Json, Any]:
    """Arguments as an object; what is none is given as it came."""
    if item.get("type") == "custom_tool_call":
        return {"input": item.get("input")}, None
    text = item.get("arguments")
    if isinstance(text, dict):
        return text, None
    arguments = parsed(text)
    return (arguments, None) if isinstance(arguments, dict) else ({}, text)


def _had_call(generation: AgentStep) -> bool:
    """A step may be known by its tools alone: whether a model was asked in it, nobody said."""
    known_by = (generation.model, generation.response_id, generation.request_id, generation.error)
    return generation.usage != UNKNOWN or any(value is not None for value in known_by)


def _metrics(generation: AgentStep) -> Json | None:
    usage, extra = generation.usage, generation.extra
    prompt, cached = usage.tokens_in, usage.cached_tokens
    more = {
        "reasoning_tokens": usage.tokens_reasoning,
        "cache_creation_input_tokens": usage.cache_creation_tokens,
        "total_tokens": usage.tokens_total,
    }
    metrics = {
        "prompt_tokens": prompt,
        "completion_tokens": usage.tokens_out,
        "cached_tokens": None if cached is None or prompt is None or cached > prompt else cached,
        "extra": known(more) or None,
        **({} if _IN_METRICS.isdisjoint(extra) else _told_metrics(extra)),
    }
    return known(metrics) or None


def _told_metrics(extra: Mapping[str, Any]) -> Json:
    ids, log_probs = _ints(_first(extra, _COMPLETION_IDS)), _numbers(_first(extra, _LOG_PROBS))
    return {
        "cost_usd": finite_number(extra.get(_COST)),
        "prompt_token_ids": _ints(_first(extra, _PROMPT_IDS)),
        "completion_token_ids": ids,
        # One for each token, or they say nothing.
        "logprobs": None if ids is not None and log_probs is not None and len(ids) != len(log_probs) else log_probs,
    }


def _extra(generation: AgentStep) -> Json:
    start, end = generation.start_ns(), generation.end_ns()
    said = {
        "started_at": generation.started_at,
        "completed_at": generation.ended_at,
        "duration_ms": None if start is None or end is None else (end - start) / 10**6,
        "stop_reason": generation.stop_reason,
        "response_id": generation.response_id,
        "request_id": generation.request_id,
        "error": generation.error,
        "unfinished": True if generation.is_unfinished else None,
    }
    more = generation.extra
    if not _IN_METRICS.isdisjoint(more):
        more = {name: value for name, value in more.items() if name not in _IN_METRICS}
    return known({**more, **said})


def _first(values: Mapping[str, Any], spellings: Sequence[str]) -> Any:
    return next((values[name] for name in spellings if values.get(name) is not None), None)


def _ints(values: Any) -> list[int] | None:
    return values if isinstance(values, list) and all(type(value) is int for value in values) else None


def _numbers(values: Any) -> list[float] | None:
    return values if isinstance(values, list) and all(finite_number(value) is not None for value in values) else None
