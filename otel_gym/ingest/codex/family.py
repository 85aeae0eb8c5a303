"""Which threads belong together, and which call spawned which."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from otel_gym.ingest.codex.thread import Thread
from otel_gym.ingest.codex.tools import name_of
from otel_gym.ingest.codex.turns import Call, Turn


def threads_by_root(threads: Iterable[Thread]) -> dict[str, list[Thread]]:
    """Threads under the id of the session that they belong to."""
    known = {thread.thread_id: thread for thread in threads}
    by_root: dict[str, list[Thread]] = {}
    for thread in known.values():
        by_root.setdefault(_root_of(thread, known), []).append(thread)
    return by_root


def _root_of(thread: Thread, known: Mapping[str, Thread]) -> str:
    """As the file says (``session_id``); older ones name the parent only."""
    seen = {thread.thread_id}
    while (said := thread.file.session_id) is None:
        parent_id = thread.parent_id
        if parent_id is None or parent_id in seen:
            return thread.thread_id
        if parent_id not in known:
            return parent_id
        seen.add(parent_id)
        thread = known[parent_id]
    return said


def spawners_of(parent: Thread, children: Iterable[Thread]) -> dict[str, Call]:
    """For each child the call that spawned it: Codex tells, or its result names the child, or it came just before."""
    spawning = [call for call in parent.calls if "spawn" in name_of(call.item)]
    found: dict[str, Call] = {}
    waiting = sorted(children, key=lambda child: child.file.rows[0].time_ns if child.file.rows else 0)
    for names_child in (_is_told_receiver, _is_named_in_result, _began_during):
        for child in [child for child in waiting if child.thread_id not in found]:
            free = [call for call in spawning if not any(call is taken for taken in found.values())]
            call = next((call for call in free if names_child(call, child)), None)
            if call is not None:
                found[child.thread_id] = call
    return found


def _is_told_receiver(call: Call, child: Thread) -> bool:
    receivers = call.facts.get("receiver_thread_ids")
    told = (call.facts.get(name) for name in ("new_thread_id", "receiver_thread_id", "agent_thread_id"))
    return (isinstance(receivers, list) and child.thread_id in receivers) or child.thread_id in told


def _is_named_in_result(call: Call, child: Thread) -> bool:
    return call.output is not None and child.thread_id in json.dumps(call.output)


def _began_during(call: Call, child: Thread) -> bool:
    if not child.file.rows or call.facts or call.output_row is not None:
        return False
    return call.row.time_ns <= child.file.rows[0].time_ns


def is_spawned_in(child: Thread, turn: Turn, parent: Thread) -> bool:
    """Whether a child that no call is known to have spawned belongs to this turn; to the last, if to none."""
    parent_turn = child.turns[0].parent_turn_id if child.turns else None
    turn_ids = [one.turn_id for one in parent.turns]
    return turn.turn_id == parent_turn if parent_turn in turn_ids else turn is parent.turns[-1]
