"""Neighbours of keypoints: which others of its photo lie near each.

In: positions and frames of a photo's keypoints, and how many neighbours are wanted. Out: their indices. Training and
translation both ask here. The search is scipy's k-d tree; `neighbours_jax` has another, for accelerators.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xdesc_jax.networks.threads import shared_threads

NONE = -1  # stands for a neighbour that is not there

# (positions [N, 2] px, octaves int [N] or None, nearest, larger, among bool [N] or None) -> int32 [N, nearest +
# larger], as `find` gives them; of keypoints of no octave none is larger.
Search = Callable[[np.ndarray, np.ndarray | None, int, int, np.ndarray | None], np.ndarray]


def by_tree(
    positions: np.ndarray, octaves: np.ndarray | None, nearest: int, larger: int, among: np.ndarray | None
) -> np.ndarray:
    """The neighbours of each keypoint of a photo by scipy's k-d trees, one an octave; see `Search`."""
    found = np.full((len(positions), nearest + larger), NONE, np.int32)
    if len(positions) < 2:
        return found
    some = np.arange(len(positions)) if among is None else np.flatnonzero(among)
    if not len(some):
        return found
    if nearest:
        found[:, :nearest] = _nearest(positions, np.arange(len(positions)), some, nearest)
    if not larger or octaves is None:
        return found
    for octave in np.unique(octaves):
        asking, asked = np.flatnonzero(octaves == octave), some[octaves[some] > octave]
        if len(asked):
            found[asking, nearest:] = _nearest(positions, asking, asked, larger)
    return found


def find(
    positions: np.ndarray,
    frames: np.ndarray | None,
    nearest: int,
    larger: int,
    usable: np.ndarray | None = None,
    among: np.ndarray | None = None,
    search: Search = by_tree,
) -> np.ndarray:
    """The neighbours of each keypoint of a photo, whatever the order of its rows: of keypoints that are equally near,
    as those that COLMAP describes once for each orientation are, positions and frames say which are found.

    Args:
        positions: [N, 2] px.
        frames: [N, 2], sigma px, over 0, and orientation; None where keypoints have none, and none is larger.
        nearest: how many of the nearest keypoints, whatever their size.
        larger: how many of the nearest keypoints whose sigma is in a higher octave (next power of two) than its own.
        usable: bool [N], keypoints that have neighbours and are some; None for all.
        among: bool [N], keypoints that are neighbours, of those that have some; None for all.
        search: what looks for them.

    Returns:
        int32 [N, nearest + larger], nearest first in each of the two parts, `NONE` where there are no more.
    """
    rows = np.lexsort((positions if frames is None else np.hstack([frames, positions])).T)
    rows = rows if usable is None else rows[usable[rows]]
    octaves = None if frames is None or not larger else np.floor(np.log2(frames[rows, 0])).astype(np.int32)
    own = search(positions[rows], octaves, nearest, larger, None if among is None else among[rows])
    found = np.full((len(positions), nearest + larger), NONE, np.int32)
    found[rows] = np.where(own == NONE, NONE, rows[own])
    return found


def find_by_photo(
    photos: np.ndarray,
    keypoints: np.ndarray,
    nearest: int,
    larger: int,
    least_share: float = 1.0,
    rng: np.random.Generator | None = None,
    search: Search = by_tree,
) -> np.ndarray:
    """`find` among rows of many photos in any order.

    Args:
        photos: int [N], the photo of each row.
        keypoints: [N, 4]: x, y, sigma, orientation.
        nearest, larger: as for `find`.
        least_share: neighbours are found among a share of their photo's keypoints, drawn evenly from this one to all,
            so that they lie as far off as in photos that were thinned.
        rng: draws it, for photos in ascending order; without it, neighbours are found among all.
        search: what looks for them.

    Returns:
        int32 [N, nearest + larger], indices of rows.
    """
    found = np.full((len(photos), nearest + larger), NONE, np.int32)
    order = np.argsort(photos, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(photos[order])) + 1):
        among = None if rng is None else rng.random(len(rows)) < rng.uniform(least_share, 1)
        own = find(keypoints[rows, :2], keypoints[rows, 2:], nearest, larger, among=among, search=search)
        found[rows] = np.where(own == NONE, NONE, rows[own])
    return found


def _nearest(positions: np.ndarray, asking: np.ndarray, asked: np.ndarray, count: int) -> np.ndarray:
    """Of the keypoints `asking`, the `count` nearest among those `asked` but itself, int32 [len(asking), count]."""
    from scipy.spatial import KDTree

    # One more than wanted: a keypoint may find itself, and not as the first where others lie at the same place.
    tree, wanted = KDTree(positions[asked]), np.arange(1, count + 2)
    _, near = tree.query(positions[asking], k=wanted, workers=shared_threads())
    near = np.where(near < len(asked), asked[np.minimum(near, len(asked) - 1)], NONE)
    own = near == asking[:, None]
    own[~own.any(axis=1), -1] = True  # the farthest goes where it did not find itself
    return near[~own].reshape(len(asking), count).astype(np.int32)
