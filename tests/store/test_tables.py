"""Tables of an engine's are read as the store they came from."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from otel_gym.store.blobs import BlobStore
from otel_gym.store.compact import compact
from otel_gym.store.parquet import part_paths
from otel_gym.store.reader import Store, open_store
from otel_gym.store.tables import group_of, store_of_table, unsealed_files
from otel_gym.views.attempts import LaterAttempts
from otel_gym.views.counted_calls import counted_calls, model_call_rows
from otel_gym.views.json_lines import json_line
from otel_gym.views.selection import selected_rollouts
from tests.store.sealed import call, execution, sealed_store
from tests.store.stores import span, write


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sealed_store(tmp_path_factory.mktemp("tables") / "store")


def shuffled(store: Path, seed: int = 1) -> pa.Table:
    """The rows of all parts, as a shuffle leaves them."""
    parts = [pq.read_table(part, partitioning=None) for part in part_paths(store)]
    table = pa.concat_tables([part.slice(at, 3) for part in parts for at in range(0, part.num_rows, 3)])
    order = list(range(table.num_rows))
    random.Random(seed).shuffle(order)
    taken = table.take(pa.array(order))
    return pa.concat_tables([taken.slice(at, 5) for at in range(0, taken.num_rows, 5)])


def rows(store: Store, every: bool = False) -> list[str]:
    calls = counted_calls(selected_rollouts(store), LaterAttempts(store), every=every)
    return [json_line(row) for row in model_call_rows(calls)]


def test_a_table_of_all_rows_is_the_store(store: Path) -> None:
    found, expected = store_of_table(shuffled(store), store), open_store(store)
    assert found.rollout_ids() == expected.rollout_ids()
    for rollout, other in zip(found.rollouts(), expected.rollouts(), strict=True):
        assert (rollout.address, rollout.is_ambiguous, rollout.spans) == (
            other.address,
            other.is_ambiguous,
            other.spans,
        )
    assert rows(found, every=True) == rows(expected, every=True)


def test_tables_of_groups_give_together_what_one_process_gives(store: Path) -> None:
    table = shuffled(store)
    ids = table.column("rollout_id").to_pylist()
    groups = sorted({group_of(rollout_id) for rollout_id in ids})
    tables = [table.filter(pa.array([group_of(each) == group for each in ids])) for group in groups]
    for every in (False, True):
        found = [row for each in tables for row in rows(store_of_table(each, store), every)]
        assert sorted(found) == sorted(rows(open_store(store), every))


def test_attempts_of_a_rollout_are_one_group_and_ids_of_others_stay_apart() -> None:
    assert {group_of(f"12-0{attempt}") for attempt in ("", "-a1", "-a12")} == {"12-0"}
    assert [group_of(name) for name in ("12-1", "mine-a1", "unassigned", "12-0-a0")] == [
        "12-1",
        "mine-a1",
        "unassigned",
        "12-0-a0",
    ]


def test_a_table_without_all_columns_is_refused_by_name(store: Path) -> None:
    table = shuffled(store).drop_columns(["start_time", "end_time"])
    assert rows(store_of_table(table, store))  # which say nothing that others do not
    with pytest.raises(ValueError, match="without events, request_body: read all columns"):
        store_of_table(table.drop_columns(["request_body", "events"]), store)


def test_other_columns_and_types_of_engines_are_taken(store: Path) -> None:
    table = shuffled(store).append_column("bucket", pa.array([1] * shuffled(store).num_rows))
    large = [field.with_type(pa.large_string()) if field.type == pa.string() else field for field in table.schema]
    assert rows(store_of_table(table.cast(pa.schema(large)), store)) == rows(open_store(store))


def test_an_empty_table_has_no_rollouts(store: Path) -> None:
    assert store_of_table(shuffled(store).slice(0, 0), store).rollout_ids() == []


def test_media_is_put_back_and_said_where_it_is_missing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    sha256 = BlobStore(store).put(b"picture")
    body = json.dumps({"url": f"otel_gym:blob:{sha256}:7"})
    said: dict[str, Any] = {"gym.request.body": body, "gym.request.body.blobs": 1}
    write(store, [span(1, attributes=said)])
    compact(store, idle_s=0, remove=True)
    (rollout,) = (found := store_of_table(shuffled(store), store)).rollouts()
    assert "cGljdHVyZQ==" in (rollout.spans[0].body("gym.request.body") or "")
    assert found.damage == []
    (elsewhere := tmp_path / "elsewhere").mkdir()
    found = store_of_table(shuffled(store), elsewhere)
    assert [rollout.rollout_id for rollout in found.rollouts()] == ["1-0"]
    assert ["is not there" in damage.problem for damage in found.damage] == [True]


def test_what_is_not_sealed_is_told(tmp_path: Path) -> None:
    store = tmp_path / "store"
    write(store, execution(1, "1-0"), "1-0")
    compact(store, idle_s=0, remove=True)
    assert unsealed_files(store) == []
    new = write(store, execution(80, "80-0"), "80-0")
    assert unsealed_files(store) == [new]
    compact(store, idle_s=0)
    assert unsealed_files(store) == []
    write(store, [call(80, 9, "80-0", "r", None)], "80-0")
    assert unsealed_files(store) == [new]
