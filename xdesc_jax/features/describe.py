"""Computes registered descriptors from patches, the package's own and the user's.

In: descriptor names, patches, and weight files for the learned descriptors where they are not shipped or
installed. Out: functions of patches to use inside a training step, or descriptor rows as stores keep them.

An own descriptor takes a few lines and then works by name in every stage:

    import jax.numpy as jnp
    from xdesc_jax.descriptors import DescriptorSpec, register
    from xdesc_jax.features.describe import describe_patches

    def pooled(patches):  # float32 [B, 32, 32] in 0..1 -> float32 [B, 64], unit rows
        rows = patches.reshape(-1, 8, 4, 8, 4).mean(axis=(2, 4)).reshape(-1, 64)
        rows = rows - rows.mean(axis=1, keepdims=True)
        norm = jnp.linalg.norm(rows, axis=1, keepdims=True)
        return jnp.where(norm > 1e-3, rows / norm, 0)  # flat patches give zero rows

    register(DescriptorSpec("pooled", 64), pooled)
    rows = describe_patches(["pooled", "sift"], patches)["pooled"]

A learned one takes `(params, patches)` and is registered with `load=`, a function from a weight file's path
to any pytree of arrays. A function that needs numpy begins with `np.asarray(patches)`: `describe_patches`
then calls it outside jit. Only a training step that computes descriptors itself needs it in jax.numpy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from xdesc_jax.descriptors import Entry, canonical, get_entry, resolve, stored
from xdesc_jax.features.official import weight_file

BATCH = 256  # patches computed at once; fixed, so that each descriptor compiles once for photos of any size
PATCH_SHAPE = (32, 32)
# What jax raises where a function asks a traced value for its numbers.
_NEEDS_VALUES = (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError)


def describer(name: str, weights: Path | str | None = None) -> Callable[[jax.Array], jax.Array]:
    """The function that computes a descriptor.

    Args:
        name: a registered descriptor that is computed from patches.
        weights: its weight file, read again when it has changed on disk; where not given, `official.weight_file`
            finds it.

    Returns:
        A function from float32 [B, 32, 32] in 0..1 to canonical rows: float32 [B, D] or bool [B, bits]. It is
        a pytree whose leaves are the weights: a jitted function that takes it as an argument need not hold
        the weights as constants.

    Raises:
        FileNotFoundError: no such weight file.
        ValueError: an unknown name, a descriptor not computed from patches, weights that are missing, not
            wanted or of another network.
    """
    return _prepared(name, weights)[0]


def describe_patches(
    names: Sequence[str], patches: np.ndarray, weights: Mapping[str, Path | str] | None = None
) -> dict[str, np.ndarray]:
    """Computes descriptors of patches.

    Args:
        names: registered descriptors that are computed from patches.
        patches: uint8 [N, 32, 32]; N may be 0.
        weights: descriptor name -> weight file; `official.weight_file` finds those of learned ones not named here.

    Returns:
        Name -> [N, stored_width] in the stored form, rows in the order of the patches.

    Raises:
        FileNotFoundError: no such weight file.
        ValueError: as `describer`; patches of another shape or dtype; rows that do not fit the spec.
    """
    if patches.dtype != np.uint8 or patches.ndim != 3 or patches.shape[1:] != PATCH_SHAPE:
        raise ValueError(f"patches are {patches.dtype} {list(patches.shape)}, expected uint8 [N, 32, 32]")
    prepared = {name: _prepared(name, (weights or {}).get(name)) for name in names}
    return {name: _rows(name, *prepared[name], patches) for name in names}


def _rows(name: str, function: Callable, traceable: bool, patches: np.ndarray) -> np.ndarray:
    spec = get_entry(name).spec
    run = _on_device if traceable else _on_host
    rows = np.empty((len(patches), spec.stored_width), spec.stored_dtype)
    for start in range(0, len(patches), BATCH):
        batch = patches[start : start + BATCH]
        described = run(function, batch)
        if len(described) != len(batch):
            raise ValueError(f"descriptor {name!r}: {len(batch)} patches gave {len(described)} rows")
        where = f"computing {name!r} from patches {start} to {start + len(batch) - 1}"
        rows[start : start + BATCH] = stored(canonical(described, spec, where=where), spec)
    return rows


def _on_device(function: Callable, batch: np.ndarray) -> np.ndarray:
    padded = np.zeros((BATCH, *PATCH_SHAPE), np.uint8)
    padded[: len(batch)] = batch
    return np.asarray(_jitted(function, padded))[: len(batch)]


def _on_host(function: Callable, batch: np.ndarray) -> np.ndarray:
    return np.asarray(function(batch.astype(np.float32) / 255))


@jax.jit
def _jitted(function: Callable, patches: jax.Array) -> jax.Array:
    # `function` is a pytree: jit keeps one program per descriptor, and weights are arguments of it.
    return function(patches.astype(jnp.float32) / 255)


def _prepared(name: str, weights: Path | str | None) -> tuple[Callable, bool]:
    """The function that computes `name`, and whether jax can trace it."""
    entry = get_entry(name)
    _check_from_patches(entry)
    file = weight_file(name, weights)
    if file is None:
        return _prepare(entry, None, None)
    stat = file.stat() if file.exists() else None
    return _prepare(entry, file, stat and (stat.st_mtime_ns, stat.st_size))


@functools.lru_cache(maxsize=32)
def _prepare(entry: Entry, weights: Path | None, version: tuple[int, int] | None) -> tuple[Callable, bool]:
    # `version` is in the key alone, so that a changed weight file is read again.
    assert entry.describe is not None
    params = (resolve(entry.load)(weights),) if weights is not None and entry.load is not None else ()
    function = jax.tree_util.Partial(resolve(entry.describe), *params)
    try:
        jax.eval_shape(function, jax.ShapeDtypeStruct((BATCH, *PATCH_SHAPE), jnp.float32))
    except _NEEDS_VALUES:
        return function, False
    return function, True


def _check_from_patches(entry: Entry) -> None:
    name = entry.spec.name
    if entry.source == "photo":
        raise ValueError(f"descriptor {name!r} is computed from the photo and keypoints, not from patches")
    if entry.source == "network":
        raise ValueError(f"descriptor {name!r} is computed from the photo by a network, not from patches")
    if entry.source == "detector":
        raise ValueError(f"descriptor {name!r} comes with the detector's keypoints, not from patches")
    if entry.describe is None:
        raise ValueError(f"descriptor {name!r} is registered without a function; its rows come from files")
