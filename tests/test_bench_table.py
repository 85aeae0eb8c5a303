"""The benchmarks' table is read as it was printed."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``bench`` is a folder of scripts: their own folder is on the path when they run."""
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("table")


def test_a_printed_table_is_read_again(table: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    figures = [
        table.Figure("a, with comma and | bar", "1.5 us"),
        table.Figure("b", "9 us", "<= 4 us", False),
    ]
    assert table.print_table(figures) == 1
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "2 figures, 1 short"
    assert table.read_table(printed) == figures


def test_figures_that_all_meet_their_goals_exit_with_0(table: ModuleType) -> None:
    assert table.print_table([table.Figure("a", "1", "< 2", True)]) == 0
