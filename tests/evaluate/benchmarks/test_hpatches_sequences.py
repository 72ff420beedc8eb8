"""The benchmark of HPatches sequences, on photos in the layout of the release."""

import json

import cv2
import numpy as np
import pytest

from tests.support.place import exact_translator
from tests.support.sequence_folder import NAMES, homography, positions, write_features, write_sequences
from tests.support.stopped import Calls, Stopped
from xdesc_jax import cli
from xdesc_jax.evaluate.benchmarks import hpatches_sequences, patch_strips, run_folder, sequence_scores
from xdesc_jax.evaluate.benchmarks.hpatches_sequences import run
from xdesc_jax.evaluate.scenes import by_homography
from xdesc_jax.features.store import FeatureStore


@pytest.fixture
def sequences(tmp_path):
    return write_sequences(tmp_path / "hpatches-sequences-release")


def rows_of(result):
    return {(row.mode, row.name): row for row in result.rows}


def test_exact_features_are_perfect_translated_too_and_large_sequences_are_left_out(sequences, tmp_path):
    model = exact_translator().save(tmp_path / "model.safetensors")
    files = (write_features(tmp_path / "features"),)
    modes = ("native", "translated", "joint", "naive")
    found = rows_of(run(data=sequences, out=tmp_path / "out", model=model, features=files, modes=modes))
    for key in [("native", "own-a"), ("translated", "own-a -> own-b"), ("joint", "own-b | own-a")]:
        values = found[key].values
        assert {values[name] for name in ("MMA 3 px", "area to 5 px", "illumination", "viewpoint")} == {100.0}
        assert (values["homography 1 px"], values["matches"], values["correct"]) == (100.0, 41, 41)
        assert list(found[key].detail["area"]) == ["i_door", "v_roof"]
    assert found["naive", "own-a | own-b"].values["area to 5 px"] < 25
    page = (tmp_path / "out" / run_folder.REPORT).read_text()
    assert "From sequence to sequence" in page and "other data" in page


def test_shuffled_rows_match_no_better_than_chance(sequences, tmp_path):
    files = (write_features(tmp_path / "features", shuffled=True),)
    (row, *_) = run(data=sequences, out=tmp_path / "out", features=files).rows
    assert row.values["MMA 3 px"] < 10 and row.values["homography 5 px"] == 0


def test_accuracy_equals_that_of_a_plain_loop(sequences, tmp_path):
    files = (write_features(tmp_path / "features", off_px=2.5),)
    row = rows_of(run(data=sequences, out=tmp_path / "out", features=files))["native", "own-a"]
    curves = {}
    for seed, name in enumerate(NAMES[:2]):
        of_pairs = []
        for k in range(2, 7):  # the rows of both photos are equal, so match i is of keypoint i
            errors = []
            for x, y in positions(1, 2.5, seed).astype(float):
                u, v, w = homography(k) @ [x, y, 1]
                errors.append([u / w, v / w])
            far = [np.hypot(*(e - p)) for e, p in zip(errors, positions(k, 2.5, seed).astype(float), strict=True)]
            of_pairs.append([sum(error <= t for error in far) / len(far) for t in range(1, 11)])
        curves[name] = [sum(column) / 5 for column in zip(*of_pairs, strict=True)]
    np.testing.assert_allclose(row.detail["mma"]["illumination"], curves["i_door"])
    np.testing.assert_allclose(row.detail["mma"]["viewpoint"], curves["v_roof"])
    overall = np.mean(list(curves.values()), axis=0)
    np.testing.assert_allclose(row.detail["mma"]["overall"], overall)
    assert row.values["MMA 3 px"] == pytest.approx(100 * overall[2])
    assert row.values["area to 5 px"] == pytest.approx(100 * overall[:5].mean())
    assert 0 < row.values["MMA 3 px"] < 100


def test_corners_are_judged_by_where_they_come_to_lie():
    truth = by_homography(np.eye(3))
    moved = np.array([[1.0, 0, 3], [0, 1, 4], [0, 0, 1]])
    assert sequence_scores.corner_error_px(moved, truth, (9, 7)) == pytest.approx(5)
    stretched = np.diag([1.5, 1, 1])  # of 9 px width, the two right corners move by 4
    assert sequence_scores.corner_error_px(stretched, truth, (9, 7)) == pytest.approx(2)
    assert sequence_scores.corner_error_px(None, truth, (9, 7)) == sequence_scores.LOST_PX
    horizon = np.array([[1.0, 0, 0], [0, 1, 0], [1, 0, 0]])  # a corner lies at infinity
    assert sequence_scores.corner_error_px(horizon, truth, (9, 7)) == sequence_scores.LOST_PX


