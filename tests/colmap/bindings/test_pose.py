"""The adapter of pycolmap's absolute pose."""

import numpy as np
import pytest

from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.bindings.pose import estimate_pose
from xdesc_jax.colmap.model import Camera, Pose

CAMERA = Camera("PINHOLE", 640, 480, (500, 510, 320, 240))
TRUE = Pose.from_quaternion(np.array([0.9, 0.1, -0.3, 0.2]), np.array([0.3, -0.2, 6.0]))
SETTINGS = {"max_error_px": 12.0, "seed": 0}


def correspondences(n, seed=0):
    points = np.random.default_rng(seed).uniform(-1, 1, (n, 3))
    x, y, z = (points @ TRUE.rotation.T + TRUE.translation).T
    return np.stack([500 * x / z + 320, 510 * y / z + 240], axis=1), points


def test_exact_correspondences_give_the_pose():
    found = estimate_pose(*correspondences(40), CAMERA, **SETTINGS)
    np.testing.assert_allclose(found.pose.rotation, TRUE.rotation, atol=1e-6)
    np.testing.assert_allclose(found.pose.translation, TRUE.translation, atol=1e-5)
    assert found.inlier.dtype == bool and found.inlier.all()
    assert found.focal_px == 505
    assert found.covariance.shape == (6, 6) and (np.diagonal(found.covariance) > 0).all()


def test_wrong_correspondences_are_no_inliers():
    xy, points = correspondences(60)
    xy[::3] += 90
    found = estimate_pose(xy, points, CAMERA, **SETTINGS)
    assert not found.inlier[::3].any() and found.inlier.sum() == 40
    np.testing.assert_allclose(found.pose.translation, TRUE.translation, atol=1e-5)


def test_the_seed_decides():
    xy, points = correspondences(50)
    xy += np.random.default_rng(1).normal(scale=5, size=xy.shape)
    a, b = (estimate_pose(xy, points, CAMERA, max_error_px=8.0, seed=4) for _ in range(2))
    np.testing.assert_array_equal(a.pose.rotation, b.pose.rotation)


@pytest.mark.parametrize("n", [0, 2])
def test_too_few_points_give_no_pose(n):
    assert estimate_pose(*correspondences(n), CAMERA, **SETTINGS) is None


def test_equal_points_give_no_pose_that_has_support():
    xy, points = correspondences(1)
    found = estimate_pose(np.repeat(xy, 9, axis=0), np.repeat(points, 9, axis=0), CAMERA, **SETTINGS)
    assert found is None


def test_a_known_focal_length_stays_and_a_guess_is_estimated():
    xy, points = correspondences(80)
    guess = Camera("SIMPLE_PINHOLE", 640, 480, (768, 320, 240), known=False)
    found = estimate_pose(xy, points, guess, **SETTINGS)
    assert abs(found.focal_px - 505) < 5
    np.testing.assert_allclose(found.pose.center, TRUE.center, atol=0.1)
    kept = estimate_pose(xy, points, Camera("SIMPLE_PINHOLE", 640, 480, (768, 320, 240)), **SETTINGS)
    assert kept.focal_px == 768


def test_what_pycolmap_would_take_or_crash_on_is_refused():
    xy, points = correspondences(9)
    with pytest.raises(ValueError, match="9 image points with 8 3D points"):
        estimate_pose(xy, points[:8], CAMERA, **SETTINGS)
    xy[4] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        estimate_pose(xy, points, CAMERA, **SETTINGS)
    with pytest.raises(ValueError, match="refuses the camera"):
        estimate_pose(*correspondences(9), Camera("HOLE", 640, 480, (500, 320, 240)), **SETTINGS)


def test_the_mask_is_found_under_the_name_of_older_versions(monkeypatch):
    new = pycolmap.estimate_and_refine_absolute_pose

    def old(*args, **kwargs):
        found = new(*args, **kwargs)
        found["inliers"] = found.pop("inlier_mask").tolist()
        del found["covariance"]
        return found

    monkeypatch.setattr(pycolmap, "estimate_and_refine_absolute_pose", old)
    found = estimate_pose(*correspondences(20), CAMERA, **SETTINGS)
    assert found.inlier.dtype == bool and found.inlier.sum() == 20
    assert found.covariance is None
