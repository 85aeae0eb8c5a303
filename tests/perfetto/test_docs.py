"""The queries of docs/perfetto.md answer what they say they answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from otel_gym.views.perfetto.export import processes, write_trace
from otel_gym.views.perfetto.overview import overview
from otel_gym.views.perfetto.timeline import Shown
from tests.perfetto.spans import everything

PAGE = Path(__file__).parents[2] / "docs" / "perfetto.md"
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.fixture(params=["t.pftrace", "t.json"])
def answers(request: pytest.FixtureRequest, engine: Any, tmp_path: Path) -> list[list[dict[str, Any]]]:
    """Of the trace, and of the overview."""
    found = []
    for query in QUERIES:
        trace = tmp_path / request.param
        is_overview = "phase" in query
        write_trace(lambda o=is_overview: overview([everything()]) if o else processes([everything()], Shown()), trace)
        engine.load(trace.read_bytes())
        found.append(engine.query(query.replace("debug.", "args.") if trace.suffix == ".json" else query))
    return found


def test_slowest_tools_time_by_kind_tokens_per_second_and_cache_hits(answers: list[list[dict[str, Any]]]) -> None:
    [slowest], [times], [speed], hits = answers
    assert (slowest["name"], slowest["calls"]) == ("execute_tool bash", 4)
    assert slowest["slowest_ms"] == 280
    assert times["rollout"] == "3-1"
    # Calls: 2-60, 80-200, 216-300, 500-700 of 1000 ms; tools: 200-480 and 720-1000, but while a call ran.
    assert round(times["model_ms"], 3) == 58 + 120 + 84 + 200
    assert round(times["model_ms"] + times["tool_ms"] + times["harness_ms"], 3) == 1000
    assert times["tool_ms"] == pytest.approx((480 - 200 - 84) + (1000 - 720))
    assert speed["model"] == "chat toy-1"
    assert speed["tokens_per_s"] > 0
    assert [(row["agent"], row["step"], row["hit_rate"] and round(row["hit_rate"], 2)) for row in hits] == [
        ("explorer e1", 1, None),
        ("main", 1, 0.6),
        ("main", 2, 0.83),
    ]
