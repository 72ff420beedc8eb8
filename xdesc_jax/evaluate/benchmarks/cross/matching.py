"""Matches of the benchmark across descriptors: nearest neighbours, or a network.

In: the pairs of one scene, and the feature files of maps and devices. Out: of each case and pair the rows that match.
Cases of one scene share rows: a photo is read once, goes to the joint space once, and to the descriptor of a device
once for all conditions and ways, where cases come in the order of `shared_order`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.evaluate.benchmarks.cross.data import Pair
from xdesc_jax.evaluate.benchmarks.cross.plan import Case, Keypoints
from xdesc_jax.evaluate.benchmarks.cross.simulated import Condition
from xdesc_jax.evaluate.benchmarks.cross.stores import suffix_of
from xdesc_jax.matching import nearest
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.learned import LIGHTGLUE, LearnedMatcher, Photo
from xdesc_jax.matching.routes import Rows
from xdesc_jax.translation.ratios import DEFAULT
from xdesc_jax.translation.translator import Translator

Place = tuple[Condition, Keypoints, str]  # of a feature file; the last is its descriptor
PairMatcher = Callable[[Pair], np.ndarray]


def known_place(case: Case) -> Place:
    """Where the features of a case's map are: its photos are always as they are."""
    return "plain", case.keypoints, case.known


def device_place(case: Case) -> Place:
    """Where the features of a case's device are."""
    return case.condition, case.keypoints, case.device


def shared_order(cases: Iterable[Case]) -> list[Case]:
    """Cases so that those lie together for which a map's rows go to one descriptor."""
    return sorted(cases, key=lambda case: (case.keypoints, case.known, case.device, case.way))


def target_of(case: Case, translator: Translator, held: DescriptorSpec) -> DescriptorSpec:
    """What a case compares rows in.

    Args:
        case: which.
        translator: of all ways but those that take rows as they are.
        held: what the device's file holds.
    """
    if case.way == "joint":
        assert translator.embedding_spec is not None
        return translator.embedding_spec
    if case.way in ("native", "naive") or case.known == case.device:
        return held
    return translator.spec(case.device)


class SceneMatching:
    """Matches of the pairs of one scene.

    Args:
        pairs: of the scene.
        files: the features of maps and devices, open.
        translator: of all ways but 'native' and 'naive'.
        network: matches in cases of 'lightglue'; None where there are none.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        files: Mapping[Place, FeatureSet],
        translator: Translator,
        network: LearnedMatcher | None = None,
    ):
        self._pairs, self._files, self._translator, self._network = pairs, files, translator, network
        self._kept: dict[tuple[Place, DescriptorSpec], dict[str, np.ndarray]] = {}
        # Of what is kept, what goes with the next translation.
        self._translated: tuple[Place, DescriptorSpec] | None = None

    def matcher(self, case: Case) -> PairMatcher:
        """What matches the pairs of a case, int [M, 2] each; its rows are there when this returns, so that threads may
        match at once."""
        known, device, suffix = known_place(case), device_place(case), suffix_of(case.condition)
        target = target_of(case, self._translator, self._spec(device))
        naive = case.way == "naive"
        first = self._rows(known, self._spec(known) if naive else target)
        second = self._rows(device, target)
        if case.way == LIGHTGLUE:
            assert self._network is not None
            return self._by_network(self._network, known, device, first, second, suffix, target)
        ratio = DEFAULT
        if case.way in ("translated", "joint"):
            ratio = self._translator.ratio(case.known, case.device, joint=case.way == "joint") or DEFAULT

        def matched(pair: Pair) -> np.ndarray:
            a, b = first[pair.known], second[pair.device + suffix]
            return nearest.match(a, b, binary=target.binary, ratio=ratio).indices

        return matched

    def _by_network(
        self, network: LearnedMatcher, known: Place, device: Place, first: Mapping[str, np.ndarray],
        second: Mapping[str, np.ndarray], suffix: str, target: DescriptorSpec,
    ) -> PairMatcher:  # fmt: skip
        def photo(place: Place, rows: Mapping[str, np.ndarray], name: str) -> Photo:
            features = self._files[place]
            where = f"{features.path(name)}: {name!r}"
            return Photo(rows[name], features.keypoints(name), features.image_size(name), where)

        def matched(pair: Pair) -> np.ndarray:
            sides = photo(known, first, pair.known), photo(device, second, pair.device + suffix)
            return network.match(*sides, target)[0]

        return matched

    def _spec(self, place: Place) -> DescriptorSpec:
        """What a file holds."""
        held = self._files[place].held(self._names(place)[0])
        assert held is not None  # extracted files say it
        return held.spec

    def _names(self, place: Place) -> list[str]:
        """The photos that a file has of the pairs."""
        suffix = suffix_of(place[0])
        names = [pair.device + suffix for pair in self._pairs]
        names += [] if suffix else [pair.known for pair in self._pairs]
        return list(dict.fromkeys(names))

    def _rows(self, place: Place, target: DescriptorSpec) -> dict[str, np.ndarray]:
        """Rows of a file's photos in `target`, by name; translated ones are the map's alone."""
        at = (place, target)
        if at in self._kept:
            return self._kept[at]
        names = self._names(place)
        if not target.is_embedding and target.name != place[2]:
            names = list(dict.fromkeys(pair.known for pair in self._pairs))
            if self._translated is not None:
                del self._kept[self._translated]
            self._translated = at
        rows = Rows(self._files[place], self._translator, kept_bytes=0)
        self._kept[at] = {name: rows(name, target) for name in names}
        return self._kept[at]
