"""The benchmark of relative poses, on a scene whose poses are known."""

import sys

import numpy as np
import pytest

from tests.support.place import exact_translator
from tests.support.posed_folder import NAMES, PAIRS, K, between, line, seen, write_features, write_pairs
from tests.support.stopped import Calls, Stopped
from xdesc_jax import cli
from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate.benchmarks import pose_pairs, pose_scores, relative_pose
from xdesc_jax.evaluate.benchmarks.relative_pose import run
from xdesc_jax.evaluate.relative_ransac import estimator
from xdesc_jax.features.store import FeatureStore


@pytest.fixture
def posed(tmp_path):
    return write_pairs(tmp_path / "data")


def turned(degrees):
    a = np.deg2rad(degrees)
    return np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])


def test_exact_features_of_two_detectors_give_the_poses_translated_and_joint(posed, tmp_path):
    model = exact_translator().save(tmp_path / "model.safetensors")
    result = run(data=posed, out=tmp_path / "out", model=model, features=(write_features(tmp_path / "f"),))
    found = {row.name: row.values for row in result.rows}
    assert list(found) == [
        "own-a", "own-b", "own-a -> own-b", "own-b -> own-a", "own-a | own-a", "own-a | own-b", "own-b | own-a",
        "own-b | own-b",
    ]  # fmt: skip
    for values in found.values():
        assert values["AUC 5 deg"] > 99 and values["median error"] < 0.01 and values["precision"] == 100
        assert values["matches"] == values["inliers"] == 60
    assert not result.official and "5 pairs, where the sets have 1500" in result.data["other"]


def test_a_pair_is_matched_in_either_order_that_it_is_listed_in(posed, tmp_path):
    (listed,), (i, j) = posed.glob("*.txt"), PAIRS[0]
    listed.write_text(f"{line(i, j)}\n{line(j, i)}\n")
    model, files = exact_translator().save(tmp_path / "model.safetensors"), (write_features(tmp_path / "f"),)
    asked = {"data": posed, "model": model, "features": files, "modes": ("translated",)}
    for row in run(**asked, out=tmp_path / "out").rows:  # own-a and own-b have keypoints of their own
        assert row.values["AUC 5 deg"] > 99 and row.values["precision"] == 100, row.name


def test_shuffled_rows_give_no_pose_better_than_chance(posed, tmp_path):
    files = (write_features(tmp_path / "f", shuffled=True),)
    (row,) = run(data=posed, out=tmp_path / "out", features=files, descriptors=("own-a",), ratio=None).rows
    assert row.values["AUC 5 deg"] < 25 and row.values["precision"] < 50


def test_the_area_is_that_under_the_share_of_pairs():
    # shares 1/2 at 2 deg and 1 at 6 deg, from 0 at 0: to 4 deg 0.5 x 2 x 0.5 + 2 x 0.5, over 4
    assert pose_scores.areas([2.0, 6.0], [4.0]) == [pytest.approx((0.5 + 1.0) / 4)]
    # a pair without a pose: the share ends at 1/2
    assert pose_scores.areas([2.0, np.inf], [10.0]) == [pytest.approx((0.5 + 8 * 0.5) / 10)]
    assert pose_scores.areas([np.inf], [5.0]) == [0.0] and pose_scores.areas([0.0, 0.0], [5.0]) == [1.0]


def test_the_area_equals_that_of_a_plain_loop():
    errors = np.random.default_rng(0).exponential(8, 37)
    errors[::9] = np.inf
    steps = np.linspace(0, 20, 200_001)
    points = [(0.0, 0.0)] + [(e, (i + 1) / len(errors)) for i, e in enumerate(sorted(errors)) if e < 20]
    points.append((20.0, points[-1][1]))
    share = np.interp(steps, *zip(*points, strict=True))
    assert pose_scores.areas(errors, [20.0])[0] == pytest.approx(np.mean((share[1:] + share[:-1]) / 2), abs=1e-6)


