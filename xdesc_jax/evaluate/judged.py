"""Mutual matches of photo pairs, judged by the truth; what is judged outlives a run that is stopped.

In: searches of photo pairs with known correspondence, and the journal of a run. Out: of each pair and comparison, which
matches are correct, at which ratio.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.evaluate.finished import of_pairs
from xdesc_jax.evaluate.homography import Comparison, Searched, Translates, searched_pairs
from xdesc_jax.evaluate.measures import CORRECT_PX
from xdesc_jax.evaluate.scenes import Scene
from xdesc_jax.files.journal import Entry, Journal


@dataclasses.dataclass(frozen=True)
class Judged:
    """The mutual matches of one photo pair whose truth is known.

    Attributes:
        comparison: what is matched.
        ratios: [K] float32.
        correct: [K] bool.
        findable: query keypoints that have a true counterpart.
    """

    comparison: Comparison
    ratios: np.ndarray
    correct: np.ndarray
    findable: int

    @classmethod
    def of(cls, found: Searched) -> Judged:
        """From a search."""
        known = found.truth.known[found.mutual[:, 0]]
        rows, columns = found.mutual[known].T
        correct = found.truth.errors(rows, columns) <= CORRECT_PX
        return cls(found.comparison, found.mutual_ratios[known], correct, int(found.truth.findable.sum()))


def judge_all(
    scenes: Sequence[Scene],
    stores: Mapping[str, Path],
    translator: Translates | None,
    plan: Sequence[Comparison],
    journal: Journal,
) -> Iterator[Judged]:
    """All photo pairs under each comparison; those that the journal lacks are searched.

    Args:
        scenes, stores, translator, plan: as for `search`.
        journal: keeps the matches of each pair.

    Yields:
        In the order of `search`, in whatever runs the pairs were searched.
    """

    def work(finished: int) -> Iterator[Entry]:
        for found in searched_pairs(scenes, stores, translator, plan, finished):
            judged = [Judged.of(s) for s in found]
            arrays = {f"{i} {part}": getattr(j, part) for i, j in enumerate(judged) for part in ("ratios", "correct")}
            yield {**arrays, "findable": [j.findable for j in judged]}

    for _, _, entry in of_pairs(scenes, work, journal):
        for i, comparison in enumerate(plan):
            yield Judged(comparison, entry[f"{i} ratios"], entry[f"{i} correct"], entry["findable"][i])
