"""Training encoders that look at the photo's other rows: neighbours come along in batches, and stay with the model."""

from __future__ import annotations

import json
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from tests.support.aligned_stores import write_aligned
from xdesc_jax import cli
from xdesc_jax.config import ContextConfig, TrainConfig
from xdesc_jax.data.records import records
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.train.randomness import row_keys
from xdesc_jax.train.translators import step
from xdesc_jax.train.translators.frozen import like
from xdesc_jax.translation.bundle import load
from xdesc_jax.translation.translator import Translator

NEW = "toy-new"
SPECS = {
    "toy-patch": DescriptorSpec("toy-patch", 6, normalized=False, hidden=(24,)),
    "toy-photo": DescriptorSpec("toy-photo", 6, hidden=(24,), frame="image"),
    NEW: DescriptorSpec(NEW, 4, normalized=False, hidden=(24,)),
}
MEMBERS = ("toy-patch", "toy-photo")


def toy(photo, n=70):
    """Rows of a photo: what the one sees of a keypoint is its own; the other sees what its nearest neighbour holds."""
    rng = np.random.default_rng(photo)
    xy, rows = rng.uniform(0, 64, (n, 2)), rng.normal(size=(n, 6)).astype(np.float32)
    apart = np.linalg.norm(xy[:, None] - xy[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    shapes = {"scales": np.exp(rng.uniform(0, 2, n)), "oris": rng.uniform(-3, 3, n)}
    seen = {"toy-patch": 3 * rows, "toy-photo": unit_rows(rows[apart.argmin(axis=1)]), NEW: rows[:, :4]}
    return seen, xy, shapes


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return write_aligned(tmp_path_factory.mktemp("around"), SPECS, map(toy, range(48)))


@pytest.fixture(scope="module")
def data(paths, tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    return records(folder / "records", paired=paths, format="npy", validation_share=0.25, rows_per_shard=64).path


# Many rows in few epochs: a validation and a checkpoint take longer than the steps between them.
OPTIONS = {
    "epochs": 6, "batch-size": 64, "validation-rows": 128, "model.embedding-width": 8, "model.harmonics": 1,
    "optimizer.learning-rate": 0.01, "model.context.of": "keypoint", "model.context.nearest": 3,
    "model.context.larger": 1, "model.context.width": 24, "model.context.heads": 2,
    "model.context.least-share": 1,
}  # fmt: skip


def words(**others):
    told = OPTIONS | {name.replace("__", "."): value for name, value in others.items()}
    return [
        "--resident",
        "--descriptors",
        *MEMBERS,
        *(word for name, value in told.items() for word in (f"--{name}", str(value))),
    ]


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert cli.main(["train", "--data", str(data), "--workdir", str(folder / "run"), *words()]) == 0
    assert cli.main(["export", str(folder / "run"), str(folder / "model.safetensors")]) == 0
    return folder


def error(run):
    return json.loads((run / "validation.json").read_text())[-1]["translation_error"]["toy-patch->toy-photo"]


def test_an_encoder_learns_what_only_the_neighbours_tell(data, trained, tmp_path):
    """The model file computes what the training's networks do, from the rows and positions of a whole photo."""
    translator = Translator.load(trained / "model.safetensors")
    assert translator.self_check() < 1e-5 and len(translator.bundle.sample.positions["toy-patch"]) == 32
    rows, xy, shapes = toy(99)
    frames = np.stack([shapes["scales"], shapes["oris"]], axis=1)
    made = translator.translate(rows["toy-patch"], "toy-patch", "toy-photo", frames=frames, positions=xy)
    right = (made * rows["toy-photo"]).sum(axis=1).mean()
    elsewhere = translator.translate(rows["toy-patch"], "toy-patch", "toy-photo", frames=frames, positions=xy[::-1])
    assert right > 0.3 and abs((elsewhere * rows["toy-photo"]).sum(axis=1).mean()) < 0.1
    alone = [w for w in words() if w not in ("--model.context.of", "keypoint")]
    assert cli.main(["train", "--data", str(data), "--workdir", str(tmp_path / "alone"), *alone]) == 0
    assert error(trained / "run") < 0.85 * error(tmp_path / "alone")


def test_records_of_whole_photos_are_read_a_window_at_a_time(paths, tmp_path):
    records(tmp_path / "whole", paired=paths, format="npy", validation_share=0.25, rows_per_shard=128, deal_by="photo")
    streamed = [word for word in words() if word != "--resident"]
    assert cli.main(["train", "--data", str(tmp_path / "whole"), "--workdir", str(tmp_path / "run"), *streamed]) == 0
    assert error(tmp_path / "run") < 1.25  # 1.42 where nothing is learnt but that rows have unit length


def test_a_model_that_has_context_is_gone_on_from_and_added_to(data, trained, tmp_path):
    """Both take what encoders look at from the model; its frozen encoders compute what they did, neighbours and all."""
    told = {name: value for name, value in OPTIONS.items() if not name.startswith("model.context")}
    told |= {"epochs": 1, "optimizer.learning-rate": 1e-6, "init": trained / "model.safetensors"}
    run, own = tmp_path / "run", [word for name, value in told.items() for word in (f"--{name}", str(value))]
    train = ["train", "--data", str(data), "--resident", "--descriptors", *MEMBERS, *own]
    assert cli.main([*train, "--workdir", str(run)]) == 0
    assert error(run) == pytest.approx(error(trained / "run"), rel=0.15)
    more, file = tmp_path / "more", tmp_path / "more.safetensors"
    assert cli.main([*train, "--workdir", str(more), "--freeze", "all", "--add", NEW]) == 0
    assert cli.main(["export", str(more), str(file)]) == 0
    before, after = load(trained / "model.safetensors"), load(file)
    assert after.space_id == before.space_id and sorted(after.contexts) == [NEW, "toy-patch"]
    kept = after.weights()
    for name, layers in before.weights().items():
        for (kernel, bias), (held, held_bias) in zip(kept[name], layers, strict=True):
            np.testing.assert_array_equal(kernel, held)
            np.testing.assert_array_equal(bias, held_bias)
    assert Translator(after).self_check() < 1e-5


def test_encoders_that_look_as_the_models_do_are_told(caplog):
    model = SimpleNamespace(frame="keypoint", harmonics=2, context=ContextConfig("keypoint", 3, 2))
    with caplog.at_level("INFO", "xdesc_jax"):
        config = like(TrainConfig(), model, {"toy": DescriptorSpec("toy", 6)})
    assert config.model.context == model.context
    assert "encoders look at 3 nearest and 2 larger neighbours, as the model's do" in caplog.text


def test_a_descriptor_that_sees_photos_as_they_lie_learns_to_look_around(data, trained, tmp_path):
    """Begun from a model in which it does not: at first the same, then its encoder hears of its nearest neighbours."""
    init, every = ["--init", str(trained / "model.safetensors")], {"model__context__of": "every", "epochs": 1}
    for run, told in (("same", words(**every, **{"optimizer__learning-rate": 1e-7})), ("more", words(**every))):
        train = ["train", "--data", str(data), "--workdir", str(tmp_path / run), *told, *init]
        assert cli.main(train) == 0
    assert error(tmp_path / "same") == pytest.approx(error(trained / "run"), rel=0.15)
    assert cli.main(["export", str(tmp_path / "more"), str(tmp_path / "more.safetensors")]) == 0
    model, before = load(tmp_path / "more.safetensors"), load(trained / "model.safetensors")
    assert sorted(model.contexts) == sorted(MEMBERS) and list(before.contexts) == ["toy-patch"]
    translator = Translator(model)
    assert translator.self_check() < 1e-5 and translator.takes_context("toy-photo", "embedding")
    rows, xy, _ = toy(99)
    made = translator.embed(rows["toy-photo"], "toy-photo", positions=xy)
    elsewhere = translator.embed(rows["toy-photo"], "toy-photo", positions=xy[::-1])
    assert np.abs(made - elsewhere).max() > 0.01
    # What it learnt does not hang on the sigmas of the training's keypoints: none come with its rows.
    frames = np.tile([40.0, 1.0], (len(xy), 1))
    np.testing.assert_array_equal(translator.embed(rows["toy-photo"], "toy-photo", positions=xy, frames=frames), made)


def test_context_of_descriptors_without_frames_alone_is_learnt(tmp_path):
    """In records whose keypoints have positions and nothing else."""
    other = DescriptorSpec("toy-other", 6, hidden=(24,), frame="image")
    found = []
    for photo in range(10):
        rows, xy, _ = toy(photo)
        own = unit_rows(rows["toy-patch"])
        found.append(({"toy-photo": own, "toy-other": rows["toy-photo"]}, xy, {}))
    paths = write_aligned(tmp_path, {"toy-photo": SPECS["toy-photo"], "toy-other": other}, found)
    data = records(tmp_path / "records", paired=paths, format="npy", validation_share=0.2, rows_per_shard=64).path
    told = words(**{"model__context__of": "every", "epochs": 10})
    told[told.index(MEMBERS[0])] = "toy-other"
    assert cli.main(["train", "--data", str(data), "--workdir", str(tmp_path / "run"), *told]) == 0
    first, *_, last = json.loads((tmp_path / "run" / "validation.json").read_text())
    pair = "toy-photo->toy-other"  # the row of its nearest neighbour
    assert last["translation_error"][pair] < 0.95 * first["translation_error"][pair]
    assert cli.main(["export", str(tmp_path / "run"), str(tmp_path / "model.safetensors")]) == 0
    model = load(tmp_path / "model.safetensors")
    assert Translator(model).self_check() < 1e-5 and model.log2_sigma is None and not model.sample.frames


def test_in_a_space_of_turned_patches_what_neighbours_tell_turns_with_them(tmp_path):
    """A row that tells how the nearest keypoint is turned to its own, also where the photo is turned."""

    def of(photo, turn=0.0, n=70):
        rng = np.random.default_rng(photo)
        xy, angles = rng.uniform(0, 64, (n, 2)), rng.uniform(-np.pi, np.pi, n)
        apart = np.linalg.norm(xy[:, None] - xy[None], axis=2)
        np.fill_diagonal(apart, np.inf)
        between = angles[apart.argmin(axis=1)] - angles
        rows = rng.normal(size=(n, 4)).astype(np.float32)
        cos, sin = np.cos(turn), np.sin(turn)
        oris = (angles + turn + np.pi) % (2 * np.pi) - np.pi
        seen = {"toy-patch": rows, "toy-turn": np.stack([np.cos(between), np.sin(between)], axis=1).astype(np.float32)}
        return seen, xy @ [[cos, sin], [-sin, cos]], {"scales": np.full(n, 2.0), "oris": oris}

    specs = {
        name: DescriptorSpec(name, d, normalized=False, hidden=(24,)) for name, d in (("toy-patch", 4), ("toy-turn", 2))
    }
    paths = write_aligned(tmp_path, specs, map(of, range(48)))
    records(tmp_path / "records", paired=paths, format="npy", validation_share=0.25, rows_per_shard=64)
    told = OPTIONS | {"model.context.larger": 0, "model.context.nearest": 1, "model.harmonics": 2}
    own = [word for name, value in told.items() for word in (f"--{name}", str(value))]
    run, file = tmp_path / "run", tmp_path / "m.safetensors"
    data = ["--data", str(tmp_path / "records"), "--workdir", str(run)]
    assert cli.main(["train", "--resident", *data, *own]) == 0 and cli.main(["export", str(run), str(file)]) == 0
    translator = Translator.load(file)
    assert translator.self_check() < 1e-5 and translator.bundle.frame == "keypoint"
    assert sorted(translator.bundle.contexts) == sorted(specs)
    for turn in (0.0, 2.0):
        seen, xy, shapes = of(99, turn)
        frames = np.stack([shapes["scales"], shapes["oris"]], axis=1)
        made = translator.translate(seen["toy-patch"], "toy-patch", "toy-turn", frames=frames, positions=xy)
        right = (made * seen["toy-turn"]).sum(axis=1) / np.linalg.norm(made, axis=1)
        assert right.mean() > 0.5, turn  # 0 where neighbours tell nothing


def test_context_is_refused_where_it_cannot_be_had(data, tmp_path, capsys):
    streamed = [word for word in words() if word != "--resident"]
    pairs = words(model__kind="pair")
    for number, (asked, told) in enumerate({
        "the rows of a photo are spread over the shards": streamed,
        "expected 'none' in a model of kind 'pair'": pairs,
    }.items()):  # fmt: skip
        run = tmp_path / str(number)
        assert cli.main(["train", "--data", str(data), "--workdir", str(run), *told]) == 2
        assert asked in capsys.readouterr().err and not run.exists()


def test_a_row_sees_a_share_of_its_neighbours_in_training_and_all_of_them_otherwise():
    keys = row_keys(jax.random.key(3), 4000)
    there = np.random.default_rng(0).random((4000, 20)) < 0.9
    inputs = {"neighbours/mask": there}
    kept = np.asarray(step.thinned(inputs, keys, 0.4)["neighbours/mask"])
    assert not (kept & ~there).any()
    shares = kept.sum(axis=1) / there.sum(axis=1)
    assert shares.mean() == pytest.approx(0.7, abs=0.01) and shares.std() == pytest.approx(
        np.sqrt(0.6**2 / 12 + (0.7 * 0.3 - 0.03) / 18), abs=0.01
    )  # of the share that is drawn, and of as many draws by it
    np.testing.assert_array_equal(step.thinned(inputs, keys, 1.0)["neighbours/mask"], there)


def test_keypoints_without_frames_teach_those_that_need_none(tmp_path):
    """Two sets: keypoints with frames, and positions with two descriptors that see photos as they lie."""
    other = DescriptorSpec("toy-other", 5, hidden=(24,), frame="image")

    def seen(photo):
        rows, xy, shapes = toy(photo)
        return rows | {"toy-other": unit_rows(np.roll(rows["toy-photo"], 2, axis=1)[:, :5])}, xy, shapes

    for label, members, photos in (("framed", MEMBERS, range(9)), ("plain", ("toy-photo", "toy-other"), range(5, 14))):
        (tmp_path / label).mkdir()
        found = [seen(photo) for photo in photos]
        if label == "plain":
            found = [(rows, xy, {}) for rows, xy, _ in found]
        write_aligned(tmp_path / label, {name: (SPECS | {"toy-other": other})[name] for name in members}, found)
    folders = (tmp_path / "framed", tmp_path / "plain")
    data = records(tmp_path / "records", paired=folders, format="npy", validation_share=0.25, rows_per_shard=64).path
    told = words(epochs=12)
    told.insert(told.index("toy-photo") + 1, "toy-other")
    assert cli.main(["train", "--data", str(data), "--workdir", str(tmp_path / "run"), *told]) == 0
    first, *_, last = json.loads((tmp_path / "run" / "validation.json").read_text())
    for pair in ("toy-photo->toy-other", "toy-patch->toy-photo"):
        assert last["translation_error"][pair] < 0.9 * first["translation_error"][pair], pair
    assert last["rank1"]["toy-photo->toy-other"] > 0.8
    assert cli.main(["export", str(tmp_path / "run"), str(tmp_path / "model.safetensors")]) == 0
    model = load(tmp_path / "model.safetensors")
    assert Translator(model).self_check() < 1e-5
    assert {len(rows) for rows in model.sample.inputs.values()} == {min(64, *map(len, model.sample.inputs.values()))}
    assert all(rows.any(axis=1).all() for rows in model.sample.inputs.values())


def test_of_a_model_that_has_context_the_others_are_gone_on_from_and_taught(data, trained, tmp_path):
    """Those that do not look at neighbours, without any that could."""
    told = {name: value for name, value in OPTIONS.items() if not name.startswith("model.context")}
    own = [word for name, value in (told | {"epochs": 1}).items() for word in (f"--{name}", str(value))]
    train = ["train", "--data", str(data), "--descriptors", "toy-photo", *own]
    for option in ("--init", "--distill"):
        run = tmp_path / option.strip("-")
        assert cli.main([*train, "--workdir", str(run), option, str(trained / "model.safetensors")]) == 0
        assert cli.main(["export", str(run), str(tmp_path / f"{run.name}.safetensors")]) == 0
        small = load(tmp_path / f"{run.name}.safetensors")
        assert not small.contexts and Translator(small).self_check() < 1e-5
