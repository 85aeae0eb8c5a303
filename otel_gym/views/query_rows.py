"""What DuckDB answers, as values of JSON and as cells of CSV: times in UTC, integers exact, null where unknown."""

from __future__ import annotations

import base64
import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from otel_gym.content import safe_json
from otel_gym.views.json_lines import Row, replacing, write_json_lines


def json_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[Row]:
    names = _distinct(columns)
    for row in rows:
        yield dict(zip(names, map(json_value, row), strict=True))


def _distinct(columns: Sequence[str]) -> list[str]:
    """A second column of a name would take the place of the first."""
    names: list[str] = []
    for column in columns:
        name, number = column, 1
        while name in names:
            name, number = f"{column}_{number}", number + 1
        names.append(name)
    return names


def json_value(value: Any) -> Any:
    """As JSON can say it: a time as ISO text, an interval in seconds, bytes as base64."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime):
        return _utc(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): json_value(item) for key, item in value.items()}
    return str(value)


def _utc(moment: datetime) -> str:
    text = moment.isoformat()
    return text.removesuffix("+00:00") + ("Z" if moment.tzinfo is not None else "")


def text_cell(value: Any, unknown: str = "") -> str:
    """As text of one cell; what is nested as JSON."""
    value = json_value(value)
    if value is None:
        return unknown
    return value if isinstance(value, str) else safe_json(value)


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]], output: IO[str]) -> None:
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(map(text_cell, row) for row in rows)


def write_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], path: Path) -> None:
    """``.csv``, else JSON lines: whole, or not at all. OSError."""
    if path.suffix != ".csv":
        write_json_lines(json_rows(columns, rows), path)
        return
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as output:
        print_csv(columns, rows, output)
