"""Compaction: every span in one part, whatever lies around it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from otel_gym.store import compact as compaction
from otel_gym.store import parquet
from otel_gym.store.compact import LockedError, PartError, SealedFile, compact, remove_sealed, seal
from otel_gym.store.content_once import RequestHistory
from otel_gym.store.layout import new_writer_name
from otel_gym.store.locks import locked
from otel_gym.store.parquet import parquet_rollouts, parquet_rows, parquet_spans, part_paths, read_footer, verify_part
from otel_gym.store.reader import Store, open_store
from otel_gym.store.rows import RUN
from tests.store.stores import WRITER, live_spans, span, write
from tests.store.test_text_delta import noise


def ids(directory: Path) -> list[str]:
    """What an engine counts that reads the folder alone."""
    return sorted(found.span_id for found in parquet_spans(directory / "parquet"))


def ids_of(*numbers: int) -> list[str]:
    return sorted(f"{number:016x}" for number in numbers)


def everything(directory: Path, **options: object) -> compaction.Compaction:
    return compact(directory, idle_s=0, **options)


def test_many_rollouts_go_into_one_part_sorted_and_come_back_equal(tmp_path):
    stored = [span(n, f"{n // 3}-0", run_id=f"r{n % 2}") for n in range(30)]
    for one in stored:
        write(tmp_path, [one], one.rollout_id)
    done = everything(tmp_path)

    assert (done.spans, done.rollouts, done.duplicates, len(done.parts)) == (30, 20, 0, 1)
    found = list(parquet_spans(tmp_path / "parquet"))
    assert sorted(found, key=lambda s: s.span_id) == stored
    keys = [(s.run_id, s.rollout_id, s.start_ns) for s in found]
    assert keys == sorted(keys)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "compact.lock",
        "compacting",
        "manifest",
        "parquet",
        "spans",
    ]
    assert [path.name for path in (tmp_path / "parquet").iterdir()] == [done.parts[0].name]
    assert list((tmp_path / "compacting").iterdir()) == []


def test_a_part_can_be_read_by_rollout(tmp_path):
    for n in range(30):
        write(tmp_path, [span(n, f"{n // 3}-0")], f"{n // 3}-0")
    everything(tmp_path)
    assert [s.span_id for s in parquet_spans(tmp_path / "parquet", "4-0")] == ids_of(12, 13, 14)
    assert list(parquet_spans(tmp_path / "parquet", "nobody")) == []
    assert parquet_rollouts(tmp_path / "parquet") == [("r", f"{n}-0") for n in range(10)]


def part_of_many_runs(store, monkeypatch):
    """Six rollouts of five runs, a row group a run."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 6)
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 2)
    for n in range(6):
        write(store, [span(n + 6 * k, f"{n}-0", f"step-{k}") for k in range(5)], f"{n}-0")
    (part,) = everything(store).parts
    assert pq.read_metadata(part).num_row_groups == 5
    return part


def test_row_groups_of_many_small_runs_were_tiny(tmp_path):
    for n in range(6):
        write(tmp_path, [span(n + 6 * k, f"{n}-0", f"step-{k}") for k in range(5)], f"{n}-0")
    (part,) = everything(tmp_path).parts
    assert pq.read_metadata(part).num_row_groups == 1
    assert [row[RUN] for row in parquet_rows(part)] == [f"step-{n // 6}" for n in range(30)]


def test_a_store_of_many_runs_was_read_a_row_group_a_rollout_and_run(tmp_path, monkeypatch):
    """Twenty times slower than one of a single run: each rollout lies in nearly all groups of its part."""
    read = []
    part_of_many_runs(tmp_path, monkeypatch)
    whole = pq.ParquetFile.read_row_group
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", lambda *a, **k: (read.append(a[1]), whole(*a, **k))[1])
    found = {
        rollout.address: [s.span_id for s in rollout.spans] for rollout in open_store(tmp_path / "parquet").rollouts()
    }
    assert found == {f"step-{n // 6}/{n % 6}-0": ids_of(n) for n in range(30)}
    assert sorted(read) == [0, 1, 2, 3, 4]


