"""Keypoints: their form, conversions from and to COLMAP's, and detection.

In: pixels of a photo, or keypoints that a feature file or a COLMAP database holds. Out: `Keypoints`, whose
origin is the centre of the first pixel, as in OpenCV, hloc and our feature files. COLMAP's origin is the
corner of the first pixel; `from_colmap` and `to_colmap` alone know of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

# COLMAP puts the centre of the first pixel at (0.5, 0.5).
COLMAP_CENTER = np.float32(0.5)
_SIMILARITY_TOLERANCE = 1e-4
_TOLERANCE_PX = 1e-3  # of positions that two files hold


@dataclasses.dataclass(frozen=True)
class Keypoints:
    """N oriented regions of a photo.

    Attributes:
        xy: [N, 2] float32, x right and y down in px, origin at the centre of the first pixel.
        scales: [N] float32, sigma in px (COLMAP's scale, half of OpenCV's size).
        oris: [N] float32, radians from x towards y.
        affine: None, or [N, 2, 2] float32 that maps the unit circle to the region of one sigma and takes the
            place of scale and orientation.
        framed: whether scales and orientations (or shapes) are known; without, all are 1 and 0.

    Raises:
        ValueError: lengths differ, a value is not finite, a sigma is not above 0, or a shape is singular.
    """

    xy: np.ndarray
    scales: np.ndarray
    oris: np.ndarray
    affine: np.ndarray | None = None
    framed: bool = True

    def __post_init__(self) -> None:
        n = len(self.xy)
        for field, shape in (("xy", (n, 2)), ("scales", (n,)), ("oris", (n,)), ("affine", (n, 2, 2))):
            value = getattr(self, field)
            if value is None:
                continue
            value = np.ascontiguousarray(value, np.float32)
            if value.shape != shape:
                raise ValueError(f"{field} of {n} keypoints has shape {value.shape}, expected {shape}")
            bad = ~np.isfinite(value).reshape(n, -1).all(axis=1) if n else np.zeros(0, bool)
            if field == "scales":
                bad |= value <= 0
            if field == "affine":
                bad |= _determinant(value) == 0
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                wanted = {"scales": " and above 0", "affine": " and invertible"}.get(field, "")
                found = value[row].tolist()
                raise ValueError(f"{field} of keypoint {row} is {found}, expected finite{wanted}")
            object.__setattr__(self, field, value)

    def __len__(self) -> int:
        return len(self.xy)

    def take(self, rows: np.ndarray) -> Keypoints:
        """The keypoints of some rows (indices or mask), in that order."""
        affine = None if self.affine is None else self.affine[rows]
        return Keypoints(self.xy[rows], self.scales[rows], self.oris[rows], affine, self.framed)

    def shapes(self) -> np.ndarray:
        """float64 [N, 2, 2]: unit circle -> region: sigma R(orientation), or the affine shape."""
        if self.affine is not None:
            return self.affine.astype(np.float64)
        return similarity(self.scales, self.oris)


def empty() -> Keypoints:
    """No keypoints."""
    return Keypoints(np.zeros((0, 2)), np.zeros(0), np.zeros(0))


def positions(xy: np.ndarray) -> Keypoints:
    """Keypoints [N, 2] of which nothing but the position is known."""
    return Keypoints(xy, np.ones(len(xy)), np.zeros(len(xy)), framed=False)


def similarity(scales: np.ndarray, oris: np.ndarray) -> np.ndarray:
    """float64 [N, 2, 2] shapes of sigma and orientation: s [[cos o, -sin o], [sin o, cos o]]."""
    s, o = np.asarray(scales, np.float64), np.asarray(oris, np.float64)
    c, d = s * np.cos(o), s * np.sin(o)
    return np.stack([np.stack([c, -d], axis=-1), np.stack([d, c], axis=-1)], axis=-2)


def read_shapes(shapes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sigmas and orientations [N] of shapes [N, 2, 2] as COLMAP reads them: mean length of the two columns, and the
    direction of the first."""
    return np.linalg.norm(shapes, axis=1).mean(axis=1), np.arctan2(shapes[:, 1, 0], shapes[:, 0, 0])


