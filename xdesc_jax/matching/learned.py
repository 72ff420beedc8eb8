"""Matching by a network: LightGlue on rows of ALIKED and DISK, native or translated to them.

In: the descriptors that rows are in, weight files, and rows of two photos; or the plan of what is matched, and their
features. Out: matches, as `nearest` gives them but for the scores, which are the network's. All that can be wrong with
features and weights is told before any work; the network computes in a process of its own (`features.extractors`), so
nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec, get_spec
from xdesc_jax.features.extractors.matchers import Matchers
from xdesc_jax.features.extractors.process import require_kornia
from xdesc_jax.features.extractors.protocol import Network, Side
from xdesc_jax.features.official import released_file
from xdesc_jax.files.whole import content_hash
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.match_plan import MatchPlan, named
from xdesc_jax.matching.parts import PairMatches
from xdesc_jax.matching.routes import Route, Rows

LIGHTGLUE = "lightglue"
PAIRS_A_PART = 20  # about a minute of work on a CPU, which is what a killed run loses
NO_RATIO = f"none: {LIGHTGLUE} decides"
_CLASS = "xdesc_jax.features.extractors.lightglue:LightGlue"
_WEIGHTS = dict.fromkeys(("aliked-n16rot", "aliked-n16", "aliked-n32"), "lightglue-aliked")
_WEIGHTS["disk"] = "lightglue-disk"
_BORDER_PX = 1.0  # how far outside of their photo keypoints may lie by rounding, or by another origin


class Photo(NamedTuple):
    """A photo's rows as a matcher takes them; those that are zero never match.

    Attributes:
        rows: [N, D] float32 canonical.
        xy: [N, 2] px, origin at the centre of the first pixel.
        size: (width, height) in px.
        where: its file and name, for error messages.
    """

    rows: np.ndarray
    xy: np.ndarray
    size: tuple[int, int]
    where: str


class LearnedMatcher:
    """LightGlue for rows of some descriptors; use as a context manager, which ends its process. Threads may share it.

    Args:
        targets: the descriptors that rows are in, or are translated to.
        weights: files given by the user, by the names of `xdesc weights install`; installed ones without.
        device: 'auto' (CUDA where there is some), 'cpu' or 'cuda'.
        min_score: matches of a lower score are none; the network itself gives those above 0.1.

    Raises:
        FileNotFoundError: no such weight file.
        ValueError: rows of other descriptors than ALIKED or DISK, weights that are not installed or not wanted, torch
            or kornia missing.
    """

    def __init__(
        self, targets: Iterable[DescriptorSpec], weights: Mapping[str, Path], device: str, min_score: float = 0.0
    ):
        require_kornia(f"--matcher {LIGHTGLUE}")
        self._of = {target.name: _weights_for(target) for target in targets}
        needed = sorted(set(self._of.values()))
        if unwanted := sorted(set(weights) - set(needed)):
            raise ValueError(f"--weights {unwanted[0]}: is not needed here, only {', '.join(needed)}")
        self._files = {
            name: _existing(Path(weights[name])) if name in weights else released_file(name, repr(name))
            for name in needed
        }
        self._process = Matchers({name: Network(_CLASS, str(file)) for name, file in self._files.items()}, device)
        self._min_score, self._turn = min_score, threading.Lock()  # one process computes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        self._process.__exit__(kind)

    def config(self) -> dict[str, str | float]:
        """What matches depend on: content hashes of the weights, and the lowest score where one is asked for."""
        config: dict[str, str | float] = {name: content_hash(file) for name, file in self._files.items()}
        return config | ({"min_score": self._min_score} if self._min_score else {})

    def start(self) -> None:
        """Starts the process, which the first pair does otherwise.

        Raises:
            ValueError: CUDA was demanded and is not there; weights of another network; kornia is too old.
            OSError: the process ended.
        """
        with self._turn:
            self._process.start()

    def match(self, first: Photo, second: Photo, target: DescriptorSpec) -> tuple[np.ndarray, np.ndarray]:
        """The matches of two photos.

        Args:
            first, second: their rows in `target`.
            target: one of those that this was made for.

        Returns:
            Rows of both, int32 [M, 2], ascending in the first, and the network's scores, float32 [M].

        Raises:
            ValueError: keypoints outside of their photo, a photo of no size, or what the process refuses.
            OSError: the process ended, or the network failed.
        """
        (usable0, side0), (usable1, side1) = _side(first), _side(second)
        if not (len(usable0) and len(usable1)):
            return np.zeros((0, 2), np.int32), np.zeros(0, np.float32)
        with self._turn:
            where = f"{first.where} and {second.where}"
            found, scores = self._process.match(self._of[target.name], side0, side1, where)
        sure = scores >= np.float32(self._min_score)
        return np.stack([usable0[found[sure, 0]], usable1[found[sure, 1]]], axis=1), scores[sure]


class LearnedMatching(LearnedMatcher):
    """LightGlue for a plan.

    Args:
        plan: what is matched; its routes lose their ratios.
        first, second: features of the first and of the second photos.
        weights, device, min_score: as for `LearnedMatcher`.

    Attributes:
        plan: without ratios.

    Raises:
        FileNotFoundError, ValueError: as `LearnedMatcher`, and of photos of no size.
    """

    def __init__(
        self, plan: MatchPlan, first: FeatureSet, second: FeatureSet, weights: Mapping[str, Path], device: str,
        min_score: float = 0.0,
    ):  # fmt: skip
        super().__init__([route.target for route in plan.routes], weights, device, min_score)
        for features, names in zip((first, second), named(plan.pairs), strict=True):
            check_sizes(features, names)
        self.plan = dataclasses.replace(plan, routes=[without_ratio(route) for route in plan.routes])

    def match_pair(self, rows0: Rows, rows1: Rows, a: str, b: str, route: Route) -> PairMatches:
        """`match` of two photos of the plan, by their names and route."""
        first, second = _photo(rows0, a, route.target), _photo(rows1, b, route.target)
        return PairMatches(a, b, len(first.rows), *self.match(first, second, route.target))


def without_ratio(route: Route) -> Route:
    """A route as a matcher takes it that decides without ratios."""
    return dataclasses.replace(route, ratio=None, why=NO_RATIO)


def matchable(descriptor: str) -> bool:
    """Whether there are weights that match rows of a descriptor."""
    return descriptor in _WEIGHTS


def _weights_for(target: DescriptorSpec) -> str:
    """The weights that match rows of a descriptor."""
    if target.name in _WEIGHTS and (target.width, target.kind) == (get_spec(target.name).width, "real"):
        return _WEIGHTS[target.name]
    held = "rows of the joint space" if target.is_embedding else f"{target.name!r} ({target.kind}, {target.width})"
    raise ValueError(
        f"--matcher {LIGHTGLUE}: matches rows of {', '.join(_WEIGHTS)}, not {held}; translate to one of them: --mode "
        "directional --target NAME"
    )


def _existing(file: Path) -> Path:
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such weight file")
    return file


def check_sizes(features: FeatureSet, names: Iterable[str]) -> None:
    """Raises ValueError where the features do not say the size of one of these photos."""
    for name in names:
        if min(features.image_size(name)) < 1:
            raise ValueError(
                f"{features.path(name)}: does not say the size of {name!r}, which --matcher {LIGHTGLUE} needs: "
                "`image_size` of a feature file, or the camera of a database"
            )


def _photo(rows: Rows, name: str, target: DescriptorSpec) -> Photo:
    features = rows.features
    where = f"{features.path(name)}: {name!r}"
    return Photo(rows(name, target), features.keypoints(name), features.image_size(name), where)


def _side(photo: Photo) -> tuple[np.ndarray, Side]:
    """Which of a photo's keypoints have rows that may match, and these with their rows."""
    usable = np.flatnonzero(photo.rows.any(axis=1))
    xy, size = photo.xy[usable], photo.size
    outside = ~((xy >= -_BORDER_PX) & (xy <= np.array(size) + _BORDER_PX)).all(axis=1)
    if outside.any():
        at = int(np.argmax(outside))
        raise ValueError(
            f"{photo.where}: keypoint {usable[at]} lies at {xy[at].tolist()}, outside of its photo of {size[0]} x "
            f"{size[1]} px"
        )
    inside = np.clip(xy, 0, np.array(size)).astype(np.float32)
    return usable, Side(inside, photo.rows[usable], size)
