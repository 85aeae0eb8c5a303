"""One thread, read row by row: its turns, the generations of each, the tools that they called, what was said.

A generation is what the model made on one input: its items carry the same ``sampled_through_sequence``, which says how
much of the history it had seen. A ``token_usage_record`` closes it; where an attempt broke off there is none, and only
a ``token_count`` (or what follows) tells that it is over. Files without those numbers are parted by the order alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from otel_gym.content import finite_number
from otel_gym.ingest.codex.files import file_of_thread
from otel_gym.ingest.codex.known import SILENT_EVENTS, SILENT_ITEMS, SILENT_ROWS
from otel_gym.ingest.codex.messages import (
    base_instructions,
    is_known,
    is_made_by_model,
    is_output,
    is_said_by_user,
    plain,
)
from otel_gym.ingest.codex.rows import JsonObject, Row, ThreadFile, object_of, read_thread_file, text_of
from otel_gym.ingest.codex.turns import (
    BOUNDARY,
    COMPLETED,
    CONTEXT,
    FAILED,
    FAULT,
    INTERRUPTED,
    USER,
    Call,
    Generation,
    Said,
    Turn,
)
from otel_gym.wire.items.shapes import Item, message_item, objects_of


class Thread:
    """``files``: the threads at hand, among which the one that this one continues is looked up.

    ``end``: the number of the first record that is not read; ``continued_by``: the threads that it is read for.
    """

    def __init__(
        self,
        file: ThreadFile,
        files: Mapping[str, ThreadFile],
        end: int | None = None,
        continued_by: frozenset[str] = frozenset(),
    ) -> None:
        self.file = file
        self.meta = file.meta
        self.thread_id = file.thread_id
        self.damage = list(file.damage)
        self.dropped = len(file.damage)
        self.turns: list[Turn] = []
        self.history: list[tuple[Item, Turn | None]] = []
        self._files = files
        self._continued_by = continued_by | {self.thread_id}
        self._turn: Turn | None = None
        self._generation: Generation | None = None
        self._by_key: dict[int, Generation] = {}
        self._calls: dict[str, Call] = {}
        self._before_first_turn: list[Said] = []
        self._context: JsonObject = {}
        self._input_ns = 0
        self._arrivals = 0
        self._begin()
        for row in file.rows:
            if end is None or row.index < end:
                self._take(row)
        if any(said.kind == USER for said in self._before_first_turn):
            self._untold_turn(file.rows[-1])

    @property
    def parent_id(self) -> str | None:
        spawned = object_of(object_of(object_of(self.meta, "source"), "subagent"), "thread_spawn")
        told = text_of(self.meta, "parent_thread_id") or text_of(spawned, "parent_thread_id")
        root = text_of(self.meta, "session_id")
        return root if told is None and root != self.thread_id else told

    @property
    def continues(self) -> tuple[str, int | None] | None:
        """The thread that this one is a fork of, and the number of the first record that it does not share."""
        base = object_of(self.meta, "history_base")
        thread_id = text_of(base, "thread_id") or text_of(self.meta, "forked_from_id")
        end = base.get("end_ordinal_exclusive", self.meta.get("forked_from_ordinal_exclusive"))
        return None if thread_id is None else (thread_id, end if type(end) is int else None)

    @property
    def calls(self) -> list[Call]:
        return [call for turn in self.turns for generation in turn.generations for call in generation.calls]

    def _begin(self) -> None:
        """What the first generation sees that no record of the file holds."""
        if not self.file.rows:
            return
        first = self.file.rows[0]
        self._input_ns = first.time_ns
        instructions = base_instructions(self.meta)
        shared = self._shared_history()
        if shared:
            self.history = [(item, None) for item in shared]
            content = [instructions, *shared] if instructions else shared
            self._say(Said(BOUNDARY, first, _boundary("fork", content)))
        elif instructions is not None:
            self._say(Said(CONTEXT, first, instructions))

    def _shared_history(self) -> list[Item]:
        """The items of the thread that is continued, up to the fork."""
        if "history_base" not in self.meta or self.continues is None:
            return []
        thread_id, end = self.continues
        file = None if thread_id in self._continued_by else self._file_of(thread_id)
        if file is None:
            self.damage.append(
                f"{self.file.path}: it continues thread {thread_id}, whose file is not there: "
                "what its model saw of that is unknown"
            )
            return []
        base = Thread(file, self._files, end, self._continued_by)
        return [item for item, _ in base.history]

    def _file_of(self, thread_id: str) -> ThreadFile | None:
        path = None if thread_id in self._files else file_of_thread(thread_id, self.file.path)
        return self._files.get(thread_id) if path is None else read_thread_file(path)

    def _take(self, row: Row) -> None:
        if row.kind in SILENT_ROWS:
            return
        take = _ROWS.get(row.kind)
        if take is None:
            self._drop(row, f"records of type {row.kind} are unknown")
        else:
            take(self, row)

    def _drop(self, row: Row, why: str) -> None:
        self.dropped += 1
        self.damage.append(f"{self.file.path}, line {row.line + 1}: {why}: it is left out")

    # --- turns

    def _take_context(self, row: Row) -> None:
        self._context = row.payload

    def _start_turn(self, row: Row) -> None:
        self._turn = Turn(
            row,
            parent_turn_id=text_of(object_of(row.payload, "turn_attribution"), "parent_turn_id"),
            turn_id=text_of(row.payload, "turn_id"),
            said=self._before_first_turn,
        )
        self._before_first_turn = []
        self.turns.append(self._turn)
        self._generation = None  # one that is open stays open: nothing tells when it was killed
        self._by_key = {}
        self._input_ns = row.time_ns

    def _end_turn(self, row: Row) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        error = row.payload.get("error")
        if isinstance(error, str):
            error = {"message": error}
        turn.error = error if isinstance(error, dict) else None
        turn.end = FAILED if turn.error is not None else COMPLETED
        if row.payload.get("type") == "turn_aborted":
            turn.end = INTERRUPTED
        turn.end_ns = row.time_ns
        duration = finite_number(row.payload.get("duration_ms"))
        turn.duration_ms = None if duration is None else float(duration)
        self._cut_generation()

    def _turn_of(self, row: Row) -> Turn:
        """The turn of what a model made: the last one, if it came late; versions that tell of no turns get one."""
        if self._turn is not None:
            return self._turn
        if self.turns and self.turns[-1].is_told:
            return self.turns[-1]
        return self._untold_turn(row)

    def _untold_turn(self, row: Row) -> Turn:
        """It begins with what a user said to an agent at rest."""
        asked = next((said.row for said in self._before_first_turn if said.kind == USER), row)
        self._start_turn(asked)
        self.turns[-1].is_told = False
        return self.turns[-1]

    # --- items

    def _take_item(self, row: Row) -> None:
        item = plain(row.payload)
        if is_made_by_model(row.payload, row.metadata):
            self._take_output_of_model(row, item)
        else:
            self._take_input(row, item)
        self.history.append((item, self._turn))
        self._input_ns = row.time_ns

    def _take_input(self, row: Row, item: Item) -> None:
        # A summary may carry the number of the generation before: what is whole, and was answered, gets nothing more.
        self._by_key = {key: known for key, known in self._by_key.items() if not known.is_whole}
        if is_output(item) and self._answer(row, item):
            return
        self._part_by_message()
        if is_said_by_user(row.payload):
            if self._turn is not None and not self._turn.is_told and self._turn.hands_over:
                self._untold_turn(row)
            self._say(Said(USER, row, item))
        else:
            if not is_known(item):
                self._drop(row, f"items of type {item.get('type')} are unknown")
            self._say(Said(CONTEXT, row, item))

    def _say(self, said: Said) -> None:
        """Between turns it belongs to the one before; before the first, to that."""
        if self.turns:
            self.turns[-1].said.append(said)
        else:
            self._before_first_turn.append(said)

    def _take_output_of_model(self, row: Row, item: Item) -> None:
        generation = self._generation_of(row)
        generation.items.append(item)
        generation.last_ns = max(generation.last_ns, row.time_ns)
        call_id = item.get("call_id")
        if isinstance(call_id, str) and str(item.get("type")).endswith("_call"):
            call = Call(row, item)
            generation.calls.append(call)
            self._calls[call_id] = call

    def _generation_of(self, row: Row) -> Generation:
        sampled = row.metadata.get("sampled_through_sequence")
        is_compaction = row.metadata.get("compaction_output") is True
        key = sampled if type(sampled) is int else None
        known = self._generation if key is None else self._by_key.get(key)
        if known is None or (known.is_over and is_compaction and not known.is_compaction):
            known = self._new_generation(row, key)
        known.is_compaction |= is_compaction
        if not known.is_whole:
            known.is_over, self._generation = False, known
        return known

    def _new_generation(self, row: Row, key: int | None) -> Generation:
        self._cut_generation()
        turn = self._turn_of(row)
        made = Generation(
            first=row,
            start_ns=min(self._input_ns, row.time_ns),
            last_ns=row.time_ns,
            key=key,
            model=text_of(self._context, "model"),
            effort=text_of(self._context, "effort"),
        )
        turn.generations.append(made)
        if key is not None:
            self._by_key[key] = made
        self._generation = made
        return made

    def _cut_generation(self) -> None:
        """One that something else follows is over, closed or not."""
        if self._generation is not None:
            self._generation.is_over = True
        self._generation = None

    def _part_by_message(self) -> None:
        """A message parts generations where no number does."""
        if self._generation is not None and self._generation.key is None:
            self._cut_generation()

    def _answer(self, row: Row, item: Item) -> bool:
        call = self._calls.get(str(item["call_id"]))
        if call is None or call.output is not None:
            return False
        self._arrivals += 1
        call.output_row, call.output, call.arrival = row, item, self._arrivals
        return True

    # --- usage and compaction

    def _take_usage(self, row: Row) -> None:
        usage = row.payload.get("usage")
        generation = self._generation or self._new_generation(row, None)
        generation.response_id = text_of(row.payload, "response_id")
        generation.usage = usage if isinstance(usage, dict) else None
        generation.last_ns = max(generation.last_ns, row.time_ns)
        generation.is_whole = True
        self._cut_generation()
        turn_usage = row.payload.get("turn_token_usage")
        if isinstance(turn_usage, dict) and self.turns:
            self.turns[-1].usage = turn_usage

    def _take_token_count(self, row: Row) -> None:
        """It ends each attempt; with a real backend one may stand within an answer, whose number then tells."""
        if self._generation is not None and self._generation.key is not None:
            self._generation.is_over = True
        else:
            self._cut_generation()

    def _take_compacted(self, row: Row) -> None:
        payload = row.payload
        self._mark_compaction(row, text_of(payload, "compaction_response_id"))
        replacement = payload.get("replacement_history")
        content = [plain(item) for item in objects_of(replacement)]
        if not isinstance(replacement, list) and text_of(payload, "message"):
            content = [item for item, _ in self.history if item.get("role") in ("developer", "user")]
            content.append(message_item("user", str(payload["message"])))
        self._replace(row, "compaction", content)
        self.history = [(item, self._turn) for item in content]

    def _mark_compaction(self, row: Row, response_id: str | None) -> None:
        """The generation that wrote the summary; one that no other record tells of is made of this one."""
        if response_id is None:
            return
        made = [generation for turn in self.turns for generation in turn.generations]
        generation = next((one for one in reversed(made) if one.response_id == response_id), None)
        if generation is None:
            unnamed = [one for one in made[-1:] if one.is_compaction and not one.is_whole]
            generation = unnamed[0] if unnamed else self._new_generation(row, None)
            record = object_of(row.payload, "latest_token_usage_record")
            generation.response_id = response_id
            generation.usage = object_of(record, "usage") or None if record.get("response_id") == response_id else None
            generation.is_whole = generation.is_over = True
        generation.is_compaction = True

    def _replace(self, row: Row, kind: str, content: list[Item]) -> None:
        instructions = base_instructions(self.meta)
        self._say(Said(BOUNDARY, row, _boundary(kind, [instructions, *content] if instructions else content)))
        self._cut_generation()
        self._by_key = {}
        self._input_ns = row.time_ns

    # --- events

    def _take_event(self, row: Row) -> None:
        kind = str(row.payload.get("type"))
        take = _EVENTS.get(kind)
        if take is not None:
            take(self, row)
        elif "call_id" in row.payload and kind.endswith("_end"):
            self._learn(row, text_of(row.payload, "call_id"), row.payload)
        elif kind not in SILENT_EVENTS and not kind.endswith(("_begin", "_delta", "_request")):
            self._drop(row, f"events of type {kind} are unknown")

    def _take_item_completed(self, row: Row) -> None:
        item = object_of(row.payload, "item")
        times: JsonObject = {name: row.payload.get(name) for name in ("started_at_ms", "completed_at_ms")}
        if not self._learn(row, text_of(item, "id"), {**item, **times}) and text_of(item, "type") not in SILENT_ITEMS:
            self._drop(row, f"item {item.get('id')} of type {item.get('type')} belongs to no call")

    def _learn(self, row: Row, call_id: str | None, facts: JsonObject) -> bool:
        call = self._calls.get(call_id or "")
        if call is None:
            return False
        call.facts = {**call.facts, **facts}
        call.facts_line = row.line
        return True

    def _take_fault(self, row: Row) -> None:
        self._say(Said(FAULT, row, {"message": text_of(row.payload, "message") or str(row.payload.get("type"))}))
        self._cut_generation()

    def _roll_back(self, row: Row) -> None:
        """The last turns that a user began are forgotten."""
        count = row.payload.get("num_turns")
        begun = [turn for turn in self.turns if any(said.kind == USER for said in turn.said)]
        gone = begun[-count:] if type(count) is int and count > 0 else []
        self.history = [(item, turn) for item, turn in self.history if not any(turn is one for one in gone)]
        self._replace(row, "rollback", [item for item, _ in self.history])


def _boundary(kind: str, content: list[Item]) -> Item:
    return {"kind": kind, "boundary": "replace", "content": content, "keeps_instructions": False}


_Take = Callable[[Thread, Row], Any]

_ROWS: dict[str, _Take] = {
    "response_item": Thread._take_item,
    "event_msg": Thread._take_event,
    "token_usage_record": Thread._take_usage,
    "compacted": Thread._take_compacted,
    "turn_context": Thread._take_context,
}
_EVENTS: dict[str, _Take] = {
    "task_started": Thread._start_turn,
    "turn_started": Thread._start_turn,
    "task_complete": Thread._end_turn,
    "turn_complete": Thread._end_turn,
    "turn_aborted": Thread._end_turn,
    "item_completed": Thread._take_item_completed,
    "token_count": Thread._take_token_count,
    "error": Thread._take_fault,
    "stream_error": Thread._take_fault,
    "thread_rolled_back": Thread._roll_back,
}
