"""Rows from two or more feature files that describe the same keypoints, one descriptor a file.

In: aligned .h5 files, ours or hloc's; or folders of them, each with other keypoints and perhaps without a descriptor.
Out: rows that are valid in all files of the folder, photo by photo, and zero where a folder lacks the descriptor. The
photos need not be at hand, so there is no patch column.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.console.words import counted
from xdesc_jax.data.pairs.across import Numbers, identity, points_across
from xdesc_jax.data.pairs.same_places import same_places
from xdesc_jax.data.rows import described, keypoint_rows, with_shapes
from xdesc_jax.data.schema import KEYPOINT, POINT, SET, named, parted
from xdesc_jax.data.source import Columns
from xdesc_jax.descriptors import DescriptorSpec, from_stored, get_spec, registered
from xdesc_jax.features.given import with_frames
from xdesc_jax.features.keypoints import displaced, most_exact
from xdesc_jax.features.store import FeatureStore, ImageFeatures, infer_spec
from xdesc_jax.files.whole import input_hash

SINGLE = ""  # label of the one set there is
SHOWN = 3


class PairedStores:
    """Aligned feature files, opened and checked; use as a context manager.

    Args:
        paths: two or more .h5 files of the same keypoints; or folders with two or more each, as `xdesc extract` makes
            them, one folder for each set of keypoints.
        descriptors: what they hold, in the same order, for files that do not say (hloc's). A name that is not
            registered makes a real-valued descriptor of the file's width. Not with folders.
        within_px: take files of different keypoints, and of these the ones of the same places (`same_places`).
        across: what says which keypoints of different photos show one point, see `points_across`.

    Attributes:
        specs: the descriptors, by name.
        names, has_patches, has_pairs, has_points, action, config: as for `rows.RowSource`; photos of several folders
            are named by `schema.named`.

    Raises:
        FileNotFoundError: no such file or folder.
        ValueError: fewer than two files, a descriptor that comes twice, or files that do not describe the
            same keypoints (the first three differences are listed); files and folders together, folders of the same
            name, or in which a name stands for different descriptors; as `points_across`.
    """

    has_patches = has_pairs = False
    unit = "photos"
    action = "reading"

    def __init__(
        self, paths: Sequence[Path], descriptors: Sequence[str] | None = None, within_px: float | None = None,
        across: Path | None = None,
    ):  # fmt: skip
        if within_px is not None and not within_px > 0:
            raise ValueError(f"--within is {within_px:g}, expected px over 0")
        self._within_px = within_px
        sets = _sets(paths, descriptors or ())
        with contextlib.ExitStack() as stack:
            self._sets = {
                label: [stack.enter_context(_open(path, name)) for path, name in files] for label, files in sets.items()
            }
            self.specs: dict[str, DescriptorSpec] = {}
            for stores in self._sets.values():
                self.specs |= _checked_specs(stores, self.specs, within_px is None)
            self.names = sorted(named(name, label) for label, stores in self._sets.items() for name in stores[0].names)
            found = {label: [_identity(store.path) for store in stores] for label, stores in self._sets.items()}
            self.config: dict[str, Any] = {"paired": found.get(SINGLE, found)}
            self.config |= {"within_px": within_px} if within_px is not None else {}
            self.config |= {"across": identity(across)} if across is not None else {}
            self.has_points, self._across = across is not None, across
            self._stack = stack.pop_all()

    def __enter__(self) -> PairedStores:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def rows(self) -> Iterator[tuple[str, Columns]]:
        """Yields (photo, {column: [n, ...]}) with the rows that are valid in all files of its set.

        Raises:
            ValueError: a valid row is not finite or has a wrong norm.
        """
        for name in self.names:
            yield name, rows_of(self._sets, self.specs, self._within_px, self._points, name)

    def reader(self) -> PairedReader:
        """What reads the rows of single photos, also in other processes; the files are checked already."""
        files = {label: [(s.path.absolute(), s.spec) for s in stores] for label, stores in self._sets.items()}
        return PairedReader(files, self.specs, self._within_px, self._points)

    @functools.cached_property
    def _points(self) -> Numbers | None:
        if self._across is None:
            return None
        keypoints, sizes = {}, {}
        photos = [(name, label, stores) for label, stores in self._sets.items() for name in stores[0].names]
        for name, label, stores in console.track(photos, "comparing", "photos", len(photos)):
            framed = ((store, frames) for store in stores if (frames := store.frames(name)))
            store, frames = next(framed, (stores[0], {}))
            xy, sizes[name] = store.keypoints(name), store.image_size(name)
            with store.reading(name):
                keypoints[name, label] = with_frames(xy, frames, needed=False)
        return points_across(self._across, list(keypoints), keypoints.__getitem__, sizes)


@dataclasses.dataclass(frozen=True)
class PairedReader:
    """Reads the rows of any one photo; see `rows.RowReader`."""

    files: Mapping[str, Sequence[tuple[Path, DescriptorSpec]]]
    specs: Mapping[str, DescriptorSpec]
    within_px: float | None
    points: Numbers | None

    @contextlib.contextmanager
    def open(self) -> Iterator[Callable[[str], Columns]]:
        with contextlib.ExitStack() as stack:
            sets = {
                label: [stack.enter_context(FeatureStore(*file)) for file in files]
                for label, files in self.files.items()
            }
            yield functools.partial(rows_of, sets, self.specs, self.within_px, self.points)


def rows_of(
    sets: Mapping[str, Sequence[FeatureStore]], specs: Mapping[str, DescriptorSpec], within_px: float | None,
    points: Numbers | None, name: str,
) -> Columns:  # fmt: skip
    """The rows of one photo that are valid in all files of its set; of descriptors that the set lacks, zeros.

    Frames are those of the first file that has any, and so are the positions; but of the same keypoints those that were
    not rounded to float16 are taken, where there are some.

    Raises:
        ValueError: a valid row is not finite or has a wrong norm.
    """
    photo, label = parted(name) if SINGLE not in sets else (name, SINGLE)
    stores = sets[label]
    features = [store.read(photo) for store in stores]
    both: list[tuple[ImageFeatures, FeatureStore]] = list(zip(features, stores, strict=True))
    valid = [described(found, store.spec) for found, store in both]
    if within_px is None:
        kept = [np.flatnonzero(np.logical_and.reduce(valid))] * len(both)
    else:
        kept = same_places(features, valid, within_px)
    framed = with_shapes(features)
    keypoints = keypoint_rows([features[framed]])
    if within_px is None:
        keypoints[:, :2] = most_exact([found.keypoints for found in (features[framed], *features)])
    rows: Columns = {KEYPOINT: keypoints[kept[framed]]}
    if points is not None:
        rows[POINT] = points[photo, label][kept[framed]]
    for (found, store), at in zip(both, kept, strict=True):
        descriptors = found.descriptors[at]
        from_stored(descriptors, store.spec, f"{store.path}: {photo!r}")
        rows[store.spec.name] = descriptors.astype(store.spec.stored_dtype, copy=False)
    lacking = {n: np.zeros((len(kept[0]), s.stored_width), s.stored_dtype) for n, s in specs.items()}
    return lacking | rows


def _sets(paths: Sequence[Path], descriptors: Sequence[str]) -> dict[str, list[tuple[Path, str | None]]]:
    """Files with the names of what they hold, where given, by set of keypoints."""
    if missing := [path for path in paths if not path.exists()]:
        raise FileNotFoundError(f"{missing[0]}: no such feature file, or folder of feature files")
    folders = [path for path in paths if path.is_dir()]
    if not folders:
        if len(paths) < 2:
            raise ValueError(f"--paired takes two or more feature files, found {len(paths)}")
        if descriptors and len(descriptors) != len(paths):
            raise ValueError(f"--descriptors names {len(descriptors)} of {len(paths)} paired feature files")
        return {SINGLE: list(itertools.zip_longest(paths, descriptors))}
    if len(folders) < len(paths):
        file = next(path for path in paths if not path.is_dir())
        raise ValueError(f"--paired: {folders[0]} is a folder and {file} a file, expected files or folders alone")
    if descriptors:
        raise ValueError(f"--descriptors names {list(descriptors)}, but files of folders say what they hold")
    found: dict[str, list[tuple[Path, str | None]]] = {}
    for folder in folders:
        label, files = folder.resolve().name, sorted(folder.glob("*.h5"))
        if len(files) < 2:
            raise ValueError(
                f"{folder}: has {len(files)} feature files (.h5), expected two or more of the same keypoints"
            )
        if SET in label:
            raise ValueError(f"{folder}: its name is part of its photos', expected one without {SET!r}")
        if label in found:
            raise ValueError(f"--paired: two folders are named {label!r}, which names their photos; rename one")
        found[label] = [(file, None) for file in files]
    return {SINGLE: found.popitem()[1]} if len(found) == 1 else found


def _checked_specs(
    stores: Sequence[FeatureStore], known: Mapping[str, DescriptorSpec], aligned: bool
) -> dict[str, DescriptorSpec]:
    """The descriptors of a set by name; raises ValueError where its files do not fit together or to the others."""
    specs: dict[str, DescriptorSpec] = {}
    for store in stores:
        store.require_photos()
        name = store.spec.name
        if name in specs:
            raise ValueError(f"{store.path}: holds {name!r}, as another paired file does")
        if store.spec != known.get(name, store.spec):
            raise ValueError(f"{store.path}: holds {name!r} of another form than a file of another folder")
        specs[name] = store.spec
    check_aligned(stores, aligned)
    return specs


def _identity(path: Path) -> dict[str, Any]:
    return {"file": path.name, "bytes": path.stat().st_size, "content": input_hash(path)}


def _open(path: Path, name: str | None) -> FeatureStore:
    if name is None:
        return FeatureStore(path, hint="name what each file holds by --descriptors")
    return FeatureStore(path, get_spec(name) if name in registered() else infer_spec(path, name))


def check_aligned(stores: Sequence[FeatureStore], keypoints: bool = True) -> None:
    """Checks that all files hold the same photos, and the same `keypoints` in the same order.

    Raises:
        ValueError: they do not; the first three differences are listed, each in a line.
    """
    found = list(itertools.islice(_differences(stores, keypoints), SHOWN + 1))
    if found:
        more = ["..."] if len(found) > SHOWN else []
        raise ValueError("paired feature files differ:\n  " + ";\n  ".join(found[:SHOWN] + more))


def _differences(stores: Sequence[FeatureStore], of_keypoints: bool) -> Iterator[str]:
    first = stores[0]
    for other in stores[1:]:
        for a, b in ((first, other), (other, first)):
            missing = sorted(set(a.names) - set(b.names))
            yield from (f"{name!r} is in {a.path} but not in {b.path}" for name in missing)
    if not of_keypoints:
        return
    shared = set(first.names).intersection(*(store.names for store in stores[1:]))
    for name in sorted(shared):
        expected = first.keypoints(name)
        for other in stores[1:]:
            keypoints = other.keypoints(name)
            if len(keypoints) != len(expected):
                told = counted(len(expected), "keypoint")
                yield f"{name!r}: {told} in {first.path}, {len(keypoints)} in {other.path}"
                continue
            if (differ := displaced(keypoints, expected)).any():
                row = int(np.flatnonzero(differ)[0])
                yield (
                    f"{name!r}: keypoint {row} is at {expected[row].tolist()} in {first.path}, "
                    f"at {keypoints[row].tolist()} in {other.path} ({differ.sum()} of {len(differ)} differ)"
                )
