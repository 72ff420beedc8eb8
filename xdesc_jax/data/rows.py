"""What a source of rows is, and what all of them do alike.

In: the features of one photo. Out: its rows for the records, {column: [n, ...]}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from xdesc_jax.data.schema import Column, columns_of
from xdesc_jax.data.source import Columns
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.frames import of_features
from xdesc_jax.features.store import ImageFeatures


class RowSource(Protocol):
    """Where rows come from.

    Attributes:
        specs: the descriptors, by name.
        names: the photos, sorted.
        has_patches: whether rows have a `patch` column.
        has_pairs: whether rows have `pair` and `point` columns.
        has_points: whether they have a `point` column without one of pairs.
        unit: what the names are of, for messages: photos, or places of several.
        action: what the first pass over the rows does, for the progress bar.
        config: what identifies the input, for the configuration's hash.
    """

    specs: dict[str, DescriptorSpec]
    names: list[str]
    has_patches: bool
    has_pairs: bool
    has_points: bool
    unit: str
    action: str
    config: dict[str, Any]

    def rows(self) -> Iterator[tuple[str, Columns]]:
        """Yields (photo, every column but `photo`), the same in each pass. Photos may be left out."""
        ...


def columns_from(source: RowSource) -> dict[str, Column]:
    """The columns of records of a source."""
    return columns_of(source.specs, source.has_patches, source.has_pairs, source.has_points)


class RowReader(Protocol):
    """Reads the rows of any one photo, in whatever process it is pickled to."""

    def open(self) -> AbstractContextManager[Callable[[str], Columns]]:
        """Opens what it reads from; gives a function from a photo's name to what `RowSource.rows` yields for it."""
        ...


class ReadableSource(RowSource, Protocol):
    """A source of rows that can be read photo by photo, in any order and in several processes."""

    def reader(self) -> RowReader:
        """What reads them; checks beforehand what needs all names."""
        ...


def described(features: ImageFeatures, spec: DescriptorSpec) -> np.ndarray:
    """Which rows have a descriptor, bool [N]: the valid ones, without zero rows, which describe nothing."""
    if spec.binary:  # all bits zero can be a real descriptor
        return features.valid
    return features.valid & np.any(features.descriptors, axis=1)


def with_shapes(features: Sequence[ImageFeatures]) -> int:
    """The first that has shapes of keypoints, or the first where none has."""
    return next((i for i, f in enumerate(features) if f.scales is not None or f.affine is not None), 0)


def keypoint_rows(features: Sequence[ImageFeatures]) -> np.ndarray:
    """(x, y, scale, orientation) [N, 4] float32 from the first that has shapes; NaN where none has."""
    shaped = features[with_shapes(features)]
    rows = np.full((len(shaped), 4), np.nan, np.float32)
    rows[:, :2] = shaped.keypoints
    if (frames := of_features(shaped)) is not None:
        rows[:, 2:] = frames
    elif shaped.scales is not None:
        rows[:, 2] = shaped.scales
    return rows