def test_a_part_is_opened_once_for_rollouts_that_follow_each_other(tmp_path, monkeypatch):
    """Its footer names every file that it was made of, and took four fifths of the time of reading small rollouts."""
    part_of_many_runs(tmp_path, monkeypatch)
    opened = []
    file = pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", lambda *a, **k: (opened.append(a[0]), file(*a, **k))[1])
    assert sum(len(rollout.spans) for rollout in open_store(tmp_path / "parquet").rollouts()) == 30
    assert len(opened) == 1


def test_row_groups_are_kept_within_bounds_and_read_again_beyond_them(tmp_path, monkeypatch):
    part = part_of_many_runs(tmp_path, monkeypatch)
    size = pq.read_metadata(part).row_group(0).total_byte_size
    monkeypatch.setattr(parquet, "_KEPT_BYTES", 3 * size)
    groups = parquet.RowGroups()
    for n in range(6):
        assert len(list(parquet_spans(part, f"{n}-0", groups))) == 5
        assert 1 <= len(groups._kept) <= 3


def test_a_part_has_statistics_a_bloom_filter_and_zstd(tmp_path):
    write(tmp_path, [span(n) for n in range(5)])
    (part,) = everything(tmp_path).parts
    group = pq.read_metadata(part).row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert columns["rollout_id"].statistics.min == "1-0"
    assert not columns["request_body"].is_stats_set
    assert "RLE_DICTIONARY" not in columns["request_body"].encodings
    assert b"otel_gym.claims" in pq.read_metadata(part).metadata


def test_again_does_nothing_and_late_spans_go_to_a_later_part(tmp_path):
    write(tmp_path, [span(1), span(2)])
    (first,) = everything(tmp_path).parts
    before = first.read_bytes()
    assert everything(tmp_path).parts == []
    write(tmp_path, [span(3)])
    (second,) = everything(tmp_path).parts
    assert second != first and first.read_bytes() == before
    assert ids(tmp_path) == ids_of(1, 2, 3)
    assert everything(tmp_path).parts == []


def test_a_lost_part_is_made_again_under_its_name(tmp_path):
    write(tmp_path, [span(1), span(2)])
    (first,) = everything(tmp_path).parts
    first.unlink()
    assert everything(tmp_path).parts == [first]
    assert ids(tmp_path) == ids_of(1, 2)


def test_a_new_file_of_the_same_name_and_size_is_not_taken_for_the_old_one(tmp_path):
    path = write(tmp_path, [span(1)])
    everything(tmp_path, remove=True)
    assert not path.exists()
    write(tmp_path, [span(2)])
    everything(tmp_path, remove=True)
    assert ids(tmp_path) == ids_of(1, 2)
    assert len(part_paths(tmp_path)) == 2


def test_a_torn_tail_stays_until_it_is_whole(tmp_path):
    path = write(tmp_path, [span(1)], tail=b'{"resourceSpans":[{"sco')
    done = everything(tmp_path, remove=True)
    assert ids(tmp_path) == ids_of(1)
    assert path.exists()
    assert [left.why for left in done.left] == ["torn at the end"]


def test_a_last_line_that_lacks_only_its_newline_counts(tmp_path):
    path = write(tmp_path, [span(1), span(2)])
    path.write_bytes(path.read_bytes()[:-1])
    done = everything(tmp_path, remove=True)
    assert ids(tmp_path) == ids_of(1, 2)
    assert (done.removed, path.exists()) == (1, False)


def test_a_damaged_line_is_named_and_its_file_is_kept(tmp_path):
    path = write(tmp_path, [span(1)], tail=b"{broken\n")
    write(tmp_path, [span(2)])
    done = everything(tmp_path, remove=True)
    assert ids(tmp_path) == ids_of(1, 2)
    assert [(damage.path, damage.line) for damage in done.damage] == [(path, 2)]
    assert [left.why for left in done.left] == ["lines that cannot be read whole"]
    assert path.exists()


