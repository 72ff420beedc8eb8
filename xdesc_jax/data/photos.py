"""Rows from photos: keypoints, patches and descriptors are extracted, each photo once.

In: a folder of photos and extraction settings. Out: the rows with a valid descriptor of every type, photo by
photo, with their patches. Finished photos are kept as part files, so a run that was stopped goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.data.rows import described, keypoint_rows
from xdesc_jax.data.schema import KEYPOINT, PATCH
from xdesc_jax.data.source import Columns
from xdesc_jax.descriptors import Entry, get_entry, get_spec, register
from xdesc_jax.features.extract import (
    ExtractSettings,
    PhotoFeatures,
    check_names,
    check_ready,
    configuration_keys,
    extract_parts,
    extract_photo,
    extractors_of,
    keypoint_file,
)
from xdesc_jax.features.extractors.process import Extractors
from xdesc_jax.features.given import KeypointFile
from xdesc_jax.features.images import list_photos
from xdesc_jax.features.parts import load_part, part_path, photo_stamp, save_part
from xdesc_jax.files.whole import config_hash, staged


class ExtractedPhotos:
    """The rows of a folder of photos; see `rows.RowSource`.

    Args:
        root: folder of photos, with any sub-folders.
        settings: what is extracted.
        parts: folder for finished photos, removed by the caller when all is done.
        processes: that extract.
        patches: whether rows have their patch.
        strict: raise at a photo that cannot be read, instead of leaving it out.

    Attributes:
        skipped: name and reason of photos that could not be read.

    Raises:
        ValueError: no photo, or settings that cannot be carried out.
    """

    unit = "photos"
    action = "extracting"
    has_pairs = has_points = False

    def __init__(
        self,
        root: Path,
        settings: ExtractSettings,
        parts: Path,
        *,
        processes: int = 1,
        patches: bool = True,
        strict: bool = False,
    ):
        settings = dataclasses.replace(settings, patches=patches)
        check_ready(settings)
        self._root, self._settings, self._parts = root, settings, parts
        self._processes, self._strict = processes, strict
        self.skipped: dict[str, str] = {}
        self.names = sorted(list_photos(root, strict=strict, skipped=self.skipped))
        self.specs = {name: get_spec(name) for name in settings.descriptors}
        self.has_patches = patches
        listing = [(name, photo_stamp(root / name)) for name in self.names]
        self.config: dict[str, Any] = {
            "photos": config_hash(listing),
            "keypoints": settings.keypoints,
            "first_octave": settings.first_octave,
            "max_keypoints": settings.max_keypoints,
            "descriptors": configuration_keys(settings),
            "patches": patches,
        }

    def rows(self) -> Iterator[tuple[str, Columns]]:
        """Yields (photo, {column: [n, ...]}); the first pass extracts, later ones read what it kept.

        Raises:
            ValueError: keypoints from a file do not fit, or with `strict` a photo cannot be read.
        """
        names = [name for name in self.names if name not in self.skipped]
        found = extract_parts(
            self._root, names, self._settings, self._parts, self._processes,
            strict=self._strict, skipped=self.skipped,
        )  # fmt: skip
        for name, photo in found:
            yield name, rows_of(photo, list(self.specs), self.has_patches)

    def reader(self) -> PhotoReader:
        """What extracts single photos, also in other processes.

        Raises:
            ValueError: a file of keypoints lacks photos.
        """
        with keypoint_file(self._settings) as source:
            check_names(source, self._root, self.names)
        # Other processes may work in another folder.
        settings = dataclasses.replace(
            self._settings, weights={name: file.absolute() for name, file in self._settings.weights.items()}
        )
        if settings.given:
            settings = dataclasses.replace(settings, keypoints=str(Path(settings.keypoints).absolute()))
        entries = tuple(get_entry(name) for name in dict.fromkeys([*self.specs, *settings.networks]))
        keys = configuration_keys(self._settings)
        return PhotoReader(self._root.absolute(), settings, self._parts.absolute(), self.has_patches, keys, entries)


@dataclasses.dataclass(frozen=True)
class PhotoReader:
    """Extracts any one photo; see `rows.RowReader`.

    Attributes:
        root, settings, parts, patches: as for `ExtractedPhotos`, every path absolute.
        keys: see `extract.configuration_keys`.
        entries: of the descriptors; what the caller registered is not known in a new process.
    """

    root: Path
    settings: ExtractSettings
    parts: Path
    patches: bool
    keys: dict[str, str]
    entries: tuple[Entry, ...]

    @contextlib.contextmanager
    def open(self) -> Iterator[Callable[[str], Columns]]:
        for entry in self.entries:
            register(entry.spec, entry.describe, source=entry.source, load=entry.load)
        with keypoint_file(self.settings) as source, extractors_of(self.settings) as extractors:
            yield functools.partial(self._rows, source, extractors)

    def _rows(self, source: KeypointFile | None, extractors: Extractors, name: str) -> Columns:
        stamp = photo_stamp(self.root / name)
        photo = load_part(self.parts, name, self.keys, stamp, self.settings.patches)
        if photo is None:
            photo = extract_photo(self.root / name, self.settings, source.read(name) if source else None, extractors)
            # Several processes, whose ids may be equal on several hosts, may have the same photo in work.
            with staged(part_path(self.parts, name)) as temporary:
                save_part(temporary.parent, name, photo, self.keys, stamp)
        return rows_of(photo, self.settings.descriptors, self.patches)


def rows_of(photo: PhotoFeatures, descriptors: Sequence[str], patches: bool) -> Columns:
    """The rows of one photo that have every descriptor, with their patches where asked for."""
    features = {name: photo.image_features(name) for name in descriptors}
    valid = np.logical_and.reduce([described(found, get_spec(name)) for name, found in features.items()])
    rows = {name: photo.descriptors[name][valid] for name in descriptors}
    rows[KEYPOINT] = keypoint_rows(list(features.values()))[valid]
    if patches:
        rows[PATCH] = photo.patches[valid]
    return rows
