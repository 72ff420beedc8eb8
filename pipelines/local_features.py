"""Table 2 of the paper: maps of photo collections by devices of several descriptors.

    python -m pipelines.local_features --data lfe --out OUT

DATA holds the scenes of the Local Feature Evaluation (see docs/benchmarks.md). COLMAP's keypoints, the paper's four
descriptors, split at random among the photos; ratio 0.9. Scenes without true poses get them from a reconstruction with
the best descriptor. What is finished is kept, so that a run that was stopped goes on.
"""

from __future__ import annotations

from pathlib import Path

from xdesc_jax.evaluate.benchmarks.places import local_features as benchmark
from xdesc_jax.evaluate.benchmarks.results import Result

from .map_scene import DESCRIPTORS


def local_features(
    *,
    data: Path,
    out: Path,
    model: Path = Path("colmap"),
    descriptors: tuple[str, ...] = DESCRIPTORS,
    scenes: tuple[str, ...] = (),
    max_keypoints: int = 8192,
    weights: tuple[str, ...] = (),
    threads: int = 2,
    processes: int = 1,
) -> Result:
    """Runs all rows of all scenes.

    Args:
        data: folder of the scenes.
        out: folder for everything that is made.
        model: translator: a model file, or the name of one that ships with the package.
        descriptors: from the worst to the best; the last gives the truth where there is none.
        scenes: names of folders; all where none are given.
        max_keypoints: of a photo.
        weights: NAME=FILE weight files, such as those of the paper's HardNet and SOSNet.
        threads: of mapping.
        processes: that extract.

    Returns:
        The result, which is also in OUT.
    """
    return benchmark.run(
        data=data, out=out, model=model, descriptors=descriptors, truth=descriptors[-1], scenes=scenes,
        max_keypoints=max_keypoints, weights=weights, ratio=0.9, threads=threads, processes=processes,
    )  # fmt: skip


if __name__ == "__main__":
    import sys

    from xdesc_jax.cli import run_function

    sys.exit(run_function(local_features))
