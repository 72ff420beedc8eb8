"""The ablation study of the paper's supplement: each setting trained alike, and which of the paper's claims hold.

    python -m pipelines.ablations --data PHOTOS --scenes hpatches-sequences-release --out OUT

PHOTOS are trained on (the paper: 3190 photos of the internet), SCENES are measured on. COLMAP's keypoints, the paper's
four descriptors and its training: naive matching; pair network; 2, 3 and 4 descriptors; with and without matching loss;
quadratic, linear and autoencoder loss; embeddings of 16 to 256 values. OUT/runs keeps a translator a setting, which
`pipelines.joint_space` and `pipelines.embedding_size` take. A run that was stopped goes on, within a training, too.
"""

from __future__ import annotations

from pathlib import Path

from xdesc_jax.command_line import ablations as benchmark
from xdesc_jax.evaluate.benchmarks.results import Result

from .map_scene import DESCRIPTORS


def ablations(
    *,
    data: Path,
    scenes: Path,
    out: Path,
    training: Path = Path("paper"),
    descriptors: tuple[str, ...] = DESCRIPTORS,
    weights: tuple[str, ...] = (),
    processes: int = 1,
) -> Result:
    """Trains all settings, and judges the claims.

    Args:
        data: folder of photos to train on.
        scenes: folder of scenes with known homographies.
        out: folder for everything that is made.
        training: configuration of all trainings; 'tiny' is of minutes.
        descriptors: in the place of BRIEF, SIFT, HardNet and SOSNet.
        weights: NAME=FILE weight files, such as those of the paper's HardNet and SOSNet.
        processes: that extract.

    Returns:
        The result, which is also in OUT.
    """
    return benchmark.run(
        data=data, scenes=scenes, out=out, training=training, descriptors=descriptors, keypoints="colmap",
        weights=weights, processes=processes,
    )  # fmt: skip


if __name__ == "__main__":
    import sys

    from xdesc_jax.cli import run_function

    sys.exit(run_function(ablations))