def test_an_error_is_the_larger_angle_whatever_the_sign_of_the_translation():
    true = Pose(np.eye(3), np.array([2.0, 0, 0]))
    assert pose_scores.pose_error_deg(Pose(turned(7), np.array([-1.0, 0, 0])), true) == pytest.approx(7)
    sideways = Pose(turned(3), np.array([np.cos(0.2), np.sin(0.2), 0]))
    assert pose_scores.pose_error_deg(sideways, true) == pytest.approx(np.rad2deg(0.2))
    assert pose_scores.pose_error_deg(None, true) == np.inf
    assert pose_scores.direction_error_deg(np.array([0.0, 1, 0]), np.zeros(3)) == 0


def test_matches_fit_the_true_geometry_by_their_distance_to_epipolar_lines():
    (xy0, order0), (xy1, order1) = seen(0), seen(1)
    xy0, xy1 = xy0[np.argsort(order0)], xy1[np.argsort(order1)]
    true = between(0, 1)
    off = xy1.copy()
    off[::2, 1] += 40
    found = pose_scores.fitting(xy0, off, K, K, true)
    looped = []
    x, y, z = true.translation
    e = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ true.rotation
    for a, b in zip(xy0.astype(float), off.astype(float), strict=True):
        p, q = np.linalg.solve(K, [*a, 1]), np.linalg.solve(K, [*b, 1])
        m, n = e @ p, e.T @ q
        looped.append((q @ e @ p) ** 2 * (1 / (m[0] ** 2 + m[1] ** 2) + 1 / (n[0] ** 2 + n[1] ** 2)) < 5e-4)
    assert found.tolist() == looped and found[1::2].all() and not found[::2].all()


@pytest.mark.parametrize("ransac", ["colmap", "poselib"])
def test_a_relative_pose_is_found_among_wrong_matches_and_its_seed_decides(ransac):
    if ransac == "poselib":
        pytest.importorskip("poselib", reason="needs the poselib extra")
    estimate = estimator(ransac)
    (xy0, order0), (xy1, order1) = seen(0), seen(2)
    xy0, xy1 = xy0[np.argsort(order0)].astype(float), xy1[np.argsort(order1)].astype(float)
    xy1[:20] = np.random.default_rng(0).uniform(0, 120, (20, 2))
    found = estimate(xy0, xy1, K, K, max_error_px=0.1, seed=1)
    assert found.inlier[20:].all() and pose_scores.pose_error_deg(found.pose, between(0, 2)) < 0.05
    assert np.linalg.norm(found.pose.translation) == pytest.approx(1)
    again = estimate(xy0, xy1, K, K, max_error_px=0.1, seed=1)
    np.testing.assert_array_equal(found.pose.rotation, again.pose.rotation)
    assert estimate(xy0[:4], xy1[:4], K, K, max_error_px=1, seed=0) is None
    with pytest.raises(ValueError, match="not finite"):
        estimate(xy0 * np.nan, xy1, K, K, max_error_px=1, seed=0)
    with pytest.raises(ValueError, match="expected as many"):
        estimate(xy0[:9], xy1, K, K, max_error_px=1, seed=0)


def test_a_list_is_read_field_by_field(posed):
    pairs = pose_pairs.read_list(posed / "pairs_with_gt.txt")
    assert [(p.name0, p.name1) for p in pairs] == [(NAMES[i], NAMES[j]) for i, j in PAIRS]
    np.testing.assert_array_equal(pairs[2].k1, K)
    np.testing.assert_allclose(pairs[2].pose.translation, between(1, 3).translation)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda fields: fields[:-1], "has 37 fields, expected 38"),
        (lambda fields: [*fields[:9], "x", *fields[10:]], "could not convert string to float: 'x'"),
        (lambda fields: [*fields[:9], "nan", *fields[10:]], "not finite"),
        (lambda fields: [*fields[:4], "-5", *fields[5:]], "K0 is"),
        (lambda fields: [*fields[:22], "3", *fields[23:]], "expected a rotation and a translation"),
    ],
)
def test_a_line_that_is_no_pair_is_told_with_its_number(tmp_path, change, told):
    path = tmp_path / "list.txt"
    path.write_text(f"{line(0, 1)}\n\n{' '.join(change(line(0, 2).split()))}\n")
    with pytest.raises(ValueError, match=f"list.txt, line 3: .*{told}"):
        pose_pairs.read_list(path)


