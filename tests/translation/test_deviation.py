"""Which rows are told from the training rows."""

from __future__ import annotations

import numpy as np
import pytest

from xdesc_jax.translation.deviation import Deviation, RowStatistics

WIDTH = 24


DIRECTIONS = np.linalg.qr(np.random.default_rng(0).normal(size=(WIDTH, 4)))[0].T


def means_of_photos(count, seed):
    """Means [count, WIDTH] that vary along 3 directions."""
    return np.linspace(0, 3, WIDTH) + np.random.default_rng(seed).normal(size=(count, 3)) @ DIRECTIONS[:3]


def photos(count, rows, seed, shift=0.0):
    """Rows of photos, and the photo of each row.

    `shift` moves all rows along a fourth direction, as another implementation does.
    """
    means = np.repeat(means_of_photos(count, seed), rows, axis=0) + shift * DIRECTIONS[3]
    noise = np.random.default_rng(seed + 1000).normal(size=means.shape)
    return (means + noise).astype(np.float32), np.repeat(np.arange(count), rows)


def message(statistics, x, scaled=False):
    deviation = Deviation(statistics, scaled)
    for block in np.array_split(x, 3):
        deviation.update(block)
    return deviation.message()


@pytest.fixture
def statistics():
    return RowStatistics.of(*photos(100, 150, seed=1))


def test_statistics_are_mean_and_deviation_of_rows_that_are_not_zero():
    x = np.array([[1, 2], [3, 6], [0, 0]], np.float32)
    found = RowStatistics.of(x)
    np.testing.assert_array_equal(found.mean, [2, 4])
    np.testing.assert_array_equal(found.std, [1, 2])
    assert found.photo_covariance is None


def test_the_covariance_of_photos_leaves_out_what_few_rows_add():
    found = RowStatistics.of(*photos(2000, 5, seed=2))
    expected = np.cov((means_of_photos(2000, seed=2) / found.std).T)
    np.testing.assert_allclose(found.photo_covariance, expected, atol=0.04)  # noise alone would add 0.18


def test_zero_rows_change_no_statistics():
    x, photo = photos(70, 20, seed=3)
    rng = np.random.default_rng(0)
    at = np.sort(rng.integers(0, len(x), 500))
    with_zeros = np.insert(x, at, 0, axis=0), np.insert(photo, at, rng.integers(0, 70, 500))
    found, expected = RowStatistics.of(*with_zeros), RowStatistics.of(x, photo)
    np.testing.assert_allclose(found.mean, x.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found.std, x.std(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found.photo_covariance, expected.photo_covariance, atol=1e-6)


def test_few_photos_give_no_covariance():
    assert RowStatistics.of(*photos(63, 100, seed=1)).photo_covariance is None


def test_other_photos_of_the_same_descriptor_pass(statistics):
    for seed in range(5, 10):
        assert message(statistics, photos(60, 150, seed=seed)[0]) is None
    assert message(statistics, photos(1, 100, seed=11)[0]) is None


def test_a_shift_in_a_direction_in_which_photos_do_not_vary_is_told(statistics):
    assert "another implementation" in message(statistics, photos(60, 150, seed=5, shift=1.0)[0])


def test_a_permutation_is_told_from_64_rows_on(statistics):
    x = photos(1, 64, seed=5)[0][:, ::-1]
    assert "other order" in message(statistics, x)
    assert message(statistics, x[:63]) is None


@pytest.mark.parametrize("factor", [1 / 9, 9])
def test_another_scale_is_told_where_rows_have_one(statistics, factor):
    x = photos(2, 100, seed=5)[0]
    assert "wrong scale" in message(statistics, factor * x, scaled=True)
    assert message(statistics, x, scaled=True) is None


def test_a_dimension_that_never_varied_does_not_decide_alone():
    x = photos(60, 200, seed=1)[0]
    x[:, 3] = 0
    shifted = photos(60, 200, seed=2)[0]
    shifted[:, 3] = 1e-4
    assert message(RowStatistics.of(x), shifted) is None


@pytest.fixture(scope="module")
def of_sift():
    """Statistics of rows whose first values vary with the photo, as bins do with edges that are mostly level."""
    return RowStatistics.of(*photos(400, 60, seed=20))


def test_what_a_place_may_reach_grows_the_less_its_means_look_like_those_of_the_training(of_sift):
    limits = []
    for correlation in (1.0, 0.93, 0.84, 0.0):
        deviation = Deviation(of_sift, scaled=False)
        limits.append(deviation._place_level(correlation, 0.05))
    np.testing.assert_allclose(limits, [2.0, 3.75, 6.0, 6.0])


@pytest.mark.parametrize("along, told", [(0, False), (3, True)])
def test_of_flat_means_a_shift_is_told_by_whether_photos_vary_so(along, told):
    """The same shift once in a direction in which photos vary, once in a direction in which they do not."""
    flat = np.linspace(0, 3, WIDTH).astype(np.float32)
    x, photo = photos(400, 60, seed=21)
    deviation = Deviation(RowStatistics.of(x - flat, photo), scaled=False)
    rows = np.random.default_rng(5).normal(size=(9000, WIDTH)) + 2 * DIRECTIONS[along]
    deviation.update(rows.astype(np.float32))
    assert (deviation.message() is not None) == told


@pytest.mark.parametrize(
    ("distance", "correlation", "told"),
    [
        (5.62, 0.84, False),  # sift of fountain-p11, at COLMAP's keypoints
        (4.78, 0.65, False),  # brief of the same
        (3.00, 0.88, False),  # opencv-sift of the same
        (2.42, 0.93, False),  # sift of lund-door
        (1.68, 0.95, False),  # sift of the demo's warped photos
        (4.00, 0.97, True),  # sift-kornia05 said to be sift, Oxford sequences
        (4.70, 0.99, True),  # RootSIFT said to be opencv-sift, the same
        (5.40, 0.93, True),  # the same, lund-door
        (7.10, 0.88, True),  # colmap-sift said to be opencv-sift, fountain-p11
        (6.10, 0.87, True),  # opencv-sift said to be colmap-sift, fountain-p11
    ],
)
def test_measured_distances_of_real_scenes_are_on_the_right_side(of_sift, distance, correlation, told):
    assert (distance > Deviation(of_sift, scaled=False)._place_level(correlation, 0.05)) == told
