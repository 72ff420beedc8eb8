"""Keypoints: conversions, detectors, and which are the strongest."""

import numpy as np
import pytest

from tests.support.textures import blob, texture
from xdesc_jax.features.keypoints import (
    Keypoints,
    apart,
    detect_colmap,
    detect_opencv,
    from_colmap,
    from_shapes,
    positions,
    strongest,
    to_colmap,
)
from xdesc_jax.features.response import dog_response


def rgb(gray: np.ndarray) -> np.ndarray:
    return np.repeat(gray[:, :, None], 3, axis=2)


# --- Conversions -----------------------------------------------------------------------------------------


def test_two_colmap_columns_are_positions_from_the_corner():
    points = from_colmap(np.array([[0.5, 0.5], [10.25, 3]], np.float32))
    np.testing.assert_array_equal(points.xy, [[0, 0], [9.75, 2.5]])
    np.testing.assert_array_equal(points.scales, [1, 1])
    np.testing.assert_array_equal(points.oris, [0, 0])


def test_four_colmap_columns_are_scale_and_orientation():
    points = from_colmap(np.array([[1.5, 2.5, 3, -0.25]], np.float32))
    assert (points.xy.tolist(), points.scales.tolist(), points.oris.tolist()) == ([[1, 2]], [3], [-0.25])


def test_positions_alone_stay_so_when_some_are_taken():
    points = positions(np.array([[1, 2], [3, 4.5], [5, 6]], np.float32))
    taken = points.take(np.array([2, 1]))
    assert not points.framed and not taken.framed
    np.testing.assert_array_equal(taken.xy, [[5, 6], [3, 4.5]])
    assert from_colmap(np.ones((2, 4), np.float32)).framed


def test_six_colmap_columns_of_a_circle_are_scale_and_orientation():
    # sigma 2, turned by 90 degrees: a = [[0, -2], [2, 0]]
    points = from_colmap(np.array([[1, 1, 0, -2, 2, 0]], np.float32))
    assert points.affine is None
    np.testing.assert_allclose(points.scales, [2])
    np.testing.assert_allclose(points.oris, [np.pi / 2], rtol=1e-6)


def test_six_colmap_columns_of_an_ellipse_keep_their_shape():
    points = from_colmap(np.array([[1, 1, 3, 0, 4, 1]], np.float32))
    np.testing.assert_array_equal(points.affine, [[[3, 0], [4, 1]]])
    np.testing.assert_allclose(points.scales, [3])  # mean of the columns' lengths 5 and 1
    np.testing.assert_allclose(points.oris, [np.arctan2(4, 3)], rtol=1e-6)


def test_colmap_form_round_trips():
    rng = np.random.default_rng(0)
    xy, scales = rng.uniform(0, 4000, (7, 2)), rng.uniform(0.8, 90, 7)
    oris = rng.uniform(-np.pi, np.pi, 7)
    back = from_colmap(to_colmap(Keypoints(xy, scales, oris)))
    np.testing.assert_allclose(back.xy, xy.astype(np.float32), atol=3e-4)
    np.testing.assert_allclose(back.scales, scales, rtol=1e-6)
    np.testing.assert_allclose(back.oris, oris, atol=1e-6)
    shapes = rng.normal(size=(7, 2, 2)).astype(np.float32)
    np.testing.assert_array_equal(from_colmap(to_colmap(from_shapes(xy, shapes))).affine, shapes)


def test_colmap_form_agrees_with_pycolmap():
    from xdesc_jax.colmap.bindings.api import pycolmap

    points = Keypoints([[3, 4]], [2.5], [0.7])
    row = to_colmap(points)[0]
    theirs = pycolmap.FeatureKeypoint()
    theirs.x, theirs.y, theirs.a11, theirs.a12, theirs.a21, theirs.a22 = (float(v) for v in row)
    assert (theirs.x, theirs.y) == (3.5, 4.5)
    assert theirs.compute_scale() == pytest.approx(2.5)
    assert theirs.compute_orientation() == pytest.approx(0.7)


