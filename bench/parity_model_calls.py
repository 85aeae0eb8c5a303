"""Is a record that we rebuild from disk the one that the real NeMo Gym 0.7.0 built from the same traffic?

    python bench/parity_model_calls.py DIR

DIR holds ``cases.jsonl`` (what NeMo Gym made) and ``http/CASE.json`` (the traffic). Every case is driven through the
middleware into a store, and the records are read back from its files. A field may differ from NeMo Gym's only by a
rule of docs/nemo-gym-parity.md: the traffic meets the rule's condition, and the value is the one that a second,
naive reading of the traffic (reference.py) gives. Names of cases decide nothing. Exit code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import reference
from captured import CaptureSession, StoredCall, always
from parity_traffic import RESPONSE_RULES, Traffic
from scripted import EPOCH_SECONDS, ClientView, ScriptedServer, VirtualClock, call, nanoseconds

Object = dict[str, Any]

KEEP_ALIVE = b": keep-alive\n\n"
NOT_COMPARED = frozenset({"call_index"})

# Rule → what differs. Conditions and reasons stand in docs/nemo-gym-parity.md; a test keeps the two in step.
RULES = {
    "D1": "latency_ttft_ms of a stream is the first content event",
    "D2": "latency_total_ms ends at the final body message",
    "D3": "response of a stream is kept whole",
    "D3r": "Responses stream without terminal envelope: output rebuilt",
    "D3e": "Responses envelope that lists no output: the items that ended before it",
    "D3n": "Chat stream with several choices: every choice",
    "D3s": "Messages stream without message_start: message_delta is kept",
    "D3f": "Messages stream in which another model took over: that model",
    "D4": "prompt_tokens wins, the cache is not added to it",
    "D5": "rollout id that may not name a folder: no record",
    "D6": "compressed bodies are decoded",
    "N1": "partial response of a stream that ended in an exception",
    "N2": "terminal event known by its payload's type alone",
    "N3": "lines that end in a bare CR",
    "N4": "media type in another case is a stream all the same",
    "N5": "[DONE] with trailing blanks ends the stream",
    "N6": "tool arguments are always an object",
    "N7": "odd chunks do not lose the response",
    "N8a": "tool fragments without an index of their own",
    "N8b": "tool name in fragments",
    "N8c": "custom tool in a Chat stream",
    "N8d": "tool_use with a prefilled input and deltas",
    "N9": "reasoning content where there is no summary",
    "N10": "a bool is no status code",
    "N11": "U+2028, U+2029 and U+0085 inside a line are text",
    "N12": "raw_path keeps the client's percent-encoding",
    "N13": "a path with a line feed is no model call",
    "R009": "an error that is false, 0 or empty is none",
    "R007": "a byte order mark before the first event",
    "R011": "empty id or model never overwrites a known one",
    "R020": "null usage fields never overwrite a known count",
    "R028": "the client hung up after the terminal event",
}


# ── what each field must be ────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Comparison:
    """One case. ``rules`` collects the rules that explain its differences, ``wrong`` what none explains."""

    traffic: Traffic
    ours: Object
    gym: Object
    rules: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    def differs(self, name: str) -> bool:
        return name in self.gym and not same(self.ours.get(name), self.gym[name])

    def run(self, right: Object) -> None:
        decided = right.get("fields", {})
        for name in self.gym:
            if name in NOT_COMPARED:
                continue
            if name in decided:
                self._compare_decided(name, decided[name])
            elif self.differs(name):
                self._explain(name)
        for name, expected in REFERENCE_FIELDS.items():
            if name in self.gym and name not in decided:
                self._require(name, expected(self))
        self._require_answer(decided)

    def _compare_decided(self, name: str, value: Any) -> None:
        if not same(self.ours.get(name), value):
            self._say_wrong(name, value, "the right value")

    def _explain(self, name: str) -> None:
        explain = EXPLANATIONS.get(name)
        rules = explain(self) if explain else set()
        self.shown.append(f"{name}: {short(self.ours.get(name))}, NeMo Gym {short(self.gym[name])} [{_listed(rules)}]")
        if rules:
            self.rules |= rules
        else:
            self._say_wrong(name, self.gym[name], "NeMo Gym's value")

    def _require(self, name: str, expected: Any) -> None:
        if not same(self.ours.get(name), expected):
            self._say_wrong(name, expected, "the reference's value")

    def _require_answer(self, decided: Object) -> None:
        """Whatever the response is, the fields read off it must follow from it."""
        expected = reference.answer_fields(self.ours.get("request"), self.ours.get("response"))
        for name, value in expected.items():
            if name in self.gym and name not in decided:
                self._require(name, value)
        if self.traffic.is_stream and "response" not in decided:
            self.wrong += [f"response: {problem}" for problem in stream_problems(self.traffic, self.ours["response"])]

    def _say_wrong(self, name: str, expected: Any, what: str) -> None:
        problem = f"{name}: {short(self.ours.get(name))}, {what} is {short(expected)}"
        if problem not in self.wrong:
            self.wrong.append(problem)


def _expected_first_content(case: Comparison) -> Any:
    if not case.traffic.is_stream:
        return case.gym["latency_ttft_ms"]
    at_ms = case.traffic.first_content_ms
    return None if at_ms is None else round(at_ms, 2)


def _expected_category(case: Comparison) -> Any:
    traffic = case.traffic
    if (traffic.upstream.get("execution") or {}).get("local_response_reason") == "context_length_exceeded":
        return "context_length_exceeded"
    by_status = reference.category_of_status(traffic.status)
    if by_status is not None:
        return by_status
    if traffic.raised is not None and not traffic.hung_up_when_done:
        return reference.category_of_exception(traffic.raised)
    if traffic.is_stream and traffic.terminal != "complete":
        return {"error": "upstream_error", "incomplete": "incomplete", None: "stream_truncated"}[traffic.terminal]
    return "capture_parse_error" if traffic.body and case.ours["response"] is None else None


def _expected_request(case: Comparison) -> Any:
    return reference.load_object(case.traffic.request_text)


def _expected_request_raw(case: Comparison) -> Any:
    body = case.traffic.request_text
    return None if not body or reference.load_object(body) is not None else body.decode("utf-8", "replace")


def _expected_response_raw(case: Comparison) -> Any:
    traffic = case.traffic
    body = traffic.body or reference.body_of_exception(traffic.raised)
    is_read = not traffic.is_stream and case.ours["response"] is not None
    return None if not body or is_read else body.decode("utf-8", "replace")


REFERENCE_FIELDS: dict[str, Callable[[Comparison], Any]] = {
    "latency_ttft_ms": _expected_first_content,
    "latency_total_ms": lambda case: round(case.traffic.end_ms, 2),
    "status_code": lambda case: case.traffic.status,
    "error_category": _expected_category,
    "request": _expected_request,
    "request_raw": _expected_request_raw,
    "response_raw": _expected_response_raw,
}


# ── a streamed response, held against the naive reading ────────────────────────────────────────────────────────────

MADE_BY_REASSEMBLY = frozenset({"chat.completion", "message", "assistant", "function", "custom", "output_text"}) | {
    "summary_text",
    "reasoning_text",
    "reasoning",
    "text",
    "thinking",
    "tool_use",
    "function_call",
    "custom_tool_call",
    "text_completion",
    "in_progress",
    "refusal",
    "response",
}


def stream_problems(traffic: Traffic, response: Any) -> Iterator[str]:
    """What is wrong with our response to a stream: not what the traffic says, not whole, or made up."""
    dialect = traffic.dialect or ""
    expected = reference.STREAMS[dialect](traffic.events)
    if response is None or expected is None:
        if response is not expected:
            yield f"{short(response)}, the reference reads {short(expected)}"
        return
    ours = reference.REDUCTIONS[dialect](response)
    for path, one, other in unlike(ours, expected):
        yield f"{path} differs: {short(one)}, reference {short(other)}"
    known = {*scalars(traffic.payloads), *scalars(expected), *joined(traffic.payloads)}
    known = {well_formed(value) for value in known} | MADE_BY_REASSEMBLY
    said = map(well_formed, scalars(response))
    yield from (f"{short(value)} is not in the traffic" for value in said if value not in known)


def scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for item in value.values():
            yield from scalars(item)
    elif isinstance(value, list):
        for item in value:
            yield from scalars(item)
    elif (isinstance(value, str) and value) or type(value) is float or (type(value) is int and value > 64):
        yield value


def joined(payloads: list[Object]) -> Iterator[str]:
    """Per key: all texts under it put together, as deltas are."""
    texts: dict[str, str] = {}

    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, key)
        elif isinstance(value, list):
            for item in value:
                walk(item, name)
        elif isinstance(value, str):
            texts[name] = texts.get(name, "") + value

    walk(payloads, "")
    yield from texts.values()


def unlike(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for name in one:
            yield from unlike(one[name], other[name], f"{path}.{name}" if path else name)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from unlike(left, right, f"{path}[{index}]")
    elif not same(one, other):
        yield path, one, other


# ── which rules a difference may be due to ───────────────────────────────────────────────────────────────────────────


def _explain_response(case: Comparison) -> set[str]:
    if not case.traffic.is_stream:
        return _explain_plain(case)
    if projects_onto(case.ours.get("response"), case.gym.get("response"), case.traffic.dialect or ""):
        return {"D3"}
    return {rule for rule, applies in RESPONSE_RULES.items() if applies(case.traffic)}


def _explain_plain(case: Comparison) -> set[str]:
    decoded = case.traffic.body != case.traffic.raw_body
    return {"D6"} if decoded and same(case.ours["response"], reference.load_object(case.traffic.body)) else set()


def projects_onto(ours: Any, gym: Any, dialect: str) -> bool:
    """Whether NeMo Gym's response is ours without what it leaves out of a stream."""
    if not isinstance(ours, dict) or not isinstance(gym, dict):
        return False
    return same(PROJECTIONS[dialect](ours), PROJECTIONS[dialect](gym))


