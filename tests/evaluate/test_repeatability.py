"""Repeatability on points made by hand, and against all ways to pair a few."""

import itertools

import numpy as np
import pytest

from xdesc_jax.evaluate.repeatability import Repeatability, mean, repeatability
from xdesc_jax.evaluate.scenes import by_homography

SIZE = (101, 81)
SAME = np.eye(3)
SHIFT = np.array([[1, 0, 20], [0, 1, 0], [0, 0, 1.0]])


def measured(query, database, matrix=SAME, sizes=(SIZE, SIZE), **given):
    maps = by_homography(matrix), by_homography(np.linalg.inv(matrix))
    return repeatability(np.reshape(query, (-1, 2)), np.reshape(database, (-1, 2)), *maps, *sizes, **given)


def test_keypoints_count_that_both_photos_show():
    """Shifted by 20 px to the right: x over 80.5 leaves photo 2, and x under 19.5 of photo 2 was not in photo 1."""
    query = [(10, 10), (50, 40), (80.4, 9), (80.6, 70)]
    database = [(30, 13), (70.0, 43.1), (100, 9), (19.4, 5), (19.6, 60)]
    assert measured(query, database, SHIFT) == Repeatability(3, 4, 2, 2 / 3)  # the second is 3.1 px away
    assert measured(query, database, SHIFT, within_px=3.2) == Repeatability(3, 4, 3, 1)


def test_a_keypoint_is_in_one_pair_alone_and_the_most_pairs_count():
    assert measured([(50, 50)], [(51, 50), (49, 50), (50, 51)]) == Repeatability(1, 3, 1, 1)
    # The nearest pair, (52, 50) and (53, 50), would leave the other two 4 px apart.
    assert measured([(50, 50), (52, 50)], [(53, 50), (54, 50)]).common == 2
    assert measured([(50, 50), (52, 50)], [(53, 50), (56, 50)]).common == 1


def test_keypoints_at_one_position_count_once():
    assert measured([(50, 50)] * 3 + [(20, 20)], [(50, 50)] * 2) == Repeatability(2, 1, 1, 1)


def test_the_tolerance_is_in_px_of_the_second_photo():
    half = np.diag([0.5, 0.5, 1.0])
    assert measured([(40, 40)], [(22.9, 20)], half).common == 1  # 5.8 px in the first
    assert measured([(40, 40)], [(23.1, 20)], half).common == 0


@pytest.mark.parametrize("query, database", [([], [(5, 5)]), ([(5, 5)], []), ([], []), ([(95, 5)], [(99, 5)])])
def test_without_keypoints_in_common_nothing_repeats(query, database):
    found = measured(query, database, SHIFT)
    assert (found.common, found.share) == (0, 0)


def test_the_most_pairs_are_those_of_all_ways_to_pair():
    rng, seen = np.random.default_rng(0), set()
    for _ in range(40):
        a, b = (np.round(rng.uniform(0, 9, (n, 2)), 2) + 40 for n in (4, 5))
        near = np.linalg.norm(a[:, None] - b[None], axis=2) <= 3
        most = max(sum(near[i, j] for i, j in enumerate(chosen)) for chosen in itertools.permutations(range(5), 4))
        assert measured(a, b).common == most
        seen.add(int(most))
    assert len(seen) > 2


def test_means_are_field_by_field():
    assert mean([Repeatability(1, 2, 3, 0.5), Repeatability(3, 4, 5, 1.0)]) == Repeatability(2, 3, 4, 0.75)
