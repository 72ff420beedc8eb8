"""What became of queries: the file that a benchmark's server takes, and figures.

In: poses of queries, and true ones where they are known. Out: a text of poses under the photos' own names, and shares
of each group of queries. The true poses of Aachen and InLoc are not public: their servers give the shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from xdesc_jax.colmap.lists import read_poses, write_poses
from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate.benchmarks.results import Column
from xdesc_jax.evaluate.poses import LOCALIZATION, PoseErrors, label, pose_errors
from xdesc_jax.files.whole import content_hash

Limits = Sequence[tuple[float, float]]
LIMITS: Limits = LOCALIZATION["metric"]


def submission(path: Path, poses: Mapping[str, Pose]) -> Path:
    """Writes `name qw qx qy qz tx ty tz` a query, world to camera, the name without its folders.

    Queries without a pose are left out; the servers count them as not localised.

    Raises:
        ValueError: two queries have the same name in different folders.
    """
    named: dict[str, Pose] = {}
    for query, pose in poses.items():
        name = PurePosixPath(query).name
        if name in named:
            raise ValueError(f"{path}: two queries are called {name!r}, and the file of poses tells no folders")
        named[name] = pose
    return write_poses(path, named)


def read_reference(path: Path | None, queries: Sequence[str]) -> tuple[dict[str, Pose] | None, Any]:
    """True poses of the queries, and a hash of what they come from; None and None without a path.

    Args:
        path: folder of a COLMAP model, or text `name qw qx qy qz tx ty tz`; names with their folders or without.
        queries: names.

    Raises:
        FileNotFoundError: no such model or file.
        ValueError: it cannot be read, or lacks queries.
    """
    from xdesc_jax.colmap.bindings.api import read_model
    from xdesc_jax.localization.localize import model_hash

    if path is None:
        return None, None
    path = Path(path)
    held = read_model(path).poses if path.is_dir() else read_poses(path)
    found = {q: held[n] for q in queries for n in (q, PurePosixPath(q).name) if n in held}
    if missing := [query for query in queries if query not in found]:
        raise ValueError(f"{path}: lacks the pose of {len(missing)} of {len(queries)} queries, first {missing[:5]}")
    return found, model_hash(path) if path.is_dir() else content_hash(path)


def figures(
    poses: Mapping[str, Pose], inliers: Mapping[str, int], queries: Sequence[str], reference: Mapping[str, Pose] | None
) -> dict[str, Any]:
    """Figures of all queries, JSON-like, in the order of `queries`.

    Args:
        poses: of those that were localised.
        inliers: of each query; 0 where it is not there.
        queries: all.
        reference: their true poses, where they are known.
    """
    found: dict[str, Any] = {
        "localised": [query in poses for query in queries],
        "inliers": [int(inliers.get(query, 0)) for query in queries],
    }
    if reference is not None:
        errors = pose_errors(poses, reference, queries, "metric")
        found["position_m"] = [float(p) if np.isfinite(p) else None for p in errors.position]
        found["rotation_deg"] = [float(r) if np.isfinite(r) else None for r in errors.rotation_deg]
    return found


def columns(groups: Sequence[str], known: bool, limits: Limits = LIMITS) -> tuple[Column, ...]:
    """Of the table.

    Args:
        groups: of queries.
        known: whether true poses are.
        limits: of position [m] and rotation [deg].
    """
    found = []
    for group in groups:
        found += [Column(f"{group} {label(*limit, 'metric')}") for limit in limits] if known else []
        found += [Column(f"{group} localised"), Column(f"{group} inliers", "", 0)]
    return tuple(found)


def values(
    found: Mapping[str, Any], queries: Sequence[str], groups: Mapping[str, Sequence[str]], limits: Limits = LIMITS
) -> dict[str, float | None]:
    """A row of the table: shares of each group, and the median inliers of those localised.

    Args:
        found: what `figures` gave.
        queries: all, in its order.
        groups: name -> queries.
        limits: of position [m] and rotation [deg].
    """
    row: dict[str, float | None] = {}
    place = {query: i for i, query in enumerate(queries)}
    for group, members in groups.items():
        at = np.array([place[query] for query in members], int)
        localised, inliers = np.array(found["localised"], bool)[at], np.array(found["inliers"])[at]
        row[f"{group} localised"] = 100 * float(localised.mean())
        row[f"{group} inliers"] = float(np.median(inliers[localised])) if localised.any() else None
        if "position_m" in found:
            position, rotation = (
                np.array([np.inf if v is None else v for v in found[key]])[at] for key in ("position_m", "rotation_deg")
            )
            errors = PoseErrors(tuple(members), position, rotation, "metric", 1.0)
            row |= {f"{group} {label(*limit, 'metric')}": 100 * errors.within(*limit) for limit in limits}
    return row
