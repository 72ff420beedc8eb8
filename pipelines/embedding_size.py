"""Table 5 of the paper's supplement: collaborative maps of Aachen Day-Night in joint spaces of 16 to 256 values.

    python -m pipelines.embedding_size --data aachen --runs ABLATIONS/runs --pairs pairs-query-netvlad50.txt --out OUT

DATA is the benchmark's folder (see docs/benchmarks.md), ABLATIONS that of `pipelines.ablations`, which trains the
translators. Queries hold the last descriptor, the map's photos one of the four each; all else as `pipelines.aachen`,
whose standard rows are the table's first.
"""

from __future__ import annotations

from pathlib import Path

from xdesc_jax.evaluate.benchmarks.places import aachen as benchmark
from xdesc_jax.evaluate.benchmarks.results import Result

from .map_scene import DESCRIPTORS

SETTINGS = ("embedding-256", "4-descriptors", "embedding-64", "embedding-32", "embedding-16")


def embedding_size(
    *,
    data: Path,
    runs: Path,
    out: Path,
    pairs: Path | None = None,
    global_features: Path | None = None,
    descriptors: tuple[str, ...] = DESCRIPTORS,
    weights: tuple[str, ...] = (),
    workers: int = 1,
    processes: int = 1,
) -> Result:
    """Runs a row a size.

    Args:
        data: the benchmark's folder.
        runs: folder of the ablations' trainings.
        out: folder for everything that is made.
        pairs: the photos that retrieval found for each query.
        global_features: instead of `pairs`: NetVLAD's features of all photos (hloc's .h5).
        descriptors: of the map's photos; the last is the queries'.
        weights: NAME=FILE weight files, such as those of the paper's HardNet and SOSNet.
        workers: threads that localise.
        processes: that extract.

    Returns:
        The result, which is also in OUT.
    """
    models = tuple(runs / name / "model.safetensors" for name in SETTINGS)
    return benchmark.run_sizes(
        data=data, out=out, models=models, query=descriptors[-1], pairs=pairs, global_features=global_features,
        descriptors=descriptors, weights=weights, neighbors=20, retrieval=50,
        workers=workers, processes=processes,
    )  # fmt: skip


if __name__ == "__main__":
    import sys

    from xdesc_jax.cli import run_function

    sys.exit(run_function(embedding_size))
