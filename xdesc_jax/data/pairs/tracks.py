"""Which two observations of a track become a training pair.

In: a sparse model and, of each observation, its keypoint's scale and orientation and whether its patch can be
used. Out: pairs of observations, and one number for all tracks that may show the same point. Plain numpy.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from xdesc_jax.colmap.model import Model

_MOST_VIEWS = 16  # of a track, drawn: the pairs of a track of 100 views would be 4950
_FLOOR = 0.05  # weight of a pair without any change of view, against up to 2 of the hardest
_SAME_PX = 1.0  # tracks with keypoints in one cell of so many px are taken for one point


@dataclasses.dataclass(frozen=True)
class PairRules:
    """Which pairs are good, and how many a track gives.

    Attributes:
        pairs_per_track: the most pairs of one track; no observation is in two of them.
        min_track_length: usable observations that a track must have. Reconstruction leaves out most tracks of
            two unless told to keep them (`ReconstructSettings.two_view_tracks`).
        max_residual_px: observations with a larger reprojection error are not used.
        min_angle_deg: largest angle between two rays of a track; below it its depth means little.
        max_angle_deg: between the rays of a pair; beyond it the patches show different things.
        max_scale_factor: of the keypoints' scale ratio to that of focal length over depth.
        max_turn_deg: of the keypoints' relative orientation from the one that the cameras give.
    """

    pairs_per_track: int = 2
    min_track_length: int = 3
    max_residual_px: float = 2.0
    min_angle_deg: float = 2.0
    max_angle_deg: float = 60.0
    max_scale_factor: float = 1.6
    max_turn_deg: float = 30.0

    def __post_init__(self) -> None:
        lowest = {"pairs_per_track": 1, "min_track_length": 2, "max_scale_factor": 1}
        for field in dataclasses.fields(self):
            value, least = getattr(self, field.name), lowest.get(field.name, 0)
            if not value >= least:
                raise ValueError(f"{field.name} is {value}, expected at least {least}")


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Pairs of observations of one track, P of them.

    Attributes:
        first: [P] int, index of an observation.
        second: [P] int, of another one in another photo.
        angle_deg: [P], between the two rays to the point.
        zoom: [P], log2 of the ratio of focal length over depth, first to second.
        scale_error: [P], log2 of the ratio of the keypoints' scales, less `zoom`.
        turn_deg: [P], the keypoints' relative orientation less the one that the cameras give, -180 to 180.
    """

    first: np.ndarray
    second: np.ndarray
    angle_deg: np.ndarray
    zoom: np.ndarray
    scale_error: np.ndarray
    turn_deg: np.ndarray

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: np.ndarray) -> Candidates:
        """The pairs of some rows (indices or mask), in that order."""
        return Candidates(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))


def choose_pairs(
    model: Model, scales: np.ndarray, oris: np.ndarray, usable: np.ndarray, rules: PairRules, seed: list[int]
) -> tuple[Candidates, Candidates]:
    """Draws the pairs of each track, hard ones with a larger chance.

    A pair's chance grows with its angle up to 60 degrees and with its change of scale up to a factor of 2,
    each giving up to 1 to its weight. Pairs of a track are drawn by weight without replacement.

    Args:
        model: with M observations.
        scales: [M] of the observations' keypoints, sigma in px.
        oris: [M] radians, from x towards y.
        usable: bool [M], observations that have a patch.
        rules: see there.
        seed: of the draw.

    Returns:
        The chosen pairs, and all pairs that obey the rules but for scale factor and turn: the share that
        these drop is known from it.
    """
    rng = np.random.default_rng(seed)
    candidates = _candidates(model, scales, oris, usable & (model.residual_px < rules.max_residual_px), rules, rng)
    agree = np.abs(candidates.scale_error) <= np.log2(rules.max_scale_factor)
    agree &= np.abs(candidates.turn_deg) <= rules.max_turn_deg
    good = candidates.take(agree)
    weight = _FLOOR + np.minimum(good.angle_deg, 60) / 60 + np.minimum(np.abs(good.zoom), 1)
    # The largest of log(weight) + Gumbel noise is a draw by weight; the next largest, one without replacement.
    order = np.argsort(-(np.log(weight) + rng.gumbel(size=len(good))), kind="stable")
    chosen = good.take(_disjoint(good, model.point, order, rules.pairs_per_track))
    return _swapped(chosen, rng.random(len(chosen)) < 0.5), candidates


def _candidates(
    model: Model, scales: np.ndarray, oris: np.ndarray, good: np.ndarray, rules: PairRules, rng: np.random.Generator
) -> Candidates:
    shuffled = rng.permutation(np.flatnonzero(good))
    shuffled = shuffled[np.argsort(model.point[shuffled], kind="stable")]
    _, starts, lengths = np.unique(model.point[shuffled], return_index=True, return_counts=True)
    first, second = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for length in np.unique(lengths[lengths >= rules.min_track_length]):
        i, j = np.triu_indices(min(length, _MOST_VIEWS), 1)
        start = starts[lengths == length, None]
        first.append(shuffled[start + i].ravel())
        second.append(shuffled[start + j].ravel())
    a, b = np.concatenate(first), np.concatenate(second)
    apart = model.view[a] != model.view[b]
    pairs = _measured(model, scales, oris, a[apart], b[apart])
    widest = np.zeros(len(model.points))
    np.maximum.at(widest, model.point[pairs.first], pairs.angle_deg)
    return pairs.take(
        (widest[model.point[pairs.first]] >= rules.min_angle_deg) & (pairs.angle_deg <= rules.max_angle_deg)
    )


