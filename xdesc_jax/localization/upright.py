"""How the photos of a map were held: the turn that sets each upright, from the poses of all.

In: rotations of a model's cameras. Out: a turn for each photo, by which what was below in the world is below in it, as
views of the map want it (`networks.views`). No pose says where down is, but people hold cameras so that one side of the
photo is level: the direction to which one side of each is most nearly square is taken for down. Imports numpy alone.
"""

from __future__ import annotations

import numpy as np

from xdesc_jax.colmap.model import Model

STARTS = 64  # cameras from whose lower sides the search begins
ROUNDS = 10
LEVEL = 0.1  # what the tilt of an optical axis counts for against the roll of a photo
LARGEST_ROLL_DEG = 15.0  # root mean square of how far sides are from level
STEEP = 0.2  # of gravity, the share within the photo's plane below which its roll means nothing: some 12 deg from nadir


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