def _project_chat(response: Object) -> Object:
    """A function call without what lies beside its name and arguments; an id that is no text, an empty usage: none."""
    reduced = reference.reduce_chat(response)
    return {
        "id": reference.text_or_none(response.get("id")),
        "model": response.get("model") or None,
        "usage": response.get("usage") or None,
        "choices": [_project_chat_choice(choice) for choice in reduced["choices"]],
    }


def _project_chat_choice(choice: Object) -> Object:
    reasoning = choice["reasoning"]
    return {
        **{name: choice[name] for name in ("role", "finish_reason")},
        "reasoning": reasoning.get("reasoning_content") or reasoning.get("reasoning"),
        "content": choice["content"] or None,
        "refusal": choice["message"].get("refusal") or None,
        "tool_calls": [_project_chat_call(call_id, bodies) for call_id, bodies, _ in choice["tool_calls"]],
    }


def _project_chat_call(call_id: Any, bodies: Object) -> list[Any]:
    called = bodies.get("function", {})
    return [call_id, called.get("name"), called.get("arguments"), "custom" in bodies]


def _project_messages(response: Object) -> Object:
    names = ("id", "role", "model", "stop_reason")
    usage = reference.without_nulls(reference.an_object(response.get("usage")))
    content = [
        [block.get(name) for name in ("type", "id", "name", "data")]
        + [block.get("text") or "", block.get("thinking") or ""]
        + [block.get("input") or {} if block.get("type") == "tool_use" else None]
        for block in reference.objects(response.get("content"))
    ]
    return {**{name: response.get(name) for name in names}, "usage": usage, "content": content}


