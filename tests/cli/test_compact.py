"""``otel-gym compact``: what it says, and its exit codes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from otel_gym.store.locks import locked
from otel_gym.store.parquet import parquet_spans
from tests.cli.conftest import Invoke
from tests.store.stores import live_spans, span, write
from tests.store.test_compact import conversation


def test_it_says_what_was_sealed_removed_and_left(tmp_path: Path, invoke: Invoke) -> None:
    write(tmp_path, [span(1), span(1), span(2)])
    write(tmp_path, [span(3)], writer="young.elsewhere.1.0000000b")
    result = invoke("compact", "--dir", tmp_path, "--remove", "--idle", 0)
    assert result.exit_code == 0
    assert "3 spans of 1 rollout in 1 new part," in result.output
    assert "written again, and count once: 1" in result.output
    assert "2 files deleted" in result.output
    assert live_spans(tmp_path) == []

    write(tmp_path, [span(4)])
    result = invoke("compact", "--dir", tmp_path)
    assert "0 spans" in result.output and "1 file left: a process may still write there" in result.output


def test_damage_ends_with_1_and_names_the_line(tmp_path: Path, invoke: Invoke) -> None:
    write(tmp_path, [span(1)], tail=b"{broken\n")
    result = invoke("compact", "--dir", tmp_path, "--idle", 0)
    assert result.exit_code == 1
    assert ".jsonl:2: not JSON" in result.output


def test_a_file_torn_at_its_end_was_said_to_have_grown(tmp_path: Path, invoke: Invoke) -> None:
    path = write(tmp_path, [span(1)], tail=b'{"resourceSpans":[{"sco')
    whole = path.stat().st_size - 23
    for _ in range(2):
        result = invoke("compact", "--dir", tmp_path, "--idle", 0, "--remove")
        assert result.exit_code == 1
        (said,) = result.stderr.splitlines()
        assert said.startswith(f"otel-gym: {path}: torn at the end of the file: 23 bytes of a record")
        assert f"(at byte {whole})" in said
        assert "1 file left: torn at the end" in result.stdout


def test_damage_that_was_sealed_ended_with_0_and_doctor_said_that_nothing_was_lost(
    tmp_path: Path, invoke: Invoke
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    conversation(source)
    for _ in range(2):
        assert invoke("compact", "--dir", source, "--into", target, "--remove", "--idle", 0).exit_code == 1
    result = invoke("doctor", target)
    assert result.exit_code == 1
    assert "could not be sealed whole" in result.stdout and "its request cannot be rebuilt" in result.stdout


def test_a_misspelt_setting_was_passed_over_in_silence(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [span(1)])
    monkeypatch.setenv("OTEL_GYM_DIR", str(tmp_path))
    monkeypatch.setenv("OTEL_GYM_DIRR", "x")
    result = invoke("compact", "--idle", 0)
    assert result.exit_code == 0 and "1 span of 1 rollout" in result.stdout
    assert "did you mean OTEL_GYM_DIR?" in result.stderr


def test_into_another_store(tmp_path: Path, invoke: Invoke) -> None:
    write(tmp_path / "a", [span(1)])
    assert invoke("compact", "--dir", tmp_path / "a", "--into", tmp_path / "b", "--idle", 0).exit_code == 0
    assert len(list(parquet_spans(tmp_path / "b" / "parquet"))) == 1


@pytest.mark.parametrize("more", [[], ["--remove"]])
def test_compressed_files_were_left_out_of_another_store_without_a_word(
    tmp_path: Path, invoke: Invoke, more: list[str]
) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    write(source, [span(1)])
    packed = write(source, [span(2)], writer="packed").with_suffix(".jsonl.gz")
    content = packed.with_suffix("").read_bytes()
    packed.with_suffix("").unlink()
    packed.write_bytes(gzip.compress(content))
    for _ in range(2):
        result = invoke("compact", "--dir", source, "--into", target, "--idle", 0, *more)
        assert result.exit_code == 1
        (said,) = result.stderr.splitlines()
        assert said.startswith(f"otel-gym: 1 file left out (the first: {packed}): only plain .jsonl files are sealed; ")
        assert packed.exists()
    packed.unlink()
    write(source, [span(2)], writer="packed")
    assert invoke("compact", "--dir", source, "--into", target, "--idle", 0).exit_code == 0
    assert len(list(parquet_spans(target / "parquet"))) == 2


def test_what_cannot_be_done_ends_with_2(tmp_path: Path, invoke: Invoke) -> None:
    result = invoke("compact", "--dir", tmp_path / "none")
    assert result.exit_code == 2 and "no such folder" in result.output
    assert not (tmp_path / "none").exists()
    result = invoke("compact", "--dir", tmp_path)
    assert result.exit_code == 2 and "empty, nothing was recorded here yet" in result.output
    (tmp_path / "x").write_text("x")
    result = invoke("compact", "--dir", tmp_path)
    assert result.exit_code == 2 and "not a store of otel_gym" in result.output
    write(tmp_path, [span(1)])
    with locked(tmp_path):
        result = invoke("compact", "--dir", tmp_path)
    assert result.exit_code == 2 and "held by process" in result.output


def test_what_is_left_reads_right_of_several_files(tmp_path: Path, invoke: Invoke) -> None:
    """It said: 12 files left: its writer may still run."""
    for rollout_id in ("1-0", "2-0"):
        write(tmp_path, [span(1, rollout_id)], rollout_id)
    result = invoke("compact", "--dir", tmp_path)
    assert "2 files left: a process may still write there\n" in result.output


def test_into_a_foreign_folder_a_file_or_nothing_was_written(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "store", [span(1)])
    thesis = tmp_path / "work" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("mine")
    monkeypatch.chdir(thesis.parent)
    for into, said in (
        (".", ".: not a store of otel_gym, it has no folder spans/; give another --into"),
        ("thesis.txt", "thesis.txt: a file, and a store is a folder; give another --into"),
        ("", "it names no folder"),
    ):
        result = invoke("compact", "--dir", tmp_path / "store", "--into", into, "--idle", 0)
        assert (result.exit_code, result.stdout) == (2, "")
        assert said in result.stderr
        assert list(thesis.parent.iterdir()) == [thesis]
    assert len(live_spans(tmp_path / "store")) == 1


def test_into_what_a_killed_compaction_left_goes_on(tmp_path: Path, invoke: Invoke) -> None:
    write(tmp_path / "store", [span(1)])
    with locked(tmp_path / "into"):
        pass
    assert [path.name for path in (tmp_path / "into").iterdir()] == ["compact.lock"]
    assert invoke("compact", "--dir", tmp_path / "store", "--into", tmp_path / "into", "--idle", 0).exit_code == 0


@pytest.mark.parametrize("command", ["ls --dir", "doctor", "demo --dir", "proxy --upstream http://h --dir"])
def test_a_variable_that_was_not_set_meant_the_working_directory(command: str, invoke: Invoke) -> None:
    result = invoke(*command.split(), "")
    assert result.exit_code == 2 and "it names no folder; give . for the working directory" in result.stderr
