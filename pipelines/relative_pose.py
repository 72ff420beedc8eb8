"""Relative poses of MegaDepth-1500, ScanNet-1500 or one's own pairs, across descriptors and detectors.

    python -m pipelines.relative_pose --data DATA --out OUT

DATA holds photos and a list of pairs (see docs/benchmarks.md). Rows: the paper's four descriptors at COLMAP's
keypoints, native, translated to each other, and in the joint space. With --model mixed --descriptors colmap-sift xfeat
the two photos of a pair have keypoints of two detectors. What is finished is kept, so that a run that was stopped goes
on.
"""

from __future__ import annotations

from pathlib import Path

from xdesc_jax.evaluate.benchmarks import relative_pose as benchmark
from xdesc_jax.evaluate.benchmarks.results import Result

from .map_scene import DESCRIPTORS


def relative_pose(
    *,
    data: Path,
    out: Path,
    pairs: Path | None = None,
    model: Path = Path("colmap"),
    descriptors: tuple[str, ...] = DESCRIPTORS,
    max_keypoints: int = 2048,
    weights: tuple[str, ...] = (),
    max_error_px: float = 1.0,
    processes: int = 1,
) -> Result:
    """Runs all rows.

    Args:
        data: folder of the photos, and of the list.
        out: folder for everything that is made.
        pairs: the list, where it is not in DATA.
        model: translator: a model file, or the name of one that ships with the package.
        descriptors: of the rows.
        max_keypoints: of a photo.
        weights: NAME=FILE weight files, such as those of the paper's HardNet and SOSNet.
        max_error_px: of an inlier.
        processes: that extract.

    Returns:
        The result, which is also in OUT.
    """
    return benchmark.run(
        data=data, out=out, pairs=pairs, model=model, descriptors=descriptors, max_keypoints=max_keypoints,
        weights=weights, max_error_px=max_error_px, processes=processes,
    )  # fmt: skip


if __name__ == "__main__":
    import sys

    from xdesc_jax.cli import run_function

    sys.exit(run_function(relative_pose))
