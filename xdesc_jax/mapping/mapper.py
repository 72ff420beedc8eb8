"""From a database with matches to models: geometric verification, then mapping or triangulation.

In: a database that `build` made, settings, and known poses for triangulation. Out: verified pairs in the
database, a folder of models with those of most photos first, and their figures. Where nothing connects, the
error says how far it came. A run that was stopped goes on at the pairs that are not verified yet.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from pathlib import Path

from xdesc_jax import console
from xdesc_jax.colmap.bindings import mapper as colmap
from xdesc_jax.colmap.bindings.database import cameras_by_id, frame_count, image_names
from xdesc_jax.colmap.bindings.settings import MappingSettings
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.model import Pose
from xdesc_jax.files.whole import atomic
from xdesc_jax.mapping.build import MEASURED
from xdesc_jax.mapping.from_photos import NotReconstructed

_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class PairCounts:
    """How far the pairs of a database came.

    Attributes:
        matched: pairs with matches.
        most_matches: of a pair.
        verified: pairs whose matches passed geometric verification.
    """

    matched: int
    most_matches: int
    verified: int


def verify(database: Path, settings: MappingSettings | None = None, where: Path | None = None) -> PairCounts:
    """Verifies the pairs of a database that have matches and are not verified yet.

    Args:
        database: with keypoints and matches; verified pairs are written into it as they are found.
        settings: see there; None for the defaults.
        where: what messages call the database; None for its own path.

    Returns:
        Counts of pairs.

    Raises:
        NotReconstructed: no pair has matches, or none passes.
    """
    settings = settings or MappingSettings()
    if pairs := colmap.unverified_pairs(database):
        with console.progress_bar("pairs") as bar:
            task = bar.add_task("verifying", total=len(pairs))
            colmap.verify_pairs(database, pairs, settings, lambda n: bar.advance(task, n))
    counts = PairCounts(*colmap.pair_counts(database))
    if not counts.verified and not counts.matched:
        raise NotReconstructed(f"{where or database}: no pair of its {len(image_names(database))} photos has matches")
    if not counts.verified:
        raise NotReconstructed(
            f"{where or database}: {counts.matched} pairs have matches (at most {counts.most_matches}), but none "
            f"passed geometric verification, which asks for {settings.min_inliers} that agree"
        )
    return counts


def map_incrementally(database: Path, out: Path, settings: MappingSettings | None = None) -> list[Path]:
    """Maps the photos of a database with verified pairs.

    Args:
        database: see `verify`.
        out: folder to make, of the models 0, 1, ...; those with most photos (then points) come first.
        settings: see there; None for the defaults.

    Returns:
        Folders of the models.

    Raises:
        NotReconstructed: there is no model.
    """
    settings = settings or MappingSettings()
    photos, frames = len(image_names(database)), frame_count(database)
    # COLMAP tells of each frame that is registered; that of a rig is several photos.
    with atomic(out) as folder, console.progress_bar("photos" if frames == photos else "frames") as bar:
        task = bar.add_task("mapping", total=frames)
        fixed = fixed_cameras(database, settings)
        found = colmap.map_database(database, folder, settings, fixed, lambda n: bar.advance(task, n))
        if not found:
            raise NotReconstructed(_why_no_model(database, photos, settings))
    return [out / str(index) for index in range(found)]


def _why_no_model(database: Path, photos: int, settings: MappingSettings) -> str:
    counts = PairCounts(*colmap.pair_counts(database))
    told = (
        f"{database}: {counts.verified} of {counts.matched} pairs with matches are verified, but no pair of the "
        f"{photos} photos gives a model of {settings.min_model_size} photos"
    )
    if photos < settings.min_model_size:
        return f"{told}: smaller ones are given up (--min-model-size)"
    if photos == 2 and not settings.two_view_tracks:
        return f"{told}: points that only two photos see are left out (--two-view-tracks keeps them)"
    return (
        f"{told}: of a pair to start from, at least {max(settings.min_initial_inliers // 4, 1)} verified matches are "
        f"asked, seen under a wide enough angle; of a further photo, {settings.min_pose_inliers} points"
    )


def triangulate(database: Path, poses: Mapping[str, Pose], out: Path, settings: MappingSettings | None = None) -> Path:
    """Triangulates the verified matches of photos whose poses are known; poses and cameras stay as they are.

    Args:
        database: see `verify`; made with `own_frames` where it had rigs.
        poses: by photo name; others than the database's photos are not used.
        out: folder to make; the model is `out`/0.
        settings: see there; None for the defaults.

    Returns:
        Folder of the model.

    Raises:
        ValueError: photos of the database have no pose.
        NotReconstructed: there is no point.
    """
    settings = settings or MappingSettings()
    names = image_names(database)
    check_poses(names, poses, str(database))
    with atomic(out) as folder:
        points = colmap.triangulate_database(database, {name: poses[name] for name in names}, folder, settings)
        if not points:
            raise NotReconstructed(
                f"{database}: no point could be triangulated of {colmap.pair_counts(database)[2]} verified pairs: "
                f"the poses may be of other photos or in other coordinates"
            )
    return out / "0"


def check_poses(names: Collection[str], poses: Collection[str], where: str) -> None:
    """Raises ValueError with the first five where photos have no pose."""
    missing = [name for name in names if name not in poses]
    if missing:
        raise ValueError(
            f"{where}: {len(missing)} of {len(names)} photos have no given pose, first {missing[:_SHOWN]}; there are "
            f"poses of {len(poses)}, first {sorted(poses)[:_SHOWN]}"
        )


def fixed_cameras(database: Path, settings: MappingSettings) -> set[int]:
    """Ids of the cameras that mapping keeps: by `refine_intrinsics`, all, none, or those noted as measured."""
    if settings.refine_intrinsics == "all":
        return set()
    if settings.refine_intrinsics == "none":
        return set(cameras_by_id(database))
    with DatabaseReader(database) as reader:
        return set(json.loads(reader.attributes.get(MEASURED, "[]")))
