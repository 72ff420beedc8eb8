"""The benchmark across descriptors: sequences and posed scenes in one folder, own and shared keypoints, conditions."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tracemalloc

import numpy as np
import pytest

from tests.support.place import exact_translator
from tests.support.posed_folder import SIZE, K, between, seen
from tests.support.sequence_folder import homography, positions, write_features, write_sequences
from xdesc_jax import cli
from xdesc_jax.colmap.bindings.relative_pose import ideal_positions
from xdesc_jax.colmap.model import Camera, Model, Pose
from xdesc_jax.evaluate.benchmarks import results, run_folder
from xdesc_jax.evaluate.benchmarks.cross import benchmark, data, page, plan, scores, simulated
from xdesc_jax.evaluate.benchmarks.cross.data import Pair, Posed
from xdesc_jax.evaluate.benchmarks.cross.matching import SceneMatching
from xdesc_jax.evaluate.benchmarks.cross.plan import Case
from xdesc_jax.evaluate.benchmarks.cross.scores import Best, Leader
from xdesc_jax.evaluate.relative_ransac import estimator
from xdesc_jax.evaluate.repeatability import repeatability
from xdesc_jax.evaluate.scenes import by_homography
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.matching.feature_set import FeatureSet
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


def test_pairs_of_thousands_of_photos_take_no_memory_of_all_distances():
    count = 3000
    places, none = np.random.default_rng(0).normal(size=(count, 3)), (np.zeros((0, 3)), *(np.zeros(0, int),) * 3)
    names = tuple(map(str, range(count)))
    model = Model(names, np.tile(np.eye(3), (count, 1, 1)), -places, (CAMERA,) * count, np.ones(count), *none, none[1])
    tracemalloc.start()
    pairs = data.neighbours(model, range(count), 10)
    assert tracemalloc.get_traced_memory()[1] < 8 * count**2 / 10
    tracemalloc.stop()
    assert pairs[0] == (0, int(np.argsort(np.linalg.norm(places - places[0], axis=1))[2])) and len(pairs) == 10


def test_folders_of_one_name_are_scenes_of_their_own(tmp_path):
    write_sequences(tmp_path / "planes", ("hall",))
    write_sequences(tmp_path / "more", ("hall",))
    write_scene(tmp_path / "scenes" / "hall")
    pairs = data.read(tmp_path)
    assert list(dict.fromkeys(p.scene for p in pairs)) == ["more/hall", "planes/hall", "scenes/hall"]
    assert len({(p.known, p.device) for p in pairs}) == len(pairs) == 5 + 5 + 4
    both = write_scene(tmp_path / "planes" / "hall")
    listed = both / "reference" / "images.txt"
    for path in (both / "images").iterdir():  # names without a number, so that they are not of the sequence
        path.rename(path.with_name(f"p{path.name}"))
        listed.write_text(listed.read_text().replace(f" {path.name}", f" p{path.name}"))
    of_both = {p.scene: isinstance(p.truth, Posed) for p in data.read(tmp_path) if p.known.startswith("planes/")}
    assert of_both == {"planes/hall": False, "planes/hall (posed)": True}


def test_sequences_within_a_sequence_count_once(tmp_path):
    write_sequences(tmp_path, ("roof",))
    shutil.copytree(tmp_path / "roof", tmp_path / "roof" / "door")
    pairs = data.read(tmp_path)
    assert [p.scene for p in pairs] == ["roof"] * 5 + ["door"] * 5


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


@contextlib.contextmanager
def opened(folder, *names):
    """Feature files by their place in a run: plain photos, own keypoints."""
    with contextlib.ExitStack() as stack:
        yield {("plain", "own", name): stack.enter_context(FeatureSet([folder / f"{name}.h5"])) for name in names}


@pytest.mark.parametrize("way", ["native", "translated", "joint", "naive"])
def test_exact_features_are_matched_rightly_in_every_way_but_the_naive_one(tmp_path, way):
    folder = write_features(tmp_path, ("v_roof",))
    case, pair = Case("own-a", "own-a" if way == "native" else "own-b", way, "own", "plain"), sequence_pair()
    with opened(folder, "own-a", "own-b") as files:
        rows = SceneMatching([pair], files, Translator(exact_translator())).matcher(case)(pair)
    found = scores.score(pair, positions(1), positions(3), (150, 120), (150, 120), rows, 1.0, 0, estimator())
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
    found = scores.score(pair, known, device, *sizes, rows, 1.0, 0, estimator())
    assert found == {"matches": 30, "correct": correct, "repeatability": repeated}
    assert 5 < correct < 30 and 0.2 < repeated < 1
    one_way = dataclasses.replace(pair, inverse=None)
    only = scores.score(one_way, known, device, *sizes, rows, 1.0, 0, estimator())
    assert only == {"matches": 30, "correct": correct}


def posed_scores(shuffled=False):
    (first, order0), (second, order1) = seen(0), seen(1, 1)
    rows = np.stack([np.argsort(order0), np.argsort(order1)], axis=1)
    if shuffled:
        rows[:, 1] = np.random.default_rng(0).permutation(rows[:, 1])
    pair = Pair("hall", "0", "1", Posed((CAMERA, CAMERA), between(0, 1)))
    # The folder's positions are of K's own origin, which is the corner of the first pixel; files have its centre.
    return scores.score(pair, first - 0.5, second - 0.5, SIZE, SIZE, rows, 1.0, 0, estimator())


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
    assert Leader("a", "b", "own", "night", Best("joint", 36.0, pytest.approx(90)), None) in scores.leaders(rows)


def test_in_posed_scenes_shares_are_of_the_inliers_of_the_weaker_side():
    """The map has 40 and 80 inliers natively in its two scenes (60); the device 30 and 42 (36), which is weaker."""

    def posed(*inliers):
        one = {"matches": 200, "right": 0.5, "error_deg": 1.0}
        return {
            scene: [{**one, "inliers": n - 5}, {**one, "inliers": n + 5}]
            for scene, n in zip("xy", inliers, strict=True)
        }

    inliers = {
        ("a", "a", "native"): (40, 80), ("b", "b", "native"): (30, 42), ("a", "b", "translated"): (10, 26),
        ("a", "b", "joint"): (20, 34), ("b", "a", "joint"): (36, 54),
    }  # fmt: skip
    figures = {Case(*of, "own", "plain"): posed(*counts) for of, counts in inliers.items()}
    rows = [scores.row_of(case, figures) for case in figures]
    assert [row.values["inliers"] for row in rows] == [60, 36, 18, 27, 45]
    assert [row.values["inliers of the weaker side"] for row in rows] == [100, 100, 50, 75, 125]
    assert {row.values["of the weaker side"] for row in rows} == {None}
    ab, ba = (Leader(*of, "own", "plain", None, best) for of, best in (
        (("a", "b"), Best("joint", 27, 75)), (("b", "a"), Best("joint", 45, 125)),
    ))  # fmt: skip
    assert scores.leaders(rows)[2:] == [ab, ba]


def test_sequences_and_posed_scenes_have_leaders_of_their_own():
    def both(correct, inliers):
        posed = {"matches": 9, "right": 1.0, "error_deg": 1.0, "inliers": inliers}
        return {"roof": [{"matches": 9, "correct": correct}], "hall": [posed]}

    figures = {
        Case("a", "a", "native", "own", "plain"): both(8, 80), Case("b", "b", "native", "own", "plain"): both(4, 0),
        Case("a", "b", "translated", "own", "plain"): both(3, 20), Case("a", "b", "joint", "own", "plain"): both(2, 30),
    }  # fmt: skip
    leader = scores.leaders([scores.row_of(case, figures) for case in figures])[-1]
    # The device has no inliers of its own, of which there is no share.
    assert (leader.sequences, leader.posed) == (Best("translated", 3, 75), Best("joint", 30, None))
    sentence = page.answer([leader])
    assert sentence == (
        "A map of a serves b best (translated): 3 correct matches in sequences a pair; "
        "a map of a serves b best (joint): 30 inliers in posed scenes a pair."
    )
    (sequences, posed) = page.matrices([leader])
    assert (sequences.values, posed.values) == ([[0.75]], [[None]])


def test_repeatability_of_the_same_keypoints_is_counted_once(monkeypatch):
    counted = []
    monkeypatch.setattr(scores, "repeatability", lambda *of: counted.append(of) or repeatability(*of))
    pair, sizes, known, device = sequence_pair(), ((150, 120), (150, 120)), positions(1), positions(3)
    given = pair.truth, pair.inverse, *sizes
    remembered = scores.RememberedRepeatability()
    expected = repeatability(known, device, *given)
    assert remembered(known, device, *given) == remembered(known.copy(), device.copy(), *given) == expected
    assert len(counted) == 1
    assert remembered(known, device[:7], *given) == repeatability(known, device[:7], *given) != expected


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


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """OpenCV's SIFT and ORB on a plane by day and by simulated night, and in a posed scene: the words of the run."""
    folder = tmp_path_factory.mktemp("ran")
    write_sequences(folder / "data/planes", ("v_roof",))
    for k in (4, 5, 6):
        (folder / f"data/planes/v_roof/{k}.ppm").unlink()
        (folder / f"data/planes/v_roof/H_1_{k}").unlink()
    write_scene(folder / "data/scenes/hall", photos=3)
    words = ["benchmark", "run", "cross", "--data", folder / "data", "--out", folder / "out", "--model", "opencv"]
    words += ["--descriptors", "opencv-sift", "orb", "--conditions", "plain", "night", "--matchers", "joint"]
    words = [str(word) for word in [*words, "--max-keypoints", "150", "--pairs-a-scene", "1"]]
    assert cli.main(words) == 0
    return folder, words


