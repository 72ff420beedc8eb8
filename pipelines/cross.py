"""Who serves whom: every map with every device, on any folder of scenes, by day, by night and through another lens.

    python -m pipelines.cross --data SCENES --out OUT

DATA holds homography sequences and posed scenes (see docs/benchmarks.md). The shipped translator `mixed`, with all its
descriptors, networks among them (the extra `learned` and `xdesc weights install xfeat aliked-n16rot aliked-n16 disk
lightglue-aliked lightglue-disk`): native, translated, joint, naive and LightGlue. What is finished is kept, so that a
run that was stopped goes on.
"""

from __future__ import annotations

from pathlib import Path

from xdesc_jax.evaluate.benchmarks.cross import benchmark
from xdesc_jax.evaluate.benchmarks.cross.data import PAIRS_A_SCENE
from xdesc_jax.evaluate.benchmarks.cross.plan import Way
from xdesc_jax.evaluate.benchmarks.results import Result
from xdesc_jax.evaluate.relative_ransac import Ransac


def cross(
    *,
    data: Path,
    out: Path,
    model: Path = Path("mixed"),
    descriptors: tuple[str, ...] = (),
    lightglue: bool = True,
    pairs_a_scene: int = PAIRS_A_SCENE,
    weights: tuple[str, ...] = (),
    ransac: Ransac = "colmap",
    processes: int = 1,
) -> Result:
    """Runs all rows.

    Args:
        data: folder of the scenes.
        out: folder for everything that is made.
        model: translator: a model file, or the name of one that ships with the package.
        descriptors: of maps and devices; by default all of the model's that photos give.
        lightglue: whether its matches are measured, too.
        pairs_a_scene: the most pairs of a posed scene.
        weights: NAME=FILE weight files of networks that are not installed.
        ransac: of posed scenes, whose: colmap, or poselib (the extra 'poselib').
        processes: that extract.

    Returns:
        The result, which is also in OUT.
    """
    ways: tuple[Way, ...] = ("native", "translated", "joint", "naive", *(("lightglue",) if lightglue else ()))
    return benchmark.run(
        data=data, out=out, model=model, descriptors=descriptors, matchers=ways, pairs_a_scene=pairs_a_scene,
        weights=weights, ransac=ransac, processes=processes,
    )  # fmt: skip


if __name__ == "__main__":
    import sys

    from xdesc_jax.cli import run_function

    sys.exit(run_function(cross))
