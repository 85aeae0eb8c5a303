"""What lies in a store's folders and is none of its files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_gym.store.reader import open_store

from .lines import encoded, ids_in, live_file, write

# In a process of its own, since a reader that waits for a FIFO cannot be stopped from within.
READER = """
import sys
from pathlib import Path
from otel_gym.store.compact import compact
from otel_gym.store.follow import Follower
from otel_gym.views.health import examine
from otel_gym.store.reader import open_store

health = examine(open_store(sys.argv[1]))
followed = len(list(Follower(Path(sys.argv[1]), health.damage.append).look()))
print(health.rollouts, health.spans, followed, compact(Path(sys.argv[1])).spans, health.damage)
"""


@pytest.mark.parametrize(
    "place", ["spans/rollout_id=1-0", "spans/rollout_id=2-0", "open", "parquet", "counts", "notes", "spans"]
)
def test_a_fifo_in_a_folder_of_the_store_holds_nobody_up(tmp_path: Path, place: str) -> None:
    write(live_file(tmp_path, name="svc.elsewhere.1.aaaaaaaa.jsonl"), encoded("1"))
    os.utime(live_file(tmp_path, name="svc.elsewhere.1.aaaaaaaa.jsonl"), (0, 0))
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    for name in ("x.jsonl", "x.jsonl.gz", "part-x.parquet", "x.json", "rollout_id=3-0"):
        os.mkfifo(tmp_path / place / name)
    said = subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path)], capture_output=True, text=True, timeout=30, check=False
    )
    assert said.stdout == "1 1 1 1 []\n", said.stderr


def test_a_link_that_leads_nowhere_hides_no_other_file(tmp_path: Path) -> None:
    write(live_file(tmp_path), encoded("1"))
    live_file(tmp_path, name="gone.jsonl").symlink_to(tmp_path / "gone")
    assert ids_in(open_store(tmp_path)) == ["1"]
