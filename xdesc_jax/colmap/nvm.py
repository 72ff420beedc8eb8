"""Poses from VisualSFM's models (.nvm), as benchmarks give them.

In: a file of version NVM_V3. Out: the pose of each photo of its first model; its points and focal lengths are left
unread. Imports numpy alone.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.camera_models import number
from xdesc_jax.colmap.model import Pose
from xdesc_jax.files.text_list import BLANKS, numbered_lines, words_of

HEAD = "NVM_V3"
_FIELDS = 10  # behind a name: focal length, quaternion, position, distortion, 0


def read_nvm(path: Path) -> dict[str, Pose]:
    """Photo -> pose, world to camera.

    A line is `name focal qw qx qy qz cx cy cz distortion 0`; the quaternion turns the world to the camera, and c is the
    camera's position. Names may hold blanks.

    Args:
        path: the model.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not such a model, fewer photos than it says, a photo twice, or a line that is not as expected.
    """
    lines = numbered_lines(path, "NVM model")
    _, head = next(lines, (0, ""))
    if not head.strip(BLANKS).startswith(HEAD):
        raise ValueError(f"{path}: begins with {head[:40]!r}, expected {HEAD}")
    place, count = next(lines, (0, ""))
    if not count.strip(BLANKS).isdigit():
        raise ValueError(f"{path}:{place}: expected the number of photos: {count[:40]!r}")
    poses: dict[str, Pose] = {}
    for _ in range(int(count)):
        place, line = next(lines, (0, ""))
        if not place:
            raise ValueError(f"{path}: ends after {len(poses)} photos, of {int(count)}")
        words = words_of(line)
        values = [number(word) for _, word in words[-_FIELDS:]]
        if len(words) <= _FIELDS or not all(map(math.isfinite, values)) or not any(values[1:5]):
            raise ValueError(
                f"{path}:{place}: expected 'name focal qw qx qy qz cx cy cz distortion 0', quaternion not zero: "
                f"{line[:120]!r}"
            )
        name = line[: words[-_FIELDS][0]].strip(BLANKS)
        if name in poses:
            raise ValueError(f"{path}:{place}: {name!r} is listed twice")
        turned = Pose.from_quaternion(np.array(values[1:5]), np.zeros(3))
        poses[name] = Pose(turned.rotation, -turned.rotation @ np.array(values[5:8]))
    return poses


def count_nvm(path: Path) -> int:
    """How many photos the first model of a file says it has; ValueError where it is no such file."""
    lines = numbered_lines(path, "NVM model")
    (_, head), (_, count) = next(lines, (0, "")), next(lines, (0, ""))
    if not head.strip(BLANKS).startswith(HEAD) or not count.strip(BLANKS).isdigit():
        raise ValueError(f"{path}: begins with {head[:40]!r}, {count[:40]!r}, expected {HEAD} and the number of photos")
    return int(count)
