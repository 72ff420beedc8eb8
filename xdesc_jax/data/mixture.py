"""Several records folders as one source: each batch holds a fixed share of rows of each.

In: folders with weights. Out: batches of `patch`, `pair` and `point` as a function of the step alone: step n takes
from source k the batch divmod(n, its batches per epoch) of that source, so a smaller one comes round more often.
The rows of a batch are interleaved, so that any contiguous part of it holds each source's share; a host takes the part
of its place, so the batch is the same for any number of hosts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.data import open_source
from xdesc_jax.data.resident import ROW, ResidentSet
from xdesc_jax.data.schema import MASK, PAIR, PATCH, POINT, TRAIN, RecordInfo
from xdesc_jax.data.source import Columns, Source

COLUMNS = (PATCH, PAIR, POINT)


@dataclasses.dataclass(frozen=True)
class Part:
    """One folder of a mixture; weight None: by its rows."""

    path: Path
    weight: float | None = None


def parse_parts(words: Sequence[str]) -> list[Part]:
    """Reads PATH or PATH=WEIGHT words.

    Raises:
        ValueError: none, a folder twice, a weight that is not positive, or weights for some only.
    """
    parts = []
    for word in words:
        path, _, weight = word.rpartition("=")
        try:
            parts.append(Part(Path(path), float(weight)) if path else Part(Path(word)))
        except ValueError:  # a path that has a '=' of its own
            parts.append(Part(Path(word)))
    if not parts:
        raise ValueError("no records are given, expected --data RECORDS or --data RECORDS=WEIGHT")
    if twice := [p.path for i, p in enumerate(parts) if p.path.resolve() in {q.path.resolve() for q in parts[:i]}]:
        raise ValueError(f"--data {twice[0]}: is given twice")
    if bad := [p for p in parts if p.weight is not None and not 0 < p.weight < float("inf")]:
        raise ValueError(f"--data {bad[0].path}: weight is {bad[0].weight}, expected above 0")
    if len({p.weight is None for p in parts}) > 1:
        raise ValueError(f"--data: give all {len(parts)} records a weight or none, found {' '.join(words)}")
    return parts


def shares(weights: Sequence[float], batch_size: int) -> list[int]:
    """Rows of a batch for each weight: proportional, rounded by largest remainder; their sum is the batch size.

    Raises:
        ValueError: a share comes to no row.
    """
    exact = np.asarray(weights, np.float64) / np.sum(weights) * batch_size
    rows = np.floor(exact).astype(int)
    largest = np.argsort(rows - exact, kind="stable")
    rows[largest[: batch_size - rows.sum()]] += 1
    if not rows.all():
        raise ValueError(f"weights {list(weights)} give batches of {batch_size} the rows {rows.tolist()}: none of one")
    return rows.tolist()


def interleaved(rows: Sequence[int]) -> np.ndarray:
    """The order that spreads the rows of sources, which lie one source after the other, evenly; int64 [sum]."""
    places = np.concatenate([(np.arange(n) + 0.5) / n for n in rows])
    return np.argsort(places, kind="stable")


class Mixture:
    """The training split of several folders of pairs.

    Args:
        parts: the folders.
        batch_size: rows of a batch.
        seed: of the order of rows.
        resident: hold everything in memory.
        rows_per_epoch: rows of an epoch, rounded down to whole batches; None: an epoch ends when every source
            has been gone through once, the others more often.
        host: index of this host.
        num_hosts: hosts that share each batch; each reads all rows and keeps its own.

    Attributes:
        infos: what the folders hold.
        weights: their weights, as given or their rows.
        shares: rows of each in a batch.
        batches_per_epoch: steps of an epoch.
        rows: rows of an epoch.

    Raises:
        FileNotFoundError, ValueError: as `RecordInfo.load` and `Source`; a folder without pairs.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        batch_size: int,
        seed: int = 0,
        resident: bool = False,
        rows_per_epoch: int | None = None,
        host: int = 0,
        num_hosts: int = 1,
    ):
        self.infos = pair_records(parts)
        rows = [sum(info.shard_rows(TRAIN)) for info in self.infos]
        self.weights = [float(n if p.weight is None else p.weight) for p, n in zip(parts, rows, strict=True)]
        self.shares = shares(self.weights, batch_size)
        self._sources: list[Source] = [
            open_source(part.path, TRAIN, share, columns=COLUMNS, seed=seed, resident=resident)
            for part, share in zip(parts, self.shares, strict=True)
        ]
        if batch_size % num_hosts:
            raise ValueError(f"batch size is {batch_size}, expected a multiple of {num_hosts} hosts")
        own = batch_size // num_hosts
        self._order = interleaved(self.shares)[host * own : (host + 1) * own]
        self.batches_per_epoch = max(source.batches_per_epoch for source in self._sources)
        if rows_per_epoch is not None:
            self.batches_per_epoch = rows_per_epoch // batch_size
            if not self.batches_per_epoch:
                raise ValueError(f"rows_per_epoch is {rows_per_epoch}, fewer than one batch of {batch_size}")
        self.rows = self.batches_per_epoch * batch_size
        self.resident = resident
        self.around = None

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[Columns]:
        """Yields the batches of `epoch` from `start_batch` on: {'patch', 'pair', 'point', 'mask'}."""
        streams = [_stream(source, self._first(epoch, start_batch)) for source in self._sources]
        for _ in range(start_batch, self.batches_per_epoch):
            found = [next(stream) for stream in streams]
            for k, batch in enumerate(found):
                batch[POINT] = self._numbered(batch[POINT], k)
            yield {name: np.concatenate([b[name] for b in found])[self._order] for name in (*COLUMNS, MASK)}

    def row_batches(self, epoch: int, start_batch: int = 0) -> Iterator[Columns]:
        """The same batches as indices into `take_arrays`: {'row', 'mask'}. Only where resident."""
        offsets = np.cumsum([0, *(source.rows for source in self._sources)])
        streams = [_stream(source, self._first(epoch, start_batch), "row_batches") for source in self._sources]
        for _ in range(start_batch, self.batches_per_epoch):
            found = [next(stream) for stream in streams]
            row = np.concatenate([b[ROW] + np.int32(start) for b, start in zip(found, offsets, strict=False)])
            yield {ROW: row[self._order], MASK: np.concatenate([b[MASK] for b in found])[self._order]}

    def take_arrays(self) -> Columns:
        """All sources' columns, one after the other; they are handed over, so that they are in memory only once."""
        total = sum(source.rows for source in self._sources)
        arrays: Columns = {}
        for name in COLUMNS:
            column = self.infos[0].columns[name]
            arrays[name] = np.empty((total, *column.shape), column.dtype)
            start = 0
            for k, source in enumerate(self._sources):
                assert isinstance(source, ResidentSet)
                part = source.arrays.pop(name)
                arrays[name][start : start + len(part)] = self._numbered(part, k) if name == POINT else part
                start += len(part)
        return arrays

    def _first(self, epoch: int, batch: int) -> int:
        return epoch * self.batches_per_epoch + batch

    def _numbered(self, points: np.ndarray, k: int) -> np.ndarray:
        """Numbers of points that no two sources share."""
        numbers = points.astype(np.int64) * len(self._sources) + k
        if len(numbers) and max(numbers.max(), -numbers.min()) > np.iinfo(np.int32).max:
            raise ValueError(f"{self.infos[k].path}: point numbers up to {points.max()} are too large to be mixed")
        return numbers.astype(np.int32)


