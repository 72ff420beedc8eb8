"""Rows from two or more feature files that describe the same keypoints, one descriptor a file.

In: aligned .h5 files, ours or hloc's. Out: rows that are valid in all of them, photo by photo. The photos
need not be at hand, so there is no patch column.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.data.rows import described, keypoint_rows
from xdesc_jax.data.schema import KEYPOINT
from xdesc_jax.data.source import Columns
from xdesc_jax.descriptors import DescriptorSpec, from_stored, get_spec, registered
from xdesc_jax.features.store import FeatureStore, ImageFeatures, infer_spec
from xdesc_jax.files.whole import input_hash

KEYPOINT_TOLERANCE_PX = 1e-3
SHOWN = 5


class PairedStores:
    """Aligned feature files, opened and checked; use as a context manager.

    Args:
        paths: two or more .h5 files.
        descriptors: what they hold, in the same order, for files that do not say (hloc's). A name that is not
            registered makes a real-valued descriptor of the file's width.

    Attributes:
        specs: the descriptors, by name.
        names, has_patches, has_pairs, action, config: as for `rows.RowSource`.

    Raises:
        ValueError: fewer than two files, a descriptor that comes twice, or files that do not describe the
            same keypoints; the first five differences are listed.
    """

    has_patches = has_pairs = False
    action = "reading"

    def __init__(self, paths: Sequence[Path], descriptors: Sequence[str] | None = None):
        if len(paths) < 2:
            raise ValueError(f"--paired takes two or more feature files, found {len(paths)}")
        if descriptors and len(descriptors) != len(paths):
            raise ValueError(f"--descriptors names {len(descriptors)} of {len(paths)} paired feature files")
        with contextlib.ExitStack() as stack:
            self._stores = [
                stack.enter_context(_open(path, name)) for path, name in itertools.zip_longest(paths, descriptors or ())
            ]
            self.specs: dict[str, DescriptorSpec] = {}
            for store in self._stores:
                store.require_photos()
                if store.spec.name in self.specs:
                    raise ValueError(f"{store.path}: holds {store.spec.name!r}, as another paired file does")
                self.specs[store.spec.name] = store.spec
            check_aligned(self._stores)
            self.names = self._stores[0].names
            files = [
                {"file": s.path.name, "bytes": s.path.stat().st_size, "content": input_hash(s.path)}
                for s in self._stores
            ]
            self.config: dict[str, Any] = {"paired": files}
            self._stack = stack.pop_all()

    def __enter__(self) -> PairedStores:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def rows(self) -> Iterator[tuple[str, Columns]]:
        """Yields (photo, {column: [n, ...]}) with the rows that are valid in all files.

        Raises:
            ValueError: a valid row is not finite or has a wrong norm.
        """
        for name in self.names:
            yield name, rows_of(self._stores, name)

    def reader(self) -> PairedReader:
        """What reads the rows of single photos, also in other processes; the files are checked already."""
        return PairedReader(tuple((store.path.absolute(), store.spec) for store in self._stores))


@dataclasses.dataclass(frozen=True)
class PairedReader:
    """Reads the rows of any one photo; see `rows.RowReader`."""

    files: tuple[tuple[Path, DescriptorSpec], ...]

    @contextlib.contextmanager
    def open(self) -> Iterator[Callable[[str], Columns]]:
        with contextlib.ExitStack() as stack:
            yield functools.partial(rows_of, [stack.enter_context(FeatureStore(*file)) for file in self.files])


def rows_of(stores: Sequence[FeatureStore], name: str) -> Columns:
    """The rows of one photo that are valid in all files.

    Raises:
        ValueError: a valid row is not finite or has a wrong norm.
    """
    features = [store.read(name) for store in stores]
    both: list[tuple[ImageFeatures, FeatureStore]] = list(zip(features, stores, strict=True))
    valid = np.logical_and.reduce([described(found, store.spec) for found, store in both])
    rows: Columns = {KEYPOINT: keypoint_rows(features)[valid]}
    for found, store in both:
        descriptors = found.descriptors[valid]
        from_stored(descriptors, store.spec, f"{store.path}: {name!r}")
        rows[store.spec.name] = descriptors.astype(store.spec.stored_dtype, copy=False)
    return rows


def _open(path: Path, name: str | None) -> FeatureStore:
    if name is None:
        return FeatureStore(path)
    return FeatureStore(path, get_spec(name) if name in registered() else infer_spec(path, name))


def check_aligned(stores: Sequence[FeatureStore]) -> None:
    """Checks that all files hold the same photos with the same keypoints in the same order.

    Raises:
        ValueError: they do not; the first five differences are listed.
    """
    found = list(itertools.islice(_differences(stores), SHOWN + 1))
    if found:
        more = ["..."] if len(found) > SHOWN else []
        raise ValueError("paired feature files differ:\n  " + "\n  ".join(found[:SHOWN] + more))


def _differences(stores: Sequence[FeatureStore]) -> Iterator[str]:
    first = stores[0]
    for other in stores[1:]:
        for a, b in ((first, other), (other, first)):
            missing = sorted(set(a.names) - set(b.names))
            yield from (f"{name!r} is in {a.path} but not in {b.path}" for name in missing)
    shared = set(first.names).intersection(*(store.names for store in stores[1:]))
    for name in sorted(shared):
        expected = first.keypoints(name)
        for other in stores[1:]:
            keypoints = other.keypoints(name)
            if len(keypoints) != len(expected):
                yield f"{name!r}: {len(expected)} keypoints in {first.path}, {len(keypoints)} in {other.path}"
                continue
            # Not "difference > tolerance": NaN must count as a difference.
            apart = ~(np.abs(keypoints - expected) <= KEYPOINT_TOLERANCE_PX).all(axis=1)
            if apart.any():
                row = int(np.flatnonzero(apart)[0])
                yield (
                    f"{name!r}: keypoint {row} is at {expected[row].tolist()} in {first.path}, "
                    f"at {keypoints[row].tolist()} in {other.path} ({apart.sum()} of {len(apart)} differ)"
                )
