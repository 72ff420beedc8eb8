"""The stage `xdesc calibrate`, on rankings whose ratio is known and on scenes with an exact translator."""

import json
import shutil

import numpy as np
import pytest

from tests.support.in_use import check_refused_while_in_use
from tests.support.stopped import Calls, Stopped
from xdesc_jax import cli
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.evaluate import calibrate as calibrate_module
from xdesc_jax.evaluate import homography
from xdesc_jax.evaluate.calibrate import Ranked, best, calibrate, choose
from xdesc_jax.evaluate.homography import Comparison, Searched
from xdesc_jax.evaluate.judged import Judged
from xdesc_jax.evaluate.measures import GroundTruth
from xdesc_jax.evaluate.stages.homography import given_stores
from xdesc_jax.features.store import FeatureStore, StoreWriter
from xdesc_jax.files.claim import beside
from xdesc_jax.translation.bundle import Bundle, load

WIDTH = 24


def ranking(ratios, correct, findable=10):
    return Ranked.of(np.array(ratios, np.float32), np.array(correct, bool), findable)


def searched(mode, source, target, ratios, correct):
    """One photo pair with matches at these ratios; what is wrong is matched to the next keypoint, 50 px off."""
    n = len(ratios)
    xy = np.stack([50.0 * np.arange(n), np.zeros(n)], axis=1)
    columns = np.where(correct, np.arange(n), (np.arange(n) + 1) % n)
    mutual = np.stack([np.arange(n), columns], axis=1)
    values = np.asarray(ratios, np.float32)
    found = Searched(
        Comparison(mode, source, target), "door", "2.png", GroundTruth.of(xy, xy, lambda x: x), columns, values,
        mutual, values,
    )  # fmt: skip
    return Judged.of(found)


def test_figures_at_a_ratio_by_hand():
    """At 0.8: three matches, two right, of ten that could be found; equal ratios pass together."""
    ranked = ranking([0.95, 0.8, 0.5, 0.8], [True, False, True, True])
    at = ranked.at(0.8)
    assert (at.matches, at.correct, at.precision, at.recall) == (3, 2, pytest.approx(2 / 3), 0.2)
    assert at.f1 == pytest.approx(2 * (2 / 3) * 0.2 / (2 / 3 + 0.2))
    assert (ranked.at(0.4).matches, ranked.at(0.4).precision, ranked.at(0.4).f1) == (0, 0, 0)


def test_matches_and_recall_never_fall_with_the_ratio():
    rng = np.random.default_rng(0)
    ranked = ranking(rng.random(201), rng.random(201) < 0.4, 150)
    found = [ranked.at(r / 100) for r in range(1, 101)]
    for low, high in zip(found, found[1:], strict=False):
        assert low.matches <= high.matches and low.recall <= high.recall


def test_the_ratio_is_the_largest_at_which_the_precision_is_reached():
    """Three right, one wrong at 0.8 (3/4), one right at 0.85 (4/5), then wrong ones: 4/5 holds up to 0.879."""
    ranked = ranking([0.5, 0.6, 0.7, 0.8, 0.85, 0.88, 0.95], [True, True, True, False, True, False, False])
    for precision, ratio in ((0.8, 0.879), (0.75, 0.879), (0.9, 0.799), (0.66, 0.949), (0.5, 1.0)):
        chosen, rule = best(ranked, precision)
        assert (chosen.ratio, rule) == (ratio, "precision"), precision


def test_a_higher_precision_never_gives_a_larger_ratio():
    rng = np.random.default_rng(1)
    ratios = rng.random(301)
    ranked = ranking(ratios, rng.random(301) > ratios, 250)
    chosen = [best(ranked, p)[0].ratio for p in np.linspace(0.5, 0.9, 7)]
    assert chosen == sorted(chosen, reverse=True) and chosen[0] > chosen[-1]


