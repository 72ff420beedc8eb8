"""The descriptor `opencv-sift` against OpenCV itself."""

import cv2
import numpy as np
import pytest

from tests.support.textures import texture
from xdesc_jax.descriptors import canonical, get_spec
from xdesc_jax.features.keypoints import Keypoints, detect_opencv
from xdesc_jax.features.opencv_descriptors import describe_sift, octave_and_layer


@pytest.mark.parametrize("shape", [(201, 263), (97, 300)])
def test_own_keypoints_get_what_detect_and_compute_gives(shape):
    gray = texture(*shape)
    found, expected = cv2.SIFT.create().detectAndCompute(gray, None)
    described, valid = describe_sift(gray, detect_opencv(gray))
    assert len(found) > 100 and valid.all()
    spec = get_spec("opencv-sift")
    np.testing.assert_allclose(canonical(described, spec), canonical(expected, spec), atol=1e-3)


def test_octave_and_layer_equal_opencvs():
    gray = texture(201, 263)
    found = cv2.SIFT.create().detect(gray, None)
    octave, layer = octave_and_layer(np.array([k.size / 2 for k in found]), gray.shape)
    assert octave.tolist() == [((k.octave & 255) ^ 128) - 128 for k in found]
    assert layer.tolist() == [k.octave >> 8 & 255 for k in found]


def test_rows_do_not_depend_on_the_other_rows():
    gray = texture(201, 263)
    points = detect_opencv(gray)
    everything, _ = describe_sift(gray, points)
    coarse = np.flatnonzero(points.scales > 4)  # none of OpenCV's first octave
    assert len(coarse) > 3
    np.testing.assert_array_equal(describe_sift(gray, points.take(coarse))[0], everything[coarse])
    order = np.random.default_rng(0).permutation(len(points))
    np.testing.assert_array_equal(describe_sift(gray, points.take(order))[0], everything[order])


def test_scales_beyond_the_pyramid_and_border_keypoints_keep_their_rows():
    gray = texture(60, 91)
    points = Keypoints([[0, 0], [90, 59], [45, 30], [30, 30]], [40, 1, 900, 0.1], np.zeros(4))
    described, valid = describe_sift(gray, points)
    assert described.shape == (4, 128) and described.dtype == np.float32 and valid.shape == (4,)


def test_flat_region_is_not_valid():
    gray = np.zeros((80, 80), np.uint8)
    gray[60:, 60:] = texture(20, 20)
    described, valid = describe_sift(gray, Keypoints([[20, 20], [65, 65]], [1.5, 1.5], [0, 0]))
    assert valid.tolist() == [False, True]
    assert not described[0].any()


def test_no_keypoints_give_no_rows():
    described, valid = describe_sift(texture(20, 20), Keypoints(np.zeros((0, 2)), np.zeros(0), np.zeros(0)))
    assert (described.shape, valid.shape) == ((0, 128), (0,))
