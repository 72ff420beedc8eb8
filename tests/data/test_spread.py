"""Spreading rows over shards."""

from __future__ import annotations

import numpy as np
import pytest

from xdesc_jax.data.schema import Column
from xdesc_jax.data.spread import Deal, Spreader

COLUMNS = {"x": Column(np.dtype(np.float32), (3,)), "photo": Column(np.dtype(np.int32), ())}


def spread(folder, sizes, per_shard, seed=0):
    spreader = Spreader(folder, COLUMNS, Deal(sum(sizes), per_shard, seed))
    start = 0
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
