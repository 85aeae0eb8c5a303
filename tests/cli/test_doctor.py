"""What `doctor` finds, and how it ends."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import otel_gym
from otel_gym.capture.middleware import ModelCallCapture
from otel_gym.store.reader import Store
from otel_gym.views.health import COUNTED

from ..capture.asgi import ANSWER, CHAT_PATH, json_app, send_request
from ..store.lines import encoded, live_file, write
from ..store.test_compact import conversation
from .conftest import Invoke

FIXTURES = Path(__file__).parent.parent / "fixtures"
Rows = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def rows(invoke: Invoke) -> Rows:
    def of(*arguments: object) -> list[dict[str, Any]]:
        return [json.loads(line) for line in invoke("doctor", "--json", *arguments).stdout.splitlines()]

    return of


def of_kind(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == kind]


def test_a_whole_store_is_clean(example_store: Path, invoke: Invoke) -> None:
    result = invoke("doctor", example_store)
    assert result.exit_code == 0
    assert "nothing was lost" in result.stdout
    assert "damage: none" in result.stdout


def test_damage_is_told_with_file_line_byte_and_cure(example_store: Path, invoke: Invoke, rows: Rows, tmp_path) -> None:
    store = tmp_path / "store"
    shutil.copytree(example_store, store)
    file = next((store / "spans" / "rollout_id=2-0").glob("*.jsonl"))
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:77])
    (damage,) = of_kind(rows(store), "damage")
    assert (damage["path"], damage["offset"], damage["lost"]) == (str(file), len(whole), True)
    assert "torn at the end" in damage["problem"] and "was read" in damage["cure"]
    lines = whole.count(b"\n")
    result = invoke("doctor", store)
    assert result.exit_code == 1
    assert f"{file}:{lines + 1}: torn" in result.stdout
    assert "something was lost" in result.stdout
    assert "what to do: " in result.stdout


def test_what_processes_counted_is_told_with_what_to_do(tmp_path: Path, invoke: Invoke, rows: Rows) -> None:
    write(live_file(tmp_path), encoded("1"))
    (tmp_path / "counts").mkdir()
    counts = tmp_path / "counts" / "svc.host.1.abcd.json"
    counts.write_text('{"uncaptured_calls": 3, "lost_spans": 0}')
    assert invoke("doctor", tmp_path).exit_code == 0
    (counted,) = of_kind(rows(tmp_path), "counted")
    assert (counted["writer"], counted["number"], counted["is_loss"]) == ("svc.host.1.abcd", 3, False)
    assert "/ng-rollout/" in counted["cure"]
    counts.write_text('{"lost_spans": 2}')
    assert invoke("doctor", tmp_path).exit_code == 1
    counts.write_text("{")
    assert invoke("doctor", tmp_path).exit_code == 1


def test_a_body_of_100_mb_is_kept_as_its_head_and_the_setting_that_cures_it_is_said(
    tmp_path: Path, invoke: Invoke, rows: Rows
) -> None:
    otel_gym.configure(directory=tmp_path)
    megabyte = b"x" * 1_000_000  # the same hundred times, so that only what is recorded takes memory
    incoming = [{"type": "http.request", "body": megabyte, "more_body": number < 100} for number in range(1, 101)]
    capture = ModelCallCapture(json_app(ANSWER))
    asyncio.run(send_request(capture, f"/ng-rollout/1-0{CHAT_PATH}", incoming=incoming))
    assert otel_gym.flush(10)
    (call,) = [span for span in Store(tmp_path).spans("1-0") if "gym.request.body" in span.attributes]
    assert call.attributes["gym.request.body.bytes"] == 100_000_000
    assert len(call.attributes["gym.request.body"]) == 64 * 1024

    (counted,) = of_kind(rows(tmp_path), "counted")
    assert (counted["name"], counted["number"], counted["is_loss"]) == ("cut_bodies", 1, True)
    for command in (("doctor", tmp_path), ("ls", "--dir", tmp_path)):
        said = invoke(*command).stdout
        assert "cut_bodies: 1" in said and "set OTEL_GYM_QUEUE_BYTES above the largest body" in said
    assert invoke("doctor", tmp_path).exit_code == 1


def test_every_counter_of_ours_is_explained() -> None:
    source = "".join(path.read_text() for path in Path(otel_gym.__file__).parent.rglob("*.py"))
    assert set(re.findall(r"\.count\(\"(\w+)\"\)", source)) <= COUNTED.keys()


def test_unfinished_rerun_and_ambiguous_rollouts_are_told(tmp_path: Path, invoke: Invoke, rows: Rows) -> None:
    first = encoded("1", "rollout", start=0, end=10, run="r")
    second = encoded("2", "rollout", trace="b", start=20, end=30, run="r")
    write(live_file(tmp_path), first, second, encoded("3", start=99, trace="c", run="r"))
    write(tmp_path / "open" / "w.jsonl", encoded("9", "rollout", rollout="2-0", run="r", end=None))
    found = {(row["kind"], row["rollout_id"]): row["finding"] for row in rows(tmp_path) if "finding" in row}
    assert found.keys() == {("run_again", "1-0"), ("ambiguous", "1-0"), ("unfinished", "2-0")}
    assert "ran 2 times" in found["run_again", "1-0"]
    assert invoke("doctor", tmp_path).exit_code == 0


@pytest.mark.parametrize(
    ("source", "session", "bad"),
    [
        ("claude-code", "claude_code/parallel_tools.jsonl", [b'{"type": "user", \n', b'{"type": "hologram"}\n']),
        ("codex", "codex/parallel_tools/sessions/*.jsonl", [b"{\n", b'{"type": "hologram", "payload": {}}\n']),
    ],
)
def test_what_an_import_left_out_was_forgotten(
    source: str, session: str, bad: list[bytes], tmp_path: Path, invoke: Invoke, rows: Rows
) -> None:
    lines = next(FIXTURES.glob(session)).read_bytes().splitlines(keepends=True)
    store, file = tmp_path / "store", tmp_path / "rollout-session.jsonl"
    file.write_bytes(b"".join([*lines[:5], *bad, *lines[5:]]))
    assert invoke("import", source, file, "--rollout", "1-0", "--dir", store).exit_code == 1
    (found,) = of_kind(rows(store), "left_out")
    assert found["rollout_id"] == "1-0" and "2 records" in found["finding"] and "import again" in found["cure"]
    result = invoke("doctor", store)
    assert result.exit_code == 0 and "left_out: 1-0: its import left out 2 records" in result.stdout
    file.write_bytes(b"".join(lines))
    assert invoke("import", source, file, "--rollout", "1-0", "--dir", store).exit_code == 0
    assert not of_kind(rows(store), "left_out")


def test_misspelt_settings_and_those_that_hold_are_told(
    example_store: Path, invoke: Invoke, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_GYM_DIRR", "x")
    monkeypatch.setenv("OTEL_GYM_DIR", str(example_store))
    found = rows()
    assert "did you mean OTEL_GYM_DIR?" in of_kind(found, "setting_problem")[0]["problem"]
    set_here = {row["name"]: row["value"] for row in of_kind(found, "setting") if row["is_set"]}
    assert set_here == {"OTEL_GYM_DIR": str(example_store)}
    assert "! OTEL_GYM_DIRR is no setting" in invoke("doctor").stdout


def test_without_a_store_there_is_nothing_to_examine(tmp_path: Path, invoke: Invoke) -> None:
    result = invoke("doctor", tmp_path / "none")
    assert result.exit_code == 2
    assert "OTEL_GYM_QUEUE_BYTES" in result.stdout  # the settings are told all the same


def test_findings_stood_below_thirty_lines_of_settings(example_store: Path, invoke: Invoke) -> None:
    lines = invoke("doctor", example_store).stdout.splitlines()
    assert lines[0].startswith(f"store {example_store}: ")
    assert lines.index("nothing was lost") < lines.index("settings (* set in this environment)")


def test_doctor_takes_dir_as_the_other_commands_do(example_store: Path, invoke: Invoke, tmp_path: Path) -> None:
    assert invoke("doctor", "--dir", example_store).stdout == invoke("doctor", example_store).stdout
    assert "give one of them" in invoke("doctor", example_store, "--dir", tmp_path).stderr


def test_after_compact_remove_the_same_loss_was_listed_twice(tmp_path: Path, invoke: Invoke, rows: Rows) -> None:
    """In the live file, which stays for its damage, and in the part that was made of it."""
    conversation(tmp_path)
    before = [row["problem"] for row in of_kind(rows(tmp_path), "damage")]
    assert invoke("compact", "--dir", tmp_path, "--remove", "--idle", 0).exit_code == 1
    assert [row["problem"] for row in of_kind(rows(tmp_path), "damage")] == before
    assert len(before) == 2


def test_a_launch_without_a_run_id_was_counted_to_an_earlier_one_and_nothing_was_said(rows: Rows, tmp_path) -> None:
    call = {"gen_ai__operation__name": "chat", "gen_ai__response__id": "x"}
    write(live_file(tmp_path), encoded("1", run="step-7", **call), encoded("2", trace="b", **call))
    (found,) = of_kind(rows(tmp_path), "run_assumed")
    assert (found["run_id"], found["rollout_id"]) == ("step-7", "1-0")
    assert "1 model call names no run" in found["finding"]
