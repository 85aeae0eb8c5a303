"""The pages made from the code say what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_pages_made_from_the_code_are_fresh() -> None:
    script = ROOT / "scripts" / "make_docs.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