PROJECTIONS: dict[str, Callable[[Object], Object]] = {
    "chat": _project_chat,
    "messages": _project_messages,
    "responses": lambda response: response,
}


def _explain_answer(*alone: str) -> Callable[[Comparison], set[str]]:
    """A field that is read off the response differs because the response does, else by one of ``alone``."""

    def explain(case: Comparison) -> set[str]:
        rules = _explain_response(case) if case.differs("response") else set()
        if case.differs("request"):
            rules |= _explain_request(case)
        return rules | {rule for rule in alone if ANSWER_RULES[rule](case)}

    return explain


def _has_prompt_tokens(case: Comparison) -> bool:
    """prompt_tokens beside another spelling of the prompt's size, from which NeMo Gym's sum differs."""
    usage = (case.ours.get("response") or {}).get("usage")
    if not isinstance(usage, dict) or reference.count(usage.get("prompt_tokens")) is None:
        return False
    return any(reference.count(usage.get(name)) for name in ("input_tokens", *reference.CACHE_FIELDS))


def _arguments_are_no_object(case: Comparison) -> bool:
    gym = [call["arguments"] for call in case.gym["tool_calls"]]
    ours = [call["arguments"] for call in case.ours["tool_calls"]]
    return len(gym) == len(ours) and all(
        same(one, other) or not isinstance(other, dict) or other in ({}, {"_raw": ""})
        for one, other in zip(ours, gym, strict=True)
    )


