"""Runs: they learn, end the same however often they were stopped, and refuse what they cannot do."""

from __future__ import annotations

import dataclasses
import json
import shutil
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors import safe_open

from tests.support.killed import kill_within
from tests.support.run_log import log_lines
from xdesc_jax import cli
from xdesc_jax.config import LossConfig, ModelConfig, OptimizerConfig
from xdesc_jax.descriptors import DescriptorSpec, from_stored
from xdesc_jax.export.export import export, to_bundle
from xdesc_jax.files.whole import read_json
from xdesc_jax.networks import mlp
from xdesc_jax.train.checkpoint import Checkpoints, load_state
from xdesc_jax.train.log import read_log
from xdesc_jax.train.loop import dispatch_sizes
from xdesc_jax.train.translators import preparation
from xdesc_jax.train.translators.inputs import Statistics
from xdesc_jax.train.translators.run import train
from xdesc_jax.train.translators.step import create_state
from xdesc_jax.train.translators.trained import load_model
from xdesc_jax.train.translators.validation import validator
from xdesc_jax.translation.translator import Translator


def weights(run: Path, which: str = "latest") -> list[np.ndarray]:
    return jax.tree.leaves(load_model(run, which).networks)


@pytest.fixture
def copied(straight, tmp_path) -> Path:
    return Path(shutil.copytree(straight, tmp_path / "run"))


@pytest.fixture
def warnings_shown(monkeypatch) -> list[str]:
    shown: list[str] = []
    monkeypatch.setattr("xdesc_jax.train.checkpoint.warn", shown.append)
    return shown


def test_a_run_learns_and_writes_its_record(straight):
    history = json.loads((straight / "validation.json").read_text())
    assert [entry["epoch"] for entry in history] == list(range(1, 13))
    last = history[-1]  # chance is 1 / 128
    assert last["mean_rank1"] > 0.25
    assert min([*last["rank1"].values(), *last["joint_rank1"].values()]) > 0.1
    assert history[-1]["mean_rank1"] > history[0]["mean_rank1"]
    assert set(history[-1]["bit_accuracy"]) == {f"{n}->toy-bits" for n in ("toy-bits", "toy-plain", "toy-unit")}
    assert len(history[-1]["rank1"]) == 9 and len(history[-1]["joint_rank1"]) == 3
    losses = [line["loss"] for line in log_lines(straight) if "loss" in line]
    assert losses[-1] < losses[0]
    assert list((straight / "tensorboard").iterdir())


