"""Rows with their neighbours: what a batch holds where encoders look at the photo's other rows.

In: columns of whole photos, and numbers of rows. Out: the columns of these rows, and of their neighbours in the photo,
'neighbours/<column>' [B, K, ...]. Numpy arrays or jax's; imports neither tensorflow nor jax.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from xdesc_jax.data.schema import KEYPOINT, MASK, NEIGHBOURS, PHOTO
from xdesc_jax.networks import neighbours

AROUND_MASK, AROUND_KEYPOINT = f"{NEIGHBOURS}/{MASK}", f"{NEIGHBOURS}/{KEYPOINT}"


class Neighbourhood(NamedTuple):
    """Whose neighbours' rows a batch holds, how many, and what finds them; see `networks.neighbours.find_by_photo`."""

    descriptors: tuple[str, ...]
    nearest: int
    larger: int
    least_share: float = 1.0
    search: neighbours.Search = neighbours.by_tree


def column(name: str) -> str:
    """Name of the batch's column of the neighbours' rows of a descriptor."""
    return f"{NEIGHBOURS}/{name}"


def with_neighbours(
    columns: Mapping[str, np.ndarray], around: Neighbourhood, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Columns of whole photos, those of photo and keypoint among them, with the column `NEIGHBOURS`: numbers of each
    row's neighbours, int32 [rows, K]. Which keypoints are left where photos are thinned, `rng` draws."""
    keypoints = columns[KEYPOINT].copy()
    sigmas = keypoints[:, 2]
    # Without sigmas nothing is larger: whoever takes the batches tells what rows without frames lack.
    sigmas[~((sigmas > 0) & np.isfinite(sigmas))] = 1
    found = neighbours.find_by_photo(
        columns[PHOTO], keypoints, around.nearest, around.larger, around.least_share, rng, around.search
    )
    return {**columns, NEIGHBOURS: found}


def take(columns: Mapping[str, Any], rows: Any, around: Neighbourhood | None, xp: ModuleType = np) -> dict[str, Any]:
    """The columns of some rows [...], and of their neighbours.

    Args:
        columns: [rows, ...] each; with neighbours, `NEIGHBOURS` among them.
        rows: numbers of rows, of any shape.
        around: None for columns alone.
        xp: numpy, or jax.numpy.

    Returns:
        {column: [..., ...]}, 'neighbours/<descriptor>' and 'neighbours/keypoint' [..., K, ...], and 'neighbours/mask'
        [..., K] bool; what is not there repeats the first row.
    """
    found = {name: x[rows] for name, x in columns.items() if name != NEIGHBOURS}
    if around is None:
        return found
    near = columns[NEIGHBOURS][rows]
    there = near != neighbours.NONE
    near = xp.where(there, near, 0)
    return found | {AROUND_MASK: there} | {column(n): columns[n][near] for n in (*around.descriptors, KEYPOINT)}
