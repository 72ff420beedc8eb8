"""A split held in memory whole, without tensorflow where the format allows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.aligned_stores import write_store
from xdesc_jax.data import open_source
from xdesc_jax.data import resident as resident_module
from xdesc_jax.data.records import records
from xdesc_jax.data.resident import ResidentSet


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
    every, some = ResidentSet(mixed, "train", 4), ResidentSet(mixed, "train", 4, having=having)
    kept = [row for row in range(every.rows) if any(every.arrays[name][row].any() for name in having)]
    assert 0 < len(kept) == some.rows and (len(kept) < every.rows) == (len(having) < 3)
    assert some.batches_per_epoch == len(kept) // 4
    for name, array in every.arrays.items():
        np.testing.assert_array_equal(some.arrays[name], array[kept])
        assert not isinstance(some.arrays[name], np.memmap)
    assert some.arrays.keys() == every.arrays.keys()


def test_a_split_without_any_such_row_says_so(tmp_path):
    paths = tuple(write_store(tmp_path / f"{name}.h5", name) for name in ("brief", "sift"))
    records(tmp_path / "out", paired=paths, format="npy")
    np.lib.format.open_memmap(tmp_path / "out" / "train.brief.npy", "r+")[:] = 0
    with pytest.raises(ValueError, match=r"out: no row of split 'train' has brief"):
        ResidentSet(tmp_path / "out", "train", 2, having=("brief",))


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