def from_shapes(xy: np.ndarray, shapes: np.ndarray) -> Keypoints:
    """Keypoints of shapes [N, 2, 2], sigma and orientation as COLMAP reads them.

    `affine` stays None where all shapes are turned and scaled circles.
    """
    shapes = np.asarray(shapes, np.float32).reshape(-1, 2, 2)
    scales, oris = read_shapes(shapes)
    difference = np.abs(shapes - similarity(scales, oris)).max(axis=(1, 2), initial=0)
    circles = (difference <= _SIMILARITY_TOLERANCE * scales).all()
    return Keypoints(xy, scales, oris, None if circles else shapes)


def from_colmap(columns: np.ndarray) -> Keypoints:
    """COLMAP's keypoints, float32 [N, 2 | 4 | 6], in its database's columns and with its corner origin.

    2 columns: x, y (sigma 1, orientation 0); 4: x, y, scale, orientation in radians; 6: x, y and the shape
    a11, a12, a21, a22.
    """
    columns = np.asarray(columns, np.float32)
    if columns.ndim != 2 or columns.shape[1] not in (2, 4, 6):
        raise ValueError(f"COLMAP keypoints have shape {columns.shape}, expected [N, 2], [N, 4] or [N, 6]")
    n, width = columns.shape
    xy = columns[:, :2] - COLMAP_CENTER
    if width == 2:
        return Keypoints(xy, np.ones(n), np.zeros(n))
    if width == 4:
        return Keypoints(xy, columns[:, 2], columns[:, 3])
    return from_shapes(xy, columns[:, 2:])


def to_colmap(keypoints: Keypoints) -> np.ndarray:
    """The inverse of `from_colmap`, always of 6 columns: float32 [N, 6] with COLMAP's corner origin."""
    shapes = keypoints.shapes().astype(np.float32).reshape(-1, 4)
    return np.concatenate([keypoints.xy + COLMAP_CENTER, shapes], axis=1)


def _determinant(shapes: np.ndarray) -> np.ndarray:
    return shapes[:, 0, 0] * shapes[:, 1, 1] - shapes[:, 0, 1] * shapes[:, 1, 0]


# --- Detection -------------------------------------------------------------------------------------------


def strongest(response: np.ndarray, limit: int | None) -> np.ndarray:
    """Rows of the `limit` largest responses, ascending (the order of the keypoints is kept); all where None.

    Of equal responses, the first rows.
    """
    if limit is None or len(response) <= limit:
        return np.arange(len(response))
    return np.sort(np.argsort(-response, kind="stable")[:limit])


def check_nms(nms_px: float) -> None:
    """Raises ValueError where it is no distance."""
    if not 0 <= nms_px < np.inf:
        raise ValueError(f"nms is {nms_px} px, expected 0 or more")


def apart(xy: np.ndarray, strength: np.ndarray, nms_px: float) -> np.ndarray:
    """Rows of the keypoints without near-duplicates, ascending: greedy non-maximum suppression.

    From the strongest on, each that stays leaves out those weaker ones that are closer than `nms_px` to it; of equal
    strength, the first row is the stronger. Several orientations of one position are near-duplicates.

    Args:
        xy: [N, 2] px, finite.
        strength: [N], larger is stronger.
        nms_px: distance; 0 leaves out none.
    """
    if nms_px == 0:
        return np.arange(len(xy))
    from scipy.spatial import KDTree

    order = np.argsort(-strength, kind="stable")
    places = np.asarray(xy, np.float64)[order]
    near = KDTree(places).query_pairs(nms_px, output_type="ndarray").reshape(-1, 2)  # the stronger one, the weaker one
    near = near[np.linalg.norm(places[near[:, 0]] - places[near[:, 1]], axis=1) < nms_px]
    near = near[np.argsort(near[:, 0], kind="stable")]
    stronger, begin = np.unique(near[:, 0], return_index=True)
    stays = np.ones(len(xy), bool)
    for row, weaker in zip(stronger, np.split(near[:, 1], begin[1:]), strict=False):  # of no pair, one empty part
        if stays[row]:
            stays[weaker] = False
    return np.sort(order[stays])


