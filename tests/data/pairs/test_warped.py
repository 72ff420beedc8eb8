"""Pairs of patches from warped photos, and the stages that write pairs and scenes."""

import cv2
import numpy as np
import pytest

from xdesc_jax.data import open_source
from xdesc_jax.data.pairs.pairs import pairs
from xdesc_jax.data.pairs.warped import (
    WarpedPairs,
    WarpedSettings,
    displaced,
    mutual,
    pairs_of_photo,
    places,
    residuals,
)
from xdesc_jax.data.scenes import scenes
from xdesc_jax.features.keypoints import Keypoints
from xdesc_jax.features.warp import WarpSettings

SETTINGS = WarpedSettings(views=2, pairs=60, warp=WarpSettings(zoom=(0.7, 1.2), max_tilt=1.5))


def photo(seed):
    rng = np.random.default_rng(seed)
    blobs = cv2.GaussianBlur(rng.normal(size=(230, 310)), (0, 0), 3)
    return cv2.normalize(blobs, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    for i, name in enumerate(("a.png", "b é.png", "sub/c.png")):
        (root / name).parent.mkdir(exist_ok=True)
        cv2.imwrite(str(root / name), photo(i))
    cv2.imwrite(str(root / "wall.png"), np.full((100, 120), 255, np.uint8))
    return root


def keypoints(n, seed=0):
    rng = np.random.default_rng(seed)
    return Keypoints(rng.uniform(0, 300, (n, 2)), rng.uniform(1, 9, n), rng.uniform(-3, 3, n))


def test_displacing_by_residuals_gives_back_what_was_found():
    expected, found = keypoints(41), keypoints(41, 1)
    moved = displaced(expected, residuals(expected, found))
    np.testing.assert_allclose(moved.xy, found.xy, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(moved.scales, found.scales, rtol=1e-4)
    np.testing.assert_allclose(np.exp(1j * moved.oris), np.exp(1j * found.oris), atol=1e-5)


def test_keypoints_match_where_position_scale_and_orientation_all_fit():
    expected = Keypoints(np.array([[50.0, 50.0], [90.0, 20.0]]), np.array([3.0, 4.0]), np.array([0.1, 3.1]))
    near = Keypoints(
        np.array([[50.5, 49.5], [50.5, 49.5], [50.5, 49.5], [90.0, 21.0]]),
        np.array([9.0, 3.2, 3.0, 4.2]),
        np.array([0.1, 0.15, 2.0, -3.1]),  # too large, right, turned away, right across +-pi
    )
    rows, columns = mutual(expected, near)
    assert rows.tolist() == [0, 1] and columns.tolist() == [1, 3]
    assert [len(x) for x in mutual(expected, keypoints(0))] == [0, 0]


def test_one_place_has_one_number_whatever_its_orientations():
    found = Keypoints(
        np.array([[10.0, 10.0], [10.0, 10.0], [11.0, 10.0], [10.0, 10.0], [60.0, 60.0]]),
        np.array([2.0, 2.0, 2.1, 5.0, 2.0]),
        np.array([0.0, 2.0, 0.0, 0.0, 0.0]),
    )
    numbers = places(found)
    assert numbers[0] == numbers[1] == numbers[2]
    assert len({numbers[0], numbers[3], numbers[4]}) == 3


def test_both_patches_of_a_pair_show_the_same():
    made = pairs_of_photo(photo(5), SETTINGS, np.random.default_rng(0))
    count = len(made["patch"])
    assert 20 <= count <= SETTINGS.pairs
    a, b = (p.reshape(count, -1).astype(float) for p in (made["patch"], made["pair"]))
    alike = np.corrcoef(a, b)[:count, count:]
    assert np.median(np.diag(alike)) > 0.6 > 0.3 > np.abs(np.median(alike))
    assert (alike.argmax(axis=1) == np.arange(count)).mean() > 0.5


def test_a_photo_without_keypoints_gives_no_pairs():
    made = pairs_of_photo(np.full((90, 80), 7, np.uint8), SETTINGS, np.random.default_rng(0))
    assert made["patch"].shape == (0, 32, 32) and made["residual"].shape == (0, 4)


def test_points_of_different_photos_have_different_numbers_and_passes_agree(folder, tmp_path):
    source = WarpedPairs(folder, SETTINGS, tmp_path)
    first = dict(source.rows())
    again = dict(source.rows())
    assert list(first) == ["a.png", "b é.png", "sub/c.png", "wall.png"]
    for name, rows in first.items():
        for column, values in rows.items():
            np.testing.assert_array_equal(values, again[name][column])
    numbers = [set(rows["point"].tolist()) for rows in first.values()]
    assert sum(map(len, numbers)) == len(set.union(*numbers))
    assert len(source.residuals) and np.median(np.abs(source.residuals[:, :2])) < 0.5


def test_two_processes_make_the_same_records_as_one(folder, tmp_path):
    infos = [
        pairs(tmp_path / f"{n}", photos=folder, warped=SETTINGS, format="npy", validation_share=0.3, processes=n)
        for n in (1, 2)
    ]
    assert infos[0].has_pairs and infos[0].counts == infos[1].counts and infos[0].counts["validation"] > 0
    for split in ("train", "validation"):
        one, two = (next(iter(open_source(i.path, split, 8, remainder="pad").epoch(0))) for i in infos)
        assert set(one) == {"patch", "pair", "point", "photo", "mask"}
        for name, values in one.items():
            np.testing.assert_array_equal(values, two[name])


def test_finished_pairs_are_found_and_others_refused(folder, tmp_path, capsys):
    pairs(tmp_path / "p", photos=folder, warped=SETTINGS, format="npy")
    pairs(tmp_path / "p", photos=folder, warped=SETTINGS, format="npy")
    assert "up to date" in capsys.readouterr().out
    with pytest.raises(FileExistsError, match="another configuration"):
        pairs(tmp_path / "p", photos=folder, warped=SETTINGS, format="npy", seed=1)


@pytest.mark.parametrize("settings", [{"views": 0}, {"pairs": 0}, {"carried_share": 1}])
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        WarpedSettings(**settings)


def test_scenes_are_what_the_evaluation_takes(folder, tmp_path):
    pytest.importorskip("h5py")
    from xdesc_jax.evaluate.scenes import find_scenes

    out = scenes(tmp_path / "s", photos=folder, views=2, limit=2, validation_share=None)
    found = find_scenes(out)
    assert len(found) == 2 and all(len(scene.pairs) == 2 for scene in found)
    assert scenes(tmp_path / "s", photos=folder, views=2, limit=2, validation_share=None) == out
    with pytest.raises(FileExistsError):
        scenes(tmp_path / "s", photos=folder, views=3, limit=2, validation_share=None)


def test_scenes_use_the_photos_kept_out_of_training(folder, tmp_path):
    info = pairs(tmp_path / "p", photos=folder, warped=SETTINGS, format="npy", validation_share=0.3)
    rows = open_source(info.path, "validation", 1).epoch(0)
    kept = {info.photos[int(batch["photo"][0])] for batch in rows}
    out = scenes(tmp_path / "s", photos=folder, views=1, limit=None, validation_share=0.3)
    names = {p.name.split("-", 1)[1] for p in out.iterdir() if p.is_dir()}
    assert {name.rsplit("/")[-1].removesuffix(".png") for name in kept} <= names


def test_scenes_without_a_photo_kept_out_of_training_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match=r"none of its \d+ photos is kept out .* share of 0"):
        scenes(tmp_path / "s", photos=folder, validation_share=0)
    assert not (tmp_path / "s").exists()


def test_pairs_come_from_photos_or_from_places(folder, tmp_path):
    for sources in ({}, {"photos": folder, "multiview": folder}):
        with pytest.raises(ValueError, match="name one of the two"):
            pairs(tmp_path / "p", **sources)