@pytest.mark.parametrize("width", [1, 3, 5, 7])
def test_other_numbers_of_columns_are_refused(width):
    with pytest.raises(ValueError, match="expected .N, 2., .N, 4. or .N, 6."):
        from_colmap(np.zeros((4, width), np.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"xy": [[0, 0], [np.nan, 1]]}, r"xy of keypoint 1 is \[nan, 1.0\]"),
        ({"scales": [0, 1]}, "scales of keypoint 0 is 0.0, expected finite and above 0"),
        ({"oris": [0, np.inf]}, "oris of keypoint 1 is inf"),
        ({"affine": [np.eye(2), np.ones((2, 2))]}, "affine of keypoint 1 .* invertible"),
        ({"oris": [0, 0, 0]}, r"oris of 2 keypoints has shape \(3,\)"),
    ],
)
def test_values_that_are_no_keypoints_are_refused(change, message):
    fields = {"xy": np.ones((2, 2)), "scales": np.ones(2), "oris": np.ones(2)} | change
    with pytest.raises(ValueError, match=message):
        Keypoints(**{k: np.asarray(v) for k, v in fields.items()})


# --- Detectors -------------------------------------------------------------------------------------------


def test_colmap_finds_a_spot_at_its_centre():
    x, y, sigma = 40.3, 31.8, 3.0
    points, descriptors = detect_colmap(rgb(blob(71, 93, x, y, sigma)))
    near = np.linalg.norm(points.xy - [x, y], axis=1)
    assert near.min() < 0.05  # a wrong origin would be off by 0.7
    row = near.argmin()
    # |G(k s) - G(s)| of a spot of width b peaks at s = b / sqrt(k); both blurs add to the camera's.
    assert points.scales[row] == pytest.approx(sigma / 2 ** (1 / 6), rel=0.05)
    assert descriptors.shape == (len(points), 128) and descriptors.dtype == np.uint8


def test_opencv_finds_a_spot_at_its_centre():
    x, y = 40.3, 31.8
    points = detect_opencv(blob(71, 93, x, y, 3.0))
    # OpenCV doubles photos about the pixels' centres and halves positions about the first one: 0.25 px.
    assert np.linalg.norm(points.xy - [x + 0.25, y + 0.25], axis=1).min() < 0.05


def test_orientations_turn_from_x_towards_y():
    gray = texture(81, 81)
    turned = np.ascontiguousarray(np.rot90(gray, -1))  # clockwise as seen: x towards y
    a, _ = detect_colmap(rgb(gray))
    b, _ = detect_colmap(rgb(turned))
    moved = np.stack([80 - a.xy[:, 1], a.xy[:, 0]], axis=1)
    distance = np.linalg.norm(moved[:, None] - b.xy[None], axis=2) + np.abs(a.scales[:, None] - b.scales)
    turn = (b.oris[None] - a.oris[:, None] - np.pi / 2 + np.pi) % (2 * np.pi) - np.pi
    same = (distance < 0.1) & (np.abs(turn) < 0.02)
    assert same.any(axis=1).mean() > 0.9


def test_first_octave_0_finds_no_small_scales():
    image = rgb(texture(101, 103))
    assert detect_colmap(image, first_octave=-1)[0].scales.min() < 1.4
    assert detect_colmap(image, first_octave=0)[0].scales.min() > 1.4


def test_colmap_limit_keeps_the_strongest_in_order():
    gray = texture(121, 141)
    everything, descriptors = detect_colmap(rgb(gray))
    kept, kept_descriptors = detect_colmap(rgb(gray), limit=20)
    response = np.abs(dog_response(gray, everything.xy, everything.scales))
    rows = np.sort(np.argsort(-response, kind="stable")[:20])
    np.testing.assert_array_equal(kept.xy, everything.xy[rows])
    np.testing.assert_array_equal(kept_descriptors, descriptors[rows])


def test_opencv_limit_keeps_the_strongest_in_order():
    import cv2

    gray = texture(121, 141)
    found = cv2.SIFT.create().detect(gray, None)
    response = np.array([k.response for k in found])
    rows = np.sort(np.argsort(-response, kind="stable")[:20])
    kept = detect_opencv(gray, limit=20)
    np.testing.assert_array_equal(kept.xy, np.array([k.pt for k in found], np.float32)[rows])
    np.testing.assert_array_equal(kept.scales, np.array([k.size / 2 for k in found], np.float32)[rows])


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (8, 300), (64, 65)])
def test_blank_photos_of_any_size_have_no_keypoints(shape):
    gray = np.full(shape, 255, np.uint8)
    points, descriptors = detect_colmap(rgb(gray), limit=10)
    assert (len(points), descriptors.shape) == (0, (0, 128))
    assert len(detect_opencv(gray, limit=10)) == 0


def test_colmap_detection_is_silent(capfd):
    detect_colmap(rgb(texture(64, 65)))
    assert capfd.readouterr() == ("", "")


