"""``otel-gym send``: a store's spans to an OTLP endpoint."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from otel_gym.cli.common import (
    DAMAGED,
    CommandError,
    Directory,
    Run,
    open_store,
    progress,
    reader,
    said_settings,
    say,
    say_damage,
)
from otel_gym.settings import captures_messages
from otel_gym.store.reader import Store
from otel_gym.views.selection import selected_rollouts

Endpoint = Annotated[
    str,
    typer.Option("--endpoint", metavar="URL", help="http://HOST:4318, or HOST:4317 for gRPC.", show_default=False),
]
Rollouts = Annotated[
    list[str] | None,
    typer.Argument(metavar="[[RUN/]ROLLOUT]...", help="Which rollouts.  [default: all]", show_default=False),
]


@reader
def send(
    endpoint: Endpoint,
    rollouts: Rollouts = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol",
            metavar="grpc|http/protobuf",
            help="How it is spoken to.  [default: OTEL_EXPORTER_OTLP_PROTOCOL, else by the port]",
            show_default=False,
        ),
    ] = None,
    attribute_bytes: Annotated[
        int | None,
        typer.Option(
            "--attribute-bytes",
            min=0,
            metavar="N",
            help="Cut longer attributes; 0: none.  [default: OTEL_GYM_OTLP_ATTRIBUTE_BYTES, else 2000]",
            show_default=False,
        ),
    ] = None,
    message_bytes: Annotated[
        int | None,
        typer.Option(
            "--message-bytes",
            min=4096,
            metavar="N",
            help="Largest message.  [default: OTEL_GYM_OTLP_BATCH_BYTES, else below 4 MiB]",
            show_default=False,
        ),
    ] = None,
    content: Annotated[
        bool | None,
        typer.Option(
            "--content/--no-content",
            help="Send what was said.  [default: as OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT asks]",
            show_default=False,
        ),
    ] = None,
    run: Run = None,
    directory: Directory = None,
) -> Store:
    """Send rollouts to Jaeger, Tempo, a Collector or `otel-gym receive`, with their own ids and times.

    By default the slim form that the OTLP copy of a traced program has: long attributes cut, and without what was said.
    --content --attribute-bytes 0 sends them whole. Headers come from OTEL_EXPORTER_OTLP_HEADERS.

    \b
    Example:
        otel-gym send --endpoint http://127.0.0.1:4318 --run latest
        otel-gym send --endpoint 127.0.0.1:4317 12-0 --content --attribute-bytes 0
    """
    # Transports are slow to load, and the other commands need none.
    from otel_gym.tracing.otlp.plan import protocol_of
    from otel_gym.views.otlp.messages import SentForm
    from otel_gym.views.otlp.replay import replay, summary_lines
    from otel_gym.views.otlp.sending import SendError, new_sender

    if protocol not in (None, "grpc", "http/protobuf"):
        raise CommandError(f"--protocol {protocol!r} is not known: give grpc or http/protobuf")
    settings = said_settings()
    form = SentForm(
        settings.otlp_attribute_bytes if attribute_bytes is None else attribute_bytes,
        captures_messages(os.environ) if content is None else content,
        message_bytes or settings.otlp_batch_bytes,
    )
    store = open_store(directory)
    protocol = protocol or protocol_of(os.environ, "traces", None, endpoint)[0]
    try:
        sender = new_sender(endpoint, protocol, os.environ, say)
    except SendError as problem:
        raise CommandError(str(problem)) from None
    try:
        with progress("sending") as advancing:
            sent = replay(selected_rollouts(store, rollouts or (), run, advancing), form, sender)
    except SendError as problem:
        raise CommandError(str(problem)) from None
    finally:
        sender.close()
    for line in summary_lines(sent):
        print(line, flush=True)
    if sent.refused:
        say(f"{sent.refused:,} spans were refused: {sent.problem}")
        say_damage(store)
        raise typer.Exit(DAMAGED)
    return store
