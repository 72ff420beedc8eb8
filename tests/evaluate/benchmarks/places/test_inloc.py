"""The benchmark of InLoc, on a synthetic room in its layout."""

import numpy as np
import pytest
from scipy.io import savemat

from tests.support import inloc_folder
from tests.support.inloc_folder import PHOTOS, POINTS, QUERIES, SIZE, write_features, write_folder, write_pairs
from tests.support.place import exact_translator
from tests.support.stopped import Calls, Stopped
from xdesc_jax import cli
from xdesc_jax.colmap.lists import read_poses, write_poses
from xdesc_jax.evaluate.benchmarks import tables
from xdesc_jax.evaluate.benchmarks.places import inloc, inloc_data
from xdesc_jax.evaluate.benchmarks.places.inloc import run

BEST = "all 0.25 m, 10 deg"


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """The folder, and the list of pairs."""
    base = tmp_path_factory.mktemp("inloc")
    return {"data": write_folder(base / "data"), "pairs": write_pairs(base / "pairs.txt"), "max_error_px": 1.0}


def truth(path):
    return write_poses(path, {name.rsplit("/", 1)[1]: inloc_folder.pose(name) for name in QUERIES})


def test_exact_features_localise_all_queries_in_every_scenario(room, tmp_path):
    model, files = exact_translator().save(tmp_path / "m.safetensors"), (write_features(tmp_path / "f"),)
    result = run(**room, out=tmp_path / "out", model=model, features=files, reference=truth(tmp_path / "true.txt"))
    assert [row.name for row in result.rows] == [
        "standard: own-a", "standard: own-b", "continuous deployment: own-a -> own-b",
        "continuous deployment: own-b -> own-a", "cross-device: own-a <- own-b", "cross-device: own-b <- own-a",
    ]  # fmt: skip
    for row in result.rows:
        assert row.values[BEST] == row.values["all localised"] == 100, row
        # of the photo that shares all rows, and not of the one that shares half of them
        assert row.values["all inliers"] > 0.9 * POINTS
    poses = read_poses(tmp_path / "out/submissions/cross-device_own-a_from_own-b.txt")
    for query in QUERIES:
        np.testing.assert_allclose(
            poses[query.rsplit("/", 1)[1]].center, inloc_folder.pose(query).center, atol=0.01
        )  # fmt: skip
    assert not result.official and "3 photos and 2 queries, where the set has 9972" in result.data["other"][0]


def test_shuffled_rows_localise_nothing(room, tmp_path):
    files = (write_features(tmp_path / "f", shuffled=True),)
    asked = {**room, "features": files, "descriptors": ("own-a",), "ratio": None}
    (row,) = run(**asked, out=tmp_path / "out", reference=truth(tmp_path / "true.txt")).rows
    assert row.values[BEST] == 0


def test_scans_with_holes_localise_by_their_nearest_points(room, tmp_path):
    data = write_folder(tmp_path / "data", holes=True)
    asked = {**room, "data": data, "max_error_px": 3.0, "features": (write_features(tmp_path / "f"),)}
    (row,) = run(**asked, out=tmp_path / "out", descriptors=("own-a",), reference=truth(tmp_path / "t.txt")).rows
    assert row.values[BEST] == 100 and row.values["all inliers"] < POINTS


