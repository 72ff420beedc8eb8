"""The order of an epoch and the batches cut from it, on an in-memory source and in both file formats."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from xdesc_jax.data import open_source
from xdesc_jax.data.source import ShardOrder, shuffled_rows


def rows_of(batches) -> np.ndarray:
    """All unmasked rows of some batches as bytes, one a row, in order."""
    parts = [np.concatenate([b["brief"], b["sift"].view(np.uint8)], axis=1)[b["mask"]] for b in batches]
    return np.concatenate(parts)


def assert_same_batches(a, b) -> None:
    a, b = list(a), list(b)
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert x.keys() == y.keys()
        for name in x:
            np.testing.assert_array_equal(x[name], y[name])


def sorted_rows(rows: np.ndarray) -> np.ndarray:
    return rows[np.lexsort(rows.T[::-1])]


@pytest.mark.parametrize("resident", [False, True])
def test_equal_seed_and_epoch_give_equal_batches(folder, resident):
    first = open_source(folder, "train", 16, seed=5, resident=resident)
    again = open_source(folder, "train", 16, seed=5, resident=resident)
    assert_same_batches(first.epoch(2), again.epoch(2))


@pytest.mark.parametrize("resident", [False, True])
def test_order_changes_with_epoch_and_with_seed(folder, resident):
    source = open_source(folder, "train", 16, seed=5, resident=resident)
    other = open_source(folder, "train", 16, seed=6, resident=resident)
    orders = [rows_of(source.epoch(0)), rows_of(source.epoch(1)), rows_of(other.epoch(0))]
    assert not any(np.array_equal(orders[i], orders[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("epoch", [0, 1])
def test_every_row_comes_once_an_epoch(folder, resident, epoch):
    source = open_source(folder, "train", 16, remainder="pad", resident=resident)
    fixed = open_source(folder, "train", 16, remainder="pad", shuffle=False, resident=resident)
    found = rows_of(source.epoch(epoch))
    assert len(found) == source.rows == len(np.unique(found, axis=0))
    np.testing.assert_array_equal(sorted_rows(found), sorted_rows(rows_of(fixed.epoch(0))))


@pytest.mark.parametrize("resident", [False, True])
def test_training_drops_the_last_partial_batch(folder, resident):
    source = open_source(folder, "train", 16, resident=resident)
    batches = list(source.epoch(0))
    assert source.rows % 16
    assert len(batches) == source.batches_per_epoch == source.rows // 16
    assert all(batch["mask"].all() for batch in batches)


@pytest.mark.parametrize("resident", [False, True])
def test_an_epoch_resumed_at_any_batch_goes_on_as_the_uninterrupted_one(folder, resident):
    source = open_source(folder, "train", 16, resident=resident)
    whole = list(source.epoch(1))
    for start in range(source.batches_per_epoch + 1):
        assert_same_batches(source.epoch(1, start), whole[start:])


@pytest.mark.parametrize("resident", [False, True])
def test_validation_keeps_one_order_and_pads_with_masked_zeros(folder, resident):
    source = open_source(folder, "validation", 16, resident=resident)
    assert source.rows % 16
    batches = list(source.epoch(0))
    assert_same_batches(batches, source.epoch(7))
    last = batches[-1]
    np.testing.assert_array_equal(last["mask"], np.arange(16) < source.rows % 16)
    assert not last["sift"][~last["mask"]].any() and not last["brief"][~last["mask"]].any()
    assert sum(batch["mask"].sum() for batch in batches) == source.rows


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_hosts_get_disjoint_rows_that_make_the_whole_in_equally_many_batches(folder, resident, split):
    options = {"remainder": "pad", "resident": resident}
    sources = [open_source(folder, split, 12, host=host, num_hosts=3, **options) for host in range(3)]
    batches = [list(source.epoch(1)) for source in sources]
    assert {len(b) for b in batches} == {sources[0].batches_per_epoch}
    assert all(len(batch["mask"]) == 4 for host in batches for batch in host)
    found = np.concatenate([rows_of(host) for host in batches])
    alone = rows_of(open_source(folder, split, 12, **options).epoch(1))
    np.testing.assert_array_equal(sorted_rows(found), sorted_rows(alone))


@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_hosts_with_unequal_shards_see_equally_many_batches_in_every_epoch(folder, remainder):
    # 18 shards of 9 and 10 rows for 4 hosts: hosts differ by a shard, and which ones changes by epoch.
    options = {"num_hosts": 4, "remainder": remainder}
    sources = [open_source(folder, "train", 8, host=host, **options) for host in range(4)]
    for epoch in range(2):
        counts = [sum(1 for _ in source.epoch(epoch)) for source in sources]
        assert counts == [sources[0].batches_per_epoch] * 4


def test_every_shard_is_dealt_to_one_host_and_the_deal_changes_by_epoch():
    hosts = [ShardOrder((3,) * 7, 2, 0, True, host, 3) for host in range(3)]
    deals = [[sorted(s for w in host.windows(epoch) for s in w) for host in hosts] for epoch in range(2)]
    for deal in deals:
        assert sorted(s for mine in deal for s in mine) == list(range(7))
    assert deals[0] != deals[1]


def test_rows_of_a_window_are_permuted_anew_for_every_epoch_window_host_and_seed():
    """Of one window of 12 rows, two orders are equal by chance once in 479 million."""

    def order(seed=3, host=0, epoch=0, window=0):
        return ShardOrder((6,) * 8, 2, seed, True, host, 2).rows(epoch, window, np.zeros(12, np.int32)).tolist()

    changes = [{}, {"epoch": 1}, {"epoch": 2}, {"window": 1}, {"host": 1}, {"seed": 4}]
    orders = [order(**change) for change in changes]
    assert len(set(map(tuple, orders))) == len(changes)
    assert all(sorted(rows) == list(range(12)) for rows in orders)
    assert [order(**change) for change in changes] == orders


def test_both_formats_and_window_sizes_that_cover_all_shards_mix_all_rows(folder):
    source = open_source(folder, "train", 9, window=1000, remainder="pad")
    batches = list(source.epoch(0))
    assert len(np.unique(batches[0]["photo"])) > 3


def test_chosen_columns_alone_are_read(folder):
    batch = next(open_source(folder, "train", 8, columns=["sift", "keypoint"]).epoch(0))
    assert {name: (v.dtype.name, v.shape) for name, v in batch.items()} == {
        "sift": ("float32", (8, 128)),
        "keypoint": ("float32", (8, 4)),
        "photo": ("int32", (8,)),
        "mask": ("bool", (8,)),
    }


def test_batches_are_writable_arrays_of_their_own(folder):
    for batch in open_source(folder, "train", 16).epoch(0):
        for values in batch.values():
            assert values.flags.owndata and values.flags.writeable


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 9, "num_hosts": 2}, "batch size is 9, expected a positive multiple of 2 hosts"),
        ({"batch_size": 0}, "batch size is 0"),
        ({"batch_size": 8, "host": 2, "num_hosts": 2}, "host is 2, expected 0 to 1"),
        ({"batch_size": 8, "seed": -1}, "the seed of the order of rows is -1, expected 0 or more"),
        ({"batch_size": 10000}, "fewer than one batch of 10000"),
        ({"batch_size": 19, "num_hosts": 19}, "18 shards for 19 hosts"),
        ({"batch_size": 8, "columns": ["hardnet"]}, "has no column 'hardnet'"),
        ({"batch_size": 8, "patches": True}, "has no column 'patch'"),
        ({"batch_size": 8, "split": "test"}, "split 'test' has no rows"),
    ],
)
def test_settings_that_cannot_work_are_refused(folder, arguments, message):
    with pytest.raises(ValueError, match=message):
        open_source(folder, **{"split": "train", **arguments})


def test_a_start_beyond_the_epoch_is_refused(folder):
    source = open_source(folder, "train", 16)
    with pytest.raises(ValueError, match=f"start_batch is 99, the epoch has {source.batches_per_epoch}"):
        source.epoch(0, 99)


def runs_of(photos: np.ndarray) -> list[tuple[int, int]]:
    """(photo, rows) of each stretch of rows of one photo."""
    found: list[list[int]] = []
    for photo in photos.tolist():
        if found and found[-1][0] == photo:
            found[-1][1] += 1
        else:
            found.append([photo, 1])
    return [(photo, rows) for photo, rows in found]


def test_rows_of_a_photo_come_together_and_all_else_is_random():
    photos = np.repeat([7, 2, 9, 4], [10, 3, 8, 1])[np.random.default_rng(0).permutation(22)]
    of_seven = np.flatnonzero(photos == 7)
    firsts, behind = set(), set()
    for seed in range(300):
        order = shuffled_rows(photos, 4, np.random.default_rng(seed))
        np.testing.assert_array_equal(np.sort(order), np.arange(22))
        for photo, rows in runs_of(photos[order]):  # groups of a photo may come side by side: 10 = 4 + 4 + 2
            assert rows in {7: {2, 4, 6, 8, 10}, 2: {3}, 9: {4, 8}, 4: {1}}[photo]
        firsts.add(photos[order[0]])
        behind |= {b for a, b in itertools.pairwise(order) if a == of_seven[0] and photos[b] == 7}
    assert firsts == {7, 2, 9, 4} and behind == set(of_seven[1:])
    any_order = np.random.default_rng(5).permutation(22)
    np.testing.assert_array_equal(shuffled_rows(photos, 1, np.random.default_rng(5)), any_order)


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("hosts", [1, 2])
def test_rows_a_photo_change_the_order_alone(folder, resident, hosts):
    found, batches = [], []
    for host in range(hosts):
        source = open_source(
            folder, "train", 4, host=host, num_hosts=hosts, remainder="pad", resident=resident, rows_a_photo=4
        )
        batches.append(list(source.epoch(1)))
        if start := len(batches[-1]) // 2:
            assert_same_batches(source.epoch(1, start), batches[-1][start:])
        found.append(rows_of(batches[-1]))
    fixed = open_source(folder, "train", 4, remainder="pad", shuffle=False, resident=resident)
    np.testing.assert_array_equal(sorted_rows(np.concatenate(found)), sorted_rows(rows_of(fixed.epoch(0))))
    same = [len(np.unique(b["photo"][b["mask"]])) for b in batches[0]]
    free = open_source(folder, "train", 4, num_hosts=hosts, resident=resident)
    assert np.mean(same) < np.mean([len(np.unique(b["photo"])) for b in free.epoch(1)])


def test_validation_comes_in_the_order_of_the_files_whatever_rows_a_photo(folder):
    plain, grouped = (open_source(folder, "validation", 4, rows_a_photo=n) for n in (1, 3))
    assert_same_batches(plain.epoch(0), grouped.epoch(0))