def test_at_least_half_of_the_correct_matches_of_the_best_f1_are_kept():
    """F1 is best at 0.92, with four of five right. Precision 1 would keep one of them; two are there at 0.7."""
    ranked = ranking([0.5, 0.6, 0.7, 0.8, 0.92, 0.93, 0.97], [True, False, True, True, True, False, False])
    assert max((ranked.at(r / 1000) for r in range(1, 1001)), key=lambda a: a.f1).ratio == 0.92
    chosen, rule = best(ranked, 1.0)
    assert (chosen.ratio, chosen.correct, rule) == (0.7, 2, "recall")
    # Here precision 1 keeps two of three, which is enough.
    chosen, rule = best(ranking([0.5, 0.55, 0.6, 0.8], [True, True, False, True]), 1.0)
    assert (chosen.ratio, rule) == (0.599, "precision")


def test_a_ranking_without_a_correct_match_gets_no_ratio():
    ranked = ranking([0.5, 0.6], [False, False])
    assert best(ranked, 0.5) == (None, "none")
    nothing = ranking([], [])
    assert best(nothing, 0.5) == (None, "none")


def test_every_pair_is_calibrated_to_its_native_target_and_natives_keep_theirs():
    """Native `b` has 2 of 3 right at 0.9; `a` -> `b`, whose ratios are nearer to 1, gets there up to 0.969."""
    results = choose(
        [
            searched("native", "b", "b", [0.3, 0.4, 0.85, 0.95], [True, True, False, True]),
            searched("translated", "a", "b", [0.91, 0.92, 0.96, 0.97], [True, True, False, False]),
            searched("joint", "a", "b", [0.2, 0.5, 0.6, 0.7], [True, False, True, False]),
        ],
        0.9,
    )
    assert {r.key: (r.chosen.ratio, r.rule) for r in results} == {
        "b": (0.9, "native"),
        "a->b": (0.969, "precision"),
        "a|b": (0.699, "precision"),
    }
    assert (results[1].before.matches, results[1].chosen.matches) == (0, 3)
    assert results[1].native.precision == results[1].chosen.precision == pytest.approx(2 / 3)


def test_photo_pairs_are_pooled():
    """Alone the first pair would pass whole (2/2) and the second (0/2) not at all."""
    native = [searched("native", "b", "b", [0.5, 0.6], [True, False])]
    pairs = [
        searched("translated", "a", "b", [0.7, 0.8], [True, True]),
        searched("translated", "a", "b", [0.75, 0.85], [False, False]),
    ]
    (result,) = [r for r in choose(native + pairs, 0.9) if r.comparison.mode == "translated"]
    assert (result.chosen.ratio, result.chosen.correct, result.chosen.matches, result.chosen.recall) == (1, 2, 4, 0.5)


def test_native_rows_without_a_correct_match_are_nothing_to_calibrate_to():
    with pytest.raises(ValueError, match="native rows of 'b' have 1 matches at ratio 0.9 .* none of them correct"):
        choose([searched("native", "b", "b", [0.5, 0.95], [False, True])], 0.9)


def test_an_exact_translator_gets_the_ratios_in_its_file(scene_folder, feature_folder, model, tmp_path):
    out = tmp_path / "out" / "model.safetensors"
    found = calibrate(model, scene_folder, out=out, features=(feature_folder,))
    # All 29 mutual matches are right, so precision 1 is reached without any ratio test.
    pairs = {f"own-{s}{by}own-{t}": 1.0 for s in "ab" for t in "ab" for by in ("->", "|") if s != t or by == "|"}
    assert found == pairs | {"own-a": 0.9, "own-b": 0.9}
    before, after = load(model), load(out)
    assert after.ratios == found and before.ratios == {}
    assert after.space_id == before.space_id
    saved = json.loads((tmp_path / "out/model.safetensors.ratios.json").read_text())["ratios"]
    assert {key: entry["ratio"] for key, entry in saved.items()} == found
    assert saved["own-a->own-b"]["native_target"]["precision"] == 1
    assert saved["own-a->own-b"]["calibrated"]["correct"] == 29 * 4