def test_a_run_extracts_simulates_matches_and_leaves_a_page(ran):
    folder, words = ran
    result = results.read(folder / "out")
    assert [row.name for row in result.rows] == [
        f"{of}, own keypoints{condition}" for condition in ("", ", simulated night")
        for of in ("opencv-sift", "orb", "opencv-sift | orb", "orb | opencv-sift")
    ]  # fmt: skip
    day, night = result.rows[0].values, result.rows[4].values
    assert day["correct"] > 40 and day["precision"] > 40 and day["of the weaker side"] == pytest.approx(100)
    assert night["correct"] < day["correct"] and not result.official and day["AUC 10 deg"] is not None
    assert "inliers of the weaker side [%]" in (folder / "out" / run_folder.TABLE).read_text()
    text = (folder / "out" / run_folder.REPORT).read_text()
    assert "simulated night" in text and "Leaders" in text and "Who serves whom" in text
    before = (folder / "out/result.json").stat().st_mtime_ns
    assert cli.main(words) == 0
    assert (folder / "out/result.json").stat().st_mtime_ns == before


def test_only_photos_of_pairs_are_extracted_and_the_devices_alone_simulated(ran):
    folder, _ = ran
    roof, hall = [f"planes/v_roof/{k}.ppm" for k in (1, 2, 3)], [f"scenes/hall/images/{k}.png" for k in (0, 2)]
    with FeatureStore(folder / "out/features/plain/same/orb.h5") as store:
        assert store.names == [*roof, *hall]  # photo 1 of the scene is in no pair
    with FeatureStore(folder / "out/features/night/same/orb.h5") as store:
        assert store.names == [f"{name}.png" for name in (*roof[1:], hall[1])]


