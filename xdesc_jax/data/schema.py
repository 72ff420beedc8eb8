"""What a records folder holds: its columns, splits, shards and files, as `records.json` in the folder says.

In: a folder made by `xdesc records`. Out: `RecordInfo`, from which the readers of both formats ('tfds',
'npy') start. A row is one patch seen by every descriptor. Imports neither tensorflow nor jax.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.files.whole import config_hash, read_json, write_json

FILE = "records.json"
VERSION = 1
TRAIN, VALIDATION = SPLITS = ("train", "validation")
PATCH_SIZE = 32
# Columns beside the descriptors, and the batch key of padding; no descriptor may bear these names.
PATCH, KEYPOINT, PHOTO, MASK = "patch", "keypoint", "photo", "mask"
PAIR, POINT = "pair", "point"
NEIGHBOURS = "neighbours"  # of batches with context: 'neighbours/<column>', see `around.take`
SET = "::"  # between a photo's name and that of a set of keypoints
OPTIONAL = ("has_pairs", "has_points")  # fields that records of before do not have
RESERVED = (PATCH, KEYPOINT, PHOTO, MASK, PAIR, POINT, NEIGHBOURS)


def named(photo: str, keypoints: str) -> str:
    """The name that records give a photo of which they hold several sets of keypoints; '' for the one set."""
    return f"{photo}{SET}{keypoints}" if keypoints else photo


def parted(name: str) -> tuple[str, str]:
    """The photo and its set of keypoints, of what `named` gave."""
    photo, _, keypoints = name.rpartition(SET)
    return (photo, keypoints) if photo else (name, "")


@dataclasses.dataclass(frozen=True)
class Column:
    """dtype of a column and the shape of one row's value."""

    dtype: np.dtype
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))


def columns_of(
    specs: Mapping[str, DescriptorSpec], has_patches: bool, has_pairs: bool = False, has_points: bool = False
) -> dict[str, Column]:
    """The columns of records of these descriptors.

    `keypoint` is (x, y, scale, orientation): px from the centre of the first pixel, sigma in px, radians;
    scale and orientation are NaN where the feature files do not have them. `photo` is the index into
    `RecordInfo.photos`. Descriptors are in their stored form, binary ones packed; all zero where one was not computed.
    Records of pairs also hold `pair`, the patch of the same point in another view, and, as those with points do,
    `point`, a number that rows of one point share; -1 where it is not known.

    Raises:
        ValueError: a descriptor has the name of another column.
    """
    if taken := [name for name in specs if name in RESERVED]:
        raise ValueError(f"descriptor name {taken[0]!r} is the name of another column of the records")
    columns = {name: Column(spec.stored_dtype, (spec.stored_width,)) for name, spec in specs.items()}
    columns[KEYPOINT] = Column(np.dtype(np.float32), (4,))
    columns[PHOTO] = Column(np.dtype(np.int32), ())
    patch = Column(np.dtype(np.uint8), (PATCH_SIZE, PATCH_SIZE))
    if has_patches:
        columns[PATCH] = patch
    if has_pairs:
        columns[PAIR] = patch
    if has_pairs or has_points:
        columns[POINT] = Column(np.dtype(np.int32), ())
    return columns


def row_dtype(columns: Mapping[str, Column]) -> np.dtype:
    """One packed numpy record per row, for rows on their way to a shard."""
    return np.dtype([(name, column.dtype, column.shape) for name, column in columns.items()])


