"""What one agent of a session did, gathered record by record: turns, calls of the model, runs of tools.

It knows neither files nor spans. Times are UTC nanoseconds, None where the record names none. ``index`` is the place
in the source. What is said is kept as the JSON text of its Responses item, as it will be stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
from msgspec import field

from otel_gym.content import safe_text
from otel_gym.ingest.claude_code.common_lines import Block
from otel_gym.ingest.claude_code.lines import json_text, parse, text_of
from otel_gym.records.output import boundary_item
from otel_gym.records.steps import ContextBoundary, iso_time
from otel_gym.wire.items.shapes import Item, function_output_item, message_item
from otel_gym.wire.usage import token_count

_AGENT_TOOLS = frozenset({"Agent", "Task"})


class ToolRun(msgspec.Struct):
    """A tool call, and its output once that came: then it has an ``arrival``.

    ``prompt``: what the subagent that it starts is told.
    """

    call_id: str
    name: str
    given: Any
    index: int
    started_ns: int
    time_known: bool
    agent_type: str | None = None
    prompt: str | None = None
    ended_ns: int | None = None
    output: Any = None
    arrival: int | None = None
    error: dict[str, Any] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def is_for_agent(self) -> None:
        """The call starts a subagent, of whom its arguments tell."""
        told: dict[str, Any] = self.given if isinstance(self.given, dict) else {}
        self.agent_type = text_of(told.get("subagent_type"))
        self.prompt = text_of(told.get("prompt"))

    def result(self) -> str | None:
        """The output as JSON; a text as the object that it stands in."""
        if self.arrival is None:
            return None
        return json_text({"content": self.output} if isinstance(self.output, str) else self.output)

    def output_item(self) -> Item:
        return function_output_item(self.call_id, self.output)


class Call(msgspec.Struct):
    """One message of the model. ``places`` holds (block index, item as JSON, or the block that it is made of);
    ``is_cut``: its stream broke off.
    """

    key: str
    index: int
    started_ns: int
    ended_ns: int
    response_id: str | None = None
    request_id: str | None = None
    request_ref: str | None = None
    model: str | None = None
    requested_model: str | None = None
    effort: str | None = None
    time_known: bool = False
    places: list[tuple[int, str | Block]] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    # What came last, where it came as a text.
    _usage_text: bytes = b""
    # The greatest number of a block so far.
    last_place: int = -1
    stop_reason: str | None = None
    is_cut: bool = False
    runs: list[ToolRun] = field(default_factory=list)

    def items(self) -> list[str]:
        """In the order in which the model made them."""
        return [_text_of(said) for said in self.said()]

    def said(self) -> list[str | Block]:
        """The same as it was read."""
        self.places.sort(key=_first)
        return [said for _, said in self.places]

    def add_place(self, number: int | None, said: str | Block) -> bool:
        """False where that block is there already; None stands for the place behind all others."""
        if number is None:
            number = len(self.places)
        elif number <= self.last_place and any(place == number for place, _ in self.places):
            return False
        if number > self.last_place:
            self.last_place = number
        self.places.append((number, said))
        return True

    def answered_runs(self) -> list[ToolRun]:
        """Those whose output came, in the order in which it did."""
        answered = [run for run in self.runs if run.arrival is not None]
        if len(answered) > 1:
            answered.sort(key=_arrival)
        return answered

    def ends_with_tools(self) -> int:
        """When the last of its tools was done."""
        return max([self.ended_ns, *(run.ended_ns for run in self.runs if run.ended_ns is not None)])

    def saw_usage(self, usage: dict[str, Any]) -> None:
        """The lines of a message may repeat an early count: the largest is the last."""
        self._usage_text = b""
        if self.usage is None or _output_tokens(usage) >= _output_tokens(self.usage):
            self.usage = usage

    def saw_usage_text(self, text: bytes) -> None:
        """The same as JSON, which most lines of a message repeat."""
        if text == self._usage_text:
            return
        usage = parse(text)
        if isinstance(usage, dict):
            self.saw_usage(usage)
        self._usage_text = text


_first = itemgetter(0)
_arrival = attrgetter("arrival")


def _output_tokens(usage: dict[str, Any]) -> int:
    return token_count(usage.get("output_tokens")) or 0


class UserNote(msgspec.Struct):
    """Something said in the name of the user; ``item`` is JSON."""

    index: int
    time_ns: int
    item: str


class BoundaryNote(msgspec.Struct):
    """The context was made anew. ``summary`` and ``kept``: what later calls saw, items as JSON."""

    index: int
    time_ns: int
    kind: str = "compaction"
    boundary: str = "replace"
    trigger: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    summary: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    continues: str | None = None

    def item(self) -> str:
        content = [json.loads(text) for text in self.summary + self.kept]
        return json_text(
            boundary_item(
                ContextBoundary(
                    content,
                    kind=self.kind,
                    boundary=self.boundary,
                    trigger=self.trigger,
                    timestamp=iso_time(self.time_ns),
                    tokens_before=self.tokens_before,
                    tokens_after=self.tokens_after,
                )
            )
        )


class FailedCall(msgspec.Struct):
    """An attempt that gave no message; ``attempt`` counts from 0."""

    index: int
    time_ns: int
    type: str | None
    message: str | None
    status: int | None = None
    request_id: str | None = None
    attempt: int | None = None


Note = UserNote | BoundaryNote | FailedCall


class Turn(msgspec.Struct):
    """``error``: it ended because the model could not be reached."""

    key: str
    index: int
    opened_ns: int
    time_known: bool
    version: str | None = None
    notes: list[Note] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    error: str | None = None

    def times(self) -> tuple[int, int]:
        start = min([self.opened_ns, *(call.started_ns for call in self.calls)])
        failures = (note.time_ns for note in self.notes if isinstance(note, FailedCall))
        return start, max([start, *(call.ends_with_tools() for call in self.calls), *failures])

    def why(self) -> str | None:
        """The first line of its error; None if it had none."""
        return None if self.error is None else safe_text(self.error.partition("\n")[0])

    def has_known_times(self) -> bool:
        return self.time_known or any(call.time_known for call in self.calls)


class Totals(msgspec.Struct):
    """Of the whole run, as the harness says."""

    duration_ms: float | None = None
    cost_usd: float | None = None
    usage: dict[str, Any] | None = None


def _text_of(said: str | Block | ToolRun) -> str:
    if isinstance(said, str):
        return said
    return json_text(said.output_item() if isinstance(said, ToolRun) else said.item())


class AgentLog:
    """Fed in the order of the source. ``last_ns``: the last time that was named."""

    def __init__(self, agent_id: str | None, last_ns: int) -> None:
        self.agent_id = agent_id
        self.last_ns = last_ns
        self.turns: list[Turn] = []
        self.calls: dict[str, Call] = {}
        self.runs: dict[str, ToolRun] = {}
        self.totals = Totals()
        self.version: str | None = None
        self.agent_type: str | None = None
        self.spawned_by: str | None = None
        self.parent_agent_id: str | None = None
        self.dropped = 0
        # What each record said, by its uuid: a compaction names the records that it keeps.
        self.said: dict[str, tuple[str | Block | ToolRun, ...]] = {}
        # What it was started with: records of another session or agent.
        self.inherited: AgentLog | None = None
        self._early: list[Note] = []
        self._boundary: BoundaryNote | None = None
        self._continuation: BoundaryNote | None = None
        self._turn_is_over = False
        self._arrivals = 0

    @property
    def name_in_ids(self) -> str:
        return "main" if self.agent_id is None else f"agent {self.agent_id}"

    def moment(self, time_ns: int | None) -> int:
        """The time of a record; the last one before it where it names none."""
        if time_ns is not None:
            self.last_ns = time_ns
        return self.last_ns

    def open_turn(self, key: str, index: int, time_ns: int | None) -> Turn:
        turn = Turn(key, index, self.moment(time_ns), time_ns is not None, self.version, self._early)
        self._early = []
        self._turn_is_over = False
        self.turns.append(turn)
        return turn

    def end_turn(self) -> None:
        """What the model does next is a turn of its own, though the source shows nobody who asked for it."""
        self._turn_is_over = True

    def note_said(self, uuid: Any, said: str | Block | ToolRun) -> None:
        if isinstance(uuid, str):
            before = self.said.get(uuid)
            self.said[uuid] = (said,) if before is None else (*before, said)

    def add_user_item(self, item: Item, index: int, time_ns: int | None, uuid: str | None) -> None:
        text = json_text(item)
        self.note_said(uuid, text)
        self.add_note(UserNote(index, self.moment(time_ns), text))

    def add_note(self, note: Note) -> None:
        (self.turns[-1].notes if self.turns else self._early).append(note)

    def add_call(self, key: str, index: int, time_ns: int | None) -> Call:
        """The call of that name, made now if it is new. It began when the record before it was made."""
        call = self.calls.get(key)
        if call is None:
            before = self.last_ns
            if not self.turns or self._turn_is_over:
                self.open_turn(f"turn of {key}", index, None)
            call = self.calls[key] = Call(key, index, before, before)
            self.turns[-1].calls.append(call)
            self.turns[-1].error = None
        if time_ns is not None:
            self.last_ns = time_ns
            call.time_known = True
        call.ended_ns = self.last_ns
        if call.ended_ns < call.started_ns:
            call.started_ns = call.ended_ns
        return call

    def add_run(self, call: Call, call_id: str | None, name: str, given: Any, index: int, time_known: bool) -> None:
        """The tool that a block calls, once, with what it is given."""
        if not call_id or call_id in self.runs:
            return
        run = self.runs[call_id] = ToolRun(call_id, name, given, index, self.last_ns, time_known)
        if name in _AGENT_TOOLS:
            run.is_for_agent()
        call.runs.append(run)

    def run_of(self, call_id: str) -> ToolRun | None:
        run = self.runs.get(call_id)
        return self.inherited.runs.get(call_id) if run is None and self.inherited is not None else run

    def inherits(self) -> AgentLog:
        """The log for copied records: context of what follows, counted where they were made."""
        if self.inherited is None:
            self.inherited = AgentLog(None, self.last_ns)
        return self.inherited

    def goes_on(self, index: int, continues: str | None = None) -> None:
        """What was inherited is context of what follows: it stands in a boundary, where nobody counts it."""
        if self.inherited is None:
            return
        self.last_ns = max(self.last_ns, self.inherited.last_ns)
        if self._continuation is None:
            self._continuation = BoundaryNote(index, self.last_ns, kind="continuation", boundary="append")
            self._continuation.continues = continues
            self.add_note(self._continuation)
        self._continuation.kept = self.inherited.context()

    def next_arrival(self) -> int:
        self._arrivals += 1
        return self._arrivals

    def last_call(self) -> Call | None:
        return next((turn.calls[-1] for turn in reversed(self.turns) if turn.calls), None)

    def add_boundary(self, note: BoundaryNote) -> None:
        self._boundary = note
        self.add_note(note)

    def add_summary(self, content: Any, index: int, time_ns: int | None) -> None:
        """The summary of the boundary before it; where that is missing, the summary tells of it."""
        boundary, self._boundary = self._boundary, None
        if boundary is None:
            boundary = BoundaryNote(index, self.moment(time_ns))
            self.add_note(boundary)
        boundary.summary = [json_text(message_item("user", content))]

    def forget_records(self) -> None:
        """Nothing more is read: what each record said is not asked for again."""
        self.said.clear()

    def texts_of(self, uuids: list[str]) -> list[str]:
        """The items of the records with these uuids, those that said something."""
        found = (said for uuid in uuids for said in self.said.get(uuid, ()))
        return [_text_of(said) for said in found]

    def uuids_between(self, first: str, last: str) -> list[str]:
        uuids = list(self.said)
        if first not in self.said:
            return []
        begin = uuids.index(first)
        return uuids[begin : uuids.index(last, begin) + 1] if last in uuids[begin:] else uuids[begin:]

    def context(self) -> list[str]:
        """What a call after the last record would see, items as JSON."""
        items: list[str] = []
        for entry in self._entries():
            if isinstance(entry, UserNote):
                items.append(entry.item)
            elif isinstance(entry, BoundaryNote):
                items = ([] if entry.boundary == "replace" else items) + entry.summary + entry.kept
            elif isinstance(entry, Call):
                items += entry.items()
                items += [json_text(run.output_item()) for run in entry.answered_runs()]
        return items

    def _entries(self) -> Iterator[Note | Call]:
        for turn in self.turns:
            yield from sorted([*turn.notes, *turn.calls], key=lambda entry: entry.index)
        yield from self._early
