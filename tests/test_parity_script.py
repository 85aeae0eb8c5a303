"""bench/parity_model_calls.py on traffic of our own, with the records that the real NeMo Gym 0.7.0 built from it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "tests" / "fixtures" / "parity"


def run_on(folder):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    paths = [str(ROOT), environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, ROOT / "bench" / "parity_model_calls.py", folder],
        capture_output=True,
        text=True,
        env={**environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )


def test_every_difference_from_nemo_gym_is_a_decided_one():
    done = run_on(CASES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith(" 0 wrong")


@pytest.mark.parametrize(
    ("field", "value"), [("latency_total_ms", 1.0), ("status_code", 299), ("started_at", 5.0), ("request", None)]
)
def test_a_difference_that_no_rule_explains_is_wrong(tmp_path, field, value):
    shutil.copytree(CASES / "http", tmp_path / "http")
    cases = [json.loads(line) for line in (CASES / "cases.jsonl").read_text("utf-8").splitlines()]
    tampered = next(case for case in cases if "record" in case)
    tampered["record"][field] = value
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases), "utf-8")
    done = run_on(tmp_path)
    assert done.returncode == 1
    assert f"WRONG {tampered['case']}: {field}" in done.stdout
    assert done.stdout.rstrip().endswith(" 1 wrong")