def conversation(store: Path) -> Path:
    """Three calls whose requests grow; the line of the second is damaged, so that the third has lost its request."""
    history, spans = RequestHistory(), []
    for number in range(1, 4):
        text = "".join(noise(str(turn), 3000) for turn in range(number))
        spans.append(span(number, attributes=history.encode("1-0", f"{number:016x}", text)))
        history.committed("1-0")
    path = write(store, spans)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:50] + b"\n" + lines[2])
    return path


@pytest.mark.parametrize("sealed_before", [False, True])
def test_once_damage_was_sealed_it_was_said_no_more(tmp_path, sealed_before):
    source, target = tmp_path / "source", tmp_path / "target"
    path = conversation(source)
    if sealed_before:
        everything(source)
    for _ in range(3):
        done = everything(source, into=target, remove=True)
        first, gap = dict.fromkeys(map(str, done.damage))
        assert f"{path}:2: " in first and "its request cannot be rebuilt" in gap
        assert path.exists()

    store = Store(target)
    (_, third) = store.spans("1-0")
    assert "gym.request.body" not in third.attributes
    assert third.attributes["gym.request.body.gap"].startswith("its request cannot be rebuilt")
    said = sorted(str(damage) for damage in store.damage)
    assert len(said) == 2
    assert "2 lines of rollout_id=1-0/" in said[0] and "could not be sealed whole" in said[0]
    assert f"span {3:016x}: its request cannot be rebuilt: span {2:016x}: its line is missing" in said[1]
    assert everything(target).damage[0] in store.damage


def test_a_store_could_not_be_read_once_a_damaged_file_below_a_name_that_no_rollout_has_was_sealed(tmp_path):
    write(tmp_path, [span(1)], rollout_id="-x", tail=b"{broken\n")
    everything(tmp_path)
    store = Store(tmp_path)
    assert list(store.rollout_ids()) == ["-x"]
    assert any("rollout_id=-x" in str(damage) for damage in store.damage)


def test_a_repeated_span_counts_once_and_the_ended_whole_and_later_one_wins(tmp_path):
    write(
        tmp_path,
        [span(1, name="ended"), span(1, end_ns=None, name="open"), span(2, name="earlier"), span(2, name="later")],
    )
    cut = {"gym.request.body": "he", "gym.request.body.bytes": 90}
    write(tmp_path, [span(3, name="whole"), span(3, name="cut", attributes=cut)], writer="b.elsewhere.1.0000000b")
    done = everything(tmp_path)
    assert (done.spans, done.duplicates) == (3, 3)
    assert sorted(s.name for s in parquet_spans(tmp_path / "parquet")) == ["ended", "later", "whole"]


@pytest.mark.parametrize(
    ("late", "name"), [({"name": "later"}, "later"), ({"name": "x", "end_ns": None}, "chat 1"), ({}, "chat 1")]
)
def test_a_late_repetition_takes_the_place_of_the_sealed_span_or_is_dropped(tmp_path, late, name):
    write(tmp_path, [span(1), span(2)])
    (first,) = everything(tmp_path).parts
    write(tmp_path, [span(1, **late), span(3)], writer="b.elsewhere.1.0000000b")
    everything(tmp_path, remove=True)
    assert ids(tmp_path) == ids_of(1, 2, 3)
    assert {s.span_id: s.name for s in parquet_spans(tmp_path / "parquet")}[f"{1:016x}"] == name
    assert [s.span_id for s in parquet_spans(first)] == ids_of(1, 2)
    assert live_spans(tmp_path) == []


def test_files_of_running_writers_are_left_and_those_of_ended_ones_are_not(tmp_path):
    running = write(tmp_path, [span(1)], writer=new_writer_name("me"))
    ended_process = subprocess.Popen([sys.executable, "-c", ""])
    ended_process.wait()
    parts = new_writer_name("gone").split(".")
    write(tmp_path, [span(2)], writer=".".join([parts[0], parts[1], str(ended_process.pid), parts[3]]))
    recent = write(tmp_path, [span(3)], writer=WRITER)
    old = write(tmp_path, [span(4)], writer="old.elsewhere.1.0000000c")
    os.utime(old, (time.time() - 7200, time.time() - 7200))

    done = compact(tmp_path, remove=True)
    assert ids(tmp_path) == ids_of(2, 4)
    assert {left.path for left in done.left} == {running, recent}
    assert sorted(s.span_id for s in live_spans(tmp_path)) == ids_of(1, 3)


