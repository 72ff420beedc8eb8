"""Validation of a descriptor: how well it finds the other view of a patch, and tells pairs from strangers.

In: a network and pairs of patches not trained on, one of each point. Out: rank-1 retrieval, false positive rate
at 95 % recall, and the loss, all in inference mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xdesc_jax.data.schema import MASK, PAIR, PATCH, POINT
from xdesc_jax.features.l2net import L2Net
from xdesc_jax.train.descriptors.step import LOSSES, describe, views_of
from xdesc_jax.train.rank1 import rank1

BLOCK = 512  # patches described at a time
STRANGERS = 16  # wrong partners of each row, for the false positive rate


def false_positive_rate(positive: np.ndarray, negative: np.ndarray, recall: float = 0.95) -> float:
    """Share of negative distances at most as large as the smallest threshold that keeps `recall` of the positive."""
    threshold = np.sort(positive)[max(int(np.ceil(recall * len(positive))) - 1, 0)]
    return float(np.mean(negative <= threshold))


def stranger_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Distances of each row of a [N, D] to the next few rows of b behind its own partner."""
    shifts = range(1, min(STRANGERS, len(a) - 1) + 1)
    return np.concatenate([np.linalg.norm(a - np.roll(b, -shift, axis=0), axis=1) for shift in shifts])


def validator(
    kind: str, loss: str, margin: float, batch_size: int
) -> Callable[[L2Net, Mapping[str, Mapping[str, np.ndarray]]], dict[str, Any]]:
    """Makes the measuring function; its jitted parts compile once.

    Returns:
        (network, {source: {'patch', 'pair' [N, 32, 32] uint8, 'point' [N]}}) -> {'mean_rank1', 'mean_fpr95',
        'mean_loss': means over sources; 'rank1', 'fpr95', 'loss': by source}. The loss is that of batches of
        `batch_size` rows, the last of which may be smaller.
    """

    @jax.jit
    def losses(batch: Mapping[str, jax.Array], rows: jax.Array) -> Any:
        patches = jnp.stack([batch[PATCH], batch[PAIR]]).astype(jnp.float32) / 255
        return LOSSES[loss](views_of(batch, patches, rows), margin)

    def described(net: L2Net, patches: np.ndarray) -> np.ndarray:
        size = min(BLOCK, len(patches))
        parts = [describe(net, _filled(patches[i : i + size], size), kind=kind) for i in range(0, len(patches), size)]
        return np.concatenate(parts)[: len(patches)]

    def mean_loss(pairs: Mapping[str, np.ndarray], rows: np.ndarray) -> float:
        sums: Any = None
        for i in range(0, len(pairs[POINT]), batch_size):
            at = slice(i, i + batch_size)
            batch = {name: _filled(x[at], batch_size) for name, x in pairs.items()}
            batch[MASK] = np.arange(batch_size) < len(pairs[POINT][at])
            views = np.concatenate([_filled(view[at], batch_size) for view in rows])
            found = losses(batch, views)
            sums = found if sums is None else jax.tree.map(jnp.add, sums, found)
        return float(sum(s.mean() for s in sums.values()))

    def measure(net: L2Net, sources: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Any]:
        result: dict[str, Any] = {"rank1": {}, "fpr95": {}, "loss": {}}
        for name, pairs in sources.items():
            rows = np.stack([described(net, pairs[PATCH]), described(net, pairs[PAIR])])
            result["rank1"][name] = float(rank1(rows[0], rows[1]))
            positive = np.linalg.norm(rows[0] - rows[1], axis=1)
            result["fpr95"][name] = false_positive_rate(positive, stranger_distances(*rows))
            result["loss"][name] = mean_loss(pairs, rows)
        return {f"mean_{figure}": float(np.mean(list(v.values()))) for figure, v in result.items()} | result

    return measure


def _filled(x: np.ndarray, rows: int) -> np.ndarray:
    """Rows with zero rows behind them, so that every block has one shape."""
    return np.concatenate([x, np.zeros((rows - len(x), *x.shape[1:]), x.dtype)]) if len(x) < rows else x
