"""The pages made from the code say what the code says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import otel_gym
from otel_gym import conventions
from otel_gym.store.reader import Damage, RolloutSpans, Store
from otel_gym.store.span import StoredSpan
from otel_gym.views.summary import summarize_rollout

ROOT = Path(__file__).parent.parent


def test_pages_made_from_the_code_are_fresh() -> None:
    script = ROOT / "scripts" / "make_docs.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_each_attribute_of_ours_is_explained_once() -> None:
    explained = [attribute.name for attribute in conventions.GYM_ATTRIBUTES]
    named = {
        value
        for name, value in vars(conventions).items()
        if name.isupper() and not name.endswith("_EVENT") and isinstance(value, str) and value.startswith("gym.")
    }
    assert len(explained) == len({*explained})
    # What ends with a dot is what names begin with.
    assert [name for name in named - {*explained} if not name.endswith(".")] == []


def test_each_example_of_the_python_page_prints_what_it_says_by_itself(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-c", block],
            cwd=tmp_path,
            env={**clean, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        said = [line.split(")  # ")[1] for line in block.splitlines() if line.lstrip().startswith("print(")]
        assert (done.stdout.splitlines(), done.stderr) == (said, "")
    assert sorted(path.name for path in (tmp_path / "otel_gym_store" / "spans").iterdir()) == [
        "rollout_id=12-0",
        "rollout_id=13-0",
        "rollout_id=14-0",
        "rollout_id=15-0",
        "rollout_id=16-0",
    ]
    store = Store(tmp_path / "otel_gym_store")
    assert results(store, "14-0") == [
        ("execute_tool get_weather", '{"celsius":4}'),
        ("execute_tool get_time", '{"content":"noon in Oslo"}'),
    ]
    assert sorted(results(store, "15-0")) == [("execute_tool look_up", f'{{"content":"{word}"}}') for word in "ABC"]
    assert summarize_rollout(next(store.rollouts("14-0"))).reward == 1.0


def results(store: Store, rollout_id: str) -> list[tuple[str, str]]:
    tools = [span for span in next(store.rollouts(rollout_id)).spans if "tool" in span.name]
    return [(span.name, span.attributes["gen_ai.tool.call.result"]) for span in tools]


def test_every_public_name_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "python.md").read_text()
    names = [name for name in otel_gym.__all__ if not name.startswith("__")]
    assert [name for name in names if not re.search(rf"^### `{name}\b", text, re.MULTILINE)] == []


def test_no_page_said_how_a_store_is_read_from_python() -> None:
    """What is promised has these names."""
    text = (ROOT / "docs" / "python.md").read_text()
    table = text[text.index("| promised |") : text.index("These names and what they give")]
    named = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]+)`", table))))
    for kind, names in (
        (Store, {"rollouts", "rollout_ids", "spans", "damage", "counts"}),
        (RolloutSpans, {"run_id", "rollout_id", "spans"}),
        (StoredSpan, {"trace_id", "span_id", "parent_span_id", "name", "start_ns", "end_ns", "attributes", "body"}),
        (Damage, {"path", "line", "offset", "problem", "cure"}),
    ):
        assert {name for name in names if hasattr(kind, name)} == names
        assert names <= named
