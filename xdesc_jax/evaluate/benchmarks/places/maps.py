"""Maps in given poses: which photos are matched, and their points.

In: poses of a map's photos, their features. Out: pairs of neighbours; a COLMAP model of the poses alone; a model with
points triangulated from matches.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.console.words import counted
from xdesc_jax.evaluate.divided import write_lines
from xdesc_jax.files.whole import staged
from xdesc_jax.matching.pairs import pair_line
from xdesc_jax.matching.routes import Mode


def spatial_pairs(poses: Mapping[str, Pose], count: int) -> list[tuple[str, str]]:
    """Each photo with those that were taken nearest to it, each two photos once, sorted.

    Args:
        poses: of the photos.
        count: neighbours of a photo; all others where there are no more. Of equally near ones the first by name.
    """
    from scipy.spatial import KDTree

    names = sorted(poses)
    centers = np.array([poses[name].center for name in names]).reshape(-1, 3)
    tree = KDTree(centers)
    found: set[tuple[str, str]] = set()
    for i, center in enumerate(centers):
        others = min(count, len(names) - 1)
        reach = tree.query(center, k=others + 1)[0]  # the photo itself is among them
        # All within the last distance, so that ties are decided by name and not by the tree.
        near = [j for j in tree.query_ball_point(center, np.max(reach) * (1 + 1e-9)) if j != i]
        near.sort(key=lambda j: (np.linalg.norm(centers[j] - center), j))
        found |= {(names[min(i, j)], names[max(i, j)]) for j in near[:others]}
    return sorted(found)


def write_posed(folder: Path, poses: Mapping[str, Pose], cameras: Mapping[str, Camera]) -> Path:
    """Writes a COLMAP model (text) of photos without points, each with its camera; an existing one is replaced.

    Raises:
        ValueError: a photo without a camera.
    """
    if lacking := sorted(set(poses) - set(cameras)):
        raise ValueError(
            f"{folder}: {counted(len(lacking), 'photo has', 'photos have')} no intrinsics, first {lacking[:5]}"
        )
    with staged(folder) as temporary:
        temporary.mkdir()
        of_cameras: list[str] = []
        of_images: list[str] = []
        for i, (name, pose) in enumerate(sorted(poses.items()), start=1):
            camera = cameras[name]
            of_cameras.append(f"{i} {camera.model} {camera.width} {camera.height} {_numbers(camera.params)}\n")
            values = _numbers([*pose.quaternion, *pose.translation])
            of_images.append(f"{i} {values} {i} {name}\n\n")
        for file, text in (("cameras", "".join(of_cameras)), ("images", "".join(of_images)), ("points3D", "")):
            (temporary / f"{file}.txt").write_text(text, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)  # a folder takes the place of none that holds files
    return folder


def _numbers(values: Sequence[float]) -> str:
    return " ".join(repr(float(value)) for value in values)


def write_pair_list(path: Path, pairs: Sequence[tuple[str, str]]) -> Path:
    """Writes a pair list, as `xdesc match` and `xdesc localize` read it."""
    return write_lines(path, [pair_line(a, b).removesuffix("\n") for a, b in pairs])


def triangulated(
    files: Sequence[Path], names: Sequence[str], reference: Path, pairs: Path, out: Path, *, mode: Mode,
    model: Path | None, ratio: float | Literal["auto"] | None, overwrite: bool = False,
) -> Path:  # fmt: skip
    """Matches pairs of photos and triangulates them into given poses; what is finished is kept.

    Args:
        files: feature files of the photos.
        names: the map's photos.
        reference: COLMAP model with their poses and cameras.
        pairs: list of those that are matched.
        out: folder of the matches and the map.
        mode, model, ratio: of matching.
        overwrite: make both anew.

    Returns:
        Folder of the model.
    """
    from xdesc_jax.colmap.bindings.settings import MappingSettings
    from xdesc_jax.mapping.reconstruct import reconstruct
    from xdesc_jax.matching.match import match

    only = write_lines(out / "photos.txt", sorted(names))
    matches = match(
        tuple(files), out / "matches.h5", pairs=str(pairs), mode=mode, model=model, ratio=ratio, overwrite=overwrite
    )
    reconstruct(
        tuple(files), out / "map", matches=matches, given_poses=reference, only=only,
        settings=MappingSettings(two_view_tracks=True), overwrite=overwrite,
    )  # fmt: skip
    return out / "map" / "models" / "0"
