"""What the benchmark across descriptors measures, scene by scene.

In: cases, pairs, feature files, a translator, and a journal. Out: figures of each pair by case and scene. Of a scene
all cases come together, so that they share what they need (`matching`); threads match and score pairs meanwhile, and a
run that was stopped goes on with the case and scene that it was at.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from xdesc_jax import console
from xdesc_jax.evaluate.benchmarks.cross.data import Pair
from xdesc_jax.evaluate.benchmarks.cross.matching import (
    Place,
    SceneMatching,
    device_place,
    known_place,
    shared_order,
)  # fmt: skip
from xdesc_jax.evaluate.benchmarks.cross.plan import Case
from xdesc_jax.evaluate.benchmarks.cross.scores import Figures, RememberedRepeatability, score
from xdesc_jax.evaluate.benchmarks.cross.simulated import placement
from xdesc_jax.evaluate.benchmarks.cross.stores import Stores, suffix_of
from xdesc_jax.evaluate.benchmarks.hpatches_sequences import photo_size
from xdesc_jax.evaluate.relative_ransac import Estimator
from xdesc_jax.files.journal import Journal
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.learned import LearnedMatcher
from xdesc_jax.networks.threads import shared_threads
from xdesc_jax.translation.translator import Translator

MAX_ERROR_PX = 1.0  # of an inlier of a relative pose
AHEAD = 2  # cases whose pairs may wait for a thread while the rows of the next are translated
PairFigures = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Measuring:
    """What all cases share.

    Attributes:
        root: folder of the photos.
        stores: feature files.
        translator: of what is translated.
        network: of LightGlue; None where it does not match.
        estimate: RANSAC for posed pairs.
        seed: of RANSAC.
    """

    root: Path
    stores: Stores
    translator: Translator
    network: LearnedMatcher | None
    estimate: Estimator
    seed: int

    def all_figures(self, plan: Sequence[Case], pairs: Sequence[Pair], kept: Journal) -> dict[Case, Figures]:
        """Figures of all pairs by case and scene; what the journal has is not measured again."""
        scenes: dict[str, list[Pair]] = {}
        for pair in pairs:
            scenes.setdefault(pair.scene, []).append(pair)
        with console.progress_bar("steps") as bar:
            done = sum(_key(case, scene) in kept for case in plan for scene in scenes)
            task = bar.add_task("matching", total=len(plan) * len(scenes), completed=done)
            for scene, of_scene in scenes.items():
                left = [case for case in shared_order(plan) if _key(case, scene) not in kept]
                for case, found in self.of_scene(left, of_scene):
                    kept.add(_key(case, scene), {"pairs": found})
                    bar.advance(task)
        return {case: {scene: kept[_key(case, scene)]["pairs"] for scene in scenes} for case in plan}

    def of_scene(self, cases: Sequence[Case], pairs: Sequence[Pair]) -> Iterator[tuple[Case, list[PairFigures]]]:
        """Figures of each pair of one scene, case by case in the order of `cases`."""
        for keypoints in dict.fromkeys(case.keypoints for case in cases):
            same = [case for case in cases if case.keypoints == keypoints]
            places = {place for case in same for place in (known_place(case), device_place(case))}
            with contextlib.ExitStack() as stack:
                files = {place: stack.enter_context(self._opened(place)) for place in sorted(places)}
                matching = SceneMatching(pairs, files, self.translator, self.network)
                scoring = _Scoring(self, pairs, files)
                pool = stack.enter_context(_threads())
                waiting: collections.deque[tuple[Case, list[Future[PairFigures]]]] = collections.deque()
                for case in same:
                    job = scoring.job(case, matching.matcher(case))
                    waiting.append((case, [pool.submit(job, pair) for pair in pairs]))
                    if len(waiting) > AHEAD:
                        yield _finished(*waiting.popleft())
                for case, jobs in waiting:
                    yield _finished(case, jobs)

    def _opened(self, place: Place) -> FeatureSet:
        condition, keypoints, descriptor = place
        return FeatureSet([self.stores[condition, keypoints][descriptor]], model=self.translator)


class _Scoring:
    """Scores matches of one scene's pairs; positions are read, and what depends on them alone computed, once."""

    def __init__(self, settings: Measuring, pairs: Sequence[Pair], files: Mapping[Place, FeatureSet]):
        self._settings, self._repeatability = settings, RememberedRepeatability()
        names = {name for pair in pairs for name in (pair.known, pair.device)}
        self._sizes = {name: photo_size(settings.root / name) for name in names}
        self._known: dict[tuple[Place, str], np.ndarray] = {}
        self._device: dict[tuple[Place, str], np.ndarray] = {}
        for place, file in files.items():
            suffix = suffix_of(place[0])
            for pair in pairs:
                if not suffix:
                    self._known[place, pair.known] = file.keypoints(pair.known)
                placed = placement(self._sizes[pair.device], place[0], pair.device)
                self._device[place, pair.device] = placed.to_photo(file.keypoints(pair.device + suffix))

    def job(self, case: Case, matcher: Callable[[Pair], np.ndarray]) -> Callable[[Pair], PairFigures]:
        """What matches a pair and scores it."""

        def scored(pair: Pair) -> PairFigures:
            known, device = self._known[known_place(case), pair.known], self._device[device_place(case), pair.device]
            return score(
                pair, known, device, self._sizes[pair.known], self._sizes[pair.device], matcher(pair), MAX_ERROR_PX,
                self._settings.seed, self._settings.estimate, self._repeatability,
            )  # fmt: skip

        return scored


@contextlib.contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """Threads that match and score; what still waits for one when something fails is not begun."""
    pool = ThreadPoolExecutor(shared_threads())
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _finished(case: Case, jobs: Sequence[Future[PairFigures]]) -> tuple[Case, list[PairFigures]]:
    return case, [job.result() for job in jobs]


def _key(case: Case, scene: str) -> str:
    return f"{case} in {scene}"
