"""The demo's own parts: views of photos with known ground truth."""

import dataclasses

import cv2
import numpy as np
import pytest
import skimage.data

from pipelines.demo import DemoSettings, held_out, localise_learned, stereo_pair, write_photos
from pipelines.views import ViewSettings, change_appearance, random_homography, random_view, write_scene
from xdesc_jax.evaluate.scenes import by_homography, find_scenes

PLAIN = ViewSettings(gain=0, offset=0, blur_px=0, noise=0)
WIDTH, HEIGHT = 211, 157


@pytest.mark.parametrize("seed", range(6))
def test_views_show_only_the_inside_of_the_photo(seed):
    matrix = random_homography(np.random.default_rng(seed), WIDTH, HEIGHT, 1.0, ViewSettings())
    corners = np.array([[0, 0], [WIDTH - 1, 0], [WIDTH - 1, HEIGHT - 1], [0, HEIGHT - 1]], float)
    seen = by_homography(np.linalg.inv(matrix))(corners)
    assert (seen >= -1e-3).all() and (seen <= np.array([WIDTH - 1, HEIGHT - 1]) + 1e-3).all()


def test_a_spot_appears_where_the_homography_puts_it():
    photo = np.zeros((HEIGHT, WIDTH), np.uint8)
    spot = np.array([[100.0, 70.0]])
    cv2.circle(photo, (100, 70), 4, 255, -1)
    for seed in range(4):
        view, matrix = random_view(np.random.default_rng(seed), photo, 0.5, PLAIN)
        moments = cv2.moments(view)
        center = np.array([moments["m10"], moments["m01"]]) / moments["m00"]
        np.testing.assert_allclose(center, by_homography(matrix)(spot)[0], atol=0.3)


def test_no_strength_leaves_the_photo_as_it_is():
    photo = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    view, matrix = random_view(np.random.default_rng(1), photo, 0.0, ViewSettings())
    np.testing.assert_array_equal(view, photo)
    np.testing.assert_allclose(matrix, np.eye(3), atol=1e-6)


def test_light_saturates_instead_of_wrapping():
    photo = np.array([[0, 255]], np.uint8)
    rng = np.random.default_rng(0)
    for _ in range(20):
        dark, bright = change_appearance(rng, photo, 1.0, ViewSettings(blur_px=0))[0].astype(int)
        assert dark < 100 and bright > 155


def test_scenes_are_written_in_the_layout_that_evaluation_reads(tmp_path):
    photo = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH), np.uint8)
    write_scene(tmp_path / "noise", photo, 3, np.random.default_rng(7), ViewSettings())
    (scene,) = find_scenes(tmp_path)
    assert [pair.database for pair in scene.pairs] == ["noise/2.png", "noise/3.png", "noise/4.png"]
    rng, points = np.random.default_rng(7), np.array([[3.0, 4.0], [150, 120]])
    for k, pair in enumerate(scene.pairs):
        view, matrix = random_view(rng, photo, (k + 1) / 3, ViewSettings())
        np.testing.assert_array_equal(cv2.imread(str(tmp_path / pair.database), cv2.IMREAD_GRAYSCALE), view)
        np.testing.assert_array_equal(pair.correspondence(points), by_homography(matrix)(points))


SMALL = DemoSettings(training_views=2, test_views=2, training_photos=("text", "page"), test_photos=("coins",))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("demo") / "photos", SMALL)


def test_photos_are_views_to_train_on_scenes_and_the_stereo_pair(photos):
    found = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    assert found == [
        *(f"stereo/motorcycle/{side}.png" for side in ("left", "right")),
        *(f"train/{name}/{k}.png" for name in ("page", "text") for k in (1, 2)),
        *(f"warped/coins/{k}.png" for k in (1, 2, 3)),
    ]


def test_photos_are_written_once_and_other_settings_refused(photos):
    before = (photos / "train/page/2.png").stat().st_mtime_ns
    assert write_photos(photos, SMALL) == photos
    assert (photos / "train/page/2.png").stat().st_mtime_ns == before
    with pytest.raises(FileExistsError):
        write_photos(photos, dataclasses.replace(SMALL, seed=1))


def test_no_photo_is_both_trained_and_tested_on():
    assert not set(DemoSettings().training_photos) & set(DemoSettings().test_photos)


def test_disparity_leads_from_the_left_photo_to_the_right_one(photos):
    """Patches where the disparity says they are look alike, and far less so with its sign turned."""
    stereo = held_out(photos)["stereo"]
    left, right = (photo.astype(np.float32) for photo in stereo.gray())
    xy = np.random.default_rng(0).uniform([80, 20], [left.shape[1] - 80, left.shape[0] - 20], (400, 2)).round()
    expected = stereo.drawn.correspondence(xy)
    xy, expected = xy[~np.isnan(expected).any(axis=1)], expected[~np.isnan(expected).any(axis=1)]
    assert len(xy) > 300

    def median_difference(moved):
        patches = [
            np.abs(cv2.getRectSubPix(left, (9, 9), a) - cv2.getRectSubPix(right, (9, 9), b)).mean()
            for a, b in zip(xy.astype(float), moved.astype(float), strict=True)
        ]
        return np.median(patches)

    assert median_difference(expected) < 0.4 * median_difference(2 * xy - expected)


def test_the_stereo_pair_is_read_once(tmp_path, monkeypatch):
    read = []
    original = skimage.data.stereo_motorcycle
    monkeypatch.setattr(skimage.data, "stereo_motorcycle", lambda: read.append(1) or original())
    stereo_pair.cache_clear()
    photos = write_photos(tmp_path / "photos", SMALL)
    for _ in range(2):
        held_out(photos)
    assert len(read) == 1


def test_where_xfeat_is_not_installed_the_demo_says_so_and_goes_on(photos, tmp_path, monkeypatch, caplog):
    def lacking(name):
        raise ValueError(f"{name} is computed with torch, which is not installed")

    monkeypatch.setattr("pipelines.demo.require_learned", lacking)
    caplog.set_level("INFO")
    assert localise_learned(photos / "stereo", tmp_path / "learned") == [] and not (tmp_path / "learned").exists()
    assert "without XFeat (xfeat is computed with torch, which is not installed)" in caplog.text
