"""Measures of matching, against figures worked out by hand."""

import dataclasses

import numpy as np
import pytest

from xdesc_jax.evaluate.measures import (
    THRESHOLDS_PX,
    GroundTruth,
    Measures,
    average_precision,
    mean,
    mean_matching_accuracy,
    measure,
)


def shifted(xy):
    return xy + [100, 0]


@pytest.fixture
def four_keypoints():
    """Four query keypoints, shifted by 100 px; database keypoints at 0, 2, 3 and 40 px from the truth."""
    query = np.array([[0, 0], [10, 0], [20, 0], [30, 0]], np.float32)
    database = np.array([[100, 0], [110, 2], [120, 3], [130, 40]], np.float32)
    return GroundTruth.of(query, database, shifted)


def identity_matches(n):
    return np.stack([np.arange(n)] * 2, axis=1)


def empty_matches():
    return np.zeros((0, 2), np.int32)


def test_findable_rows_have_a_database_keypoint_at_most_3_px_from_the_truth(four_keypoints):
    np.testing.assert_array_equal(four_keypoints.findable, [True, True, True, False])


def test_error_is_the_distance_to_the_true_position_in_px(four_keypoints):
    errors = four_keypoints.errors(np.array([0, 1, 2, 3, 0]), np.array([0, 1, 2, 3, 1]))
    np.testing.assert_allclose(errors, [0, 2, 3, 40, np.hypot(10, 2)])


def test_mma_counts_errors_up_to_and_including_each_threshold():
    accuracy = mean_matching_accuracy(np.array([0.0, 2, 3, 40]), THRESHOLDS_PX)
    np.testing.assert_allclose(accuracy, [0.25, 0.5, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75])


def test_mma_is_zero_without_matches():
    np.testing.assert_array_equal(mean_matching_accuracy(np.zeros(0), [1, 2]), [0, 0])


def test_ap_of_four_rows_by_hand():
    """Ranked: right, wrong, right, wrong; 3 could be found: (1/1 + 2/3) / 3."""
    ratios = np.array([0.9, 0.1, 0.7, 0.5])
    correct = np.array([False, True, True, False])
    assert average_precision(ratios, correct, 3) == pytest.approx((1 + 2 / 3) / 3)


def test_ap_of_tied_rows_is_the_precision_at_the_end_of_their_group():
    """Ratio 0.2: one right of two; ratio 0.5: one more of three."""
    ratios = np.array([0.2, 0.2, 0.5])
    assert average_precision(ratios, np.array([True, False, True]), 2) == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert average_precision(ratios, np.array([False, True, True]), 2) == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_ap_agrees_with_a_plain_loop_over_the_ranking():
    rng = np.random.default_rng(0)
    ratios, correct = rng.random(37), rng.random(37) < 0.4
    hits, total = 0, 0.0
    for rank, row in enumerate(sorted(range(37), key=lambda i: ratios[i]), start=1):
        if correct[row]:
            hits += 1
            total += hits / rank
    assert average_precision(ratios, correct, 29) == pytest.approx(total / 29)


def test_ap_is_zero_where_nothing_can_be_found():
    assert average_precision(np.array([0.1]), np.array([False]), 0) == 0
    assert average_precision(np.zeros(0), np.zeros(0, bool), 5) == 0


def test_all_measures_of_four_keypoints_by_hand(four_keypoints):
    """Row 3 has no true counterpart; the ratio test keeps rows 0 and 3."""
    got = measure(
        four_keypoints,
        nearest=np.array([0, 1, 2, 3]),
        ratios=np.array([0.1, 0.95, 0.99, 0.5]),
        mutual=identity_matches(4),
        mutual_ratios=np.array([0.1, 0.95, 0.99, 0.5]),
        ratio=0.96,
    )
    # Ranked: row 0 right, row 3 wrong, row 1 right, row 2 right.
    assert got.ap == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)
    assert got.mma == pytest.approx((0.25, 0.5) + (0.75,) * 8)
    assert got.mma_mean == pytest.approx((0.25 + 0.5 + 0.75 * 3) / 5)
    assert (got.correct, got.precision, got.distinct) == (1, 0.5, 1)
    assert (got.matches, got.ratio_matches, got.queries, got.findable) == (4, 2, 4, 3)
    # At 0.96 row 1 passes, too.
    assert (got.ratio, got.calibrated_correct, got.calibrated_precision) == (0.96, 2, pytest.approx(2 / 3))


