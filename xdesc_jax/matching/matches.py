"""Match files: the only reader and writer of the .h5 format (hloc's layout).

In: matches of photo pairs. Out: one group a pair, `<name0>/<name1>` with '/' in names as '-', holding
`matches0` [N0] int32 (row of the second photo, -1 for none) and `matching_scores0` [N0] float32. hloc reads
it; we add the photos' names as group attributes and the file attributes `version` and `config_hash`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.files.whole import atomic

VERSION = 1


def pair_key(name0: str, name1: str) -> str:
    """The group of a pair."""
    return f"{name0.replace('/', '-')}/{name1.replace('/', '-')}"


def check_names(names: Iterable[str]) -> None:
    """Raises ValueError where two photo names become the same group name."""
    seen: dict[str, str] = {}
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


class MatchWriter:
    """Writes a match file; use as a context manager. The file appears when the block ends without error."""

    def __init__(self, path: Path | str, attributes: dict[str, Any] | None = None):
        self.path = Path(path)
        self._attributes = attributes or {}

    def __enter__(self) -> MatchWriter:
        import h5py

        self._atomic = atomic(self.path)
        self._file = h5py.File(self._atomic.__enter__(), "w")
        self._file.attrs.update(self._attributes | {"version": VERSION})
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.close()
        self._atomic.__exit__(*error)

    def write(self, name0: str, name1: str, rows0: int, indices: np.ndarray, scores: np.ndarray) -> None:
        """Adds one pair.

        Args:
            name0, name1: the photos.
            rows0: keypoints of the first.
            indices: [M, 2] int32, row of the first and row of the second photo.
            scores: [M] float32.

        Raises:
            ValueError: the pair was written before, in this order or the other.
        """
        if pair_key(name0, name1) in self._file or pair_key(name1, name0) in self._file:
            raise ValueError(f"{self.path}: pair {name0!r}, {name1!r} written twice")
        matches0, scores0 = np.full(rows0, -1, np.int32), np.zeros(rows0, np.float32)
        matches0[indices[:, 0]] = indices[:, 1]
        scores0[indices[:, 0]] = scores
        group = self._file.create_group(pair_key(name0, name1))
        group.attrs.update(name0=name0, name1=name1)
        group["matches0"], group["matching_scores0"] = matches0, scores0


class MatchFile:
    """Reads a match file, ours or hloc's; use as a context manager.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not an HDF5 file, cut short, or a newer version.
    """

    def __init__(self, path: Path | str):
        import h5py

        self.path = Path(path)
        if not self.path.exists():
            raise FileNotFoundError(f"{path}: no such match file")
        try:
            self._file = h5py.File(self.path, "r")
        except OSError as error:
            raise ValueError(f"{path}: not a readable HDF5 file, or cut short ({error})") from error
        self.attributes: dict[str, Any] = dict(self._file.attrs)
        if (version := int(self.attributes.get("version", VERSION))) > VERSION:
            self._file.close()
            raise ValueError(f"{path}: format version {version}, this package reads up to {VERSION}")

    def __enter__(self) -> MatchFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def pairs(self) -> list[tuple[str, str]]:
        """Names of the photos of each pair; as group names where the file (hloc's) holds no others.

        Raises:
            ValueError: the file is damaged.
        """
        with self._reading("the list of pairs"):
            groups = [(a, b, group) for a, second in self._file.items() for b, group in second.items()]
            return [(group.attrs.get("name0", a), group.attrs.get("name1", b)) for a, b, group in groups]

    def read(self, name0: str, name1: str) -> tuple[np.ndarray, np.ndarray]:
        """Matches of a pair, in whichever order the file holds it.

        Returns:
            indices [M, 2] int32 (row of `name0`, row of `name1`), ascending in the row of the file's first
            photo, and scores [M] float32.

        Raises:
            KeyError: no such pair.
            ValueError: its arrays are damaged.
        """
        for key, reverse in ((pair_key(name0, name1), False), (pair_key(name1, name0), True)):
            if key in self._file:
                with self._reading(f"matches of {name0!r} and {name1!r}"):
                    group = self._file[key]
                    matches0 = np.asarray(group["matches0"], np.int32)
                    i = np.flatnonzero(matches0 >= 0)
                    indices = np.stack([i, matches0[i]], axis=1).astype(np.int32)
                    if "matching_scores0" in group:
                        scores = np.asarray(group["matching_scores0"], np.float32)[i]
                    else:
                        scores = np.ones(len(i), np.float32)
                return (indices[:, ::-1] if reverse else indices), scores
        raise KeyError(f"{self.path}: no matches of {name0!r} and {name1!r}")

    def rows0(self, name0: str, name1: str) -> tuple[str, int]:
        """Which of two photos is the file's first, and how many keypoints of it the file knows."""
        reverse = pair_key(name0, name1) not in self._file
        key = pair_key(name1, name0) if reverse else pair_key(name0, name1)
        with self._reading(f"matches of {name0!r} and {name1!r}"):
            return name1 if reverse else name0, len(self._file[key]["matches0"])

    @contextlib.contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Names the file where its inner structure is broken; h5py gives None for a group that is."""
        try:
            yield
        except (OSError, KeyError, RuntimeError, AttributeError, TypeError, IndexError) as error:
            raise ValueError(f"{self.path}: {what} cannot be read, the file is damaged ({error})") from error
