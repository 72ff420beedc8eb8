"""Pairs of patches from single photos: each photo is warped, and its keypoints found in both views.

In: photos. Out: rows of two patches of the same point, photo by photo. Most keypoints are detected anew in the
warped view and matched by the known homography; the others are carried over, with a displacement in position,
scale and orientation that a detected one of the same photo showed.
"""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.data.schema import KEYPOINT, PAIR, PATCH, POINT
from xdesc_jax.data.source import Columns
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.images import UnreadablePhoto, list_photos, read_gray
from xdesc_jax.features.keypoints import Keypoints, detect_opencv
from xdesc_jax.features.parts import part_path, photo_stamp
from xdesc_jax.features.patches import extract_patches
from xdesc_jax.features.warp import View, WarpSettings, carry, draw_view, project, render
from xdesc_jax.features.workers import each
from xdesc_jax.files.whole import atomic, config_hash

# A detection counts as the same keypoint within these distances of where the homography puts it.
POSITION_PX, LOG_SCALE, ANGLE_DEG = 3.0, 0.4, 30.0
# Keypoints this close (in sigma, and in log scale) show nearly the same patch, so they count as one point.
SAME_PLACE_SIGMA, SAME_LOG_SCALE = 1.5, 0.25


@dataclasses.dataclass(frozen=True)
class WarpedSettings:
    """How pairs are made of a photo.

    Raises:
        ValueError: a value out of range.
    """

    views: int = 12
    """Warped views of each photo."""
    pairs: int = 480
    """The most pairs of a photo, over all its views."""
    max_keypoints: int = 2000
    """Keypoints detected in a view, the strongest."""
    carried_share: float = 0.25
    """Share of pairs whose second keypoint is carried over, not detected."""
    seed: int = 0
    """Of views and choices."""
    warp: WarpSettings = WarpSettings()
    """How far views differ."""

    def __post_init__(self) -> None:
        for field in ("views", "pairs", "max_keypoints"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} is {getattr(self, field)}, expected at least 1")
        if not 0 <= self.carried_share < 1:
            raise ValueError(f"carried_share is {self.carried_share}, expected 0 to below 1")


class WarpedPairs:
    """The pairs of a folder of photos; see `rows.RowSource`.

    Args:
        root: folder of photos, with any sub-folders.
        settings: how pairs are made.
        parts: folder for finished photos, removed by the caller when all is done.
        processes: that work on photos.
        strict: raise at a photo that cannot be read, instead of leaving it out.

    Attributes:
        residuals: float64 [n, 4], of all re-detected keypoints: position along x and y in sigma, log scale and
            angle in radians, against where the homography puts them; filled by `rows`.
    """

    has_patches = has_pairs = True
    has_points = False
    unit = "photos"
    action = "warping"

    def __init__(self, root: Path, settings: WarpedSettings, parts: Path, *, processes: int = 1, strict: bool = False):
        self._root, self._settings, self._parts = root, settings, parts
        self._processes, self._strict = processes, strict
        self.skipped: dict[str, str] = {}
        self.names = sorted(list_photos(root, strict=strict, skipped=self.skipped))
        self.specs: dict[str, DescriptorSpec] = {}
        self.residuals = np.zeros((0, 4))
        listing = [(name, photo_stamp(root / name)) for name in self.names]
        self.config: dict[str, Any] = {"photos": config_hash(listing), "warped": dataclasses.asdict(settings)}

    def rows(self) -> Iterator[tuple[str, Columns]]:
        """Yields (photo, {column: [n, ...]}); the first pass makes the pairs, later ones read what it kept.

        Raises:
            UnreadablePhoto: with `strict`, a photo cannot be read.
        """
        names = [name for name in self.names if name not in self.skipped]
        first_point, residuals = 0, []
        key = config_hash(self.config)
        for name, found in _each(self._root, names, self._settings, self._parts, key, self._processes):
            if isinstance(found, UnreadablePhoto):
                if self._strict:
                    raise found
                console.warn(f"left out: {found}")
                self.skipped[name] = str(found)
                continue
            rows = {column: found[column] for column in (KEYPOINT, PATCH, PAIR)}
            rows[POINT] = found[POINT] + np.int32(first_point)
            first_point += int(found[POINT].max(initial=-1)) + 1
            residuals.append(found["residual"])
            yield name, rows
        self.residuals = np.concatenate(residuals) if residuals else self.residuals


