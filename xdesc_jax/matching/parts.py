"""What has been matched so far: a part file for each few pairs.

In: the matches of pairs, in the order of work. Out: files that appear whole or not at all, and the matches again
when a run that was stopped goes on. Parts are private to one result and removed with it; match files and
databases are what lasts.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.files.whole import atomic, read_json, write_json


@dataclasses.dataclass(frozen=True)
class PairMatches:
    """Matches of two photos.

    Attributes:
        name0, name1: the photos.
        rows0: keypoints of the first.
        indices: [M, 2] int32, row of the first and row of the second photo.
        scores: [M] float32.
    """

    name0: str
    name1: str
    rows0: int
    indices: np.ndarray
    scores: np.ndarray


class MatchParts:
    """A folder of parts; iterates over all matches in order.

    Args:
        folder: where they lie; parts of another configuration are removed.
        config_hash: what they are made with, and how many pairs a part has.
    """

    def __init__(self, folder: Path, config_hash: str):
        self.folder, self._config_hash = folder, config_hash
        self._marker = folder / "config.json"
        if folder.exists() and not self._is_ours():
            shutil.rmtree(folder)

    def _is_ours(self) -> bool:
        try:
            return self._marker.exists() and read_json(self._marker) == self._config_hash
        except ValueError:  # cut short
            return False

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:07d}.npz"

    def has(self, number: int) -> bool:
        """Whether a part is there and whole."""
        try:
            return self._path(number).exists() and len(self._load(number)) > 0
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return False

    def save(self, number: int, found: Sequence[PairMatches]) -> None:
        """Writes a part; with the first one, the folder."""
        if not self._marker.exists():
            write_json(self._marker, self._config_hash)
        with atomic(self._path(number)) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                names=np.array(json.dumps([(f.name0, f.name1) for f in found])),
                rows0=np.array([f.rows0 for f in found], np.int64),
                counts=np.array([len(f.indices) for f in found], np.int64),
                indices=np.concatenate([f.indices for f in found]).astype(np.int32),
                scores=np.concatenate([f.scores for f in found]).astype(np.float32),
            )

    def _load(self, number: int) -> list[PairMatches]:
        # np.load leaves a file open that is cut short.
        with self._path(number).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            names, rows0 = json.loads(str(arrays["names"])), arrays["rows0"]
            bounds = np.cumsum(arrays["counts"])[:-1]
            indices, scores = np.split(arrays["indices"], bounds), np.split(arrays["scores"], bounds)
        return [PairMatches(a, b, int(n), i, s) for (a, b), n, i, s in zip(names, rows0, indices, scores, strict=True)]

    def __iter__(self) -> Iterator[PairMatches]:
        for path in sorted(self.folder.glob("*.npz")):
            yield from self._load(int(path.stem))

    def remove(self) -> None:
        """Removes all parts."""
        shutil.rmtree(self.folder, ignore_errors=True)
