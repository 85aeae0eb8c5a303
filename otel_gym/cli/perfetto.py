"""``otel-gym perfetto``: a trace of rollouts in the browser."""

from __future__ import annotations

import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from otel_gym.cli.common import CommandError, Directory, Run, open_store, reader, say
from otel_gym.cli.traces import Http, TraceArgs, WantedTrace, write_wanted
from otel_gym.store.reader import Store


@reader
def perfetto(
    rollouts: Annotated[
        list[str],
        typer.Argument(metavar="[RUN/]ROLLOUT...", help="The rollouts to show.", show_default=False),
    ],
    args: TraceArgs = "full",
    http: Http = False,
    online: Annotated[
        bool, typer.Option("--online", help="In the public UI at ui.perfetto.dev, which reads the trace from here.")
    ] = False,
    print_url: Annotated[
        bool, typer.Option("--print-url", help="Open no browser, print where one has to go: for a remote machine.")
    ] = False,
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="Port to serve on; 0: a free one.", min=0, max=65535)
    ] = 0,
    directory: Directory = None,
    run: Run = None,
) -> Store:
    """Open rollouts in Perfetto's UI, which is served from this machine and needs no internet.

    The UI comes with `pip install 'otel-gym[viewer]'`. With --online the trace is shown by ui.perfetto.dev instead: the
    page reads it from port 9001 of this machine, and sends it nowhere. The command ends by itself when the browser has
    the trace, and on Ctrl-C.

    \b
    Example:
        otel-gym perfetto 2-0
        otel-gym perfetto 2-0 3-0 --online
        otel-gym perfetto 2-0 --print-url --port 8080
    """
    # A web server is slow to load.
    from otel_gym.capture.proxy_server import ListenError, listen
    from otel_gym.cli.trace_server import ONLINE_PORT, UiMissingError, serve_trace, trace_app, trace_url

    if online and port not in (0, ONLINE_PORT):
        raise CommandError(f"the public UI reads from port {ONLINE_PORT} alone; leave --port out")
    store = open_store(directory)
    with tempfile.TemporaryDirectory(prefix="otel_gym_perfetto_") as folder:
        trace = Path(folder) / "trace.pftrace"
        write_wanted(store, WantedTrace(rollouts, run, args, http), trace)
        try:
            app = trace_app(trace, online=online)
            listener = listen("127.0.0.1", ONLINE_PORT if online else port)
        except (UiMissingError, ListenError) as error:
            raise CommandError(str(error)) from None
        url = trace_url(listener, online=online)
        typer.echo(url)
        if not print_url and not webbrowser.open(url):
            say("no browser could be opened; open the address above, or give --print-url")
        serve_trace(app, listener)
    return store
