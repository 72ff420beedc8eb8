"""Photo pairs one after another; what a run has finished of them outlives it, should it be stopped.

In: scenes, what works on their pairs, and the journal of the run. Out: what was found of each pair, in order.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence

from xdesc_jax import console
from xdesc_jax.evaluate.scenes import PhotoPair, Scene
from xdesc_jax.files.journal import Entry, Journal


def left_of(scenes: Sequence[Scene], finished: int) -> Iterator[tuple[Scene, PhotoPair]]:
    """All pairs but the first `finished`, which count as done in the progress that is shown meanwhile."""
    pairs = [(scene, pair) for scene in scenes for pair in scene.pairs]
    return itertools.islice(console.track(pairs, "evaluating", "pairs", finished=finished), finished, None)


def of_pairs(
    scenes: Sequence[Scene], work: Callable[[int], Iterator[Entry]], journal: Journal | None
) -> Iterator[tuple[str, str, Entry]]:
    """What is found of each pair; what the journal has is not worked on again.

    Args:
        scenes: whose pairs.
        work: takes how many of the first pairs to leave out, as `left_of` does, and gives the entry of each other one.
        journal: keeps each entry as soon as it is there; with None, nothing is kept.

    Yields:
        Name of the scene, database photo, and entry: as `work` gives it, or as the journal gives it back.
    """
    pairs = [(scene.name, pair.database) for scene in scenes for pair in scene.pairs]
    keys = [json.dumps(pair) for pair in pairs]
    finished = sum(1 for _ in itertools.takewhile(lambda key: journal is not None and key in journal, keys))
    if finished:
        console.info(f"going on: {finished} of {len(pairs)} pairs finished already")
    fresh = work(finished)
    for key, (scene, database) in zip(keys, pairs, strict=True):
        yield scene, database, next(fresh) if journal is None else journal.recall(key, lambda: next(fresh))