def test_another_ransac_is_another_result(ran, monkeypatch):
    folder, words = ran
    asked = []
    monkeypatch.setattr(benchmark, "estimator", lambda ransac: asked.append(ransac) or (lambda *_, **__: None))
    assert cli.main([*words, "--ransac", "poselib"]) != 0  # refused: the folder has COLMAP's
    other = [str(folder / "other") if word == str(folder / "out") else word for word in words]
    shutil.copytree(folder / "out/features", folder / "other/features", symlinks=True)
    shutil.copytree(folder / "out/photos", folder / "other/photos", symlinks=True)
    assert cli.main([*other, "--ransac", "poselib"]) == 0
    found = results.read(folder / "other")
    assert asked == ["poselib"] * 2 and found.settings["ransac"] == "poselib"
    assert [row.values["inliers"] for row in found.rows] == [0] * 8  # of a RANSAC that finds nothing
    assert [row.values["correct"] for row in found.rows] == [
        row.values["correct"] for row in results.read(folder / "out").rows
    ]


def test_a_dry_run_neither_links_nor_simulates_photos(ran):
    folder, words = ran
    fresh = [str(folder / "fresh") if word == str(folder / "out") else word for word in words]
    assert cli.main([*fresh, "--dry-run"]) == 0
    assert not (folder / "fresh").exists()
    assert cli.main([*words, "--conditions", "device", "--dry-run"]) == 0
    assert not (folder / "out/photos/device").exists()
