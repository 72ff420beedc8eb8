"""The stage `xdesc evaluate localization`: poses of queries against true ones.

In: what `xdesc localize` wrote, or poses as the benchmarks' text, and a reference model. Out: shares of
queries within three thresholds, median errors, errors per query; table, JSON and an HTML page. A query
without a pose counts as not localised.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate.alignment import NotAlignable, align
from xdesc_jax.evaluate.poses import LOCALIZATION, MAPPING, UNITS, PoseErrors, Scale, label, pose_errors, spacing
from xdesc_jax.files.whole import read_json, write_json
from xdesc_jax.localization.queries import read_poses, read_queries

RESULTS, REPORT = "results.json", "report.html"


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


def localization(
    results: Path,
    *,
    reference: Path,
    out: Path,
    scale: Scale = "metric",
    queries: Path | None = None,
    map: Path | None = None,
    seed: int = 0,
) -> PoseErrors:
    """Measures localised queries against true poses.

    Args:
        results: folder or `results.json` of `xdesc localize`, or a text of poses ('name qw qx qy qz tx ty tz').
        reference: folder of a COLMAP model with the true poses.
        out: folder for the table (JSON) and the report.
        scale: 'metric' where the reference is in metres; 'relative' divides positions by u, the median
            distance from a reference camera to its nearest.
        queries: list of all queries (name first in each line), so that those a text of poses leaves out
            count as not localised.
        map: folder of the COLMAP model that the queries were localised in, where it is not in the reference's
            frame: it is aligned by its photos, robustly, and the queries with it.
        seed: of the alignment.

    Returns:
        The errors, which are also in OUT/results.json and OUT/report.html.

    Raises:
        FileNotFoundError: no such file.
        ValueError: files that cannot be read, queries that the reference lacks, or a map that cannot be aligned.
    """
    from xdesc_jax.colmap.pycolmap_api import read_model
    from xdesc_jax.evaluate.map_report import write_localization_report

    results, reference, out = Path(results), Path(reference), Path(out)
    settings = {
        "results": str(results),
        "reference": str(reference),
        "scale": scale,
        "queries": queries and str(queries),
    }
    console.settings(f"xdesc evaluate localization -> {out}", settings)
    found = read_localized(results)
    asked = list(dict.fromkeys([*(read_queries(queries) if queries is not None else ()), *found.asked]))
    if not asked:
        raise ValueError(f"{results}: names no query")
    true = read_model(reference).poses
    poses = found.poses
    if map is not None:
        unit = 1.0 if scale == "metric" else spacing(list(true.values()))
        try:
            moved = align(Path(map), read_model(Path(map)), true, MAPPING[scale][-1][0] * unit, seed)
        except NotAlignable as error:
            raise ValueError(f"{map}: cannot be aligned to {reference}: {error}") from error
        poses = {name: moved.pose(pose) for name, pose in poses.items()}
    errors = pose_errors(poses, true, asked, scale)
    write_localization_report(out / REPORT, errors, found, settings)
    write_json(out / RESULTS, {"settings": settings, **to_dict(errors, found)})
    console.table("Localisation", ("", "value"), table_rows(errors))
    console.out.print(f"figures: {out / RESULTS}\nreport: {out / REPORT}", markup=False)
    return errors


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
