"""The table in which every benchmark prints its figures, and how it is read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HEADER = ("figure", "value", "goal", "ok|SHORT")
_BAR = "\\|"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. ``ok`` is whether the goal is met; a figure without a goal is only told."""

    name: str
    value: str
    goal: str = "-"
    ok: bool = True

    @property
    def verdict(self) -> str:
        return "ok" if self.ok else "SHORT"


def print_table(figures: Sequence[Figure]) -> int:
    """Prints figures and, last, how many there are and fall short; the exit code: 1 if one does."""
    print(markdown_table(figures))
    print(closing_line(figures), flush=True)
    return 1 if any(not figure.ok for figure in figures) else 0


def closing_line(figures: Sequence[Figure]) -> str:
    return f"{len(figures)} figures, {sum(not figure.ok for figure in figures)} short"


def markdown_table(figures: Sequence[Figure]) -> str:
    rows = [[f.name, f.value, f.goal, f.verdict] for f in figures]
    lines = [[cell.replace("|", _BAR) for cell in row] for row in (list(HEADER), *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)


def read_table(text: str) -> list[Figure]:
    """The figures of every table in a benchmark's output."""
    figures = []
    for line in text.splitlines():
        cells = _cells(line)
        if len(cells) == len(HEADER) and cells[-1] in ("ok", "SHORT"):
            figures.append(Figure(cells[0], cells[1], cells[2], cells[3] == "ok"))
    return figures


def _cells(line: str) -> list[str]:
    if not line.startswith("| "):
        return []
    inner = line.strip().removeprefix("|").removesuffix("|").replace(_BAR, "\0")
    return [cell.strip().replace("\0", "|") for cell in inner.split("|")]