def test_a_process_id_that_came_round_is_not_the_writer(tmp_path):
    path = write(tmp_path, [span(1)], writer=new_writer_name("me"))
    os.utime(path, (1_000_000_000, 1_000_000_000))  # long before this process began
    compact(tmp_path)
    assert ids(tmp_path) == ids_of(1)


def test_a_writer_seals_its_own_files_while_they_grow_and_deletes_those_that_have_not(tmp_path):
    me, other = new_writer_name("me"), new_writer_name("other")
    grown = write(tmp_path, [span(1)], writer=me)
    still = write(tmp_path, [span(2, "2-0")], "2-0", writer=me)
    write(tmp_path, [span(3)], writer=other)
    write(tmp_path, [span(4, "3-0")], "3-0", writer=me)

    done = seal(tmp_path, me, ["1-0", "2-0", "no-such"])
    assert ids(tmp_path) == ids_of(1, 2)
    write(tmp_path, [span(5)], writer=me)
    assert [file.path for file in remove_sealed(done.sealed)] == [grown]
    assert not still.exists()
    done = seal(tmp_path, me, ["1-0"])
    assert ids(tmp_path) == ids_of(1, 2, 5)
    assert remove_sealed(done.sealed) == []
    assert sorted(s.span_id for s in live_spans(tmp_path)) == ids_of(3, 4)
    assert remove_sealed([SealedFile(grown, 1)]) == []  # gone already


def test_sealing_takes_whole_lines_only(tmp_path):
    me = new_writer_name("me")
    path = write(tmp_path, [span(1)], writer=me, tail=b'{"resourceSpans"')
    (sealed,) = seal(tmp_path, me, ["1-0"]).sealed
    assert sealed.end < path.stat().st_size
    assert remove_sealed([sealed]) == [sealed]


