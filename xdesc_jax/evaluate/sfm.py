"""A reconstruction against a reference, as in the paper's table 2.

In: a COLMAP model, true poses, and which photos were to be registered. Out: how many were, and how near to the
reference after robust alignment; points, track length, reprojection error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.colmap.model import Model, Pose
from xdesc_jax.evaluate.alignment import NotAlignable, Similarity, align
from xdesc_jax.evaluate.poses import MAPPING, UNITS, PoseErrors, Scale, label, pose_errors, spacing


@dataclasses.dataclass(frozen=True)
class SfmResult:
    """Figures of one model.

    Attributes:
        asked: photos that were to be registered.
        registered: of these.
        points, observations: of the model.
        track_length: mean number of observations of a point; NaN without points.
        reprojection_px: distance of keypoints from their projected points: mean over the observations of a point, then
            over points, as COLMAP has it; NaN without points.
        errors: of the asked photos, in the reference's frame; None where the model cannot be aligned.
        similarity: into the reference's frame; None likewise.
        reason: why it cannot be aligned; None where it can.
    """

    asked: int
    registered: int
    points: int
    observations: int
    track_length: float
    reprojection_px: float
    errors: PoseErrors | None
    similarity: Similarity | None
    reason: str | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON; what is not known is null."""
        value: dict[str, Any] = {
            "photos": self.asked,
            "registered": self.registered,
            "registered_share": self.registered / max(1, self.asked),
            "points": self.points,
            "observations": self.observations,
            "track_length": number_or_none(self.track_length),
            "reprojection_error_px": number_or_none(self.reprojection_px),
            "aligned": self.errors is not None,
            "reason": self.reason,
        }
        if self.errors is not None:
            e = self.errors
            limits = MAPPING[e.scale]
            value["scale"], value["unit"] = e.scale, e.unit
            value["within_position"] = {f"{p:g} {UNITS[e.scale]}": e.within(p) for p, _ in limits}
            value["within_pose"] = {label(p, r, e.scale): e.within(p, r) for p, r in limits}
            value["median_position"], value["median_rotation_deg"] = map(number_or_none, e.medians())
            value["per_photo"] = {
                name: {"position": number_or_none(p), "rotation_deg": number_or_none(r)}
                for name, p, r in zip(e.names, e.position, e.rotation_deg, strict=True)
            }
        return value


def number_or_none(x: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return float(x) if np.isfinite(x) else None


def measure(
    path: Path, model: Model, reference: Mapping[str, Pose], asked: Sequence[str], scale: Scale, seed: int = 0,
    where: str = "the reference",
) -> SfmResult:  # fmt: skip
    """Measures a model; one that cannot be aligned has no errors, and says why.

    Args:
        path: the model's folder.
        model: the same as arrays.
        reference: photo -> true pose.
        asked: photos that were to be registered.
        scale: see `poses.pose_errors`.
        seed: of the alignment.
        where: the reference comes from, for errors.
    """
    unit = 1.0 if scale == "metric" else spacing(list(reference.values()), where)
    similarity, errors, reason = None, None, None
    try:
        # A photo that is off by more than the largest threshold does not count, so it shall not pull either.
        similarity = align(path, model, reference, MAPPING[scale][-1][0] * unit, seed)
        moved = {name: similarity.pose(pose) for name, pose in model.poses.items()}
        errors = pose_errors(moved, reference, asked, scale, where)
    except NotAlignable as error:
        reason = str(error)
    observations = len(model.point)
    return SfmResult(
        asked=len(asked),
        registered=len(set(asked) & set(model.names)),
        points=len(model.points),
        observations=observations,
        track_length=observations / len(model.points) if len(model.points) else float("nan"),
        reprojection_px=_reprojection_px(model) if observations else float("nan"),
        errors=errors,
        similarity=similarity,
        reason=reason,
    )


def _reprojection_px(model: Model) -> float:
    """Mean over points; over observations, long tracks, which fit worse, would weigh more than in COLMAP's figure."""
    lengths = np.bincount(model.point)
    sums = np.bincount(model.point, model.residual_px)
    return float(np.mean(sums[lengths > 0] / lengths[lengths > 0]))


def table_rows(result: SfmResult) -> list[tuple[str, Any]]:
    """Name and value of each figure, for the console and the page."""
    value = result.to_dict()
    rows: list[tuple[str, Any]] = [("photos", result.asked), ("registered", result.registered)]
    if result.errors is None:
        rows.append(("not alignable", result.reason))
    for name, share in value.get("within_position", {}).items():
        rows.append((f"registered within {name}", f"{100 * share:.1f} %"))
    for name, share in value.get("within_pose", {}).items():
        rows.append((f"registered within {name}", f"{100 * share:.1f} %"))
    rows += [
        ("3D points", result.points),
        ("observations", result.observations),
        ("track length", f"{result.track_length:.2f}"),
        ("reprojection error [px]", f"{result.reprojection_px:.3f}"),
    ]
    return rows
