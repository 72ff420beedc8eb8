"""What an exported file takes of a photo, where its encoder looks at the photo's other rows.

In: all rows of a photo, with frames and positions of their keypoints. Out: the inputs of an ONNX or StableHLO file by
name (see `translation_graph`), each row with its neighbours gathered beside it. Imports numpy; neighbours are found by
scipy.
"""

from __future__ import annotations

import numpy as np

from xdesc_jax.networks import frames as frame_form
from xdesc_jax.networks import neighbours
from xdesc_jax.translation.surroundings import check_positions

NO_FRAME = np.array([1, 0], np.float32)  # of a neighbour that is not there


def photo_inputs(
    x: np.ndarray, frames: np.ndarray | None, positions: np.ndarray, nearest: int, larger: int
) -> dict[str, np.ndarray]:
    """The inputs of a file with context, of all rows of one photo; any part of the N may then be run by itself.

    Args:
        x: [N, D] canonical rows, bool for binary descriptors; N may be 0. Zero rows are nobody's neighbours.
        frames: [N, 2] of their keypoints, sigma px and orientation in radians from x towards y; None for a file whose
            encoder takes none (it has no input `neighbour_frames`).
        positions: [N, 2] of their keypoints, px.
        nearest, larger: how many neighbours the file takes: `context` in the JSON beside it and in its metadata.

    Returns:
        In the file's order, with K = nearest + larger: `source` [N, D], `frames` [N, 2], `neighbours` [N, K, D] (bool
        as `x` is, else float32), `neighbour_frames` [N, K, 2], `offsets` [N, K, 2] px, float32, and `mask` [N, K] bool.
        Where there is no neighbour, the row is zero, its sigma 1, and its offset 0. Without `frames` those of frames
        are left out.

    Raises:
        ValueError: rows that are not [N, D], or frames or positions that do not fit (see `frames.check` and
            `surroundings.check_positions`).
    """
    x = np.asarray(x)
    if x.ndim != 2:
        raise ValueError(f"rows have shape {x.shape}, expected [N, D]: all rows of one photo")
    x = x if x.dtype == np.bool_ else x.astype(np.float32, copy=False)
    positions = check_positions(positions, len(x))
    frames = None if frames is None else frame_form.check(frames, len(x))
    near = neighbours.find(positions, frames, nearest, larger, usable=np.asarray(x.any(axis=1)))
    mask = near != neighbours.NONE
    there = mask[:, :, None]
    rows = x[near] & there if x.dtype == np.bool_ else np.where(there, x[near], np.float32(0))
    offsets = np.where(there, positions[near] - positions[:, None], np.float32(0))
    if frames is None:
        return {"source": x, "neighbours": rows, "offsets": offsets, "mask": mask}
    other_frames = np.where(there, frames[near], NO_FRAME)
    own = {"source": x, "frames": frames}
    return own | {"neighbours": rows, "neighbour_frames": other_frames, "offsets": offsets, "mask": mask}
