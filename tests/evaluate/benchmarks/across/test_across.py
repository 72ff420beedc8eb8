"""The benchmark across descriptors: sequences and posed scenes in one folder, own and shared keypoints, conditions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.support.place import exact_translator
from tests.support.posed_folder import SIZE, K, between, seen
from tests.support.sequence_folder import homography, positions, write_features, write_sequences
from xdesc_jax import cli
from xdesc_jax.colmap.bindings.relative_pose import ideal_positions
from xdesc_jax.colmap.model import Camera, Model, Pose
from xdesc_jax.descriptors import get_spec, unit_rows
from xdesc_jax.evaluate.benchmarks import results, run_folder
from xdesc_jax.evaluate.benchmarks.across import data, plan, scores, simulated
from xdesc_jax.evaluate.benchmarks.across.benchmark import of_matchers
from xdesc_jax.evaluate.benchmarks.across.data import Pair, Posed
from xdesc_jax.evaluate.benchmarks.across.matching import by_network, nearest_rows
from xdesc_jax.evaluate.benchmarks.across.plan import Case
from xdesc_jax.evaluate.repeatability import repeatability
from xdesc_jax.evaluate.scenes import by_homography
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.matching import learned
from xdesc_jax.translation.translator import Translator

cv2 = pytest.importorskip("cv2", reason="needs the features extra")
pytest.importorskip("pycolmap", reason="needs the features extra")
CAMERA = Camera("PINHOLE", *SIZE, (K[0, 0], K[1, 1], K[0, 2], K[1, 2]))


def write_scene(folder, photos=4):
    """A posed scene: photos of noise, and COLMAP's text model of them, cameras that look ahead from a line."""
    (folder / "images").mkdir(parents=True)
    (folder / "reference").mkdir()
    rng = np.random.default_rng(0)
    lines = []
    for i in range(photos):
        cv2.imwrite(str(folder / "images" / f"{i}.png"), rng.integers(0, 255, (*SIZE[::-1], 3)).astype(np.uint8))
        lines += [f"{i + 1} 1 0 0 0 {-0.5 * i} 0 0 1 {i}.png", ""]
    (folder / "reference" / "cameras.txt").write_text(f"1 PINHOLE {SIZE[0]} {SIZE[1]} 150 148 80.5 59.5\n")
    (folder / "reference" / "images.txt").write_text("\n".join(lines) + "\n")
    (folder / "reference" / "points3D.txt").write_text("")
    return folder


def test_sequences_and_posed_scenes_are_found_at_any_place(tmp_path):
    write_sequences(tmp_path / "planes", ("v_roof",))
    write_scene(tmp_path / "scenes" / "hall")
    found = data.check(tmp_path)
    assert found.text == "1 homography sequences and 1 posed scenes" and not found.problems and not found.official
    pairs = data.read(tmp_path)
    assert [(p.scene, p.known, p.device) for p in pairs[:2]] == [
        ("v_roof", "planes/v_roof/1.ppm", "planes/v_roof/2.ppm"),
        ("v_roof", "planes/v_roof/1.ppm", "planes/v_roof/3.ppm"),
    ]
    hall = [(p.known[-5:], p.device[-5:]) for p in pairs if p.scene == "hall"]
    assert hall == [("0.png", "2.png"), ("1.png", "2.png"), ("2.png", "3.png"), ("3.png", "1.png")]
    truth = pairs[5].truth
    assert isinstance(truth, Posed)
    np.testing.assert_allclose(truth.pose.translation, (-1.0, 0, 0))
    assert len(data.read(tmp_path, pairs_a_scene=2)) == 5 + 2


@pytest.mark.parametrize(
    ("missing", "message"),
    [("planes/v_roof/H_1_3", "H_1_3"), ("scenes/hall/reference/cameras.txt", ""), ("planes/v_roof/1.ppm", "photo 1")],
)
def test_what_is_incomplete_is_named(tmp_path, missing, message):
    write_sequences(tmp_path / "planes", ("v_roof",))
    write_scene(tmp_path / "scenes" / "hall")
    (tmp_path / missing).unlink()
    for name in ("images.txt", "points3D.txt") if "reference" in missing else ():
        (tmp_path / "scenes/hall/reference" / name).unlink()
    (problem,) = data.check(tmp_path).problems
    assert (message or "holds no COLMAP model") in problem
    assert "neither a sequence" in data.check(tmp_path / "nothing").problems[0]


