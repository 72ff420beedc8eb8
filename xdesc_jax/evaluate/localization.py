"""Localised queries against true poses: what became of them, and the figures that a table, JSON or page shows.

In: what `xdesc localize` wrote, or poses as the benchmarks' text; errors of poses. Out: the queries' poses;
shares of queries within three thresholds, medians, errors per query. A query without a pose counts as not
localised.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.colmap.lists import read_poses
from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate.poses import LOCALIZATION, UNITS, PoseErrors, label
from xdesc_jax.files.whole import read_json

RESULTS = "results.json"


@dataclasses.dataclass(frozen=True)
class Localized:
    """What became of the queries.

    Attributes:
        poses: of the queries that were localised.
        asked: all queries.
        inliers: query -> inliers, where known.
        reasons: query -> why it failed, where known.
    """

    poses: dict[str, Pose]
    asked: tuple[str, ...]
    inliers: dict[str, int] = dataclasses.field(default_factory=dict)
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)


def read_localized(path: Path) -> Localized:
    """Reads `results.json`, the folder that holds it, or a text of poses.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is neither.
    """
    path = path / RESULTS if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such results (JSON of `xdesc localize`, or text of poses)")
    if path.suffix != ".json":
        poses = read_poses(path)
        return Localized(poses, tuple(poses))
    value = read_json(path)
    if not isinstance(value, dict) or not isinstance(value.get("queries"), dict):
        raise ValueError(f"{path}: has no 'queries', expected what `xdesc localize` writes")
    poses, inliers, reasons = {}, {}, {}
    for name, entry in value["queries"].items():
        try:
            inliers[name] = int(entry["inliers"])
            if entry["status"] == "localized":
                poses[name] = Pose.from_quaternion(np.array(entry["qvec"], float), np.array(entry["tvec"], float))
            else:
                reasons[name] = str(entry["reason"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: query {name!r} is {entry!r}, expected a result ({error})") from error
    return Localized(poses, tuple(value["queries"]), inliers, reasons)


def shares(errors: PoseErrors) -> dict[str, float]:
    """Share of all queries within each threshold of the scale."""
    return {label(p, r, errors.scale): errors.within(p, r) for p, r in LOCALIZATION[errors.scale]}


def table_rows(errors: PoseErrors) -> list[tuple[str, Any]]:
    """Name and value of each figure."""
    position, rotation = errors.medians()
    unit = UNITS[errors.scale]
    return [
        ("queries", len(errors.names)),
        ("localised", int(errors.found.sum())),
        *((f"within {name}", f"{100 * share:.1f} %") for name, share in shares(errors).items()),
        (f"median position error of the localised [{unit}]", f"{position:.4f}"),
        ("median rotation error of the localised [deg]", f"{rotation:.4f}"),
    ]


def to_dict(errors: PoseErrors, found: Localized) -> dict[str, Any]:
    """For JSON: shares, medians, errors per query; null for what has none."""
    position, rotation = (None if np.isnan(v) else v for v in errors.medians())
    return {
        "scale": errors.scale,
        "unit": errors.unit,
        "queries": len(errors.names),
        "localized": int(errors.found.sum()),
        "within": shares(errors),
        "median_position": position,
        "median_rotation_deg": rotation,
        "failed": [name for name, ok in zip(errors.names, errors.found, strict=True) if not ok],
        "per_query": [
            {
                "name": name,
                "position": float(p) if np.isfinite(p) else None,
                "rotation_deg": float(r) if np.isfinite(r) else None,
                "inliers": found.inliers.get(name),
                "reason": found.reasons.get(name),
            }
            for name, p, r in _triples(errors)
        ],
    }


def _triples(errors: PoseErrors) -> Sequence[tuple[str, float, float]]:
    return list(zip(errors.names, errors.position.tolist(), errors.rotation_deg.tolist(), strict=True))
