"""The npy format: what is opened, how much memory it takes, and what a damaged file gives."""

from __future__ import annotations

import shutil
import tracemalloc

import numpy as np
import pytest

from tests.support.aligned_stores import write_store
from xdesc_jax.data import columns, open_source
from xdesc_jax.data.records import records

BLOCK_ROWS = 160


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """20 photos of 600 rows in blocks of 160 rows."""
    base = tmp_path_factory.mktemp("npy")
    counts = {f"{i}.jpg": 600 for i in range(20)}
    paths = tuple(write_store(base / f"{n}.h5", n, counts) for n in ("brief", "sift"))
    return records(base / "out", paired=paths, format="npy", rows_per_shard=BLOCK_ROWS).path


@pytest.fixture
def npy(made, tmp_path):
    """A copy of it."""
    return shutil.copytree(made, tmp_path / "npy")


def test_files_are_plain_arrays_of_each_split(npy):
    info = open_source(npy, "train", 8).info
    for split, rows in info.counts.items():
        sift = np.load(npy / f"{split}.sift.npy")
        assert sift.dtype == np.float32 and sift.shape == (rows, 128)
        assert np.load(npy / f"{split}.photo.npy").shape == (rows,)


def test_blocks_before_the_window_of_the_first_batch_are_not_read(npy, monkeypatch):
    source = open_source(npy, "train", 64, window=2)
    read = []
    wrapped = columns.ColumnSource._read_shards
    monkeypatch.setattr(
        columns.ColumnSource,
        "_read_shards",
        lambda self, shards: (read.append(shards), wrapped(self, shards))[1],
    )
    windows = source._order.windows(0)
    skipped = sum(source._order.shard_rows[s] for w in windows[:5] for s in w) // 64
    next(source.epoch(0, skipped + 1))
    assert not set(read[0]) & {s for w in windows[:5] for s in w}


def test_memory_stays_at_one_window_whatever_the_size_of_the_set(npy):
    source = open_source(npy, "train", 16, window=1)
    row_bytes = 64 + 128 * 4 + 4
    assert source.rows > 40 * BLOCK_ROWS
    for _ in source.epoch(0):
        pass
    tracemalloc.start()
    try:
        for epoch in range(3):
            for _ in source.epoch(epoch):
                pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A window, a block on its way to it, batches, and what opening a file takes.
    assert peak < 3 * BLOCK_ROWS * row_bytes + 100_000


@pytest.mark.parametrize("window", [1, 8])
def test_each_file_is_opened_once_an_epoch_whatever_the_number_of_blocks(npy, monkeypatch, window):
    source = open_source(npy, "train", 64, window=window)
    assert len(source.info.shard_rows("train")) > 40
    opened = []
    monkeypatch.setattr(columns, "open", lambda path, mode: opened.append(path.name) or path.open(mode), raising=False)
    mapped = columns.open_column
    monkeypatch.setattr(columns, "open_column", lambda *args: opened.append(args[-1]) or mapped(*args))
    for epoch in range(2):
        assert sum(batch["mask"].sum() for batch in source.epoch(epoch)) == source.batches_per_epoch * 64
        names = ["brief", "photo", "sift"]  # for what it says of itself, and for its rows
        assert sorted(opened) == sorted([*names, *(f"train.{name}.npy" for name in names)])
        opened.clear()


def test_a_file_that_becomes_shorter_while_it_is_read_is_named(npy):
    source = open_source(npy, "train", 64, window=1, shuffle=False)
    batches = source.epoch(0)
    next(batches)
    with open(npy / "train.sift.npy", "r+b") as file:
        file.truncate(512 * 2 * BLOCK_ROWS)
    with pytest.raises(ValueError, match=r"train\.sift\.npy: damaged, ends before row \d+"):
        list(batches)


def test_a_file_of_another_shape_is_named_with_both_shapes(npy):
    rows = open_source(npy, "train", 8).rows
    file = npy / "train.brief.npy"
    array = np.load(file)
    np.save(file, array.reshape(rows * 2, 32))
    with pytest.raises(ValueError, match=rf"train.brief.npy: holds uint8 \({rows * 2}, 32\), expected"):
        next(open_source(npy, "train", 8).epoch(0))


def test_a_file_that_is_no_array_is_named(npy):
    file = npy / "train.brief.npy"
    file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(ValueError, match="train.brief.npy: not a readable .npy array"):
        next(open_source(npy, "train", 8).epoch(0))


def test_a_copied_folder_reads_the_same(npy, tmp_path):
    shutil.copytree(npy, tmp_path / "copy")
    a = next(open_source(npy, "train", 8).epoch(0))
    b = next(open_source(tmp_path / "copy", "train", 8).epoch(0))
    np.testing.assert_array_equal(a["sift"], b["sift"])


@pytest.mark.parametrize("photo", [-1, 1000])
def test_a_row_of_a_photo_that_is_not_there_is_refused(npy, photo):
    rows = np.load(npy / "train.photo.npy")
    rows[-1] = photo
    np.save(npy / "train.photo.npy", rows)
    with pytest.raises(ValueError, match=f"train: damaged, a row is of photo {photo}, expected 0 to"):
        list(columns.ColumnSource(npy, "train", 4, remainder="pad").epoch(0))
