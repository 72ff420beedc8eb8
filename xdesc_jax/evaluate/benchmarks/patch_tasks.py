"""Which patches the HPatches benchmark compares: its official lists, or lists drawn as those were.

In: sequences with their numbers of patches, and perhaps the folder `tasks` of the official benchmark. Out: pairs to
verify, queries and distractors to retrieve, as rows of all patches put one behind another. Imports numpy alone.

Verification has a million positive pairs and as many negatives twice: of one sequence (intra), and of two (inter).
Retrieval asks for the places of 5000 reference patches among 20 000 others. Matching needs no list.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

IMAGES = 6  # of a sequence; 0 is the reference
DRAWN_IMAGES = 5  # the official lists name images 0 to 4 alone
PAIRS, QUERIES, DISTRACTORS = 1_000_000, 5_000, 20_000
NEGATIVES = ("intra", "inter")
_PAIR, _PATCH = "s1,t1,idx1,s2,t2,idx2", "s,idx"


@dataclasses.dataclass(frozen=True)
class Pairs:
    """P pairs of patches: image [P, 2] and row [P, 2] of both, int64; rows count over all sequences."""

    image: np.ndarray
    row: np.ndarray

    def __len__(self) -> int:
        return len(self.row)


@dataclasses.dataclass(frozen=True)
class Tasks:
    """What is compared.

    Attributes:
        positive: pairs of one place.
        negative: 'intra' and 'inter' -> pairs of two places.
        queries, distractors: [Q] and [M] rows of reference patches.
        query_of, distractor_of: [Q] and [M], which sequence each is of: a query's own do not count as distractors.
        origin: where the lists come from.
        official: whether they are the benchmark's own.
    """

    positive: Pairs
    negative: Mapping[str, Pairs]
    queries: np.ndarray
    distractors: np.ndarray
    query_of: np.ndarray
    distractor_of: np.ndarray
    origin: str
    official: bool


def offsets(counts: Sequence[int]) -> np.ndarray:
    """[S + 1] where each sequence's rows begin, and where the last ends."""
    return np.concatenate([[0], np.cumsum(counts)])


def draw(
    counts: Sequence[int], textured: Sequence[np.ndarray], *, pairs: int = PAIRS, queries: int = QUERIES,
    distractors: int = DISTRACTORS, seed: int = 42,
) -> Tasks:  # fmt: skip
    """Lists drawn as the official ones were.

    Args:
        counts: patches of each sequence, two at least of two at least.
        textured: of each sequence, [N] bool, whose reference patch has contrast; others are not retrieved.
        pairs: of each kind.
        queries, distractors: as many, or all that there are: a fifth and the rest.
        seed: of the draw.
    """
    rng = np.random.default_rng(seed)
    starts, sizes = offsets(counts), np.asarray(counts)
    sequence = rng.integers(len(sizes), size=pairs)
    first = rng.integers(sizes[sequence])
    second = (first + 1 + rng.integers(sizes[sequence] - 1)) % sizes[sequence]
    elsewhere = (sequence + 1 + rng.integers(len(sizes) - 1, size=pairs)) % len(sizes)
    image = rng.integers(DRAWN_IMAGES, size=pairs)
    images = np.stack([image, (image + 1 + rng.integers(DRAWN_IMAGES - 1, size=pairs)) % DRAWN_IMAGES], axis=1)

    def with_first(rows: np.ndarray) -> Pairs:
        return Pairs(images, np.stack([starts[sequence] + first, rows], axis=1))

    inter = starts[elsewhere] + rng.integers(sizes[elsewhere])
    clear = np.flatnonzero(np.concatenate(list(textured)))
    # As many sequences, not patches, are alike likely.
    chance = np.repeat(1 / sizes, sizes)[clear]
    asked = min(queries + distractors, len(clear))
    order = rng.choice(clear, asked, replace=False, p=chance / chance.sum())
    asking = min(queries, max(1, asked * queries // (queries + distractors)))
    found, others = order[:asking], order[asking:]
    negative = {"intra": with_first(starts[sequence] + second), "inter": with_first(inter)}
    return Tasks(
        with_first(starts[sequence] + first), negative,
        found, others, _sequence(found, starts), _sequence(others, starts),
        f"{pairs:,} pairs of each kind, {len(found):,} queries and {len(others):,} distractors drawn with seed {seed}",
        official=False,
    )  # fmt: skip


def read(folder: Path, split: str, names: Sequence[str], counts: Sequence[int]) -> Tasks:
    """The official lists of a split.

    Args:
        folder: `tasks` of the official benchmark (hpatches-benchmark).
        split: its name.
        names, counts: the sequences of the split and their numbers of patches.

    Raises:
        FileNotFoundError: a list is missing.
        ValueError: a line that is none, or names a sequence or patch that is not there.
    """
    starts = offsets(counts)
    place = {name: (int(start), int(count)) for name, start, count in zip(names, starts, counts, strict=False)}

    def path(kind: str) -> Path:
        return folder / f"{kind}_split-{split}.csv"

    positive = _read_pairs(path("verif_pos"), place)
    negative = {kind: _read_pairs(path(f"verif_neg_{kind}"), place) for kind in NEGATIVES}
    queries, others = (_read_patches(path(f"retr_{kind}"), place) for kind in ("queries", "distractors"))
    return Tasks(
        positive, negative, queries, others, _sequence(queries, starts), _sequence(others, starts),
        f"the official lists of split {split}", official=True,
    )  # fmt: skip


def _sequence(rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return np.searchsorted(starts, rows, side="right") - 1


def _read_pairs(path: Path, place: Mapping[str, tuple[int, int]]) -> Pairs:
    values = [
        (
            _number(path, line, t1),
            _number(path, line, t2),
            _row(path, line, place, s1, i1),
            _row(path, line, place, s2, i2),
        )
        for line, (s1, t1, i1, s2, t2, i2) in _lines(path, _PAIR)
    ]
    table = np.array(values, np.int64).reshape(-1, 4)
    if table[:, :2].max(initial=0) >= IMAGES:
        raise ValueError(f"{path}: names image {table[:, :2].max()}, expected 0 to {IMAGES - 1}")
    return Pairs(table[:, :2], table[:, 2:])


def _read_patches(path: Path, place: Mapping[str, tuple[int, int]]) -> np.ndarray:
    return np.array([_row(path, line, place, s, i) for line, (s, i) in _lines(path, _PATCH)], np.int64)


def _row(path: Path, line: int, place: Mapping[str, tuple[int, int]], name: str, number: str) -> int:
    start, count = place.get(name, (0, 0))
    row = _number(path, line, number)
    if row >= count:
        has = f"which has {count} patches" if name in place else "which is not in the split"
        raise ValueError(f"{path}, line {line}: names patch {row} of {name!r}, {has}")
    return start + row


def _number(path: Path, line: int, text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{path}, line {line}: {text[:20]!r} is no number of an image or patch")
    return int(text)


def _lines(path: Path, header: str) -> Iterator[tuple[int, list[str]]]:
    """Number and values of each line behind the header."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no such list; the official ones are in the folder tasks of hpatches-benchmark"
        )
    with path.open(encoding="utf-8") as file:
        if (first := file.readline().strip()) != header:
            raise ValueError(f"{path}: begins with {first[:60]!r}, expected {header!r}")
        for number, text in enumerate(file, start=2):
            values = text.strip().split(",")
            if len(values) == header.count(",") + 1:
                yield number, values
            elif text.strip():
                raise ValueError(f"{path}, line {number}: is {text[:60]!r}, expected {header!r}")
