"""Batches whose rows come with their neighbours, from records held in memory or read by whole photos."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.aligned_stores import write_aligned
from xdesc_jax.data import open_source
from xdesc_jax.data.around import Neighbourhood
from xdesc_jax.data.records import records
from xdesc_jax.data.schema import KEYPOINT, MASK, PHOTO, RecordInfo
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.networks.neighbours import by_tree
from xdesc_jax.networks.neighbours_jax import blocked

SPECS = {name: DescriptorSpec(name, 3, normalized=False) for name in ("a", "b")}
AROUND = Neighbourhood(("a",), 3, 2)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Six photos of 1 to 21 keypoints; a row of `a` holds its photo and number."""
    folder, photos = tmp_path_factory.mktemp("around"), []
    for photo in range(6):
        n, rng = 1 + 4 * photo, np.random.default_rng(photo)
        rows = np.column_stack([np.full(n, photo + 1), np.arange(n), np.ones(n)]).astype(np.float32)
        shapes = {"scales": np.exp(rng.uniform(0, 2, n)), "oris": rng.uniform(-3, 3, n)}
        photos.append((dict.fromkeys(SPECS, rows), rng.uniform(0, 64, (n, 2)), shapes))
    return write_aligned(folder, SPECS, photos)


@pytest.fixture(scope="module")
def data(stores, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    return records(folder / "records", paired=stores, format="npy", validation_share=0, rows_per_shard=16).path


@pytest.fixture(scope="module", params=["npy", "tfds"])
def whole(request, stores, tmp_path_factory):
    return records(
        tmp_path_factory.mktemp("photos") / "records", paired=stores, format=request.param, validation_share=0,
        rows_per_shard=16, deal_by="photo",
    ).path  # fmt: skip


def test_rows_of_a_photo_are_in_one_shard(whole):
    info = RecordInfo.load(whole)
    assert info.whole_photos and sum(info.shards["train"]) == 66 and len(info.shards["train"]) > 2
    rows = open_source(whole, "train", 66, columns=["a"], shuffle=False)
    (batch,) = rows.epoch(0)
    shards = np.repeat(np.arange(len(info.shards["train"])), info.shards["train"])
    for photo in range(6):
        assert len(set(shards[batch[PHOTO] == photo])) == 1
        assert batch["a"][batch[PHOTO] == photo, 1].tolist() == list(range(1 + 4 * photo))


@pytest.mark.parametrize(("host", "search"), [(0, by_tree), (1, blocked)])
def test_windows_of_whole_photos_have_the_neighbours_that_memory_has(data, whole, host, search):
    options = {"columns": ["a", KEYPOINT], "around": AROUND, "remainder": "pad"}
    names = ("neighbours/a", "neighbours/keypoint", "neighbours/mask")
    wanted = {}
    for batch in open_source(data, "train", 16, **options, resident=True).epoch(0):
        for i in np.flatnonzero(batch[MASK]):
            wanted[tuple(batch["a"][i])] = [batch[name][i] for name in names]
    seen = []
    options["around"] = AROUND._replace(search=search)
    source = open_source(whole, "train", 16, **options, window=1, host=host, num_hosts=2, seed=2)
    for batch in source.epoch(1):
        assert batch["neighbours/a"].shape == (8, 5, 3)
        for i in np.flatnonzero(batch[MASK]):
            seen.append(tuple(batch["a"][i]))
            there = batch["neighbours/mask"][i]
            np.testing.assert_array_equal(there, wanted[seen[-1]][2])
            for name, expected in zip(names[:2], wanted[seen[-1]], strict=False):
                np.testing.assert_array_equal(batch[name][i][there], expected[there])
    assert len(seen) == len(set(seen)) and 0 < len(seen) < 66


def test_thinned_photos_are_the_same_after_a_restart_and_in_memory_on_every_host(data, whole):
    """And others in another epoch, where rows are read anew."""
    thinned = AROUND._replace(least_share=0.3)
    options = {"columns": ["a", KEYPOINT], "around": thinned, "seed": 4}

    def far(batches):
        """How far the nearest neighbour of each row lies."""
        found = {}
        for batch in batches:
            for i in np.flatnonzero(batch[MASK] & batch["neighbours/mask"][:, 0]):
                apart = batch["neighbours/keypoint"][i, 0, :2] - batch[KEYPOINT][i, :2]
                found[tuple(batch["a"][i])] = float(np.hypot(*apart))
        return found

    held = [far(open_source(data, "train", 8, **options, resident=True, host=h, num_hosts=2).epoch(0)) for h in (0, 1)]
    alone = far(open_source(data, "train", 16, **options, resident=True).epoch(0))
    everything = far(open_source(data, "train", 16, **options | {"around": AROUND}, resident=True).epoch(0))
    assert alone.items() <= (held[0] | held[1]).items() and len(alone) > 40
    assert sum(alone[row] > everything[row] for row in alone.keys() & everything.keys()) > 8

    def streamed(epoch, start=0):
        return far(open_source(whole, "train", 8, **options).epoch(epoch, start))

    assert streamed(1, 3).items() <= streamed(1).items()
    first, second = streamed(0), streamed(1)
    assert any(first[row] != second[row] for row in first.keys() & second.keys())


def test_neighbours_of_rows_that_are_spread_over_shards_are_refused(data):
    with pytest.raises(ValueError, match="records: the rows of a photo are spread over the shards.*--deal-by photo"):
        open_source(data, "train", 16, columns=["a", KEYPOINT], around=AROUND)


def test_neighbours_are_of_the_same_photo_and_nearer_than_the_others(data):
    source = open_source(
        data, "train", 16, columns=["a", "b", KEYPOINT], resident=True, around=AROUND, remainder="pad", seed=3
    )
    everything = open_source(data, "train", 66, columns=["a", KEYPOINT], resident=True, shuffle=False).arrays
    seen = 0
    for batch in source.epoch(0):
        assert batch["neighbours/a"].shape == (16, 5, 3) and batch["neighbours/keypoint"].shape == (16, 5, 4)
        assert "neighbours/b" not in batch and not batch["neighbours/mask"][~batch[MASK]].any()
        for i in np.flatnonzero(batch[MASK]):
            there = batch["neighbours/mask"][i]
            own = everything[PHOTO] == batch[PHOTO][i]
            assert there[:3].sum() == min(3, own.sum() - 1)
            near, position = batch["neighbours/a"][i][there], batch[KEYPOINT][i, :2]
            assert (near[:, 0] == batch[PHOTO][i] + 1).all() and (near[:, 1] != batch["a"][i, 1]).all()
            apart = np.sort(np.linalg.norm(everything[KEYPOINT][own, :2] - position, axis=1))
            found = np.linalg.norm(batch["neighbours/keypoint"][i, :3, :2][there[:3]] - position, axis=1)
            np.testing.assert_allclose(found, apart[1 : 1 + len(found)], rtol=1e-6)
            seen += 1
    assert seen == 66


def test_row_numbers_and_arrays_give_the_same_batches(data):
    from xdesc_jax.train.devices import Devices

    options = {"columns": ["a", KEYPOINT], "resident": True, "around": AROUND, "seed": 5}
    devices = Devices.choose([16])
    for backend in ("pmap", "sharded"):
        source = open_source(data, "train", 16, **options)
        batches = Devices(devices.devices, backend=backend).batches(source)
        numbers, wanted = list(batches.epoch(1, 0)), list(source.epoch(1))
        one, two = batches.place(numbers[:1]), batches.place(numbers[1:3])
        for name in ("a", "neighbours/a", "neighbours/keypoint", "neighbours/mask"):
            np.testing.assert_array_equal(np.asarray(one[name]).reshape(wanted[0][name].shape), wanted[0][name])
            both = np.stack([batch[name] for batch in wanted[1:3]])
            found = np.moveaxis(two[name], 0, 1) if backend == "pmap" else np.asarray(two[name])  # steps first
            np.testing.assert_array_equal(found.reshape(both.shape), both)
