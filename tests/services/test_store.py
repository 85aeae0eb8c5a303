"""The rollout store as a stock Collector writes it is one for our readers."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from otel_gym.cli.main import app
from otel_gym.store.reader import Store

from .conftest import ids_of, lines_of, post, post_store, records_of, request_of, services


@pytest.fixture(scope="module")
def collector(collector_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    running = services.new_collector(tmp_path_factory.mktemp("collector"), "rollout-store.yaml")
    with services.running(running):
        yield running


@pytest.fixture(scope="module")
def written(collector: Any, demo_store: Path) -> Path:
    post_store(collector.http_url, demo_store)
    store: Path = collector.store
    return store


def test_records_from_the_collectors_store_are_those_of_the_direct_one(written: Path, demo_store: Path) -> None:
    direct = records_of(demo_store)
    assert sum(map(len, direct.values())) > 8
    assert {name: records for name, records in records_of(written).items() if name in direct} == direct


def test_every_span_arrives_once_with_its_attributes(written: Path, demo_store: Path) -> None:
    for rollout_id in Store(demo_store).rollout_ids():
        ours = {(span.trace_id, span.span_id): span for span in Store(demo_store).spans(rollout_id)}
        theirs = {(span.trace_id, span.span_id): span for span in Store(written).spans(rollout_id)}
        assert theirs.keys() == ours.keys()
        for key, span in ours.items():
            moved = {**theirs[key].attributes, "gym.rollout.id": rollout_id}
            assert moved == {**span.attributes, "gym.rollout.id": rollout_id}
            assert (theirs[key].start_ns, theirs[key].end_ns) == (span.start_ns, span.end_ns)
            assert (theirs[key].events, theirs[key].links) == (span.events, span.links)


@pytest.mark.parametrize(
    "command", [["ls"], ["doctor"], ["export", "model-calls", "-o", "-"], ["stats"], ["show", "0-0"]], ids=" ".join
)
def test_commands_read_the_collectors_store(written: Path, command: list[str]) -> None:
    done = CliRunner().invoke(app, [*command, "--dir", str(written)])
    assert (done.exit_code, done.exception) == (0, None), done.output
    assert "0-0" in done.output or command[0] in {"doctor", "stats"}


def test_the_collectors_files_are_sealed_as_ours_are(written: Path, demo_store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(written, tmp_path / "store")
    done = CliRunner().invoke(app, ["compact", "--dir", str(copy), "--idle", "0", "--remove"])
    assert done.exit_code == 0, done.output
    assert list(copy.glob("parquet/part-*.parquet")) and not list(copy.glob("spans/*/*.jsonl"))
    direct = records_of(demo_store)
    assert {name: records for name, records in records_of(copy).items() if name in direct} == direct


def test_ids_from_a_resource_and_from_nemo_gyms_name_are_found(collector: Any) -> None:
    post(collector.http_url, request_of(spanId="a" * 16, resource={"gym.rollout.id": "on-resource"}))
    post(collector.http_url, request_of(spanId="b" * 16, attributes={"nemo.gym.rollout.id": "by-nemo-gym"}))
    found = ids_of(collector.store)
    assert found["on-resource"] == {("0" * 31 + "1", "a" * 16)}
    assert found["by-nemo-gym"] == {("0" * 31 + "1", "b" * 16)}


@pytest.mark.parametrize("odd", ["../../outside", "a/b", ".hidden", "", "x" * 201, "nul\0"])
def test_an_id_that_is_none_becomes_no_path_and_is_kept(collector: Any, odd: str) -> None:
    span_id = format(zlib.crc32(odd.encode()) + 1, "016x")
    post(collector.http_url, request_of(spanId=span_id, attributes={"gym.rollout.id": odd}))
    [span] = [span for span in Store(collector.store).spans("unassigned") if span.span_id == span_id]
    assert span.attributes["gym.rollout.id.refused"] == odd
    assert {path.name for path in collector.store.iterdir()} == {"spans"}


def test_spans_without_an_id_are_unassigned_and_not_lost(collector: Any) -> None:
    post(collector.http_url, request_of(spanId="c" * 16))
    assert ("0" * 31 + "1", "c" * 16) in ids_of(collector.store)["unassigned"]


def test_secrets_of_other_instrumentation_do_not_land_on_disk(collector: Any) -> None:
    secrets = {
        "http.request.header.authorization": "hunter2",
        "http.request.header.x-api-key": "hunter2",
        "http.request.header.cookie": "hunter2",
        "db.password": "hunter2",
        "gen_ai.usage.input_tokens": "12",
    }
    span = request_of(spanId="d" * 16, attributes=secrets, resource={"process.environ": "KEY=hunter2"})
    post(collector.http_url, span)
    [span] = [span for span in Store(collector.store).spans("unassigned") if span.span_id == "d" * 16]
    assert span.attributes["gen_ai.usage.input_tokens"] == "12"
    assert "hunter2" not in "".join(path.read_text() for path in collector.store.rglob("*.jsonl"))


def test_a_prompt_of_megabytes_is_stored_whole(collector: Any) -> None:
    prompt = "long “prompt” " * 500_000
    body = request_of(spanId="e" * 16, attributes={"gym.rollout.id": "large", "gym.request.body": prompt})
    assert len(body) > 7_000_000
    post(collector.http_url, body)
    [span] = Store(collector.store).spans("large")
    assert span.attributes["gym.request.body"] == prompt


def test_a_killed_collector_has_written_what_it_answered_for_and_goes_on_in_the_same_files(
    collector_program: Path, demo_store: Path, tmp_path: Path
) -> None:
    """With `append: true` the exporter keeps up to a second of it in memory."""
    collector = services.new_collector(tmp_path, "rollout-store.yaml")
    lines = list(lines_of(demo_store))
    with services.running(collector):
        for line in lines[: len(lines) // 2]:
            post(collector.http_url, line)
        collector.service.kill()
        before = {path: path.read_bytes() for path in collector.store.rglob("*.jsonl")}
        collector.service.start()
        for line in lines[len(lines) // 2 :]:
            post(collector.http_url, line)
    assert ids_of(collector.store) == ids_of(demo_store)
    assert all(path.read_bytes().startswith(content) for path, content in before.items())


def test_more_rollouts_than_open_files_lose_nothing(collector_program: Path, tmp_path: Path) -> None:
    collector = services.new_collector(
        tmp_path, "rollout-store.yaml", settings=("exporters::file/store::group_by::max_open_files=3",)
    )
    with services.running(collector):
        for number in range(60):
            span = request_of(spanId=format(number + 1, "016x"), attributes={"gym.rollout.id": f"{number % 7}-0"})
            post(collector.http_url, span)
    assert {name: len(ids) for name, ids in ids_of(collector.store).items()} == {
        f"{task}-0": len(range(task, 60, 7)) for task in range(7)
    }


def test_a_last_line_without_its_newline_is_read(collector: Any, tmp_path: Path) -> None:
    """As the file exporter leaves it between its two writes: the line, then the newline."""
    post(collector.http_url, request_of(spanId="f" * 16, attributes={"gym.rollout.id": "cut"}))
    [path] = collector.store.glob("spans/rollout_id=cut/*.jsonl")
    copy = tmp_path / "store" / "spans" / "rollout_id=cut" / path.name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert ids_of(tmp_path / "store") == {"cut": {("0" * 31 + "1", "f" * 16)}}