Found = Columns | UnreadablePhoto


def _each(
    root: Path, names: list[str], settings: WarpedSettings, parts: Path, key: str, processes: int
) -> Iterator[tuple[str, Found]]:
    work = [(name, root, settings, parts, key) for name in names]
    yield from zip(names, each(_pairs_of_photo, work, processes), strict=True)


def _pairs_of_photo(name: str, root: Path, settings: WarpedSettings, parts: Path, key: str) -> Found:
    path = part_path(parts, name)
    if (done := _load(path, key)) is not None:
        return done
    try:
        gray = read_gray(root / name)
    except UnreadablePhoto as error:
        return error
    digest = int(config_hash([settings.seed, name]), 16)
    made = pairs_of_photo(gray, settings, np.random.default_rng(digest))
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.savez(file, key=np.array(key), **made)  # type: ignore[arg-type]
    return made


def _load(path: Path, key: str) -> Columns | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files if name != "key"} if arrays["key"] == key else None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


# --- One photo -------------------------------------------------------------------------------------------


def pairs_of_photo(gray: np.ndarray, settings: WarpedSettings, rng: np.random.Generator) -> Columns:
    """Pairs of patches of one photo.

    Args:
        gray: uint8 [H, W].
        settings: how pairs are made.
        rng: source of all draws.

    Returns:
        `keypoint` float32 [n, 4], `patch` and `pair` uint8 [n, 32, 32], `point` int32 [n] from 0, and
        `residual` float64 [m, 4] of the detected ones (see `WarpedPairs.residuals`).
    """
    first = detect_opencv(gray, settings.max_keypoints)
    patches, valid = extract_patches(gray, first)
    point = places(first)
    chosen: list[Columns] = [
        {
            KEYPOINT: np.zeros((0, 4), np.float32),
            PATCH: patches[:0],
            PAIR: patches[:0],
            POINT: point[:0],
            "residual": np.zeros((0, 4)),
        }
    ]
    for index in range(settings.views):
        view = draw_view(rng, (gray.shape[1], gray.shape[0]), settings.warp)
        other = render(gray, view)
        rows, second, residual = corresponding(first, other, view, settings, rng)
        pairs, whole = extract_patches(other, second)
        usable = valid[rows] & whole & _sees_photo(second, view, gray.shape)
        rows, pairs = rows[usable], pairs[usable]
        due = settings.pairs * (index + 1) // settings.views - settings.pairs * index // settings.views
        take = _hard_first(patches[rows], pairs, due, rng)
        rows, pairs = rows[take], pairs[take]
        shapes = np.column_stack([first.xy[rows], first.scales[rows], first.oris[rows]]).astype(np.float32)
        chosen.append({KEYPOINT: shapes, PATCH: patches[rows], PAIR: pairs, POINT: point[rows], "residual": residual})
    return {name: np.concatenate([part[name] for part in chosen]) for name in chosen[0]}


def corresponding(
    first: Keypoints, other: np.ndarray, view: View, settings: WarpedSettings, rng: np.random.Generator
) -> tuple[np.ndarray, Keypoints, np.ndarray]:
    """Keypoints of the photo and the same in its view.

    Returns:
        Row of `first` of each pair, the keypoint in the view, and the residuals [m, 4] of the detected ones.
    """
    expected = carry(first, view.homography)
    found = detect_opencv(other, settings.max_keypoints)
    rows, columns = mutual(expected, found)
    residual = residuals(expected.take(rows), found.take(columns))
    carried = np.setdiff1d(np.flatnonzero(expected.scales >= found.scales.min(initial=np.inf)), rows)
    share = settings.carried_share
    count = int(min(len(carried), len(rows) * share / (1 - share)))
    carried = rng.choice(carried, count, replace=False)
    moved = displaced(expected.take(carried), residual[rng.integers(len(rows), size=count)] if count else residual[:0])
    second = Keypoints(
        np.concatenate([found.xy[columns], moved.xy]),
        np.concatenate([found.scales[columns], moved.scales]),
        np.concatenate([found.oris[columns], moved.oris]),
    )
    return np.concatenate([rows, carried]).astype(int), second, residual


