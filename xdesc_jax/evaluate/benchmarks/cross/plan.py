"""The rows of the benchmark across descriptors.

In: descriptors, a translator, conditions and ways of matching. Out: the cases that they allow, in a fixed order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from xdesc_jax.descriptors import DescriptorSpec, get_spec
from xdesc_jax.evaluate.benchmarks.cross.simulated import Condition
from xdesc_jax.evaluate.benchmarks.feature_rows import of_network
from xdesc_jax.matching.learned import matchable
from xdesc_jax.networks.frames import IMAGE, KEYPOINT
from xdesc_jax.translation.translator import Translator

Keypoints = Literal["own", "shared"]
OWN: Keypoints = "own"
SAME: Keypoints = "shared"
Way = Literal["native", "translated", "joint", "naive", "lightglue"]
_SIGNS = {"translated": "->", "joint": "|", "naive": "with", "lightglue": "-> lightglue:"}


@dataclasses.dataclass(frozen=True)
class Case:
    """One row: a map of `known`, a device that sends `device`.

    Attributes:
        known, device: descriptors.
        way: 'native' (one descriptor), 'translated' (the map to the device's), 'joint' (both embedded), 'naive' (rows
            as they are), 'lightglue' (the network, on the map's rows translated to the device's, or native).
        keypoints: each side's own detector, or the map's for both.
        condition: of the device's photos.
    """

    known: str
    device: str
    way: Way
    keypoints: Keypoints
    condition: Condition

    @property
    def label(self) -> str:
        """As tables name it."""
        of = self.known if self.way == "native" else f"{self.known} {_SIGNS[self.way]} {self.device}"
        return f"{of}, {under(self.keypoints, self.condition)}"


def under(keypoints: str, condition: str) -> str:
    """Whose keypoints, and the condition where it is simulated, as tables name them."""
    return f"{keypoints} keypoints{'' if condition == 'plain' else f', simulated {condition}'}"


def ways(asked: Sequence[Way], translator: Translator, names: Sequence[str]) -> tuple[Way, ...]:
    """Those that can be gone with a model: one of pair networks has no joint space.

    Raises:
        ValueError: 'lightglue' without ALIKED or DISK among the descriptors.
    """
    if "lightglue" in asked and not any(matchable(name) for name in names):
        raise ValueError(f"lightglue matches rows of ALIKED and DISK, found {', '.join(names)}")
    return tuple(way for way in dict.fromkeys(asked) if way != "joint" or translator.space_id is not None)


def cases(
    names: Sequence[str], maps: Sequence[str], conditions: Sequence[Condition], asked: Sequence[Way],
    translator: Translator,
) -> list[Case]:  # fmt: skip
    """All rows that the model and the detectors allow.

    Native rows of all descriptors are always among them, for figures are given as shares of theirs. Keypoints are
    shared where one side is a network's, which otherwise finds its own; positions alone serve no descriptor of frame
    'keypoint'.

    Raises:
        ValueError: a map of a descriptor that is not among `names`.
    """
    if missing := [name for name in maps if name not in names]:
        raise ValueError(f"--maps names {missing[0]!r}, which is not among the descriptors {', '.join(names)}")
    found = []
    for condition in dict.fromkeys(("plain", *conditions)):
        kinds = (OWN, SAME) if condition == "plain" and any(of_network(n) for n in names) else (OWN,)
        for keypoints in kinds:
            found += [Case(name, name, "native", keypoints, condition) for name in names]
            for known in maps:
                for device in names:
                    if keypoints == SAME and not (of_network(known) or of_network(device)):
                        continue
                    allowed = [
                        way for way in asked if way != "native" and _fits(way, known, device, keypoints, translator)
                    ]
                    found += [Case(known, device, way, keypoints, condition) for way in allowed]
    return found


def _fits(way: Way, known: str, device: str, keypoints: Keypoints, translator: Translator) -> bool:
    if way == "lightglue":
        translated = known == device or translator.gives(known, device)
        return matchable(device) and translated and not _lacks_frames(known, device, keypoints, translator)
    if known == device:
        return False
    if way == "naive":
        a, b = (spec_of(name, translator) for name in (known, device))
        return (a.width, a.binary) == (b.width, b.binary)
    if not {known, device} <= set(translator.names):
        return False
    if way == "joint":
        return True
    return translator.gives(known, device) and not _lacks_frames(known, device, keypoints, translator)


def _lacks_frames(known: str, device: str, keypoints: Keypoints, translator: Translator) -> bool:
    """Whether rows of frame 'keypoint' would have to be made at positions that have none."""
    upright = spec_of(known, translator).frame == IMAGE and spec_of(device, translator).frame == KEYPOINT
    return upright and keypoints == OWN and of_network(known)


def spec_of(name: str, translator: Translator) -> DescriptorSpec:
    """What a descriptor is: as the model says, or, where it has none of the name, as it is registered."""
    return translator.spec(name) if name in translator.names else get_spec(name)
