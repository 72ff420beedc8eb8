"""From records to the networks: columns, patches with augmentation, statistics."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from xdesc_jax.config import ContextConfig, JitterConfig, ModelConfig, TrainConfig
from xdesc_jax.data import open_source
from xdesc_jax.data.schema import RecordInfo
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, get_spec
from xdesc_jax.train import parallel
from xdesc_jax.train.randomness import row_keys
from xdesc_jax.train.translators import inputs
from xdesc_jax.train.translators.inputs import Statistics
from xdesc_jax.train.translators.run import train
from xdesc_jax.train.translators.step import describe_inputs
from xdesc_jax.translation.deviation import RowStatistics

cv2 = pytest.importorskip("cv2", reason="needs the features extra")
NAMES = ("brief", "sift")
FROM_PATCHES = TrainConfig(
    descriptors=NAMES,
    inputs="patches",
    epochs=1,
    batch_size=32,
    validation_rows=64,
    model=ModelConfig(embedding_width=8, hidden_handcrafted=(16,)),
    jitter=JitterConfig(rotation_deg=5, scale=0.05, shift_px=0.5, contrast=0.1, noise=0.01),
)


def test_descriptors_of_patches_equal_the_columns(patch_records):
    """Computed in the step without jitter, they are the canonical rows of the stored columns."""
    source = open_source(patch_records, "train", 32, list(NAMES), True)
    batch = next(source.epoch(0))
    specs, ones = {n: get_spec(n) for n in NAMES}, dict.fromkeys(NAMES, 1.0)
    columns = TrainConfig(descriptors=NAMES)
    still = dataclasses.replace(FROM_PATCHES, jitter=JitterConfig())
    found = [
        inputs.inputs_function(config, specs, ones, augment=True)(batch, row_keys(jax.random.key(0), 32))
        for config in (columns, still)
    ]
    np.testing.assert_array_equal(found[0]["brief"], found[1]["brief"])
    np.testing.assert_allclose(found[0]["sift"], found[1]["sift"], atol=1e-5)


def test_jitter_changes_training_rows_and_not_those_of_validation(patch_records):
    batch = next(open_source(patch_records, "train", 32, [], True).epoch(0))
    specs, ones = {n: get_spec(n) for n in NAMES}, dict.fromkeys(NAMES, 1.0)
    made = {}
    for augment in (True, False):
        function = inputs.inputs_function(FROM_PATCHES, specs, ones, augment)
        made[augment] = [np.asarray(function(batch, row_keys(jax.random.key(k), 32))["sift"]) for k in (0, 1)]
    assert np.abs(made[True][0] - made[True][1]).max() > 0.01
    np.testing.assert_array_equal(made[False][0], made[False][1])


def test_descriptors_of_patches_are_scaled_where_they_have_a_length_of_their_own():
    specs = {
        "bits": binary_spec("bits", 3),
        "unit": DescriptorSpec("unit", 2),
        "plain": DescriptorSpec("plain", 2, normalized=False),
    }
    rows = {"bits": np.array([[1, 0, 1]], bool), "unit": np.array([[0.6, 0.8]]), "plain": np.array([[3.0, 4.0]])}
    made = describe_inputs(
        np.zeros((1, 32, 32)), specs, dict.fromkeys(specs, 5.0), {n: lambda p, n=n: rows[n] for n in rows}
    )
    expected = {"bits": [[1, 0, 1]], "unit": [[0.6, 0.8]], "plain": [[0.6, 0.8]]}
    for name, x in made.items():
        assert x.dtype == np.float32
        np.testing.assert_allclose(x, expected[name], rtol=1e-6)


def test_a_run_on_patches_trains(patch_records, tmp_path):
    run = train(FROM_PATCHES, patch_records, tmp_path / "run")
    assert (run / "validation.json").exists()


@pytest.mark.parametrize("devices", [1, 4])
def test_a_set_on_the_devices_gives_the_batches_of_the_host(toy_records, devices):
    source = open_source(toy_records, "train", 64, resident=True, remainder="pad")
    chosen = jax.local_devices()[:devices]
    place = parallel.resident_batches(source.arrays, chosen)
    pairs = zip(source.row_batches(1, 2), source.epoch(1, 2), strict=True)
    count = 0
    for rows, expected in pairs:
        found = place([rows])
        for name, x in found.items():
            assert x.shape[:2] == (devices, 64 // devices)
            flat, mask = np.asarray(x).reshape(64, *x.shape[2:]), expected["mask"]
            np.testing.assert_array_equal(flat[mask], expected[name][mask])
        count += 1
    assert count == source.batches_per_epoch - 2


def test_a_resident_run_trains(toy_records, toy_config, tmp_path):
    config = dataclasses.replace(toy_config, epochs=1, resident=True)
    assert (train(config, toy_records, tmp_path / "run") / "validation.json").exists()


def test_statistics_survive_a_file(toy_records, toy_config, tmp_path):
    specs = RecordInfo.load(toy_records).specs
    source = inputs.open_split(toy_records, "train", toy_config, specs, 64)
    made = inputs.measure_statistics(source, specs, toy_config)
    made.save(tmp_path / "statistics.npz")
    read = Statistics.load(tmp_path / "statistics.npz")
    for name in specs:
        assert read.scale[name] == pytest.approx(made.scale[name])
        np.testing.assert_array_equal(read.rows[name].mean, made.rows[name].mean)
        np.testing.assert_array_equal(read.sample[name], made.sample[name])
    assert read.scale["toy-unit"] == read.scale["toy-bits"] == 1
    rows = np.concatenate([batch["toy-plain"][batch["mask"]] for batch in source.epoch(0)])
    assert read.scale["toy-plain"] == pytest.approx(np.sqrt((rows**2).sum(1).mean()), rel=1e-5)
    np.testing.assert_array_equal(read.sample["toy-plain"], rows[:64])


def test_rows_have_a_length_of_their_own_where_they_are_neither_bits_nor_unit():
    plain = DescriptorSpec("plain", 4, normalized=False)
    assert [inputs.plain(spec) for spec in (plain, DescriptorSpec("unit", 4), binary_spec("bits", 4))] == [
        True,
        False,
        False,
    ]


def test_rows_that_are_not_finite_are_told_of_the_records(toy_records, toy_config, tmp_path):
    data = Path(shutil.copytree(toy_records, tmp_path / "records"))
    rows = np.load(data / "train.toy-unit.npy")
    rows[5, 2] = np.nan
    np.save(data / "train.toy-unit.npy", rows)
    specs = inputs.choose_specs(RecordInfo.load(data), toy_config)
    source = inputs.open_split(data, "train", toy_config, specs, 64)
    with pytest.raises(ValueError, match="records: damaged, a row of 'toy-unit' among the first 2.. is not finite"):
        inputs.measure_statistics(source, specs, toy_config)


def test_rows_without_a_descriptor_do_not_count_in_its_typical_norm():
    rows = np.array([[3, 4], [0, 0], [0, 0], [5, 12]], np.float32)
    assert inputs.typical_norm(rows) == pytest.approx(np.sqrt((25 + 169) / 2))
    assert inputs.typical_norm(rows[1:3]) == 1


def test_a_cut_statistics_file_is_named(tmp_path):
    (tmp_path / "statistics.npz").write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(ValueError, match="statistics.npz"):
        Statistics.load(tmp_path / "statistics.npz")


def test_patches_have_no_neighbours():
    model = ModelConfig(context=ContextConfig(of="keypoint"))
    with pytest.raises(ValueError, match="inputs is 'patches' with model.context.of 'keypoint': patches have no neigh"):
        inputs.choose_specs(None, TrainConfig(inputs="patches", descriptors=("sift",), model=model))


def test_descriptors_of_patches_must_be_named():
    with pytest.raises(ValueError, match="name them"):
        inputs.choose_specs(None, TrainConfig(inputs="patches"))


def test_the_weight_files_of_a_run_are_those_of_its_learned_descriptors(tmp_path, monkeypatch):
    monkeypatch.setenv("XDESC_DATA", str(tmp_path))
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/sosnet.safetensors").write_bytes(b"installed")
    config = TrainConfig(inputs="patches", weights=("hardnet=mine.npz",))
    specs = {name: get_spec(name) for name in ("sift", "hardnet", "sosnet")}
    found = inputs.weight_files(config, specs)
    assert found == {"hardnet": Path("mine.npz"), "sosnet": tmp_path / "weights/sosnet.safetensors"}
    assert inputs.weight_files(TrainConfig(), specs) == {}
    with pytest.raises(ValueError, match="weights are given for .'hardnet'., the run has .'sift'."):
        inputs.weight_files(config, {"sift": specs["sift"]})


def test_weights_of_learned_descriptors_are_asked_for(patch_records, tmp_path):
    config = dataclasses.replace(FROM_PATCHES, descriptors=("sift", "hardnet"))
    with pytest.raises(ValueError, match="hardnet"):
        train(config, patch_records, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"rows/a/mean": np.ones((1, 2), np.float32)},
        {"rows/a/std": np.full(3, np.nan, np.float32)},
        {"rows/a/mean": None},
        {"rows/a/photo_covariance": np.ones((3, 2), np.float32)},
        {"scale/a": np.float32(0)},
        {"scale/a": np.float32(np.inf)},
        {"scale/a": None},
        {"sample/a": np.ones(3)},
        {"sample/a": None},
        {"rows/a/other": np.ones(3, np.float32)},
    ],
)
def test_statistics_that_do_not_fit_each_other_are_refused(tmp_path, changes):
    figures = RowStatistics(np.ones(3, np.float32), np.ones(3, np.float32), np.eye(3, dtype=np.float32))
    Statistics({"a": figures}, {"a": 1.0}, {"a": np.ones((2, 3), np.float32)}).save(tmp_path / "statistics.npz")
    assert Statistics.load(tmp_path / "statistics.npz").scale == {"a": 1.0}
    with np.load(tmp_path / "statistics.npz") as file:
        arrays = dict(file) | changes
    np.savez(tmp_path / "statistics.npz", **{name: values for name, values in arrays.items() if values is not None})
    with pytest.raises(ValueError, match="statistics.npz: statistics of the run cannot be read"):
        Statistics.load(tmp_path / "statistics.npz")