def test_a_model_is_calibrated_in_place_and_again_to_the_same_ratios(scene_folder, feature_folder, model, capsys):
    words = ["calibrate", str(model), str(scene_folder), "--features", str(feature_folder)]
    assert cli.main(words) == 0
    first = load(model).ratios
    assert first and cli.main(words) == 0
    assert load(model).ratios == first
    assert "own-a->own-b" in capsys.readouterr().out


def test_ratios_of_descriptors_that_are_not_asked_for_stay(scene_folder, feature_folder, model):
    calibrate(model, scene_folder, features=(feature_folder,))
    narrowed = calibrate(model, scene_folder, features=(feature_folder,), descriptors=("own-a",), ratio=0.8)
    assert (narrowed["own-a"], narrowed["own-b"], narrowed["own-a->own-b"]) == (0.8, 0.9, 1)


def test_another_file_is_not_replaced_unasked(scene_folder, feature_folder, model, tmp_path):
    (tmp_path / "other.safetensors").write_text("mine")
    settings = {"out": tmp_path / "other.safetensors", "features": (feature_folder,)}
    with pytest.raises(FileExistsError, match="other.safetensors exists"):
        calibrate(model, scene_folder, **settings)
    calibrate(model, scene_folder, **settings, overwrite=True)
    assert load(tmp_path / "other.safetensors").ratios


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ratio", "1.5"], "ratio of 'native rows' is 1.5, expected a number over 0 and at most 1"),
        (["--descriptors", "own-c"], "no descriptor 'own-c', it has own-a (24 values), own-b (24 values)"),
    ],
)
def test_bad_settings_end_in_one_line_and_leave_the_model(scene_folder, feature_folder, model, capsys, words, message):
    before = model.read_bytes()
    assert cli.main(["calibrate", str(model), str(scene_folder), "--features", str(feature_folder), *words]) == 2
    assert message in capsys.readouterr().err
    assert model.read_bytes() == before


def test_scenes_without_a_match_are_refused(scene_folder, feature_folder, model, tmp_path):
    """All keypoints but those of the queries lie 100 px off, so that each of 29 matches of 4 pairs is wrong."""
    wrong = tmp_path / "wrong"
    for name in ("own-a", "own-b"):
        with FeatureStore(feature_folder / f"{name}.h5") as store, StoreWriter(wrong / f"{name}.h5", store.spec) as out:
            for photo, found in store:
                found.keypoints[:] += 0 if photo.endswith("1.png") else 100
                out.write(photo, found)
    with pytest.raises(ValueError, match="native rows of 'own-a' have 116 matches at ratio 0.9"):
        calibrate(model, scene_folder, features=(wrong,))
    assert load(model).ratios == {}


def test_pair_networks_are_calibrated_for_the_pairs_they_have(scene_folder, feature_folder, tmp_path):
    reverse = (np.eye(WIDTH, dtype=np.float32)[::-1].copy(), np.zeros(WIDTH, np.float32))
    specs = {name: DescriptorSpec(name, WIDTH) for name in ("own-a", "own-b")}
    pair = Bundle("pair", specs, 0, {"pair/own-a/own-b": [reverse]}).save(tmp_path / "pair.safetensors")
    assert calibrate(pair, scene_folder, features=(feature_folder,)) == {"own-a": 0.9, "own-b": 0.9, "own-a->own-b": 1}
    with pytest.raises(ValueError, match="pair.safetensors: translates none of own-a into each other"):
        calibrate(pair, scene_folder, features=(feature_folder,), descriptors=("own-a",))


