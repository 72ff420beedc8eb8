"""The tfds format: what is opened, that TensorFlow keeps its hands off, and what a damaged shard gives."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.support.aligned_stores import write_store
from xdesc_jax.data import builder, open_source, pipeline
from xdesc_jax.data.host_tensorflow import tf, tfds
from xdesc_jax.data.records import records


@pytest.fixture
def dataset(tmp_path):
    """12 photos of 50 rows in shards of 40 rows."""
    counts = {f"{i}.jpg": 50 for i in range(12)}
    paths = tuple(write_store(tmp_path / f"{n}.h5", n, counts) for n in ("brief", "colmap-sift", "sift"))
    records(tmp_path / "out", paired=paths, rows_per_shard=40)
    return tmp_path / "out"


def damage(path, change) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(bytes(data))


def test_tfds_reads_the_same_rows_as_the_pipeline(dataset):
    source = open_source(dataset, "train", 8, ["brief", "colmap-sift", "sift", "keypoint"], shuffle=False,
                         remainder="pad")  # fmt: skip
    found = tfds.builder_from_directory(dataset)
    assert {split: info.num_examples for split, info in found.info.splits.items()} == source.info.counts
    assert max(found.info.splits["train"].shard_lengths) <= 40
    # Shards one by one and in order, as the pipeline reads them without shuffling.
    config = tfds.ReadConfig(interleave_cycle_length=1)
    theirs = list(tfds.as_numpy(found.as_dataset(split="train", shuffle_files=False, read_config=config)))
    batches = list(source.epoch(0))
    assert set(theirs[0]) == set(batches[0]) - {"mask"}
    for name in theirs[0]:
        ours = np.concatenate([batch[name][batch["mask"]] for batch in batches])
        np.testing.assert_array_equal(ours, np.stack([row[name] for row in theirs]))
        assert ours.dtype == theirs[0][name].dtype


def test_shards_before_the_window_of_the_first_batch_are_not_opened(dataset):
    source = open_source(dataset, "train", 16, window=2)
    windows = source._order.windows(3)
    first = sum(source._order.shard_rows[shard] for shard in windows[0])
    start = -(-first // 16)
    expected = list(source.epoch(3))[start:]
    for shard in windows[0]:
        builder.shard_path(source.info, "train", shard).unlink()
    for found, wanted in zip(source.epoch(3, start), expected, strict=True):
        np.testing.assert_array_equal(found["sift"], wanted["sift"])


def test_threads_and_chunks_do_not_change_the_order(dataset, monkeypatch):
    source = open_source(dataset, "train", 16)
    several = [batch["sift"] for batch in source.epoch(0)]
    monkeypatch.setattr(pipeline, "PARSERS", 1)
    monkeypatch.setattr(pipeline, "CHUNK_ROWS", 7)
    np.testing.assert_array_equal(several, [batch["sift"] for batch in source.epoch(0)])


def test_a_flipped_bit_in_a_shard_is_an_error_that_names_it(dataset):
    source = open_source(dataset, "train", 16)
    path = builder.shard_path(source.info, "train", 2)

    def flip(data):
        data[len(data) // 2] ^= 1

    damage(path, flip)
    with pytest.raises(ValueError, match=f"{path.name}: damaged behind row 0"):
        list(source.epoch(0))


@pytest.mark.parametrize("cut", [1, 700, 2000])
def test_a_shard_that_is_cut_while_training_is_an_error_that_names_it(dataset, cut):
    source = open_source(dataset, "train", 16)
    path = builder.shard_path(source.info, "train", 1)
    damage(path, lambda data: data.__delitem__(slice(len(data) - cut, None)))
    with pytest.raises(ValueError, match=f"{path.name}: damaged"):
        list(source.epoch(0))


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_shard_that_lacks_rows_is_an_error_that_names_it(dataset, shuffle):
    source = open_source(dataset, "train", 16, shuffle=shuffle, remainder="pad")
    last = len(source.info.shards["train"]) - 1
    path = builder.shard_path(source.info, "train", last)
    expected = source.info.shards["train"][last]
    whole = path.read_bytes()
    record = len(whole) // expected
    for left in (expected - 1, 0):
        path.write_bytes(whole[: left * record])
        with pytest.raises(ValueError, match=f"{path.name}: damaged, has {left} rows, expected {expected}"):
            list(source.epoch(0))


def test_no_accelerator_is_visible_to_tensorflow():
    assert tf.config.get_visible_devices("GPU") == [] and tf.config.get_visible_devices("TPU") == []


def test_records_are_made_and_read_offline_in_an_empty_home(tmp_path, stores):
    home = tmp_path / "home"
    home.mkdir()
    code = """
import socket, sys
from pathlib import Path
def refuse(*a, **k): raise OSError("network used")
socket.socket.connect = refuse
from xdesc_jax.cli import main
from xdesc_jax.data import open_source
out, *paths = sys.argv[1:]
assert main(["records", out, "--paired", *paths, "--rows-per-shard", "4"]) == 0
print("rows", sum(int(b["mask"].sum()) for b in open_source(out, "train", 3, remainder="pad").epoch(0)))
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "TFDS_"))}
    environment |= {"HOME": str(home), "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", code, str(tmp_path / "out"), *map(str, stores)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] in ("rows 4", "rows 14")
