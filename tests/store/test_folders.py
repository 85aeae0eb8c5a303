"""Whoever makes a folder of a store makes it for its owner alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from otel_gym.capture.store_folder import check_store_folder
from otel_gym.store.blobs import BlobStore
from otel_gym.store.folders import make_folder
from otel_gym.store.locks import locked
from otel_gym.store.writer import StoreWriter


def hold_lock(store: Path) -> None:
    with locked(store):
        pass


MAKERS = {
    "a span": lambda store: StoreWriter(store).append("1-0", b"{}\n"),
    "a synced span": lambda store: StoreWriter(store, sync=True).append("1-0", b"{}\n"),
    "a counter": lambda store: StoreWriter(store).write_counts({"lost_spans": 1}),
    "a picture": lambda store: BlobStore(store).put(b"picture"),
    "a compaction": hold_lock,
    "a proxy": check_store_folder,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_store_that_others_cannot_read(tmp_path, make):
    make(tmp_path / "new" / "store")
    found = {path.relative_to(tmp_path): stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert Path("new/store") in found
    assert {mode for path, mode in found.items() if (tmp_path / path).is_dir()} == {0o700}
    assert {mode for path, mode in found.items() if (tmp_path / path).is_file()} <= {0o600}


def test_a_working_folder_that_is_gone_is_an_error_of_the_file_system(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError):
        make_folder(Path("store/spans"))
