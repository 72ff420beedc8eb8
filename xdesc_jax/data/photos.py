"""Rows from photos: keypoints, patches and descriptors are extracted, each photo once.

In: a folder of photos and extraction settings. Out: the rows with a valid descriptor of every type, photo by
photo, with their patches. Finished photos are kept as part files, so a run that was stopped goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.data.rows import described, keypoint_rows
from xdesc_jax.data.schema import KEYPOINT, PATCH
from xdesc_jax.data.source import Columns
from xdesc_jax.descriptors import get_spec
from xdesc_jax.features.extract import ExtractSettings, check_ready, configuration_keys, extract_parts
from xdesc_jax.features.images import list_photos
from xdesc_jax.features.parts import photo_stamp
from xdesc_jax.files import config_hash


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

    action = "extracting"
    has_pairs = False

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
            features = {descriptor: photo.image_features(descriptor) for descriptor in self.specs}
            valid = np.logical_and.reduce([described(features[d], spec) for d, spec in self.specs.items()])
            rows = {descriptor: photo.descriptors[descriptor][valid] for descriptor in self.specs}
            rows[KEYPOINT] = keypoint_rows(list(features.values()))[valid]
            if self.has_patches:
                rows[PATCH] = photo.patches[valid]
            yield name, rows
