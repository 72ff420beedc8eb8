"""The adapter of pycolmap's absolute pose."""

import numpy as np
import pytest

from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.bindings.pose import estimate_pose, residuals_px
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


@pytest.mark.parametrize("known", [True, False])
def test_a_spherical_camera_sees_what_is_behind_it_and_has_no_focal_length_to_estimate(known):
    camera = Camera("EQUIRECTANGULAR", 2000, 1000, (2000, 1000), known)
    points = np.random.default_rng(0).normal(size=(60, 3)) * 20
    x, y, z = (points @ TRUE.rotation.T + TRUE.translation).T
    assert 10 < (z < 0).sum() < 50  # of 60
    xy = np.stack([np.arctan2(x, z) / np.pi * 1000 + 1000, np.arctan2(y, np.hypot(x, z)) / np.pi * 1000 + 500], axis=1)
    found = estimate_pose(xy, points, camera, **SETTINGS)
    np.testing.assert_allclose(found.pose.rotation, TRUE.rotation, atol=1e-6)
    assert found.inlier.all() and found.error_px.max() < 1e-3
    assert residuals_px(camera, TRUE, points, xy).max() < 1e-6
    ahead = residuals_px(CAMERA, TRUE, points, xy)
    np.testing.assert_array_equal(np.isinf(ahead), z <= 0)


@pytest.mark.parametrize("seed", range(6))
def test_a_pose_is_found_where_one_correspondence_of_twenty_is_right(seed):
    """10,000 samples of three, of which one of 8,000 is right, miss four of these six."""
    xy, points = correspondences(700)
    xy[35:] = np.random.default_rng(1).uniform((0, 0), (640, 480), (665, 2))
    found = estimate_pose(xy, points, CAMERA, max_error_px=12.0, seed=seed)
    assert found is not None and found.inlier[:35].all()
    np.testing.assert_allclose(found.pose.translation, TRUE.translation, atol=0.2)


def test_wrong_correspondences_are_no_inliers():
    xy, points = correspondences(60)
    xy[::3] += 90
    found = estimate_pose(xy, points, CAMERA, **SETTINGS)
    assert not found.inlier[::3].any() and found.inlier.sum() == 40
    np.testing.assert_allclose(found.pose.translation, TRUE.translation, atol=1e-5)


@pytest.mark.parametrize(("max_error_px", "inliers"), [(3.0, 150), (9.0, 170), (25.0, 200)])
def test_inliers_are_those_within_the_error_that_is_allowed(max_error_px, inliers):
    """150 exact positions, 20 that are off by 6 px, 30 by 15 px, in directions that cancel."""
    xy, points = correspondences(200)
    angle = np.arange(50) * 2 * np.pi / 50 * 7
    xy[150:] += np.where(np.arange(50) < 20, 6, 15)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    found = estimate_pose(xy, points, CAMERA, max_error_px=max_error_px, seed=3)
    np.testing.assert_array_equal(found.inlier, np.arange(200) < inliers)


def test_the_seed_decides():
    """Two thirds of the positions are wrong and the others off by 4 px, so samples disagree."""
    xy, points = correspondences(60)
    rng = np.random.default_rng(1)
    xy += rng.normal(scale=4, size=xy.shape)
    xy[20:] = rng.uniform(0, 480, (40, 2))

    def found(seed):
        return tuple(estimate_pose(xy, points, CAMERA, max_error_px=5.0, seed=seed).pose.translation)

    first = [found(seed) for seed in range(1, 7)]
    pycolmap.set_random_seed(99)
    assert [found(seed) for seed in range(1, 7)] == first
    assert len(set(first)) > 1


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


def test_an_estimated_focal_length_is_refined_to_the_least_cost():
    """Cost over the inliers: sum of log(1 + squared error), as of COLMAP's Cauchy loss of 1 px."""
    xy, points = correspondences(80)
    xy += np.random.default_rng(2).normal(scale=1, size=xy.shape)
    guess = Camera("SIMPLE_PINHOLE", 640, 480, (768, 320, 240), known=False)
    found = estimate_pose(xy, points, guess, max_error_px=5.0, seed=3)
    seen = points @ found.pose.rotation.T + found.pose.translation

    def cost(factor):
        error = factor * found.focal_px * seen[:, :2] / seen[:, 2:] + [320, 240] - xy
        return np.log1p((error**2).sum(axis=1))[found.inlier].sum()

    less, at, more = (cost(factor) for factor in (0.999, 1, 1.001))
    least = 1 + 0.001 * (less - more) / (less - 2 * at + more) / 2  # of the parabola through the three
    assert least == pytest.approx(1, abs=1e-4)


