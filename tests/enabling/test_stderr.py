"""A wrong setting is said once on stderr, wherever the program's logs go."""

from __future__ import annotations

import pytest

from .conftest import Launches

USE = "import otel_gym\nfor n in range(2):\n    with otel_gym.rollout(7, n):\n        pass\n"
LOGGING = {
    "none": "",
    "to stderr": "import logging; logging.basicConfig(level='INFO')\n",
    "to a file": "import logging; logging.basicConfig(filename='log.txt')\n",
    "errors only": "import logging; logging.basicConfig(level='ERROR')\n",
    "switched off": "import logging; logging.disable()\n",
    "to nowhere": "import logging; logging.getLogger('otel_gym').addHandler(logging.NullHandler())\n",
}


@pytest.mark.parametrize("logging", LOGGING.values(), ids=LOGGING)
def test_a_wrong_setting_is_said_once(launches: Launches, logging: str):
    settings = {"OTEL_GYM": "1", "OTEL_GYM_DIR": str(launches.directory), "OTEL_GYM_FSYNC": "sometimes"}
    done = launches.run("python", "-c", logging + USE, **settings)
    assert done.returncode == 0
    assert done.stderr.count("OTEL_GYM_FSYNC='sometimes' is refused, never is used: give never, group or always") == 1
    assert sorted(rollout.rollout_id for rollout in launches.rollouts()) == ["7-0", "7-1"]


def test_a_program_without_stderr_goes_on(launches: Launches):
    settings = {"OTEL_GYM": "1", "OTEL_GYM_DIR": str(launches.directory), "OTEL_GYM_FSYNC": "sometimes"}
    done = launches.run("python", "-c", f"import sys; sys.stderr = None\n{USE}", **settings)
    assert (done.returncode, len(launches.rollouts())) == (0, 2)


def test_a_propagator_that_is_misspelt_was_raised_into_the_program(launches: Launches):
    settings = {"OTEL_GYM": "1", "OTEL_GYM_DIR": str(launches.directory), "OTEL_PROPAGATORS": "nosuch"}
    for use in (USE, "import otel_gym.capture.middleware\n" + USE):
        done = launches.run("python", "-c", use, **settings)
        assert (done.returncode, done.stderr.count("OTEL_PROPAGATORS='nosuch' is refused")) == (0, 1)
    assert len(launches.rollouts()) == 2
