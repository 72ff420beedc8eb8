"""Features of many photos from several files, whose photos may hold different descriptors.

In: feature files and COLMAP databases. Out: one view of all their photos: names, the descriptor of each, and
its `ImageFeatures` with the origin at the centre of the first pixel. Files are only read. Runs on the base
install.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

import numpy as np

from xdesc_jax.colmap.database import DatabaseReader, is_database
from xdesc_jax.colmap.database_file import database_hash
from xdesc_jax.colmap.lists import read_names
from xdesc_jax.console.words import counted
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.frames import has_frames, of_colmap, of_fields
from xdesc_jax.features.keypoints import from_colmap
from xdesc_jax.features.store import NAME_IT, SPEC_KEYS, FeatureStore, ImageFeatures
from xdesc_jax.files.hdf5 import found_attribute
from xdesc_jax.files.whole import config_hash, input_hash
from xdesc_jax.matching.named_files import NamedFiles
from xdesc_jax.networks.views import VIEW
from xdesc_jax.translation import ratios as ratio_keys
from xdesc_jax.translation.names import Names, named_spec
from xdesc_jax.translation.surroundings import check_positions

COPY_IT = "xdesc_jax.integrations.hloc.files writes a copy that does"  # of stages that take no name
_NOTHING = DescriptorSpec("none", 1)  # of a file whose photos have keypoints alone
_SHOWN = 5
_TWO_FILES = (
    "give one of them; or, where these are two photos, extract those of each device from a folder that holds its "
    "folder alone, so that their names begin with it ('phone/1.jpg')"
)


@dataclasses.dataclass(frozen=True)
class Held:
    """What the rows of a photo are.

    Attributes:
        spec: the descriptor, or the joint space.
        translated_from: what they were translated from ('a->b' where it became `b` in between); None for
            native rows.
    """

    spec: DescriptorSpec
    translated_from: str | None = None

    @property
    def source(self) -> str:
        """The descriptor that the rows come from."""
        return self.translated_from or self.spec.name


class FeatureSet:
    """The features of all photos in some files; use as a context manager.

    Args:
        paths: feature files (.h5) and COLMAP databases, or one path; each photo is in one of them.
        descriptor: what files hold that do not say (hloc's, databases of others), or its name, or of several files the
            names; None where all say.
        strict: whether a descriptor that no file has need of is an error.
        model: of which `descriptor` may be a name, before the registered ones.
        hint: what to do about a file that does not say what it holds, for the error.

    Attributes:
        names: of all photos, sorted; of those that are taken (see `take`).
        ratios: calibrated ratio thresholds that the files came with, by the keys of `ratios`; of several for one key
            the strictest.
        needs_descriptor: whether a file does not say what it holds.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file that is neither, is damaged, does not say what it holds, or says something else than was
            named for it; a photo in two files; a descriptor that no file has need of, and none holds.
    """

    def __init__(
        self,
        paths: Sequence[Path | str] | Path | str,
        descriptor: str | DescriptorSpec | NamedFiles | None = None,
        *,
        strict: bool = True,
        model: Names | None = None,
        hint: str = NAME_IT,
    ):
        self.paths = [Path(path) for path in ([paths] if isinstance(paths, (str, Path)) else paths)]
        named = descriptor if isinstance(descriptor, NamedFiles) else NamedFiles(descriptor)
        rest = _spec(named.rest, model)
        self._given: dict[Path, DescriptorSpec | None] = {}
        self._readers: dict[str, FeatureStore | DatabaseReader] = {}
        self.ratios: dict[str, float] = {}
        with contextlib.ExitStack() as stack:
            for path in self.paths:
                reader: FeatureStore | DatabaseReader
                own = _spec(named.each.get(path.resolve()), model)
                self._given[path] = own or rest
                if is_database(path):
                    reader = DatabaseReader(path, hint)
                else:
                    reader = _store(path, own, rest, hint)
                stack.enter_context(reader)
                reader.require_photos()
                if own is not None and isinstance(reader, DatabaseReader):
                    _check_named(reader, own)
                self.ratios = ratio_keys.strictest(
                    self.ratios, ratio_keys.parse(reader.attributes.get(ratio_keys.RATIOS), reader.path)
                )
                for name in reader.names:
                    other = self._readers.setdefault(name, reader)
                    if other is not reader:
                        raise ValueError(f"photo {name!r} is in two files, {other.path} and {path}; {_TWO_FILES}")
            readers = {id(reader): reader for reader in self._readers.values()}.values()
            self.needs_descriptor = any(isinstance(r, DatabaseReader) or not r.says_spec for r in readers)
            if strict and rest and not self.needs_descriptor:
                self._check_given([r for r in readers if isinstance(r, FeatureStore)], rest)
            self._stack = stack.pop_all()
        self.names = sorted(self._readers)

    def _check_given(self, readers: Sequence[FeatureStore], given: DescriptorSpec) -> None:
        held = sorted({reader.spec.name for reader in readers})
        if readers and given.name not in held:
            files = ", ".join(map(str, self.paths))
            raise ValueError(f"{files}: holds {', '.join(map(repr, held))}, but {given.name!r} was asked for")

    def __enter__(self) -> FeatureSet:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def __contains__(self, name: str) -> bool:
        return name in self._readers

    def __len__(self) -> int:
        return len(self.names)

    def take(self, names: Collection[str]) -> None:
        """Leaves out of `names` all but these; the others are still known, and read by their names."""
        self.names = [name for name in self.names if name in names]

    @property
    def known(self) -> list[str]:
        """All photos of the files, sorted, also those that are not taken."""
        return sorted(self._readers)

    def check_names(self, names: Sequence[str], why: str) -> None:
        """Raises ValueError with the first five where photos are not in the files; `why` says who names them."""
        missing = [name for name in dict.fromkeys(names) if name not in self]
        if missing:
            files = ", ".join(map(str, self.paths))
            raise ValueError(
                f"{why} names {counted(len(missing), 'photo')} not in {files}, first {missing[:_SHOWN]}; "
                f"there are {len(self)}, first {self.names[:_SHOWN]}"
            )

    def hashes(self) -> list[str]:
        """By which a stage knows each of `paths` again: 12 hex digits, of a database with its log."""
        return [database_hash(path) if is_database(path) else input_hash(path) for path in self.paths]

    def path(self, name: str) -> Path:
        """The file that holds a photo."""
        return self._reader(name).path

    def held(self, name: str) -> Held | None:
        """What the rows of a photo are; None where it has no descriptors at all.

        Raises:
            KeyError: no such photo.
            ValueError: nothing says what they are.
        """
        reader = self._reader(name)
        if isinstance(reader, FeatureStore):
            if reader.spec is _NOTHING:
                return None
            origin = reader.attributes.get(ratio_keys.TRANSLATED_FROM)
            if origin is None or reader.all_real(name):
                return Held(reader.spec)
            return Held(reader.spec, str(origin))
        spec = reader.spec(name) or self._given[reader.path]
        if spec is None:
            reader.descriptors(name)  # says what is wrong where there are rows
            return None
        return Held(spec, reader.translated_from(name))

    def image_size(self, name: str) -> tuple[int, int]:
        """(width, height) in px; (0, 0) where the file does not say."""
        return self._reader(name).image_size(name)

    def keypoints(self, name: str) -> np.ndarray:
        """Keypoints of a photo, [N, 2] float32, origin at the centre of the first pixel."""
        reader = self._reader(name)
        if isinstance(reader, FeatureStore):
            return reader.keypoints(name)
        return from_colmap(reader.keypoints(name)).xy

    def frames(self, name: str) -> np.ndarray | None:
        """Frames of a photo's keypoints, [N, 2] float32: sigma px, radians; None where the file has none."""
        reader = self._reader(name)
        if isinstance(reader, FeatureStore):
            return of_fields(**reader.frames(name))
        return of_colmap(reader.keypoints(name))

    def view(self, name: str) -> str | None:
        """The view of which a photo's file holds rows (`networks.views`); None of photos as they lie."""
        return self._reader(name).attributes.get(VIEW)

    def positions(self, name: str) -> np.ndarray:
        """Positions of a photo's keypoints, px, as encoders take them that look at a photo's other rows.

        Raises:
            KeyError: no such photo.
            ValueError: they lie outside the photo, whose size a feature file says.
        """
        reader, found = self._reader(name), self.keypoints(name)
        size = reader.image_size(name) if isinstance(reader, FeatureStore) else (0, 0)
        return check_positions(found, len(found), f"{reader.path}: {name!r}", size)

    def read(self, name: str) -> ImageFeatures:
        """The features of a photo; a row of a database is valid unless it is zero.

        Raises:
            KeyError: no such photo.
            ValueError: damaged, of another descriptor than it says, or other numbers of keypoints and rows.
        """
        reader, held = self._reader(name), self.held(name)
        if isinstance(reader, FeatureStore):
            if held is None:
                told = counted(reader.count(name), "keypoint")
                raise ValueError(f"{reader.path}: {name!r} has {told}, but no descriptors")
            return reader.read(name)
        columns = reader.keypoints(name)
        keypoints = from_colmap(columns)
        if held is None:
            raise ValueError(f"{reader.path}: {name!r} has {counted(len(keypoints), 'keypoint')}, but no descriptors")
        rows = reader.descriptors(name, held.spec)
        if len(rows) != len(keypoints):
            told = f"{counted(len(keypoints), 'keypoint')} and {counted(len(rows), 'descriptor')}"
            raise ValueError(f"{reader.path}: {name!r} has {told}")
        shapes = (keypoints.scales, keypoints.oris, keypoints.affine) if has_frames(columns, keypoints) else ()
        return ImageFeatures(keypoints.xy, rows, np.asarray(rows.any(axis=1)), reader.image_size(name), *shapes)

    def _reader(self, name: str) -> FeatureStore | DatabaseReader:
        if name not in self._readers:
            files = ", ".join(map(str, self.paths))
            raise KeyError(f"{files}: no photo {name!r} (first of {len(self)}: {self.names[:_SHOWN]})")
        return self._readers[name]


def _store(path: Path, own: DescriptorSpec | None, rest: DescriptorSpec | None, hint: str) -> FeatureStore:
    """A feature file; one of keypoints alone, as hloc's of dense matchers (LoFTR), has nothing to be named."""
    if found_attribute(path, *SPEC_KEYS) is None:
        with contextlib.ExitStack() as stack:
            store = stack.enter_context(FeatureStore(path, fallback=_NOTHING))
            if store.names and all(store.stored_form(name) == "none" for name in store.names):
                stack.pop_all()
                return store
    return FeatureStore(path, own, fallback=rest, hint=hint)


def _check_named(reader: DatabaseReader, given: DescriptorSpec) -> None:
    """Raises ValueError where a database says of all its rows that they are something else."""
    with_rows = {image_id for image_id, row in reader.blobs("descriptors").items() if row.rows}
    specs = [reader.spec(name) for name, image_id in reader.ids.items() if image_id in with_rows]
    held = sorted({spec.name for spec in specs if spec is not None})
    if held and given.name not in held and None not in specs:
        raise ValueError(f"{reader.path}: holds {', '.join(map(repr, held))}, but {given.name!r} was asked for")


def _spec(held: str | DescriptorSpec | None, model: Names | None) -> DescriptorSpec | None:
    return named_spec(held, model) if isinstance(held, str) else held


class Photos(Protocol):
    """Photos of some files, of which some may be taken; `FeatureSet` is one."""

    paths: list[Path]
    names: list[str]

    def take(self, names: Collection[str]) -> None: ...


def take_only(only: Path | None, *sets: Photos) -> dict[str, str]:
    """Takes the photos of a list alone, one name a line; all where there is no list.

    Args:
        only: the list.
        sets: each holds some of its photos.

    Returns:
        What a stage's configuration keeps of it: {'only': hash of the photos of each set}; nothing where there is no
        list.

    Raises:
        FileNotFoundError: no such list.
        ValueError: it names photos that no set holds, or none of a set.
    """
    if only is None:
        return {}
    held = sorted({name for photos in sets for name in photos.names})
    names = read_names(only, held)
    if missing := sorted(set(names).difference(held)):
        files = ", ".join(map(str, dict.fromkeys(path for photos in sets for path in photos.paths)))
        raise ValueError(
            f"{only} names {counted(len(missing), 'photo')} not in {files}, first {missing[:_SHOWN]}; there are "
            f"{len(held)}, first {held[:_SHOWN]}"
        )
    for photos in sets:
        photos.take(frozenset(names))
        if not photos.names:
            raise ValueError(f"{only} names no photo of {', '.join(map(str, photos.paths))}, expected some")
    return {"only": config_hash([photos.names for photos in sets])}
