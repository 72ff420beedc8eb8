"""Which rows of a map's photos observe each of its points.

In: a sparse model and the photos of the map that was built of it. Out: `Tracks`, arrays over all observations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from xdesc_jax.colmap.model import Model
from xdesc_jax.localization.map import MapPhoto


@dataclasses.dataclass(frozen=True)
class Tracks:
    """T observations, one a photo and point; those of a point lie together.

    Attributes:
        start: [P + 1] int, where those of each point begin.
        view: [T] int, index into the model's names.
        keypoint: [T] int, row of the photo.
    """

    start: np.ndarray
    view: np.ndarray
    keypoint: np.ndarray

    @classmethod
    def of(cls, model: Model, photos: Mapping[str, MapPhoto]) -> Tracks:
        """Of the photos of a model that are in the map.

        Of several keypoints of a photo at one point, that with the smallest residual: with the same row twice, neither
        would pass a ratio test.

        Args:
            model: the sparse model.
            photos: by name; each has all keypoints that the model knows of it.
        """
        order = np.lexsort((model.residual_px, model.view, model.point))
        point, view, keypoint = model.point[order], model.view[order], model.keypoint[order]
        first = np.ones(len(order), bool)
        first[1:] = (np.diff(point) != 0) | (np.diff(view) != 0)
        kept = first & (gathered({n: photo.point for n, photo in photos.items()}, model.names, view, keypoint) == point)
        start = np.searchsorted(point[kept], np.arange(len(model.points) + 1))
        return cls(start, view[kept], keypoint[kept])

    def __len__(self) -> int:
        return len(self.view)

    def observing(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The observations of some points.

        Args:
            points: [S] int.

        Returns:
            For each observation, [O] int, the index into `points`, and the one into `view` and `keypoint`.
        """
        counts = self.start[points + 1] - self.start[points]
        which = np.repeat(np.arange(len(points)), counts)
        ends = np.cumsum(counts)
        return which, self.start[points][which] + np.arange(len(which)) - (ends - counts)[which]


def gathered(
    values: Mapping[str, np.ndarray], names: tuple[str, ...], view: np.ndarray, keypoint: np.ndarray
) -> np.ndarray:
    """The values of some rows of photos.

    Args:
        values: photo -> [N] int or bool; photos that lack have -1.
        names: the photos, in the order that `view` counts.
        view, keypoint: [T] int, photo and row.

    Returns:
        [T] int.
    """
    counts = np.array([len(values.get(name, ())) for name in names])
    found = np.full(len(view), -1)
    known = counts[view] > 0
    flat = np.concatenate([values[name] for name in names if name in values] or [np.zeros(0, int)])
    found[known] = flat[(np.cumsum(counts) - counts)[view[known]] + keypoint[known]]
    return found
