"""R050 of the fault reports: batches beyond the 4 MiB that gRPC receivers take."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

BENCH = Path(__file__).parent.parent.parent / "bench"
SIZES = [900_000, 900_000, 900_000, 900_000, 900_000, 6_000_000, 1000]
EXPECTED = {"batches_at_least": 3, "lost_spans": 0, "spans_with_replaced_content": 1}


@pytest.mark.parametrize(
    ("expected", "problems"), [(EXPECTED, 0), ({**EXPECTED, "batches_at_least": 9, "lost_spans": 1}, 2)]
)
def test_batches_above_4_mib_were_refused_whole(tmp_path, monkeypatch, expected, problems):
    monkeypatch.syspath_prepend(BENCH)
    driver = importlib.import_module("report_drivers_otlp")
    (tmp_path / "sizes.json").write_text(json.dumps(SIZES))
    assert len(list(driver.drive_sizes(tmp_path, expected, None))) == problems
