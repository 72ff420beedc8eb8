"""StableHLO files through jax.export: one translation for CPU, CUDA and TPU.

In: a translation (see `translation_graph`). Out: a .stablehlo file, jax.export's serialised form of a StableHLO module
with the weights inside, that computes it for 1 row and more; and a function that runs such a file with any jax that
still reads its calling convention. `jax.export.deserialize(content).mlir_module()` is the StableHLO text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xdesc_jax.export.file_format import FileFormat
from xdesc_jax.export.translation_graph import Graph, Run

if TYPE_CHECKING:
    import jax

PLATFORMS = ("cpu", "cuda", "tpu")


def write(path: Path, graph: Graph) -> None:
    """Writes a translation."""
    import jax
    from jax import export

    (n,) = export.symbolic_shape("N")
    inputs = [jax.ShapeDtypeStruct((n, *x.shape[1:]), x.dtype) for x in graph.given.values()]
    exported = export.export(jax.jit(lambda *given: _outputs(graph, *given)), platforms=PLATFORMS)(*inputs)
    path.write_bytes(exported.serialize())


def run_of(path: Path) -> Run:
    """A function that runs a StableHLO file where jax computes."""
    import jax
    from jax import export

    call = jax.jit(export.deserialize(bytearray(path.read_bytes())).call)
    return lambda *inputs: {name: np.asarray(value) for name, value in call(*inputs).items()}


FORMAT = FileFormat(
    "a StableHLO file", ("jax", "flax"), "jax", write, run_of,
    readable="a file of jax.export", least_rows=1,  # symbolic sizes are at least 1
)  # fmt: skip


def _outputs(graph: Graph, *inputs: jax.Array) -> dict[str, jax.Array]:
    import jax
    import jax.numpy as jnp

    from xdesc_jax.networks.frames import behind
    from xdesc_jax.networks.mlp import finish, forward, unit

    given = dict(zip(graph.given, inputs, strict=True))
    x, frames = given["source"].astype(jnp.float32), given.get("frames")
    alive = jnp.any(x != 0, axis=1, keepdims=True)
    for i, (network, layers, takes_unit_rows) in enumerate(graph.steps):
        x = unit(x) if takes_unit_rows else x
        if network in graph.framed:
            x = behind(x, frames, graph.harmonics, jnp)
        if i == 0 and graph.context is not None:
            x = jnp.concatenate([x, _told(graph, x, given)], axis=1)
        x = forward([{"kernel": k, "bias": b} for k, b in layers], x)
    if graph.target.binary:
        return {"target": (x > 0) & alive, "probabilities": jnp.where(alive, jax.nn.sigmoid(x), 0)}
    return {"target": jnp.where(alive, finish(x, graph.target), 0)}


def _told(graph: Graph, x: jax.Array, given: Mapping[str, jax.Array]) -> jax.Array:
    """What the first network is told of the neighbours of `x`, rows with their frames, [N, (H + 1) * W]."""
    import jax
    import jax.numpy as jnp

    from xdesc_jax.export.photo_inputs import NO_FRAME
    from xdesc_jax.networks.mlp import look_around, pooled, unit

    assert graph.context is not None
    # What is not there may hold anything, and no product may see it: 0 * NaN is NaN.
    mask, frames, other_frames = given["mask"], None, None
    there = mask[:, :, None]
    rows, offsets = (jnp.where(there, given[a].astype(jnp.float32), 0) for a in ("neighbours", "offsets"))
    if "neighbour_frames" in given:
        frames, other_frames = given["frames"], jnp.where(there, given["neighbour_frames"], NO_FRAME)
    rows = unit(rows) if graph.source.normalized else rows
    with jax.default_matmul_precision("highest"):
        around = look_around(rows, frames, other_frames, offsets, mask, graph.harmonics, graph.space)
        return pooled(graph.context, x, around)
