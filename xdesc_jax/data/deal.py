"""Which shard each row goes to, and the order inside a shard.

In: how many rows there are, and a seed. Out: the shard of any rows, as if all had been shuffled and cut into shards of
equal size; or, where photos stay whole, as if these had been. Whoever writes shards asks it, so that all write the
same. The shuffle of rows is a keyed permutation that is computed for the rows asked for alone, in time and memory of
these, however many there are: a Feistel network on a grid (Black and Rogaway, "Ciphers with arbitrary finite domains",
2002) whose round function is the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
generators", 2014).
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

DEAL_VERSION = 2  # kept in the configuration of records: another one deals the same rows in another order
ROUNDS = 6


@dataclasses.dataclass(frozen=True)
class Deal:
    """The deal of a split's rows.

    Attributes:
        rows: how many there are.
        rows_per_shard: the most that a shard may have.
        seed: of the dealing and of the order inside a shard.
    """

    rows: int
    rows_per_shard: int
    seed: int

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return -(-self.rows // self.rows_per_shard)

    @property
    def shard_rows(self) -> list[int]:
        """Rows of each shard; they differ by one at most."""
        return np.diff(np.arange(self.shards + 1) * self.rows // max(self.shards, 1)).tolist()

    def rows_of(self, shard: int) -> int:
        """Rows of one shard."""
        return (shard + 1) * self.rows // self.shards - shard * self.rows // self.shards

    def shard_of(self, start: int, stop: int) -> np.ndarray:
        """The shards of the rows from `start` to below `stop`, in the order of their photos; int64 [stop - start]."""
        places = shuffled(np.arange(start, stop), self.rows, self.seed)
        return ((places + 1) * self.shards - 1) // max(self.rows, 1)

    def order(self, shard: int) -> np.ndarray:
        """What permutes the rows of a shard, which come in the order of their photos, int64 [rows of the shard]."""
        return np.random.default_rng([self.seed, shard]).permutation(self.rows_of(shard))


@dataclasses.dataclass(frozen=True)
class PhotoDeal:
    """The deal of a split's rows where those of a photo stay together, in one shard and in their order.

    Shards are cut from the photos in random order, as near to equal size as whole photos allow.

    Attributes:
        photo_rows: rows of each photo, 1 or more, in the order in which they come.
        rows_per_shard: what a shard has at most, give or take a photo.
        seed: of the photos' order.
    """

    photo_rows: tuple[int, ...]
    rows_per_shard: int
    seed: int

    @functools.cached_property
    def _ends(self) -> np.ndarray:
        """Number of the row behind each photo's last, int64."""
        return np.cumsum(self.photo_rows, dtype=np.int64)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self._ends[-1]) if self.photo_rows else 0

    @functools.cached_property
    def _shard_of_photo(self) -> np.ndarray:
        counts = np.array(self.photo_rows, np.int64)
        order = np.random.default_rng([self.seed]).permutation(len(counts))
        middles = 2 * np.cumsum(counts[order]) - counts[order]  # in half rows
        # A photo that is larger than a shard leaves a number unused: those that are used count.
        _, shards = np.unique(middles * -(-self.rows // self.rows_per_shard) // (2 * self.rows), return_inverse=True)
        found = np.empty(len(counts), np.int64)
        found[order] = shards
        return found

    @functools.cached_property
    def shard_rows(self) -> list[int]:
        """Rows of each shard."""
        return np.bincount(self._shard_of_photo, self.photo_rows).astype(int).tolist() if self.photo_rows else []

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return len(self.shard_rows)

    def rows_of(self, shard: int) -> int:
        """Rows of one shard."""
        return self.shard_rows[shard]

    def shard_of(self, start: int, stop: int) -> np.ndarray:
        """The shards of the rows from `start` to below `stop`, int64 [stop - start]."""
        return self._shard_of_photo[np.searchsorted(self._ends, np.arange(start, stop), side="right")]

    def order(self, shard: int) -> np.ndarray:
        """The order of a shard's rows, that in which they come: int64 [rows of the shard]."""
        return np.arange(self.rows_of(shard))


AnyDeal = Deal | PhotoDeal


def shuffled(rows: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Where a shuffle puts some of `count` rows: a permutation of 0 to below `count`, a function of the seed.

    Args:
        rows: int [N], from 0 to below `count`.
        count: how many there are, up to 2**62.
        seed: of the shuffle.

    Returns:
        int64 [N], each below `count`.
    """
    if not len(rows):
        return np.zeros(0, np.int64)
    width = math.isqrt(count - 1) + 1
    height = -(-count // width)
    keys = np.random.SeedSequence(seed, spawn_key=(0,)).generate_state(ROUNDS, np.uint64)
    places = _network(np.asarray(rows, np.uint64), height, width, keys)
    # The last line of the grid may be longer than the rows: who lands behind them goes on until within.
    while len(outside := np.flatnonzero(places >= count)):
        places[outside] = _network(places[outside], height, width, keys)
    return places.astype(np.int64)


def _network(cells: np.ndarray, height: int, width: int, keys: np.ndarray) -> np.ndarray:
    """Permutes the cells of a grid, uint64 [N]: lines and columns are shifted in turn, each by what the other draws."""
    line, column = np.divmod(cells, np.uint64(width))
    for index in range(ROUNDS):
        key = keys[index : index + 1]
        if index % 2:
            column = _shifted(column, _draw(line ^ key, width), width)
        else:
            line = _shifted(line, _draw(column ^ key, height), height)
    return line * np.uint64(width) + column


def _shifted(values: np.ndarray, by: np.ndarray, size: int) -> np.ndarray:
    """values + by modulo `size`, both below it."""
    total = values + by
    total[total >= size] -= np.uint64(size)
    return total


def _draw(bits: np.ndarray, size: int) -> np.ndarray:
    """A number from 0 to below `size` (at most 2**32) for each of uint64 [N], its bits mixed first."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return (bits >> np.uint64(32)) * np.uint64(size) >> np.uint64(32)
