"""A split held in memory whole, without tensorflow where the format allows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.aligned_stores import write_store
from xdesc_jax.data import open_source
from xdesc_jax.data import resident as resident_module
from xdesc_jax.data.around import Neighbourhood
from xdesc_jax.data.records import records
from xdesc_jax.data.resident import ResidentSet, two_of_each


def test_arrays_hold_the_whole_split_in_the_order_of_the_files(folder):
    resident = ResidentSet(folder, "train", 8)
    streamed = open_source(folder, "train", 8, shuffle=False, remainder="pad")
    batches = list(streamed.epoch(0))
    assert resident.arrays.keys() == {"brief", "sift", "photo"}
    for name, array in resident.arrays.items():
        expected = np.concatenate([batch[name][batch["mask"]] for batch in batches])
        np.testing.assert_array_equal(array, expected)
        assert array.dtype == expected.dtype and not isinstance(array, np.memmap)


def test_batches_are_the_arrays_taken_in_the_order_of_numpys_generator(folder):
    resident = ResidentSet(folder, "train", 8, seed=4)
    order = np.random.default_rng([4, 2]).permutation(resident.rows)
    np.testing.assert_array_equal(resident.order(2), order)
    for index, batch in enumerate(resident.epoch(2)):
        rows = order[8 * index : 8 * index + 8]
        np.testing.assert_array_equal(batch["sift"], resident.arrays["sift"][rows])


@pytest.fixture(scope="module", params=["npy", "tfds"])
def mixed(request, tmp_path_factory) -> Path:
    """Records of three sets of keypoints, each with two descriptors of four."""
    base, rng = tmp_path_factory.mktemp("sets"), np.random.default_rng(0)
    sets = {"a": ("brief", "sift"), "b": ("sift", "colmap-sift"), "c": ("colmap-sift", "tfeat")}
    for folder, names in sets.items():
        (base / folder).mkdir()
        counts = {f"{i}.jpg": int(rng.integers(4, 12)) for i in range(6)}
        for name in names:
            write_store(base / folder / f"{name}.h5", name, counts)
    folders = tuple(base / folder for folder in sets)
    records(base / "out", paired=folders, format=request.param, rows_per_shard=10, seed=3)
    return base / "out"


@pytest.mark.parametrize("having", [("brief",), ("tfeat",), ("brief", "tfeat"), ("brief", "sift", "tfeat")])
def test_rows_without_any_of_the_descriptors_that_learn_are_passed_over(mixed, having, monkeypatch):
    monkeypatch.setattr(resident_module, "BLOCK_ROWS", 5)
    every, some = (
        ResidentSet(mixed, "train", 4, shuffle=False, remainder="pad", **h) for h in ({}, {"having": having})
    )
    kept = [row for row in range(every.rows) if any(every.arrays[name][row].any() for name in having)]
    assert 0 < len(kept) == some.rows and (len(kept) < every.rows) == (len(having) < 3)
    batches = list(some.epoch(0))
    assert len(batches) == some.batches_per_epoch == -(-len(kept) // 4)
    for name, array in every.arrays.items():
        np.testing.assert_array_equal(np.concatenate([b[name][b["mask"]] for b in batches]), array[kept])
        assert len(some.arrays[name]) == len(kept)  # of these sets' photos all rows have a descriptor, or none has
        assert not isinstance(some.arrays[name], np.memmap)
    shuffled = ResidentSet(mixed, "train", 4, having=having, seed=2)
    assert sorted(shuffled.order(1)) == list(range(len(kept))) != list(shuffled.order(1))


def test_rows_that_are_passed_over_stay_neighbours_of_those_of_their_photo(tmp_path):
    paths = tuple(write_store(tmp_path / f"{name}.h5", name, {"a": 40, "b": 30}) for name in ("brief", "sift"))
    records(tmp_path / "out", paired=paths, format="npy", validation_share=0)
    photos = np.load(tmp_path / "out" / "train.photo.npy")
    brief = np.lib.format.open_memmap(tmp_path / "out" / "train.brief.npy", "r+")
    brief[::2] = 0
    brief[photos == photos[0]] = 0  # and of one photo all
    settings = {"columns": ["brief", "sift", "keypoint"], "shuffle": False, "around": Neighbourhood(("sift",), 4, 2)}
    every, some = (ResidentSet(tmp_path / "out", "train", 8, **settings, **h) for h in ({}, {"having": ["brief"]}))
    kept = np.flatnonzero(brief.any(axis=1))
    wanted, found = list(every.epoch(0)), list(some.epoch(0))
    assert some.rows == len(kept) < len(some.arrays["sift"]) == (photos != photos[0]).sum()
    of_all, of_some = (
        {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]} for batches in (wanted, found)
    )
    rows = kept[: len(of_some["sift"])]
    there = of_some["neighbours/mask"]
    assert there.any() and not there.all()  # nothing is larger than the largest ones
    for name in ("sift", "keypoint", "neighbours/mask"):
        np.testing.assert_array_equal(of_some[name], of_all[name][rows])
    for name in ("neighbours/sift", "neighbours/keypoint"):
        np.testing.assert_array_equal(of_some[name][there], of_all[name][rows][there])


def test_a_split_without_any_such_row_says_so(tmp_path):
    paths = tuple(write_store(tmp_path / f"{name}.h5", name) for name in ("brief", "sift"))
    records(tmp_path / "out", paired=paths, format="npy")
    np.lib.format.open_memmap(tmp_path / "out" / "train.brief.npy", "r+")[:] = 0
    with pytest.raises(ValueError, match=r"out: no row of split 'train' has brief"):
        ResidentSet(tmp_path / "out", "train", 2, having=("brief",))


POINTS = np.array([4, 1, 4, -1, 4, 9, 1, 4, 9, 9, -1, 6, 1, 2, 2, 4], np.int32)


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("rows_a_photo", [1, 4])
def test_two_rows_of_a_point_come_behind_each_other(tmp_path, hosts, rows_a_photo):
    """Of 1, 4 and 9 a row is left out, in each epoch another one; of 6 there is one, of two rows nothing is known."""
    paths = tuple(write_store(tmp_path / f"{name}.h5", name, {"a": 9, "b": 9}) for name in ("brief", "sift"))
    records(tmp_path / "out", paired=paths, format="npy", validation_share=0)
    info = json.loads((tmp_path / "out/records.json").read_text())
    np.save(tmp_path / "out/train.point.npy", POINTS)
    info["files"]["train.point.npy"] = (tmp_path / "out/train.point.npy").stat().st_size
    (tmp_path / "out/records.json").write_text(json.dumps(info | {"has_points": True}))
    sources = [
        ResidentSet(
            tmp_path / "out", "train", 4, ["sift", "point"], host=host, num_hosts=hosts, in_twos=True, seed=3,
            rows_a_photo=rows_a_photo, remainder="pad",
        )
        for host in range(hosts)
    ]  # fmt: skip
    assert sources[0].rows == 10 and sources[0].batches_per_epoch == 3
    left_out = []
    for epoch in range(6):
        seen = []
        for source in sources:
            rows = np.concatenate([b["row"][b["mask"]] for b in source.row_batches(epoch)])
            batches = list(source.epoch(epoch))
            arrays = [np.concatenate([b[name][b["mask"]] for b in batches]) for name in ("point", "sift")]
            np.testing.assert_array_equal(arrays[0], POINTS[rows])
            np.testing.assert_array_equal(arrays[1], source.arrays["sift"][rows])
            again = [b["point"] for b in source.epoch(epoch, 1)]
            np.testing.assert_array_equal(again, [b["point"] for b in batches][1:])
            assert (POINTS[rows][::2] == POINTS[rows][1::2]).all()
            seen += rows.tolist()
        assert len(set(seen)) == len(seen) == 10 and (POINTS[seen] >= 0).all()
        assert sorted(POINTS[seen].tolist()) == [1, 1, 2, 2, 4, 4, 4, 4, 9, 9]
        left_out.append(set(range(16)) - set(seen))
    assert len(set(map(frozenset, left_out))) > 1
    plain = ResidentSet(tmp_path / "out", "train", 4, ["point"], in_twos=True, shuffle=False)
    assert plain.rows == 16 and plain.order(0).tolist() == list(range(16))


def test_rows_in_twos_need_two_of_a_point(tmp_path):
    paths = tuple(write_store(tmp_path / f"{name}.h5", name) for name in ("brief", "sift"))
    records(tmp_path / "out", paired=paths, format="npy")
    with pytest.raises(ValueError, match=r"out: has no column 'point'"):
        ResidentSet(tmp_path / "out", "train", 2, ["point"], in_twos=True)
    assert len(two_of_each(np.array([3, -1, 2, -1]), np.random.default_rng(0))) == 0


def test_the_npy_format_is_made_and_read_without_tensorflow_and_jax(tmp_path, stores):
    code = """
import sys
for name in ("tensorflow", "tensorflow_datasets", "jax", "flax", "cv2", "pycolmap"):
    sys.modules[name] = None
from xdesc_jax.cli import main
from xdesc_jax.data import open_source
from xdesc_jax.train.prefetch import device_prefetch
out, *paths = sys.argv[1:]
assert main(["records", out, "--paired", *paths, "--format", "npy"]) == 0
for resident in (False, True):
    source = open_source(out, "train", 2, resident=resident)
    batches = list(device_prefetch(source.epoch(0), lambda b: b))
    assert len(batches) == source.batches_per_epoch
"""
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", code, str(tmp_path / "out"), *map(str, stores)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
