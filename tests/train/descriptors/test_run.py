"""Runs of descriptor training: they end the same however often they were stopped, and refuse what does not fit."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.support.killed import kill_within
from tests.support.pair_records import pair_records
from tests.support.root import ROOT
from tests.support.run_log import log_lines
from xdesc_jax import cli
from xdesc_jax.config import OptimizerConfig, load_config
from xdesc_jax.data.mixture import Part
from xdesc_jax.features import l2net
from xdesc_jax.features.weights import write_arrays
from xdesc_jax.files.fields import from_dict
from xdesc_jax.train.checkpoint import load_state
from xdesc_jax.train.descriptors.config import AugmentationConfig, DescriptorConfig
from xdesc_jax.train.descriptors.export import load_descriptor
from xdesc_jax.train.descriptors.run import train_descriptor
from xdesc_jax.train.descriptors.step import create_state

pytestmark = pytest.mark.usefixtures("thin_network")


def weights(run: Path) -> list[np.ndarray]:
    return jax.tree.leaves(load_descriptor(run, "latest").net)


def test_a_run_learns_and_writes_its_record(descriptor_run):
    history = json.loads((descriptor_run / "validation.json").read_text())
    start = json.loads((descriptor_run / "start.json").read_text())
    assert [entry["step"] for entry in history] == [4, 8]
    assert set(history[0]["rank1"]) == set(start["rank1"]) == {"one", "two"}
    assert start["mean_loss"] > 0 and 0 <= history[-1]["mean_fpr95"] <= 1
    losses = [line["loss"] for line in log_lines(descriptor_run) if "loss" in line]
    assert losses[-1] < losses[0]
    settings = json.loads((descriptor_run / "config.json").read_text())
    assert settings["data"]["one"]["share"] == 6 and settings["data"]["two"]["weight"] == 0.25


def test_a_killed_run_ends_as_an_uninterrupted_one(descriptor_run, pair_parts, descriptor_config, tmp_path):
    """SIGKILL while the checkpoint within the first epoch is being written."""
    run = tmp_path / "run"
    script = f"""
