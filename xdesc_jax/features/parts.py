"""What has been extracted so far: one part file a photo.

In: the features of a photo and the configuration they were made with. Out: a file that appears whole or not
at all, and the features again when an interrupted run is continued. Parts are private to one run and
removed at its end; feature files and records are what lasts.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.features.keypoints import Keypoints
from xdesc_jax.features.photo import NO_PATCHES, PhotoFeatures
from xdesc_jax.files.whole import atomic, content_hash

_DESCRIPTOR = "descriptor "
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)  # cut short or damaged


def part_path(folder: Path, name: str) -> Path:
    """Where a photo's part lies; names that differ only by case or folder get different files."""
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.npz"


def photo_stamp(path: Path) -> list[int]:
    """What identifies a photo's content, as one number; [] where no such file can be read.

    Another photo under the same name has another stamp, also where size and time of change are the same, as they
    are in files that come from an archive.
    """
    try:
        return [int(content_hash(path), 16)] if path.is_file() else []
    except OSError:
        return []


def save_part(folder: Path, name: str, features: PhotoFeatures, keys: dict[str, str], stamp: list[int]) -> None:
    """Writes a photo's part.

    Args:
        folder: the folder of parts.
        name: the photo's name.
        features: what was extracted.
        keys: descriptor -> hash of the configuration that it was made with.
        stamp: the photo's `photo_stamp` before it was read.
    """
    points = features.keypoints
    arrays = {
        "about": np.array(json.dumps({"name": name, "keys": keys, "stamp": stamp})),
        "xy": points.xy,
        "scales": points.scales,
        "oris": points.oris,
        "patches": features.patches,
        "valid": features.valid,
        "image_size": np.array(features.image_size),
        **{_DESCRIPTOR + descriptor: rows for descriptor, rows in features.descriptors.items()},
    }
    arrays["framed"] = np.array(points.framed)
    if points.affine is not None:
        arrays["affine"] = points.affine
    if features.scores is not None:
        arrays["scores"] = features.scores
    with atomic(part_path(folder, name)) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def has_part(folder: Path, name: str, keys: dict[str, str], stamp: list[int]) -> bool:
    """Whether `load_part` has the features of a photo, patches apart; reads none of them."""
    try:
        with part_path(folder, name).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return _fits(arrays, name, keys, stamp)
    except _UNREADABLE:
        return False


def load_part(
    folder: Path, name: str, keys: dict[str, str], stamp: list[int], patches: bool = False
) -> PhotoFeatures | None:
    """The features of a photo, or None where its part is missing, cut short, or of another configuration.

    Args:
        folder, name, keys, stamp: as of `save_part`; the part may hold more descriptors than `keys` names.
        patches: whether they are wanted; then a part without is of no use.
    """
    try:
        with part_path(folder, name).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if not _fits(arrays, name, keys, stamp):
                return None
            kept = arrays["patches"] if patches else NO_PATCHES
            if patches and len(kept) != len(arrays["xy"]):
                return None
            affine = arrays.get("affine")
            return PhotoFeatures(
                Keypoints(arrays["xy"], arrays["scales"], arrays["oris"], affine, bool(arrays["framed"])),
                kept,
                {descriptor: arrays[_DESCRIPTOR + descriptor] for descriptor in keys},
                arrays["valid"],
                (int(arrays["image_size"][0]), int(arrays["image_size"][1])),
                arrays.get("scores"),
            )
    except _UNREADABLE:
        return None


def _fits(arrays: Mapping[str, np.ndarray], name: str, keys: dict[str, str], stamp: list[int]) -> bool:
    """Whether a part is of this photo, as it is now, and of these configurations."""
    about = json.loads(str(arrays["about"]))
    made = {descriptor: about["keys"].get(descriptor) for descriptor in keys}
    return (about["name"], about["stamp"], made) == (name, stamp, keys)
