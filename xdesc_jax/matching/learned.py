"""Matching by a network: LightGlue on rows of ALIKED and DISK, native or translated to them.

In: the plan of what is matched, features, weight files. Out: the matches of two photos, as `nearest` gives them but for
the scores, which are the network's. All that can be wrong with features and weights is told before any work; the
network computes in a process of its own (`features.extractors`), so nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

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


class LearnedMatching:
    """LightGlue for a plan; use as a context manager, which ends its process.

    Args:
        plan: what is matched; its routes lose their ratios.
        first, second: features of the first and of the second photos.
        weights: files given by the user, by the names of `xdesc weights install`; installed ones without.
        device: 'auto' (CUDA where there is some), 'cpu' or 'cuda'.

    Attributes:
        plan: without ratios.

    Raises:
        FileNotFoundError: no such weight file.
        ValueError: rows of other descriptors than ALIKED or DISK, photos of no size, weights that are not installed or
            not wanted, torch or kornia missing.
    """

    def __init__(
        self, plan: MatchPlan, first: FeatureSet, second: FeatureSet, weights: Mapping[str, Path], device: str
    ):
        require_kornia(f"--matcher {LIGHTGLUE}")
        self._of = {route.target.name: _weights_for(route.target) for route in plan.routes}
        needed = sorted(set(self._of.values()))
        if unwanted := sorted(set(weights) - set(needed)):
            raise ValueError(f"--weights {unwanted[0]}: is not needed here, only {', '.join(needed)}")
        self._files = {
            name: _existing(weights[name]) if name in weights else released_file(name, repr(name)) for name in needed
        }
        _check_sizes(plan, first, second)
        self.plan = dataclasses.replace(
            plan, routes=[dataclasses.replace(route, ratio=None, why=NO_RATIO) for route in plan.routes]
        )
        self._process = Matchers({name: Network(_CLASS, str(file)) for name, file in self._files.items()}, device)

    def __enter__(self) -> LearnedMatching:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        self._process.__exit__(kind)

    def config(self) -> dict[str, str]:
        """What matches depend on besides the plan: content hashes of the weights."""
        return {name: content_hash(file) for name, file in self._files.items()}

    def match(self, rows0: Rows, rows1: Rows, a: str, b: str, route: Route) -> PairMatches:
        """The matches of two photos.

        Args:
            rows0, rows1: rows of the first and of the second photos.
            a, b: the photos.
            route: the descriptor that both are in, or are translated to.

        Raises:
            ValueError: keypoints outside of their photo.
            OSError: the process ended, or the network failed.
        """
        count, usable0, first = _side(rows0, a, route.target)
        _, usable1, second = _side(rows1, b, route.target)
        indices, scores = np.zeros((0, 2), np.int32), np.zeros(0, np.float32)
        if len(usable0) and len(usable1):
            where = f"{rows0.features.path(a)}: {a!r} and {rows1.features.path(b)}: {b!r}"
            found, scores = self._process.match(self._of[route.target.name], first, second, where)
            indices = np.stack([usable0[found[:, 0]], usable1[found[:, 1]]], axis=1)
        return PairMatches(a, b, count, indices, scores)


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


def _check_sizes(plan: MatchPlan, *sides: FeatureSet) -> None:
    for features, names in zip(sides, named(plan.pairs), strict=True):
        for name in names:
            if min(features.image_size(name)) < 1:
                raise ValueError(
                    f"{features.path(name)}: does not say the size of {name!r}, which --matcher {LIGHTGLUE} needs: "
                    "`image_size` of a feature file, or the camera of a database"
                )


def _side(rows: Rows, name: str, target: DescriptorSpec) -> tuple[int, np.ndarray, Side]:
    """How many keypoints a photo has, which of them have rows that may match, and these with their rows."""
    features, values = rows.features, rows(name, target)
    usable = np.flatnonzero(values.any(axis=1))
    xy, size = features.keypoints(name)[usable], features.image_size(name)
    outside = ~((xy >= -_BORDER_PX) & (xy <= np.array(size) + _BORDER_PX)).all(axis=1)
    if outside.any():
        at = int(np.argmax(outside))
        raise ValueError(
            f"{features.path(name)}: keypoint {usable[at]} of {name!r} lies at {xy[at].tolist()}, outside of its photo "
            f"of {size[0]} x {size[1]} px"
        )
    inside = np.clip(xy, 0, np.array(size)).astype(np.float32)
    return len(values), usable, Side(inside, values[usable], size)
