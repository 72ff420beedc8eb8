"""What each batch of new photos brought to a map: figures, and the table of them.

In: the map as it is after a batch, what became of the batch's photos, and further photos to test the map with. Out: the
figures of the step, as `summary.json` has them, and their table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.evaluate.poses import LOCALIZATION, UNITS, Scale, label, pose_errors
from xdesc_jax.files.journal import Journal
from xdesc_jax.localization.finished import recall
from xdesc_jax.localization.outcome import Localization
from xdesc_jax.localization.read_query import localize_read
from xdesc_jax.mapping.bootstrap import UpdatedMap
from xdesc_jax.matching.feature_set import FeatureSet, Held

_SHOWN = 5


def step_after(
    updated: UpdatedMap,
    results: Mapping[str, Localization],
    photos: int,
    *,
    test: FeatureSet,
    cameras: Mapping[str, Camera],
    true: Mapping[str, Pose],
    scale: Scale,
    journal: Journal,
) -> dict[str, Any]:
    """Figures after a batch; what became of the test photos is kept in the journal.

    Args:
        updated: the map, with the batch taken in.
        results: what became of the batch's photos.
        photos: how many were asked for so far.
        test: features of the test photos.
        cameras: of the test photos, which may be none.
        true: their poses; none where they are not known.
        scale: of errors.
        journal: of the run.
    """
    shares = updated.shares()
    inliers = [found.inliers for found in results.values() if found.pose is not None]
    step: dict[str, Any] = {
        "photos": photos,
        "registered": len(updated.added),
        "real_rows": shares.rows,
        "real_points": shares.points,
        "median_inliers": float(np.median(inliers)) if inliers else None,
    }
    if not cameras:
        return step
    localizer, found = updated.localizer, {}
    for name, camera in cameras.items():
        try:
            photo, held = test.read(name), held_of(test, name)
        except ValueError as error:  # of this photo alone
            found[name] = Localization("failed", reason=str(error))
            if not photos:  # once, and not after every batch
                console.warn(f"a test photo fails: {error}")
            continue
        work = partial(localize_read, localizer, name, photo, held, camera)
        found[name] = recall(journal, f"test {photos} {name}", work)
    step["test"] = {
        "localized": float(np.mean([f.pose is not None for f in found.values()])),
        "median_inliers": float(np.median([f.inliers for f in found.values()])),
    }
    if true:
        poses = {name: f.pose for name, f in found.items() if f.pose is not None}
        errors = pose_errors(poses, true, list(cameras), scale)
        step["test"]["within"] = {label(p, r, scale): errors.within(p, r) for p, r in LOCALIZATION[scale]}
        position, rotation = errors.medians()
        step["test"]["median_position"] = None if np.isnan(position) else position
        step["test"]["median_rotation_deg"] = None if np.isnan(rotation) else rotation
    return step


def print_steps(steps: Sequence[dict[str, Any]], failed: Mapping[str, str], scale: Scale) -> None:
    """Prints the figures of all steps, and why photos failed."""
    for name, reason in list(failed.items())[:_SHOWN]:
        console.warn(f"{name!r} was not registered: {reason}")
    columns = ["photos", "added", "% real\nrows", "% real\npoints", "inliers"]
    test = "test" in steps[0]
    if test:
        columns += ["test: %\nlocalised", "test:\ninliers"]
    if test and "median_position" in steps[0]["test"]:
        columns.append(f"test:\nerror [{UNITS[scale]}]")
    rows = []
    for step in steps:
        row: list[Any] = [step["photos"], step["registered"]]
        row += [f"{100 * step[key]:.1f}" for key in ("real_rows", "real_points")]
        row.append("-" if step["median_inliers"] is None else f"{step['median_inliers']:.0f}")
        if test:
            row += [f"{100 * step['test']['localized']:.0f}", f"{step['test']['median_inliers']:.0f}"]
            if "median_position" in step["test"]:
                position = step["test"]["median_position"]
                row.append("-" if position is None else f"{position:.4f}")
        rows.append(row)
    console.table("map update", columns, rows)


def held_of(features: FeatureSet, name: str) -> Held:
    """What the rows of a photo are; raises ValueError where it has none."""
    held = features.held(name)
    if held is None:
        raise ValueError(f"{features.path(name)}: {name!r} has no descriptors")
    return held
