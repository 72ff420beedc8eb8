"""A split held in memory whole, without tensorflow where the format allows it."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

from xdesc_jax.data import open_source
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
