"""The paper's t-SNE figure: the joint space of translators that were trained with and without the matching loss.

    python -m pipelines.joint_space --data PHOTOS --runs ABLATIONS/runs --out OUT

PHOTOS are those that were trained on, ABLATIONS the folder of `pipelines.ablations`. 512 patches at COLMAP's keypoints,
embedded from each descriptor; 128 of each are drawn.
"""

from __future__ import annotations

from pathlib import Path

from xdesc_jax.evaluate.benchmarks import joint_space as benchmark
from xdesc_jax.evaluate.benchmarks.results import Result

WITH, WITHOUT = "4-descriptors", "no-matching-loss"  # folders of the two trainings


def joint_space(
    *,
    data: Path,
    runs: Path,
    out: Path,
    descriptors: tuple[str, ...] = (),
    weights: tuple[str, ...] = (),
    processes: int = 1,
) -> Result:
    """Measures and draws both spaces.

    Args:
        data: folder of photos.
        runs: folder of the ablations' trainings.
        out: folder for everything that is made.
        descriptors: of the model; by default all.
        weights: NAME=FILE weight files, such as those of the paper's HardNet and SOSNet.
        processes: that extract.

    Returns:
        The result, which is also in OUT.
    """
    model, without = (runs / name / "model.safetensors" for name in (WITH, WITHOUT))
    return benchmark.run(
        data=data, out=out, model=model, without=without, descriptors=descriptors, patches=512, plotted=128,
        keypoints="colmap", weights=weights, processes=processes,
    )  # fmt: skip


if __name__ == "__main__":
    import sys

    from xdesc_jax.cli import run_function

    sys.exit(run_function(joint_space))
