"""Trajectories → ATIF documents.

``atif_of`` writes what is known and nothing else: a cost, a time, a token that nobody said is absent. Reward, timing,
errors and the ids of the spans have no field in ATIF and stand in ``extra``. Subagents are embedded or files of their
own, media are files beside the document. A run that was killed gives a valid document with ``extra.complete`` false.
``views.atif_spans`` gives a document that was imported back as it was.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Literal, get_args

import orjson

from otel_gym.content import known
from otel_gym.records.atif_versions import AUDIO_VERSION
from otel_gym.records.steps import AgentRun
from otel_gym.records.well_formed import well_formed
from otel_gym.views.atif_content import Media, least_version
from otel_gym.views.atif_steps import Steps
from otel_gym.views.atif_told import Told, told_by_run, told_by_trajectory

if TYPE_CHECKING:
    from otel_gym.records.atif import AtifTrajectory
    from otel_gym.records.trajectory import Trajectory

__all__ = ["AtifExport", "atif_files_of_run", "atif_json", "atif_of"]

Json = dict[str, Any]
WrittenVersion = Literal["ATIF-v1.7", "ATIF-v1.8"]

MAIN_FILE = "trajectory.json"
_HELD_BYTES = 64 * 1024
# Stands for the id of a call that spawned a subagent, where none is known.
_NO_CALL = ""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_TOTALS = ("prompt_tokens", "completion_tokens", "cached_tokens")
_EXTRA_TOTALS = ("reasoning_tokens", "cache_creation_input_tokens", "total_tokens")
_NO_FIGURES: Json = {}


@dataclass(frozen=True, slots=True)
class AtifExport:
    """What was written, by file name, the main document first, and the media that it refers to by relative path."""

    written: dict[str, Json]
    media: dict[str, bytes]

    @property
    def documents(self) -> dict[str, AtifTrajectory]:
        from otel_gym.records.atif import AtifTrajectory

        return {name: AtifTrajectory.model_validate(well_formed(document)) for name, document in self.written.items()}

    @property
    def document(self) -> AtifTrajectory:
        return next(iter(self.documents.values()))

    def files(self) -> dict[str, bytes]:
        """Everything that has to be written, by path below one folder."""
        return {**{name: atif_json(document) for name, document in self.written.items()}, **self.media}


def atif_json(document: Json) -> bytes:
    """The text of a file, UTF-8. What strict JSON cannot say is null, or U+FFFD."""
    try:
        return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # an integer beyond 64 bits, a lone surrogate
        return (json.dumps(well_formed(document), indent=2, ensure_ascii=False) + "\n").encode()


def atif_of(
    trajectory: Trajectory,
    *,
    rollout_id: str,
    run_id: str | None = None,
    session_id: str | None = None,
    version: WrittenVersion = "ATIF-v1.7",
    reward: float | None = None,
    agent_version: str | None = None,
    embed_subagents: bool = True,
    continue_in_files: bool = False,
) -> AtifExport:
    """The document of a rollout's agent, with its subagents in it or, without ``embed_subagents``, as files beside it.

    ``session_id`` None: the trajectory's, else the rollout's id. A document with audio is ATIF 1.8 in any case.
    ``continue_in_files``: what comes after a compaction is a file of its own, which begins with what was kept.
    ValueError for a version that is read only.
    """
    session = session_id or trajectory.agent_telemetry.session_id or rollout_id
    writer = _Writer(session, _checked(version), agent_version or "unknown", embed_subagents)
    extra = known({"rollout_id": rollout_id, "run_id": run_id, "reward": reward})
    main = writer.document(told_by_trajectory(trajectory), rollout_id, extra)
    files = writer.continued(main, MAIN_FILE) if continue_in_files else {MAIN_FILE: main}
    documents = {**files, **writer.files}
    return AtifExport(documents, writer.media.files)


def atif_files_of_run(
    run: AgentRun, *, rollout_id: str, version: WrittenVersion = "ATIF-v1.7", agent_version: str | None = None
) -> dict[str, Iterable[bytes]]:
    """The files of an agent's run, in pieces to be written, subagents embedded. A step is a line.

    Each step is a text before the next is made, so that a long run is never in memory as objects.
    """
    spool = _Spool()
    session = run.session_id or rollout_id
    writer = _Writer(session, _checked(version), agent_version or "unknown", True, lambda: _StepTexts(spool))
    document = writer.document(told_by_run(run), rollout_id, {"rollout_id": rollout_id})
    media = {name: (content,) for name, content in writer.media.files.items()}
    return {MAIN_FILE: _whole(document, spool), **media}


def _whole(document: Json, spool: _Spool) -> Iterator[bytes]:
    try:
        yield from _pieces(document)
        yield b"\n"
    finally:
        spool.close()


def _pieces(document: Json) -> Iterator[bytes]:
    """The text of a document whose steps are texts."""
    steps, subagents = document.pop("steps"), document.pop("subagent_trajectories", ())
    yield _line(document)[:-1] + b',"steps":[\n'
    yield from steps.pieces()
    yield b"\n]"
    for number, subagent in enumerate(subagents):
        yield b',"subagent_trajectories":[\n' if number == 0 else b",\n"
        yield from _pieces(subagent)
    yield b"\n]}" if subagents else b"}"


def _checked(version: str) -> str:
    if version not in get_args(WrittenVersion):
        raise ValueError(f"{version} is not written: one of {', '.join(get_args(WrittenVersion))}")
    return version


def _line(value: Json) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # as in atif_json
        return json.dumps(well_formed(value), ensure_ascii=False, separators=(",", ":")).encode()


class _Spool:
    """Texts in one file without a name, once they are many; it goes when it is closed, or with its last user."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None

    def keep(self, text: bytes) -> tuple[int, int]:
        """Where it stands."""
        if self._file is None:
            self._file = TemporaryFile()  # noqa: SIM115 - closed with the last piece of the document
        place = self._file.seek(0, os.SEEK_END)
        self._file.write(text)
        return place, len(text)

    def read(self, place: int, size: int) -> bytes:
        assert self._file is not None
        self._file.seek(place)
        return self._file.read(size)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _StepTexts:
    """The steps of one document as lines of JSON, most of them in the spool that all documents of a run share."""

    def __init__(self, spool: _Spool) -> None:
        self._spool = spool
        self._kept: list[tuple[int, int]] = []
        self._lines: list[bytes] = []
        self._size = 0

    def append(self, step: Json) -> None:
        line = _line(step)
        self._lines.append(line)
        self._size += len(line)
        if self._size > _HELD_BYTES:
            self._kept.append(self._spool.keep(b",\n".join(self._lines)))
            self._lines, self._size = [b""], 0  # what follows is parted from what is kept

    def pieces(self) -> Iterator[bytes]:
        for place, size in self._kept:
            yield self._spool.read(place, size)
        yield b",\n".join(self._lines)