def _stream(source: Source, step: int, method: str = "epoch") -> Iterator[Columns]:
    """Batches of a source from a step on, epoch after epoch."""
    epoch, batch = divmod(step, source.batches_per_epoch)
    while True:
        yield from getattr(source, method)(epoch, batch)
        epoch, batch = epoch + 1, 0


def pair_records(parts: Sequence[Part]) -> list[RecordInfo]:
    """What the folders hold.

    Raises:
        ValueError: records without pairs.
    """
    infos = [RecordInfo.load(part.path) for part in parts]
    for info in infos:
        if not info.has_pairs:
            raise ValueError(f"{info.path}: records without pairs (columns: {', '.join(info.columns)})")
    return infos


def validation_rows(part: Part, rows: int) -> Columns:
    """The first `rows` rows of a folder's validation split, one of each point: {'patch', 'pair', 'point'}.

    Raises:
        ValueError: they are of fewer than 2 points, of which none has a wrong partner.
    """
    found: list[Columns] = []
    for batch in open_source(part.path, "validation", min(rows, 1024), columns=COLUMNS).epoch(0):
        found.append({name: batch[name][batch[MASK]] for name in COLUMNS})
        if sum(len(b[POINT]) for b in found) >= rows:
            break
    columns = {name: np.concatenate([b[name] for b in found])[:rows] for name in COLUMNS}
    first = np.sort(np.unique(columns[POINT], return_index=True)[1])
    if len(first) < 2:
        told = f"{len(first)} in its first {len(columns[POINT])} rows"
        raise ValueError(f"{part.path}: the validation split has too few points: {told}, expected at least 2")
    return {name: x[first] for name, x in columns.items()}
