"""Match files: the only reader and writer of the .h5 format (hloc's layout).

In: matches of photo pairs. Out: one group a pair, `<name0>/<name1>` with '/' in names as '-', holding
`matches0` [N0] int32 (row of the second photo, -1 for none) and `matching_scores0` [N0] float32, compressed. hloc reads
it; we add the photos' names as group attributes, what tells their keypoints from others (`Extent`), and the file
attributes `version` and `config_hash`. Two older layouts are read as well: groups `<name0>_<name1>` of hloc, and
`<name0>/<name1>` being the rows themselves, int [M, 2], of deep-image-matching and others.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xdesc_jax.files.hdf5 import DAMAGE, FEATURES, GLOBAL_FEATURES, Writer, array, content, open_file

if TYPE_CHECKING:
    import h5py

VERSION = 1
PLACE_TOLERANCE_PX = 0.25  # float16, in which hloc keeps keypoints, moves their mean by less
_ROWS, _SCORES = "matches0", "matching_scores0"

Pair = tuple[str, str]


def pair_key(name0: str, name1: str) -> str:
    """The group of a pair."""
    return f"{name0.replace('/', '-')}/{name1.replace('/', '-')}"


def refuse_features(out: Path) -> None:
    """Raises ValueError where a file that matches are to be written to holds features: the last of several was meant as
    one of them, and must not be lost to it."""
    what = None
    with contextlib.suppress(ValueError, *DAMAGE), open_file(out, "match file") as file:
        what = content(file)
    if what in (FEATURES, GLOBAL_FEATURES):
        raise ValueError(f"{out}: is {what}, expected a match file, which is named behind all features")


def check_names(names: Iterable[str], seen: dict[str, str] | None = None) -> None:
    """Raises ValueError where two photo names become the same group name.

    Args:
        names: of the photos.
        seen: group name -> photo of names that were checked before; receives these.
    """
    seen = {} if seen is None else seen
    for name in names:
        other = seen.setdefault(name.replace("/", "-"), name)
        if other != name:
            raise ValueError(f"photos {other!r} and {name!r} have the same name in a match file, where '/' is '-'")


def check_rows(indices: np.ndarray, photos: Sequence[tuple[str, int]], where: str) -> None:
    """Raises ValueError where matches [M, 2] use rows that the photos, each with its keypoints, do not have."""
    for column, (name, count) in enumerate(photos):
        bad = indices[(indices[:, column] < 0) | (indices[:, column] >= count), column]
        if len(bad):
            raise ValueError(f"{where} use row {bad[0]} of {name!r}, which has {count} keypoints")


@dataclasses.dataclass(frozen=True)
class Extent:
    """What tells the keypoints of a photo from those of another detection.

    Attributes:
        rows: how many they are.
        place: [2] float64, their mean in px, weighted by the row; so other orders differ, too.
    """

    rows: int
    place: np.ndarray

    @classmethod
    def of(cls, keypoints: np.ndarray) -> Extent:
        """Of positions [N, 2] in px, origin at the centre of the first pixel."""
        weights = np.arange(1.0, len(keypoints) + 1)
        xy = np.nan_to_num(np.asarray(keypoints, np.float64), nan=0, posinf=0, neginf=0)
        return cls(len(keypoints), weights @ xy / max(weights.sum(), 1))


class MatchWriter:
    """Writes a match file; use as a context manager. The file appears when the block ends without error."""

    def __init__(self, path: Path | str, attributes: dict[str, Any] | None = None):
        self.path = Path(path)
        self._writer = Writer(path, many=True)
        self._attributes = attributes or {}

    def __enter__(self) -> MatchWriter:
        self._writer.__enter__()
        self._writer.file.attrs.update(self._attributes | {"version": VERSION})
        return self

    def __exit__(self, *error: Any) -> None:
        self._writer.__exit__(*error)

    def write(
        self, name0: str, name1: str, rows0: int, indices: np.ndarray, scores: np.ndarray,
        extents: tuple[Extent, Extent] | None = None,
    ) -> None:  # fmt: skip
        """Adds one pair.

        Args:
            name0, name1: the photos.
            rows0: keypoints of the first.
            indices: [M, 2] int32, row of the first and row of the second photo.
            scores: [M] float32.
            extents: of the photos, by which a reader knows their keypoints again.

        Raises:
            ValueError: the pair was written before, in this order or the other.
            OSError: it cannot be written, as where the disk is full.
        """
        file = self._writer.file
        if pair_key(name0, name1) in file or pair_key(name1, name0) in file:
            raise ValueError(f"{self.path}: pair {name0!r}, {name1!r} written twice")
        matches0, scores0 = np.full(rows0, -1, np.int32), np.zeros(rows0, np.float32)
        matches0[indices[:, 0]] = indices[:, 1]
        scores0[indices[:, 0]] = scores
        group = self._writer.group(pair_key(name0, name1))
        group.attrs.update(name0=name0, name1=name1)
        for side, extent in enumerate(extents or ()):
            group.attrs.update({f"rows{side}": extent.rows, f"place{side}": extent.place})
        # Nearly all of a pair's rows have no match: a tenth of the bytes, which whoever reads HDF5 reads.
        packed = {"chunks": (rows0,), "compression": "gzip", "compression_opts": 1} if rows0 else {}
        for key, values in ((_ROWS, matches0), (_SCORES, scores0)):
            group.create_dataset(key, data=values, **packed)
        self._writer.check()


class MatchFile:
    """Reads a match file, ours or another's; use as a context manager.

    Args:
        path: the file.
        names: of the photos; what tells the names of a pair where the file has them in one word.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not an HDF5 file, cut short, being written, or a newer version.
    """

    def __init__(self, path: Path | str, names: Collection[str] = ()):
        self.path = Path(path)
        self._known = {name.replace("/", "-"): name for name in names}
        self._file = open_file(self.path, "match file", texts_anywhere=True)
        self._keys: dict[Pair, str] | None = None
        try:
            with self._reading("its attributes"):
                self.attributes: dict[str, Any] = dict(self._file.attrs)
            version = int(self.attributes.get("version", VERSION))
            if version > VERSION:
                raise ValueError(f"{path}: format version {version}, this package reads up to {VERSION}")
        except (TypeError, OverflowError, ValueError) as error:
            self._file.close()
            if str(error).startswith(f"{path}: "):
                raise
            found = self.attributes["version"]
            raise ValueError(f"{path}: format version is {found!r}, expected a number") from error

    def __enter__(self) -> MatchFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def pairs(self) -> list[Pair]:
        """Names of the photos of each pair; as group names where neither the file nor `names` says others.

        Raises:
            ValueError: the file is damaged, holds no matches but something else, or names that can be told apart in
                several ways.
        """
        return list(self._keys_of_pairs())

    def indices(self, name0: str, name1: str, extents: tuple[Extent, Extent] | None = None) -> np.ndarray:
        """Matches of a pair, in whichever order the file holds it.

        Args:
            name0, name1: the photos.
            extents: of their keypoints, which the matches are compared with; None does not.

        Returns:
            [M, 2] int32 (row of `name0`, row of `name1`), ascending in the row of the file's first photo.

        Raises:
            KeyError: no such pair.
            ValueError: its arrays are damaged, no rows at all, or of other keypoints than these.
        """
        return self._read(name0, name1, extents)[0]

    def read(
        self, name0: str, name1: str, extents: tuple[Extent, Extent] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """`indices` and the scores of the matches, [M] float32 (1 where the file has none).

        Raises:
            KeyError, ValueError: as `indices`, or scores of another number than rows or matches.
        """
        indices, key, chosen = self._read(name0, name1, extents)
        with self._reading(f"scores of {name0!r} and {name1!r}"):
            item = self._file[key]
            if hasattr(item, "shape") or _SCORES not in item:
                return indices, np.ones(len(indices), np.float32)
            scores = array(item, _SCORES, np.float32, (None,))
            count = len(item[_ROWS])
        if len(scores) not in (count, len(indices)):
            raise ValueError(
                f"{self.path}: {name0!r} and {name1!r} have {len(scores)} scores, expected {count} as {_ROWS} has rows"
            )
        if not np.isfinite(scores).all():
            raise ValueError(f"{self.path}: scores of {name0!r} and {name1!r} are not all finite")
        return indices, scores[chosen] if len(scores) == count else scores

    def rows(self, name0: str, name1: str) -> int | None:
        """How many keypoints of `name0` a pair's matches are of; None where the file does not say.

        Raises:
            KeyError: no such pair.
            ValueError: its arrays are damaged.
        """
        key, reverse = self._find(name0, name1)
        with self._reading(f"matches of {name0!r} and {name1!r}"):
            item = self._file[key]
            if hasattr(item, "shape"):  # matches alone
                return None
            if not reverse:
                return len(item[_ROWS])
            stated = _stated(item.attrs, 1)
        return None if stated is None else stated.rows

    def _read(
        self, name0: str, name1: str, extents: tuple[Extent, Extent] | None
    ) -> tuple[np.ndarray, str, np.ndarray]:
        """Rows of the pair, its key, and which rows of `matches0` have a match."""
        key, reverse = self._find(name0, name1)
        names, sides = ((name1, name0), extents and extents[::-1]) if reverse else ((name0, name1), extents)
        where = f"{self.path}: matches of {name0!r} and {name1!r}"
        with self._reading(f"matches of {name0!r} and {name1!r}"):
            item = self._file[key]
            listed = hasattr(item, "shape")  # an array, no group
            values = array(self._file, key).reshape(-1, 2) if listed else array(item, _ROWS, shape=(None,))
            stated = (None, None) if listed else tuple(_stated(item.attrs, side) for side in (0, 1))
        rows = _whole(values, where)
        if not listed:
            self._check_extents(where, names, len(rows), stated, sides)
            chosen = np.flatnonzero(rows >= 0)
            indices = np.stack([chosen, rows[chosen]], axis=1).astype(np.int32)
        else:
            chosen, indices = np.arange(len(rows)), rows.astype(np.int32)
        return (indices[:, ::-1] if reverse else indices), key, chosen

    def _check_extents(
        self, where: str, names: Pair, count: int, stated: Sequence[Extent | None], sides: Sequence[Extent] | None
    ) -> None:
        """Raises ValueError where the matches are of other keypoints than those of the photos."""
        if stated[0] is not None and stated[0].rows != count:
            raise ValueError(f"{where}: {_ROWS} has {count} rows, expected {stated[0].rows} of {names[0]!r}")
        for side, (name, given) in enumerate(zip(names, sides or (), strict=False)):
            made = stated[side]
            rows = made.rows if made is not None else (count, given.rows)[side]
            if rows != given.rows:
                raise ValueError(
                    f"{where} are of {rows} keypoints of {name!r}, which has {given.rows}: give the features "
                    "that were matched, in the order in which they were"
                )
            if made is not None and not np.abs(made.place - given.place).max() <= PLACE_TOLERANCE_PX:
                raise ValueError(
                    f"{where} are of {rows} other keypoints of {name!r} than those in the features given (mean "
                    f"{np.round(made.place, 2).tolist()} and {np.round(given.place, 2).tolist()} px); match "
                    "these features"
                )

    # --- Pairs and where they lie ------------------------------------------------------------------------

    def _find(self, name0: str, name1: str) -> tuple[str, bool]:
        """Where a pair lies, and whether its photos stand in the other order there."""
        for pair, reverse in (((name0, name1), False), ((name1, name0), True)):
            key = pair_key(*pair)
            with self._reading(f"matches of {name0!r} and {name1!r}"):
                there = key in self._file
            if there:
                return key, reverse
            if pair in self._keys_of_pairs():
                return self._keys_of_pairs()[pair], reverse
        raise KeyError(f"{self.path}: no matches of {name0!r} and {name1!r}")

    def _keys_of_pairs(self) -> dict[Pair, str]:
        if self._keys is None:
            with self._reading("the list of pairs"):
                items = list(_items(self._file, ""))
                pairs = [key for key, attributes in items if attributes is not None]
                what = content(self._file) if len(self._file) and not pairs else None
            if what is not None:
                raise ValueError(f"{self.path}: holds no matches: it is {what}")
            if others := [key for key, attributes in items if attributes is None]:
                raise ValueError(f"{self.path}: {others[0]!r} is no matches, expected 'matches0' or rows, int [M, 2]")
            self._keys = {}
            for key, attributes in items:
                assert attributes is not None
                stated = [attributes.get("name0"), attributes.get("name1")]
                if strange := [name for name in stated if not isinstance(name, (str, type(None)))]:
                    raise ValueError(f"{self.path}: {key!r} is of the photo {strange[0]!r}, expected a name")
                pair = self._pair(key) if None in stated else tuple(stated)
                self._keys.setdefault(pair, key)  # type: ignore[arg-type]
        return self._keys

    def _pair(self, key: str) -> Pair:
        """The names in a key that no attribute tells: known photos, or else what the key looks like."""
        splits = [(key[:i], key[i + 1 :]) for i, c in enumerate(key) if c in "/_" and 0 < i < len(key) - 1]
        if key.count("/") == 1 and "_" not in key.replace("/", "") or not splits:
            splits = [tuple(key.split("/", 1))] if "/" in key else [(key, "")]  # type: ignore[list-item]
        known = [
            tuple(self._known[name.replace("/", "-")] for name in pair)
            for pair in splits
            if all(name.replace("/", "-") in self._known for name in pair)
        ]
        if len(set(known)) > 1:
            told = " or ".join(f"{a!r} and {b!r}" for a, b in known[:2])
            raise ValueError(f"{self.path}: the pair {key!r} may be {told}")
        if known:
            return known[0]  # type: ignore[return-value]
        nested = [pair for pair in splits if f"{pair[0]}/{pair[1]}" == key]
        named = [pair for pair in splits if Path(pair[0]).suffix and Path(pair[1]).suffix]
        a, b = (nested if key.count("/") == 1 else named or nested or splits)[0]
        return self._known.get(a, a), self._known.get(b, b)

    @contextlib.contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Names the file where its inner structure is broken; h5py gives None for a group that is."""
        try:
            yield
        except (*DAMAGE, AttributeError, TypeError, IndexError, OverflowError, ValueError) as error:
            raise ValueError(f"{self.path}: {what} cannot be read, the file is damaged ({error})") from error


