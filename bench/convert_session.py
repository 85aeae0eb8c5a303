"""A session of Claude Code → ATIF, by the library alone: what atif_speed.py measures.

python bench/convert_session.py SESSION FOLDER
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from otel_gym.content_policy import DEFAULT_POLICY
from otel_gym.ingest.claude_code import SessionRun, claude_code_runs
from otel_gym.views.atif import atif_files_of_run


def convert(path: Path, folder: Path) -> None:
    for session in claude_code_runs(path, DEFAULT_POLICY, []):
        assert isinstance(session, SessionRun)  # it has a main agent
        files = atif_files_of_run(session.run, rollout_id=session.rollout_id, agent_version=session.version)
        for name, pieces in files.items():
            with (folder / name).open("wb") as file:
                file.writelines(pieces)


if __name__ == "__main__":
    gc.disable()  # nothing of it is a cycle, and there is much of it
    Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
