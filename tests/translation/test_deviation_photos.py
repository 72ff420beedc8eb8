"""Real descriptors: photos of any kind pass as what they are, other implementations and orders do not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from xdesc_jax.descriptors import from_stored, get_spec
from xdesc_jax.translation.deviation import Deviation, RowStatistics

NAMES = ("brief", "sift", "sift-kornia05")
TRAINING = {"bsds": 30, "imagenet": 28, "urban": 10, "wallpapers": 4}
OTHER = {"bsds": 16, "imagenet": 16, "urban": 10, "wallpapers": 4}


@dataclasses.dataclass
class Rows:
    """Canonical float32 rows of each descriptor, and photo and kind of each row."""

    of: dict[str, np.ndarray]
    photo: np.ndarray
    kind: np.ndarray

    def photos(self, name):
        """Rows of each photo with enough of them."""
        photos = [self.of[name][self.photo == i] for i in np.unique(self.photo)]
        return [rows for rows in photos if len(rows) >= 64]


def describe(paths, max_keypoints):
    """Descriptors at OpenCV's keypoints of photos given as (kind, path)."""
    pytest.importorskip("cv2")
    from xdesc_jax.features.describe import describe_patches
    from xdesc_jax.features.photo import ExtractSettings, detect_photo

    settings = ExtractSettings(NAMES, keypoints="opencv", max_keypoints=max_keypoints)
    found = [detect_photo(path, settings) for _, path in paths]
    patches = np.concatenate([photo.patches[photo.valid] for photo in found])
    counts = [int(photo.valid.sum()) for photo in found]
    stored = describe_patches(NAMES, patches, {})
    return Rows(
        {n: from_stored(x, get_spec(n)).astype(np.float32) for n, x in stored.items()},
        np.repeat(np.arange(len(paths)), counts),
        np.repeat([kind for kind, _ in paths], counts),
    )


@pytest.fixture(scope="module")
def photos(shared):
    """Paths of the photos of each kind."""
    folder = shared / "data" / "train" / "photos"
    if not folder.is_dir():
        pytest.skip(f"no photos at {folder}")
    return {kind: sorted(p for p in (folder / kind).rglob("*") if p.is_file()) for kind in TRAINING}


@pytest.fixture(scope="module")
def statistics(photos):
    rows = describe([(kind, p) for kind, n in TRAINING.items() for p in photos[kind][:n]], 200)
    return {name: RowStatistics.of(rows.of[name], rows.photo) for name in NAMES}


@pytest.fixture(scope="module")
def others(photos):
    return describe([(kind, p) for kind, n in OTHER.items() for p in photos[kind][-n:]], 300)


def message(statistics, x):
    deviation = Deviation(statistics, scaled=False)
    deviation.update(x)
    return deviation.message()


@pytest.mark.parametrize("name", NAMES)
def test_other_photos_pass(statistics, others, name):
    assert len(others.of[name]) >= 8192
    assert message(statistics[name], others.of[name]) is None


@pytest.mark.parametrize("name", NAMES)
def test_photos_of_one_kind_and_single_photos_pass(statistics, others, name):
    kinds = [others.of[name][others.kind == kind] for kind in OTHER]
    found = [message(statistics[name], rows) for rows in kinds + others.photos(name)]
    assert [text for text in found if text is not None] == []


@pytest.mark.parametrize("given, name", [("sift-kornia05", "sift"), ("sift", "sift-kornia05")])
def test_a_grid_one_pixel_off_is_told(statistics, others, given, name):
    assert "another implementation" in message(statistics[name], others.of[given])


def test_bins_in_opencvs_order_are_told_from_one_photo(statistics, others):
    angle, y, x = np.unravel_index(np.arange(128), (8, 4, 4))
    reordered = np.argsort((y * 4 + x) * 8 + (-angle) % 8)
    for rows in others.photos("sift"):
        assert "other order" in message(statistics["sift"], rows[:, reordered])


def test_bits_in_the_other_order_are_told_from_some_photos(statistics, others):
    swapped = others.of["brief"].reshape(-1, 64, 8)[:, :, ::-1].reshape(-1, 512)
    for rows in np.array_split(swapped, 5):
        assert "other order" in message(statistics["brief"], rows)
