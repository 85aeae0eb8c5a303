"""What is wrong with a store, and what to do about it.

``damage`` and ``drops`` are losses; the rest is what a reader of figures should know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from otel_gym.conventions import AGENT_DROPPED_RECORDS
from otel_gym.id_rules import ID_PATTERN
from otel_gym.store.reader import Damage, RolloutSpans, Store
from otel_gym.store.span import StoredSpan
from otel_gym.views.layers import doubtful_calls, is_model_call, without_client_layer
from otel_gym.views.model_calls import record_of

# What a process may count, and what to do where it is not 0. True: something is lost for good.
COUNTED: dict[str, tuple[str, bool]] = {
    "lost_spans": ("spans were not written; see to the disk's space and rights, or raise OTEL_GYM_QUEUE_BYTES", True),
    "dropped_calls": (
        "model calls were made under a TracerProvider whose sampler drops them; let it record all spans, or let "
        "otel_gym make the provider",
        True,
    ),
    "lost_calls": ("model calls found no room in the queue; raise OTEL_GYM_QUEUE_BYTES", True),
    "cut_bodies": (
        "exchanges found no room in the queue, their bodies are kept as head, length and sha256; set "
        "OTEL_GYM_QUEUE_BYTES above the largest body",
        True,
    ),
    "otlp_lost_spans": (
        "spans did not reach the OTLP endpoint, or nobody there said so; see to it and to what it takes. The "
        "store has those of rollouts",
        False,
    ),
    "otlp_refused_spans": ("spans were refused by the OTLP endpoint, which said why; see its log", False),
    "refused_spans": (
        "spans came to `otel-gym receive` with ids or fields that are none, and are in no file; see to who sends them",
        True,
    ),
    "dynamo_lost_records": (
        "spans are missing in Dynamo's trace files; see to the disk, or raise DYN_AGENT_TRACE_CAPACITY. The store has "
        "them: `otel-gym export dynamo`",
        False,
    ),
    "dynamo_lost_tool_events": (
        "tool events did not reach the endpoint of DYN_…_TOOL_EVENTS_ZMQ_ENDPOINT; is a Dynamo, or `otel-gym dynamo "
        "relay`, bound there? The store has the tools",
        False,
    ),
    "refused_tool_events": (
        "messages came to `otel-gym dynamo relay` that are no tool events, and are in no file; it says the first of "
        "each kind",
        True,
    ),
    "not_durable": (
        "answers went on before their span was on disk, as it took longer than OTEL_GYM_DURABILITY=sync waits; "
        "see to the disk's speed",
        False,
    ),
    "refused_ids": (
        f"calls named a rollout by what is no id, and count as without one; use {ID_PATTERN}",
        False,
    ),
    "uncaptured_paths": (
        "POSTs to paths that look like model calls and are not captured; give the client a base URL below which it "
        "asks for /v1/chat/completions, /v1/responses or /v1/messages",
        False,
    ),
    "uncaptured_calls": (
        "model calls carried no rollout id; send them through /ng-rollout/<id>, pass baggage on, or set "
        "OTEL_GYM_CAPTURE_UNASSIGNED=1",
        False,
    ),
}
_UNNAMED = ("counted by the process", False)


def losses_said(counts: Mapping[str, int]) -> list[str]:
    """What lies behind the counters of what is lost for good, and what to do."""
    said = ((name, *COUNTED.get(name, _UNNAMED)) for name, number in sorted(counts.items()) if number)
    return [f"{name}: {cure}" for name, cure, is_loss in said if is_loss]


@dataclass(frozen=True, slots=True)
class Counted:
    """A number that one process counted."""

    writer: str
    name: str
    number: int

    @property
    def cure(self) -> str:
        return COUNTED.get(self.name, _UNNAMED)[0]

    @property
    def is_loss(self) -> bool:
        return COUNTED.get(self.name, _UNNAMED)[1]


# What a process may note of its setup, and what that weakens.
NOTED: dict[str, str] = {
    "written_by": "written by the exporter alone: spans that never ended, and those that are not sampled, are missing",
    "provider": "the TracerProvider is another's: otel_gym sends no OTLP copy",
    "sampler": "what its sampler drops is not stored ({})",
    "limits": "its limits may drop what your code sets on spans",
    "id_generator": (
        "its ids ({}) may repeat where code is seeded, and servers behind a URL prefix fall into traces of their own"
    ),
}
_SETUP_CURE = "call otel_gym.configure() first, and add what else there is to the provider that it makes"


@dataclass(frozen=True, slots=True)
class Setup:
    """How processes were set up, where that weakens what a store promises. Nothing is lost by it for certain."""

    writers: tuple[str, ...]
    notes: Mapping[str, str]
    cure: str = _SETUP_CURE

    @property
    def finding(self) -> str:
        return "; ".join(
            NOTED[name].format(value) if name in NOTED else f"{name}: {value}" for name, value in self.notes.items()
        )


@dataclass(frozen=True, slots=True)
class RolloutFinding:
    """Something about one rollout that changes how its figures read."""

    kind: str
    run_id: str | None
    rollout_id: str
    finding: str
    cure: str


@dataclass(slots=True)
class Health:
    rollouts: int = 0
    spans: int = 0
    damage: list[Damage] = field(default_factory=list)
    counted: list[Counted] = field(default_factory=list)
    setups: list[Setup] = field(default_factory=list)
    findings: list[RolloutFinding] = field(default_factory=list)
    unfinished_calls: int = 0

    @property
    def has_losses(self) -> bool:
        return bool(self.damage) or any(each.is_loss for each in self.counted)


def examine(store: Store) -> Health:
    """Reads all of a store."""
    health = Health()
    for rollout in store.rollouts():
        health.rollouts += 1
        health.spans += len(rollout.spans)
        health.findings += _findings_of(rollout)
        health.unfinished_calls += len(_unfinished_calls(rollout))
    for writer, counts in store.counts_by_writer().items():
        health.counted += [Counted(writer, name, number) for name, number in counts.items() if number]
    health.setups = _setups(store.notes_by_writer())
    health.damage = store.damage
    return health


def _setups(notes_by_writer: Mapping[str, Mapping[str, str]]) -> list[Setup]:
    """One for all processes that were set up alike."""
    writers: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for writer, notes in notes_by_writer.items():
        writers.setdefault(tuple(notes.items()), []).append(writer)
    return [Setup(tuple(names), dict(notes)) for notes, names in writers.items()]


def _findings_of(rollout: RolloutSpans) -> Iterator[RolloutFinding]:
    executions = rollout.executions()
    unfinished = [span.name for span in rollout.spans if span.end_ns is None]
    calls = [_call_said(span) for span in _unfinished_calls(rollout)]
    left_out = sum(map(_records_left_out, rollout.spans))
    runless = _calls_of_no_run(rollout)
    doubtful = [
        f"{one.name} ({one.span_id}) and {other.name} ({other.span_id})" for one, other in doubtful_calls(rollout)
    ]
    found = (
        (
            "unfinished",
            bool(unfinished),
            f"{'1 span has' if len(unfinished) == 1 else f'{len(unfinished)} spans have'} not ended: "
            f"{_some(unfinished)}{'; model calls without an answer: ' + _some(calls) if calls else ''}",
            "its process still runs, or was killed; what it had done is kept",
        ),
        (
            "run_again",
            len(executions.all) > 1,
            f"it ran {len(executions.all)} times under this run id; the newest finished execution counts",
            "give each launch a run id of its own (OTEL_GYM_RUN_ID)",
        ),
        (
            "run_assumed",
            bool(runless),
            f"{'1 model call names' if len(runless) == 1 else f'{len(runless)} model calls name'} no run, and count to "
            "this one, the only one of its id",
            "if they are of another launch, give each launch a run id (OTEL_GYM_RUN_ID, `otel-gym run`)",
        ),
        (
            "ambiguous",
            bool(executions.ambiguous) or rollout.is_ambiguous,
            f"spans that belong to none of its {'runs' if rollout.is_ambiguous else 'executions'} for certain, and are "
            f"in no figure: {len(rollout.spans if rollout.is_ambiguous else executions.ambiguous)}",
            "let the trace context or baggage reach their process, or set OTEL_GYM_RUN_ID there",
        ),
        (
            "left_out",
            left_out > 0,
            f"its import left out {'1 record' if left_out == 1 else f'{left_out:,} records'} that could not be read or "
            "are not known here",
            "import again, which names the file and line of each: mend the line, or try a newer otel_gym",
        ),
        (
            "perhaps_one_call",
            bool(doubtful),
            f"spans that may tell of one call, and count as two since nothing proves it: {_some(doubtful)}",
            "instrument the client once, or let its instrumentations record the id of the response",
        ),
    )
    for kind, holds, finding, cure in found:
        if holds:
            yield RolloutFinding(kind, rollout.run_id, rollout.rollout_id, finding, cure)


def _calls_of_no_run(rollout: RolloutSpans) -> list[StoredSpan]:
    """Those that nothing of their trace ties to the run to which they are counted."""
    tied = {span.trace_id for span in rollout.spans if span.run_id is not None}
    return [span for span in rollout.spans if tied and span.trace_id not in tied and is_model_call(span)]


def _records_left_out(span: StoredSpan) -> int:
    """Of the agent's run that ended with this span."""
    number = span.attributes.get(AGENT_DROPPED_RECORDS)
    return number if type(number) is int else 0


def _unfinished_calls(rollout: RolloutSpans) -> list[StoredSpan]:
    """Each once, however many layers saw it."""
    return [span for span in without_client_layer(rollout).spans if span.end_ns is None and is_model_call(span)]


def _call_said(span: StoredSpan) -> str:
    said = record_of(span, 0)
    named = said.model or said.dialect or "unknown model"
    return f"{named} (span {span.span_id})"


def _some(names: list[str]) -> str:
    shown = list(dict.fromkeys(names))[:3]
    return ", ".join(shown) + (" …" if len(set(names)) > len(shown) else "")
