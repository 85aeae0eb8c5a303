"""Compaction may be killed at any moment: no span is lost, none counts twice, and running it again ends the work."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from otel_gym.store.compact import compact
from otel_gym.store.parquet import parquet_spans
from otel_gym.store.span import StoredSpan
from otel_gym.store.span_lines import line_of_span
from otel_gym.store.writer import StoreWriter
from tests.store.stores import live_spans, span, write

ROOT = Path(__file__).parent.parent.parent
SHA = "7" * 64


def make_base(base: Path) -> dict[str, StoredSpan]:
    """A store with a sealed part, late lines (new ones, repeated ones, one that says more) and media."""
    source = base / "source"
    (source / "blobs").mkdir(parents=True)
    (source / "blobs" / SHA).write_bytes(b"image")
    media = {"gym.request.body": f"otel_gym:blob:{SHA}:5"}
    write(source, [span(1), span(2, end_ns=None, name="open"), span(3, attributes=media)])
    write(source, [span(4, "2-0")], "2-0")
    compact(source, idle_s=0)
    write(source, [span(5), span(1), span(2, name="ended"), span(6), span(6)])
    write(source, [span(7, "2-0"), span(8, "2-0", attributes=media)], "2-0")
    write(source, [span(9, "3-0")], "3-0", writer="b.elsewhere.1.0000000b")
    kept = [span(1), span(2, name="ended"), span(3, attributes=media), span(4, "2-0"), span(5), span(6)]
    kept += [span(7, "2-0"), span(8, "2-0", attributes=media), span(9, "3-0")]
    return {one.span_id: one for one in kept}


def assert_counted_once(store: Path, expected: dict[str, StoredSpan]) -> None:
    """As an engine sees each ``parquet`` folder, and as a reader sees the whole store."""
    seen: dict[str, list[StoredSpan]] = {}
    for part in ("source", "target"):
        sealed = list(parquet_spans(store / part / "parquet")) if (store / part / "parquet").is_dir() else []
        assert all(number == 1 for number in Counter(found.span_id for found in sealed).values()), (store, part)
        for found in [*sealed, *live_spans(store / part)]:
            seen.setdefault(found.span_id, []).append(found)
    assert seen.keys() == expected.keys(), store
    for span_id, found in seen.items():
        assert expected[span_id] in found, store


@pytest.mark.parametrize("action", ["compact", "into", "seal"])
def test_killed_at_each_step(tmp_path, action):
    expected = make_base(tmp_path / "base")
    (tmp_path / "out").mkdir()
    command = [sys.executable, "-m", "tests.store.killed", tmp_path / "base", tmp_path / "out", action]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    stores = sorted((tmp_path / "out").iterdir())
    assert len(stores) > 15
    for store in stores:
        assert_counted_once(store, expected)
        goal = store / "target" if action == "into" else store / "source"
        compact(store / "source", into=goal, idle_s=0, remove=True)
        sealed = {found.span_id: found for found in parquet_spans(goal / "parquet")}
        assert sealed == expected, store
        assert_counted_once(store, expected)
        assert live_spans(store / "source") == []
        assert list((goal / "compacting").glob("*")) == []
        assert (goal / "blobs" / SHA).read_bytes() == b"image"


def test_killed_at_random_beside_writers(tmp_path):
    chance = random.Random(20261130)
    running = StoreWriter(tmp_path, "me")
    command = [sys.executable, "-m", "otel_gym.cli", "compact", "--dir", str(tmp_path), "--remove", "--idle", "0"]
    written = 0

    def write_some() -> None:
        nonlocal written
        rollout_id = f"{written % 7}-0"
        spans = [span(n, rollout_id) for n in range(written, written + 20)]
        running.append(rollout_id, b"".join(line_of_span(one) + b"\n" for one in spans[:10]))
        write(tmp_path, spans[10:], rollout_id, f"ended-{written}.elsewhere.1.0000000a")
        written += 20

    def found() -> tuple[list[str], list[str]]:
        folder = tmp_path / "parquet"
        sealed = [one.span_id for one in parquet_spans(folder)] if folder.is_dir() else []
        return sealed, [one.span_id for one in live_spans(tmp_path)]

    for _ in range(8):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + chance.uniform(0.3, 1.2)
        while time.monotonic() < deadline:
            write_some()
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        sealed, live = found()
        assert len(sealed) == len(set(sealed))
        assert {*sealed, *live} == {f"{n:016x}" for n in range(written)}
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    sealed, live = found()
    assert sorted([*sealed, *live]) == [f"{n:016x}" for n in range(written)]
    assert len(sealed) == written // 2
