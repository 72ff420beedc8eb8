"""StableHLO files through jax.export: one translation for CPU, CUDA and TPU.

In: a translation (see `translation_graph`). Out: a .stablehlo file, jax.export's serialised form of a StableHLO module
with the weights inside, that computes it for 1 row and more; and a function that runs such a file with any jax that
still reads its calling convention. `jax.export.deserialize(content).mlir_module()` is the StableHLO text.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xdesc_jax.export.translation_graph import Graph, Run

if TYPE_CHECKING:
    import jax

EXTRA = "pip install 'xdesc-jax[jax]'"
PLATFORMS = ("cpu", "cuda", "tpu")
LEAST_ROWS = 1  # symbolic sizes are at least 1


def require(where: Path | str) -> None:
    """Raises ValueError, naming the extra, where jax or flax cannot be imported."""
    for package in ("jax", "flax"):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise ValueError(
                f"{where}: a StableHLO file needs the package {package!r} ({error}); install it with: {EXTRA}"
            ) from error


def write(path: Path, graph: Graph) -> None:
    """Writes a translation."""
    import jax
    from jax import export

    shape = export.symbolic_shape(f"N, {graph.source.width}")
    rows = jax.ShapeDtypeStruct(shape, np.bool_ if graph.source.binary else np.float32)
    exported = export.export(jax.jit(lambda x: _outputs(graph, x)), platforms=PLATFORMS)(rows)
    path.write_bytes(exported.serialize())


def load(path: Path | str) -> Run:
    """A function that runs a StableHLO file where jax computes.

    Raises:
        FileNotFoundError: no such file.
        ValueError: jax is missing, or no such file of jax.export, or one cut short.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such StableHLO file")
    require(path)
    import jax
    from jax import export

    try:
        call = jax.jit(export.deserialize(bytearray(Path(path).read_bytes())).call)
    except Exception as error:  # flatbuffers raises anything for bytes that are not its own
        raise ValueError(f"{path}: not a file of jax.export, or cut short ({error})") from error
    return lambda rows: {name: np.asarray(value) for name, value in call(rows).items()}


def _outputs(graph: Graph, source: jax.Array) -> dict[str, jax.Array]:
    import jax
    import jax.numpy as jnp

    from xdesc_jax.networks.mlp import finish, forward, unit

    x = source.astype(jnp.float32)
    alive = jnp.any(x != 0, axis=1, keepdims=True)
    normalize = graph.source.normalized
    for layers in graph.networks.values():
        x = forward([{"kernel": k, "bias": b} for k, b in layers], unit(x) if normalize else x)
        normalize = True  # embeddings between encoder and decoder
    if graph.target.binary:
        return {"target": (x > 0) & alive, "probabilities": jnp.where(alive, jax.nn.sigmoid(x), 0)}
    return {"target": jnp.where(alive, finish(x, graph.target), 0)}
