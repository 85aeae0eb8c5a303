"""``otel-gym dynamo``: what stands beside NVIDIA Dynamo while it runs."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from otel_gym.capture.store_folder import StoreFolderError, check_store_folder
from otel_gym.cli.common import DAMAGED, CommandError, Directory, said_failures, said_settings, say

app = typer.Typer(help="What stands beside NVIDIA Dynamo.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def dynamo() -> None:
    """What stands beside NVIDIA Dynamo."""


@app.command("relay", short_help="Take tool events of harnesses over ZeroMQ into a store.")
def relay(
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            metavar="URL",
            help="Where to bind: tcp://HOST:PORT (port 0 picks a free one) or ipc://PATH; may be repeated.  "
            "[default: DYN_AGENT_TRACE_TOOL_EVENTS_ZMQ_ENDPOINT and DYN_REQUEST_TRACE_TOOL_EVENTS_ZMQ_ENDPOINT, else "
            "tcp://127.0.0.1:20390]",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="Only events of this topic.  [default: DYN_…_TOOL_EVENTS_ZMQ_TOPIC, else as Dynamo: any, or "
            "agent-tool-events in the flat shape]",
            show_default=False,
        ),
    ] = None,
    public: Annotated[
        bool,
        typer.Option("--public", help="Bind an address that other machines reach; nobody is asked for a password."),
    ] = False,
    directory: Directory = None,
) -> None:
    """Take tool events over ZeroMQ where Dynamo would, and write a span of each tool into the store.

    Harnesses connect with PUSH sockets and send three frames: topic, number, and a record in msgpack, nested as
    Dynamo 1.2 takes it or flat as newer ones do. What Dynamo would drop is dropped, and counted by reason.

    \b
    Example:
        otel-gym dynamo relay --endpoint tcp://127.0.0.1:20390
    """
    # Which few commands need.
    from otel_gym.ingest.dynamo.endpoints import EndpointError, check_address, endpoints_of
    from otel_gym.ingest.dynamo.relay import RelayError, ToolEventRelay
    from otel_gym.ingest.dynamo.serving import count_line, serve, start_lines

    with said_failures():
        settings = said_settings()
        if settings.enabled is False:
            raise CommandError("OTEL_GYM=0: what comes would not be stored; unset it to receive")
        store = directory or settings.directory
        try:
            endpoints = endpoints_of(endpoint or [], topic, os.environ)
            for each in endpoints:
                check_address(each.address, is_public=public)
            check_store_folder(store)
            events = ToolEventRelay(store, settings, endpoints, say)
        except (EndpointError, RelayError, StoreFolderError) as error:
            raise CommandError(str(error)) from None
        print("\n".join(start_lines(events.endpoints, store)), flush=True)
        serve(events)
        print(count_line(events.counts), flush=True)
        if events.counts.failed is not None:
            say(f"{store}: the last events could not be written: {events.counts.failed}")
            raise typer.Exit(DAMAGED)
