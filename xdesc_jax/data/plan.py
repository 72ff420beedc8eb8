"""Which rows of each photo are kept, in which split they are, and which shard each goes to.

In: settings, photo names, rows of each photo. Out: choices that depend on nothing else, so that everything that
builds records, wherever it runs, makes the same ones.
"""

from __future__ import annotations

import dataclasses
import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Literal

import numpy as np

from xdesc_jax.data.deal import AnyDeal, Deal, PhotoDeal
from xdesc_jax.data.schema import SPLITS, TRAIN, VALIDATION, parted

SplitBy = Literal["photo", "folder"]
DealBy = Literal["row", "photo"]


@dataclasses.dataclass(frozen=True)
class RecordSettings:
    """How rows become a records folder; the fields are the arguments of `records`."""

    format: Literal["tfds", "npy"] = "tfds"
    validation_share: float = 0.1
    seed: int = 0
    max_rows_per_photo: int | None = None
    rows_per_shard: int = 16384
    split_by: SplitBy = "photo"
    deal_by: DealBy = "row"

    def __post_init__(self) -> None:
        if not 0 <= self.validation_share < 1:
            raise ValueError(f"validation share is {self.validation_share}, expected 0 to below 1")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}, expected 0 or more")
        for field in ("max_rows_per_photo", "rows_per_shard"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise ValueError(f"{field} is {value}, expected at least 1")

    def config(self) -> dict[str, Any]:
        """What tells records made with these settings from others."""
        config = dataclasses.asdict(self)
        for field, first in (("split_by", "photo"), ("deal_by", "row")):
            if config[field] == first:
                del config[field]  # so it is in records made before there was a choice
        return config

    def check_names(self, names: Sequence[str]) -> None:
        """Raises ValueError where photos of these names cannot be split as asked."""
        if self.split_by == "folder":
            for name in names:
                folder_of(name)

    def keep(self, count: int, name: str) -> np.ndarray:
        """Which of a photo's `count` rows are kept: all, or a draw by (seed, name); ascending indices."""
        most = self.max_rows_per_photo
        if most is None or count <= most:
            return np.arange(count)
        rng = np.random.default_rng(int(_hash01(self.seed, name) * 2**53))
        return np.sort(rng.choice(count, most, replace=False))


@dataclasses.dataclass(frozen=True)
class Plan:
    """Where rows go: the split of each photo that has some, and how each split's rows are dealt to its shards."""

    split_of: dict[str, str]
    deals: dict[str, AnyDeal]


def plan_rows(names: Sequence[str], counts: Mapping[str, int], settings: RecordSettings, unit: str = "photos") -> Plan:
    """The plan for the rows of photos, a function of how many each has.

    Args:
        names: the photos, sorted.
        counts: the kept rows of each; photos that were left out are not in it.
        settings: split and shards.
        unit: what the names are of, for the error.

    Raises:
        ValueError: no photo has a valid row; counts those that were not left out, or all where all were.
    """
    if not any(counts.values()):
        raise ValueError(f"none of the {len(counts) or len(names)} {unit} has a valid row")
    with_rows = [name for name in names if counts.get(name)]
    split_of = split_photos(with_rows, settings.validation_share, settings.seed, settings.split_by)
    deals: dict[str, AnyDeal] = {}
    for index, split in enumerate(SPLITS):
        of_photos = tuple(counts[name] for name in with_rows if split_of[name] == split)
        seed = len(SPLITS) * settings.seed + index
        if settings.deal_by == "photo":
            deals[split] = PhotoDeal(of_photos, settings.rows_per_shard, seed)
        else:
            deals[split] = Deal(sum(of_photos), settings.rows_per_shard, seed)
    return Plan(split_of, deals)


def split_photos(names: Sequence[str], validation_share: float, seed: int, by: SplitBy = "photo") -> dict[str, str]:
    """The split of each photo, by a hash of (seed, name): photos that come or go do not move the others.

    Each split gets at least one photo where there are two and the share is above 0, and all sets of keypoints of one
    photo are together. By 'folder', the same of the folders that names have in front of their last '/', so that photos
    of one folder are in one split.

    Raises:
        ValueError: a name without folder, by 'folder'.
    """
    unit_of = {name: parted(name)[0] if by == "photo" else folder_of(name) for name in names}
    units = list(dict.fromkeys(unit_of.values()))
    at = {unit: _hash01(seed, unit) for unit in units}
    split_of = {unit: VALIDATION if at[unit] < validation_share else TRAIN for unit in units}
    if validation_share > 0 and len(units) > 1:
        ascending = sorted(units, key=lambda unit: at[unit])
        split_of[ascending[0]] = VALIDATION
        split_of[ascending[-1]] = TRAIN
    elif units and validation_share > 0:
        split_of[units[0]] = TRAIN
    return {name: split_of[unit] for name, unit in unit_of.items()}


def folder_of(name: str) -> str:
    """The folder in a photo's name; raises ValueError where there is none."""
    folder = str(PurePosixPath(name).parent)
    if folder == ".":
        raise ValueError(
            f"photo {name!r} lies in no folder, expected FOLDER/NAME of all photos to split them by folder"
        )
    return folder


def _hash01(seed: int, name: str) -> float:
    # The same name in another Unicode normal form (as file systems change it) is the same photo.
    text = f"{seed}/{unicodedata.normalize('NFC', name)}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