def _only_reasoning_content(case: Comparison) -> bool:
    items = reference.objects((case.ours.get("response") or {}).get("output"))
    return any(item.get("type") == "reasoning" and not item.get("summary") and item.get("content") for item in items)


ANSWER_RULES: dict[str, Callable[[Comparison], bool]] = {
    "D4": _has_prompt_tokens,
    "N6": _arguments_are_no_object,
    "N9": _only_reasoning_content,
}


def _explain_category(case: Comparison) -> set[str]:
    traffic = case.traffic
    rules = {"N2"} if _known_by_payload_alone(traffic) else set()
    if traffic.dialect == "chat" and any(map(_error_says_nothing, traffic.payloads)):
        rules.add("R009")
    if traffic.dialect == "chat" and any(re.fullmatch(r"\[DONE\]\s+", event.data) for event in traffic.events):
        rules.add("N5")
    broken = ("R028", "N3", "N4", "N11", "D6", "N7", "D3r", "D3s", "R007")
    return rules | {rule for rule in broken if RESPONSE_RULES[rule](traffic)}


def _error_says_nothing(payload: Object) -> bool:
    error = payload.get("error")
    return error is not None and not isinstance(error, dict) and not error


def _known_by_payload_alone(traffic: Traffic) -> bool:
    """The event that ends the stream has no ``event:`` line (and is not Chat's ``[DONE]``)."""
    for number, event in enumerate(traffic.events, start=1):
        if reference.terminal(traffic.events[:number], traffic.dialect or "") is not None:
            return event.name == "" and event.data.strip() != "[DONE]"
    return False


def _explain_request(case: Comparison) -> set[str]:
    return set() if case.traffic.request_text == case.traffic.request_body else {"D6"}


def _explain_response_raw(case: Comparison) -> set[str]:
    return {rule for rule in ("D6", "N4", "N7") if RESPONSE_RULES[rule](case.traffic)}


EXPLANATIONS: dict[str, Callable[[Comparison], set[str]]] = {
    "latency_ttft_ms": lambda case: {"D1"} if case.traffic.is_stream else set(),
    "latency_total_ms": lambda case: {"D2"} if case.traffic.returns_late else set(),
    "status_code": lambda case: {"N10"} if isinstance(getattr(case.traffic.raised, "status", None), bool) else set(),
    "error_category": _explain_category,
    "request": _explain_request,
    "request_raw": _explain_request,
    "response": _explain_response,
    "response_raw": _explain_response_raw,
    "tokens_in": _explain_answer("D4"),
    "tokens_total": _explain_answer("D4"),
    "tool_calls": _explain_answer("N6"),
    "reasoning_content": _explain_answer("N9"),
    **{
        name: _explain_answer()
        for name in (
            "response_id",
            "response_status",
            "model",
            "finish_reason",
            "tokens_out",
            "tokens_reasoning",
            "cached_tokens",
            "cache_hit",
            "cache_creation_tokens",
        )
    },
}


# ── the client, existence ──────────────────────────────────────────────────────────────────────────────────────────