def test_rows_without_a_neighbour_are_not_ranked_but_stay_findable(four_keypoints):
    got = measure(
        four_keypoints,
        nearest=np.array([-1, 1, 2, -1]),
        ratios=np.array([0, 0.5, 0.6, 0]),
        mutual=np.array([[1, 1], [2, 2]]),
        mutual_ratios=np.array([0.95, 0.95]),
    )
    assert got.ap == pytest.approx(2 / 3)
    assert got.findable == 3


def test_no_matches_give_zeros_and_no_warning(four_keypoints):
    got = measure(four_keypoints, np.full(4, -1), np.zeros(4), empty_matches(), np.zeros(0))
    assert (got.ap, got.mma, got.mma_mean, got.correct, got.precision, got.distinct) == (
        0,
        (0,) * 10,
        0,
        0,
        0,
        0,
    )


@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0), (0, 0)])
def test_photos_without_keypoints_give_zeros(n, m):
    truth = GroundTruth.of(np.zeros((n, 2)), np.zeros((m, 2)), shifted)
    got = measure(truth, np.full(n, -1), np.zeros(n), empty_matches(), np.zeros(0))
    assert (got.ap, got.mma_mean, got.correct, got.findable) == (0, 0, 0, 0)


def test_rows_of_unknown_truth_count_neither_as_right_nor_as_wrong(four_keypoints):
    def partly_known(xy):
        expected = shifted(xy)
        expected[3] = np.nan
        return expected

    truth = GroundTruth.of(four_keypoints.query_xy, four_keypoints.database_xy, partly_known)
    got = measure(truth, np.arange(4), np.array([0.4, 0.5, 0.6, 0.1]), identity_matches(4), np.zeros(4))
    assert (got.ap, got.precision, got.matches, got.queries) == (1, 1, 3, 3)
    assert got.mma[2] == 1


def test_several_orientations_at_one_position_count_once_as_distinct():
    """Two keypoints at one corner, in both photos: two correct matches, one distinct position."""
    query = np.array([[5, 5], [5, 5], [9, 9]], np.float32)
    truth = GroundTruth.of(query, query + [100, 0], shifted)
    got = measure(truth, np.arange(3), np.array([0.1, 0.2, 0.3]), identity_matches(3), np.zeros(3))
    assert (got.correct, got.distinct, got.precision) == (3, 2, 1)


def test_permuted_rows_give_the_same_figures():
    rng = np.random.default_rng(1)
    query, database = rng.random((23, 2)) * 5, rng.random((31, 2)) * 5 + [100, 0]
    nearest, ratios = rng.integers(0, 31, 23), rng.integers(1, 6, 23) / 5  # many ties
    mutual = np.stack([np.arange(23), nearest], axis=1)
    passed = np.where(np.arange(23) % 2, 1.0, 0.5)
    before = measure(GroundTruth.of(query, database, shifted), nearest, ratios, mutual, passed)

    rows, columns = rng.permutation(23), rng.permutation(31)
    moved = np.argsort(columns)[nearest]
    mutual = np.stack([np.argsort(rows)[np.arange(23)], moved], axis=1)
    truth = GroundTruth.of(query[rows], database[columns], shifted)
    after = measure(truth, moved[rows], ratios[rows], mutual, passed)
    assert 0 < before.ap < 1
    for field in dataclasses.fields(Measures):
        assert getattr(after, field.name) == pytest.approx(getattr(before, field.name)), field.name


def test_many_keypoints_are_found_in_blocks_as_one_by_one():
    rng = np.random.default_rng(2)
    query, database = rng.random((1500, 2)) * 200, rng.random((57, 2)) * 200
    truth = GroundTruth.of(query, database, lambda xy: xy)
    expected = [any(np.hypot(*(q - d)) <= 3 for d in database) for q in query[1000:1100]]
    np.testing.assert_array_equal(truth.findable[1000:1100], expected)


def test_means_are_taken_field_by_field():
    one = Measures(0.2, (0.0,) * 10, 0.1, 10, 0.5, 9, 20, 15, 100, 50, 0.9, 10, 0.5)
    two = Measures(0.4, (1.0,) * 10, 0.3, 30, 1.0, 29, 40, 30, 100, 60, 0.9, 30, 1.0)
    got = mean([one, two])
    assert (got.ap, got.mma, got.correct, got.findable) == (pytest.approx(0.3), (0.5,) * 10, 20, 55)


def test_a_mean_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no measures"):
        mean([])