import os, signal
from pathlib import Path
from tests.support.thin_network import make_thin
from xdesc_jax.data.mixture import Part
from xdesc_jax.files.fields import from_dict
from xdesc_jax.train import checkpoint
from xdesc_jax.train.checkpoint import load_state
from xdesc_jax.train.descriptors.config import DescriptorConfig
from xdesc_jax.train.descriptors.run import train_descriptor
from xdesc_jax.train.descriptors.step import create_state
save = checkpoint.Checkpoints.save
def save_and_die(*arguments):
    save(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
checkpoint.Checkpoints.save = save_and_die
make_thin()
parts = [Part(Path(path), weight) for path, weight in {[(str(p.path), p.weight) for p in pair_parts]!r}]
config = from_dict({dataclasses.asdict(descriptor_config)!r}, DescriptorConfig)
train_descriptor(config, parts, Path({str(run)!r}))
"""
    kill_within(script)
    train_descriptor(descriptor_config, pair_parts, run)
    assert log_lines(run) == log_lines(descriptor_run)
    for a, b in zip(weights(run), weights(descriptor_run), strict=True):
        np.testing.assert_array_equal(a, b)


def test_steps_of_a_dispatch_change_nothing(descriptor_run, pair_parts, descriptor_config, tmp_path):
    """Two steps together, but where the checkpoint after three comes between."""
    run = train_descriptor(descriptor_config, pair_parts, tmp_path / "run", steps_per_dispatch=2)
    for a, b in zip(log_lines(run), log_lines(descriptor_run), strict=True):
        assert a.keys() == b.keys() and a["step"] == b["step"]
    for a, b in zip(weights(run), weights(descriptor_run), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)


def test_the_other_form_trains_the_same(pair_parts, descriptor_config, tmp_path):
    """On four devices, with augmentation and dropout; the form is no part of the configuration.

    Where a gradient is about zero, rounding decides which way Adam goes a whole step, so that losses part by .2 %
    within the steps of 1e-3; at 1e-5 they have nothing to part by. That gradients are equal, `test_randomness` says.
    """
    config = dataclasses.replace(descriptor_config, epochs=1, optimizer=OptimizerConfig(1e-5))
    run = train_descriptor(config, pair_parts, tmp_path / "run", backend="sharded", steps_per_dispatch=2)
    mapped = train_descriptor(config, pair_parts, tmp_path / "mapped")
    for a, b in zip(log_lines(run), log_lines(mapped), strict=True):
        assert a.keys() == b.keys() and a["step"] == b["step"]
        assert a.get("loss", 0) == pytest.approx(b.get("loss", 0), rel=1e-4)
    for a, b in zip(weights(run), weights(mapped), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)
    train_descriptor(config, pair_parts, run)  # finished: the other form accepts the run


def test_the_average_of_weights_is_what_is_exported(pair_parts, descriptor_config, tmp_path):
    optimizer = dataclasses.replace(descriptor_config.optimizer, ema=0.6)
    config = dataclasses.replace(descriptor_config, epochs=1, optimizer=optimizer)
    run = train_descriptor(config, pair_parts, tmp_path / "run")
    settings = json.loads((run / "config.json").read_text())
    like = create_state(l2net.init(jax.random.key(0)), average=True)
    state, _ = load_state(run, settings["hash"], like, "latest")
    net = load_descriptor(run, "latest").net
    for at, kernel in enumerate(net.kernels):
        np.testing.assert_array_equal(kernel, state.average["params"][f"layer{at}"])
    assert np.abs(net.kernels[0] - state.params["layer0"]).max() > 1e-4


def test_other_settings_are_refused_with_the_difference(descriptor_run, pair_parts, descriptor_config, tmp_path):
    run = Path(shutil.copytree(descriptor_run, tmp_path / "run"))
    changed = dataclasses.replace(descriptor_config, dropout=0.2)
    with pytest.raises(ValueError, match=r"config.dropout: 0.1 -> 0.2\); pass --overwrite"):
        train_descriptor(changed, pair_parts, run)
    parts = [Part(pair_parts[0].path, 0.5), Part(pair_parts[1].path, 0.5)]
    with pytest.raises(ValueError, match=r"data.one.share: 6 -> 4; data.one.weight: 0.75 -> 0.5"):
        train_descriptor(descriptor_config, parts, run)


def test_training_goes_on_from_weights_of_either_network(pair_parts, descriptor_config, tmp_path):
    """At rate zero the weights stay those given, whatever the file names them."""
    net = l2net.init(jax.random.key(7))
    init = write_arrays(tmp_path / "given.safetensors", l2net.arrays_of(net, l2net.HARDNET_NAMES), {})
    config = dataclasses.replace(
        descriptor_config, network="sosnet", epochs=1, rows_per_epoch=8, optimizer=OptimizerConfig(0.0), resident=True
    )
    run = train_descriptor(config, pair_parts, tmp_path / "run", init=init)
    for a, b in zip(load_descriptor(run).net.kernels, net.kernels, strict=True):
        np.testing.assert_array_equal(a, b)
    settings = json.loads((run / "config.json").read_text())
    assert settings["init"] == settings["started_from"]["hash"]


def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    toy_records, pair_parts, descriptor_config, tmp_path
):
    run = tmp_path / "run"
    with pytest.raises(ValueError, match="records without pairs"):
        train_descriptor(descriptor_config, [Part(toy_records)], run)
    with pytest.raises(ValueError, match="batch_size 6 does not divide over 4 devices"):
        train_descriptor(dataclasses.replace(descriptor_config, batch_size=6), pair_parts, run)
    alone = pair_records(tmp_path / "alone", 3, 1)
    with pytest.raises(ValueError, match="alone: the validation split has too few points: 1 in its first 1 rows"):
        train_descriptor(descriptor_config, [*pair_parts, Part(alone, 0.1)], run)
    with pytest.raises(FileNotFoundError, match="no such weight file"):
        train_descriptor(descriptor_config, pair_parts, run, init=tmp_path / "none.safetensors")
    assert not run.exists()


def test_a_folder_with_other_files_is_no_run_directory(pair_parts, descriptor_config, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="holds no run"):
        train_descriptor(descriptor_config, pair_parts, tmp_path, overwrite=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_command_line_overrides_the_configuration_file(monkeypatch):
    seen = {}
    monkeypatch.setattr(
        "xdesc_jax.train.descriptors.run.train_descriptor",
        lambda config, parts, workdir, **kwargs: seen.update(config=config, parts=parts, workdir=workdir, **kwargs),
    )
    words = ["train-descriptor", "--data", "a=0.7", "--data", "b=0.3", "--workdir", "run", "--epochs", "3"]
    words += ["--optimizer.schedule", "cosine"]
    assert cli.main([*words, "--config", str(ROOT / "configs" / "sosnet.py"), "--augmentation.no-flips"]) == 0
    assert [(str(p.path), p.weight) for p in seen["parts"]] == [("a", 0.7), ("b", 0.3)]
    config = seen["config"]
    assert (config.loss, config.epochs, config.optimizer.schedule) == ("sosnet", 3, "cosine")
    assert not config.augmentation.flips and seen["init"] is None


def test_configurations_are_of_the_stage_and_survive_json():
    config = load_config(ROOT / "configs" / "sosnet.py", DescriptorConfig)
    config = dataclasses.replace(config, augmentation=AugmentationConfig(gamma=0.1), rows_per_epoch=5)
    assert from_dict(json.loads(json.dumps(dataclasses.asdict(config))), DescriptorConfig) == config
    with pytest.raises(ValueError, match="returned TrainConfig, expected DescriptorConfig"):
        load_config(ROOT / "configs" / "tiny.py", DescriptorConfig)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("epochs", 0, "epochs is 0"),
        ("batch_size", 1, "negatives come from the batch"),
        ("dropout", 1.0, "dropout is 1.0"),
    ],
)
def test_settings_out_of_range_are_refused(field, value, message):
    with pytest.raises(ValueError, match=message):
        DescriptorConfig(**{field: value})