def test_points_are_interpolated_as_a_plain_loop_does():
    rng = np.random.default_rng(0)
    scan = rng.normal(size=(5, 7, 3))
    scan[2, 3] = np.nan
    xy = np.vstack(
        [rng.uniform(0, [6, 4], (40, 2)), [[0, 0], [6, 4], [3, 2], [2.6, 2.1], [2.4, 2.1], [-0.4, 4.4], [7, 1]]]
    )
    for (x, y), found in zip(xy, inloc_data.points_at(scan, xy), strict=True):
        if not (-0.5 <= x <= 6.5 and -0.5 <= y <= 4.5):
            assert np.isnan(found).all()
            continue
        x, y = min(max(x, 0), 6), min(max(y, 0), 4)
        expected = np.zeros(3)
        for row in range(5):
            for column in range(7):
                weight = max(0, 1 - abs(x - column)) * max(0, 1 - abs(y - row))
                expected = expected + weight * scan[row, column] if weight else expected
        if np.isnan(expected).any():
            expected = scan[round(y), round(x)]
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_run_that_was_stopped_goes_on_with_the_queries_that_are_left(room, tmp_path, monkeypatch):
    asked = {**room, "out": tmp_path / "out", "features": (write_features(tmp_path / "f"),), "descriptors": ("own-a",)}
    calls = Calls(monkeypatch, inloc, "pose_of")
    calls.until = 4  # three photos a query
    with pytest.raises(Stopped):
        run(**asked)
    calls.done, calls.until = 0, None
    first = run(**asked)
    assert calls.done == 3
    assert run(**asked) == first and calls.done == 3
    with pytest.raises(FileExistsError, match="another configuration"):
        run(**asked, seed=1)


def test_what_is_missing_is_told(tmp_path, capsys):
    data = write_folder(tmp_path / "data")
    assert cli.main(["benchmark", "check", "inloc", "--data", str(data)]) == 0
    assert "3 photos of 3 scans, 2 queries" in " ".join(capsys.readouterr().out.split())
    (data / f"{PHOTOS[1]}.mat").unlink()
    (data / "database/alignments/DUC2/transformations/DUC_trans_007.txt").unlink()
    assert inloc_data.check(data).problems == (
        f"{PHOTOS[1]}.mat is missing", "database/alignments/DUC2/transformations/DUC_trans_007.txt is missing",
    )  # fmt: skip
    assert inloc_data.check(tmp_path).problems == ("no photo in database/cutouts", "no photo in query/iphone7")
    with pytest.raises(ValueError, match="is missing"):
        run(data=data, out=tmp_path / "out")


def test_the_published_set_is_known_by_its_counts(room, monkeypatch):
    assert not inloc_data.check(room["data"]).official
    monkeypatch.setattr(inloc_data, "PHOTOS", 3)
    monkeypatch.setattr(inloc_data, "QUERY_COUNTS", (2,))
    assert inloc_data.check(room["data"]).official


def test_files_that_are_no_scans_are_told(tmp_path):
    path = tmp_path / "a.mat"
    path.write_bytes(b"no matlab file at all, but long enough to be one" * 9)
    with pytest.raises(ValueError, match="a.mat: not a readable MATLAB file"):
        inloc_data.read_scan(path)
    savemat(path, {"XYZcut": np.zeros((4, 5))})
    with pytest.raises(ValueError, match=r"XYZcut is \(4, 5\), expected \[H, W, 3\]"):
        inloc_data.read_scan(path)
    savemat(path, {"other": np.zeros((4, 5, 3))})
    with pytest.raises(ValueError, match="XYZcut is missing"):
        inloc_data.read_scan(path)
    text = tmp_path / "t.txt"
    text.write_text("P_after_GICP\n1 0 0 0\n0 1 0 0\n0 0 1 0\n")
    with pytest.raises(ValueError, match="t.txt: expected matrices of four rows"):
        inloc_data.read_alignment(text)


def test_the_phone_has_the_camera_of_the_benchmark(room):
    place = inloc_data.parts(room["data"])
    cameras = place.cameras({"a": (4032, 3024), "b": (1200, 1600)})
    assert cameras["a"].params == (3136, 2016, 1512)
    assert cameras["b"].params == pytest.approx((3136 * 1600 / 4032, 600, 800))
    with pytest.raises(ValueError, match="a: the size of the photo is not known"):
        place.cameras({"a": (0, 0)})
    assert place.cameras({QUERIES[0]: SIZE})[QUERIES[0]].params[0] == pytest.approx(inloc_folder.FOCAL)


def test_rows_have_the_papers_names():
    paper = tables.paper()["inloc"]["rows"]
    assert {"standard: SIFT", "continuous deployment: SIFT -> SOSNet", "cross-device: SIFT <- BRIEF"} <= set(paper)