def mutual(expected: Keypoints, found: Keypoints) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the keypoints that are each other's nearest in position, scale and orientation, within the limits."""
    if not len(expected) or not len(found):
        return np.zeros(0, int), np.zeros(0, int)
    chord = 2 * np.sin(np.deg2rad(ANGLE_DEG) / 2)

    def place(keypoints: Keypoints) -> np.ndarray:
        turn = np.column_stack([np.cos(keypoints.oris), np.sin(keypoints.oris)]) / chord
        return np.column_stack([keypoints.xy / POSITION_PX, np.log(keypoints.scales) / LOG_SCALE, turn])

    from scipy.spatial import KDTree

    a, b = place(expected), place(found)
    distance, nearest = KDTree(b).query(a)
    _, back = KDTree(a).query(b)
    rows = np.flatnonzero((distance < 1) & (back[nearest] == np.arange(len(a))))
    return rows, nearest[rows]


def residuals(expected: Keypoints, found: Keypoints) -> np.ndarray:
    """Found against expected, float64 [n, 4]: x and y in expected sigma, log of the scale ratio, angle in rad."""
    offset = (found.xy.astype(np.float64) - expected.xy) / expected.scales[:, None]
    angle = np.angle(np.exp(1j * (found.oris.astype(np.float64) - expected.oris)))
    return np.column_stack([offset, np.log(found.scales / expected.scales), angle])


def displaced(keypoints: Keypoints, residual: np.ndarray) -> Keypoints:
    """Keypoints moved by residuals [n, 4]; the inverse of `residuals`."""
    return Keypoints(
        keypoints.xy + residual[:, :2] * keypoints.scales[:, None],
        keypoints.scales * np.exp(residual[:, 2]),
        keypoints.oris + residual[:, 3],
    )


def places(keypoints: Keypoints) -> np.ndarray:
    """A number for each keypoint, int32 [N] from 0, that those showing nearly the same patch share.

    Several orientations of one position share it too: they show the same point.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import KDTree

    n = len(keypoints)
    if not n:
        return np.zeros(0, np.int32)
    reach = SAME_PLACE_SIGMA * keypoints.scales.max()
    a, b = KDTree(keypoints.xy).query_pairs(reach, output_type="ndarray").T.reshape(2, -1)
    sigma = np.minimum(keypoints.scales[a], keypoints.scales[b])
    near = np.linalg.norm(keypoints.xy[a] - keypoints.xy[b], axis=1) < SAME_PLACE_SIGMA * sigma
    near &= np.abs(np.log(keypoints.scales[a] / keypoints.scales[b])) < SAME_LOG_SCALE
    links = coo_array((np.ones(near.sum()), (a[near], b[near])), shape=(n, n))
    return connected_components(links, directed=False)[1].astype(np.int32)


def _sees_photo(second: Keypoints, view: View, shape: tuple[int, ...]) -> np.ndarray:
    """Whether a patch's corners show the photo and not what is beyond its border, bool [N]."""
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * 6.0  # a patch is 12 sigma wide
    at = second.xy[:, None] + np.einsum("nij,kj->nki", second.shapes(), corners)
    back = project(np.linalg.inv(view.homography), at.reshape(-1, 2)).reshape(-1, 4, 2)
    return np.asarray(((back >= 0) & (back <= (shape[1] - 1, shape[0] - 1))).all(axis=(1, 2)))


def _hard_first(patches: np.ndarray, pairs: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """At most `count` rows, drawn with more weight on pairs that look less alike, int [n]."""
    if len(patches) <= count:
        return np.arange(len(patches))
    a, b = (_mean_free(p) for p in (patches, pairs))
    alike = np.clip(np.einsum("nd,nd->n", a, b), 0, 1)
    weight = 1.1 - alike
    return np.sort(rng.choice(len(patches), count, replace=False, p=weight / weight.sum()))


def _mean_free(patches: np.ndarray) -> np.ndarray:
    flat = patches.reshape(len(patches), -1).astype(np.float32)
    flat -= flat.mean(axis=1, keepdims=True)
    return flat / np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6)
