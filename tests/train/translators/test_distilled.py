"""Small encoders that give what those of a finished model give, in its joint space."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest

from tests.support.aligned_stores import write_aligned
from tests.support.toy_records import TOY, toy_rows
from tests.train.translators.test_context import OPTIONS, SPECS, toy
from xdesc_jax import cli
from xdesc_jax.config import ModelConfig
from xdesc_jax.data.records import records
from xdesc_jax.descriptors import from_stored
from xdesc_jax.evaluate.homography import comparisons
from xdesc_jax.export.export import export, to_bundle
from xdesc_jax.files.fields import replaced
from xdesc_jax.files.whole import content_hash
from xdesc_jax.inspection.inspect import inspect
from xdesc_jax.networks import mlp
from xdesc_jax.train.translators import distilled, step
from xdesc_jax.train.translators.run import train
from xdesc_jax.train.translators.trained import load_model
from xdesc_jax.train.translators.validation import validator
from xdesc_jax.translation.bundle import load
from xdesc_jax.translation.translator import Translator

NAMES = sorted(TOY)


@pytest.fixture(scope="module")
def teacher(straight, tmp_path_factory):
    return export(straight, tmp_path_factory.mktemp("teacher") / "model.safetensors")


@pytest.fixture(scope="module")
def config(toy_config):
    return dataclasses.replace(toy_config, epochs=40, checkpoint_every=50)


@pytest.fixture(scope="module")
def run(toy_records, config, teacher, tmp_path_factory):
    return train(config, toy_records, tmp_path_factory.mktemp("runs") / "small", distill=teacher)


def rows(count=200, seed=77):
    return {name: from_stored(x, TOY[name]).astype(np.float32) for name, x in toy_rows(count, seed).items()}


def test_encoders_give_what_the_teachers_do_in_its_space(run, teacher):
    model, of = Translator(to_bundle(load_model(run))), Translator.load(teacher)
    assert model.self_check() < 1e-5
    assert sorted(model.bundle.networks) == [f"encoder/{name}" for name in NAMES]
    assert model.space_id == of.space_id and model.bundle.provenance["distilled"]["space_id"] == of.space_id
    with pytest.raises(ValueError, match="makes no 'toy-unit' of 'toy-bits': of 'toy-bits' it makes embedding"):
        model.translate(rows()["toy-bits"] > 0, "toy-bits", "toy-unit")
    for name, x in rows().items():
        given = x > 0 if name == "toy-bits" else x
        cosines = (model.embed(given, name) * of.embed(given, name)).sum(axis=1)
        assert cosines.mean() > (0.85 if name == "toy-bits" else 0.93), name


def test_a_copy_with_smaller_weights_stays_in_the_space(run, teacher, tmp_path, capsys):
    small = load(export(run, tmp_path / "small.safetensors", dtype="int8"))
    assert small.space_id == load(teacher).space_id
    assert small.provenance["distilled"] == load_model(run).provenance["distilled"]
    assert inspect(tmp_path / "small.safetensors")["encoders"] == f"learnt from model {content_hash(teacher)}"
    assert "learnt from model" in capsys.readouterr().out


def test_the_loss_and_the_figures_are_those_of_the_files(teacher, config):
    """Of untrained pupils, against what numpy makes of both files."""
    bundle = load(teacher)
    config = distilled.taught(dataclasses.replace(config, model=ModelConfig(normalization="none")), TOY, bundle)
    scales = {"toy-bits": 1.0, "toy-plain": 3.5, "toy-unit": 1.0}
    networks = distilled.with_teacher(mlp.build_networks(TOY, config.model), config, bundle, scales)
    assert sorted(networks.modules) == [f"encoder/{name}" for name in NAMES]
    state = step.first_state(networks, config)
    canonical = {name: x / np.float32(scales[name]) for name, x in rows(40).items()}
    canonical["toy-plain"][3] = 0  # a row that a descriptor does not have counts in nothing
    there = {name: x.any(axis=1) for name, x in canonical.items()}
    pupil = {n: np.asarray(mlp.embed(networks, state.weights, x, n)) for n, x in canonical.items()}
    of = Translator(bundle)
    wanted = {name: of.embed(x > 0 if name == "toy-bits" else x, name) for name, x in rows(40).items()}
    errors = {name: ((pupil[name] - wanted[name]) ** 2).sum(axis=1)[there[name]] for name in NAMES}
    inputs = dict(canonical)
    _, metrics = step.train_step(
        state, {"mask": np.ones(40, bool)}, step.keys_of(config), step.hyper_of(config), networks=networks,
        inputs_of=lambda batch, keys: inputs, variant="quadratic", distance="squared",
    )  # fmt: skip
    every = np.concatenate(list(errors.values()))
    assert metrics["translation"].count == len(every) == 119
    assert float(metrics["loss"].total) == pytest.approx(every.mean(), rel=1e-5)
    found = validator(networks)(state.weights, canonical)
    for name in NAMES:
        assert found["translation_error"][f"{name}->embedding"] == pytest.approx(errors[name].mean(), rel=1e-5)
        for other in NAMES:
            both = there[name] & there[other]
            near = np.argmax(pupil[name][both] @ wanted[other][both].T, axis=1)
            share = (near == np.arange(both.sum())).mean()
            key = found["rank1"][f"{name}->embedding"] if name == other else found["joint_rank1"][f"{name}|{other}"]
            assert key == pytest.approx(share, abs=1e-6), (name, other)


def test_a_run_goes_on_with_its_own_teacher_alone(run, toy_records, config, teacher, straight, tmp_path):
    gone_on = shutil.copytree(run, tmp_path / "run")
    before = (gone_on / "validation.json").read_bytes()
    train(config, toy_records, gone_on, distill=teacher)
    assert (gone_on / "validation.json").read_bytes() == before
    other = export(straight, tmp_path / "other.npz", format="npz", dtype="int8")
    with pytest.raises(ValueError, match="distill"):
        train(config, toy_records, gone_on, distill=other)


def test_encoders_of_an_earlier_model_learn_on(run, toy_records, config, teacher, tmp_path):
    """With a rate of almost nothing they stay what they are, but for the moments of their norms."""
    small = export(run, tmp_path / "small.safetensors")
    slow = replaced(config, {"optimizer.learning_rate": 1e-12, "epochs": 1})
    words = {"on": {"init": small}, "fresh": {}}
    runs = {n: train(slow, toy_records, tmp_path / n, distill=teacher, **given) for n, given in words.items()}
    on, fresh = (Translator(to_bundle(load_model(run))) for run in runs.values())
    before = Translator.load(small)
    assert on.space_id == before.space_id
    for name, x in rows().items():
        given = x > 0 if name == "toy-bits" else x
        own = before.embed(given, name)
        assert (on.embed(given, name) * own).sum(axis=1).min() > 0.99, name
        assert (fresh.embed(given, name) * own).sum(axis=1).mean() < 0.6, name


def test_pupils_of_a_model_that_looks_around_look_as_narrowly_as_they_are_told(tmp_path):
    """By the command, from records with neighbours: of the teacher's encoders one has context, of the pupils' none."""
    paths = write_aligned(tmp_path, {n: SPECS[n] for n in ("toy-patch", "toy-photo")}, map(toy, range(8)))
    data = str(records(tmp_path / "records", paired=paths, format="npy", validation_share=0.25).path)
    told = OPTIONS | {"epochs": 2}
    own = [word for name, value in told.items() for word in (f"--{name}", str(value))]
    first, model = tmp_path / "first", tmp_path / "model.safetensors"
    assert cli.main(["train", "--data", data, "--workdir", str(first), "--resident", *own]) == 0
    assert cli.main(["export", str(first), str(model)]) == 0
    for of, width in (("keypoint", 5), ("none", 24)):
        again = told | {"model.context.of": of, "model.context.width": width, "model.context.nearest": 12}
        own = [word for name, value in again.items() for word in (f"--{name}", str(value))]
        run, file = tmp_path / of, tmp_path / f"{of}.safetensors"
        words = ["train", "--data", data, "--workdir", str(run), "--resident", "--distill", str(model)]
        assert cli.main([*words, *own]) == 0 and cli.main(["export", str(run), str(file)]) == 0
        small = load(file)
        assert small.space_id == load(model).space_id and Translator(small).self_check() < 1e-5
        assert list(small.contexts) == ["toy-patch"] * (of == "keypoint")
        if of == "keypoint":  # as many neighbours as the teacher
            assert (small.context.width, small.context.nearest) == (width, 3)
            words = ["train", "--data", data, "--workdir", str(tmp_path / "on"), "--resident", "--distill", str(model)]
            assert cli.main([*words, "--init", str(file), *own]) == 0


def test_small_encoders_are_compared_in_the_joint_space_alone(run):
    model = Translator(to_bundle(load_model(run)))
    modes = {c.mode for c in comparisons(model.specs, model)}
    assert modes == {"native", "joint"}


def test_what_cannot_be_learnt_is_refused_before_anything_is_written(toy_records, config, teacher, tmp_path):
    for changes, words, message in [
        ({}, {"start": teacher}, "--distill trains encoders, .*, without --freeze and --start"),
        ({"model.hidden": (16,)}, {"init": teacher}, r"--init: encoder/toy-.* has layers .*, the configuration wants"),
        ({"descriptors": ("toy-unit", "absent")}, {}, r"--distill: the model has no encoder of \['absent'\], .*-bits"),
        ({"model.kind": "pair"}, {}, "--distill: pair networks have no joint space"),
        (
            {"loss.alpha": 0.3, "loss.variant": "linear"}, {},
            r"--distill: settings of the loss have no effect \(loss.alpha 0.3, loss.variant linear\)",
        ),
        (
            {"model.frame": "image", "model.harmonics": 7, "model.embedding_width": 9}, {},
            r"--distill: the joint space is the model's \(model.frame image, the model's is keypoint, .*width 9, the m",
        ),
        ({"inputs": "patches", "descriptors": ("sift",)}, {}, "--distill: inputs is 'patches', expected 'columns'"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message):
            train(replaced(config, changes), toy_records, tmp_path / "run", distill=teacher, **words)
        assert not (tmp_path / "run").exists()
    other = {**TOY, "toy-unit": dataclasses.replace(TOY["toy-unit"], output="relu")}
    with pytest.raises(ValueError, match="--distill: the model's 'toy-unit' is .*, the data's is .*relu"):
        distilled.taught(config, other, load(teacher))
    with pytest.raises(FileNotFoundError, match="absent"):
        train(config, toy_records, tmp_path / "run", distill=tmp_path / "absent.safetensors")
