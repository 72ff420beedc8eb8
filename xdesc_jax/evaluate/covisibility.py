"""Which kinds of descriptor a map's points are made of (figure of co-visibility in the paper, section 5.2).

In: a sparse model, and the descriptor of each photo. Out: the share of points that 1, 2, ... kinds see, and
for each two kinds the share of points that both see. Imports numpy alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from xdesc_jax.colmap.model import Model


@dataclasses.dataclass(frozen=True)
class Covisibility:
    """Shares of a model's points.

    Attributes:
        kinds: K descriptors.
        by_count: [K] share of points whose track holds exactly 1, ..., K kinds.
        together: [K, K] symmetric, share of points whose track holds both; on the diagonal, of one.
    """

    kinds: tuple[str, ...]
    by_count: np.ndarray
    together: np.ndarray


def covisibility(model: Model, kind_of: Mapping[str, str], kinds: Sequence[str] | None = None) -> Covisibility:
    """Counts the kinds of descriptor in every track.

    Args:
        model: the map.
        kind_of: photo -> descriptor, of every registered photo.
        kinds: their order; sorted where None.

    Raises:
        ValueError: a photo without a kind.
    """
    missing = [name for name in model.names if name not in kind_of]
    if missing:
        raise ValueError(f"{len(missing)} of {len(model.names)} photos have no descriptor, first {missing[:5]}")
    names = tuple(kinds) if kinds is not None else tuple(sorted(set(kind_of.values())))
    column = np.array([names.index(kind_of[name]) for name in model.names], int)
    seen = np.zeros((len(model.points), len(names)), bool)
    seen[model.point, column[model.view]] = True
    count = seen.sum(axis=1)
    total = max(1, len(seen))
    by_count = np.array([np.sum(count == k) for k in range(1, len(names) + 1)]) / total
    together = seen.T.astype(np.float64) @ seen / total
    return Covisibility(names, by_count, together)
