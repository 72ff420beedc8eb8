"""Warped views and the keypoints carried over to them."""

import cv2
import numpy as np
import pytest

from xdesc_jax.features.keypoints import Keypoints
from xdesc_jax.features.warp import (
    WarpSettings,
    carry,
    draw_view,
    largest_rectangle,
    local_affines,
    project,
    render,
    smallest_scale,
    within,
)

SIZE = (211, 157)


def scene(seed=0):
    rng = np.random.default_rng(seed)
    return cv2.GaussianBlur(rng.integers(0, 256, SIZE[::-1], dtype=np.uint8), (0, 0), 3)


def view(seed, **settings):
    return draw_view(np.random.default_rng(seed), SIZE, WarpSettings(**settings))


def test_the_derivative_is_the_difference_quotient_of_the_projection():
    homography = view(1).homography
    xy = np.array([[3.0, 150.0], [100.0, 20.0], [200.0, 77.0]])
    step = 1e-4
    for axis in range(2):
        offset = step * np.eye(2)[axis]
        quotient = (project(homography, xy + offset) - project(homography, xy - offset)) / (2 * step)
        np.testing.assert_allclose(local_affines(homography, xy)[:, :, axis], quotient, rtol=1e-5, atol=1e-7)


def test_a_turn_and_a_zoom_carry_position_scale_and_orientation():
    angle, zoom = np.pi / 2, 3.0
    homography = np.array([[0, -zoom, 40], [zoom, 0, 5], [0, 0, 1]])
    carried = carry(Keypoints(np.array([[10.0, 20.0]]), np.array([2.0]), np.array([0.3])), homography)
    np.testing.assert_allclose(carried.xy, [[40 - 60, 5 + 30]], rtol=1e-6)
    np.testing.assert_allclose(carried.scales, [6.0], rtol=1e-6)
    np.testing.assert_allclose(carried.oris, [0.3 + angle], rtol=1e-6)


def test_a_view_shows_at_projected_positions_what_the_photo_shows():
    photo = scene()
    plain = {"max_blur_px": 0.0, "max_noise": 0.0, "gamma": 0.0, "exposure": (1, 1), "jpeg": (95, 95)}
    for seed in range(5):
        drawn = view(seed, zoom=(0.8, 1.6), max_tilt=1.3, **plain)
        xy = np.random.default_rng(seed).uniform(20, [190, 136], (300, 2)).astype(np.float32)
        there = project(drawn.homography, xy).astype(np.float32)
        inside = ((there > 1) & (there < np.array(drawn.size) - 2)).all(axis=1)
        assert inside.sum() > 200
        expected = cv2.remap(photo, xy[None], None, cv2.INTER_LINEAR)[0].astype(float)
        found = cv2.remap(render(photo, drawn), there[None], None, cv2.INTER_LINEAR)[0].astype(float)
        assert np.abs(found - expected)[inside].mean() < 2.5


def test_what_shrinks_is_smoothed_first():
    checkers = np.indices((240, 320)).sum(0) % 2 * np.uint8(255)
    drawn = draw_view(np.random.default_rng(0), (320, 240), WarpSettings(zoom=(0.25, 0.25), max_tilt=1))
    shown = render(checkers.astype(np.uint8), drawn)
    assert smallest_scale(drawn.homography, checkers.shape) < 0.3
    assert np.std(shown[4:-4, 4:-4]) < 12  # aliased, it would be 127


def test_no_effort_leaves_the_photo_as_it_is():
    drawn = draw_view(np.random.default_rng(3), SIZE, WarpSettings(), effort=0.0)
    np.testing.assert_allclose(drawn.homography, np.eye(3), atol=1e-9)
    assert np.abs(render(scene(), drawn).astype(int) - scene()).mean() < 2  # JPEG of quality 95


@pytest.mark.parametrize("seed", range(8))
def test_the_largest_rectangle_is_that_of_a_search_over_all(seed):
    rng = np.random.default_rng(seed)
    angle = np.sort(rng.uniform(0, 2 * np.pi, 4) if seed else np.array([0.1, 1.7, 3.2, 4.8]))
    corners = 6 * np.column_stack([np.cos(angle), np.sin(angle)]) + rng.uniform(6, 9, 2)  # on a circle: convex

    def holds(x, y):
        return cv2.pointPolygonTest(corners.astype(np.float32), (float(x), float(y)), True) >= -1e-5

    inside = {(x, y) for x in range(16) for y in range(16) if holds(x, y)}
    most = max(
        (x1 - x0 + 1) * (y1 - y0 + 1)
        for x0, y0 in inside for x1, y1 in inside
        if x1 >= x0 and y1 >= y0 and {(x0, y1), (x1, y0)} <= inside
    )  # fmt: skip
    low, high = largest_rectangle(corners)
    assert {(low[0], low[1]), (high[0], high[1]), (low[0], high[1]), (high[0], low[1])} <= inside
    assert np.prod(high - low + 1) == most


def test_a_photo_that_is_not_warped_is_seen_whole_and_one_turned_by_90_degrees_too():
    still = draw_view(np.random.default_rng(3), SIZE, WarpSettings(), effort=0.0)
    assert within(still, SIZE, 999).size == SIZE
    np.testing.assert_allclose(within(still, SIZE, 999).homography, still.homography, atol=1e-6)
    assert within(still, SIZE, 101).size == (101, 101)
    np.testing.assert_allclose(project(within(still, SIZE, 101).homography, np.array([[105, 78]])), [[50, 50]], atol=1)
    low, high = largest_rectangle(np.array([[156, 0], [156, 210], [0, 210], [0, 0]], float))
    assert (low.tolist(), high.tolist()) == ([0, 0], [156, 210])


def test_a_photo_in_colour_is_shown_as_each_of_its_channels_is():
    channels = [scene(seed) for seed in range(3)]
    drawn = view(2, max_noise=0.0, jpeg=(100, 100))
    shown = render(np.stack(channels, axis=-1), drawn).astype(int)
    for k, channel in enumerate(channels):
        assert np.abs(shown[..., k] - render(channel, drawn)).mean() < 3  # JPEG halves what it keeps of colours
    far = view(2, max_noise=0.0, jpeg=(100, 100), balance=0.5)
    np.testing.assert_array_equal(render(channels[0], far), render(channels[0], drawn))
    assert np.std(np.log(far.balance)) > 0.1


def test_views_are_a_function_of_the_generator():
    assert np.array_equal(render(scene(), view(7)), render(scene(), view(7)))
    assert not np.array_equal(view(7).homography, view(8).homography)


@pytest.mark.parametrize(
    "settings",
    [{"zoom": (2.0, 1.0)}, {"exposure": (0.0, 1.0)}, {"max_tilt": 0.5}, {"max_perspective": 1.0}, {"upright_deg": -1}],
)
def test_settings_out_of_range_are_refused_with_their_value(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        WarpSettings(**settings)
