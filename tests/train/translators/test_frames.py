"""Training in a joint space of frame 'image': frames from the records reach the networks, and stay with the model."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest

from tests.support.toy_records import toy_config
from xdesc_jax import cli
from xdesc_jax.config import ModelConfig
from xdesc_jax.data.records import records
from xdesc_jax.data.schema import KEYPOINT
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.files.fields import replaced
from xdesc_jax.networks import mlp
from xdesc_jax.train.translators import objective, step
from xdesc_jax.train.translators.run import train
from xdesc_jax.translation.translator import Translator

SPECS = {
    "toy-turned": DescriptorSpec("toy-turned", 8, normalized=False, hidden=(24,)),
    "toy-upright": DescriptorSpec("toy-upright", 6, hidden=(24,), frame="image"),
}


def toy(n, seed):
    """Arrows in the plane: as they lie, and as their keypoint, turned and scaled, sees them."""
    rng = np.random.default_rng(seed)
    arrows = rng.normal(size=(n, 3)) + 1j * rng.normal(size=(n, 3))
    sigma, angle = np.exp(rng.uniform(0, 2, n)), rng.uniform(-np.pi, np.pi, n)
    seen = arrows * np.exp(-1j * angle)[:, None]
    upright = unit_rows(np.concatenate([arrows.real, arrows.imag], axis=1))
    turned = np.concatenate([seen.real, seen.imag, np.ones((n, 2))], axis=1).astype(np.float32)
    frames = np.stack([sigma, angle], axis=1).astype(np.float32)
    return {"toy-turned": turned, "toy-upright": upright}, frames


def make_records(folder, framed=True):
    for name, spec in SPECS.items():
        with StoreWriter(folder / f"{name}.h5", spec) as store:
            for photo in range(8):
                (x, frames), xy = toy(70, photo), np.arange(140, dtype=np.float32).reshape(70, 2)
                shape = {"scales": frames[:, 0], "oris": frames[:, 1]} if framed and name == "toy-turned" else {}
                store.write(f"{photo}.png", ImageFeatures(xy, x[name], np.ones(70, bool), (64, 64), **shape))
    paths = tuple(folder / f"{name}.h5" for name in SPECS)
    return records(folder / "records", paired=paths, format="npy", validation_share=0.25, rows_per_shard=64).path


OPTIONS = {
    "epochs": 30, "batch-size": 64, "validation-rows": 128, "model.embedding-width": 8, "model.harmonics": 2,
    "optimizer.learning-rate": 0.02,
}  # fmt: skip
WORDS = [word for name, value in OPTIONS.items() for word in (f"--{name}", str(value))]


@pytest.fixture(scope="module")
def framed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("framed")
    data = make_records(folder)
    assert cli.main(["train", "--data", str(data), "--workdir", str(folder / "run"), *WORDS]) == 0
    assert cli.main(["export", str(folder / "run"), str(folder / "model.safetensors")]) == 0
    return folder


def test_a_model_learns_what_only_the_frame_tells(framed):
    """Without frames the rows of one say nothing of the direction of the other; the exported model takes them from
    the file and computes what the training's networks do."""
    translator = Translator.load(framed / "model.safetensors")
    assert (translator.bundle.frame, translator.bundle.harmonics) == ("image", 2)
    assert translator.self_check() < 1e-5 and len(translator.bundle.sample.frames["toy-turned"]) == 32
    x, frames = toy(200, 99)
    made = translator.translate(x["toy-turned"], "toy-turned", "toy-upright", frames=frames)
    shuffled = translator.translate(x["toy-turned"], "toy-turned", "toy-upright", frames=frames[::-1])
    right = (made * x["toy-upright"]).sum(axis=1).mean()
    assert right > 0.7 and (shuffled * x["toy-upright"]).sum(axis=1).mean() < right / 2


def test_a_model_that_has_frames_is_gone_on_from(framed, tmp_path):
    """The first epoch starts where the last one ended: norms are set from rows with their frames."""
    options = OPTIONS | {"epochs": 1, "optimizer.learning-rate": 1e-6, "init": framed / "model.safetensors"}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    data = framed / "records"
    assert cli.main(["train", "--data", str(data), "--workdir", str(tmp_path / "run"), *words]) == 0

    def error(run):
        history = json.loads((run / "validation.json").read_text())
        return history[-1]["translation_error"]["toy-turned->toy-upright"]

    assert error(tmp_path / "run") == pytest.approx(error(framed / "run"), rel=0.15)


