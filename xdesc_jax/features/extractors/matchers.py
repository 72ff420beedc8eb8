"""Matchers, called from a process that has no torch.

In: names of matchers, their classes and weight files, a device; then keypoints and rows of two photos. Out: matches
and scores. One process computes, as long as the block lasts; it starts at the first pair (`process`).
"""

from __future__ import annotations

import numpy as np

from xdesc_jax.features.extractors.process import NetworkProcess
from xdesc_jax.features.extractors.protocol import PairRequest, Side


class Matchers(NetworkProcess):
    """Matchers by name."""

    def match(self, name: str, first: Side, second: Side, where: str) -> tuple[np.ndarray, np.ndarray]:
        """The matches that a matcher finds.

        Args:
            name: of the matcher.
            first, second: the photos.
            where: the pair, for error messages.

        Returns:
            Indices [M, 2] int32, ascending in the first photo's row and each row once, and scores [M] float32.

        Raises:
            ValueError, OSError: as `start`; the network failed, or gave what are no matches of these rows.
        """
        indices, scores = self.compute(PairRequest(name, first, second), f"{where}: {name!r}")
        indices, scores = np.asarray(indices), np.asarray(scores, np.float32)
        counts = (len(first.rows), len(second.rows))
        if not _are_matches(indices, counts) or scores.shape != (len(indices),) or not np.isfinite(scores).all():
            raise ValueError(
                f"{where}: {name!r} gave matches {list(indices.shape)} with scores {list(scores.shape)}, expected rows "
                f"of {counts[0]} and {counts[1]} keypoints, each at most once, and finite scores"
            )
        order = np.argsort(indices[:, 0])
        return indices[order].astype(np.int32), scores[order]


def _are_matches(indices: np.ndarray, counts: tuple[int, int]) -> bool:
    if indices.ndim != 2 or indices.shape[1] != 2 or not np.issubdtype(indices.dtype, np.integer):
        return False
    once = all(len(np.unique(column)) == len(column) for column in indices.T)
    return once and bool(((indices >= 0) & (indices < counts)).all())
