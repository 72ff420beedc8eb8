"""`xdesc show` on localised queries: what is drawn of a photo and of the map, and what it says."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from tests.support.html_page import HtmlPage
from tests.support.place import rewrite
from xdesc_jax.cli import main
from xdesc_jax.colmap.model import Pose
from xdesc_jax.inspection.query_drawing import Scene, View, map_axes
from xdesc_jax.inspection.query_page import place_text
from xdesc_jax.inspection.shown_queries import ShownQueries
from xdesc_jax.localization.correspondences import FILE


def photo_of(path, size):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(len(path.name)).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC).save(path)


@pytest.fixture(scope="module")
def localized(place, tmp_path_factory):
    """A folder of `xdesc localize` in which the first query was localised and the second failed, and the photos."""
    folder = tmp_path_factory.mktemp("localized")
    good, bad = place.queries
    rng = np.random.default_rng(0)

    def some_moved(name, photo):
        if name == bad:
            keypoints = rng.uniform(0, 700, photo.keypoints.shape).astype(np.float32)
        else:
            keypoints = photo.keypoints.copy()
            keypoints[:40] += 60  # outliers
        return dataclasses.replace(photo, keypoints=keypoints)

    features = rewrite(place.features["own-a"], folder / "q.h5", some_moved)
    (folder / "queries.txt").write_text(place.query_list)
    words = ["localize", place.model, folder / "out", "--features", place.features["own-a"]]
    words += ["--queries", folder / "queries.txt", "--query-features", features, "--pairs", "exhaustive"]
    words += ["--min-inliers", 30]
    assert main([str(word) for word in words]) == 0
    for name in place.queries:
        photo_of(folder / "photos" / name, (place.cameras[name].width, place.cameras[name].height))
    return folder


@pytest.fixture
def copied(localized, tmp_path):
    """The same, to be changed."""
    shutil.copytree(localized / "out", tmp_path / "out")
    return tmp_path / "out"


def run(*words):
    return main(["show", *map(str, words)])


def refused(capsys, *words):
    assert run(*words) == 2
    return " ".join(capsys.readouterr().err.split())


def test_inliers_and_their_points_are_those_that_the_pose_explains(localized, place):
    shown = ShownQueries.read(localized / "out")
    query = shown.queries[place.queries[0]]
    assert query.inliers == query.matched.inlier.sum() and 70 < query.inliers < query.matches == 120
    pose, camera = place.poses[query.name], place.cameras[query.name]
    scene = shown.scene(query)
    seen = scene.seen @ pose.rotation.T + pose.translation
    f, cx, cy, k = camera.params
    u = seen[:, :2] / seen[:, 2:]
    projected = f * u * (1 + k * (u**2).sum(axis=1, keepdims=True)) + [cx, cy] - 0.5
    distance = np.linalg.norm(projected[:, None] - query.matched.xy[query.matched.inlier], axis=2)
    assert distance.min(axis=1).max() < 1 and distance.min(axis=0).max() < 1
    assert (~query.matched.inlier).sum() == query.matches - query.inliers
    np.testing.assert_allclose(query.view.half, (camera.width / 2 / f, camera.height / 2 / f))
    assert len(scene.cameras) == len(place.names)
    np.testing.assert_allclose(scene.query.pose.center, pose.center, atol=1e-2)


def test_the_page_shows_photo_and_map_and_says_why_a_query_failed(localized, place, tmp_path):
    out = tmp_path / "page.html"
    assert run(localized / "out", "--photos", localized / "photos", "--out", out) == 0
    page = HtmlPage.read(out)
    page.check()
    good, bad = place.queries
    results = json.loads((localized / "out" / "results.json").read_text())["queries"]
    inliers, matches = results[good]["inliers"], results[good]["matches"]
    assert page.by_class["answer"] == [f"1 of 2 queries localised, with a median of {inliers} inliers."]
    assert f"{inliers} inliers of {matches} matches to 3D points; median error 0.0" in page.text
    assert f"Failed: {results[bad]['reason']}." in page.text
    shown = [found["alt"] for tag, found in page.tags if tag == "img"]
    assert [alt.split()[0] for alt in shown] == ["Errors", "Photo", "Map", "Photo"]
    assert [good, str(inliers), str(matches)] in [row[:3] for row in page.rows]


def test_a_picture_shows_one_query_and_another_query_otherwise(localized, place, tmp_path):
    pictures = []
    for number, name in enumerate(place.queries):
        out = tmp_path / f"{number}.jpg"
        assert run(localized / "out", "--photos", localized / "photos", "--query", name, "--out", out) == 0
        with Image.open(out) as image:
            assert image.format == "JPEG" and min(image.size) > 1000
            pictures.append(np.asarray(image.convert("L").resize((200, 200)), float))
    assert pictures[0].std() > 20 and np.abs(pictures[0] - pictures[1]).mean() > 1


def test_results_of_earlier_versions_say_what_to_do(copied, localized, capsys):
    (copied / FILE).unlink()
    text = refused(capsys, copied, "--photos", localized / "photos")
    assert f"{copied / FILE}: is missing" in text and "`xdesc localize`, run again with the same settings" in text


def test_a_map_that_moved_is_named_and_another_one_refused(copied, localized, place, capsys, tmp_path):
    results = json.loads((copied / "results.json").read_text())
    results["paths"]["reconstruction"] = str(tmp_path / "gone")
    (copied / "results.json").write_text(json.dumps(results))
    assert "--map names another" in refused(capsys, copied, "--photos", localized / "photos")
    other = tmp_path / "other"
    shutil.copytree(place.model, other)
    assert ShownQueries.read(copied, other).reconstruction == other
    with (other / "points3D.bin").open("ab") as file:
        file.write(b"more")
    text = refused(capsys, copied, "--photos", localized / "photos", "--map", other)
    assert f"{other}: is another model than the one of" in text


def test_photos_of_another_size_are_refused(copied, localized, place, capsys, tmp_path):
    for name in place.queries:
        photo_of(tmp_path / "small" / name, (320, 240))
    text = refused(capsys, copied, "--photos", tmp_path / "small")
    assert "has 320 x 240 px, but the features of" in text and not (copied / "show.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--query", "none.png"], "has no query 'none.png'; it has 2"),
        (["--pair", "a", "b"], "localised queries are shown alone"),
        (["--min-score", "0.5"], "--descriptor are for matches, not for queries"),
    ],
)
def test_what_cannot_be_shown_is_one_line(localized, capsys, words, message):
    assert message in refused(capsys, localized / "out", "--photos", localized / "photos", *words)


def test_a_folder_without_results_is_refused(localized, tmp_path, capsys):
    text = refused(capsys, tmp_path, "--photos", localized / "photos")
    assert "results.json: no such file, expected the folder that `xdesc localize` wrote" in text


def test_those_that_failed_are_shown_with_the_best_and_the_worst(localized):
    shown = ShownQueries.read(localized / "out")
    good, bad = shown.queries.values()
    several = {f"g{i}": dataclasses.replace(good, name=f"g{i}", inliers=100 - i) for i in range(9)}
    several |= {f"b{i}": dataclasses.replace(bad, name=f"b{i}") for i in range(5)}
    many = dataclasses.replace(shown, queries=several)
    assert [q.name for q in many.chosen((), 6)] == ["g0", "g1", "g8", "b0", "b1", "b2"]
    assert [q.name for q in many.chosen(("b4", "g3", "b4"), 1)] == ["b4", "g3"]
    assert len(many.chosen((), 99)) == 14


def test_the_map_lies_across_the_picture_with_the_cameras_looking_up_in_it():
    """A wall along the world's z, seen by cameras whose downward direction is the world's -y."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(400, 3)) * [0.1, 1, 8]
    rotation = np.array([[0, 0, 1], [0, -1, 0], [1, 0, 0]], float)  # right z, down -y, ahead x
    assert np.linalg.det(rotation) == pytest.approx(1)
    views = [View(Pose(rotation, -rotation @ [-5, 0, z]), (0.5, 0.4)) for z in (-3.0, 0.0, 3.0)]
    axes = map_axes(points, views)
    np.testing.assert_allclose(axes, [[0, 0, 1], [0, -1, 0], [1, 0, 0]], atol=0.1)
    scene = Scene(points, views, views[0], points[:5])
    corners = scene.query.corners(2.0)
    np.testing.assert_allclose(corners[:, 0], -3)
    np.testing.assert_allclose(sorted(corners[:, 2]), [-4, -4, -2, -2])


def test_a_spherical_camera_is_drawn_as_one_of_90_degrees():
    here = Pose(np.eye(3), np.zeros(3))
    assert View.of(here, (2000, 1000), 0.0) == View(here, (1.0, 0.5))
    assert View.of(here, (800, 600), 500.0) == View(here, (0.8, 0.6))


@pytest.mark.parametrize(
    ("center", "told"),
    [
        ([451234.56, 5411987.125, -31.5], "451234.56, 5411987.12, -31.5"),
        ([0.00012345678, 0, 2.5], "0.00012345678, 0, 2.5"),
    ],
)
def test_a_position_far_from_the_origin_keeps_its_digits(center, told):
    assert place_text(np.array(center)) == told