def test_each_photo_is_paired_with_the_second_nearest_that_looks_its_way():
    ahead, back = np.eye(3), np.diag([-1.0, 1, -1])
    rotations = np.stack([ahead, back, ahead, ahead])
    centers = np.array([[0, 0, 0], [0.1, 0, 0], [1, 0, 0], [3, 0, 0]], float)
    model = Model(
        ("a", "b", "c", "d"), rotations, -np.einsum("vij,vj->vi", rotations, centers), (CAMERA,) * 4, np.ones(4),
        *(np.zeros((0, 3)), *(np.zeros(0, int),) * 3, np.zeros(0)),
    )  # fmt: skip
    assert data.neighbours(model, range(4), 9) == [(0, 3), (2, 3), (3, 0)]


def cases_of(names, **how):
    given = {"maps": names, "conditions": ("plain",), "asked": ("translated", "joint", "naive")} | how
    return plan.cases(names, translator=Translator(exact_translator()), **given)


def test_rows_are_those_that_model_and_detectors_allow():
    names = ("own-a", "own-b")
    found = [(c.known, c.device, c.way) for c in cases_of(names, conditions=("night",)) if c.condition == "night"]
    assert found == [
        ("own-a", "own-a", "native"), ("own-b", "own-b", "native"),
        *((a, b, way) for a, b in (names, names[::-1]) for way in ("translated", "joint", "naive")),
    ]  # fmt: skip
    assert len(cases_of(names, maps=("own-a",))) == 2 + 3
    assert {c.keypoints for c in cases_of(names)} == {"own"}  # no network has keypoints of its own
    assert {c.keypoints for c in cases_of(("own-a", "xfeat"))} == {"own", "shared"}
    with pytest.raises(ValueError, match="--maps names 'x', which is not among the descriptors own-a, own-b"):
        cases_of(names, maps=("x",))
    with pytest.raises(ValueError, match="lightglue matches rows of ALIKED and DISK, found own-a"):
        plan.ways(("lightglue",), Translator(exact_translator()), ("own-a",))


def sequence_pair(k=3):
    both = by_homography(homography(k)), by_homography(np.linalg.inv(homography(k)))
    return Pair("v_roof", "v_roof/1.ppm", f"v_roof/{k}.ppm", *both)


@pytest.mark.parametrize("way", ["native", "translated", "joint", "naive"])
def test_exact_features_are_matched_rightly_in_every_way_but_the_naive_one(tmp_path, way):
    folder = write_features(tmp_path, ("v_roof",))
    case = Case("own-a", "own-a" if way == "native" else "own-b", way, "own", "plain")
    stores = [folder / f"{name}.h5" for name in (case.known, case.device)]
    ((pair, rows),) = nearest_rows(case, [sequence_pair()], *stores, "", Translator(exact_translator()))
    found = scores.score(pair, positions(1), positions(3), (150, 120), (150, 120), rows, 1.0, 0)
    assert found["repeatability"] == 1.0
    if way == "naive":
        assert found["correct"] < 0.25 * 41
    else:
        assert (found["matches"], found["correct"]) == (41, 41)


def test_a_sequence_is_scored_as_a_plain_loop_does():
    rng = np.random.default_rng(4)
    known, device = rng.uniform(0, 140, (60, 2)), rng.uniform(0, 140, (50, 2))
    device[:20] = by_homography(homography(3))(known)[:20] + rng.normal(0, 2, (20, 2))
    rows = np.stack([rng.permutation(60)[:30], rng.permutation(50)[:30]], axis=1)
    rows[:10] = np.arange(10)[:, None]
    correct = 0
    for n, (x, y) in enumerate(known):
        u, v, w = homography(3) @ [x, y, 1]
        u, v = u / w, v / w
        correct += sum(np.hypot(u - device[j][0], v - device[j][1]) <= 3 for i, j in rows if i == n)
    pair, sizes = sequence_pair(), ((150, 120), (150, 120))
    repeated = repeatability(known, device, pair.truth, pair.inverse, *sizes).share
    found = scores.score(pair, known, device, *sizes, rows, 1.0, 0)
    assert found == {"matches": 30, "correct": correct, "repeatability": repeated}
    assert 5 < correct < 30 and 0.2 < repeated < 1
    one_way = dataclasses.replace(pair, inverse=None)
    assert scores.score(one_way, known, device, *sizes, rows, 1.0, 0) == {"matches": 30, "correct": correct}


