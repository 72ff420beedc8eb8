"""Frames and positions of a view are those that a detector finds in the photo so turned or scaled."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest

from tests.support.textures import texture
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.frames import of_opencv
from xdesc_jax.networks.frames import check
from xdesc_jax.networks.views import View, parse, renders, seen

TURNED, BITS = DescriptorSpec("turned", 12), DescriptorSpec("other", 9)
UPRIGHT = DescriptorSpec("upright", 7, frame="image")
JOINT = DescriptorSpec("embedding:0", 8)


def detected(photo):
    """Frames and positions of OpenCV's SIFT keypoints."""
    found = cv2.SIFT_create(contrastThreshold=0.06, enable_precise_upscale=True).detect(photo, None)
    xy = np.array([k.pt for k in found])
    return of_opencv(np.array([k.size for k in found]), np.array([k.angle for k in found])), xy


def agreeing(photo, other, view, margin=0):
    """Share of the other photo's keypoints that are where, as large and as turned as the view says.

    Both photos show the same around their middles, and keypoints nearer than `margin` to the border are left out.
    """
    frames, xy = seen(*detected(photo), view)
    found, at = detected(other)
    middles = [(np.array(of.shape[::-1]) - 1) / 2 for of in (photo, other)]
    xy = xy + middles[1] - seen(np.ones((1, 2)), middles[0][None], view)[1]
    turns = np.abs(np.remainder(found[:, None, 1] - frames[:, 1] + math.pi, 2 * math.pi) - math.pi)
    sizes = np.abs(np.log(found[:, None, 0] / frames[:, 0]))
    offsets = np.linalg.norm(at[:, None] - xy, axis=2)
    fits = ((offsets < 1) & (sizes < 0.15) & (turns < 0.15)).any(axis=1)  # a place may have several orientations
    fits = fits[np.linalg.norm(at - middles[1], axis=1) < middles[1].min() - margin]
    assert len(fits) > 40
    return fits.mean()


@pytest.mark.parametrize(("roll", "quarters"), [(90, -1), (180, 2), (270, 1), (-90, 1)])
def test_keypoints_of_a_turned_photo_are_those_that_a_detector_finds(roll, quarters):
    """`rot90` turns counterclockwise as one sees it."""
    photo = texture(210, 290, seed=3)
    other = np.ascontiguousarray(np.rot90(photo, quarters))
    assert agreeing(photo, other, View(roll)) > 0.95
    assert agreeing(photo, other, View(roll + 180)) < 0.1 and agreeing(photo, other, View(roll, 1.3)) < 0.1


@pytest.mark.parametrize("roll", [0, 30])
def test_keypoints_of_a_smaller_photo_are_those_that_a_detector_finds(roll):
    photo, view = cv2.GaussianBlur(texture(420, 580, seed=4), (0, 0), 3), View(roll, 0.6)
    middle = tuple((np.array(photo.shape[::-1]) - 1) / 2)
    matrix = cv2.getRotationMatrix2D(middle, -roll, 0.6)  # OpenCV's positive angles are counterclockwise
    other = cv2.warpAffine(photo, matrix, photo.shape[::-1], flags=cv2.INTER_AREA)
    margin = min(middle) * 0.4 + 30  # the border of the smaller photo has keypoints of its own
    assert agreeing(photo, other, view, margin) > 0.7
    assert agreeing(photo, other, View(roll + 60, 0.6), margin) < 0.05
    assert agreeing(photo, other, View(roll), margin) < 0.05


def test_by_hand():
    """x points right and y down, so a quarter clockwise takes x to y, and y to -x."""
    frames, positions = np.array([[2, 3.0], [4, -1]]), np.array([[10, 0.0], [3, 5]])
    turned, moved = seen(frames, positions, View(90, 2))
    np.testing.assert_allclose(turned, [[4, 3 + math.pi / 2 - 2 * math.pi], [8, math.pi / 2 - 1]], atol=1e-6)
    np.testing.assert_allclose(moved, [[0, 20], [-10, 6]], atol=1e-5)
    assert turned.dtype == moved.dtype == np.float32
    assert seen(frames, None, View(90, 2))[1] is None
    check(seen(np.array([[1, 2 * math.pi]]), None, View(359))[0], 1)


def test_a_photo_as_it_lies_is_left_as_it_is():
    frames, positions = np.array([[2, 6.1]]), np.array([[10, 0.3]])
    same, unmoved = seen(frames, positions, View(360, 1))
    assert same is frames and unmoved is positions


def test_all_combinations_in_the_order_in_which_they_are_named():
    found = parse(["scale=0.5,2", "roll=90,0"])
    assert found == (View(90, 0.5), View(90, 2), View(0, 0.5), View(0, 2))
    assert [v.name for v in found[:2]] == ["roll090-scale0.5", "roll090-scale2.0"]
    assert parse(["roll=-90,22.5"]) == (View(270, 1), View(22.5, 1)) and View(22.5).name == "roll022.5-scale1.0"
    assert parse(["scale=3"]) == (View(0, 3),) and parse([]) == ()
    upright = parse(["roll=0,90", "gravity"])
    assert upright == (View(0, 1, True), View(90, 1, True)) and upright[1].name == "upright-roll090-scale1.0"
    assert upright[1].of(300) == View(30) and View(90).of(300) == View(90) and parse(["gravity"]) == upright[:1]
    with pytest.raises(ValueError, match="view upright-roll000-scale1.0: nothing tells how the photo was held"):
        seen(np.ones((1, 2)), None, upright[0])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["angle=3"], "--views angle=3: unknown word 'angle', expected roll=DEG,... and scale=FACTOR,..."),
        (["90"], "--views 90: unknown word '90'"),
        (["roll=0,x"], "--views roll=0,x: 'x' is no number"),
        (["roll="], "--views roll=: '' is no number"),
        (["roll=0", "roll=90"], "--views roll=90: 'roll' is given twice"),
        (["gravity", "gravity"], "--views gravity gravity: 'gravity' is given twice"),
        (["gravity=1"], "--views gravity=1: unknown word 'gravity'"),
        (["roll=nan"], "--views roll=nan: roll is nan, expected degrees"),
        (["scale=1,0"], "--views scale=1,0: scale is 0, expected a factor of 0.01 to 100"),
        (["scale=-1"], "--views scale=-1: scale is -1, expected a factor"),
        (["scale=inf"], "--views scale=inf: scale is inf, expected a factor"),
        (["roll=0,90,360", "scale=2"], "--views roll=0,90,360 scale=2: roll 360 and scale 2 come twice"),
    ],
)
def test_what_names_no_views_is_refused(words, told):
    with pytest.raises(ValueError) as refused:
        parse(words)
    assert str(refused.value).startswith(told)


def test_rows_that_turn_with_their_keypoint_are_rendered_for_a_network_that_sees_the_photo_alone():
    assert renders(TURNED, UPRIGHT, True) and renders(TURNED, JOINT, True)
    assert not renders(TURNED, JOINT, False)  # a joint space of frame 'keypoint'
    assert not renders(TURNED, BITS, True)  # which turn with the keypoint, too
    assert (
        not renders(UPRIGHT, TURNED, True) and not renders(JOINT, UPRIGHT, True) and not renders(UPRIGHT, JOINT, True)
    )
