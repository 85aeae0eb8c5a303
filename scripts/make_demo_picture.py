"""Writes docs/demo.svg: what `otel-gym ls` and `otel-gym show` print of a demo that is run for it."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from otel_gym.cli.show import rollout_tree
from otel_gym.cli.tables import rollout_table
from otel_gym.demo.run import run_demo
from otel_gym.store.reader import Store
from otel_gym.views.selection import find_rollout
from otel_gym.views.span_tree import span_tree

PICTURE = Path(__file__).parent.parent / "docs" / "demo.svg"
SHOWN = "5-0"
WIDTH = 124


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        result = run_demo(Path(folder) / "otel_gym_demo")
        rollout = find_rollout(Store(result.directory), SHOWN)
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, highlight=False)
        console.print(Text("$ otel-gym ls --dir otel_gym_demo", "bold"))
        console.print(rollout_table(result.rollouts, WIDTH))
        console.print(Text(f"\n$ otel-gym show {SHOWN} --dir otel_gym_demo", "bold"))
        console.print(rollout_tree(rollout, span_tree(rollout)))
        svg = console.export_svg(title="make demo")
    # The fonts are a web site's: without them the picture is drawn in the reader's own monospace.
    PICTURE.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main()
