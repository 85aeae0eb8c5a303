"""A session of Claude Code → ATIF, by the library alone: what atif_speed.py measures.

python bench/convert_session.py SESSION FOLDER
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from otel_gym.ingest.claude_code import read_claude_code
from otel_gym.ingest.spans import stored_spans
from otel_gym.store.reader import RolloutSpans
from otel_gym.views.atif import atif_of
from otel_gym.views.trajectory import trajectories


def convert(session: Path, folder: Path) -> None:
    for rollout in read_claude_code(session):
        spans = stored_spans(rollout)
        rollout.spans.clear()
        for trajectory in trajectories(RolloutSpans(None, rollout.identity_id, spans)):
            spans.clear()
            export = atif_of(trajectory, rollout_id=rollout.identity_id)
            del trajectory
            for name, content in export.files().items():
                (folder / name).write_bytes(content)


if __name__ == "__main__":
    gc.disable()  # nothing of it is a cycle, and there is much of it
    Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
