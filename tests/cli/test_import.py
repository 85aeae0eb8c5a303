"""`import`, and what `show` and `export` make of an agent's spans."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from atif import Trajectory as PublicTrajectory

from otel_gym.records.trajectory import Trajectory
from otel_gym.store.reader import open_store

from .conftest import Invoke

FIXTURES = Path(__file__).parent.parent / "fixtures"
SESSION = FIXTURES / "claude_code" / "parallel_tools.jsonl"


@pytest.fixture
def imported(tmp_path: Path, invoke: Invoke) -> Path:
    store = tmp_path / "store"
    result = invoke("import", "claude-code", SESSION, "--rollout", "1-0", "--run", "eval", "--dir", store)
    assert result.exit_code == 0, result.output
    return store


def test_a_session_becomes_a_rollout_and_again_adds_nothing(imported: Path, invoke: Invoke) -> None:
    again = invoke("import", "claude-code", SESSION, "--rollout", "1-0", "--run", "eval", "--dir", imported)
    assert (again.exit_code, again.stdout) == (0, "1-0: nothing new\n")
    [row] = map(json.loads, invoke("ls", "--json", "--dir", imported).stdout.splitlines())
    assert (row["run_id"], row["rollout_id"], row["status"]) == ("eval", "1-0", "ok")


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("codex", "codex/subagent"),
        ("atif", "atif/valid/04_embedded_subagent.json"),
        ("claude-code", "claude_code/R097"),
    ],
)
def test_every_source_is_imported(source: str, path: str, tmp_path: Path, invoke: Invoke) -> None:
    result = invoke("import", source, FIXTURES / path, "--dir", tmp_path / "store")
    assert result.exit_code == 0, result.output
    [row] = map(json.loads, invoke("export", "trajectory", "--dir", tmp_path / "store").stdout.splitlines())
    trajectory = Trajectory.model_validate(row)
    assert len(trajectory.generations) > 0
    assert trajectory.subagents


def test_show_draws_when_parallel_tools_ran(imported: Path, invoke: Invoke) -> None:
    lines = invoke("show", "1-0", "--dir", imported).stdout.splitlines()
    first, second = [line for line in lines if "execute_tool Bash" in line and "sleep" in line]
    overlap = [one == other == "━" for one, other in zip(first[:32], second[:32], strict=True)]
    assert sum(overlap) > 15
    assert [line.split("agent_step ")[1][0] for line in lines if "agent_step" in line] == ["1", "2"]


def test_generations_say_what_each_cost(imported: Path, invoke: Invoke) -> None:
    rows = [json.loads(line) for line in invoke("export", "generations", "--dir", imported).stdout.splitlines()]
    assert [row["agent_step_no"] for row in rows] == [1, 2]
    assert rows[1]["usage"]["input_tokens_details"]["cached_tokens"] == 22951
    assert {row["agent"] for row in rows} == {"claude-code"}


def test_atif_goes_to_files_that_public_models_accept(imported: Path, tmp_path: Path, invoke: Invoke) -> None:
    result = invoke("export", "atif", "-o", tmp_path / "out", "--dir", imported)
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "out" / "eval" / "1-0" / "trajectory.json").read_bytes())
    PublicTrajectory.model_validate(document)
    printed = invoke("export", "atif", "1-0", "--dir", imported)
    assert json.loads(printed.stdout) == document


def test_atif_of_many_rollouts_needs_a_folder(imported: Path, invoke: Invoke) -> None:
    invoke("import", "codex", FIXTURES / "codex" / "parallel_tools", "--run", "eval", "--dir", imported)
    result = invoke("export", "atif", "--dir", imported)
    assert result.exit_code == 2
    assert "-o FOLDER" in result.stderr


def test_an_import_of_nothing_says_so(tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "empty").mkdir()
    for path, said in ((tmp_path / "missing", "no such file"), (tmp_path / "empty", "nothing here")):
        result = invoke("import", "claude-code", path, "--dir", tmp_path / "store")
        assert result.exit_code == 2
        assert said in result.stderr


def test_damage_is_named_and_the_rest_is_kept(tmp_path: Path, invoke: Invoke) -> None:
    session = tmp_path / "session.jsonl"
    lines = SESSION.read_bytes().splitlines(keepends=True)
    session.write_bytes(b"".join([*lines[:3], b'{"type": "user", \n', *lines[3:]]))
    result = invoke("import", "claude-code", session, "--rollout", "1-0", "--dir", tmp_path / "store")
    assert result.exit_code == 1
    assert "session.jsonl" in result.stderr and "4" in result.stderr
    assert len(invoke("export", "generations", "--dir", tmp_path / "store").stdout.splitlines()) == 2


def test_without_content_nothing_that_was_said_is_kept(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_GYM_CONTENT", "none")
    store = tmp_path / "store"
    assert invoke("import", "claude-code", SESSION, "--rollout", "1-0", "--dir", store).exit_code == 0
    text = b"".join(file.read_bytes() for file in store.rglob("*") if file.is_file())
    assert b"paris" not in text and b"scripted task" not in text
    [rollout] = open_store(store).rollouts()
    assert any("gen_ai.usage.input_tokens" in span.attributes for span in rollout.spans)


ATIF_DOCUMENT = json.dumps(
    {
        "schema_version": "ATIF-v1.7",
        "session_id": "s1",
        "agent": {"name": "toy", "version": "1"},
        "steps": [{"step_id": 1, "source": "user", "message": "hi"}],
    }
)


@pytest.mark.parametrize(
    "text", ["", ATIF_DOCUMENT[:-20], "no JSON", "{}", ATIF_DOCUMENT.replace("1, ", '"x", ')], ids=range(5)
)
def test_a_file_that_is_no_atif_is_one_line_and_no_traceback(text: str, tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "bad.json").write_text(text)
    for path in (tmp_path / "bad.json", tmp_path):
        result = invoke("import", "atif", path, "--dir", tmp_path / "store")
        assert result.exit_code == 2
        [line] = result.stderr.splitlines()
        assert str(path) in line


def a_run(path: Path, message: str, timestamp: str | None) -> Path:
    path.parent.mkdir(exist_ok=True)
    step = {"step_id": 1, "source": "user", "message": message, "timestamp": timestamp}
    path.write_text(json.dumps({**json.loads(ATIF_DOCUMENT), "steps": [step]}))
    return path


def messages_in(store: Path) -> list[str]:
    lines = [line for file in store.rglob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted(word for line in lines for word in ("first", "second") if word in line)


@pytest.mark.parametrize("times", [("2026-01-02T03:04:05Z", "2026-01-03T03:04:05Z"), (None, None)], ids=range(2))
@pytest.mark.parametrize("is_folder", [True, False])
def test_the_second_of_two_runs_with_one_session_id_overwrote_the_first(
    times: tuple[str | None, str | None], is_folder: bool, tmp_path: Path, invoke: Invoke
) -> None:
    store, runs = tmp_path / "store", tmp_path / "in"
    runs.mkdir()
    first = a_run(runs / "a" / "trajectory.json", "first", times[0])
    second = a_run(runs / "b" / "trajectory.json", "second", times[1])
    for _ in range(2):
        result = invoke("import", "atif", *([runs] if is_folder else [first, second]), "--dir", store)
        assert result.exit_code == 1
        [line] = result.stderr.splitlines()
        assert str(first) in line and str(second) in line and "--rollout" in line
        assert messages_in(store) == ["first"]
    for said in ("s2: 2 new spans", "s2: nothing new"):
        alone = invoke("import", "atif", second, "--rollout", "s2", "--dir", store)
        assert (alone.exit_code, alone.stdout.strip()) == (0, said)
    assert messages_in(store) == ["first", "second"]
    assert invoke("import", "atif", first, "--dir", store).stdout == "s1: nothing new\n"


def test_runs_with_one_session_id_that_were_imported_one_by_one_overwrote_each_other(
    tmp_path: Path, invoke: Invoke
) -> None:
    store = tmp_path / "store"
    first = a_run(tmp_path / "a.json", "first", "2026-01-02T03:04:05Z")
    second = a_run(tmp_path / "b.json", "second", "2026-01-03T03:04:05Z")
    assert invoke("import", "atif", first, "--dir", store).exit_code == 0
    result = invoke("import", "atif", second, "--dir", store)
    assert result.exit_code == 1 and messages_in(store) == ["first"]
    assert str(second) in result.stderr and "the store has another run of session s1" in result.stderr


def test_a_copy_of_a_run_is_the_same_run(tmp_path: Path, invoke: Invoke) -> None:
    first = a_run(tmp_path / "in" / "a.json", "first", None)
    (tmp_path / "in" / "backup").mkdir()
    shutil.copy(first, tmp_path / "in" / "backup")
    result = invoke("import", "atif", tmp_path / "in", "--dir", tmp_path / "store")
    assert (result.exit_code, result.stderr) == (0, "")
    assert messages_in(tmp_path / "store") == ["first"]


KINDS = {
    "claude-code": ("claude_code/parallel_tools.jsonl", "claude_code/parallel_tools.stream.jsonl"),
    "codex": ("codex/parallel_tools/sessions/*.jsonl", "codex/printed/ephemeral/*.jsonl"),
    "atif": ("atif/valid/04_embedded_subagent.json",),
}


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize(("kind", "good"), [(kind, good) for kind, some in KINDS.items() for good in some])
def test_a_file_of_another_source_was_nothing_that_can_be_imported(
    source: str, kind: str, good: str, tmp_path: Path, invoke: Invoke
) -> None:
    path = shutil.copy(next(FIXTURES.glob(good)), tmp_path / "file")
    result = invoke("import", source, path, "--dir", tmp_path / "store")
    if source == kind:
        assert (result.exit_code, result.stderr) == (0, "")
        return
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert f"{path}: this is a" in line and line.endswith(f": otel-gym import {kind} {path}")


FOLDERS = [
    ("claude-code", "claude_code/parallel_tools.jsonl", "zz.jsonl"),
    ("codex", "codex/parallel_tools/sessions/*.jsonl", "rollout-zz.jsonl"),
    ("codex", "codex/parallel_tools/sessions/*.jsonl", "stdout-zz.jsonl"),
    ("atif", "atif/valid/04_embedded_subagent.json", "zz.json"),
]


@pytest.mark.parametrize(("source", "good", "name"), FOLDERS)
def test_what_is_no_file_beside_good_sessions_is_passed_over(
    source: str, good: str, name: str, tmp_path: Path, invoke: Invoke
) -> None:
    shutil.copy(next(FIXTURES.glob(good)), tmp_path)
    (tmp_path / name).mkdir()
    (tmp_path / f"dangling-{name}").symlink_to("/nonexistent")
    (tmp_path / name.replace("zz", "zzz")).symlink_to("/nonexistent")
    result = invoke("import", source, tmp_path, "--dir", tmp_path / "store")
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file that root cannot read")
@pytest.mark.parametrize(("source", "good", "name"), FOLDERS)
def test_a_file_that_cannot_be_read_is_damage_and_the_rest_is_imported(
    source: str, good: str, name: str, tmp_path: Path, invoke: Invoke
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / name).symlink_to("/proc/self/mem")
    alone = invoke("import", source, folder, "--dir", tmp_path / "store")
    assert (alone.exit_code, len(alone.stderr.splitlines())) == (2, 1)
    shutil.copy(next(FIXTURES.glob(good)), folder)
    result = invoke("import", source, folder, "--dir", tmp_path / "store")
    assert result.exit_code == 1
    assert "new span" in result.stdout
    assert f"{folder / name}: it cannot be read" in result.stderr and "disk" not in result.stderr


# A shell that runs the tests in the background leaves SIGINT ignored.
FOLLOW = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from otel_gym.cli.main import app
app(sys.argv[1:])
"""


