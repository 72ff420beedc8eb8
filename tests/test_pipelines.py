"""The pipelines that make what ships, at a size of seconds."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import safetensors

cv2 = pytest.importorskip("cv2", reason="needs the features extra")

from pipelines import mixed  # noqa: E402
from pipelines import pretrained as pipeline  # noqa: E402
from tests.support.called import called  # noqa: E402
from xdesc_jax import cli, console, descriptors, pretrained  # noqa: E402
from xdesc_jax.config import ContextConfig, LossConfig, ModelConfig, TrainConfig  # noqa: E402
from xdesc_jax.data.scenes import scenes  # noqa: E402
from xdesc_jax.descriptors import DescriptorSpec  # noqa: E402
from xdesc_jax.translation.translator import Translator  # noqa: E402

MODEL = ModelConfig(embedding_width=16, hidden_handcrafted=(24,))
BASE = TrainConfig(descriptors=("brief", "opencv-sift"), epochs=1, batch_size=32, resident=True, model=MODEL)
ADDED = TrainConfig(epochs=1, batch_size=32, resident=True, model=MODEL, loss=LossConfig(beta=1.0))


def blobs(seed):
    rng = np.random.default_rng(seed)
    smooth = cv2.GaussianBlur(rng.normal(size=(180, 240)), (0, 0), 2.5)
    return cv2.normalize(smooth, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)


def test_a_translator_comes_out_calibrated_in_half_precision_and_with_a_card(tmp_path, monkeypatch):
    photos = tmp_path / "photos"
    photos.mkdir()
    for i in range(4):
        cv2.imwrite(str(photos / f"{i}.png"), blobs(i))
    known = scenes(tmp_path / "scenes", photos=photos, views=1, limit=1, validation_share=None)
    monkeypatch.setattr(pipeline, "load_config", {"pretrained": BASE, "pretrained_added": ADDED}.__getitem__)
    monkeypatch.setattr(pipeline, "ADDED", {"opencv": ("orb",)})
    inputs = {"photos": photos, "scenes": known, "calibration": known, "out": tmp_path / "out", "processes": 1}
    (model,) = pipeline.pretrained(**inputs)
    before = model.read_bytes()
    assert pipeline.pretrained(**inputs) == [model] and model.read_bytes() == before  # finished steps are skipped
    translator, base = Translator.load(model), Translator.load(tmp_path / "out" / "base.safetensors")
    assert translator.names == ["brief", "opencv-sift", "orb"]
    assert translator.space_id == base.space_id
    assert model.with_name("opencv.safetensors.ratios.json").exists()
    with safetensors.safe_open(model, "np") as file:
        assert file.get_tensor("encoder/brief/0/kernel").dtype == np.float16
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "shipped")
    (tmp_path / "shipped").mkdir()
    for file in (model, model.with_suffix(".json")):
        (tmp_path / "shipped" / file.name).write_bytes(file.read_bytes())
    card = pretrained.card("opencv")
    assert card["rows"] > 0 and card["steps"] == sum(card["steps_by_training"].values())
    figures = card["figures"]["homography"]
    assert set(figures["native"]) == {"brief", "opencv-sift", "orb"} and "brief|orb" in figures["joint"]
    assert {"brief->opencv-sift", "orb->brief"} <= set(figures["translation"])


def test_what_people_added_to_a_card_stays_with_the_same_model_alone(tmp_path):
    model, about = tmp_path / "m.safetensors", {"space_id": "a", "config_hash": "b", "steps": 3, "rows": 5}
    written = model.with_suffix(".json")
    written.write_text(json.dumps({**about, "rows": 4, "limits": "by hand"}))
    pipeline.write_card(model, about)
    assert json.loads(written.read_text()) == {**about, "limits": "by hand"}
    pipeline.write_card(model, about | {"steps": 4})
    assert json.loads(written.read_text()) == about | {"steps": 4}


def test_mixed_comes_out_with_context_calibrated_and_with_a_card(tmp_path, monkeypatch):
    """Views of photos, rows of two networks that see them upright, at the SIFT keypoints and at each network's own, a
    training with context, a second one, and a further descriptor that is trained with them and then added."""
    monkeypatch.setattr(descriptors, "_REGISTRY", dict(descriptors._REGISTRY))
    for name in ("fake", "other"):
        upright = DescriptorSpec(name, 16, frame="image", hidden=(24,))
        descriptors.register(upright, "tests.support.fake_extractor:Looks", source="network")
    photos, weights = tmp_path / "photos", tmp_path / "fake.npz"
    photos.mkdir()
    np.savez(weights, factor=0.37)
    for i in range(4):
        cv2.imwrite(str(photos / f"{i}.png"), np.maximum(blobs(i), 9))
    known = scenes(tmp_path / "scenes", photos=photos, views=1, limit=1, validation_share=None)
    looking = dataclasses.replace(MODEL, context=ContextConfig("keypoint", 2, 1, 8, 1))
    base = dataclasses.replace(BASE, descriptors=("colmap-sift", "fake", "other"), model=looking)
    monkeypatch.setattr(mixed, "load_config", {"mixed": base}.__getitem__)
    monkeypatch.setattr(mixed, "ADDED", ("brief",))
    monkeypatch.setattr(mixed, "FURTHER", (("colmap-sift",), ("brief",)))
    monkeypatch.setattr(mixed, "SOURCES", ("colmap-sift", "brief"))
    monkeypatch.setattr(mixed, "DECODERS", ("fake", "other"))
    inputs = {"photos": photos, "scenes": known, "calibration": known, "out": tmp_path / "out", "processes": 1}
    inputs |= {"weights": (f"fake={weights}", f"other={weights}"), "side": 200}
    model = mixed.mixed(**inputs)
    before = model.read_bytes()
    assert mixed.mixed(**inputs) == model and model.read_bytes() == before  # finished steps are skipped
    translator = Translator.load(model)
    held = {set.name: sorted(file.stem for file in set.glob("*.h5")) for set in (tmp_path / "out/features").iterdir()}
    assert held == {
        "colmap": ["brief", "colmap-sift", "fake", "other"],
        "fake": ["fake", "other"],
        "other": ["fake", "other"],
    }
    assert translator.names == ["brief", "colmap-sift", "fake", "other"]
    assert sorted(translator.bundle.contexts) == ["brief", "colmap-sift"]
    assert translator.space_id == Translator.load(tmp_path / "out" / "second.safetensors").space_id
    assert len(Translator.load(tmp_path / "out" / "together.safetensors").bundle.contexts) == 4
    assert translator.bundle.ratios and translator.self_check() < 1e-5
    card = json.loads(model.with_suffix(".json").read_text())
    trainings = ["first", "second", "together", "added", "further-1", "further-2", "decoders"]
    assert list(card["steps_by_training"]) == trainings
    assert card["keypoints"] == "colmap"
    assert {"colmap-sift->fake", "fake->colmap-sift"} <= set(card["figures"]["homography"]["translation"])


def test_the_finish_matches_in_the_targets_spaces_and_keeps_the_networks():
    config = pipeline.finish(BASE)
    assert config.loss.beta > 0 == BASE.loss.beta
    assert config.model == BASE.model and config.descriptors == BASE.descriptors


def test_the_pipelines_are_listed_and_one_that_is_not_there_is_an_error(capsys):
    assert cli.main(["pipeline"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "demo" in shown and shown[shown.index("demo") + 1].startswith("    The main job from end to end")
    assert "map_scene" not in shown  # a part of others, not to be run
    assert cli.main(["pipeline", "nope"]) == 2
    assert "no pipeline is called 'nope'" in capsys.readouterr().err


def test_a_pipeline_gets_its_words_and_has_a_help_of_its_own(monkeypatch, tmp_path, capsys):
    from pipelines import demo

    asked = []

    def record(*, out: Path) -> None:
        asked.append(out)

    monkeypatch.setattr(demo, "main", record)
    assert cli.main(["pipeline", "demo", "--out", str(tmp_path / "here")]) == 0
    assert asked == [tmp_path / "here"]
    monkeypatch.undo()
    assert cli.main(["pipeline", "demo", "--help"]) == 0
    assert "Usage: xdesc pipeline demo" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [["--quiet", "pipeline", "demo"], ["pipeline", "-q", "demo"], ["--plugin", "own.py", "pipeline", "demo", "-q"]],
)
def test_a_pipeline_takes_the_global_options_where_stages_do(words, monkeypatch):
    seen = []
    monkeypatch.setattr(console, "set_verbosity", lambda quiet, verbose: seen.append(quiet))
    assert called(monkeypatch, [*words, "--out", "here"]) == {"out": Path("here")} and seen[-1]


def test_a_slip_in_the_words_of_a_pipeline_names_it(capsys):
    assert cli.main(["-q", "pipeline", "demo", "--outt", "here"]) == 2
    assert "Did you mean --out? See `xdesc pipeline demo --help`." in capsys.readouterr().err


@pytest.mark.parametrize("words", [["plan"], ["--dry-run"]])
def test_a_dry_run_of_a_pipeline_is_refused_and_nothing_is_written(words, tmp_path, capsys):
    assert cli.main([*words, "pipeline", "demo", "--out", str(tmp_path / "here")]) == 2
    assert "`xdesc pipeline demo` has no dry run" in capsys.readouterr().err and not list(tmp_path.iterdir())
