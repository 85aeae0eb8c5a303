"""Sessions of Claude Code the short way: records by their types, and ATIF without spans. Nothing may differ."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import otel_gym.ingest.claude_code as claude_code
from otel_gym.content_policy import DEFAULT_POLICY
from otel_gym.ingest.claude_code import claude_code_runs, read_claude_code
from otel_gym.ingest.claude_code.common_lines import common_line
from otel_gym.ingest.claude_code.lines import parse
from otel_gym.ingest.imported import ImportedRollout
from otel_gym.ingest.spans import stored_spans
from otel_gym.store.reader import RolloutSpans
from otel_gym.views.atif import atif_files_of_run
from otel_gym.views.atif_export import atif_files
from tests.ingest.sessions import RECORDED, answer, call, result, text, user, write_session

ALL_RECORDED = sorted(path for path in RECORDED.iterdir() if not path.name.endswith(".meta.json"))


def through_spans(path: Path) -> dict[str, dict[str, Any]]:
    return {
        rollout.identity_id: read(
            {
                name: [content]
                for name, content in atif_files(
                    RolloutSpans(None, rollout.identity_id, stored_spans(rollout)), "ATIF-v1.7"
                ).items()
            }
        )
        for rollout in read_claude_code(path)
    }


def without_spans(path: Path) -> dict[str, dict[str, Any]]:
    return {
        session.rollout_id: read(
            atif_files_of_run(session.run, rollout_id=session.rollout_id, agent_version=session.version)
        )
        for session in claude_code_runs(path, DEFAULT_POLICY, [])
    }


def read(files: Any) -> dict[str, Any]:
    whole = {name: b"".join(pieces) for name, pieces in files.items()}
    return {name: json.loads(content) if name.endswith(".json") else content for name, content in whole.items()}


@pytest.mark.parametrize("path", ALL_RECORDED, ids=lambda path: path.name)
def test_a_session_gives_the_same_atif_with_and_without_spans(path: Path) -> None:
    assert without_spans(path) == through_spans(path)


@pytest.mark.parametrize("path", ALL_RECORDED, ids=lambda path: path.name)
def test_records_by_their_types_give_the_same_spans(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_plain(path, monkeypatch) == read_claude_code(path)


def as_plain(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ImportedRollout]:
    """Each line as a plain object."""
    with monkeypatch.context() as patched:
        patched.setattr(claude_code, "common_line", lambda line: None)
        return read_claude_code(path)


def test_most_lines_of_a_session_are_read_by_their_types() -> None:
    lines = (RECORDED / "parallel_tools.jsonl").read_bytes().splitlines()
    said = [line for line in lines if parse(line).get("type") in ("assistant", "user")]
    assert sum(common_line(line) is not None for line in said) > len(said) / 2


ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([1e22, 2**70, "", "x", "\ud800", "<synthetic>", "2026-11-29T00:00:09", "tool_use", [], {}, [1]]),
)
RECORDS = [
    user("look"),
    answer("m1", {"type": "thinking", "thinking": "hm", "signature": "c2ln"}, apiBlockIndex=0, requestId="r1"),
    answer("m1", text("I look"), apiBlockIndex=1, requestId="r1"),
    answer("m1", call("t1", command="ls", n=1e22), apiBlockIndex=2, requestId="r1"),
    result("t1", "a\nb", toolUseResult={"stdout": "a\nb", "stderr": "", "interrupted": False, "totalDurationMs": 3}),
    answer("m2", text("done"), apiBlockIndex=0, requestId="r2"),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value below the top."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, child in children for place in ((*path, key), *places(child, (*path, key)))]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_odd_value_anywhere_is_read_alike_by_type_and_as_an_object(
    data: st.DataObject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = json.loads(json.dumps(RECORDS))
    number = data.draw(st.integers(0, len(records) - 1))
    place = data.draw(st.sampled_from(places(records[number])))
    parent = records[number]
    for key in place[:-1]:
        parent = parent[key]
    odd = parent[place[-1]] = data.draw(ODD)
    path = write_session(tmp_path / "S1.jsonl", records)

    assert read_claude_code(path) == as_plain(path, monkeypatch)
    if odd != "\ud800":  # half a character in an id: its two places in spans are replaced apart
        assert without_spans(path) == through_spans(path)


def test_a_secret_in_one_turn_is_taken_out_and_the_rest_stays(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    records = [
        user("look"),
        answer("m1", call("t1", command=f"curl -H 'Authorization: Bearer {secret}'"), requestId="r1"),
        result("t1", f"token {secret}"),
        user("and now"),
        answer("m2", text("nothing secret"), requestId="r2"),
    ]
    path = write_session(tmp_path / "S1.jsonl", records)

    [files] = without_spans(path).values()
    written = json.dumps(files)
    assert secret not in written
    assert "[redacted]" in written
    assert "nothing secret" in written
    assert without_spans(path) == through_spans(path)


def test_a_long_run_is_one_valid_document(tmp_path: Path) -> None:
    many = [answer(f"m{number}", text("x" * 40_000), requestId=f"r{number}") for number in range(50)]
    path = write_session(tmp_path / "S1.jsonl", [user("go"), *many])

    [files] = without_spans(path).values()
    steps = files["trajectory.json"]["steps"]
    assert [step["step_id"] for step in steps] == list(range(1, 52))


def test_bytes_that_are_no_text_in_a_note_of_the_harness_cost_their_line_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_session(tmp_path / "S1.jsonl", [*RECORDS[:4], result("t1", toolUseResult={"stdout": "@"}), RECORDS[5]])
    for odd in (b'"\xff"', b"1e999", b"1" * 5000):
        other = tmp_path / "other" / "S1.jsonl"
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(path.read_bytes().replace(b'"@"', odd))
        assert read_claude_code(other) == as_plain(other, monkeypatch)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system does not tell which files are open")
def test_many_subagents_need_no_file_each(tmp_path: Path) -> None:
    calls = [call(f"t{number}", "Agent", prompt=f"p{number}") for number in range(60)]
    path = write_session(tmp_path / "S1.jsonl", [user("go"), answer("m1", *calls, requestId="r1")])
    for number in range(60):
        said = [user(f"p{number}"), answer(f"a{number}", text("x" * 70_000), requestId=f"q{number}")]
        file = tmp_path / "S1" / "subagents" / f"agent-{number}.jsonl"
        write_session(file, [{**each, "isSidechain": True} for each in said])
    [session] = claude_code_runs(path, DEFAULT_POLICY, [])
    before = len(os.listdir("/proc/self/fd"))
    files = atif_files_of_run(session.run, rollout_id=session.rollout_id)
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    assert len(read(files)["trajectory.json"]["subagent_trajectories"]) == 60
    assert len(os.listdir("/proc/self/fd")) == before
