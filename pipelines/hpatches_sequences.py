"""Figure 6 of the paper, and its ablations' protocol: matching accuracy on the full HPatches sequences.

    python -m pipelines.hpatches_sequences --data hpatches-sequences-release --out OUT

DATA is the folder of the release (see docs/benchmarks.md). COLMAP's keypoints, the paper's four descriptors; photo 1 of
each sequence is the query, matched by mutual nearest neighbours with the other five: native, and translated from each
descriptor to each other. The 8 sequences with large photos are left out. What is finished is kept, so that a run that
was stopped goes on.
"""

from __future__ import annotations

from pathlib import Path

from xdesc_jax.evaluate.benchmarks import hpatches_sequences as benchmark
from xdesc_jax.evaluate.benchmarks.results import Result

from .map_scene import DESCRIPTORS


def hpatches_sequences(
    *,
    data: Path,
    out: Path,
    model: Path = Path("colmap"),
    descriptors: tuple[str, ...] = DESCRIPTORS,
    max_keypoints: int = 8192,
    weights: tuple[str, ...] = (),
    processes: int = 1,
) -> Result:
    """Runs all rows, and draws the accuracy curves and the differences from sequence to sequence.

    Args:
        data: the folder hpatches-sequences-release.
        out: folder for everything that is made.
        model: translator: a model file, or the name of one that ships with the package.
        descriptors: of the rows.
        max_keypoints: of a photo.
        weights: NAME=FILE weight files, such as those of the paper's HardNet and SOSNet.
        processes: that extract.

    Returns:
        The result, which is also in OUT.
    """
    return benchmark.run(
        data=data, out=out, model=model, descriptors=descriptors, keypoints="colmap", max_keypoints=max_keypoints,
        weights=weights, processes=processes,
    )  # fmt: skip


if __name__ == "__main__":
    import sys

    from xdesc_jax.cli import run_function

    sys.exit(run_function(hpatches_sequences))
