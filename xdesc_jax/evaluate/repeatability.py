"""How many keypoints two photos have in common, whatever describes them: what their detectors allow.

In: keypoints of two photos of one plane, and where each lies in the other photo. Out: how many lie in both photos, and
how many of them have a counterpart. Imports numpy; the counterparts are paired by scipy.

Repeatability as Mikolajczyk et al. define it ("A comparison of affine region detectors", IJCV 2005, section 4.1), with
points in the place of regions: the number of one-to-one correspondences, over the smaller number of keypoints that the
two photos have in the part of the scene that both show. Points correspond that lie within some px of each other in the
second photo, as on HPatches, where regions would overlap by 60 %.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from xdesc_jax.evaluate.measures import CORRECT_PX, Correspondence


@dataclasses.dataclass(frozen=True)
class Repeatability:
    """The figures of one photo pair, or means of them; keypoints at one and the same position count once.

    Attributes:
        query: keypoints of the query photo that lie in the database photo.
        database: keypoints of the database photo that lie in the query photo.
        common: the most pairs of one of each within the tolerance, each keypoint in one pair at most.
        share: `common` over the smaller one of the two; 0 where it is 0.
    """

    query: float
    database: float
    common: float
    share: float


def repeatability(
    query_xy: np.ndarray, database_xy: np.ndarray, forward: Correspondence, backward: Correspondence,
    query_size: tuple[int, int], database_size: tuple[int, int], within_px: float = CORRECT_PX,
) -> Repeatability:  # fmt: skip
    """The repeatability of the keypoints of one pair.

    Args:
        query_xy, database_xy: [N, 2] and [M, 2] px, origin at the centre of the first pixel.
        forward, backward: positions in the query photo -> those in the database photo, and back.
        query_size, database_size: (width, height) of the photos in px.
        within_px: how near to each other a keypoint and the true position of another correspond, in px of the database
            photo.
    """
    query, database = (np.unique(np.asarray(xy, np.float64), axis=0) for xy in (query_xy, database_xy))
    expected = np.asarray(forward(query))
    expected = expected[_inside(expected, database_size)]
    database = database[_inside(np.asarray(backward(database)), query_size)]
    common, least = _most_pairs(expected, database, within_px), min(len(expected), len(database))
    return Repeatability(len(expected), len(database), common, common / least if least else 0.0)


def _inside(xy: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """[N] bool, whether positions lie on a photo's pixels; those that are not finite do not."""
    return np.asarray(((xy >= -0.5) & (xy <= np.array(size) - 0.5)).all(axis=1))


def _most_pairs(a: np.ndarray, b: np.ndarray, within_px: float) -> int:
    """Of points [N, 2] and [M, 2], the largest number of disjoint pairs that lie within `within_px`."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching
    from scipy.spatial import KDTree

    if not (len(a) and len(b)):
        return 0
    near = KDTree(a).query_ball_tree(KDTree(b), within_px)
    starts = np.concatenate([[0], np.cumsum([len(found) for found in near])])
    columns = np.array([j for found in near for j in found], np.int32)
    graph = csr_matrix((np.ones(len(columns), np.int8), columns, starts), shape=(len(a), len(b)))
    return int((maximum_bipartite_matching(graph, perm_type="column") >= 0).sum())


def mean(found: Sequence[Repeatability]) -> Repeatability:
    """Field by field mean."""
    return Repeatability(*np.mean([dataclasses.astuple(each) for each in found], axis=0).tolist())