@dataclasses.dataclass(frozen=True)
class RecordInfo:
    """The contents of a records folder.

    Attributes:
        path: the folder; for TFDS the dataset's version directory.
        format: 'tfds' (TFRecord shards) or 'npy' (one array per split and column).
        specs: the descriptors, by name.
        shards: rows of each shard, per split; in the npy format the blocks that are read at once.
        has_patches: whether there is a `patch` column.
        photos: names of all photos; a row's `photo` is an index into it.
        config: the settings that made the folder.
        files: size in bytes of every data file, to detect a cut one before the first step.
        has_pairs: whether there are `pair` and `point` columns.
        has_points: whether there is a `point` column without one of pairs.
    """

    path: Path
    format: Literal["tfds", "npy"]
    specs: dict[str, DescriptorSpec]
    shards: dict[str, tuple[int, ...]]
    has_patches: bool
    photos: tuple[str, ...]
    config: dict[str, Any]
    files: dict[str, int]
    has_pairs: bool = False
    has_points: bool = False

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each split."""
        return {split: sum(rows) for split, rows in self.shards.items()}

    @property
    def columns(self) -> dict[str, Column]:
        return columns_of(self.specs, self.has_patches, self.has_pairs, self.has_points)

    @property
    def config_hash(self) -> str:
        return config_hash(self.config)

    @property
    def whole_photos(self) -> bool:
        """Whether the rows of each photo are in one shard."""
        return self.config.get("deal_by") == "photo"

    def save(self) -> Path:
        """Writes `records.json` into the folder."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "path"}
        fields["specs"] = [spec.to_dict() for spec in self.specs.values()]
        return write_json(self.path / FILE, {"version": VERSION, **fields, "config_hash": self.config_hash})

    @classmethod
    def load(cls, path: Path | str) -> RecordInfo:
        """Reads a folder's `records.json` and checks that its data files are there and whole.

        Raises:
            FileNotFoundError: no such folder, or a data file is missing.
            ValueError: not a records folder, another version, or a data file was cut.
        """
        path = Path(path)
        if not path.is_dir():
            raise FileNotFoundError(f"{path}: no such records folder")
        if not (path / FILE).exists():
            inner = sorted(child.parent for child in path.glob(f"*/{FILE}"))
            hint = f"; did you mean {inner[0]}?" if inner else " (made by `xdesc records`)"
            raise ValueError(f"{path}: not a records folder, it has no {FILE}{hint}")
        fields = read_json(path / FILE)
        if not isinstance(fields, dict):
            raise ValueError(f"{path / FILE}: is a JSON {type(fields).__name__}, expected an object")
        if fields.get("version") != VERSION:
            found = fields.get("version")
            raise ValueError(f"{path}: records version is {found}, this package reads version {VERSION}")
        try:
            _check_types(fields)
            info = cls(
                path=path,
                format=fields["format"],
                specs={s["name"]: DescriptorSpec.from_dict(s) for s in fields["specs"]},
                shards={split: tuple(rows) for split, rows in fields["shards"].items()},
                has_patches=fields["has_patches"],
                photos=tuple(fields["photos"]),
                config=fields["config"],
                files=fields["files"],
                **{name: fields[name] for name in OPTIONAL if name in fields},
            )
            info.columns  # noqa: B018  # refuses names of other columns
        except KeyError as error:
            raise ValueError(f"{path / FILE}: lacks the field {error}") from error
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path / FILE}: {error}") from error
        info._check_files()
        return info

    def _check_files(self) -> None:
        for name, expected in self.files.items():
            file = self.path / name
            if not file.exists():
                raise FileNotFoundError(f"{file}: missing from the records")
            if (found := file.stat().st_size) != expected:
                raise ValueError(f"{file}: damaged, has {found} bytes, expected {expected}")
        rows, width = sum(map(sum, self.shards.values())), sum(column.row_bytes for column in self.columns.values())
        if rows * width > (held := sum(self.files.values())):
            raise ValueError(
                f"{self.path / FILE}: states {rows} rows of {width} bytes, but its files have {held} bytes"
            )

    def check_photos(self, photos: np.ndarray, where: Path | str) -> None:
        """Raises ValueError where rows are of photos that the records do not have; `where` says which rows."""
        if len(photos) and not 0 <= photos.min() <= photos.max() < len(self.photos):
            bad = photos[(photos < 0) | (photos >= len(self.photos))][0]
            raise ValueError(f"{where}: damaged, a row is of photo {bad}, expected 0 to {len(self.photos) - 1}")

    def shard_rows(self, split: str) -> tuple[int, ...]:
        """Rows of each shard of `split`; raises ValueError for an unknown or empty split."""
        if not self.shards.get(split):
            found = ", ".join(f"{name}: {rows}" for name, rows in self.counts.items())
            raise ValueError(f"{self.path}: split {split!r} has no rows (rows by split: {found})")
        return self.shards[split]

    def select(self, names: Sequence[str] | None, patches: bool = False) -> dict[str, Column]:
        """The columns a reader yields: `names` (None: every descriptor, or the pairs), `photo`, and `patch` if
        asked for.

        Raises:
            ValueError: the records lack one of them.
        """
        columns = self.columns
        everything = [*self.specs, *[PATCH, PAIR, POINT] * self.has_pairs]
        wanted = everything if names is None else list(names)
        wanted += [PATCH] * patches + [PHOTO]
        if missing := [name for name in wanted if name not in columns]:
            raise ValueError(f"{self.path}: has no column {missing[0]!r} (columns: {', '.join(columns)})")
        return {name: columns[name] for name in dict.fromkeys(wanted)}


def _check_types(fields: Mapping[str, Any]) -> None:
    """Raises ValueError where a field holds what it cannot, and KeyError where one is missing."""
    for name, fits, expected in (
        ("format", lambda v: v in ("tfds", "npy"), "'tfds' or 'npy'"),
        ("specs", lambda v: isinstance(v, list) and all(isinstance(s, dict) for s in v), "a list of descriptors"),
        ("shards", lambda v: isinstance(v, dict) and all(_are_counts(rows) for rows in v.values()), "rows by split"),
        ("has_patches", lambda v: isinstance(v, bool), "true or false"),
        ("photos", lambda v: isinstance(v, list) and all(isinstance(name, str) for name in v), "a list of names"),
        ("config", lambda v: isinstance(v, dict), "settings"),
        ("files", lambda v: isinstance(v, dict) and _are_counts([*v.values()]), "sizes by file"),
    ):
        if not fits(fields[name]):
            raise ValueError(f"{name} is {fields[name]!r}, expected {expected}")
    for name in OPTIONAL:
        if not isinstance(fields.get(name, False), bool):
            raise ValueError(f"{name} is {fields[name]!r}, expected true or false")


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(n) is int and 0 <= n < 1 << 48 for n in values)