def test_noisy_translations_are_cut_where_they_are_as_precise_as_native_rows(
    scene_folder, feature_folder, model, tmp_path
):
    """With rows of which some match wrongly."""
    noisy = tmp_path / "noisy"
    rng = np.random.default_rng(4)
    for name in ("own-a", "own-b"):
        with FeatureStore(feature_folder / f"{name}.h5") as store, StoreWriter(noisy / f"{name}.h5", store.spec) as out:
            for photo, found in store:
                found.descriptors[:] = unit_rows(found.descriptors + 0.35 * rng.normal(size=found.descriptors.shape))
                out.write(photo, found)
    calibrate(model, scene_folder, features=(noisy,))
    entries = json.loads((tmp_path / "model.safetensors.ratios.json").read_text())["ratios"]
    reached = [e for e in entries.values() if e["rule"] == "precision"]
    assert reached
    for entry in reached:
        assert entry["calibrated"]["precision"] >= entry["native_target"]["precision"] < 1


def test_a_stopped_calibration_goes_on_and_ends_as_an_undisturbed_one(
    scene_folder, feature_folder, model, tmp_path, monkeypatch, caplog
):
    def words(out, *more):
        return [str(w) for w in ["calibrate", model, scene_folder, "--features", feature_folder, "--out", out, *more]]

    expected, out = tmp_path / "expected" / "m.safetensors", tmp_path / "out" / "m.safetensors"
    assert cli.main(words(expected)) == 0
    searched = Calls(monkeypatch, homography, "_search")
    searched.until = 20  # of four pairs of photos under eight comparisons
    with pytest.raises(Stopped):
        cli.main(words(out))
    searched.done, searched.until = 0, None
    with caplog.at_level("INFO", "xdesc_jax"):
        assert cli.main(words(out)) == 0
    assert searched.done == 2 * 8 and "going on: 2 of 4 pairs finished already" in caplog.text
    names = ["m.safetensors", "m.safetensors.ratios.json"]
    assert sorted(path.name for path in out.parent.iterdir()) == names
    for name in names:
        assert (out.parent / name).read_bytes() == (expected.parent / name).read_bytes()


def test_what_a_stopped_calibration_extracted_is_used_unless_settings_changed(
    scene_folder, feature_folder, model, tmp_path, monkeypatch, caplog
):
    """With an extraction that keeps what it finished, and refuses what was made with other settings."""
    made = []

    def extracted(scenes, out, descriptors, *, keypoints, **_):
        mark = out / "keypoints.txt"
        if mark.exists() and mark.read_text() != keypoints:
            raise FileExistsError(f"{out} was made with another configuration")
        if not mark.exists():
            made.append(keypoints)
            shutil.copytree(feature_folder, out)
            mark.write_text(keypoints)
        return given_stores([out], descriptors)

    monkeypatch.setattr(calibrate_module, "extracted_stores", extracted)
    monkeypatch.setattr(calibrate_module, "to_extract", lambda names, model, keypoints: model.names)
    searched, out = Calls(monkeypatch, homography, "_search"), tmp_path / "out" / "m.safetensors"
    for keypoints, counted in (("opencv", 1), ("opencv", 1), ("colmap", 2)):
        searched.done, searched.until = 0, 4
        with pytest.raises(Stopped):
            calibrate(model, scene_folder, out=out, keypoints=keypoints)
        assert len(made) == counted
    searched.until = None
    with caplog.at_level("INFO", "xdesc_jax"):
        calibrate(model, scene_folder, out=out, keypoints="opencv")
    assert made == ["opencv", "colmap", "opencv"] and "was extracted with other settings" in caplog.text
    assert sorted(path.name for path in out.parent.iterdir()) == ["m.safetensors", "m.safetensors.ratios.json"]


def test_a_calibration_started_twice_says_who_calibrates(scene_folder, feature_folder, model, tmp_path, capsys):
    out = tmp_path / "out" / "m.safetensors"
    words = ["calibrate", model, scene_folder, "--features", feature_folder, "--out", out]
    check_refused_while_in_use(words, beside(out), out, capsys)
