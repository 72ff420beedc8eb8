"""Matching across detectors, with keypoints and rows whose right answer is known."""

import dataclasses
import json

import h5py
import numpy as np
import pytest

from tests.evaluate.conftest import WIDTH
from tests.support import small_translators
from xdesc_jax.cli import main
from xdesc_jax.descriptors import stored, unit_rows
from xdesc_jax.evaluate.across import Across, Sides, comparisons, correct_mutual, evaluate_across
from xdesc_jax.evaluate.homography import Comparison
from xdesc_jax.evaluate.scenes import PhotoPair, Scene, by_homography, find_scenes
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.translation.translator import Translator

SEEN_BY_B = 17  # of the 29 points that detector a finds; 5 more are of b alone


@pytest.fixture
def other(tmp_path, feature_folder):
    """`own-b` at keypoints of its own: some of those of `own-a` in another order, 1 px away, and five more."""
    rng = np.random.default_rng(4)
    more = np.stack([np.full(5, 150.0), 20 + 20.0 * np.arange(5)], axis=1)
    of_more = unit_rows(rng.normal(size=(5, WIDTH)))
    order = rng.permutation(SEEN_BY_B + 5)
    path = tmp_path / "other" / "own-b.h5"
    with FeatureStore(feature_folder / "own-b.h5") as given, StoreWriter(path, given.spec) as writer:
        for name, photo in given:
            shift = 8.0 * (int(name[-5]) - 1)
            xy = np.concatenate([photo.keypoints[:SEEN_BY_B] + [1, 0], more - [shift, 0]])[order]
            rows = np.concatenate([photo.descriptors[:SEEN_BY_B], of_more])[order]
            writer.write(name, ImageFeatures(xy.astype(np.float32), rows, np.ones(len(xy), bool), photo.image_size))
    return path


def test_what_repeats_and_what_is_matched_are_told_beside_what_both_give_natively(
    scene_folder, feature_folder, other, model
):
    translator = Translator.load(model)
    found = evaluate_across(
        find_scenes(scene_folder), {"own-a": feature_folder / "own-a.h5"}, {"own-b": other}, translator
    )
    # All keypoints lie in both photos, so the smaller number is that of b.
    repeated = {each.sides: each.mean for each in found.repeated}
    assert repeated[Sides("own-a", "own-b")].common == SEEN_BY_B
    assert repeated[Sides("own-a", "own-b")].share == pytest.approx(SEEN_BY_B / (SEEN_BY_B + 5))
    assert repeated[Sides("own-a", "own-a", "query")].share == repeated[Sides("own-b", "own-b", "database")].share == 1
    assert [r.comparison for r in found.results] == [
        Comparison("translated", "own-a", "own-b"),
        Comparison("joint", "own-a", "own-b"),
        Comparison("naive", "own-a", "own-b"),
    ]
    translated, joint, naive = found.results
    assert correct_mutual(translated) == correct_mutual(joint) == pytest.approx(SEEN_BY_B)
    assert correct_mutual(naive) < SEEN_BY_B / 2
    natively = found.natively(translated.comparison)
    assert [correct_mutual(result) for result in natively] == pytest.approx([29, SEEN_BY_B + 5])
    assert Across.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_one_descriptor_at_keypoints_of_two_detectors_is_compared_natively(scene_folder, feature_folder, other):
    queries = {"own-b": feature_folder / "own-b.h5"}
    found = evaluate_across(find_scenes(scene_folder), queries, {"own-b": other})
    (across,) = found.results
    assert across.comparison == Comparison("native", "own-b", "own-b")
    assert correct_mutual(across) == pytest.approx(SEEN_BY_B)