def _stated(attributes: Mapping[str, Any], side: int) -> Extent | None:
    """What a pair's attributes say of the keypoints of one of its photos."""
    if f"rows{side}" not in attributes:
        return None
    place = np.asarray(attributes[f"place{side}"], np.float64)
    if place.shape != (2,):
        raise ValueError(f"place{side} has shape {list(place.shape)}, expected [2]")
    return Extent(int(attributes[f"rows{side}"]), place)


def _items(group: h5py.Group, prefix: str) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Key and stated names of each pair, a group with `matches0` or an array of rows itself; None of other arrays."""
    for name, item in group.items():
        if hasattr(item, "shape"):
            rows = item.size == 0 or (item.ndim == 2 and item.shape[1] == 2)
            yield prefix + name, {} if rows and np.issubdtype(item.dtype, np.integer) else None
        elif _ROWS in item:
            yield prefix + name, {key: item.attrs[key] for key in ("name0", "name1") if key in item.attrs}
        else:
            yield from _items(item, f"{prefix}{name}/")


def _whole(values: np.ndarray, where: str) -> np.ndarray:
    """Rows as int64; raises ValueError where they are no whole numbers, or below 0 in a list of matches alone."""
    if not np.issubdtype(values.dtype, np.number) or np.issubdtype(values.dtype, np.complexfloating):
        raise ValueError(f"{where} have dtype {values.dtype}, expected whole numbers")
    limits = np.iinfo(np.int32)
    least, limit = limits.min if values.ndim == 1 else 0, limits.max  # of `matches0`, what is below 0 is no match
    fine = (values >= least) & (values <= limit) & (values == np.floor(values))
    if not fine.all():
        bad = values[~fine][0]
        raise ValueError(
            f"{where} name row {bad}, expected whole numbers from {least} to {limit} "
            f"({int((~fine).sum())} of {values.size} are none)"
        )
    return values.astype(np.int64)
