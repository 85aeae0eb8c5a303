"""Rows of a rollouts file (NeMo Gym's ``rollouts.jsonl``, one JSON object a line): which rollout each is of, and what
was scored. A row is never written anew: what is added goes into its text, all else stays as it is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_gym.id_rules import is_valid_id, is_valid_run_id
from otel_gym.identity import rollout_id_from_indices
from otel_gym.store.lines import Report, lines_of_file
from otel_gym.store.repair import Damage

CAPTURE = "ng_model_call_capture"
# Ours: what Dynamo says of the calls.
DYNAMO = "gym_dynamo"
OBSERVATIONS = "ng_agent_observations"

_ROLLOUT_ID, _TASK, _ROLLOUT, _ATTEMPT = "_ng_rollout_id", "_ng_task_index", "_ng_rollout_index", "_ng_attempt_index"
_KEYS_SAID = f"give it {_TASK} and {_ROLLOUT}, or {_ROLLOUT_ID}"
_INTEGERS_LIMIT = 4300
_BOM = b"\xef\xbb\xbf"

Json = dict[str, Any]


class RowError(ValueError):
    """A row that names no rollout; the text says why."""


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """``line`` counts from 1. ``rollout_id`` None: the row names none, and ``problem`` says why; ``run_id`` None: it
    says nothing of its run. ``reward`` None: there is none that counts, ``status`` says why where the row does.

    ``has_capture``: model calls were attached to it before.
    """

    line: int
    rollout_id: str | None
    run_id: str | None = None
    task_index: int | None = None
    rollout_index: int | None = None
    attempt: int | None = None
    reward: float | None = None
    status: str | None = None
    has_capture: bool = False
    problem: str | None = None


def rollout_rows(path: Path, report: Report) -> Iterator[RolloutRow]:
    """The rows of a file; a line that is none is reported, and passed over."""
    for number, text in row_texts(path, report):
        try:
            row = _loaded(text)
        except (ValueError, RecursionError) as problem:
            report(Damage(path, number, _said(problem), "the line is left out; mend it and join again"))
            continue
        yield _row(row, number)


def row_texts(path: Path, report: Report) -> Iterator[tuple[int, bytes]]:
    """Each line that is not blank, with its number, as it is written."""
    for line in lines_of_file(path, report):
        text = line.content.strip()
        if line.number == 1:
            text = text.removeprefix(_BOM)
        if text:
            yield line.number, text


def _loaded(text: bytes) -> Json:
    decoded = text.decode("utf-8")
    try:
        row = json.loads(decoded)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer that Python does not read unless it is asked to
        row = json.loads(decoded, parse_int=lambda digits: int(digits) if len(digits) < _INTEGERS_LIMIT else digits)
    if not isinstance(row, dict):
        raise ValueError("no JSON object")
    return row


def _said(problem: Exception) -> str:
    if isinstance(problem, json.JSONDecodeError):
        return f"no JSON ({problem.msg.lower()}, column {problem.colno})"
    if isinstance(problem, UnicodeDecodeError):
        return "no UTF-8"
    return "nested too deep" if isinstance(problem, RecursionError) else str(problem)


def _row(row: Json, line: int) -> RolloutRow:
    run_id = row.get("run_id")
    said: Json = {
        "run_id": run_id if isinstance(run_id, str) and is_valid_run_id(run_id) else None,
        "task_index": _index(row.get(_TASK)),
        "rollout_index": _index(row.get(_ROLLOUT)),
        "attempt": _index(row.get(_ATTEMPT)),
        "reward": _reward(row),
        "status": _status(row),
        "has_capture": CAPTURE in row,
    }
    try:
        return RolloutRow(line, rollout_id_of_row(row), **said)
    except RowError as problem:
        return RolloutRow(line, None, **said, problem=str(problem))


def rollout_id_of_row(row: Json) -> str:
    """As NeMo Gym names it: the row's own id, else that of its indices, with its attempt. Rows of others say
    ``rollout_id``. RowError.
    """
    attempt = _checked_index(row, _ATTEMPT) or 0
    own = row.get(_ROLLOUT_ID)
    if own is not None:
        rollout_id = own
    elif row.get(_TASK) is not None and row.get(_ROLLOUT) is not None:
        rollout_id = rollout_id_from_indices(_checked_index(row, _TASK) or 0, _checked_index(row, _ROLLOUT) or 0)
    elif row.get("rollout_id") is not None:
        rollout_id, attempt = row["rollout_id"], 0
    else:
        raise RowError(f"it names no rollout; {_KEYS_SAID}")
    if isinstance(rollout_id, str) and attempt:
        rollout_id = f"{rollout_id}-a{attempt}"
    if not isinstance(rollout_id, str) or not is_valid_id(rollout_id):
        raise RowError(f"{str(rollout_id)[:80]!r} is no rollout id; {_KEYS_SAID}")
    return rollout_id


def _checked_index(row: Json, name: str) -> int | None:
    value = row.get(name)
    if value is not None and _index(value) is None:
        raise RowError(f"{name} is {str(value)[:80]!r}, no whole number; {_KEYS_SAID}")
    return _index(value)


def _index(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _reward(row: Json) -> float | None:
    """None also of a judge that failed, and of a sample that was masked: what stands there was not judged."""
    reward = row.get("reward")
    if isinstance(reward, bool) or not isinstance(reward, int | float) or _not_judged(row):
        return None
    try:
        return float(reward) if math.isfinite(reward) else None
    except OverflowError:
        return None


def _not_judged(row: Json) -> str | None:
    if row.get("judge_failed") is True:
        return "judge_failed"
    return "masked" if row.get("mask_sample") is True else None


def _status(row: Json) -> str | None:
    kind = row.get("failure_kind")
    return _not_judged(row) or (kind if isinstance(kind, str) and kind else None)


def observations_of(text: bytes) -> Any:
    """What the agent told of itself, in the text of a row that was read before; None for nothing."""
    return _loaded(text).get(OBSERVATIONS) if OBSERVATIONS.encode() in text else None


def with_member(text: bytes, name: str, value: bytes) -> bytes:
    """The row's text with an attachment (JSON) as its last member, or in the place of the one that it has."""
    body = text.rstrip()
    found = _place_of_value(text.decode("utf-8"), name) if name.encode() in text else None
    if found is not None:
        before, after = found
        return before.encode("utf-8") + value + after.encode("utf-8")
    head = body[:-1].rstrip()
    comma = b"" if head.endswith(b"{") else b", " if b'": ' in head[:200] else b","
    space = b" " if comma == b", " else b""
    return head + comma + b'"%b":' % name.encode() + space + value + b"}"


_SPACE = " \t\r\n"


def _place_of_value(text: str, name: str) -> tuple[str, str] | None:
    """What stands before and behind the value of a member of the object that ``text`` is; of equal names the last."""
    decoder = json.JSONDecoder(parse_int=str)
    found = None
    at = text.index("{") + 1
    while True:
        at = _behind(text, at, _SPACE + ",")
        if text[at] == "}":
            return found
        key, at = decoder.raw_decode(text, at)
        start = _behind(text, at, _SPACE + ":")
        _, at = decoder.raw_decode(text, start)
        if key == name:
            found = text[:start], text[at:]


def _behind(text: str, at: int, passed: str) -> int:
    while text[at] in passed:
        at += 1
    return at