def test_what_is_missing_is_told_with_where_to_get_it(posed, tmp_path, capsys):
    asked = ["benchmark", "check", "relative-pose", "--data"]
    assert cli.main([*asked, str(posed)]) == 0
    assert "pairs_with_gt.txt: 5 pairs of 4 photos" in capsys.readouterr().out
    (posed / NAMES[2]).unlink()
    assert cli.main([*asked, str(posed)]) == 2
    assert "hall/3.jpg is missing; relative-pose needs" in capsys.readouterr().err
    (posed / "pairs_with_gt.txt").rename(tmp_path / "elsewhere.txt")
    assert cli.main([*asked, str(posed)]) == 2
    assert "no list of pairs (a .txt of 38 fields a line) found" in capsys.readouterr().err
    with pytest.raises(ValueError, match="hall/3.jpg is missing"):
        run(data=posed, out=tmp_path / "out", pairs=tmp_path / "elsewhere.txt")


@pytest.mark.parametrize(
    ("folder", "title"), [("scene0711_00", "ScanNet-1500"), ("Undistorted_SfM/0015", "MegaDepth-1500")]
)
def test_the_published_sets_are_known_by_their_names_and_counts(posed, monkeypatch, folder, title):
    monkeypatch.setattr(pose_pairs, "PAIRS", len(PAIRS))
    assert not pose_pairs.check(posed).official
    (posed / folder).parent.mkdir(exist_ok=True)
    (posed / "hall").rename(posed / folder)
    listed = posed / "pairs_with_gt.txt"
    listed.write_text(listed.read_text().replace("hall/", f"{folder}/"))
    found = pose_pairs.check(posed)
    assert found.official and title in found.text


def test_a_run_that_was_stopped_goes_on_with_the_rows_that_are_left(posed, tmp_path, monkeypatch):
    asked = {"data": posed, "out": tmp_path / "out", "features": (write_features(tmp_path / "f"),)}
    calls = Calls(monkeypatch, relative_pose, "pair_scores")
    calls.until = 7  # of 2 rows with 5 pairs
    with pytest.raises(Stopped):
        run(**asked)
    calls.done, calls.until = 0, None
    first = run(**asked)
    assert calls.done == 5
    assert run(**asked) == first and calls.done == 5
    with pytest.raises(FileExistsError, match=r"another configuration \(seed: 0 -> 1\)"):
        run(**asked, seed=1)


def test_photos_are_extracted_by_the_names_of_the_list(posed, tmp_path):
    result = run(data=posed, out=tmp_path / "out", descriptors=("orb",), keypoints="opencv", max_keypoints=50)
    assert [row.name for row in result.rows] == ["orb"]
    with FeatureStore(tmp_path / "out/features/same/orb.h5") as store:
        assert sorted(store.names) == sorted(NAMES)


def test_without_poselib_it_is_said_how_to_install_it_before_anything_is_done(posed, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "poselib", None)  # as if it were not installed
    with pytest.raises(ModuleNotFoundError, match=r"needs the package 'poselib'; .*xdesc-jax\[poselib\]"):
        estimator("poselib")
    asked = ["--data", str(posed), "--out", str(tmp_path / "out"), "--ransac", "poselib"]
    assert cli.main(["benchmark", "run", "relative-pose", *asked]) == 2
    assert "needs the package 'poselib'; install it with: pip install 'xdesc-jax[poselib]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_poselib_serves_the_benchmark_and_is_another_result_than_colmap_s(posed, tmp_path):
    pytest.importorskip("poselib", reason="needs the poselib extra")
    asked = {"data": posed, "out": tmp_path / "out", "features": (write_features(tmp_path / "f"),)}
    rows = run(**asked, descriptors=("own-a",), ransac="poselib").rows
    assert rows[0].values["AUC 5 deg"] > 99 and rows[0].values["inliers"] == 60
    with pytest.raises(FileExistsError):
        run(**asked, descriptors=("own-a",))
