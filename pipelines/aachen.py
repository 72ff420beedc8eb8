"""Table 1 of the paper: Aachen Day-Night in maps of the same and of other descriptors.

    python -m pipelines.aachen --data aachen --pairs pairs-query-netvlad50.txt --out OUT

DATA is the benchmark's folder, v1 as in the paper or v1.1 (see docs/benchmarks.md). COLMAP's keypoints, the paper's
four descriptors; 20 neighbours of each photo of the map, 50 photos a query by NetVLAD. OUT/submissions holds a file of
poses a row for the benchmark's server. What is finished is kept, so that a run that was stopped goes on.
"""

from __future__ import annotations

from pathlib import Path

from xdesc_jax.evaluate.benchmarks.places import aachen as benchmark
from xdesc_jax.evaluate.benchmarks.results import Result

from .map_scene import DESCRIPTORS


def aachen(
    *,
    data: Path,
    out: Path,
    pairs: Path | None = None,
    global_features: Path | None = None,
    model: Path = Path("colmap"),
    descriptors: tuple[str, ...] = DESCRIPTORS,
    max_keypoints: int = 8192,
    weights: tuple[str, ...] = (),
    workers: int = 1,
    processes: int = 1,
) -> Result:
    """Runs all rows.

    Args:
        data: the benchmark's folder.
        out: folder for everything that is made.
        pairs: the photos that retrieval found for each query.
        global_features: instead of `pairs`: NetVLAD's features of all photos (hloc's .h5).
        model: translator: a model file, or the name of one that ships with the package.
        descriptors: of the rows.
        max_keypoints: of a photo.
        weights: NAME=FILE weight files, such as those of the paper's HardNet and SOSNet.
        workers: threads that localise.
        processes: that extract.

    Returns:
        The result, which is also in OUT.
    """
    return benchmark.run(
        data=data, out=out, pairs=pairs, global_features=global_features, model=model, descriptors=descriptors,
        max_keypoints=max_keypoints, weights=weights, neighbors=20, retrieval=50, workers=workers, processes=processes,
    )  # fmt: skip


if __name__ == "__main__":
    import sys

    from xdesc_jax.cli import run_function

    sys.exit(run_function(aachen))
