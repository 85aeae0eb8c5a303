"""``otel-gym perfetto``: a trace of rollouts in the browser."""

from __future__ import annotations

import shutil
import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from otel_gym.cli.common import CommandError, Directory, Run, open_store, said_failures, say, say_damage
from otel_gym.cli.traces import (
    Http,
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
from otel_gym.cli.writing import tidied_when_ended
from otel_gym.store.reader import Store


def perfetto(
    rollouts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[[RUN/]ROLLOUT]...|FILE...",
            help="The rollouts to show, a trace that was exported, or trace files of Dynamo's; default: what counts in "
            "the store.",
            show_default=False,
        ),
    ] = None,
    args: TraceArgs = "full",
    http: Http = False,
    no_stages: NoStages = False,
    separate_stages: SeparateStages = False,
    markers: Markers = True,
    whole_run: WholeRun = False,
    online: Annotated[
        bool, typer.Option("--online", help="In the public UI at ui.perfetto.dev, which reads the trace from here.")
    ] = False,
    print_url: Annotated[
        bool, typer.Option("--print-url", help="Open no browser, print where one has to go: for a remote machine.")
    ] = False,
    stay: Annotated[
        bool, typer.Option("--stay", help="Go on when the browser has the trace, until Ctrl-C: it can be reloaded.")
    ] = False,
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="Port to serve on; 0: a free one.", min=0, max=65535)
    ] = 0,
    directory: Directory = None,
    run: Run = None,
) -> None:
    """Open rollouts in Perfetto's UI, which is served from this machine and needs no internet.

    The UI comes with `pip install 'otel-gym[viewer]'`. With --online the trace is shown by ui.perfetto.dev instead: the
    page reads it from port 9001 of this machine, and sends it nowhere. The command ends by itself when the browser has
    had the trace for ten seconds, and on Ctrl-C.

    \b
    Example:
        otel-gym perfetto 2-0
        otel-gym perfetto --run latest --overview --stay
        otel-gym perfetto run.pftrace --online
        otel-gym perfetto trace.000000.jsonl.gz
        otel-gym perfetto 2-0 --print-url --port 8080
    """
    # A web server is slow to load.
    from otel_gym.cli.trace_server import ONLINE_PORT, UiMissingError, check_ui, serve_trace, trace_app, trace_url
    from otel_gym.listening import ListenError, listen

    with (
        said_failures(),
        tidied_when_ended(),
        tempfile.TemporaryDirectory(prefix="otel_gym_perfetto_") as folder,
    ):
        if online and port not in (0, ONLINE_PORT):
            raise CommandError(f"the public UI reads from port {ONLINE_PORT} alone; leave --port out")
        try:
            check_ui(online=online)
            stages = wanted_stages(no_stages, separate_stages, markers)
            wanted = WantedTrace(rollouts or [], run, args, http, checked_rows(None, whole_run), stages)
            code = 0
            if wanted.rollouts and all(map(_is_dynamo_name, wanted.rollouts)):
                if run is not None or whole_run or http or args != "full":
                    raise CommandError("trace files are shown whole: leave out --run, --overview, --http and --args")
                trace, store = Path(folder) / "trace.json", None
                code = write_dynamo([Path(name) for name in wanted.rollouts], trace, stages, "shown")
            else:
                trace, store = _trace(wanted, directory, Path(folder))
            listener = listen("127.0.0.1", ONLINE_PORT if online else port)
        except (UiMissingError, ListenError) as error:
            raise CommandError(str(error)) from None
        url = trace_url(listener, online=online)
        typer.echo(url)
        app = trace_app(trace, online=online, stays=stay)
        serve_trace(app, listener, None if print_url else lambda: _open_browser(url))
        if store is not None:
            say_damage(store)
        if code:
            raise typer.Exit(code)


def _trace(wanted: WantedTrace, directory: Path | None, folder: Path) -> tuple[Path, Store | None]:
    """A trace that was named, or one that is made of a store."""
    from otel_gym.views.perfetto.export import is_trace_name

    trace = folder / "trace.pftrace"
    if len(wanted.rollouts) == 1 and is_trace_name(wanted.rollouts[0]):
        given = Path(wanted.rollouts[0])
        try:
            return Path(shutil.copyfile(given, trace)), None
        except OSError as error:
            raise CommandError(f"{given} cannot be read: {error.strerror}") from None
    store = open_store(directory)
    write_wanted(store, wanted, trace)
    return trace, store


def _is_dynamo_name(name: str) -> bool:
    return name.endswith((".jsonl", ".jsonl.gz"))


def _open_browser(url: str) -> None:
    if not webbrowser.open(url):
        say("no browser could be opened: open the address above in one; Ctrl-C ends this")
