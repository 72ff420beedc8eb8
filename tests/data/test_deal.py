"""The deal of rows to shards, against the same network in whole numbers, one row at a time."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest

from xdesc_jax.data.deal import ROUNDS, Deal, PhotoDeal, shuffled

M64 = 2**64 - 1
SIZES = (1, 2, 3, 5, 16, 17, 97, 1000, 4099)


def draw(bits: int, size: int) -> int:
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & M64
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & M64
    return ((bits ^ bits >> 31) >> 32) * size >> 32


def place(row: int, count: int, seed: int) -> int:
    width = math.ceil(math.sqrt(count))
    height = math.ceil(count / width)
    keys = np.random.SeedSequence(seed, spawn_key=(0,)).generate_state(ROUNDS, np.uint64).tolist()
    while True:
        line, column = divmod(row, width)
        for index, key in enumerate(keys):
            if index % 2 == 0:
                line = (line + draw(column ^ key, height)) % height
            else:
                column = (column + draw(line ^ key, width)) % width
        row = line * width + column
        if row < count:
            return row


@pytest.mark.parametrize("count", SIZES)
def test_a_shuffle_is_a_permutation(count):
    for seed in range(5):
        assert sorted(shuffled(np.arange(count), count, seed).tolist()) == list(range(count))


@pytest.mark.parametrize("count", [*SIZES, 10**9, 2**61])
def test_places_are_those_of_the_network_one_row_at_a_time(count):
    rows = [0, count // 3, count // 2, count - 1]
    for seed in (0, 7):
        assert shuffled(np.array(rows), count, seed).tolist() == [place(row, count, seed) for row in rows]


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 97), (96, 97), (5, 60)])
def test_some_rows_get_the_shards_that_they_get_among_all(start, stop):
    deal = Deal(97, 10, 3)
    np.testing.assert_array_equal(deal.shard_of(start, stop), deal.shard_of(0, 97)[start:stop])


@pytest.mark.parametrize(("rows", "per_shard"), [(0, 5), (1, 5), (5, 5), (6, 5), (97, 10), (1000, 7), (13, 1)])
def test_every_shard_gets_its_rows(rows, per_shard):
    deal = Deal(rows, per_shard, 3)
    shards = math.ceil(rows / per_shard)
    assert deal.shards == len(deal.shard_rows) == shards and sum(deal.shard_rows) == rows
    assert np.bincount(deal.shard_of(0, rows), minlength=shards).tolist() == deal.shard_rows
    assert [deal.rows_of(shard) for shard in range(shards)] == deal.shard_rows
    for shard, expected in enumerate(deal.shard_rows):
        assert sorted(deal.order(shard).tolist()) == list(range(expected))


@pytest.mark.parametrize(
    ("photos", "per_shard"),
    [((), 5), ((3,), 5), ((5, 5, 5), 5), ((1,) * 50, 8), ((40, 1, 1, 1), 8), (tuple(range(1, 60)), 100)],
)
def test_photos_are_dealt_whole(photos, per_shard):
    deal = PhotoDeal(photos, per_shard, 3)
    shards = deal.shard_of(0, deal.rows)
    assert deal.rows == sum(photos) == sum(deal.shard_rows) and deal.shards == len(deal.shard_rows)
    assert np.bincount(shards, minlength=deal.shards).tolist() == deal.shard_rows and all(deal.shard_rows)
    for start, stop in zip(np.cumsum((0, *photos)), np.cumsum(photos), strict=False):
        assert len(set(shards[start:stop].tolist())) == 1
        np.testing.assert_array_equal(deal.shard_of(start, stop), shards[start:stop])
    if photos:
        assert max(deal.shard_rows) <= per_shard + max(photos)
        assert deal.order(0).tolist() == list(range(deal.shard_rows[0]))


def test_photos_are_dealt_at_random():
    """Of 400 photos in 20 shards, some 5 % of those behind one another are in one shard, as if drawn for each."""
    shards = PhotoDeal((10,) * 400, 200, 4).shard_of(0, 4000)[::10]
    assert PhotoDeal((10,) * 400, 200, 4).shards == 20
    assert 5 <= (shards[1:] == shards[:-1]).sum() <= 40
    assert (PhotoDeal((10,) * 400, 200, 5).shard_of(0, 4000)[::10] != shards).mean() > 0.8


def test_every_order_of_few_rows_is_about_as_frequent():
    """Of 4 rows the 24 orders, over 4800 seeds: 200 times each, with a deviation of 14."""
    found = [tuple(shuffled(np.arange(4), 4, seed).tolist()) for seed in range(4800)]
    counts = [found.count(order) for order in itertools.permutations(range(4))]
    assert sum(counts) == 4800 and max(abs(n - 200) for n in counts) < 70


def test_neighbours_fall_into_shards_as_if_drawn_for_each():
    """Of 16 shards, the pairs that rows of a photo fall into: 256 cells, chi-square 255 with a deviation of 23."""
    deal = Deal(1 << 16, 1 << 12, 5)
    shards = deal.shard_of(0, deal.rows)
    for apart in (1, 2, 255, 256, 257):
        pairs = np.bincount(16 * shards[apart:] + shards[:-apart], minlength=256)
        expected = pairs.sum() / 256
        assert abs(((pairs - expected) ** 2 / expected).sum() - 255) < 5 * 23


def test_the_rows_of_a_photo_spread_over_shards_as_a_shuffle_of_all_spreads_them():
    """1000 rows of 100 000 over 10 shards: 100 each, with a deviation of 9.5; over 40 photos, of their mean 1.5."""
    deal = Deal(100_000, 10_000, 0)
    counts = np.array([np.bincount(deal.shard_of(i, i + 1000), minlength=10) for i in range(0, 40_000, 1000)])
    assert np.abs(counts - 100).max() < 5 * 9.5 and np.abs(counts.mean(axis=0) - 100).max() < 5 * 1.5
    assert 7 < counts.std() < 12


def test_seeds_give_orders_of_their_own():
    orders = {tuple(Deal(50, 5, seed).shard_of(0, 50).tolist()) for seed in range(20)}
    assert len(orders) == 20


def test_every_shard_has_an_order_of_its_own_and_another_with_another_seed():
    orders = {tuple(Deal(60, 20, seed).order(shard).tolist()) for seed in range(5) for shard in range(3)}
    assert len(orders) == 15


def test_the_shards_of_a_photo_take_the_memory_of_its_rows_whatever_the_split_holds():
    deal = Deal(10**9, 16384, 0)
    deal.shard_of(0, 10)
    tracemalloc.start()
    try:
        deal.shard_of(999_999_000, 10**9)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * 8 * 1000
