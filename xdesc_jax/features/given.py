"""Keypoints from a file instead of a detector.

In: a feature file, ours or hloc's of any descriptor, or a COLMAP database. Out: the keypoints of each photo,
from a database together with COLMAP's SIFT descriptors. The file is only read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from xdesc_jax.colmap.database import DatabaseReader, is_database
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.frames import has_frames
from xdesc_jax.features.keypoints import Keypoints, from_colmap, from_shapes, positions
from xdesc_jax.features.photo import GivenKeypoints, detectors
from xdesc_jax.features.store import FeatureStore

_SHOWN = 5


def is_keypoint_database(path: Path | str) -> bool:
    """Whether a keypoint file is a COLMAP database (True) or a feature file (False), by its first bytes.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is neither.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"{path}: no such file; keypoints are 'colmap', 'opencv', a network's own ({', '.join(detectors())}), or a "
            "file (.h5, COLMAP database)"
        )
    return is_database(path)


class KeypointFile:
    """Reads keypoints photo by photo; use as a context manager.

    Args:
        path: a feature file or a COLMAP database.
        colmap_sift: whether COLMAP's descriptors are read too.
        framed: whether keypoints without scales are refused; else they are read as positions alone.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is neither.
    """

    def __init__(self, path: Path | str, colmap_sift: bool = False, framed: bool = True):
        self.path = Path(path)
        self._colmap_sift, self._framed = colmap_sift, framed
        self._reader = DatabaseReader(path) if is_keypoint_database(path) else _open_store(path)
        with contextlib.ExitStack() as stack:
            stack.callback(self._reader.close)
            self._reader.require_photos()
            stack.pop_all()

    def __enter__(self) -> KeypointFile:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._reader.close()

    @property
    def names(self) -> list[str]:
        """Names of all photos, sorted."""
        return list(self._reader.names)

    def check_names(self, photos: Sequence[str]) -> list[str]:
        """Names of the file that are not among `photos`.

        Raises:
            ValueError: photos that the file does not hold, the first five by name.
        """
        names = set(self.names)
        if missing := [name for name in photos if name not in names]:
            raise ValueError(
                f"{self.path}: no keypoints for {len(missing)} of {len(photos)} photos, "
                f"first {missing[:_SHOWN]}; it holds {len(names)}, first {sorted(names)[:_SHOWN]}"
            )
        return sorted(names - set(photos))

    def read(self, name: str) -> GivenKeypoints:
        """The keypoints of one photo.

        Raises:
            KeyError: no such photo.
            ValueError: the file is damaged, lacks scales that are needed, or holds values that are no keypoints.
        """
        where = f"{self.path}: {name!r}"
        if isinstance(self._reader, FeatureStore):
            xy, frames = self._reader.keypoints(name), self._reader.frames(name)
            with self._reader.reading(name):
                points = with_frames(xy, frames, self._framed)
            return GivenKeypoints(points, self._reader.image_size(name), None, where)
        columns = self._reader.keypoints(name)
        with _located(where):
            points = from_colmap(columns)
            if len(columns) and not has_frames(columns, points):
                if self._framed:
                    raise ValueError("the database holds positions alone, as of ALIKED; patches need scales, too")
                points = positions(points.xy)
        sift = self._reader.sift(name) if self._colmap_sift else None
        return GivenKeypoints(points, self._reader.image_size(name), sift, where)


def _open_store(path: Path | str) -> FeatureStore:
    """Opens a feature file for its keypoints alone: it need not say which descriptor it holds."""
    return FeatureStore(path, fallback=DescriptorSpec("unnamed", 1))


def with_frames(xy: np.ndarray, frames: Mapping[str, np.ndarray], needed: bool) -> Keypoints:
    """Keypoints [N, 2] with the shapes beside them, which may be absent unless they are needed."""
    if "affine" in frames:
        return from_shapes(xy, frames["affine"])
    if "scales" not in frames and not needed:
        return positions(xy)
    if "scales" not in frames:
        raise ValueError(
            "the file holds positions without `scales` (or `affine`), which patches need; give --keypoints another "
            "file, or colmap or opencv"
        )
    return Keypoints(xy, frames["scales"], frames.get("oris", np.zeros(len(xy))))


@contextlib.contextmanager
def _located(where: str) -> Iterator[None]:
    """Puts file and photo before the message of an error; one of HDF5 becomes a ValueError."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise ValueError(f"{where}: {error}") from error