def client_problems(traffic: Traffic, view: ClientView, saw: dict[str, str], rules: set[str]) -> Iterator[str]:
    """What client and application saw. ``rules`` collects those by which it is not what they see with NeMo Gym."""
    client = traffic.http["client"]
    seen = {
        "status": view.status,
        "headers": view.headers,
        "body_messages": len(view.messages),
        "body_sha256": view.body_sha256,
        "raised": view.raised,
    }
    for name, value in seen.items():
        if name in client and value != client[name]:
            yield f"client's {name}: {short(value)}, should be {short(client[name])}"
    for name, value in (traffic.http.get("app_saw") or {}).items():
        decided = {rule: path[name] for rule, path in traffic.decided_paths.items() if path.get(name, value) != value}
        rules |= decided.keys()
        expected = next(iter(decided.values()), value)
        if saw.get(name) != expected:
            yield f"the application saw {name} {saw.get(name)!r}, should be {expected!r}"


def kept_record(name: str, traffic: Traffic, ours: Object) -> Object:
    """What must be kept of an exchange that NeMo Gym lost, or that has no record here: the traffic as it is read.

    Our reading of a stream stands in for NeMo Gym's; it is held against the naive one in any case, and so is what
    REFERENCE_FIELDS tells of every exchange.
    """
    response = None if traffic.is_stream or traffic.exception else reference.load_object(traffic.body)
    first_byte_ms = next((at_ms for at_ms, chunk in traffic.chunks if chunk and chunk != KEEP_ALIVE), None)
    expected: Object = {
        "model_call_id": model_call_id(name),
        "dialect": traffic.dialect,
        "client_session_id": traffic.client_session_id,
        "started_at": float(EPOCH_SECONDS),
        "latency_total_ms": round(traffic.end_ms, 2),
        "latency_ttft_ms": None if first_byte_ms is None else round(first_byte_ms, 2),
    }
    case = Comparison(traffic, ours, expected)
    expected |= {name: expect(case) for name, expect in REFERENCE_FIELDS.items() if name not in expected}
    answer = reference.answer_fields(expected["request"], response)
    if traffic.is_stream:
        return expected | {name: ours[name] for name in ("response", *answer)}
    return expected | {"response": response} | answer