def posed_scores(shuffled=False):
    (first, order0), (second, order1) = seen(0), seen(1, 1)
    rows = np.stack([np.argsort(order0), np.argsort(order1)], axis=1)
    if shuffled:
        rows[:, 1] = np.random.default_rng(0).permutation(rows[:, 1])
    pair = Pair("hall", "0", "1", Posed((CAMERA, CAMERA), between(0, 1)))
    # The folder's positions are of K's own origin, which is the corner of the first pixel; files have its centre.
    return scores.score(pair, first - 0.5, second - 0.5, SIZE, SIZE, rows, 1.0, 0)


def test_right_matches_of_a_posed_pair_give_its_pose_and_shuffled_ones_none():
    found = posed_scores()
    assert found["error_deg"] == pytest.approx(0, abs=0.02)
    assert (found["matches"], found["inliers"], found["right"]) == (60, 60, 1.0)
    wrong = posed_scores(shuffled=True)
    assert wrong["right"] < 0.3 and not 0 <= wrong["error_deg"] < 5


def test_positions_are_taken_to_where_a_straight_lens_would_show_them():
    k1, (straight, _) = -0.3, seen(0)
    rays = (straight - (80.5, 59.5)) / 150
    bent = rays * (1 + k1 * (rays**2).sum(axis=1, keepdims=True)) * 150 + (80.5, 59.5)
    assert np.abs(bent - straight).max() > 1
    found, k = ideal_positions(Camera("SIMPLE_RADIAL", *SIZE, (150.0, 80.5, 59.5, k1)), bent)
    np.testing.assert_allclose(found, straight, atol=1e-4)
    np.testing.assert_allclose(k, [[150, 0, 80.5], [0, 150, 59.5], [0, 0, 1]])


def test_the_weaker_side_and_the_leaders_are_of_the_same_keypoints_and_condition():
    def one(correct):
        return {"s": [{"matches": 100, "correct": correct, "repeatability": 0.5}]}

    figures = {
        Case("a", "a", "native", "own", "night"): one(80), Case("b", "b", "native", "own", "night"): one(40),
        Case("a", "a", "native", "own", "plain"): one(99), Case("b", "b", "native", "own", "plain"): one(90),
        Case("a", "b", "translated", "own", "night"): one(30), Case("a", "b", "joint", "own", "night"): one(36),
    }  # fmt: skip
    rows = [scores.row_of(case, figures) for case in figures]
    assert rows[5].values["of the weaker side"] == pytest.approx(90) and rows[5].values["precision"] == 36
    assert rows[5].values["AUC 10 deg"] is None and rows[5].name == "a | b, own keypoints, simulated night"
    assert ("a", "b", "own", "night", "joint", 36.0, pytest.approx(90)) in scores.leaders(rows)


def test_a_simulated_photo_shows_each_place_where_its_placement_says():
    photo = np.zeros((120, 160, 3), np.uint8)
    for at in ((20, 30), (140, 100), (80, 20)):
        cv2.circle(photo, at, 4, (255, 255, 255), -1)
    found = simulated.simulated(photo, "device", "a/3.png")
    placed = simulated.placement((160, 120), "device", "a/3.png")
    assert found.shape == (72, 96, 3) and placed.bend < 0
    _, _, _, centres = cv2.connectedComponentsWithStats((found[..., 0] > 100).astype(np.uint8))
    places = placed.to_photo(centres[1:])
    assert sorted(np.rint(places).astype(int).tolist()) == [[20, 30], [80, 20], [140, 100]]
    assert np.array_equal(simulated.simulated(photo, "plain", "a"), photo)