def test_the_spread_of_the_position_is_that_of_the_reprojections():
    """(J^T J)^-1 of numeric derivatives; the block of the translation is the same however a rotation is counted."""
    xy, points = correspondences(60)
    found = estimate_pose(xy, points, CAMERA, max_error_px=5.0, seed=3)

    def projected(change):
        x, y, z = change[:3]
        turn = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        rotation = (np.eye(3) + turn + turn @ turn / 2) @ TRUE.rotation
        seen = points @ rotation.T + TRUE.translation + change[3:]
        return ([500, 510] * seen[:, :2] / seen[:, 2:] + [320, 240]).ravel()

    step = 1e-5
    jacobian = np.stack([(projected(step * e) - projected(-step * e)) / (2 * step) for e in np.eye(6)], axis=1)
    expected = np.linalg.inv(jacobian.T @ jacobian)[3:, 3:]
    np.testing.assert_allclose(found.covariance[3:, 3:], expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


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
    assert found.covariance is None and found.position_covariance is None


def test_three_points_are_enough():
    found = estimate_pose(*correspondences(3), CAMERA, **SETTINGS)
    assert found is not None and found.inlier.all()


def test_a_result_that_is_not_finite_is_none(monkeypatch):
    """A number of the position, then of the covariance alone."""
    given = pycolmap.estimate_and_refine_absolute_pose

    def damaged(part):
        def estimate(*args, **kwargs):
            found = given(*args, **kwargs)
            rigid = found["cam_from_world"]
            if part == "position":
                found["cam_from_world"] = pycolmap.Rigid3d(rigid.rotation, np.array([0.3, np.nan, 6.0]))
            else:
                found["covariance"] = np.where(np.arange(36).reshape(6, 6) == 35, np.nan, found["covariance"])
            return found

        return estimate

    monkeypatch.setattr(pycolmap, "estimate_and_refine_absolute_pose", damaged("position"))
    assert estimate_pose(*correspondences(20), CAMERA, **SETTINGS) is None
    monkeypatch.setattr(pycolmap, "estimate_and_refine_absolute_pose", damaged("covariance"))
    found = estimate_pose(*correspondences(20), CAMERA, **SETTINGS)
    assert found.covariance is None
    np.testing.assert_allclose(found.pose.translation, TRUE.translation, atol=1e-5)


def turned(rotation, w):
    """A rotation turned further by a rotation vector w, by Rodrigues' formula."""
    angle = np.linalg.norm(w)
    k = np.cross(np.eye(3), w / angle)  # k @ x = w / |w| x x
    return (np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k) @ rotation


def project(points, rotation, translation):
    x, y, z = (points @ rotation.T + translation).T
    return np.stack([500 * x / z + 320, 510 * y / z + 240], axis=1)


@pytest.mark.parametrize("offset", [(0, 0, 0), (40, -70, 25)])
def test_covariances_are_those_of_a_numeric_jacobian(offset):
    xy, points = correspondences(60)
    xy += np.random.default_rng(5).normal(scale=0.01, size=xy.shape)
    points = points + offset
    found = estimate_pose(xy, points, CAMERA, **SETTINGS)
    rotation, translation, step = found.pose.rotation, found.pose.translation, 1e-5
    columns = []
    for axis in np.eye(3) * step:
        columns.append(project(points, turned(rotation, axis), translation))
        columns[-1] = (columns[-1] - project(points, turned(rotation, -axis), translation)).ravel() / (2 * step)
    for axis in np.eye(3) * step:
        ahead, back = project(points, rotation, translation + axis), project(points, rotation, translation - axis)
        columns.append((ahead - back).ravel() / (2 * step))
    jacobian = np.stack(columns, axis=1)
    expected = np.linalg.inv(jacobian.T @ jacobian)
    size = np.sqrt(np.outer(np.diagonal(expected), np.diagonal(expected)))
    np.testing.assert_allclose(found.covariance / size, expected / size, atol=2e-3)

    # Of the position: its numeric derivative by the same six.
    def center(rotation, translation):
        return -rotation.T @ translation

    derivative = [
        (center(turned(rotation, axis), translation) - center(turned(rotation, -axis), translation)) / (2 * step)
        for axis in np.eye(3) * step
    ] + [
        (center(rotation, translation + axis) - center(rotation, translation - axis)) / (2 * step)
        for axis in np.eye(3) * step
    ]
    by = np.stack(derivative, axis=1)
    expected = by @ expected @ by.T
    np.testing.assert_allclose(found.position_covariance, expected, atol=2e-3 * np.abs(expected).max())
