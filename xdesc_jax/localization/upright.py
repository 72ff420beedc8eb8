"""How photos were held: the turn that sets each upright, of a map's from their poses, of queries' from their EXIF.

In: rotations of a model's cameras; files of queries. Out: a turn for each photo, by which what was below in the world
is below in it, as views of the map want it (`networks.views`). No pose says where down is, but people hold cameras so
that one side of the photo is level: the direction to which one side of each is most nearly square is taken for down.
A query's pose is what is sought, but its EXIF says by how many quarters it lies turned. Needs numpy alone, and Pillow
where EXIF is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.model import Model
from xdesc_jax.features.images import read_exif

STARTS = 64  # cameras from whose lower sides the search begins
ROUNDS = 10
LEVEL = 0.1  # what the tilt of an optical axis counts for against the roll of a photo
LARGEST_ROLL_DEG = 15.0  # root mean square of how far sides are from level
STEEP = 0.2  # of gravity, the share within the photo's plane below which its roll means nothing: some 12 deg from nadir

_ORIENTATION = 0x0112  # EXIF's tag; of its values those without a mirror, and what sets the photo upright
_QUARTERS_DEG = {3: 180.0, 6: 90.0, 8: -90.0}


def upright_turns(model: Model) -> dict[str, float]:
    """The turn of each photo that sets it upright.

    Args:
        model: poses of the photos.

    Returns:
        Photo -> degrees, clockwise as one sees it, from -180 to 180; 0 of photos that look straight up or down.

    Raises:
        ValueError: photos that were held in too many ways to tell where down is.
    """
    in_photo = model.rotations @ down(model.rotations)  # [V, 3], x right, y down
    turns = np.degrees(np.pi / 2 - np.arctan2(in_photo[:, 1], in_photo[:, 0]))
    turns = np.where(np.hypot(in_photo[:, 0], in_photo[:, 1]) < STEEP, 0.0, (turns + 180) % 360 - 180)
    return dict(zip(model.names, turns.tolist(), strict=True))


def down(rotations: np.ndarray) -> np.ndarray:
    """The direction of gravity in the world, a unit vector [3].

    Of each photo one of four sides is the lower one, whatever its roll. The side beside it should be level, and, less
    surely, the optical axis. From each of some cameras' lower sides on, sides are chosen and the direction fitted in
    turn; of all, the direction is taken whose sides are nearest to level, and of equal ones that by which most photos
    lie upright.

    Args:
        rotations: [V, 3, 3] from the world into the cameras, x right and y down.

    Raises:
        ValueError: sides of the photos are far from level in whatever direction.
    """
    x, y, z = (rotations[:, axis] for axis in range(3))  # axes of the cameras in the world, [V, 3] each
    best, least = y[0], (np.inf, 0.0)
    for start in y[np.linspace(0, len(y) - 1, min(len(y), STARTS)).astype(int)]:
        direction = start
        for _ in range(ROUNDS):
            lying = np.abs(y @ direction) >= np.abs(x @ direction)
            beside, below = np.where(lying[:, None], (x, y), (y, x))
            _, axes = np.linalg.eigh(beside.T @ beside + LEVEL * z.T @ z)
            found = axes[:, 0] * (1.0 if axes[:, 0] @ direction >= 0 else -1.0)
            if np.allclose(found, direction, atol=1e-9):
                break
            direction = found
        sideways, downwards = beside @ direction, np.abs(below @ direction)
        rolls = np.degrees(np.arctan2(sideways, downwards))[np.hypot(sideways, downwards) >= STEEP]
        cost = (round(float(np.sqrt((rolls**2).sum() / max(len(rolls), 1))), 1), -float((y @ direction).mean()))
        if cost < least:
            best, least = direction, cost
    if least[0] > LARGEST_ROLL_DEG:
        raise ValueError(
            f"--views gravity: the {len(y)} photos were held in too many ways to tell where down is: their sides are "
            f"{least[0]:.0f} deg from level (root mean square), expected at most {LARGEST_ROLL_DEG:g}"
        )
    return np.asarray(best)


def turns_of_queries(photos: Path, sizes: Mapping[str, tuple[int, int]]) -> dict[str, float]:
    """The turn that sets each query upright, by the orientation in its EXIF, which readers of features do not apply.

    Args:
        photos: folder of the queries' photos.
        sizes: query -> (width, height) px of the photo as its features have it; (0, 0) where they do not say. One that
            is upright there, where the file's photo lies on a side, was turned before.

    Returns:
        Query -> degrees, clockwise: 0, 90, 180 or -90; 0 where there is no file, or it does not say.
    """
    return {name: _exif_turn(photos / name, size) for name, size in sizes.items()}


def _exif_turn(path: Path, size: tuple[int, int]) -> float:
    tags, (width, height) = read_exif(path)
    turn = _QUARTERS_DEG.get(tags.get(_ORIENTATION, 1), 0.0)
    turned_before = abs(turn) == 90 and (size[0] - size[1]) * (width - height) < 0
    return 0.0 if turned_before else turn