def test_nights_are_dark_noisy_and_a_function_of_the_photos_name():
    photo = np.full((90, 120, 3), 180, np.uint8)
    first, again, other = (simulated.simulated(photo, "night", name) for name in ("a", "a", "b"))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other) and first.mean() < 150 and first.std() > 5
    assert first[..., 0].mean() > first[..., 2].mean()  # warm light, RGB
    np.testing.assert_array_equal(simulated.placement((120, 90), "night", "a").to_photo([[3.0, 4.0]]), [[3.0, 4.0]])


def test_the_pose_of_a_model_is_from_the_maps_camera_to_the_devices(tmp_path):
    (pair, *_) = data.read(write_scene(tmp_path / "hall", photos=2))
    assert isinstance(pair.truth, Posed)
    expected = Pose(np.eye(3), np.array([-0.5, 0, 0]))
    np.testing.assert_allclose(pair.truth.pose.translation, expected.translation)


def test_a_run_extracts_simulates_matches_and_leaves_a_page(tmp_path):
    """Rows of OpenCV's SIFT and ORB on a plane by day and by simulated night, and in a posed scene."""
    write_sequences(tmp_path / "data/planes", ("v_roof",))
    for k in (4, 5, 6):
        (tmp_path / f"data/planes/v_roof/{k}.ppm").unlink()
        (tmp_path / f"data/planes/v_roof/H_1_{k}").unlink()
    write_scene(tmp_path / "data/scenes/hall", photos=2)
    words = ["benchmark", "run", "cross", "--data", tmp_path / "data", "--out", tmp_path / "out", "--model", "opencv"]
    words += ["--descriptors", "opencv-sift", "orb", "--conditions", "plain", "night", "--matchers", "joint"]
    words += ["--max-keypoints", "150"]
    assert cli.main([str(word) for word in words]) == 0
    result = results.read(tmp_path / "out")
    assert [row.name for row in result.rows] == [
        f"{of}, own keypoints{condition}" for condition in ("", ", simulated night")
        for of in ("opencv-sift", "orb", "opencv-sift | orb", "orb | opencv-sift")
    ]  # fmt: skip
    day, night = result.rows[0].values, result.rows[4].values
    assert day["correct"] > 40 and day["precision"] > 40 and day["of the weaker side"] == pytest.approx(100)
    assert night["correct"] < day["correct"] and not result.official and day["AUC 10 deg"] is not None
    assert (tmp_path / "out/photos/night/planes/v_roof/3.ppm.png").exists()
    page = (tmp_path / "out" / run_folder.REPORT).read_text()
    assert "simulated night" in page and "Leaders" in page
    before = (tmp_path / "out/result.json").stat().st_mtime_ns
    assert cli.main([str(word) for word in words]) == 0
    assert (tmp_path / "out/result.json").stat().st_mtime_ns == before


def test_lightglue_matches_rows_as_they_are_or_translated(tmp_path, monkeypatch):
    monkeypatch.setattr(learned, "_CLASS", "tests.support.fake_matcher:Fake")
    monkeypatch.setattr(learned, "require_kornia", lambda what: None)
    np.savez(tmp_path / "lightglue-aliked.npz", limit=0.5)
    rows, xy = unit_rows(np.random.default_rng(0).normal(size=(30, 128))), np.linspace(60, 90, 60).reshape(30, 2)
    with StoreWriter(tmp_path / "aliked-n16rot.h5", get_spec("aliked-n16rot")) as store:
        for name, order in (("v_roof/1.ppm", np.arange(30)), ("v_roof/3.ppm.png", np.arange(30)[::-1])):
            store.write(name, ImageFeatures(np.float32(xy), rows[order], np.ones(30, bool), (150, 120)))
    case = Case("aliked-n16rot", "aliked-n16rot", "lightglue", "own", "night")
    weights = (f"lightglue-aliked={tmp_path / 'lightglue-aliked.npz'}",)
    assert of_matchers((*weights, "xfeat=x")) == weights
    file = tmp_path / "aliked-n16rot.h5"
    ((pair, found),) = by_network(case, [sequence_pair()], file, file, ".png", tmp_path, tmp_path / "matches", weights)
    assert pair.device == "v_roof/3.ppm" and sorted(map(tuple, found.tolist())) == [(i, 29 - i) for i in range(30)]