def test_each_sequence_weighs_the_same():
    pair = {"mma": [0.0] * 10, "matches": 4, "correct": 0, "corner_px": 9.0}
    right = {"mma": [1.0] * 10, "matches": 8, "correct": 8, "corner_px": 2.0}
    found = sequence_scores.summary({"i_a": [pair, right], "i_b": [right], "v_c": [pair, pair, pair]})
    assert found["mma"]["overall"][0] == pytest.approx((0.5 + 1 + 0) / 3)
    assert found["mma"]["illumination"][0] == 0.75 and found["mma"]["viewpoint"][0] == 0
    assert found["homography"] == {"1": 0, "3": pytest.approx(0.5), "5": pytest.approx(0.5)}
    assert found["matches"] == pytest.approx((6 + 8 + 4) / 3) and found["area"] == {"i_a": 0.5, "i_b": 1.0, "v_c": 0.0}


def test_a_run_that_was_stopped_goes_on_with_the_sequences_that_are_left(sequences, tmp_path, monkeypatch):
    asked = {"data": sequences, "out": tmp_path / "out", "features": (write_features(tmp_path / "features"),)}
    calls = Calls(monkeypatch, hpatches_sequences, "pair_scores")
    calls.until = 13  # of 2 sequences with 5 pairs and 2 rows
    with pytest.raises(Stopped):
        run(**asked)
    calls.done, calls.until = 0, None
    first = run(**asked)
    assert calls.done == 10
    assert run(**asked) == first and calls.done == 10
    with pytest.raises(FileExistsError, match="another configuration"):
        run(**asked, descriptors=("own-a",))


def test_photos_are_extracted_without_the_large_sequences(sequences, tmp_path):
    result = run(data=sequences, out=tmp_path / "out", descriptors=("orb",), keypoints="opencv", max_keypoints=60)
    assert result.rows[0].values["matches"] > 5
    with FeatureStore(tmp_path / "out" / "features" / "orb.h5") as store:
        assert {name.split("/")[0] for name in store.names} == {"i_door", "v_roof"}


def test_what_is_missing_is_told_with_where_to_get_it(sequences, tmp_path, capsys):
    asked = ["benchmark", "check", "hpatches-sequences", "--data"]
    assert cli.main([*asked, str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "3 sequences, 2 without the large ones" in shown and "other data (108 of 108 sequences" in shown
    (sequences / "v_roof" / "H_1_4").unlink()
    (sequences / "i_door" / "6.ppm").unlink()
    assert cli.main([*asked, str(sequences)]) == 2
    told = capsys.readouterr().err
    assert "i_door/6.ppm is missing, v_roof/H_1_4 is missing" in told and "1.3 GB" in told
    assert cli.main([*asked, str(tmp_path / "out")]) == 2


def test_the_official_set_is_known_by_its_names_and_sizes(tmp_path, monkeypatch):
    photos = {
        size: cv2.imencode(".ppm", np.zeros((*size[::-1], 3), np.uint8))[1].tobytes() for size in ((9, 7), (2000, 1000))
    }
    for name in patch_strips.splits()["full"]:
        folder = tmp_path / name
        folder.mkdir()
        for k in range(1, 7):
            (folder / f"{k}.ppm").write_bytes(photos[(9, 7)])
            (folder / f"H_1_{k}").write_text("1 0 0\n0 1 0\n0 0 1\n")
    found = hpatches_sequences.check(tmp_path)
    assert not found.problems and "photo 1 of v_bark is (9, 7) px, where the set has (765, 512)" in found.verdict
    monkeypatch.setattr(hpatches_sequences, "SIZES", {"v_bark": (9, 7)})
    assert "v_talent has no photo over 1600x1200 px" in hpatches_sequences.check(tmp_path).verdict
    for name in patch_strips.facts()["large_sequences"]:
        (tmp_path / name / "3.ppm").write_bytes(photos[(2000, 1000)])
    assert hpatches_sequences.check(tmp_path).verdict == "the official set"


def test_the_result_holds_all_that_the_plots_show(sequences, tmp_path):
    run(data=sequences, out=tmp_path / "out", features=(write_features(tmp_path / "features"),))
    saved = json.loads((tmp_path / "out" / run_folder.results.RESULT).read_text())
    assert [len(curve) for curve in saved["rows"][0]["detail"]["mma"].values()] == [10, 10, 10]
    assert saved["data"]["official"] is False