def test_records_without_frames_are_refused_before_the_first_step(tmp_path, capsys):
    data = make_records(tmp_path, framed=False)
    assert cli.main(["train", "--data", str(data), "--workdir", str(tmp_path / "run"), *WORDS]) == 2
    assert f"{data}: the model takes the keypoints' frames, which these rows lack" in capsys.readouterr().err


def test_descriptors_that_all_see_the_photo_as_it_lies_need_no_frames(tmp_path):
    """As at the keypoints of a network's own detector, which have none."""
    data = make_records(tmp_path, framed=False)
    words = [*WORDS, "--descriptors", "toy-upright"]
    assert cli.main(["train", "--data", str(data), "--workdir", str(tmp_path / "run"), *words]) == 0
    assert cli.main(["export", str(tmp_path / "run"), str(tmp_path / "model.npz"), "--format", "npz"]) == 0
    assert Translator.load(tmp_path / "model.npz").self_check() < 1e-5


def test_a_space_of_frame_keypoint_takes_no_upright_descriptor(framed, tmp_path):
    config = dataclasses.replace(toy_config(), model=ModelConfig(frame="keypoint"))
    with pytest.raises(ValueError, match="'toy-upright' sees photos as they lie"):
        train(config, framed / "records", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_descriptor_is_added_to_a_space_of_its_frame_alone(framed, tmp_path):
    with pytest.raises(ValueError, match="--init: the model's joint space is of frame 'image' with 2 harmonics"):
        train(
            replaced(toy_config(), {"descriptors": ("toy-turned",), "model.frame": "keypoint"}),
            framed / "records", tmp_path / "run", init=framed / "model.safetensors",
        )  # fmt: skip


def test_rows_of_keypoints_without_frames_are_added_to_a_space_of_some_with_them(framed, tmp_path):
    """As of a detector that gives none: nobody translates them to rows that turn with their keypoints."""
    new = DescriptorSpec("toy-new", 6, hidden=(24,), frame="image")
    for name, spec in (("toy-upright", SPECS["toy-upright"]), ("toy-new", new)):
        with StoreWriter(tmp_path / f"{name}.h5", spec) as store:
            for photo in range(8):
                rows = np.roll(toy(70, photo)[0]["toy-upright"], 2 * (name == "toy-new"), axis=1)
                store.write(
                    f"{photo}.png", ImageFeatures(np.zeros((70, 2), np.float32), rows, np.ones(70, bool), (64, 64))
                )
    paths = (tmp_path / "toy-upright.h5", tmp_path / "toy-new.h5")
    data = records(tmp_path / "records", paired=paths, format="npy", validation_share=0.25).path
    start = ["--init", str(framed / "model.safetensors"), "--freeze", "all", "--add", "toy-new"]
    words = [*WORDS[2:], "--epochs", "1", *start]
    assert cli.main(["train", "--data", str(data), "--workdir", str(tmp_path / "run"), *words]) == 0
    assert cli.main(["export", str(tmp_path / "run"), str(tmp_path / "model.safetensors")]) == 0
    model = Translator.load(tmp_path / "model.safetensors")
    assert model.self_check() < 1e-5 and model.names == ["toy-new", "toy-turned", "toy-upright"]
    assert model.space_id == Translator.load(framed / "model.safetensors").space_id


def test_padding_changes_nothing(framed):
    """Rows of padding are zero, and so are their frames, of which no logarithm may be taken."""
    networks = mlp.build_networks(SPECS, ModelConfig(embedding_width=8, harmonics=2))
    variables = mlp.init_variables(networks, jax.random.key(0))
    x, frames = toy(9, 3)
    ones = dict.fromkeys(SPECS, 1.0)
    triplet = objective.Triplet(0.7, 0.4, "squared", False, None)

    def sums(padding):
        filled = {n: np.pad(rows, ((0, padding), (0, 0))) for n, rows in x.items()}
        filled[KEYPOINT] = np.pad(np.pad(frames, ((0, 0), (2, 0))), ((0, padding), (0, 0)))
        filled["mask"] = np.arange(9 + padding) < 9
        rows = step.read_inputs(filled, SPECS, ones)
        found, _ = objective.encoder_decoder_loss(
            networks, variables["params"], variables["batch_stats"], rows, filled["mask"], jax.random.key(1),
            "quadratic", triplet,
        )  # fmt: skip
        return {name: (float(s.total), float(s.count)) for name, s in found.items()}

    plain = sums(0)
    assert plain["translation"][0] > 0
    for name, values in sums(4).items():
        np.testing.assert_allclose(values, plain[name], rtol=1e-5)