def chosen(xy: np.ndarray, strength: np.ndarray, limit: int | None, nms_px: float = 0.0) -> np.ndarray:
    """Rows of the strongest keypoints that are `apart`, ascending."""
    rows = apart(xy, strength, nms_px)
    return rows[strongest(strength[rows], limit)]


def detect_colmap(
    rgb: np.ndarray, first_octave: int = -1, limit: int | None = None, nms_px: float = 0.0
) -> tuple[Keypoints, np.ndarray]:
    """COLMAP's difference-of-Gaussians detector and its SIFT descriptors.

    COLMAP gives no strength, and its own limit keeps the largest scales; the strongest are those of the
    largest |difference of Gaussians| here (`response.dog_response`).

    Args:
        rgb: uint8 [H, W, 3]; COLMAP turns it into its own Rec. 709 gray.
        first_octave: -1 doubles the photo first, 0 does not.
        limit: number of keypoints to keep, or None for all.
        nms_px: see `apart`.

    Returns:
        Keypoints, and `colmap-sift` descriptors uint8 [N, 128].
    """
    from xdesc_jax.colmap.bindings.api import detect_sift
    from xdesc_jax.features.response import dog_response

    columns, descriptors, gray = detect_sift(rgb, first_octave)
    keypoints = from_colmap(columns)
    if nms_px or (limit is not None and len(keypoints) > limit):
        strength = np.abs(dog_response(gray, keypoints.xy, keypoints.scales))
        rows = chosen(keypoints.xy, strength, limit, nms_px)
        keypoints, descriptors = keypoints.take(rows), descriptors[rows]
    return keypoints, descriptors


def detect_opencv(gray: np.ndarray, limit: int | None = None, nms_px: float = 0.0) -> Keypoints:
    """OpenCV's SIFT detector with its default settings; the strongest by its response.

    Args:
        gray: uint8 [H, W], ITU-R 601.
        limit: number of keypoints to keep, or None for all.
        nms_px: see `apart`.
    """
    import cv2

    found = cv2.SIFT.create().detect(gray, None)
    if not found:
        return empty()
    values = np.array([(k.pt[0], k.pt[1], k.size / 2, np.deg2rad(k.angle), k.response) for k in found])
    rows = chosen(values[:, :2], values[:, 4], limit, nms_px)
    return Keypoints(values[rows, :2], values[rows, 2], values[rows, 3])


def displaced(xy: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Which positions [N, 2] px of two files are not the same, [N] bool.

    Where a file was rounded to float16, as hloc does, half a step of its values is allowed.
    """
    rounded = [np.abs(found) for found in (xy, other) if _is_half(found)]
    steps = [np.spacing(found.astype(np.float16)).astype(np.float32) for found in rounded]
    tolerance = _TOLERANCE_PX + np.maximum.reduce([*steps, np.zeros_like(xy)]) / 2
    # Not "difference > tolerance": NaN must count as a difference.
    return ~(np.abs(xy - other) <= tolerance).all(axis=1)


def most_exact(found: Sequence[np.ndarray]) -> np.ndarray:
    """Of the same positions [N, 2] in several files, the first that were not rounded to float16; the first where all
    were."""
    return next((xy for xy in found if not _is_half(xy)), found[0])


def _is_half(xy: np.ndarray) -> bool:
    """Whether all positions [N, 2] are numbers of float16."""
    with np.errstate(over="ignore"):
        return bool((xy == xy.astype(np.float16)).all())