def test_everything_goes_into_another_store_parts_and_media_included(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    sha, missing = "5" * 64, "6" * 64
    (source / "blobs").mkdir(parents=True)
    (source / "blobs" / sha).write_bytes(b"image")
    media = {"gym.request.body": f'{{"image":"otel_gym:blob:{sha}:5","lost":"otel_gym:blob:{missing}:5"}}'}
    write(source, [span(1), span(2, attributes=media)])
    everything(source)  # now in a part, and its lines still there
    write(source, [span(3), span(1)])
    write(source, [span(4, "2-0")], "2-0")

    done = everything(source, into=target)
    assert ids(target) == ids_of(1, 2, 3, 4)
    assert (target / "blobs" / sha).read_bytes() == b"image"
    assert [damage.path.name for damage in done.damage] == [missing]
    assert everything(source, into=target).parts == []
    write(source, [span(5)])
    assert everything(source, into=target, remove=True).spans == 1
    assert ids(target) == ids_of(1, 2, 3, 4, 5)
    assert live_spans(source) == [] and part_paths(source) == []


def test_small_parts_become_large_ones_in_another_store(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    for n in range(5):
        write(source, [span(n, f"{n % 2}-0")], f"{n % 2}-0", writer=f"w{n}.elsewhere.1.0000000a")
        everything(source)
    assert len(part_paths(source)) == 5
    (part,) = everything(source, into=target).parts
    assert [s.rollout_id for s in parquet_spans(part)] == ["0-0"] * 3 + ["1-0"] * 2


def test_one_file_a_rollout_if_asked(tmp_path):
    for n in range(6):
        write(tmp_path, [span(n, f"{n // 2}-0")], f"{n // 2}-0")
    done = everything(tmp_path, by_rollout=True)
    assert [{s.rollout_id for s in parquet_spans(part)} for part in done.parts] == [{"0-0"}, {"1-0"}, {"2-0"}]


def test_a_rollout_that_is_larger_than_a_part_goes_to_several(tmp_path, monkeypatch):
    monkeypatch.setattr(compaction, "PART_BYTES", 3000)
    write(tmp_path, [span(n) for n in range(20)] + [span(20, attributes={"x": "y" * 9000}), span(3)])
    write(tmp_path, [span(21, "2-0")], "2-0")
    done = everything(tmp_path, remove=True)
    assert len(done.parts) > 3
    assert ids(tmp_path) == ids_of(*range(22))
    assert live_spans(tmp_path) == []


def test_row_groups_are_bounded_in_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("otel_gym.store.parquet.ROW_GROUP_BYTES", 2000)
    for n in range(40):
        write(tmp_path, [span(n, f"{n % 7}-0", run_id=f"r{n % 3}")], f"{n % 7}-0")
    (part,) = everything(tmp_path).parts
    assert pq.read_metadata(part).num_row_groups > 3
    assert ids(tmp_path) == ids_of(*range(40))
    keys = [(s.run_id, s.rollout_id, s.start_ns) for s in parquet_spans(part)]
    assert keys == sorted(keys)


def test_a_damaged_part_keeps_its_live_files(tmp_path):
    path = write(tmp_path, [span(n, attributes={"x": os.urandom(300).hex()}) for n in range(50)])
    (part,) = everything(tmp_path).parts
    content = bytearray(part.read_bytes())
    content[len(content) // 3] ^= 0xFF
    part.write_bytes(content)
    done = everything(tmp_path, remove=True)
    assert path.exists() and done.removed == 0
    assert "damaged" in str(done.damage[0])
    with pytest.raises(PartError):
        verify_part(part)


@pytest.mark.parametrize("content", [b"", b"PAR1 no PAR1"])
def test_a_file_that_is_no_part_is_named_before_anything_is_written(tmp_path, content):
    write(tmp_path, [span(1)])
    folder = tmp_path / "parquet"
    folder.mkdir()
    (folder / "part-x.parquet").write_bytes(content)
    with pytest.raises(PartError, match="part-x"):
        everything(tmp_path)
    assert len(list(folder.iterdir())) == 1


def test_a_part_of_a_later_schema_is_refused(tmp_path, monkeypatch):
    write(tmp_path, [span(1)])
    (part,) = everything(tmp_path).parts
    table = pq.read_table(part)
    metadata = {**pq.read_metadata(part).metadata, b"otel_gym.schema_version": b"99"}
    pq.write_table(table.replace_schema_metadata(metadata), part)
    with pytest.raises(PartError, match="version 99"):
        read_footer(part)


def test_two_compactions_at_once_exclude_each_other(tmp_path):
    write(tmp_path, [span(1)])
    with locked(tmp_path), pytest.raises(LockedError, match=f"process {os.getpid()}"):
        everything(tmp_path)
    everything(tmp_path)
    assert ids(tmp_path) == ids_of(1)


def test_the_lock_of_a_killed_process_is_free(tmp_path):
    holder = (
        "import sys, time; from pathlib import Path; from otel_gym.store.locks import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", holder, tmp_path], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline()
    with pytest.raises(LockedError, match=f"process {process.pid}"):
        everything(tmp_path)
    process.kill()
    process.wait()
    everything(tmp_path)


def test_the_manifest_says_what_a_part_holds(tmp_path):
    path = write(tmp_path, [span(1)])
    (part,) = everything(tmp_path).parts
    entry = json.loads((tmp_path / "manifest" / f"{part.stem}.json").read_text())
    assert (entry["spans"], entry["rollouts"], entry["bytes"]) == (1, 1, part.stat().st_size)
    assert entry["holds"][0]["file"] == path.name and entry["holds"][0]["end"] == path.stat().st_size


def test_lines_that_give_no_new_span_are_remembered_too(tmp_path):
    write(tmp_path, [span(1)])
    everything(tmp_path)
    path = write(tmp_path, [span(1)], writer="b.elsewhere.1.0000000b")
    everything(tmp_path)
    assert ids(tmp_path) == ids_of(1)
    assert everything(tmp_path, remove=True).removed == 2
    assert not path.exists()


def test_rows_of_parts_have_real_text_ids(tmp_path):
    write(tmp_path, [span(1, "12")], "12")
    everything(tmp_path)
    assert [row[1] for row in parquet_rows(tmp_path / "parquet")] == ["12"]
