"""What the commands that write traces for Perfetto share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from otel_gym.cli.common import DAMAGED, CommandError, progress, say
from otel_gym.cli.formats import counted
from otel_gym.cli.writing import not_written, tidied_when_ended, without_collector
from otel_gym.store.reader import Store
from otel_gym.views.attempts import LaterAttempts, counting_rollouts
from otel_gym.views.json_lines import is_stream, replacing
from otel_gym.views.selection import NO_RUN, resolve_run, selected_rollouts

if TYPE_CHECKING:
    from otel_gym.views.perfetto.overview import Rows
    from otel_gym.views.perfetto.shapes import Process
    from otel_gym.views.perfetto.stages import WantedStages

TraceArgs = Annotated[
    str,
    typer.Option("--args", help="What stands beside a slice: none, ids and usage, or all.", metavar="none|ids|full"),
]
WholeRun = Annotated[
    bool, typer.Option("--overview", help="All rollouts on one time axis, a row each: stragglers, idle gaps.")
]
NoStages = Annotated[bool, typer.Option("--no-stages", help="Without the stages of model calls: prefill, decode.")]
SeparateStages = Annotated[
    bool, typer.Option("--separate-stage-tracks", help="Stages in tracks of their own, not below their calls.")
]
Markers = Annotated[
    bool, typer.Option("--include-markers/--no-markers", help="The instant of each call's first token.")
]
Http = Annotated[bool, typer.Option("--http", help="Also the spans of HTTP servers.")]


@dataclass(frozen=True, slots=True)
class WantedTrace:
    """Which rollouts, and how they are shown. ``rows``: on one time axis, a row of that kind each."""

    rollouts: list[str]
    run: str | None
    args: str
    http: bool = False
    rows: Rows | None = None
    stages: WantedStages | None = None


def wanted_stages(no_stages: bool, apart: bool, markers: bool) -> WantedStages:
    from otel_gym.views.perfetto.stages import WantedStages

    if no_stages and apart:
        raise CommandError("--separate-stage-tracks shows stages, --no-stages does not; leave one out")
    return WantedStages(not no_stages, markers, apart)


def checked_rows(rows: str | None, whole_run: bool) -> Rows | None:
    """The rows of an overview; None without one."""
    from otel_gym.views.perfetto.overview import Rows

    if rows is not None and not whole_run:
        raise CommandError("--rows is of --overview; give that too")
    if not whole_run:
        return None
    rows = rows or "rollout"
    if rows not in get_args(Rows):
        raise CommandError(f"--rows {rows!r} is none of {', '.join(get_args(Rows))}")
    return cast("Rows", rows)


def write_wanted(store: Store, wanted: WantedTrace, output: Path) -> int:
    """Returns the number of processes: one a rollout, or with ``rows`` one a run."""
    from concurrent.futures.process import BrokenProcessPool  # slow to load, as what follows

    from otel_gym.views.perfetto.arguments import ArgsMode
    from otel_gym.views.perfetto.export import is_trace_name, processes, write_trace
    from otel_gym.views.perfetto.overview import overview
    from otel_gym.views.perfetto.parallel import workers_for, write_trace_of_store
    from otel_gym.views.perfetto.stages import WantedStages
    from otel_gym.views.perfetto.timeline import Shown

    if wanted.args not in get_args(ArgsMode):
        raise CommandError(f"--args {wanted.args!r} is none of {', '.join(get_args(ArgsMode))}")
    if not is_trace_name(output.name):
        raise CommandError(f"{output}: a trace is a .pftrace or a .json, also with .gz behind; give -o such a name")
    shown = Shown(cast("ArgsMode", wanted.args), wanted.http, wanted.stages or WantedStages())
    is_named = bool(wanted.rollouts) or wanted.run == NO_RUN

    is_one_process = is_named or wanted.rows is not None or is_stream(output)
    workers = 1 if is_one_process else workers_for(store)

    def made() -> Iterator[Process]:
        selected = selected_rollouts(store, wanted.rollouts, wanted.run, advancing)
        attempts = LaterAttempts(store)
        counting = counting_rollouts(selected, attempts, named=is_named)
        if wanted.rows is not None:
            return overview(counting, wanted.rows)
        return processes(counting, shown, is_superseded=attempts.supersede)

    try:
        with (
            tidied_when_ended(),
            progress("exporting") as advancing,
            without_collector(),
            replacing(output) as temporary,
        ):
            if workers == 1:
                return write_trace(made, temporary, output.name)
            runs = None if wanted.run is None else frozenset([resolve_run(store, wanted.run)])
            number, damage = write_trace_of_store(store, temporary, output.name, shown, workers, runs, advancing)
            store.met(damage)
            return number
    except OSError as error:
        raise not_written(output, error) from None
    except BrokenProcessPool:
        raise CommandError(f"{output} cannot be written: a process that made it was killed; is there memory?") from None


def write_dynamo(paths: list[Path], output: Path, stages: WantedStages, place: str | None = None) -> int:
    """Trace files of Dynamo's, without a store. Says what was damaged, and returns the command's exit code.

    ``place``: where the trace is, if not in a file that the caller named.
    """
    from otel_gym.ingest.files import unreadable_text  # slow to load, as what follows
    from otel_gym.store.dynamo_files import NoTraceFileError, trace_files
    from otel_gym.views.perfetto.dynamo.export import write_dynamo_trace
    from otel_gym.views.perfetto.export import is_json_name

    if not is_json_name(output.name):
        raise CommandError(f"{output}: traces of Dynamo become a .json, also with .gz behind; give -o such a name")
    damage: list[str] = []
    files: list[Path] = []
    try:
        files = trace_files(paths)
        with tidied_when_ended(), without_collector(), replacing(output) as temporary:
            folders = [path for path in paths if path.is_dir()]
            named = [file for file in files if not any(folder in file.parents for folder in folders)]
            told = write_dynamo_trace(
                files, temporary, stages, lambda each: damage.append(str(each)), output.name, named
            )
    except NoTraceFileError as problem:
        raise CommandError(str(problem)) from None
    except OSError as error:
        if error.filename is not None and Path(error.filename) in files:
            raise CommandError(unreadable_text(Path(error.filename), error)) from None
        raise not_written(output, error) from None
    if told.duplicates:
        number_of = "one record is" if told.duplicates == 1 else f"{told.duplicates:,} records are"
        damage.append(f"{number_of} written twice: each is shown once")
    for text in damage:
        say(text)
    say(f"{told.shown:,} requests and tools of {counted(len(files), 'file')} {place or f'written to {output}'}")
    return DAMAGED if damage else 0
