"""OpenCV's descriptors at given keypoints, against OpenCV and against what happens to the photo."""

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.support.textures import texture
from xdesc_jax.descriptors import from_stored, get_entry, get_spec, resolve, stored
from xdesc_jax.features.frames import ORB_SIGMAS, of_opencv
from xdesc_jax.features.keypoints import Keypoints, detect_opencv, empty
from xdesc_jax.features.opencv_descriptors import PATTERNS, describe_orb, orb_level
from xdesc_jax.features.photo import ExtractSettings, extract_photo

NAMES = (
    "orb", "brisk", "freak", "latch", "beblid-256", "beblid-512", "teblid-256", "teblid-512",
    "boostdesc-binboost-64", "boostdesc-binboost-128", "boostdesc-binboost-256", "boostdesc-lbgm", "daisy", "vgg",
)  # fmt: skip
BINARY = [name for name in NAMES if get_spec(name).binary]


def describe(name: str, gray: np.ndarray, keypoints: Keypoints) -> tuple[np.ndarray, np.ndarray]:
    return resolve(get_entry(name).describe)(gray, keypoints)


def distances(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Between all rows, [N, M]: share of bits that differ, or L2 distance."""
    spec = get_spec(name)
    a, b = (from_stored(x, spec).astype(np.float32) for x in (a, b))
    squared = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None] - 2 * a @ b.T
    return squared / spec.width if spec.binary else np.sqrt(np.maximum(squared, 0))


def inner(gray: np.ndarray, sigmas: float = 14) -> Keypoints:
    """Some keypoints of distinct positions whose surroundings lie in the photo."""
    keypoints = detect_opencv(gray, 120)
    _, first = np.unique(keypoints.xy, axis=0, return_index=True)  # brisk does not tell orientations apart
    keypoints = keypoints.take(np.sort(first))
    margin = sigmas * keypoints.scales[:, None]
    limit = np.array([gray.shape[1] - 1, gray.shape[0] - 1])
    return keypoints.take(((keypoints.xy >= margin) & (keypoints.xy <= limit - margin)).all(axis=1))


# --- Rows and forms --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_rows_have_the_form_that_the_spec_says(name):
    gray, spec = texture(201, 263), get_spec(name)
    rows, valid = describe(name, gray, detect_opencv(gray, 40))
    assert rows.shape == (40, spec.stored_width) and rows.dtype == spec.stored_dtype
    assert valid.dtype == bool and valid.all()
    np.testing.assert_allclose(stored(from_stored(rows, spec), spec), rows, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_permuted_keypoints_permute_rows(name):
    gray = texture(201, 263)
    points = detect_opencv(gray, 60)
    rows, valid = describe(name, gray, points)
    order = np.random.default_rng(0).permutation(len(points))
    again, valid_again = describe(name, gray, points.take(order))
    np.testing.assert_array_equal(again, rows[order])
    np.testing.assert_array_equal(valid_again, valid[order])


@pytest.mark.parametrize("name", NAMES)
def test_rows_do_not_depend_on_the_other_rows(name):
    gray = texture(201, 263)
    points = detect_opencv(gray, 60)
    rows, _ = describe(name, gray, points)
    assert (points.scales > 4).any()
    for part in (np.flatnonzero(points.scales > 4), np.array([30])):
        np.testing.assert_array_equal(describe(name, gray, points.take(part))[0], rows[part])


@pytest.mark.parametrize("name", NAMES)
def test_border_keypoints_keep_their_rows(name):
    gray = texture(97, 121)
    xy = [[0, 0], [120, 96], [0.5, 96], [119.5, 0.5], [60, 48], [60, 48]]
    points = Keypoints(xy, [1.5, 1.5, 2, 40, 2, 120], [0.3, 4, 2, 1, 0, 0])
    rows, valid = describe(name, gray, points)
    assert len(rows) == len(valid) == 6 and valid[4]
    np.testing.assert_array_equal(rows.any(axis=1), valid)
    np.testing.assert_array_equal(describe(name, gray, points.take(np.array([4])))[0], rows[4:5])


@pytest.mark.parametrize("name", NAMES)
def test_keypoints_outside_and_vast_regions_are_not_valid(name):
    gray = texture(61, 91)
    xy = [[45, 30], [-1, 30], [45, 1e9], [-1e30, 3e38], [91, 30], [45, 30], [45, 30], [45, 30]]
    points = Keypoints(xy, [2, 2, 2, 2, 2, 92, 3e38, 1e-30], np.zeros(8))
    rows, valid = describe(name, gray, points)
    assert valid[:7].tolist() == [True] + [False] * 6
    assert not rows[~valid].any() and np.isfinite(rows).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (40, 17)])
def test_photos_smaller_than_the_pattern_give_rows(name, shape):
    gray = texture(64, 64)[: shape[0], : shape[1]].copy()
    points = Keypoints([[0, 0], [shape[1] - 1, shape[0] - 1], [shape[1] / 3, 0]], [0.4, 2, 9], [0, 1, 5])
    rows, valid = describe(name, gray, points)
    assert rows.shape == (3, get_spec(name).stored_width) and valid.shape == (3,)
    assert np.isfinite(rows).all()


@pytest.mark.parametrize("name", NAMES)
def test_no_keypoints_give_no_rows(name):
    rows, valid = describe(name, texture(20, 20), empty())
    assert (rows.shape, valid.shape) == ((0, get_spec(name).stored_width), (0,))
    assert rows.dtype == get_spec(name).stored_dtype


@pytest.mark.parametrize("name", NAMES)
def test_flat_photo_gives_finite_rows(name):
    points = Keypoints([[50, 40], [20, 30]], [2, 3], [0, 1])
    rows, valid = describe(name, np.full((80, 100), 7, np.uint8), points)
    assert np.isfinite(rows).all()
    np.testing.assert_array_equal(rows.any(axis=1), valid)


def test_extraction_gives_all_of_them_the_same_rows(tmp_path):
    Image.fromarray(texture(97, 121)).save(tmp_path / "a.png")
    found = extract_photo(tmp_path / "a.png", ExtractSettings(NAMES, keypoints="opencv", max_keypoints=50))
    assert len(found) == 50 and 0 < found.valid.sum() < 50
    for name in NAMES:
        rows = found.descriptors[name]
        assert rows.shape == (50, get_spec(name).stored_width)
        np.testing.assert_array_equal(rows.any(axis=1), found.valid)


# --- What they describe ----------------------------------------------------------------------------------


def assert_same_points_are_near(name: str, a: np.ndarray, b: np.ndarray) -> None:
    found = distances(name, a, b)
    others = found + np.where(np.eye(len(found)), np.inf, 0)
    assert len(found) > 20
    assert (np.diag(found) < others.min(axis=1)).mean() > 0.9
    assert np.median(np.diag(found)) < 0.5 * np.median(found)


@pytest.mark.parametrize("name", NAMES)
def test_turned_photo_gives_near_rows(name):
    gray = texture(201, 263)
    points = inner(gray)
    turned = np.rot90(gray, k=-1).copy()  # by 90 degrees from x towards y
    height = gray.shape[0]
    xy = np.stack([height - 1 - points.xy[:, 1], points.xy[:, 0]], axis=1)
    moved = Keypoints(xy, points.scales, points.oris + np.pi / 2)
    assert_same_points_are_near(name, describe(name, gray, points)[0], describe(name, turned, moved)[0])


@pytest.mark.parametrize("name", NAMES)
def test_photo_of_twice_the_size_gives_near_rows(name):
    gray = texture(201, 263)
    points = inner(gray)
    large = cv2.resize(gray, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC)
    moved = Keypoints(2 * points.xy + 0.5, 2 * points.scales, points.oris)
    assert_same_points_are_near(name, describe(name, gray, points)[0], describe(name, large, moved)[0])


@pytest.mark.parametrize("name", BINARY)
def test_brighter_photo_has_the_same_bits(name):
    gray = texture(201, 263) // 2 + 20
    points = detect_opencv(gray, 100)
    rows, _ = describe(name, gray, points)
    brighter, _ = describe(name, gray + 10, points)
    assert np.unpackbits(rows ^ brighter).mean() < 0.005


# --- Against OpenCV --------------------------------------------------------------------------------------


def cv_points(points: Keypoints, factor: float = 2) -> list[cv2.KeyPoint]:
    degrees = np.rad2deg(points.oris.astype(np.float64)) % 360
    return [
        cv2.KeyPoint(*map(float, xy), float(factor * s), float(a))
        for xy, s, a in zip(points.xy, points.scales, degrees, strict=True)
    ]


SCALING = {
    **{
        f"{family}-{bits}": lambda family=family, bits=bits: getattr(cv2.xfeatures2d, family.upper()).create(
            6.75, getattr(cv2.xfeatures2d, f"{family.upper()}_SIZE_{bits}_BITS")
        )
        for family in ("beblid", "teblid")
        for bits in (256, 512)
    },
    "boostdesc-lbgm": lambda: cv2.xfeatures2d.BoostDesc.create(200, scale_factor=6.75),
    "boostdesc-binboost-64": lambda: cv2.xfeatures2d.BoostDesc.create(300, scale_factor=6.75),
    "boostdesc-binboost-128": lambda: cv2.xfeatures2d.BoostDesc.create(301, scale_factor=6.75),
    "boostdesc-binboost-256": lambda: cv2.xfeatures2d.BoostDesc.create(302, scale_factor=6.75),
    "vgg": lambda: cv2.xfeatures2d.VGG.create(100, scale_factor=6.75),
}


@pytest.mark.parametrize("name", SCALING)
def test_rows_are_those_of_opencv_with_its_scale_factor_for_sift(name):
    gray = texture(201, 263)
    points = detect_opencv(gray, 60)
    _, expected = SCALING[name]().compute(gray, cv_points(points))
    np.testing.assert_array_equal(describe(name, gray, points)[0], expected)


IN_PATCHES = {
    "brisk": lambda: (cv2 if hasattr(cv2, "BRISK") else cv2.xfeatures2d).BRISK.create(),
    "daisy": lambda: cv2.xfeatures2d.DAISY.create(norm=102),
    "freak": lambda: cv2.xfeatures2d.FREAK.create(orientationNormalized=False),
    "latch": lambda: cv2.xfeatures2d.LATCH.create(),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_rows_are_those_of_opencv_where_the_patch_is_the_photo(name):
    gray, pattern = texture(201, 263), PATTERNS[name]
    xy = np.random.default_rng(0).integers((40, 40), (220, 160), (30, 2))
    points = Keypoints(xy, np.full(30, pattern.size_px / pattern.sigmas), np.zeros(30))
    described, expected = IN_PATCHES[name]().compute(
        gray, [cv2.KeyPoint(float(x), float(y), pattern.keypoint_px, 0) for x, y in xy]
    )
    assert len(described) == 30
    rows, _ = describe(name, gray, points)
    if name == "daisy":  # it smooths so widely that the patch's border shows
        np.testing.assert_allclose(rows, expected, atol=0.02)
    else:  # some of FREAK's boxes end half way between pixels, where rounding depends on the position
        assert np.unpackbits(rows ^ expected).mean() <= (0.02 if name == "freak" else 0)


def test_orb_keypoints_get_what_detect_and_compute_gives():
    gray = texture(201, 263)
    found, expected = cv2.ORB.create(2000, fastThreshold=5).detectAndCompute(gray, None)
    octaves = np.array([point.octave for point in found])
    assert len(found) > 100 and octaves.max() > 3
    points = Keypoints(
        [point.pt for point in found], 31 / 18 * 1.2**octaves, np.deg2rad([point.angle for point in found])
    )
    np.testing.assert_array_equal(orb_level(points.scales, gray.shape), octaves)
    sizes, angles = np.array([(point.size, point.angle) for point in found]).T
    np.testing.assert_allclose(of_opencv(sizes, angles, ORB_SIGMAS)[:, 0], points.scales, rtol=1e-5)
    rows, valid = describe_orb(gray, points)
    assert valid.all()
    # Angles in radians round differently, which may move a sample by a pixel.
    assert np.unpackbits(rows ^ expected).mean() < 1e-3
    assert (rows == expected).all(axis=1).mean() > 0.95


def test_orb_levels_are_bounded():
    assert orb_level(np.array([1e-30, 31 / 18, 3e38]), (310, 400)).tolist() == [-4, 0, 12]
    assert orb_level(np.array([1e-30, 31 / 18, 3e38]), (5, 400)).tolist() == [-4, 0, 0]
