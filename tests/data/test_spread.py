"""Spreading rows over shards."""

from __future__ import annotations

import numpy as np
import pytest

from xdesc_jax.data import spread as spreading
from xdesc_jax.data.deal import Deal
from xdesc_jax.data.schema import Column
from xdesc_jax.data.spread import Spreader

COLUMNS = {"x": Column(np.dtype(np.float32), (3,)), "photo": Column(np.dtype(np.int32), ())}


def spread(folder, sizes, per_shard, seed=0):
    start = 0
    with Spreader(folder, COLUMNS, Deal(sum(sizes), per_shard, seed)) as spreader:
        for photo, size in enumerate(sizes):
            x = np.arange(start, start + size, dtype=np.float32)[:, None] + np.float32([0, 0.25, 0.5])
            spreader.add({"x": x, "photo": np.full(size, photo, np.int32)})
            start += size
        return spreader, list(spreader.shards())


@pytest.mark.parametrize(("sizes", "per_shard"), [([7, 0, 1, 13], 5), ([1], 16384), ([4, 4], 8), ([3, 4], 1)])
def test_every_row_lands_once_in_balanced_shards(tmp_path, sizes, per_shard):
    spreader, shards = spread(tmp_path / "s", sizes, per_shard)
    assert [len(s["photo"]) for s in shards] == spreader.shard_rows
    assert max(spreader.shard_rows) <= per_shard and np.ptp(spreader.shard_rows) <= 1
    rows = np.concatenate([s["x"] for s in shards])
    np.testing.assert_array_equal(np.sort(rows[:, 0]), np.arange(sum(sizes)))
    np.testing.assert_array_equal(rows - rows[:, :1], np.tile(np.float32([0, 0.25, 0.5]), (len(rows), 1)))
    photos = np.concatenate([s["photo"] for s in shards])
    np.testing.assert_array_equal(photos, np.repeat(np.arange(len(sizes)), sizes)[rows[:, 0].astype(int)])
    assert not any((tmp_path / "s").iterdir())


def test_rows_of_one_photo_are_spread_over_the_shards(tmp_path):
    _, shards = spread(tmp_path / "s", [100] * 5, 50)
    assert all(len(np.unique(shard["photo"])) == 5 for shard in shards)


def test_the_result_is_a_function_of_the_seed(tmp_path):
    first, again, other = (spread(tmp_path / "s", [50, 30], 16, seed)[1] for seed in (1, 1, 2))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a["x"], b["x"])
    assert not all(np.array_equal(a["x"], b["x"]) for a, b in zip(first, other, strict=True))


def test_leftovers_of_a_killed_run_are_removed(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "00000.rows").write_bytes(b"left over")
    _, shards = spread(tmp_path / "s", [6], 3)
    assert sum(len(shard["photo"]) for shard in shards) == 6


@pytest.mark.parametrize(("photos", "per_shard", "files"), [(8, 4, 256), (80, 40, 256), (8, 4, 3), (80, 40, 3)])
def test_files_are_opened_once_to_write_and_once_to_read_however_many_photos_there_are(
    tmp_path, monkeypatch, photos, per_shard, files
):
    """20 shards: one file each, or, three at a time, 3 files of 9, 9 and 2, 6 of 3 in the first two, and theirs."""
    opened, most = [], 0

    def counted(path, mode, **options):
        nonlocal most
        opened.append((path.name, mode))
        kept.append(file := path.open(mode, **options))
        most = max(most, sum(not f.closed for f in kept))
        return file

    kept = []
    monkeypatch.setattr(spreading, "open", counted, raising=False)
    monkeypatch.setattr(spreading, "FILES", files)
    monkeypatch.setattr(spreading, "CHUNK_BYTES", 100)
    _, shards = spread(tmp_path / "s", [10] * photos, per_shard)
    assert len(shards) == 20 and all(file.closed for file in kept)
    assert len(set(opened)) == len(opened) == 2 * (20 if files == 256 else 20 + 6 + 3)
    assert most == (20 if files == 256 else 3 + 1)


def test_shards_are_the_same_by_way_of_files_of_many(tmp_path, monkeypatch):
    _, expected = spread(tmp_path / "s", [30, 1, 40], 2)
    monkeypatch.setattr(spreading, "FILES", 3)
    monkeypatch.setattr(spreading, "CHUNK_BYTES", 50)
    _, found = spread(tmp_path / "s", [30, 1, 40], 2)
    assert len(found) == len(expected) == 36
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a["x"], b["x"])


def test_rows_that_were_announced_and_do_not_come_leave_no_open_file(tmp_path):
    with Spreader(tmp_path / "s", COLUMNS, Deal(5, 2, 0)) as spreader:
        spreader.add({"x": np.zeros((4, 3), np.float32), "photo": np.zeros(4, np.int32)})
        with pytest.raises(AssertionError, match="fewer rows than announced"):
            next(spreader.shards())


def test_a_full_disk_is_told_with_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(spreading, "open", lambda *_, **__: open("/dev/full", "wb", buffering=0), raising=False)  # noqa: SIM115
    with pytest.raises(OSError, match=f"{tmp_path / 's'}: cannot be written"):
        spread(tmp_path / "s", [5], 2)