class _Writer:
    """Makes the documents of one rollout. ``files``: those of subagents that are not embedded.

    ``new_steps`` makes what takes the steps of a document.
    """

    def __init__(
        self,
        session_id: str,
        version: str,
        agent_version: str,
        embeds: bool,
        new_steps: Callable[[], list[Json] | _StepTexts] = list,
    ) -> None:
        self._session_id = session_id
        self._version = version
        self._agent_version = agent_version
        self._embeds = embeds
        self._new_steps = new_steps
        self._ids: set[str] = set()
        self.media = Media()
        self.files: dict[str, Json] = {}

    def document(self, told: Told, trajectory_id: str, extra: Json) -> Json:
        self._ids.add(trajectory_id)
        subagents, refs = self._subagents(told, trajectory_id)
        of_no_call = refs.pop(_NO_CALL, None)
        made = Steps(refs, self.media, has_generations=told.has_generations, refs_of_no_call=of_no_call)
        steps = self._new_steps()
        summary = Summary()
        audio_parts = self.media.audio_parts
        for step in told.steps(made):
            summary.add(step)
            step["step_id"] = summary.steps
            steps.append(step)
        has_audio = self.media.audio_parts > audio_parts
        agent = {
            "name": told.run.agent or "unknown",
            "version": self._agent_version,
            "model_name": next(iter(told.models)) if len(told.models) == 1 else None,
        }
        document = {
            "schema_version": least_version(self._version, AUDIO_VERSION) if has_audio else self._version,
            "session_id": self._session_id,
            "trajectory_id": trajectory_id,
            "agent": known(agent),
            "final_metrics": _final_metrics(told, summary, subagents),
            "extra": {**extra, **_of_the_run(told, summary)},
        }
        embedded = {"subagent_trajectories": subagents} if self._embeds and subagents else {}
        return {**known(document), "steps": steps, **embedded}

    def _subagents(self, told: Told, parent_id: str) -> tuple[list[Json], dict[str, list[Json]]]:
        """Their documents, and by call id what refers to them."""
        documents: list[Json] = []
        refs: dict[str, list[Json]] = {}
        for subagent in told.subagents:
            spawned_by = subagent.run.spawned_by
            name = self._unused_id(f"{parent_id}.{subagent.run.agent_id or spawned_by or 'subagent'}")
            document = self.document(subagent, name, known({"spawned_by": spawned_by}))
            documents.append(document)
            ref = {"trajectory_id": name, "session_id": self._session_id}
            if not self._embeds:
                path = f"trajectory.{_NOT_IN_NAMES.sub('_', name)}.json"
                self.files[path] = document
                ref = {**ref, "trajectory_path": path}
            refs.setdefault(spawned_by or _NO_CALL, []).append(ref)
        return documents, refs

    def _unused_id(self, name: str) -> str:
        number, unused = 1, name
        while unused in self._ids:
            number += 1
            unused = f"{name}-{number}"
        self._ids.add(unused)
        return unused

    def continued(self, document: Json, name: str) -> dict[str, Json]:
        """The document cut behind each boundary that replaced the context; totals and subagents are of the part."""
        parts = _parts(document["steps"])
        if len(parts) == 1:
            return {name: document}
        names = [name, *(f"trajectory.cont-{number}.json" for number in range(1, len(parts)))]
        subagents_of = _subagents_of_parts(document, parts)
        files = {}
        for number, steps in enumerate(parts):
            part = dict(document)
            if number:
                part["session_id"] = f"{self._session_id}-cont-{number}"
                part["trajectory_id"] = f"{document['trajectory_id']}-cont-{number}"
                part["agent"] = {**document["agent"], "extra": {"continuation_index": number}}
            if number + 1 < len(parts):
                part["continued_trajectory_ref"] = names[number + 1]
            summary = Summary()
            for step in steps:
                summary.add(step)
            part["subagent_trajectories"] = subagents_of[number] or None
            part["final_metrics"] = _sums(summary, subagents_of[number])
            part["steps"] = _numbered(steps)
            files[names[number]] = known(part)
        return files


