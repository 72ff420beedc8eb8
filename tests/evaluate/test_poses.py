"""Errors of poses by hand."""

import tracemalloc

import numpy as np
import pytest

from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate.poses import LOCALIZATION, MAPPING, PoseErrors, label, pose_errors, rotation_error_deg, spacing


def turned(axis, degrees):
    axis = np.asarray(axis, float) / np.linalg.norm(axis)
    angle = np.deg2rad(degrees)
    k = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k


def at(center, rotation=None):
    rotation = turned([1, 2, 3], 40) if rotation is None else rotation
    return Pose(rotation, -rotation @ np.asarray(center, float))


@pytest.mark.parametrize("degrees", [0, 1e-6, 0.5, 90, 179.999, 180])
def test_rotation_error_is_the_angle_between(degrees):
    base = turned([3, -1, 2], 77)
    found = rotation_error_deg(turned([0.2, 1, -0.4], degrees) @ base, base)
    assert found == pytest.approx(degrees, abs=1e-9, rel=1e-9)


REFERENCE = {"a": at([0, 0, 0]), "b": at([1, 0, 0]), "c": at([4, 0, 0]), "d": at([4, 2, 0])}


def test_spacing_is_the_median_distance_to_the_nearest():
    assert spacing(list(REFERENCE.values())) == pytest.approx(1.5)  # 1, 1, 2, 2


def test_a_camera_far_from_all_others_does_not_widen_the_spacing():
    line = [at([x, 0, 0]) for x in (0, 1, 10, 12, 30)]  # 1, 1, 2, 2, 18 to the nearest, 4.8 in the mean
    assert spacing(line) == pytest.approx(2)


def test_two_cameras_half_a_unit_apart_have_a_spacing():
    assert spacing([at([0, 0, 0]), at([0, 0.3, -0.4])]) == pytest.approx(0.5)


def test_spacing_of_one_camera_or_one_place_is_refused():
    with pytest.raises(ValueError, match="1 camera,"):
        spacing([at([0, 0, 0])])
    with pytest.raises(ValueError, match="same place"):
        spacing([at([1, 2, 3])] * 3)


FOUND = {
    "a": at([0.2, 0, 0]),  # 0.2 off
    "b": at([1, 0.4, 0], turned([0, 1, 0], 3) @ turned([1, 2, 3], 40)),  # 0.4 off, 3 degrees
    "c": at([4, 0, 0], turned([0, 0, 1], 7) @ turned([1, 2, 3], 40)),  # 7 degrees
}


def test_shares_are_of_all_that_were_asked_for():
    errors = pose_errors(FOUND, REFERENCE, ["a", "b", "c", "d"], "metric")
    assert errors.within(0.25, 2) == 0.25 and errors.within(0.5, 5) == 0.5 and errors.within(5, 10) == 0.75
    assert errors.within(0.25) == 0.5
    assert errors.found.tolist() == [True, True, True, False]
    assert errors.medians() == pytest.approx((0.2, 3))


def test_relative_errors_are_in_units_of_the_spacing():
    errors = pose_errors(FOUND, REFERENCE, ["b"], "relative")
    assert errors.unit == pytest.approx(1.5)
    assert errors.position.tolist() == pytest.approx([0.4 / 1.5])


def test_asking_for_what_the_reference_lacks_is_refused():
    with pytest.raises(ValueError, match=r"lacks 1 of 2 photos, first \['x'\]"):
        pose_errors(FOUND, REFERENCE, ["a", "x"], "metric")


def test_an_error_of_just_the_threshold_is_within_it():
    errors = PoseErrors(("a", "b"), np.array([0.25, 0.125]), np.array([2.0, 4.0]), "metric", 1.0)
    assert errors.within(0.25, 2) == 0.5 and errors.within(0.125, 4) == 0.5 and errors.within(0.25, 4) == 1


def test_no_share_of_nothing_is_within():
    assert pose_errors(FOUND, REFERENCE, [], "metric").within(5, 10) == 0


def test_medians_are_of_the_photos_found_and_not_moved_by_one_far_off():
    position, rotation = np.array([0.1, np.inf, 0.2, 90.0]), np.array([3.0, np.inf, 120.0, 1.0])
    assert PoseErrors(tuple("abcd"), position, rotation, "metric", 1.0).medians() == (0.2, 3)


def test_thresholds_are_those_of_the_benchmark_and_of_the_papers_second_table():
    """visuallocalization.net: (0.25 m, 2 deg), (0.5 m, 5 deg), (5 m, 10 deg)."""
    assert LOCALIZATION["metric"] == ((0.25, 2), (0.5, 5), (5, 10))
    assert MAPPING["metric"] == LOCALIZATION["metric"][:2]
    assert LOCALIZATION["relative"] == ((0.02, 0.5), (0.1, 2), (0.5, 5))
    assert MAPPING["relative"] == LOCALIZATION["relative"][1:]
    assert [label(0.25, 2, scale) for scale in ("metric", "relative")] == ["0.25 m, 2 deg", "0.25 u, 2 deg"]


def test_medians_of_nothing_are_nan():
    assert np.isnan(pose_errors({}, REFERENCE, ["a"], "metric").medians()).all()


def test_spacing_of_many_cameras_is_that_of_all_pairs_without_comparing_them():
    """Some stand at one place; all distances at once would take 72 MB."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(3000, 3)) * (100, 100, 1)
    centers[100:300] = centers[:200]
    distances = [np.linalg.norm(centers - center, axis=1) for center in centers]
    expected = np.median([np.delete(d, i).min() for i, d in enumerate(distances)])
    poses = [at(center) for center in centers]
    tracemalloc.start()
    try:
        assert spacing(poses) == pytest.approx(expected, rel=1e-12)
        assert tracemalloc.get_traced_memory()[1] < 4e6
    finally:
        tracemalloc.stop()
