"""``otel-gym export``: what a store holds, in the forms that others read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from otel_gym.cli.common import (
    AddressCommand,
    CommandError,
    Directory,
    Run,
    early_leaving,
    open_store,
    progress,
    reader,
    say,
)
from otel_gym.cli.formats import counted
from otel_gym.cli.traces import (
    Markers,
    NoStages,
    SeparateStages,
    TraceArgs,
    WantedTrace,
    WholeRun,
    checked_rows,
    wanted_stages,
    write_dynamo,
    write_wanted,
)
from otel_gym.cli.writing import not_written, write_files
from otel_gym.store.reader import RolloutSpans, Store
from otel_gym.views.attempts import LaterAttempts, counting_rollouts
from otel_gym.views.counted_calls import counted_calls, model_call_rows
from otel_gym.views.json_lines import Row, is_stream, print_json_lines, write_json_lines
from otel_gym.views.selection import NO_RUN, selected_rollouts

app = typer.Typer(
    help="Write what a store holds in the forms that others read.", no_args_is_help=True, rich_markup_mode=None
)


FORMATS = ("jsonl", "parquet")
FORMAT_OF_SUFFIX = {"": "jsonl", ".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
STDOUT = Path("-")
ATIF_VERSIONS = {"1.7": "ATIF-v1.7", "1.8": "ATIF-v1.8"}


@app.callback()
def export() -> None:
    """Write what a store holds in the forms that others read."""


Rollouts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[[RUN/]ROLLOUT]...",
        help="Only these, superseded or not; default: what counts in the store.",
        show_default=False,
    ),
]
LinesFile = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="FILE", help="File to write; - is stdout.  [default: stdout]", show_default=False
    ),
]


@app.command("model-calls", cls=AddressCommand, short_help="Write the ModelCallRecords.")
@reader
def model_calls(
    rollouts: Rollouts = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="parquet has one schema, nested values as JSON text.  [default: by FILE's name, jsonl on stdout]",
            metavar="jsonl|parquet",
            show_default=False,
        ),
    ] = None,
    output: LinesFile = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="Also superseded attempts, executions that do not count, calls of no certain run."),
    ] = False,
    directory: Directory = None,
    run: Run = None,
) -> Store:
    """Write the ModelCallRecords: one exchange with a model server each, retries included.

    What counts is written: of each rollout the newest finished execution of its last attempt. With --all the rest comes
    too, marked as superseded; what is of no certain run comes with --run - as well. `execution` is the span id of the
    rollout that a call belongs to. A file appears under its name only when it is whole, and replaces a file that is
    there; a FIFO or device is written into.

    \b
    Example:
        otel-gym export model-calls --run latest -o model_calls.jsonl
        otel-gym export model-calls 2-0 | head -1
        otel-gym export model-calls --all -o model_calls.parquet
    """
    form = _format(format, output)
    if form == "parquet" and (output is None or output == STDOUT):
        raise CommandError("parquet is not written to stdout; name a file with -o FILE.parquet")

    def rows_of(selected: Iterable[RolloutSpans], attempts: LaterAttempts, named: bool) -> Iterator[Row]:
        return model_call_rows(counted_calls(selected, attempts, every=every, named=named))

    write = _write_parquet if form == "parquet" else write_json_lines
    return _write_rows(rows_of, ("model call", "model calls"), rollouts, output, directory, run, write)


@app.command("trajectory", cls=AddressCommand, short_help="Write the trajectories of agents.")
@reader
def trajectory(
    rollouts: Rollouts = None, output: LinesFile = None, directory: Directory = None, run: Run = None
) -> Store:
    """Write the trajectories as JSON lines: one agent each, with its subagents in it.

    `output` holds the items of the Responses API in order, each with its `agent_step_no`; `generations` what each step
    cost; `gaps` what is known to be missing. docs/trajectories.md has the rest.

    \b
    Example:
        otel-gym export trajectory 2-0
        otel-gym export trajectory --run latest -o trajectories.jsonl
    """
    from otel_gym.views.trajectory_rows import trajectory_rows

    return _write_rows(_counting(trajectory_rows), ("trajectory", "trajectories"), rollouts, output, directory, run)


@app.command("generations", cls=AddressCommand, short_help="Write what each generation of each agent cost.")
@reader
def generations(
    rollouts: Rollouts = None, output: LinesFile = None, directory: Directory = None, run: Run = None
) -> Store:
    """Write one row a generation as JSON lines: its agent and step, model, ids, tokens, times.

    \b
    Example:
        otel-gym export generations --run latest -o generations.jsonl
    """
    from otel_gym.views.trajectory_rows import generation_rows

    return _write_rows(_counting(generation_rows), ("generation", "generations"), rollouts, output, directory, run)


@app.command("atif", cls=AddressCommand, short_help="Write trajectories in ATIF.")
@reader
def atif(
    rollouts: Rollouts = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FOLDER",
            help="Folder that gets a folder a rollout.  [default: one rollout, to stdout]",
            show_default=False,
        ),
    ] = None,
    version: Annotated[str, typer.Option("--version", help="1.7 or 1.8.", metavar="VERSION")] = "1.7",
    subagent_files: Annotated[
        bool, typer.Option("--subagent-files", help="Subagents in files of their own, not in the document.")
    ] = False,
    directory: Directory = None,
    run: Run = None,
) -> Store:
    """Write trajectories in ATIF (Agent Trajectory Interchange Format), as Harbor, NeMo Gym and Phoenix read it.

    Each rollout becomes FOLDER/[RUN/]ROLLOUT/trajectory.json, with its images beside it. What was imported from ATIF
    comes back as it was. Tokens, times and the reward that ATIF has no field for stand in `extra`.

    \b
    Example:
        otel-gym export atif 2-0
        otel-gym export atif --run latest -o trajectories
    """
    if version not in ATIF_VERSIONS:
        raise CommandError(f"--version {version!r} is not written: one of {', '.join(ATIF_VERSIONS)}")
    from otel_gym.views.atif_export import atif_files

    store = open_store(directory)
    number = 0
    with progress("exporting", printing=output is None) as advancing:
        selected = selected_rollouts(store, rollouts or [], run, advancing)
        for rollout in counting_rollouts(selected, LaterAttempts(store), named=bool(rollouts) or run == NO_RUN):
            number += 1
            files = atif_files(rollout, ATIF_VERSIONS[version], embed_subagents=not subagent_files)
            if output is not None:
                write_files(output / rollout.address, {name: (content,) for name, content in files.items()})
            elif number == 1:
                sys.stdout.buffer.write(next(iter(files.values())))
            else:
                raise CommandError("only one rollout goes to stdout; name it, or give a folder with -o FOLDER")
    if output is not None:
        typer.echo(f"{counted(number, 'rollout')} written below {output}", err=True)
    return store


@app.command("dynamo", cls=AddressCommand, short_help="Write a trace for Dynamo's tools.")
@reader
def dynamo(
    rollouts: Rollouts = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File to write: .jsonl or .jsonl.gz; - is stdout.  [default: stdout]",
            show_default=False,
        ),
    ] = None,
    schema: Annotated[
        str,
        typer.Option(
            "--schema",
            help="agent: dynamo.agent.trace.v1, of Dynamo 1.2; request: dynamo.request.trace.v1, from 1.3 on.",
            metavar="agent|request",
        ),
    ] = "agent",
    block_size: Annotated[
        int | None,
        typer.Option(
            "--trace-block-size",
            help="Tokens of a cache block, for replay hashes.  [default: OTEL_GYM_TRACE_BLOCK_SIZE]",
            metavar="N",
            min=1,
            show_default=False,
        ),
    ] = None,
    replay_hashes: Annotated[
        bool, typer.Option("--replay-hashes/--no-replay-hashes", help="Hashes of prompts whose token ids are known.")
    ] = True,
    directory: Directory = None,
    run: Run = None,
) -> Store:
    """Write model calls and tool runs as Dynamo's trace files have them, for its Perfetto and Mooncake converters.

    A rollout is a session, its agents are trajectories (with --schema request: sessions below it), unless the spans
    say themselves which they are of. What was imported from Dynamo comes back as it was. docs/dynamo.md has the rest.

    \b
    Example:
        otel-gym export dynamo --run latest --no-replay-hashes -o trace.jsonl.gz
        otel-gym export dynamo --schema request --trace-block-size 16 -o trace.jsonl
    """
    from otel_gym.cli.exporting_dynamo import export_dynamo  # slow to load

    return export_dynamo(rollouts or [], output, schema, block_size, replay_hashes, directory, run)


Http = Annotated[bool, typer.Option("--http", help="Also the spans of HTTP servers.")]


@app.command("perfetto", cls=AddressCommand, short_help="Write a trace for Perfetto.")
@reader
def perfetto(
    rollouts: Rollouts = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File to write: .pftrace or .json, also with .gz.  [default: rollouts.pftrace; dynamo.json]",
            show_default=False,
        ),
    ] = None,
    args: TraceArgs = "full",
    http: Http = False,
    no_stages: NoStages = False,
    separate_stages: SeparateStages = False,
    markers: Markers = True,
    whole_run: WholeRun = False,
    rows: Annotated[
        str | None,
        typer.Option(
            "--rows", help="Rows of --overview.  [default: rollout]", metavar="rollout|worker", show_default=False
        ),
    ] = None,
    dynamo: Annotated[
        list[Path] | None,
        typer.Option(
            "--dynamo",
            metavar="PATH",
            help="Of trace files of Dynamo's instead, without a store: a file, folder or glob; may be repeated.",
            show_default=False,
        ),
    ] = None,
    directory: Directory = None,
    run: Run = None,
) -> Store:
    """Write a trace for Perfetto: where the time and the tokens of rollouts went.

    A process a rollout, with tracks of agents, model calls, tools and counters of tokens; arrows lead from a model call
    to the tools that it asked for, to subagents and to retries. FILE.pftrace is exact to the nanosecond; FILE.json is
    for tools that read Chrome's format. Open it with `otel-gym perfetto`, or at https://ui.perfetto.dev.

    \b
    Example:
        otel-gym export perfetto 2-0 -o 2-0.pftrace
        otel-gym export perfetto --run latest --overview -o run.pftrace.gz
        otel-gym export perfetto --dynamo trace.000000.jsonl.gz -o trace.json
    """
    stages = wanted_stages(no_stages, separate_stages, markers)
    if dynamo:
        if rollouts or run is not None or whole_run or http or directory is not None or args != "full":
            raise CommandError(
                "--dynamo reads no store: leave out rollouts, --run, --dir, --overview, --http and --args"
            )
        raise typer.Exit(write_dynamo(dynamo, output or Path("dynamo.json"), stages))
    output = output or Path("rollouts.pftrace")
    store = open_store(directory)
    wanted = WantedTrace(rollouts or [], run, args, http=http, rows=checked_rows(rows, whole_run), stages=stages)
    number = write_wanted(store, wanted, output)
    say(f"{counted(number, 'run' if whole_run else 'rollout')} written to {output}")
    return store


@app.command("mooncake", cls=AddressCommand, short_help="Write a Mooncake trace, which Dynamo's replay simulates.")
@reader
def mooncake(
    rollouts: Rollouts = None,
    output: LinesFile = None,
    agentic: Annotated[
        bool, typer.Option("--agentic", help="Each request waits for those before it, subagents and tools.")
    ] = False,
    rules: Annotated[
        str | None,
        typer.Option(
            "--rules",
            help="Of which Dynamo's conversion.  [default: that of the trace that was imported, else 2026-08]",
            metavar="2026-06|2026-08",
            show_default=False,
        ),
    ] = None,
    trace_block_size: Annotated[
        int | None,
        typer.Option(
            "--trace-block-size",
            help="Tokens of a block, for requests with token ids.  [default: that of Dynamo's replay hashes]",
            metavar="N",
            min=1,
            show_default=False,
        ),
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Leave out what cannot be replayed, say what, and end with 1.")
    ] = False,
    directory: Directory = None,
    run: Run = None,
) -> Store:
    """Write the requests of rollouts as a Mooncake trace, for `python -m dynamo.replay`.

    Each request with the blocks of its prompt by number, so that shared prefixes are seen: from Dynamo's replay hashes,
    or from token ids. The rows are checked before they are written, so that the replay completes every one; it needs
    the size of a block, which is said at the end.

    \b
    Example:
        otel-gym export mooncake --agentic -o rollouts.jsonl
        otel-gym export mooncake 2-0 --trace-block-size 64 -o 2-0.jsonl
    """
    from otel_gym.cli.exporting_mooncake import MooncakeWanted, write_mooncake

    store = open_store(directory)
    wanted = MooncakeWanted(rollouts or [], run, agentic, rules, trace_block_size, lenient)
    write_mooncake(store, wanted, output)
    return store


def _write_rows(
    rows_of: Callable[[Iterable[RolloutSpans], LaterAttempts, bool], Iterator[Row]],
    one_and_many: tuple[str, str],
    rollouts: list[str] | None,
    output: Path | None,
    directory: Path | None,
    run: str | None,
    write: Callable[[Iterable[Row], Path], int] = write_json_lines,
) -> Store:
    """``rows_of`` gets the rollouts, which attempts the store holds, and whether these were asked for by name."""
    store = open_store(directory)
    to_stdout = output is None or output == STDOUT
    with progress("exporting", printing=to_stdout) as advancing:
        selected = selected_rollouts(store, rollouts or [], run, advancing)
        rows = rows_of(selected, LaterAttempts(store), bool(rollouts) or run == NO_RUN)
        if output is None or to_stdout:
            with early_leaving():
                print_json_lines(rows, sys.stdout)
            return store
        try:
            number = write(rows, output)
        except OSError as error:
            raise not_written(output, error) from None
    say(f"{number:,} {one_and_many[number != 1]} written to {output}")
    return store


def _counting(rows_of: Callable[[Iterable[RolloutSpans]], Iterator[Row]]) -> Callable[..., Iterator[Row]]:
    """Rows of those rollouts alone that count."""
    return lambda selected, attempts, named: rows_of(counting_rollouts(selected, attempts, named=named))


def _write_parquet(rows: Iterable[Row], path: Path) -> int:
    from otel_gym.views.model_calls_export import write_parquet  # pyarrow is slow to load

    return write_parquet(rows, path)


def _format(named: str | None, output: Path | None) -> str:
    if named is None:
        suffix = "" if output is None or is_stream(output) else output.suffix
        if suffix not in FORMAT_OF_SUFFIX:
            raise CommandError(f"{output}: no format is named {suffix}; give --format jsonl or parquet, or name it so")
        return FORMAT_OF_SUFFIX[suffix]
    if named not in FORMATS:
        raise CommandError(f"--format {named!r} is none of {', '.join(FORMATS)}")
    return named
