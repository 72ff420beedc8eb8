"""The benchmarks by name: one line each.

In: a name. Out: the benchmark. A further one is a module of this folder, its line here, and one in
`command_line.stages` for its `run`.
"""

from __future__ import annotations

from xdesc_jax.console.words import did_you_mean
from xdesc_jax.evaluate.benchmarks.ablations import BENCHMARK as ABLATIONS
from xdesc_jax.evaluate.benchmarks.cross.benchmark import BENCHMARK as CROSS
from xdesc_jax.evaluate.benchmarks.hpatches_patches import BENCHMARK as HPATCHES_PATCHES
from xdesc_jax.evaluate.benchmarks.hpatches_sequences import BENCHMARK as HPATCHES_SEQUENCES
from xdesc_jax.evaluate.benchmarks.image_matching.benchmark import BENCHMARK as IMAGE_MATCHING
from xdesc_jax.evaluate.benchmarks.joint_space import BENCHMARK as JOINT_SPACE
from xdesc_jax.evaluate.benchmarks.places.aachen import BENCHMARK as AACHEN
from xdesc_jax.evaluate.benchmarks.places.aachen import SIZES as AACHEN_EMBEDDING_SIZE
from xdesc_jax.evaluate.benchmarks.places.inloc import BENCHMARK as INLOC
from xdesc_jax.evaluate.benchmarks.places.local_features import BENCHMARK as LOCAL_FEATURES
from xdesc_jax.evaluate.benchmarks.protocol import Benchmark
from xdesc_jax.evaluate.benchmarks.relative_pose import BENCHMARK as RELATIVE_POSE

BENCHMARKS: dict[str, Benchmark] = {
    found.name: found
    for found in (
        HPATCHES_PATCHES,
        HPATCHES_SEQUENCES,
        IMAGE_MATCHING,
        LOCAL_FEATURES,
        AACHEN,
        AACHEN_EMBEDDING_SIZE,
        INLOC,
        ABLATIONS,
        JOINT_SPACE,
        RELATIVE_POSE,
        CROSS,
    )
}


def benchmark(name: str) -> Benchmark:
    """A benchmark; an unknown name raises ValueError with near ones."""
    if name not in BENCHMARKS:
        hint = did_you_mean(name, BENCHMARKS, cutoff=0.4)
        raise ValueError(f"no benchmark is called {name!r}{hint} (there are {', '.join(BENCHMARKS)})")
    return BENCHMARKS[name]
