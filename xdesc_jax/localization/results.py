"""What is written of localised queries: poses, results with all figures, and what each pose rests on.

In: what became of each query, and what it was made of. Out: `poses.txt`, `correspondences.npz`, and last
`results.json`, which vouches for both.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.colmap.lists import write_poses
from xdesc_jax.colmap.model import Camera, Model
from xdesc_jax.files.whole import write_json
from xdesc_jax.localization import correspondences
from xdesc_jax.localization.map import SHOWN
from xdesc_jax.localization.outcome import Localization

POSES, RESULTS = "poses.txt", "results.json"


def record(found: Localization) -> dict[str, Any]:
    """A query's entry in `results.json`; the views that its photos were matched in, where there are views."""
    pose = found.pose
    entry = {
        "status": found.status,
        "reason": found.reason,
        "qvec": None if pose is None else pose.quaternion.tolist(),
        "tvec": None if pose is None else pose.translation.tolist(),
        "inliers": found.inliers,
        "matches": found.matches,
        "inlier_ratio": found.inlier_ratio,
        "covariance": None if found.covariance is None else found.covariance.tolist(),
        "position_covariance": None if found.position_covariance is None else found.position_covariance.tolist(),
        "focal_px": found.focal_px,
        "candidates": list(found.candidates),
        "warnings": list(found.warnings),
        "seconds": {part: round(value, 6) for part, value in found.seconds.items()},
    }
    return entry | ({"views": dict(found.views)} if found.views else {})


def absolute(paths: dict[str, Any]) -> dict[str, Any]:
    """Absolute paths, so that what is shown later is found from any folder; where they moved the hashes tell."""
    return {k: [str(p.resolve()) for p in v] if isinstance(v, list) else str(v.resolve()) for k, v in paths.items()}


def write_results(
    out: Path, about: dict[str, Any], cameras: dict[str, Camera], sparse: Model, localized: dict[str, Localization]
) -> None:
    """Writes what became of each query, with the poses and correspondences beside it.

    Args:
        out: the folder.
        about: settings, their hash and the inputs, kept with the results.
        cameras: of the queries.
        sparse: the map's model.
        localized: what became of each.
    """
    # The results vouch for the files beside them, so they go first and come last.
    (out / RESULTS).unlink(missing_ok=True)
    write_poses(out / POSES, {name: found.pose for name, found in localized.items() if found.pose is not None})
    assert sparse.point_ids is not None, "the model was not read from files"
    matched = {
        name: dataclasses.replace(found.correspondences, point=sparse.point_ids[found.correspondences.point])
        for name, found in localized.items()
    }
    correspondences.write(out / correspondences.FILE, about["config_hash"], matched)
    queries = {
        name: {**record(found), "camera": dataclasses.asdict(cameras[name])} for name, found in localized.items()
    }
    write_json(out / RESULTS, {**about, "queries": queries})


def summarise(localized: dict[str, Localization]) -> None:
    """Prints how many queries were localised, how well, and why others were not."""
    done = [found for found in localized.values() if found.status == "localized"]
    failed = {name: found for name, found in localized.items() if found.status == "failed"}
    for name, found in list(failed.items())[:SHOWN]:
        console.warn(f"{name!r} failed: {found.reason}")
    deviating = [(name, text) for name, found in localized.items() for text in found.warnings]
    if deviating:
        console.warn(f"{len({name for name, _ in deviating})} queries, first {deviating[0][0]!r}: {deviating[0][1]}")
    rows: list[tuple[str, Any]] = [("localized", len(done)), ("failed", len(failed))]
    if done:
        rows += [
            ("median inliers of the localized", int(np.median([found.inliers for found in done]))),
            ("median inlier ratio of the localized", float(np.median([found.inlier_ratio for found in done]))),
        ]
    timed = [found.seconds for found in localized.values() if found.seconds]
    if timed:
        rows += [(f"median seconds, {part}", float(np.median([t[part] for t in timed]))) for part in timed[0]]
    console.figures("localization", rows)
