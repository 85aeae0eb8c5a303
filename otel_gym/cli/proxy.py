"""``otel-gym proxy``: capture without a code change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from otel_gym.capture.store_folder import StoreFolderError, check_store_folder
from otel_gym.cli.common import CommandError, Directory, said_failures
from otel_gym.id_rules import InvalidIdError
from otel_gym.settings import read_settings, sdk_is_disabled
from otel_gym.tracing.pipeline import Pipeline, configure

SERVICE = "otel-gym-proxy"


def proxy(
    upstream: Annotated[
        str,
        typer.Option(
            "--upstream", help="URL of the model server, with or without /v1.", metavar="URL", show_default=False
        ),
    ],
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="Port to listen on; 0 picks a free one.", min=0, max=65535)
    ] = 8787,
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    propagate: Annotated[
        bool, typer.Option("--propagate", help="Send traceparent, tracestate and baggage to the model server.")
    ] = False,
    directory: Directory = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="ID",
            help="Run id of calls that bring none.  [default: OTEL_GYM_RUN_ID]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Stand between clients and any OpenAI- or Anthropic-compatible server, and capture every model call.

    Point a client's base URL at the proxy: http://HOST:PORT/ng-rollout/ROLLOUT/v1 for OpenAI, the same without /v1
    for Anthropic. /v1/responses, /v1/chat/completions and /v1/messages are captured, every other path is forwarded.
    Calls without the prefix are captured under the session that Claude Code, Codex, OpenCode or Dynamo's headers name,
    else as `unassigned`, unless OTEL_GYM_CAPTURE_UNASSIGNED=0. Bytes pass unchanged and at once. The model server never
    sees the prefix. Proxy variables of the environment are not used.

    A run id in a call's baggage (rollout.headers in Python) wins over --run.

    \b
    Example:
        otel-gym proxy --upstream http://127.0.0.1:8000 --port 8787
        curl http://127.0.0.1:8787/ng-rollout/12-0/v1/chat/completions -d '{"model": "m", "messages": []}'
    """
    # Web server and client are slow to load, and the other commands need neither.
    from otel_gym.capture.proxy import UpstreamUrlError, proxy_app, upstream_of
    from otel_gym.capture.proxy_server import end_line, serve, start_lines
    from otel_gym.listening import ListenError, listen, url_of

    with said_failures():
        try:
            target = upstream_of(upstream)
            listener = listen(host, port)
            pipeline = _pipeline(directory, run)
        except (UpstreamUrlError, ListenError, InvalidIdError, StoreFolderError) as error:
            raise CommandError(str(error)) from None
        lines = start_lines(
            url_of(listener),
            target,
            pipeline.directory if pipeline else None,
            stores_unassigned=bool(pipeline and pipeline.capture_unassigned),
            off_by="OTEL_SDK_DISABLED=true" if sdk_is_disabled(os.environ) else "OTEL_GYM=0",
        )
        app = proxy_app(target, propagate=propagate)
        serve(app, listener, lambda: print("\n".join(lines), flush=True))
        if pipeline is not None:
            print(end_line(app.state.capture.captured_calls, pipeline.recorder.spans_lost), flush=True)


def _pipeline(directory: Path | None, run: str | None) -> Pipeline | None:
    """Capture is this command's purpose: on, unless OTEL_GYM=0."""
    settings = read_settings({"OTEL_GYM": "1", **os.environ})
    if settings.enabled is False:
        return None
    # Set here, so that the first span does not announce again what we say on start.
    os.environ["OTEL_GYM_DIR"] = os.path.abspath(directory or settings.directory)
    unassigned = settings.capture_unassigned is not False
    pipeline = configure(directory=directory, run_id=run, service_name=SERVICE, capture_unassigned=unassigned)
    check_store_folder(pipeline.directory)
    return pipeline
