"""Patches against the reference package, hand-made cases, and the mask."""

import cv2
import numpy as np
import pytest

from tests.support.textures import texture
from xdesc_jax.features.keypoints import Keypoints
from xdesc_jax.features.patches import extract_patches

UNIT = 32 / 12  # sigma whose patch has the photo's own resolution


def random_keypoints(n: int, width: int, height: int, largest: float, seed: int = 0) -> Keypoints:
    rng = np.random.default_rng(seed)
    xy = rng.uniform((-4, -4), (width + 4, height + 4), (n, 2))
    return Keypoints(xy, np.exp(rng.uniform(np.log(0.8), np.log(largest), n)), rng.uniform(-np.pi, np.pi, n))


def reference(gray: np.ndarray, points: Keypoints) -> np.ndarray:
    package = pytest.importorskip("extract_patches.core")
    if points.affine is not None:
        rows = np.concatenate([points.xy, points.affine.reshape(-1, 4)], axis=1).astype(np.float64)
        return np.stack(package.extract_patches(rows, gray, 32, 12.0, "xyA"))
    degrees = np.rad2deg(points.oris.astype(np.float64)) % 360
    cv = [cv2.KeyPoint(float(x), float(y), float(2 * s), float(a))
          for (x, y), s, a in zip(points.xy, points.scales, degrees, strict=True)]  # fmt: skip
    return np.stack(package.extract_patches(cv, gray, 32, 6.0, "cv2"))


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    difference = np.abs(found.astype(int) - expected)
    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3


@pytest.mark.parametrize("shape", [(211, 307), (480, 641)])
def test_equals_extract_patches(shape):
    gray = texture(*shape)
    points = random_keypoints(700, shape[1], shape[0], largest=90)
    assert_close(extract_patches(gray, points)[0], reference(gray, points))


def test_equals_extract_patches_far_from_the_origin():
    gray = texture(130, 6001)
    points = random_keypoints(500, 6001, 130, largest=4)
    assert_close(extract_patches(gray, points)[0], reference(gray, points))


def test_affine_shapes_equal_extract_patches():
    gray = texture(211, 307)
    rng = np.random.default_rng(1)
    base = random_keypoints(300, 307, 211, largest=20)
    shapes = base.scales[:, None, None] * (np.eye(2) + rng.uniform(-0.4, 0.4, (300, 2, 2)))
    points = Keypoints(base.xy, base.scales, base.oris, shapes)
    assert_close(extract_patches(gray, points)[0], reference(gray, points))


def test_keypoint_is_pixel_16_16_at_the_photos_resolution():
    gray = texture(61, 73)
    patches, valid = extract_patches(gray, Keypoints([[30, 25]], [UNIT], [0]))
    np.testing.assert_array_equal(patches[0], gray[25 - 16 : 25 + 16, 30 - 16 : 30 + 16])
    assert valid.all()


def test_orientation_turns_the_patch_with_the_photo():
    gray = texture(64, 64)
    turned = np.ascontiguousarray(np.rot90(gray, -1))  # x towards y: (x, y) -> (63 - y, x)
    a, _ = extract_patches(gray, Keypoints([[33, 30]], [UNIT], [0.3]))
    b, _ = extract_patches(turned, Keypoints([[33, 33]], [UNIT], [0.3 + np.pi / 2]))
    assert np.abs(a.astype(int) - b).max() <= 1


def test_photo_of_twice_the_size_gives_the_same_patch():
    gray = cv2.GaussianBlur(texture(101, 101), (0, 0), 2)
    twice = cv2.resize(gray, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC)
    a, _ = extract_patches(gray, Keypoints([[50, 50]], [UNIT], [0]))
    b, _ = extract_patches(twice, Keypoints([[100.5, 100.5]], [2 * UNIT], [0]))
    assert np.abs(a.astype(int) - b).mean() < 2


def test_scale_at_a_power_of_two_takes_the_coarser_level():
    gray = texture(201, 201)
    patches, _ = extract_patches(gray, Keypoints([[100, 100]], [2 * UNIT], [0]))
    half = cv2.pyrDown(gray)
    np.testing.assert_array_equal(patches[0], half[50 - 16 : 50 + 16, 50 - 16 : 50 + 16])


def test_valid_is_false_where_the_patch_leaves_the_photo():
    gray = texture(61, 73)
    # The patch reaches 16 px left of and above the keypoint, 15 right and below.
    xy = [[16.1, 16.1], [15.9, 20], [20, 15.9], [72 - 15.1, 60 - 15.1], [72 - 14.9, 40], [40, 60 - 14.9]]
    _, valid = extract_patches(gray, Keypoints(xy, np.full(6, UNIT), np.zeros(6)))
    assert valid.tolist() == [True, False, False, True, False, False]


def test_turned_patch_is_checked_at_its_corners():
    gray = texture(61, 73)
    _, valid = extract_patches(gray, Keypoints([[20, 30]] * 2, [UNIT] * 2, [0, np.pi / 4]))
    assert valid.tolist() == [True, False]


def test_flat_patch_is_not_valid():
    gray = texture(100, 100)
    gray[:50, :50] = 0
    patches, valid = extract_patches(gray, Keypoints([[20, 20], [70, 70]], [UNIT] * 2, [0, 0]))
    assert valid.tolist() == [False, True]
    assert not patches[0].any()


def test_border_keypoints_keep_their_rows():
    gray = texture(97, 83)
    xy = np.array([[0.5, 0.5], [40, 40], [82.5, 96.5]])
    patches, valid = extract_patches(gray, Keypoints(xy, [40, 1, 40], [0, 0, 0]))
    assert (patches.shape, valid.tolist()) == ((3, 32, 32), [False, True, False])


def test_no_keypoints_give_no_patches():
    patches, valid = extract_patches(texture(20, 30), Keypoints(np.zeros((0, 2)), np.zeros(0), np.zeros(0)))
    assert (patches.shape, patches.dtype, valid.shape, valid.dtype) == ((0, 32, 32), np.uint8, (0,), bool)


def test_permuted_keypoints_permute_patches():
    gray = texture(211, 307)
    points = random_keypoints(601, 307, 211, largest=60)
    order = np.random.default_rng(3).permutation(601)
    patches, valid = extract_patches(gray, points)
    permuted, permuted_valid = extract_patches(gray, points.take(order))
    np.testing.assert_array_equal(permuted, patches[order])
    np.testing.assert_array_equal(permuted_valid, valid[order])


def test_number_of_threads_changes_nothing():
    gray = texture(211, 307)
    points = random_keypoints(900, 307, 211, largest=60)
    before = cv2.getNumThreads()
    try:
        cv2.setNumThreads(1)
        one, _ = extract_patches(gray, points)
        cv2.setNumThreads(3)
        three, _ = extract_patches(gray, points)
    finally:
        cv2.setNumThreads(before)
    np.testing.assert_array_equal(one, three)


def test_photo_that_is_not_gray_is_refused():
    points = Keypoints([[3, 3]], [1], [0])
    for photo in (np.zeros((9, 9, 3), np.uint8), np.zeros((9, 9), np.float32), np.zeros((0, 9), np.uint8)):
        with pytest.raises(ValueError, match="expected uint8"):
            extract_patches(photo, points)
