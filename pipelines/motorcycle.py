"""A map of one photo: localising the right photo of the stereo pair 'Motorcycle' against the left one.

In: features of both photos, the measured disparity, a translator. Out: for each descriptor of the map and of the
query, how far the pose found is from the true one, which the rig's calibration gives. The left photo's keypoints
get their 3D points from the disparity, so nothing is reconstructed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.colmap.model import Camera, Model, Pose
from xdesc_jax.evaluate.poses import rotation_error_deg
from xdesc_jax.features.keypoints import COLMAP_CENTER
from xdesc_jax.localization.localizer import Localizer
from xdesc_jax.localization.map import LocalizationMap
from xdesc_jax.localization.outcome import Localization
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.routes import Mode, Router
from xdesc_jax.translation.translator import Translator

MODES: tuple[Mode, ...] = ("native", "directional", "embed")
LEFT, RIGHT = "motorcycle/left.png", "motorcycle/right.png"
# Calibration of the photos in scikit-image's documentation; origin at the centre of a pixel.
FOCAL_PX, BASELINE_MM = 994.978, 193.001
CENTER_PX = (311.193, 254.877)
OFFSET_PX = 31.086  # the right photo's principal point is so much further to the right


@dataclasses.dataclass(frozen=True)
class Found:
    """What became of one query.

    Attributes:
        map, query: descriptors.
        mode: 'native', 'directional' (the query translated to the map's descriptor) or 'embed'.
        status: 'localized' or 'failed'.
        inliers: of the pose.
        position_mm: distance of the camera found from the true one; None where it failed.
        rotation_deg: angle between the two; likewise.
    """

    map: str
    query: str
    mode: Mode
    status: str
    inliers: int
    position_mm: float | None
    rotation_deg: float | None


def true_pose() -> Pose:
    """Of the right photo, in mm in the left one's frame."""
    return Pose(np.eye(3), np.array([-BASELINE_MM, 0.0, 0.0]))


def camera(offset_px: float, size: tuple[int, int]) -> Camera:
    """Intrinsics in COLMAP's terms, whose origin is the corner of a pixel."""
    center = np.array(CENTER_PX) + [offset_px, 0] + COLMAP_CENTER
    return Camera("PINHOLE", *size, (FOCAL_PX, FOCAL_PX, *center.tolist()))


def map_of_left(keypoints: np.ndarray, disparity: np.ndarray) -> Model:
    """The left photo as a model.

    Args:
        keypoints: [N, 2] px, origin at the centre of the first pixel.
        disparity: [H, W] px of the left photo, not finite or 0 where it was not measured.
    """
    height, width = disparity.shape
    column, row = np.rint(keypoints).astype(int).T
    found = disparity[np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)].astype(np.float64)
    seen = np.flatnonzero(np.isfinite(found) & (found > 0))
    depth = FOCAL_PX * BASELINE_MM / (found[seen] + OFFSET_PX)
    rays = (keypoints[seen] - CENTER_PX) / FOCAL_PX
    points = np.concatenate([rays * depth[:, None], depth[:, None]], axis=1)
    number = np.arange(len(seen))
    return Model(
        names=(LEFT,), rotations=np.eye(3)[None], translations=np.zeros((1, 3)),
        cameras=(camera(0.0, (width, height)),), focals_px=np.array([FOCAL_PX]), points=points, point=number,
        view=np.zeros(len(seen), int), keypoint=seen, residual_px=np.zeros(len(seen)),
        xy=keypoints[seen] + COLMAP_CENTER, keypoint_counts=np.array([len(keypoints)]),
    )  # fmt: skip


def localise(
    stores: Mapping[str, Path], disparity: np.ndarray, translator: Translator, modes: Sequence[Mode] = MODES
) -> list[Found]:
    """Localises the right photo with each descriptor in the left photo's map of each descriptor.

    Args:
        stores: descriptor -> feature file that holds both photos.
        disparity: see `map_of_left`.
        translator: for the other descriptors than the map's.
        modes: which ones; 'native' is for queries of the map's descriptor, the others are for those of another.
    """
    results = []
    for map_descriptor, path in stores.items():
        with FeatureSet([path]) as features:
            model = map_of_left(features.keypoints(LEFT), disparity)
            for mode in modes:
                router = Router(mode, translator)
                localizer = Localizer(LocalizationMap.build(model, features, router, translator))
                for query, store in stores.items():
                    if (query == map_descriptor) != (mode == "native"):
                        continue
                    results.append(_found(map_descriptor, query, mode, _localised(localizer, store)))
    return results


def _localised(localizer: Localizer, store: Path) -> Localization:
    with FeatureSet([store]) as features:
        photo, held, frames = features.read(RIGHT), features.held(RIGHT), features.frames(RIGHT)
    rows, seen = photo.usable_rows(), camera(OFFSET_PX, photo.image_size)
    return localizer.localize(photo.keypoints, rows, seen, descriptor=held, frames=frames)


def _found(map_descriptor: str, query: str, mode: Mode, result: Localization) -> Found:
    position = rotation = None
    if result.pose is not None:
        position = float(np.linalg.norm(result.pose.center - true_pose().center))
        rotation = rotation_error_deg(result.pose.rotation, true_pose().rotation)
    return Found(map_descriptor, query, mode, result.status, result.inliers, position, rotation)


def table_rows(results: list[Found]) -> list[list[Any]]:
    """Map and query, mode, error of position in mm and in % of the baseline, of rotation, inliers."""
    rows = []
    for f in results:
        label = f.map if f.mode == "native" else f"{f.map} \u2190 {f.query}"
        mode = {"native": "native", "directional": "query translated", "embed": "joint space"}[f.mode]
        if f.position_mm is None or f.rotation_deg is None:
            rows.append([label, mode, "failed", "-", "-", f.inliers])
        else:
            share = f"{100 * f.position_mm / BASELINE_MM:.2f}"
            rows.append([label, mode, f"{f.position_mm:.2f}", share, f"{f.rotation_deg:.3f}", f.inliers])
    return rows


COLUMNS = ("map, query", "mode", "error [mm]", "% of baseline", "rotation [deg]", "inliers")