def _parts(steps: Sequence[Json]) -> list[list[Json]]:
    parts: list[list[Json]] = [[]]
    instructions = []
    for step in steps:
        parts[-1].append(step)
        managed = (step.get("extra") or {}).get("context_management")
        if managed is None and step["source"] == "system":
            instructions.append(step)
        if managed is not None and managed.get("boundary") == "replace" and step is not steps[-1]:
            kept = instructions if managed.get("keeps_instructions") is not False else []
            parts.append([_copied(each) for each in (*kept, *_shown(step))])
    return parts


def _subagents_of_parts(document: Json, parts: Sequence[Sequence[Json]]) -> list[list[Json]]:
    """Of each part the subagents that it is the first to refer to; of the last one also those that none does."""
    place: dict[str, int] = {}
    for number, steps in enumerate(parts):
        for ref in (ref for step in steps for ref in _refs(step)):
            place.setdefault(ref["trajectory_id"], number)
    found: list[list[Json]] = [[] for _ in parts]
    for subagent in document.get("subagent_trajectories", ()):
        found[place.get(subagent["trajectory_id"], -1)].append(subagent)
    return found


def _shown(boundary: Json) -> list[Json]:
    """What later calls saw, as steps."""
    results = (boundary.get("observation") or {}).get("results") or ()
    return [{"source": "user", "message": result["content"]} for result in results if "content" in result]


def _copied(step: Json) -> Json:
    return {**step, "is_copied_context": True}


def _numbered(steps: Iterable[Json]) -> list[Json]:
    return [{**step, "step_id": number} for number, step in enumerate(steps, 1)]


def _refs(step: Json) -> Iterable[Json]:
    for result in (step.get("observation") or {}).get("results") or ():
        yield from result.get("subagent_trajectory_ref") or ()


@dataclass(slots=True)
class Summary:
    """What a document says of all of its steps. ``totals``: of each figure the sum of what is known."""

    steps: int = 0
    totals: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    costs: list[float] = field(default_factory=list)
    has_costs: bool = False
    is_of_system: bool = True

    def add(self, step: Json) -> None:
        self.steps += 1
        self.is_of_system = self.is_of_system and step["source"] == "system"
        metrics = step.get("metrics")
        if metrics is None:
            return
        cost = metrics.get("cost_usd")
        self.has_costs = self.has_costs or cost is not None
        if step.get("is_copied_context"):
            return
        if cost is not None:
            self.costs.append(cost)
        for figures, names in ((metrics, _TOTALS), (metrics.get("extra", _NO_FIGURES), _EXTRA_TOTALS)):
            for name in names:
                if name in figures:
                    self.totals[name] += figures[name]


def _final_metrics(told: Told, summary: Summary, subagents: Sequence[Json]) -> Json:
    """Of the steps; ``total_cost_usd`` is with the subagents, and the harness's where no step says its own."""
    totals = _sums(summary, subagents)
    cost = told.run.total_cost_usd
    if cost is not None and not summary.has_costs:
        totals["total_cost_usd"] = cost
    if told.without_usage:
        totals["extra"] = {**totals.get("extra", {}), "generations_without_usage": told.without_usage}
    return totals


def _sums(summary: Summary, subagents: Sequence[Json]) -> Json:
    costs = summary.costs + [
        cost for each in subagents if (cost := each["final_metrics"].get("total_cost_usd")) is not None
    ]
    totals = summary.totals
    more = {f"total_{name.removeprefix('total_')}": totals.get(name) for name in _EXTRA_TOTALS}
    return known(
        {
            **{f"total_{name}": totals.get(name) for name in _TOTALS},
            "total_cost_usd": math.fsum(costs) if costs else None,
            "total_steps": summary.steps,
            "extra": known(more) or None,
        }
    )


def _of_the_run(told: Told, summary: Summary) -> Json:
    run = told.run
    is_whole = told.is_complete() and not summary.is_of_system
    return known(
        {
            "source": run.source,
            "complete": is_whole,
            "started_at": told.started_at,
            "completed_at": told.ended_at if is_whole else None,
            "duration_ms": run.duration_ms,
            "dropped_records": run.dropped_records or None,
            "gaps": told.gaps or None,
            "provider_usage": run.provider_usage,
        }
    )