def left_by_a_loop(xy, strength, nms_px):
    """Greedy suppression, one keypoint after the other."""
    left = []
    for row in sorted(range(len(xy)), key=lambda row: (-strength[row], row)):
        if all((xy[row][0] - xy[other][0]) ** 2 + (xy[row][1] - xy[other][1]) ** 2 >= nms_px**2 for other in left):
            left.append(row)
    return sorted(left)


@pytest.mark.parametrize("nms_px", [0.5, 1.0, 2.5, 40.0])
def test_keypoints_that_stay_are_those_of_a_loop(nms_px):
    rng = np.random.default_rng(int(10 * nms_px))
    xy = rng.integers(0, 60, (301, 2)) / 2  # many lie at one place, or at a distance of nms_px itself
    strength = rng.integers(0, 20, 301).astype(np.float32)  # many are equal
    found = apart(xy, strength, nms_px)
    assert found.tolist() == left_by_a_loop(xy.tolist(), strength.tolist(), nms_px)
    assert 1 <= len(found) < 301
    assert apart(xy, strength, 0.0).tolist() == list(range(301))


def test_what_is_left_out_leaves_nothing_out_itself():
    xy = np.array([[0, 0], [1.5, 0], [3, 0], [3, 2]])
    assert apart(xy, np.array([1, 2, 3, 0.5]), 2).tolist() == [0, 2, 3]  # the last is 2 px off, not closer
    assert apart(xy, np.array([3, 2, 1, 0.5]), 2).tolist() == [0, 2, 3]
    assert apart(np.zeros((3, 2)), np.array([1, 2, 2]), 0.1).tolist() == [1]
    assert [len(apart(np.zeros((n, 2)), np.ones(n), 1.0)) for n in (0, 1)] == [0, 1]


def test_detectors_leave_out_near_duplicates_before_the_strongest_are_kept():
    import cv2

    gray = texture(121, 141)
    everything, descriptors = detect_colmap(rgb(gray))
    response = np.abs(dog_response(gray, everything.xy, everything.scales))
    left = np.array(left_by_a_loop(everything.xy.astype(float).tolist(), response.tolist(), 3.0))
    assert 30 < len(left) < len(everything)
    points, rows = detect_colmap(rgb(gray), nms_px=3.0)
    np.testing.assert_array_equal(points.xy, everything.xy[left])
    np.testing.assert_array_equal(rows, descriptors[left])
    strong = left[np.sort(np.argsort(-response[left], kind="stable")[:20])]
    np.testing.assert_array_equal(detect_colmap(rgb(gray), limit=20, nms_px=3.0)[0].xy, everything.xy[strong])

    found = cv2.SIFT.create().detect(gray, None)
    left = left_by_a_loop([k.pt for k in found], [k.response for k in found], 3.0)
    assert 30 < len(left) < len(found)
    expected = np.array([found[row].pt for row in left], np.float32)
    np.testing.assert_array_equal(detect_opencv(gray, nms_px=3.0).xy, expected)


def test_strongest_breaks_ties_by_row():
    assert strongest(np.array([1, 3, 2, 3, 2]), 3).tolist() == [1, 2, 3]
    assert strongest(np.array([1, 3]), None).tolist() == [0, 1]


# --- Response --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.9, 1.7, 3.4, 8.0, 20.0])
def test_response_of_a_spot_is_its_closed_form(sigma):
    b, amplitude, k = 6.0, 200.0, 2 ** (1 / 3)
    gray = blob(181, 203, 100, 90, b, amplitude)
    (found,) = dog_response(gray, np.float32([[100, 90]]), np.float32([sigma]))

    def peak(s):  # a Gaussian of variance b^2 blurred from the camera's 0.5 to s
        return amplitude * b**2 / (b**2 + s**2 - 0.25)

    assert found == pytest.approx(peak(k * sigma) - peak(sigma), rel=0.03)


def test_response_ranks_as_opencvs():
    import cv2

    gray = texture(201, 203)
    found = [k for k in cv2.SIFT.create().detect(gray, None) if k.size > 4]
    xy = np.array([k.pt for k in found]) - 0.25
    ours = np.abs(dog_response(gray, np.float32(xy), np.float32([k.size / 2 for k in found])))
    theirs = np.array([k.response for k in found])
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99


def test_response_takes_scales_beyond_the_photo():
    assert np.isfinite(dog_response(texture(9, 17), np.float32([[3, 3]]), np.float32([500]))).all()