def stored_problems(traffic: Traffic, calls: list[StoredCall]) -> Iterator[str]:
    """One record, under its rollout, whose span says when the first chunk came (comments are chunks)."""
    if len(calls) > 1:
        yield f"{len(calls)} records are stored"
    for found in calls:
        if found.rollout_id != traffic.rollout_id:
            yield f"stored under rollout {found.rollout_id}"
        first_ms = next((at_ms for at_ms, chunk in traffic.chunks if chunk), None) if traffic.is_stream else None
        expected = None if first_ms is None else nanoseconds(first_ms) / 10**9
        stated = found.span.attributes.get("gen_ai.response.time_to_first_chunk")
        if stated != expected:
            yield f"gen_ai.response.time_to_first_chunk: {stated}, the first chunk came at {expected} s"


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: no bool for a number, and U+FFFD for a lone surrogate (see docs/nemo-gym-parity.md)."""
    if isinstance(one, dict) and isinstance(other, dict):
        left = {well_formed(name): value for name, value in one.items()}
        right = {well_formed(name): value for name, value in other.items()}
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, str) and isinstance(other, str):
        return bool(well_formed(one) == well_formed(other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def well_formed(value: Any) -> Any:
    return re.sub("[\ud800-\udfff]", "\ufffd", value) if isinstance(value, str) else value


def short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 160 else f"{text[:120]} … ({len(text)} characters)"


def _listed(rules: set[str]) -> str:
    return ", ".join(sorted(rules)) or "no rule"


# ── the run ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Driven:
    http: Object
    view: ClientView
    saw: dict[str, str]


@dataclass
class Verdict:
    rules: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)


def model_call_id(case: str) -> str:
    return hashlib.md5(f"call:{case}".encode()).hexdigest()


async def drive(folder: Path, session: CaptureSession, names: list[str]) -> dict[str, Driven]:
    clock = VirtualClock()
    driven = {}
    for name in names:
        http = json.loads((folder / "http" / f"{name}.json").read_text("utf-8"))
        server = ScriptedServer(http["upstream"], clock, http["client"].get("raised"))
        captured = session.wrap(server, clock, always(model_call_id(name)))
        view = await call(captured, http["request"], clock)
        driven[name] = Driven(http, view, server.saw)
    return driven


def judge(case: Object, driven: Driven, ours: Object | None) -> Verdict:
    traffic = Traffic(driven.http)
    verdict = Verdict()
    verdict.wrong += client_problems(traffic, driven.view, driven.saw, verdict.rules)
    if (ours is not None) != traffic.is_captured:
        verdict.wrong.append("a record is stored, none should be" if ours else "no record is stored, one should be")
    right = case.get("right") or {}
    gym = case.get("record")
    if ours is None:
        _judge_absence(verdict, traffic, gym)
    elif gym is None:
        verdict.wrong += _compare(traffic, ours, kept_record(case["case"], traffic, ours), right).wrong
    else:
        comparison = _compare(traffic, ours, gym, right)
        verdict.wrong += comparison.wrong
        verdict.shown += comparison.shown
        verdict.rules |= comparison.rules | _decided_rules(right, gym)
    return verdict


def _compare(traffic: Traffic, ours: Object, record: Object, right: Object) -> Comparison:
    comparison = Comparison(traffic, ours, record)
    comparison.run(right)
    return comparison


def _judge_absence(verdict: Verdict, traffic: Traffic, gym: Object | None) -> None:
    if gym is None:
        return
    verdict.shown.append("no record, NeMo Gym has one")
    if traffic.has_line_feed:
        verdict.rules.add("N13")
    elif traffic.id_is_refused:
        verdict.rules.add("D5")


def _decided_rules(right: Object, gym: Object) -> set[str]:
    differs = any(not same(value, gym.get(name)) for name, value in right.get("fields", {}).items())
    return {"right"} if differs else set()


def print_report(verdicts: dict[str, Verdict]) -> int:
    for name, verdict in verdicts.items():
        for line in verdict.shown:
            print(f"{name}: {line}")
        for line in verdict.wrong:
            print(f"WRONG {name}: {line}")
    counts = Counter(rule for verdict in verdicts.values() if not verdict.wrong for rule in verdict.rules)
    print()
    for rule, number in sorted(counts.items()):
        print(f"{rule:6} {number:4}  {RULES.get(rule, 'the case says what is right')}")
    wrong = sum(bool(verdict.wrong) for verdict in verdicts.values())
    decided = sum(bool(verdict.rules) and not verdict.wrong for verdict in verdicts.values())
    equal = len(verdicts) - wrong - decided
    print(f"{len(verdicts)} cases, {equal} equal, {decided} decided deviations, {wrong} wrong")
    return 1 if wrong else 0


def run(folder: Path, store: Path) -> int:
    lines = (folder / "cases.jsonl").read_bytes().split(b"\n")
    cases = {case["case"]: case for case in map(json.loads, filter(None, lines))}
    session = CaptureSession(store, run_id="parity")
    driven = asyncio.run(drive(folder, session, list(cases)))
    stored: dict[str, list[StoredCall]] = {}
    for found in session.calls():
        stored.setdefault(str(found.record.model_call_id), []).append(found)
    verdicts = {}
    for name, case in cases.items():
        calls = stored.pop(model_call_id(name), [])
        try:
            verdicts[name] = judge(case, driven[name], calls[0].record.model_dump() if calls else None)
            verdicts[name].wrong += stored_problems(Traffic(driven[name].http), calls)
        except Exception as problem:
            # One case that cannot be judged is one that is wrong; the others are judged all the same.
            verdicts[name] = Verdict(wrong=[f"cannot be judged: {type(problem).__name__}: {problem}"])
    for call_id in stored:
        verdicts[call_id] = Verdict(wrong=["a record of no case is stored"])
    return print_report(verdicts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="a folder shaped like corpus/model_calls")
    folder = parser.parse_args().directory
    with tempfile.TemporaryDirectory(prefix="otel_gym_parity_") as store:
        return run(folder, Path(store))


if __name__ == "__main__":
    sys.exit(main())