@pytest.mark.parametrize("saves", [1, 3])
def test_a_killed_run_ends_as_an_uninterrupted_one(straight, toy_records, toy_config, tmp_path, saves):
    """SIGKILL while the first or third checkpoint is being written: in an epoch, and behind its end."""
    run = tmp_path / "run"
    script = f"""
import os, signal
from pathlib import Path
from xdesc_jax.config import TrainConfig
from xdesc_jax.files.fields import from_dict
from xdesc_jax.train import checkpoint
from xdesc_jax.train.translators import run
save, seen = checkpoint.Checkpoints.save, []
def save_and_die(*arguments):
    save(*arguments)
    seen.append(1)
    if len(seen) == {saves}:
        os.kill(os.getpid(), signal.SIGKILL)
checkpoint.Checkpoints.save = save_and_die
run.train(from_dict({dataclasses.asdict(toy_config)!r}, TrainConfig), Path({str(toy_records)!r}), Path({str(run)!r}))
"""
    kill_within(script)
    train(toy_config, toy_records, run)
    assert log_lines(run) == log_lines(straight)
    for a, b in zip(weights(run), weights(straight), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_weight_of_target_matching_reaches_the_loss(toy_records, toy_config, tmp_path):
    config = dataclasses.replace(toy_config, epochs=1, loss=LossConfig(beta=0.3, target_margin=0.5))
    lines = [line for line in log_lines(train(config, toy_records, tmp_path / "run")) if "loss" in line]
    for line in lines:
        expected = line["translation"] + 0.1 * line["matching"] + 0.3 * line["target_matching"]
        assert line["loss"] == pytest.approx(expected, rel=1e-4)
    assert lines


def test_a_finished_run_is_not_trained_again(copied, toy_records, toy_config):
    before = weights(copied)
    train(toy_config, toy_records, copied)
    for a, b in zip(weights(copied), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(copied, straight, toy_records, toy_config, warnings_shown):
    latest = sorted((copied / "checkpoints").iterdir())[-1]
    for file in latest.rglob("*"):
        if file.is_file() and file.stat().st_size > 100:
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    train(toy_config, toy_records, copied)
    assert any("cannot be used" in text for text in warnings_shown)
    for a, b in zip(weights(copied), weights(straight), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_empty_step_folder_is_passed_over(copied, straight, warnings_shown):
    (copied / "checkpoints" / "00000099").mkdir()
    for a, b in zip(weights(copied), weights(straight), strict=True):
        np.testing.assert_array_equal(a, b)


def test_other_settings_are_refused_with_the_difference(copied, toy_records, toy_config):
    changed = dataclasses.replace(toy_config, seed=5, loss=LossConfig(alpha=0.2))
    with pytest.raises(ValueError, match=r"loss.alpha: 0.1 -> 0.2; seed: 0 -> 5"):
        train(changed, toy_records, copied)


def test_a_diverged_run_stops_with_step_epoch_and_batch(toy_records, toy_config, tmp_path):
    config = dataclasses.replace(toy_config, optimizer=OptimizerConfig(1e38))
    with pytest.raises(FloatingPointError, match=r"at step \d+ \(epoch 0, batch \d+\)"):
        train(config, toy_records, tmp_path / "run")
    with pytest.raises(ValueError, match="no checkpoint"):
        load_model(tmp_path / "run")


def test_a_descriptor_that_the_records_lack_is_named(toy_records, toy_config, tmp_path):
    with pytest.raises(ValueError, match=r"lack \['sift'\]"):
        train(dataclasses.replace(toy_config, descriptors=("sift",)), toy_records, tmp_path / "run")


def test_a_folder_with_other_files_is_no_run_directory(toy_records, toy_config, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="holds no run"):
        train(toy_config, toy_records, tmp_path)


def test_export_computes_what_the_checkpoint_does_in_the_descriptors_own_scale(straight):
    """The scale that training divides toy-plain by is folded into the exported layers."""
    model = load_model(straight)
    translator = Translator(to_bundle(model))
    translator.self_check()
    rows = from_stored(model.samples["toy-plain"], model.specs["toy-plain"])
    itself = translator.translate(rows, "toy-plain", "toy-plain")
    assert np.corrcoef(rows.ravel(), itself.ravel())[0, 1] > 0.5
    assert np.linalg.norm(itself) == pytest.approx(np.linalg.norm(rows), rel=0.5)


def test_best_is_the_checkpoint_of_the_best_validation(straight):
    history = json.loads((straight / "validation.json").read_text())
    best = max(history, key=lambda entry: entry["mean_rank1"])
    assert load_model(straight, "best").provenance["steps"] == best["step"]


def test_a_state_loads_on_any_number_of_devices_as_numpy(straight, toy_config):
    model = load_model(straight)
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(model.networks))


def test_networks_without_norms_are_trained_and_exported(toy_records, toy_config, tmp_path):
    model = dataclasses.replace(toy_config.model, normalization="none")
    run = train(dataclasses.replace(toy_config, epochs=1, model=model), toy_records, tmp_path / "run")
    layers = load_model(run).networks["encoder/toy-unit"]
    assert "mean" not in layers[0] and layers[0]["bias"].any()
    export(run, tmp_path / "m.safetensors")  # compares the file with what training computes
    assert set(Translator.load(tmp_path / "m.safetensors").specs) == set(load_model(run).specs)


def test_another_architecture_is_refused(straight, warnings_shown):
    settings = json.loads((straight / "config.json").read_text())
    specs = {n: DescriptorSpec.from_dict(s) for n, s in settings["specs"].items()}
    wider = mlp.build_networks(specs, ModelConfig(embedding_width=9))
    like = jax.eval_shape(partial(create_state, wider), jax.random.key(0))
    with pytest.raises(ValueError, match="no checkpoint can be read"):
        Checkpoints(straight, settings["hash"], read_only=True).restore(like)


def test_the_average_of_weights_is_what_is_validated_and_exported(toy_records, toy_config, tmp_path):
    optimizer = dataclasses.replace(toy_config.optimizer, ema=0.95, clip_norm=1.0, weight_decay=0.01, b1=0.8)
    config = dataclasses.replace(toy_config, epochs=2, optimizer=optimizer)
    run = train(config, toy_records, tmp_path / "run")
    settings = json.loads((run / "config.json").read_text())
    specs = {n: DescriptorSpec.from_dict(s) for n, s in settings["specs"].items()}
    networks = mlp.build_networks(specs, config.model)
    like = create_state(networks, jax.random.key(0), average=True)
    state, position = load_state(run, settings["hash"], like, "latest")
    assert position.step == 8
    model, key = load_model(run, "latest"), "encoder/toy-unit"
    for at, layer in enumerate(model.networks[key]):
        held = state.average["params"][key]
        np.testing.assert_array_equal(layer["kernel"], held[f"linear{at}"]["kernel"])
        assert np.abs(layer["kernel"] - state.params[key][f"linear{at}"]["kernel"]).max() > 1e-3
    np.testing.assert_array_equal(model.networks[key][0]["mean"], state.average["batch_stats"][key]["norm0"]["mean"])
    statistics = Statistics.load(run / "statistics.npz")
    _, validation = preparation.open_splits(toy_records, config, specs)
    rows = preparation.validation_rows(validation, config, specs, statistics)
    measured = validator(networks)
    figures = json.loads((run / "validation.json").read_text())[-1]
    assert figures["mean_rank1"] == pytest.approx(measured(state.average, rows)["mean_rank1"])
    now = measured({"params": state.params, "batch_stats": state.batch_stats}, rows)
    assert figures["translation_error"] != now["translation_error"]
    resumed = train(config, toy_records, run)  # ended: nothing is done
    assert json.loads((resumed / "validation.json").read_text())[-1] == figures


def test_a_run_with_an_average_goes_on_as_if_it_had_not_stopped(toy_records, toy_config, tmp_path, monkeypatch):
    config = dataclasses.replace(toy_config, epochs=2, optimizer=dataclasses.replace(toy_config.optimizer, ema=0.9))
    whole = train(config, toy_records, tmp_path / "whole")

    class Ends(Exception):
        pass

    def save(self, state, position, metrics=None, original=Checkpoints.save):
        original(self, state, position, metrics)
        self.verify()
        raise Ends

    with monkeypatch.context() as changed, pytest.raises(Ends):
        changed.setattr(Checkpoints, "save", save)
        train(config, toy_records, tmp_path / "parts")
    parts = train(config, toy_records, tmp_path / "parts")
    for a, b in zip(*(jax.tree.leaves(load_model(r, "latest").networks) for r in (whole, parts)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_run_of_an_earlier_version_is_told_from_one_with_other_settings(straight, toy_records, toy_config, tmp_path):
    """It can still be exported."""
    run = Path(shutil.copytree(straight, tmp_path / "run"))
    settings = json.loads((run / "config.json").read_text())
    for field in ("b1", "ema"):
        del settings["config"]["optimizer"][field]
    (run / "config.json").write_text(json.dumps(settings | {"hash": "of-then"}))
    with pytest.raises(ValueError, match=r"earlier version, whose configuration has no optimizer.b1, optimizer.ema;"):
        train(toy_config, toy_records, run)
    (run / "config.json").write_text(json.dumps(settings))
    assert load_model(run).networks.keys() == load_model(straight).networks.keys()


def test_overwrite_spares_a_folder_that_is_no_run(toy_records, toy_config, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="holds no run"):
        train(toy_config, toy_records, tmp_path, overwrite=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_dispatches_stop_where_checkpoints_log_lines_and_epochs_do():
    assert list(dispatch_sizes(0, 11, 4, (5,))) == [4, 1, 4, 1, 1]
    assert list(dispatch_sizes(3, 9, 4, (100, 50))) == [4, 4, 1]
    assert list(dispatch_sizes(3, 0, 4, (5,))) == []


def test_steps_of_a_dispatch_change_neither_log_nor_checkpoints_nor_result(toy_records, toy_config, tmp_path):
    config = dataclasses.replace(toy_config, epochs=1, checkpoint_every=7, log_every=5)
    runs = [train(config, toy_records, tmp_path / str(n), steps_per_dispatch=n) for n in (1, 3)]
    logs = [[json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()] for run in runs]
    assert [line["step"] for line in logs[0]] == [line["step"] for line in logs[1]]
    for a, b in zip(*logs, strict=True):
        if "loss" in a:
            assert a["loss"] == pytest.approx(b["loss"], rel=1e-3)
    steps = [sorted(path.name for path in (run / "checkpoints").iterdir()) for run in runs]
    assert steps[0] == steps[1]


def test_an_accelerator_that_is_asked_for_must_be_there(toy_records, toy_config, tmp_path):
    with pytest.raises(ValueError, match="jax found the CPU alone"):
        train(toy_config, toy_records, tmp_path / "run", require_accelerator=True)
    assert not (tmp_path / "run").exists()


def test_a_dry_run_tells_from_the_run_directory_what_would_become_of_it(copied, toy_records, tmp_path, capsys):
    (tmp_path / "toy.py").write_text("from tests.support.toy_records import toy_config as get_config\n")

    def planned(run: Path, *words: str, status: int = 0) -> str:
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        given = ["--config", tmp_path / "toy.py", "--data", toy_records, "--workdir", run, *words]
        assert cli.main(["plan", "train", *map(str, given)]) == status
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        return capsys.readouterr().out

    assert f"{tmp_path / 'new'}: would be made\n" in planned(tmp_path / "new")
    shown = planned(copied)
    assert f"{copied}: is finished, would be skipped\n" in shown and "12 of 12 epochs have ended" in shown
    assert f"reads   {toy_records} (records folder, " in shown
    history = json.loads((copied / "validation.json").read_text())
    (copied / "validation.json").write_text(json.dumps(history[:5]))
    shown = planned(copied)
    assert f"{copied}: would go on where it stopped\n" in shown and "5 of 12 epochs have ended" in shown
    refused = planned(copied, "--loss.alpha", "0.7", status=2)
    assert f"{copied}: was made with another configuration, would be refused\n" in refused
    assert f"{copied}: would be replaced\n" in planned(copied, "--loss.alpha", "0.7", "--overwrite")


def test_a_figure_that_is_not_finite_does_not_end_a_run(toy_records, toy_config, tmp_path, monkeypatch, caplog, capsys):
    """The errors of one pair overflow; the run, its summary and its model file have no figure there."""
    real, pair = validator, "toy-plain->toy-unit"

    def overflowing(networks):
        measure = real(networks)

        def measured(*given):
            found = measure(*given)
            return {**found, "translation_error": {**found["translation_error"], pair: float("inf")}}

        return measured

    monkeypatch.setattr("xdesc_jax.train.translators.run.validator", overflowing)
    run = train(dataclasses.replace(toy_config, epochs=1), toy_records, tmp_path / "run")
    [entry] = read_json(run / "validation.json")
    assert entry["translation_error"][pair] is None and entry["mean_rank1"] > 0
    [figures] = [line["validation"] for line in read_log(run) if "validation" in line]
    assert figures["translation_error"][pair] is None
    assert f"validation.translation_error.{pair} is inf" in caplog.text
    assert "not finite" in capsys.readouterr().out
    path = to_bundle(load_model(run)).save(tmp_path / "model.safetensors")
    with safe_open(path, "numpy") as file:
        json.loads(file.metadata()["provenance"], parse_constant=pytest.fail)
    assert Translator.load(path).bundle.provenance["validation"]["translation_error"][pair] is None
    assert len(Translator.load(path).order()) == 3
