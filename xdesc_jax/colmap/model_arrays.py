"""The points and keypoints of a binary COLMAP model, as arrays.

In: the folder of a model whose files are whole. Out: what lies in `points3D.bin` and `images.bin`, many entries
at a time: millions of observations cost no object each. COLMAP's own reader says what the rest of a model is.
Imports numpy alone.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.model_files import COUNT_BYTES, entry_starts, mapped, name_end

NO_POINT = -1  # 2 ** 64 - 1 in the file

_POINT = np.dtype([("id", "<i8"), ("xyz", "<f8", 3)])
_KEYPOINT = np.dtype([("xy", "<f8", 2), ("point_id", "<i8")])


@dataclasses.dataclass(frozen=True)
class Keypoints:
    """The keypoints of a photo.

    Attributes:
        xy: [N, 2] px.
        point_id: [N] int64, COLMAP's own of the point that each observes; `NO_POINT` for none.
    """

    xy: np.ndarray
    point_id: np.ndarray

    def __len__(self) -> int:
        return len(self.xy)


def read_points(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Ids [P] int64, ascending, and positions [P, 3] of a model's points.

    Raises:
        ValueError: the file is cut short.
    """
    path = folder / "points3D.bin"
    with mapped(path) as data:
        starts = entry_starts(path, data)[:-1]
        if not len(starts):
            return np.zeros(0, np.int64), np.zeros((0, 3))
        # A view that begins at each byte, of which those are taken where a point begins.
        every = np.ndarray(len(data) - _POINT.itemsize + 1, _POINT, data, strides=(1,))
        points = every[starts]
        del every  # a file cannot be closed while something looks at it
    order = np.argsort(points["id"], kind="stable")
    return points["id"][order], points["xyz"][order]


def read_keypoints(folder: Path) -> dict[int, Keypoints]:
    """The keypoints of each photo of a model, by its id.

    Raises:
        ValueError: the file is cut short.
    """
    path, found = folder / "images.bin", {}
    with mapped(path) as data:
        for at in entry_starts(path, data)[:-1].tolist():
            first = name_end(data, at) + 1
            count = int.from_bytes(data[first : first + COUNT_BYTES], "little")
            rows = np.frombuffer(data, _KEYPOINT, count, first + COUNT_BYTES)
            found[int.from_bytes(data[at : at + 4], "little")] = Keypoints(rows["xy"].copy(), rows["point_id"].copy())
            del rows
    return found