def test_without_frames_there_is_no_translation_to_rows_that_turn(scene_folder, tmp_path):
    """From keypoints without angles there is the joint space alone."""
    from tests.support.framed_translators import SPECS, framed_translator, frames, rows

    stores = {}
    for name in ("turned", "upright"):
        stores[name] = tmp_path / f"{name}.h5"
        with StoreWriter(stores[name], SPECS[name]) as writer:
            for scene in ("door", "wall"):
                for k in (1, 2, 3):
                    seen = {} if name == "upright" else dict(zip(("scales", "oris"), frames(9).T, strict=True))
                    xy = np.random.default_rng(k).uniform(40, 120, (9, 2)).astype(np.float32)
                    x = stored(rows(9)[name], SPECS[name])
                    writer.write(f"{scene}/{k}.png", ImageFeatures(xy, x, np.ones(9, bool), (190, 150), **seen))
    translator, scenes = Translator(framed_translator()), find_scenes(scene_folder)
    turned, upright = ({name: stores[name]} for name in stores)
    modes = [[r.comparison.mode for r in evaluate_across(scenes, a, b, translator).results] for a, b in
             ((turned, upright), (upright, turned))]  # fmt: skip
    assert modes == [["translated", "joint"], ["joint"]]


@pytest.mark.parametrize(
    ("kind", "modes"), [("whole", ["translated", "joint"]), ("encoders", ["joint"]), ("pairs", ["translated"])]
)
def test_what_a_model_lacks_is_not_compared(kind, modes):
    """Models of encoders alone translate nothing, those of pairs have no joint space, with frames or without."""
    whole = small_translators.encoder_decoder(sample=False)
    encoders = {n: x for n, x in whole.networks.items() if n.startswith("encoder/")}
    model = {
        "whole": whole, "encoders": dataclasses.replace(whole, networks=encoders, ratios={}),
        "pairs": small_translators.pairs(sample=False),
    }[kind]  # fmt: skip
    grid, plain = (small_translators.SPECS[name] for name in ("grid", "plain"))
    for framed in (True, False):
        assert [c.mode for c in comparisons(grid, plain, Translator(model), framed, framed)] == modes


def run(scene_folder, out, *words):
    return main([str(word) for word in ["evaluate", "homography", scene_folder, "--out", out, *words]])


def test_the_stage_writes_figures_tables_and_a_page_and_reads_them_back(
    scene_folder, feature_folder, other, model, tmp_path, capsys
):
    words = ["--features", feature_folder / "own-a.h5", "--other", other, "--model", model]
    assert run(scene_folder, tmp_path / "out", *words) == 0
    value = json.loads((tmp_path / "out" / "homography.json").read_text())
    assert [each["files"] for each in value["repeatability"]] == ["across", "query", "database"]
    assert value["repeatability"][0]["scenes"]["door"]["door/3.png"]["common"] == SEEN_BY_B
    page = (tmp_path / "out" / "report.html").read_text()
    assert "17.0 correct matches a pair" in page and "77 % of their keypoints are there in both" in page
    printed = capsys.readouterr().out
    assert "What the detectors allow" in printed and "0.773" in printed and "0.586" in printed  # 17 of 22, 17 of 29
    assert run(scene_folder, tmp_path / "out", *words) == 0
    again = capsys.readouterr().out
    assert "up to date" in again or "0.773" in again
    assert run(scene_folder, tmp_path / "out", *words[:4]) == 2  # without the model
    told = capsys.readouterr().err
    assert "another configuration (model: " in told and "model.safetensors -> None; sha256 of: other content)" in told


def test_what_lacks_is_told_by_its_file(scene_folder, feature_folder, other, tmp_path, capsys):
    assert run(scene_folder, tmp_path / "out", "--other", other) == 2
    assert "--features must name the files of the query photos" in " ".join(capsys.readouterr().err.split())
    with h5py.File(other, "a") as file:
        del file["wall/2.png"]["image_size"]
    assert run(scene_folder, tmp_path / "out", "--features", feature_folder / "own-a.h5", "--other", other) == 2
    assert f"{other}: does not say the size of 'wall/2.png'" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out" / "homography.json").exists()


def test_pairs_without_a_way_back_are_refused(feature_folder, other):
    shift = np.array([[1, 0, -8], [0, 1, 0], [0, 0, 1.0]])
    scene = Scene("door", (PhotoPair("door/1.png", "door/2.png", by_homography(shift)),))
    with pytest.raises(ValueError, match=r"door/1.png and door/2.png: nothing says where keypoints of the second"):
        evaluate_across([scene], {"own-a": feature_folder / "own-a.h5"}, {"own-b": other})
