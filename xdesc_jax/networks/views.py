"""Views: a photo's keypoints as another roll or zoom of the camera would have shown them.

In: frames and positions of a photo's keypoints, and a view. Out: those of the photo turned and scaled. A row that turns
with its keypoint (frame 'keypoint') is the same at every roll and zoom, so together with what a view makes of its frame
and of its neighbours' positions it stands for what an upright network would have seen there. Rows of frame 'image' are
of the photo as it lay. Where a photo's pose tells how it was held, a view may be of the photo turned upright first.
Imports numpy alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.networks.frames import IMAGE, KEYPOINT

VIEW = "view"  # attribute of files whose rows are of another view than the photos as they lie: its name
SCALES = (0.01, 100.0)  # beyond, sigmas and positions leave what networks take
GRAVITY = "gravity"
_EXPECTED = "expected roll=DEG,... and scale=FACTOR,..., and 'gravity'"


@dataclasses.dataclass(frozen=True)
class View:
    """A photo, turned and scaled.

    Attributes:
        roll_deg: how far the photo is turned, clockwise as one sees it, degrees; kept in 0 to 360.
        scale: its size against what it was.
        upright: whether it is first turned so that what was below in the world is below in it.

    Raises:
        ValueError: a roll that is not finite, or a scale outside `SCALES`.
    """

    roll_deg: float = 0.0
    scale: float = 1.0
    upright: bool = False

    def __post_init__(self) -> None:
        if not math.isfinite(self.roll_deg):
            raise ValueError(f"roll is {self.roll_deg}, expected degrees")
        if not SCALES[0] <= self.scale <= SCALES[1]:
            raise ValueError(f"scale is {self.scale:g}, expected a factor of {SCALES[0]:g} to {SCALES[1]:g}")
        object.__setattr__(self, "roll_deg", float(self.roll_deg) % 360 % 360)  # of -1e-20, the first leaves 360
        object.__setattr__(self, "scale", float(self.scale))

    @property
    def name(self) -> str:
        """For files and results, as 'roll090-scale1.0'; another view has another one."""
        whole, point, rest = repr(self.roll_deg).removesuffix(".0").partition(".")
        return f"{'upright-' * self.upright}roll{whole.zfill(3)}{point}{rest}-scale{self.scale!r}"

    def of(self, upright_deg: float) -> View:
        """The view of a photo that a turn of `upright_deg`, clockwise, sets upright: what `seen` takes."""
        return View(self.roll_deg + upright_deg, self.scale) if self.upright else self


AS_IT_LIES = View()


def parse(words: Sequence[str]) -> tuple[View, ...]:
    """Views from the words of a command line.

    Args:
        words: 'roll=0,90' and 'scale=0.5,1', one of them or both; without a roll it is 0, without a scale 1. With
            'gravity', of photos that were turned upright first.

    Returns:
        All combinations, each roll at every scale, in the order in which they are named; none of no words.

    Raises:
        ValueError: another word, a word or a value that comes twice, or what is no number or out of range.
    """
    given: dict[str, list[float]] = {}
    upright = GRAVITY in words
    if words.count(GRAVITY) > 1:
        raise ValueError(f"--views {' '.join(words)}: {GRAVITY!r} is given twice")
    for word in words:
        if word == GRAVITY:
            continue
        name, _, values = word.partition("=")
        if name not in ("roll", "scale"):
            raise ValueError(f"--views {word}: unknown word {name!r}, {_EXPECTED}")
        if name in given:
            raise ValueError(f"--views {word}: {name!r} is given twice; name all its values behind one '='")
        given[name] = [_number(word, value) for value in values.split(",")]
    found: list[View] = []
    for roll in given.get("roll", [AS_IT_LIES.roll_deg]):
        for scale in given.get("scale", [AS_IT_LIES.scale]):
            try:
                view = View(roll, scale, upright)
            except ValueError as error:
                raise ValueError(f"--views {' '.join(words)}: {error}") from error
            if view in found:
                raise ValueError(f"--views {' '.join(words)}: roll {roll:g} and scale {scale:g} come twice")
            found.append(view)
    return tuple(found) if words else ()


def _number(word: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"--views {word}: {text!r} is no number, {_EXPECTED}") from error


def renders(source: DescriptorSpec, target: DescriptorSpec, takes_frames: bool) -> bool:
    """Whether views of a photo give other rows: those of `source` turn with their keypoint, those of `target` do not.

    Args:
        source: what the photo's rows are.
        target: what they become, a descriptor or the joint space.
        takes_frames: whether the networks from one to the other are told the frames of keypoints in the photo.
    """
    turns = source.frame == KEYPOINT and not source.is_embedding
    return turns and takes_frames and (target.is_embedding or target.frame == IMAGE)


def seen(frames: np.ndarray, positions: np.ndarray | None, view: View) -> tuple[np.ndarray, np.ndarray | None]:
    """The keypoints of a photo as a view shows them.

    Args:
        frames: [N, 2], sigma px and orientation in radians from x towards y, y pointing down.
        positions: [N, 2] px; None where they are of no matter.
        view: how the photo is turned and scaled; one of the photo upright by way of `View.of`.

    Returns:
        Frames float32 [N, 2], orientations in -pi to pi; and positions float32 [N, 2], from the photo's first pixel,
        which stays where it is: a photo so rendered would have them shifted by one offset, which no network looks at.
        A view that neither turns nor scales gives back what came in.

    Raises:
        ValueError: a view of the photo upright, of which nothing here tells how it was held.
    """
    if view.upright:
        raise ValueError(f"view {view.name}: nothing tells how the photo was held")
    if view == AS_IT_LIES:
        return frames, positions
    turn = math.radians(view.roll_deg)
    orientation = frames[:, 1].astype(np.float64) + turn
    wrapped = np.remainder(orientation + np.pi, 2 * np.pi) - np.pi
    turned = np.stack([frames[:, 0] * view.scale, wrapped], axis=1).astype(np.float32)
    if positions is None:
        return turned, None
    rotation = np.array([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
    return turned, (view.scale * (positions.astype(np.float64) @ rotation.T)).astype(np.float32)
