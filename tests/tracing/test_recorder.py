"""When a span that was handed over is on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from otel_gym.store.writer import StoreWriter
from otel_gym.tracing.recorder import Recorder


def test_a_span_that_ended_before_slow_ones_is_on_disk_before_they_are(tmp_path):
    """A process that was killed had lost spans that ended 200 ms before: they waited for all that came with them."""
    on_disk = []

    def slow(_content) -> bytes:
        on_disk.append(sum(path.read_bytes().count(b"\n") for path in tmp_path.glob("spans/*/*.jsonl")))
        time.sleep(0.03)
        return b"{}\n"

    recorder = Recorder(lambda: StoreWriter(tmp_path), 1 << 20)
    for _ in range(6):
        recorder.add_span("1-0", slow, 10)
    assert recorder.flush(10)
    assert all(found >= number - 1 for number, found in enumerate(on_disk)), on_disk


@pytest.mark.parametrize(("form", "loaded"), [("parquet", "True"), ("jsonl", "False")])
def test_what_seals_is_loaded_before_there_are_spans_or_never(tmp_path, form, loaded):
    """Loaded at the first sealing, it kept spans from the disk for 160 ms."""
    program = "import sys, otel_gym; otel_gym.configure(); print('pyarrow' in sys.modules)"
    environ = {**os.environ, "OTEL_GYM_DIR": str(tmp_path), "OTEL_GYM_FORMAT": form}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [loaded]