def _measured(model: Model, scales: np.ndarray, oris: np.ndarray, a: np.ndarray, b: np.ndarray) -> Candidates:
    """The geometry of pairs; the surface is taken to face the two cameras, lens distortion is left out."""
    point = model.points[model.point[a]]
    in_camera, rays, zooms = [], [], []
    for rows in (a, b):
        rotation = model.rotations[model.view[rows]]
        inside = np.einsum("nij,nj->ni", rotation, point) + model.translations[model.view[rows]]
        in_camera.append(inside)
        ray = np.einsum("nji,nj->ni", rotation, inside)  # from the camera to the point, in the world
        rays.append(ray / np.linalg.norm(ray, axis=1, keepdims=True))
        zooms.append(np.log2(model.focals_px[model.view[rows]] / inside[:, 2]))
    cosine = np.clip(np.einsum("ni,ni->n", *rays), -1, 1)
    zoom = zooms[0] - zooms[1]
    # The keypoint's direction in the first photo, laid on the plane that faces both cameras, seen by the second.
    direction = np.stack([np.cos(oris[a]), np.sin(oris[a]), np.zeros(len(a))], axis=1)
    direction = np.einsum("nji,nj->ni", model.rotations[model.view[a]], direction)
    normal = rays[0] + rays[1]
    along = np.einsum("ni,ni->n", direction, normal) / np.einsum("ni,ni->n", rays[0], normal)
    direction = direction - along[:, None] * rays[0]
    seen = np.einsum("nij,nj->ni", model.rotations[model.view[b]], direction)
    seen = seen[:, :2] - in_camera[1][:, :2] * (seen[:, 2] / in_camera[1][:, 2])[:, None]
    turn = np.rad2deg(oris[b] - np.arctan2(seen[:, 1], seen[:, 0]))
    return Candidates(
        first=a,
        second=b,
        angle_deg=np.rad2deg(np.arccos(cosine)),
        zoom=zoom,
        scale_error=np.log2(scales[a] / scales[b]) - zoom,
        turn_deg=(turn + 180) % 360 - 180,
    )


def _disjoint(pairs: Candidates, point: np.ndarray, order: np.ndarray, per_track: int) -> np.ndarray:
    """Rows of the first pairs in `order` of each track that share no observation; at most `per_track` a track."""
    taken = np.zeros(len(point), bool)
    rows = []
    for _ in range(per_track):
        order = order[~taken[pairs.first[order]] & ~taken[pairs.second[order]]]
        best = order[np.unique(point[pairs.first[order]], return_index=True)[1]]
        taken[pairs.first[best]] = taken[pairs.second[best]] = True
        rows.append(best)
    return np.sort(np.concatenate(rows))


def _swapped(pairs: Candidates, swap: np.ndarray) -> Candidates:
    """Pairs with the two observations exchanged where `swap`: the scale's sign and the turn's go with them."""
    sign = np.where(swap, -1, 1)
    return Candidates(
        first=np.where(swap, pairs.second, pairs.first),
        second=np.where(swap, pairs.first, pairs.second),
        angle_deg=pairs.angle_deg,
        zoom=pairs.zoom * sign,
        scale_error=pairs.scale_error * sign,
        turn_deg=pairs.turn_deg * sign,
    )


def point_numbers(count: int, point: np.ndarray, photo: np.ndarray, xy: np.ndarray) -> np.ndarray:
    """One number for tracks that may be one point: those with keypoints at one place of a photo.

    These are tracks of the same observation in two models, of keypoints with two orientations at one position,
    and of a point that was reconstructed twice. As each other's negatives they would teach the wrong thing.

    Args:
        count: of model.
        point: [M] int, the track of each observation.
        photo: [M] int, its photo.
        xy: [M, 2], its position in px. Closer than half a px is surely joined, further than 1.5 px surely not.

    Returns:
        [count] int: the lowest track that each is joined with.
    """
    low, high = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for shift in np.array([(0, 0), (0.5, 0), (0, 0.5), (0.5, 0.5)]) * _SAME_PX:
        cell = np.floor(xy / _SAME_PX + shift).astype(np.int64)
        order = np.lexsort((cell[:, 1], cell[:, 0], photo))
        key = np.column_stack([photo, cell])[order]
        same = (key[1:] == key[:-1]).all(axis=1)
        low.append(point[order[:-1][same]])
        high.append(point[order[1:][same]])
    a, b = np.concatenate(low), np.concatenate(high)
    number = np.arange(count)
    while True:
        lowest = np.minimum(number[a], number[b])
        joined = number.copy()
        np.minimum.at(joined, number[a], lowest)
        np.minimum.at(joined, number[b], lowest)
        joined = joined[joined]
        if np.array_equal(joined, number):
            return number
        number = joined
