"""True poses and intrinsics of a photo collection that has none: a reconstruction, in the four steps of the paper.

In: a feature file of all photos (the paper takes SOSNet at COLMAP's keypoints). Out: a COLMAP model of poses and
cameras, in metres where distances are known.

1. All pairs are matched: mutual nearest neighbours, ratio 0.9.
2. They are verified and mapped; photos with fewer than 100 3D points are left out.
3. The others are verified and mapped again, their intrinsics fixed to the estimates of step 2.
4. The model is scaled to metres. The paper clicked on a web map; here a list of distances between photos says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.camera_models import number
from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate.benchmarks.places.maps import write_posed
from xdesc_jax.evaluate.divided import write_lines
from xdesc_jax.files.text_list import read_lines

MIN_POINTS = 100


def pseudo_truth(
    store: Path, out: Path, *, photos: Path, ratio: float, seed: int, threads: int, distances: Path | None
) -> Path:
    """Reconstructs a collection; what is finished is kept.

    Args:
        store: feature file of all photos.
        out: folder for matches and models.
        photos: folder of the photos, for the cameras' EXIF.
        ratio: of matching.
        seed: of verification and mapping.
        threads: of mapping.
        distances: text `photo photo metres`; None to leave the model in its own units.

    Returns:
        Folder of a COLMAP model with poses and cameras of the photos that were registered in the third step.

    Raises:
        NotReconstructed: nothing connects.
        ValueError: fewer than 3 photos have enough points, or distances that do not fit.
    """
    from xdesc_jax.colmap.bindings.api import read_model
    from xdesc_jax.colmap.bindings.settings import MappingSettings
    from xdesc_jax.mapping.reconstruct import reconstruct
    from xdesc_jax.matching.match import match

    settings = MappingSettings(seed=seed, threads=threads)
    matches = match((store,), out / "matches.h5", pairs="exhaustive", ratio=ratio)
    reconstruct((store,), out / "first", matches=matches, photos=photos, settings=settings)
    first = read_model(out / "first/models/0")
    seen = np.bincount(first.view, minlength=len(first.names))
    kept = [name for name, count in zip(first.names, seen, strict=True) if count >= MIN_POINTS]
    if len(kept) < settings.min_model_size:
        raise ValueError(
            f"{out / 'first'}: {len(kept)} of {len(first.names)} photos see {MIN_POINTS} 3D points or more, expected "
            f"at least {settings.min_model_size}"
        )
    only = write_lines(out / "photos.txt", kept)
    reconstruct(
        (store,), out / "second", matches=matches, only=only, intrinsics=out / "first/models/0", settings=settings
    )
    second = read_model(out / "second/models/0")
    factor = metres_a_unit(distances, second.poses) if distances else 1.0
    poses = {name: Pose(pose.rotation, factor * pose.translation) for name, pose in second.poses.items()}
    return write_posed(out / "reference", poses, dict(zip(second.names, second.cameras, strict=True)))


def metres_a_unit(path: Path, poses: Mapping[str, Pose]) -> float:
    """The scale of a model, from known distances between its photos: the median over all.

    Args:
        path: text, `photo photo metres` a line, a tab between names with blanks.
        poses: of the model.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line that is not as expected, or no line of two photos of the model.
    """
    found = []
    for line in read_lines(path, "list of distances"):
        words = line.text.split("\t") if "\t" in line.text else line.text.split()
        metres = number(words[-1])
        if len(words) != 3 or not 0 < metres < np.inf:
            raise ValueError(f"{line.where}: expected 'photo photo metres', above 0: {line.text!r}")
        if words[0] in poses and words[1] in poses:
            units = float(np.linalg.norm(poses[words[0]].center - poses[words[1]].center))
            if units > 0:
                found.append(metres / units)
    if not found:
        raise ValueError(f"{path}: no line names two photos of the model, which has {sorted(poses)[:5]}")
    return float(np.median(found))