def test_a_session_is_followed_while_it_grows(tmp_path: Path) -> None:
    session, store = tmp_path / "session.jsonl", tmp_path / "store"
    content = SESSION.read_bytes()
    session.write_bytes(content[: len(content) // 2])
    following = follow("claude-code", session, "--rollout", "1-0", "--dir", store)
    try:
        wait_for(lambda: calls_in(store) == 1)
        shutil.copy(SESSION, session)
        wait_for(lambda: calls_in(store) == 2)
    finally:
        following.send_signal(signal.SIGINT)
        code = following.wait(20)
    assert code == 0


def test_a_document_that_is_cut_for_a_moment_is_followed_until_it_is_whole(tmp_path: Path) -> None:
    path, store = tmp_path / "t.json", tmp_path / "store"
    path.write_text(ATIF_DOCUMENT[:-10])
    following = follow("atif", path, "--dir", store)
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            following.wait(2)
        path.write_text(ATIF_DOCUMENT)
        wait_for(lambda: any(b"s1" in file.read_bytes() for file in store.rglob("*.jsonl")))
        path.write_text(ATIF_DOCUMENT[:-10])
        with pytest.raises(subprocess.TimeoutExpired):
            following.wait(2)
    finally:
        following.send_signal(signal.SIGINT)
        said = following.communicate(timeout=20)[1]
    assert following.returncode == 1
    assert str(path) in said and "Traceback" not in said


def follow(*command: object) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    line = [sys.executable, "-c", FOLLOW, "import", *map(str, command), "--follow"]
    return subprocess.Popen(line, env=environ, stderr=subprocess.PIPE, text=True)


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def calls_in(store: Path) -> int:
    if not (store / "spans").is_dir():
        return 0
    spans = [span for rollout in open_store(store).rollouts() for span in rollout.spans]
    return sum(span.attributes.get("gen_ai.operation.name") == "chat" for span in spans)


def test_a_misspelt_redaction_is_said_though_the_folder_is_given(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_GYM_REDCAT", "my_field")
    result = invoke("import", "claude-code", SESSION, "--dir", tmp_path / "store")
    assert result.exit_code == 0
    assert result.stderr.count("OTEL_GYM_REDCAT") == 1
