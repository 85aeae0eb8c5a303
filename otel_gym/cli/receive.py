"""``otel-gym receive``: spans of others' processes come in over OTLP."""

from __future__ import annotations

from typing import Annotated

import typer

from otel_gym.capture.store_folder import StoreFolderError, check_store_folder
from otel_gym.cli.common import CommandError, Directory, said_failures, said_settings


def receive(
    http: Annotated[
        int, typer.Option("--http", metavar="N", help="Port of OTLP over HTTP; 0 picks a free one.", min=0, max=65535)
    ] = 4318,
    grpc: Annotated[
        int, typer.Option("--grpc", metavar="N", help="Port of OTLP over gRPC; 0 picks a free one.", min=0, max=65535)
    ] = 4317,
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    directory: Directory = None,
) -> None:
    """Take spans over OTLP, and write them into the store, by rollout.

    A span is of the rollout that `gym.rollout.id` names on it or on its resource, else of that of the span above it;
    what has none is kept under `unassigned`. Senders are told that their spans were taken when these are in the
    store's files. Logs that Dynamo's sink `otel` sends become spans too; metrics and other logs are answered, and not
    kept.

    \b
    Example:
        otel-gym receive
        OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf python agent.py
    """
    # Servers are slow to load, and the other commands need none.
    from otel_gym.ingest.otlp.receiver import Receiver
    from otel_gym.ingest.otlp.server import end_line, serve, start_lines
    from otel_gym.listening import ListenError, listen

    with said_failures():
        settings = said_settings()
        if settings.enabled is False:
            raise CommandError("OTEL_GYM=0: what comes would not be stored; unset it to receive")
        store = directory or settings.directory
        try:
            check_store_folder(store)
            listener = listen(host, http, "--http")
            receiver = Receiver(store, settings)
            serve(
                receiver,
                listener,
                host,
                grpc,
                lambda found: print("\n".join(start_lines(found, store)), flush=True),
            )
        except (ListenError, StoreFolderError) as error:
            raise CommandError(str(error)) from None
        print(end_line(receiver.counts), flush=True)
