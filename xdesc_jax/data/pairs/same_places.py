"""Keypoints of different detectors that found the same places.

In: features of one photo, each of keypoints of its own. Out: which rows of each are of one place, so that what looked
there from a pixel away learns from it as well. Imports numpy; the search is scipy's k-d tree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xdesc_jax.features.frames import of_features
from xdesc_jax.features.store import ImageFeatures

OCTAVES = 0.5  # by which sigmas may differ where both have them
TURN_DEG = 20.0  # by which orientations may
_AT_A_PLACE = 8  # keypoints that a place may have, by orientation and sigma


def same_places(photos: Sequence[ImageFeatures], usable: Sequence[np.ndarray], within_px: float) -> list[np.ndarray]:
    """The rows that are of one place in all of these.

    Args:
        photos: features of one photo.
        usable: bool [N], which rows of each count.
        within_px: how far keypoints of a place may lie from that of the first.

    Returns:
        Of each, int [M] rows. A row of the first stands with the nearest of each other, and is the nearest to it, among
        those whose sigmas and orientations agree where both have them; ascending in the first.
    """
    found = [np.flatnonzero(usable[0])]
    for photo, there in zip(photos[1:], usable[1:], strict=True):
        partner = _nearest(photos[0], usable[0], photo, there, within_px)
        back = _nearest(photo, there, photos[0], usable[0], within_px)
        found = [rows[partner[found[0]] >= 0] for rows in found]
        mutual = back[partner[found[0]]] == found[0]
        found = [rows[mutual] for rows in found]
        found.append(partner[found[0]])
    return found


def _nearest(
    asking: ImageFeatures, who: np.ndarray, asked: ImageFeatures, whom: np.ndarray, within_px: float
) -> np.ndarray:
    """Of each row, the nearest of the other's that may be of its place; -1 where there is none. Int [N]."""
    from scipy.spatial import KDTree

    nearest, rows, others = np.full(len(asking), -1), np.flatnonzero(who), np.flatnonzero(whom)
    if not len(rows) or not len(others):
        return nearest
    tree = KDTree(asked.keypoints[others].astype(np.float64))
    of = asking.keypoints[rows].astype(np.float64)
    apart, near = tree.query(of, k=np.arange(1, _AT_A_PLACE + 1), distance_upper_bound=np.nextafter(within_px, np.inf))
    fits = np.isfinite(apart)
    near = others[np.where(fits, near, 0)]
    frames, other_frames = of_features(asking), of_features(asked)
    if frames is not None and other_frames is not None:
        own, theirs = frames[rows, None], other_frames[near]
        turn = np.degrees(np.abs(np.remainder(own[..., 1] - theirs[..., 1] + np.pi, 2 * np.pi) - np.pi))
        fits &= (np.abs(np.log2(own[..., 0] / theirs[..., 0])) <= OCTAVES) & (turn <= TURN_DEG)
    first = fits.argmax(axis=1)  # neighbours come by distance
    nearest[rows] = np.where(fits.any(axis=1), near[np.arange(len(rows)), first], -1)
    return nearest
