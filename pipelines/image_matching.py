"""Table 3 of the paper's supplement: the Image Matching challenge on PhotoTourism.

    python -m pipelines.image_matching --data PHOTOTOURISM --out OUT

PHOTOTOURISM holds reichstag, sacre_coeur and st_peters_square (see docs/benchmarks.md). Rows: the four descriptors at
2048 OpenCV keypoints; each translated to the better ones; photos divided among two and among all, in the joint space.
Ratio and threshold are chosen on reichstag; figures are means of three runs on the other two. What is finished is kept,
so that a run that was stopped goes on.
"""

from __future__ import annotations

from pathlib import Path

from xdesc_jax.evaluate.benchmarks.image_matching import benchmark
from xdesc_jax.evaluate.benchmarks.results import Result

from .map_scene import DESCRIPTORS


def image_matching(
    *,
    data: Path,
    out: Path,
    model: Path = Path("opencv"),
    descriptors: tuple[str, ...] = DESCRIPTORS,
    weights: tuple[str, ...] = (),
    processes: int = 1,
    threads: int = 2,
) -> Result:
    """Runs all rows.

    Args:
        data: folder of the scenes.
        out: folder for everything that is made.
        model: translator: a model file, or the name of one that ships with the package.
        descriptors: from the worst to the best.
        weights: NAME=FILE weight files, such as those of the paper's HardNet and SOSNet.
        processes: that extract.
        threads: of RANSAC and mapping.

    Returns:
        The result, which is also in OUT.
    """
    return benchmark.run(
        data=data, out=out, model=model, descriptors=descriptors, weights=weights, processes=processes, threads=threads
    )


if __name__ == "__main__":
    import sys

    from xdesc_jax.cli import run_function

    sys.exit(run_function(image_matching))
