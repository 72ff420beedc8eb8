"""Neighbours of keypoints against sorted distances."""

from __future__ import annotations

import numpy as np
import pytest

from xdesc_jax.networks import neighbours, neighbours_jax
from xdesc_jax.networks.neighbours import NONE, by_tree
from xdesc_jax.networks.neighbours_jax import blocked

SEARCHES = pytest.mark.parametrize("search", [by_tree, blocked])


def keypoints(n, seed=0):
    rng = np.random.default_rng(seed)
    positions, sigmas = rng.uniform(0, 300, (n, 2)), 2 ** rng.uniform(-0.5, 4, n)
    return positions, np.column_stack([sigmas, rng.uniform(-3, 3, n)])


def by_loops(positions, frames, nearest, larger, among=None):
    """Every keypoint against every other one, or those `among`."""
    found, sigmas = [], frames[:, 0]
    asked = range(len(positions)) if among is None else np.flatnonzero(among)
    for i in range(len(positions)):
        others = sorted((float(np.hypot(*(positions[j] - positions[i]))), j) for j in asked if j != i)
        near = [j for _, j in others][:nearest]
        big = [j for _, j in others if np.floor(np.log2(sigmas[j])) > np.floor(np.log2(sigmas[i]))][:larger]
        found.append(near + [NONE] * (nearest - len(near)) + big + [NONE] * (larger - len(big)))
    return np.array(found)


@SEARCHES
@pytest.mark.parametrize(("n", "nearest", "larger"), [(120, 5, 3), (40, 0, 4), (40, 7, 0), (6, 9, 4), (2, 3, 2)])
def test_the_nearest_and_the_nearest_of_a_higher_octave_are_found(n, nearest, larger, search):
    positions, frames = keypoints(n)
    found = neighbours.find(positions, frames, nearest, larger, search=search)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, by_loops(positions, frames, nearest, larger))


@SEARCHES
@pytest.mark.parametrize("n", [0, 1])
def test_photos_without_a_pair_of_keypoints_have_no_neighbours(n, search):
    found = neighbours.find(*keypoints(n), nearest=4, larger=2, search=search)
    assert found.shape == (n, 6) and (found == NONE).all()


@SEARCHES
def test_keypoints_at_one_place_are_neighbours_and_none_is_its_own(search):
    """More of them than are asked for: the search may not find a keypoint itself among the nearest."""
    found = neighbours.find(np.zeros((30, 2)), np.full((30, 2), 2.0), 4, 2, search=search)
    assert (found[:, :4] != np.arange(30)[:, None]).all() and (found[:, :4] >= 0).all()
    assert all(len(set(row)) == 4 for row in found[:, :4].tolist())
    assert (found[:, 4:] == NONE).all()


@SEARCHES
@pytest.mark.parametrize("framed", [True, False])
def test_which_of_equally_near_keypoints_are_found_does_not_depend_on_their_order(framed, search):
    """On a grid of whole px, as some detectors give them; with frames, each place comes with two orientations."""
    positions = np.stack(np.meshgrid(np.arange(6.0), np.arange(5.0)), axis=-1).reshape(-1, 2).repeat(1 + framed, axis=0)
    frames = keypoints(len(positions), 8)[1] if framed else None
    order = np.random.default_rng(9).permutation(len(positions))
    found = neighbours.find(positions, frames, 5, 3, search=search)
    again = neighbours.find(positions[order], None if frames is None else frames[order], 5, 3, search=search)
    np.testing.assert_array_equal(np.where(again == NONE, NONE, order[again]), found[order])


def test_rows_of_many_photos_have_neighbours_of_their_own_photo_alone():
    rng = np.random.default_rng(1)
    photos = rng.integers(0, 5, 90) * 7
    positions, frames = keypoints(90, 2)
    found = neighbours.find_by_photo(photos, np.column_stack([positions, frames]), 4, 2)
    for photo in np.unique(photos):
        rows = np.flatnonzero(photos == photo)
        own = by_loops(positions[rows], frames[rows], 4, 2)
        np.testing.assert_array_equal(found[rows], np.where(own == NONE, NONE, rows[own]))


@SEARCHES
@pytest.mark.parametrize("share", [0.5, 0.1, 0.0])
def test_neighbours_are_found_among_some_for_all(share, search):
    positions, frames = keypoints(60, 3)
    among = np.random.default_rng(4).random(60) < share
    found = neighbours.find(positions, frames, 6, 3, among=among, search=search)
    np.testing.assert_array_equal(found, by_loops(positions, frames, 6, 3, among))
    usable = np.random.default_rng(5).random(60) < 0.8
    found = neighbours.find(positions, frames, 6, 3, usable, among, search)
    rows = np.flatnonzero(usable)
    own = by_loops(positions[rows], frames[rows], 6, 3, among[rows])
    np.testing.assert_array_equal(found[rows], np.where(own == NONE, NONE, rows[own]))
    assert (found[~usable] == NONE).all()


def test_a_thinned_photo_keeps_a_share_that_is_drawn_evenly():
    """As many neighbours as there may be are those that are left."""
    photos = np.repeat(np.arange(3000), 20)
    rows = np.column_stack(keypoints(len(photos), 6))
    found = neighbours.find_by_photo(photos, rows, 20, 0, 0.4, np.random.default_rng(7))
    shares = np.array([len(set(rows.ravel()) - {NONE}) / 20 for rows in found.reshape(3000, -1)])
    assert shares.mean() == pytest.approx(0.7, abs=0.015)
    # Of the share that is drawn, and of 20 draws by it.
    assert shares.std() == pytest.approx(np.sqrt(0.6**2 / 12 + (0.7 * 0.3 - 0.03) / 20), abs=0.015)
    again = neighbours.find_by_photo(photos, rows, 20, 0, 0.4, np.random.default_rng(7))
    np.testing.assert_array_equal(again, found)


def test_blocks_of_a_large_photo_find_what_the_tree_finds():
    """More keypoints than ask at once, each place twice as with two orientations: which of two equally near is free."""
    assert len(keypoints(3000)[0]) > neighbours_jax.BLOCK
    positions, frames = keypoints(1500, 10)
    positions, frames = positions.astype(np.float32).repeat(2, axis=0), frames.repeat(2, axis=0)
    distances = []
    for search in (by_tree, blocked):
        found = neighbours.find(positions, frames, 24, 16, search=search)
        assert all(len(set(row)) == 24 for row in found[:, :24].tolist())
        offsets = positions[found].astype(np.float64) - positions[:, None]
        distances.append(np.where(found == NONE, np.inf, np.hypot(offsets[..., 0], offsets[..., 1])))
    np.testing.assert_allclose(*distances, rtol=1e-6)


def test_accelerators_search_in_blocks_and_cpus_in_trees(monkeypatch):
    for backend, search in (("cpu", by_tree), ("gpu", blocked), ("tpu", blocked)):
        monkeypatch.setattr(neighbours_jax.jax, "default_backend", lambda backend=backend: backend)
        assert neighbours_jax.fastest() is search
