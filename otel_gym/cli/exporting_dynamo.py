"""What ``otel-gym export dynamo`` does. Apart from the commands: slow to load."""

from __future__ import annotations

import sys
from pathlib import Path

from otel_gym.cli.common import CommandError, early_leaving, open_store, progress, say
from otel_gym.cli.formats import counted
from otel_gym.cli.writing import not_written
from otel_gym.dynamo_settings import AGENT_TRACE, REQUEST_TRACE
from otel_gym.records.replay_hashes import ReplayHashError
from otel_gym.settings import read_settings
from otel_gym.store.reader import Store
from otel_gym.views.attempts import LaterAttempts, counting_rollouts
from otel_gym.views.dynamo.export import BlockSizeUnknownError, TraceForm, write_trace
from otel_gym.views.json_lines import is_stream
from otel_gym.views.selection import NO_RUN, selected_rollouts

SCHEMAS = {"agent": AGENT_TRACE, "request": REQUEST_TRACE}
_STDOUT = Path("-")
_NEEDS_SIZE = (
    "and replay hashes need the block size: give --trace-block-size N, the tokens of a cache block of the model's "
    "server, or --no-replay-hashes"
)


def export_dynamo(
    rollouts: list[str],
    output: Path | None,
    schema: str,
    block_size: int | None,
    replay_hashes: bool,
    directory: Path | None,
    run: str | None,
) -> Store:
    """The store, whose damage is said by the caller. CommandError."""
    if schema not in SCHEMAS:
        raise CommandError(f"--schema {schema!r} is none of {', '.join(SCHEMAS)}")
    file = None if output is None or output == _STDOUT else output
    if file is not None and not (is_stream(file) or file.name.endswith((".jsonl", ".jsonl.gz"))):
        raise CommandError(f"{file}: Dynamo's tools read .jsonl and .jsonl.gz; name it so")
    form = TraceForm(SCHEMAS[schema], block_size or read_settings().trace_block_size, replay_hashes)
    store = open_store(directory)
    try:
        with progress("exporting", printing=file is None) as advancing, early_leaving():
            selected = selected_rollouts(store, rollouts, run, advancing)
            counting = counting_rollouts(selected, LaterAttempts(store), named=bool(rollouts) or run == NO_RUN)
            number = write_trace(counting, form, file or sys.stdout.buffer)
            if file is not None:
                say(f"{counted(number, 'record')} written to {file}")
    except OSError as error:
        raise not_written(file or _STDOUT, error) from None
    except BlockSizeUnknownError as error:
        raise CommandError(f"{error}, {_NEEDS_SIZE}") from None
    except ReplayHashError as error:
        raise CommandError(f"{error}; or give --no-replay-hashes") from None
    return store
