"""``otel-gym run``: programs that have nothing of ours installed are traced, and are otherwise as they were."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from otel_gym.bootstrap import begin
from otel_gym.bootstrap.bundle import site_folder
from otel_gym.bootstrap.child import other_releases
from otel_gym.capture.instrumentors import INSTRUMENTORS
from otel_gym.views.model_calls import model_call_records

from ..otlp.receivers import http_receiver
from .conftest import BIN, LIBRARIES, PROGRAMS, Launches, site_packages

RUN_ID = re.compile(r"run (\d{8}T\d{6}Z-[0-9a-f]{4}), spans go to (.*)\n")


def assert_one_call(launches: Launches) -> None:
    (rollout,) = launches.rollouts()
    (record,) = model_call_records(rollout)
    assert (rollout.rollout_id, record.model, record.tokens_in, record.tokens_out) == ("7-0", "m", 3, 1)
    assert record.request["messages"][0]["content"] == "what time is it?"


def test_a_program_with_opentelemetrys_api_alone_is_traced_and_its_run_is_said_once(
    launches: Launches, bare_python: Path
):
    done = launches.traced(bare_python, PROGRAMS / "served_call.py")
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["200", "m"])
    assert_one_call(launches)
    run_id, directory = RUN_ID.search(done.stderr).groups()
    assert done.stderr.count("\n") == 1 and directory == str(launches.directory)
    assert launches.rollouts()[0].run_id == run_id


def test_a_newer_python_with_its_own_pydantic_and_no_opentelemetry_is_traced(launches: Launches, newer_python: Path):
    done = launches.traced(newer_python, PROGRAMS / "served_call.py")
    assert done.returncode == 0, done.stderr
    assert tuple(map(int, done.stdout.split()[2].split("."))) >= (3, 13)
    assert_one_call(launches)
    program = (
        "import fastapi, pydantic, pydantic_core, sys\n"
        "files = [module.__file__ for module in (pydantic, pydantic_core, fastapi)]\n"
        "print(all(file.startswith(sys.prefix) for file in files), 'opentelemetry.sdk.trace' in sys.modules)"
    )
    assert launches.traced(newer_python, "-c", program).stdout.strip() == "True True"


def test_what_the_program_has_wins_and_what_it_lacks_stays_lacking(launches: Launches, make_python, tmp_path: Path):
    python = make_python(["httpx", "typing_extensions"])
    assert (site_packages(python) / "typing_extensions.py").exists()
    program = (
        "import sys, importlib.util\n"
        "print(importlib.util.find_spec('opentelemetry'), importlib.util.find_spec('requests'))\n"
        "import httpx, typing_extensions\n"
        "print(httpx.__file__.startswith(sys.prefix), typing_extensions.__file__.startswith(sys.prefix))\n"
        "print([m for m in ('pydantic', 'msgspec', 'orjson', 'pyarrow', 'requests') if importlib.util.find_spec(m)])\n"
        "print([p for p in sys.path if 'otel_gym' in p][-1] == sys.path[-1])"
    )
    done = launches.traced(python, "-c", program)
    assert done.stdout.splitlines() == ["None None", "True True", "[]", "True"], done.stderr


def test_grandchildren_and_workers_of_a_spawned_pool_are_traced(launches: Launches, bare_python: Path):
    command = f"{bare_python} {PROGRAMS / 'served_call.py'}; exit 3"
    done = launches.traced("sh", "-c", command)
    assert done.returncode == 3
    assert_one_call(launches)


def test_exit_code_output_and_python_path_are_the_programs_own(launches: Launches, bare_python: Path, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "only_there.py").write_text("x = 'found'")
    program = (
        "import only_there, os, sys; print(only_there.x, os.environ['PYTHONPATH'].split(os.pathsep)[1:]); sys.exit(41)"
    )
    mine = str(tmp_path / "mine")
    done = launches.traced(bare_python, "-c", program, PYTHONPATH=mine)
    assert (done.returncode, done.stdout) == (41, f"found ['{mine}']\n")


def test_the_programs_own_sitecustomize_still_runs(launches: Launches, bare_python: Path, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("import sys; sys.customized = __file__")
    program = "import sys, sitecustomize; print(sys.customized == sitecustomize.__file__)"
    done = launches.traced(bare_python, "-c", program, PYTHONPATH=str(tmp_path / "mine"))
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_reach_the_program(launches: Launches, bare_python: Path, number: int, code: int):
    program = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit({code}))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    process = subprocess.Popen(
        [BIN / "otel-gym", "run", "--dir", launches.directory, "--", bare_python, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.wait(20) == code


def test_a_pipe_that_is_closed_ends_the_program_as_without_us(launches: Launches):
    done = launches.traced("sh", "-c", "yes | head -1")
    assert (done.stdout, done.stderr.count("\n")) == ("y\n", 1)


def test_a_run_id_of_ones_own_is_kept_and_a_wrong_one_refused(launches: Launches, bare_python: Path):
    program = [bare_python, "-c", "import os; print(os.environ['OTEL_GYM_RUN_ID'])"]
    assert launches.traced(*program, OTEL_GYM_RUN_ID="step-9").stdout == "step-9\n"
    done = launches.run("otel-gym", "run", "--run", "a/b", "--", *program)
    assert (done.returncode, done.stdout) == (2, "") and "'a/b' is refused" in done.stderr


def test_what_cannot_be_run_is_said(launches: Launches):
    done = launches.traced("no-such-command")
    assert done.returncode == 2
    assert "otel-gym: no-such-command: No such file or directory" in done.stderr


def test_otel_gym_0_runs_the_command_untraced(launches: Launches, bare_python: Path):
    done = launches.traced(bare_python, PROGRAMS / "served_call.py", OTEL_GYM="0")
    assert (done.returncode, done.stdout.split()[:1], launches.rollouts()) == (0, ["404"], [])
    assert "run untraced" in done.stderr


def test_a_wrong_setting_was_said_by_every_process_of_a_run(launches: Launches, bare_python: Path):
    done = launches.traced(bare_python, PROGRAMS / "served_call.py", OTEL_GYM_FSYNC="sometimes")
    assert done.stderr.count("OTEL_GYM_FSYNC='sometimes' is refused") == 1


def test_a_program_with_opentelemetry_of_its_own_uses_its_own(launches: Launches, make_python):
    python = make_python(["fastapi", "uvicorn", "httpx", "opentelemetry-sdk"])
    done = launches.traced(python, PROGRAMS / "served_call.py")
    assert done.returncode == 0, done.stderr
    assert_one_call(launches)
    program = "import httpx, opentelemetry.sdk.trace as t, sys; print(t.__file__.startswith(sys.prefix))"
    assert launches.traced(python, "-c", program).stdout == "True\n"


def test_a_program_may_use_our_api_without_having_it_installed(launches: Launches, bare_python: Path):
    program = "import otel_gym\nwith otel_gym.rollout(7, 0) as rollout:\n    rollout.record_reward(1.0)"
    done = launches.traced(bare_python, "-c", program, NEMO_GYM_CONFIG_PATH="agent_server")
    assert done.returncode == 0, done.stderr
    (span,) = launches.spans()
    assert (span.name, span.attributes["gym.reward"]) == ("rollout", 1.0)
    assert span.resource["service.name"] == "agent_server"


def test_spans_of_a_program_that_has_nothing_installed_go_over_otlp_too(launches: Launches, bare_python: Path):
    with http_receiver() as received:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": received.endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        done = launches.traced(bare_python, PROGRAMS / "served_call.py", **endpoint)
    assert done.returncode == 0 and done.stderr.count("\n") == 1, done.stderr
    assert_one_call(launches)
    assert sorted(received.names()) == ["POST /v1/chat/completions", "chat m"]


def test_each_worker_of_a_server_is_traced(launches: Launches, bare_python: Path, tmp_path: Path):
    source = (PROGRAMS / "served_call.py").read_text()
    (tmp_path / "served.py").write_text(source[: source.index("with socket")])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [bare_python, "-m", "uvicorn", "served:app", "--port", port, "--workers", "2", "--log-level", "warning"]
    run = [BIN / "otel-gym", "run", "--dir", launches.directory, "--", *command]
    process = subprocess.Popen(list(map(str, run)), cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/ng-rollout/7-0/v1/chat/completions"
        with httpx.Client(transport=httpx.HTTPTransport(retries=10), trust_env=False, timeout=30) as client:
            assert client.post(url, json={"model": "m", "messages": []}).status_code == 200
        process.terminate()
        process.wait(30)
    finally:
        process.kill()
    assert sorted(span.name for span in launches.spans()) == ["POST /v1/chat/completions", "chat m"]


def test_a_home_that_cannot_be_written_is_no_obstacle(launches: Launches, bare_python: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    done = launches.traced(bare_python, PROGRAMS / "served_call.py", XDG_CACHE_HOME=str(tmp_path / "file"))
    assert done.stdout.startswith("200 m"), done.stderr
    assert_one_call(launches)


def test_a_cache_that_is_emptied_under_a_running_program_costs_it_nothing(
    launches: Launches, bare_python: Path, tmp_path: Path
):
    program = (
        "import os, shutil\n"
        "site = os.environ['PYTHONPATH'].split(os.pathsep)[0]\n"
        "shutil.rmtree(os.path.dirname(site))\n"
        "import httpx; print(httpx.__name__)"
    )
    done = launches.traced(bare_python, "-c", program, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (done.returncode, done.stdout) == (0, "httpx\n")
    assert done.stderr.count("is not traced: [Errno 2] No such file or directory") == 1


def own_api(python: Path, version: str) -> Path:
    """A copy of OpenTelemetry's API in the program's environment that says it is of another release."""
    packages = site_packages(python)
    (metadata,) = packages.glob("opentelemetry_api-*.dist-info")
    other = packages / f"opentelemetry_api-{version}.dist-info"
    shutil.copytree(metadata, other)
    metadata.unlink()
    text = (other / "METADATA").read_text()
    (other / "METADATA").write_text(re.sub("(?m)^Version: .*$", f"Version: {version}", text))
    return packages / "opentelemetry"


def test_fastapi_brings_the_api_of_another_release_and_its_program_is_traced(launches: Launches, make_python):
    python = make_python(LIBRARIES)
    own_api(python, "1.46.0")
    done = launches.traced(python, PROGRAMS / "served_call.py")
    assert done.returncode == 0, done.stderr
    assert_one_call(launches)


@pytest.mark.parametrize("version", ["1.30.0", "1.46.0"])
def test_a_program_whose_opentelemetry_does_not_fit_is_left_untraced_and_says_so_once(
    launches: Launches, make_python, version: str
):
    python = make_python(LIBRARIES)
    attributes = own_api(python, version) / "attributes"
    source = (attributes / "__init__.py").read_text()
    attributes.unlink()
    attributes.mkdir()
    (attributes / "__init__.py").write_text(source.replace("_set_items", "_other_name"))
    done = launches.traced(python, PROGRAMS / "served_call.py")
    assert (done.returncode, done.stdout.split()[:1]) == (0, ["404"]), done.stderr
    assert done.stderr.count(f"is not traced: its environment has opentelemetry-api {version}") == 1
    assert launches.rollouts() == []


OURS = {"opentelemetry-api": "1.45.2", "opentelemetry-sdk": "1.45.2", "opentelemetry-instrumentation": "0.66b2"}


@pytest.mark.parametrize(
    ("theirs", "others"),
    [
        ({}, []),
        ({"opentelemetry-api": "1.45.0"}, []),
        ({"opentelemetry-api": "1.44.0"}, ["opentelemetry-api"]),
        ({"opentelemetry-api": "1.45.2", "opentelemetry-instrumentation": "0.60b0"}, ["opentelemetry-instrumentation"]),
        (dict.fromkeys(OURS, "1.47.0"), []),
        (dict.fromkeys(OURS, "1.30.0"), list(OURS)),
        (dict.fromkeys(OURS, "2.0.0"), list(OURS)),
    ],
)
def test_packages_of_opentelemetry_are_of_one_release_or_all_the_programs_own(
    theirs: dict[str, str], others: list[str]
) -> None:
    assert list(other_releases(theirs, OURS)) == others


@pytest.mark.parametrize(
    ("words", "is_helper"),
    [
        (["python", "agent.py"], False),
        (["python", "-m", "nemo_gym.server"], False),
        (["python", "-X", "dev", "-u", "app.py"], False),
        (["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)"], False),
        (["python"], False),
        (["python", "-m", "pip", "install", "x"], True),
        (["python3.13", "/venv/bin/pip3", "install", "x"], True),
        (["python", "-c", "from multiprocessing.resource_tracker import main;main(4)"], True),
        (["python", "/v/site-packages/ray/_private/workers/default_worker.py", "--node-ip"], True),
        (["python", "-u", "/v/site-packages/ray/dashboard/agent.py"], True),
        (["python", "/x/pyproject_hooks/_in_process/_in_process.py", "build_wheel"], True),
    ],
)
def test_installers_and_rays_processes_are_left_alone(words: list[str], is_helper: bool):
    assert begin.is_helper(words) is is_helper


def test_the_hook_watches_for_every_library_that_has_an_instrumentor():
    program = "import sitecustomize; print(*sitecustomize.LIBRARIES)"
    environment = {**os.environ, "PYTHONPATH": str(site_folder())}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert {library.split(".")[0] for library in INSTRUMENTORS} <= set(done.stdout.split())


def test_a_python_that_imports_nothing_of_note_loads_nothing(launches: Launches, bare_python: Path):
    program = "import sys; print(sorted(sys.modules))"
    without = launches.run(bare_python, "-c", program).stdout
    assert launches.traced(bare_python, "-c", program).stdout == without.replace("'site',", "'site', 'sitecustomize',")
    assert not launches.directory.joinpath("spans").exists()


def old_pythons() -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return sorted(str(path) for pattern in ("3.6.*", "3.8.*", "3.10.*") for path in root.glob(f"{pattern}/bin/python"))


def test_a_python_that_is_too_old_runs_on_and_says_so(launches: Launches, tmp_path: Path):
    if not old_pythons():
        pytest.skip("pyenv has no Python 3.6, 3.8 or 3.10 here")
    (tmp_path / "requests.py").write_text("x = 1")
    for python in old_pythons():
        done = launches.traced(python, "-c", "import requests; print(requests.x)", PYTHONPATH=str(tmp_path))
        assert done.stdout == "1\n", done.stderr
        assert done.stderr.count("is not traced: its Python is older than 3.11") == 1
