"""The queries of docs/perfetto.md answer what they say they answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from otel_gym.views.perfetto.export import processes, write_trace
from otel_gym.views.perfetto.timeline import Shown
from tests.perfetto.spans import everything

PAGE = Path(__file__).parents[2] / "docs" / "perfetto.md"
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.fixture
def answers(engine: Any, tmp_path: Path) -> list[list[dict[str, Any]]]:
    trace = tmp_path / "t.pftrace"
    write_trace(lambda: processes([everything()], Shown()), trace)
    engine.load(trace.read_bytes())
    return [engine.query(query) for query in QUERIES]


def test_slowest_tools_time_by_kind_tokens_per_second_and_cache_hits(answers: list[list[dict[str, Any]]]) -> None:
    [slowest], [times], [speed], hits = answers
    assert (slowest["name"], slowest["calls"]) == ("execute_tool bash", 4)
    assert slowest["slowest_ms"] == 280
    assert times["rollout"] == "rollout 3-1 reward=0.5 ok"
    assert round(times["model_ms"], 3) == 58 + 120 + 84 + 200
    assert round(times["tool_ms"], 3) == 200 + 270 + 280
    assert speed["model"] == "chat toy-1"
    assert speed["tokens_per_s"] > 0
    assert [(row["step"], row["hit_rate"] is None) for row in hits] == [(1, False), (2, False)]
