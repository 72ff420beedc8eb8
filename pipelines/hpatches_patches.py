"""Figure 5 of the paper: verification, matching and retrieval of HPatches patches, native, translated and joint.

    python -m pipelines.hpatches_patches --data hpatches-release --tasks hpatches-benchmark/tasks --out OUT

DATA is the folder of the release (see docs/benchmarks.md). Rows: the paper's four descriptors as they are; each
translated to each other, with the target's own rows in the reference images; and each with each in the joint space.
What is finished is kept, so that a run that was stopped goes on.
"""

from __future__ import annotations

from pathlib import Path

from xdesc_jax.evaluate.benchmarks import hpatches_patches as benchmark
from xdesc_jax.evaluate.benchmarks.patch_tasks import PAIRS
from xdesc_jax.evaluate.benchmarks.results import Result

from .map_scene import DESCRIPTORS


def hpatches_patches(
    *,
    data: Path,
    out: Path,
    tasks: Path | None = None,
    split: str = "full",
    model: Path = Path("opencv"),
    descriptors: tuple[str, ...] = DESCRIPTORS,
    pairs: int = PAIRS,
    weights: tuple[str, ...] = (),
) -> Result:
    """Runs all rows of figure 5.

    Args:
        data: the folder hpatches-release.
        out: folder for everything that is made.
        tasks: folder of the official task lists; without, lists are drawn.
        split: of the sequences.
        model: translator: a model file, or the name of one that ships with the package.
        descriptors: of the rows.
        pairs: of each kind, where lists are drawn.
        weights: NAME=FILE weight files, such as those of the paper's HardNet and SOSNet.

    Returns:
        The result, which is also in OUT.
    """
    return benchmark.run(
        data=data, out=out, model=model, descriptors=descriptors, split=split, tasks=tasks, pairs=pairs,
        weights=weights,
    )  # fmt: skip


if __name__ == "__main__":
    import sys

    from xdesc_jax.cli import run_function

    sys.exit(run_function(hpatches_patches))
