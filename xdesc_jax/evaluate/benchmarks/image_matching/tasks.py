"""The two tasks of the Image Matching challenge on one scene: poses of pairs, and of small reconstructions.

In: a scene, features, and matches of its pairs. Out: the pose error of each pair, once a run. Runs differ by the seed
of RANSAC, and of verification and mapping.
"""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from xdesc_jax import console
from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.colmap.bindings.mapper import map_database
from xdesc_jax.colmap.bindings.settings import MappingSettings
from xdesc_jax.colmap.cameras import choose_intrinsics
from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate.benchmarks.image_matching.scenes import Scene, relative
from xdesc_jax.evaluate.benchmarks.pose_scores import pose_error_deg
from xdesc_jax.evaluate.relative_ransac import Estimator
from xdesc_jax.mapping.build import build_database
from xdesc_jax.mapping.from_photos import NotReconstructed
from xdesc_jax.mapping.mapper import verify
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.matches import MatchFile

_BLOCK = 64  # pairs whose matches are in memory


def stereo_errors(
    scene: Scene, files: Sequence[Path], matches: Path, max_error_px: float, seeds: Sequence[int], threads: int,
    what: str, estimate: Estimator,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Pose errors of all pairs.

    Args:
        scene: with the pairs, K and poses.
        files: features whose keypoints were matched.
        matches: of the pairs.
        max_error_px: of an inlier.
        seeds: of RANSAC, one a run.
        threads: to run on.
        what: is done, for the progress bar.
        estimate: finds the pose of a pair.

    Returns:
        [runs, P] degrees, inf without a pose; [P] matches of each pair.
    """
    with FeatureSet(files) as features, MatchFile(matches, features.names) as found:
        keypoints = functools.lru_cache(maxsize=None)(features.keypoints)

        def matched(pair: tuple[str, str]) -> tuple[np.ndarray, np.ndarray]:
            rows = found.indices(*pair)
            return keypoints(pair[0])[rows[:, 0]], keypoints(pair[1])[rows[:, 1]]

        def errors(pair: tuple[str, str], xy: tuple[np.ndarray, np.ndarray]) -> list[float]:
            k, true = [scene.intrinsics[name] for name in pair], scene.relative(*pair)
            poses = [estimate(*xy, *k, max_error_px=max_error_px, seed=seed) for seed in seeds]
            return [pose_error_deg(None if pose is None else pose.pose, true) for pose in poses]

        columns, counts = [], []
        with ThreadPoolExecutor(threads) as pool:
            # HDF5 is read in this thread alone; a block of pairs is in memory at a time.
            starts = range(0, len(scene.pairs), _BLOCK)
            for block in console.track([scene.pairs[i : i + _BLOCK] for i in starts], what, f"x {_BLOCK} pairs"):
                read = [matched(pair) for pair in block]
                columns += list(pool.map(errors, block, read))
                counts += [len(xy) for xy, _ in read]
    return np.array(columns).reshape(-1, len(seeds)).T, np.array(counts, np.int64)


def bag_pairs(scene: Scene) -> list[tuple[str, str]]:
    """The pairs that bags are reconstructed of: of photos of one bag that share enough points."""
    pairs: dict[tuple[str, str], None] = {}
    for bag in itertools.chain.from_iterable(scene.bags.values()):
        for a, b in itertools.combinations(sorted(bag), 2):
            if (a, b) not in scene.apart:
                pairs[a, b] = None
    return list(pairs)


def bag_database(
    files: Sequence[Path], matches: Path, photos: Path, out: Path, settings: MappingSettings
) -> Path | None:  # fmt: skip
    """A database of a scene with verified pairs; None where no pair passes. Cameras are not told, but from EXIF.

    Args:
        files: features that were matched.
        matches: of the pairs of all bags.
        photos: the folder that names are relative to.
        out: the database.
        settings: of verification.
    """
    with MatchFile(matches) as found:
        names = sorted({name for pair in found.pairs() for name in pair})
    with FeatureSet(files) as features:
        cameras = choose_intrinsics({name: features.image_size(name) for name in names}, photos=photos)
        build_database(out, features, cameras, matches, names=names)
    try:
        verify(out, settings)
    except NotReconstructed as reason:
        console.warn(str(reason))
        return None
    return out


def bag_errors(
    scene: Scene, bag: Sequence[str], database: Path | None, settings: MappingSettings
) -> tuple[list[float], int]:
    """Pose errors of all pairs of a bag in its largest model, and how many photos that has.

    Args:
        scene: with the poses.
        bag: photos to reconstruct together.
        database: see `bag_database`.
        settings: of mapping.

    Returns:
        Degrees, inf where a photo of the pair is not in the model.
    """
    poses: Mapping[str, Pose] = {}
    if database is not None:
        with tempfile.TemporaryDirectory() as folder:
            if map_database(database, Path(folder), settings, only=bag):
                poses = read_model(Path(folder) / "0").poses
    pairs = itertools.combinations(bag, 2)
    return [
        pose_error_deg(relative(poses[a], poses[b]), scene.relative(a, b)) if a in poses and b in poses else np.inf
        for a, b in pairs
    ], len(poses)
