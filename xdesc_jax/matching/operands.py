"""Rows of two sets as operands of the matrix product that compares them.

In: two sets of rows of one descriptor, canonical real rows or packed bits. Out: both with their products, offsets and
exact distances, which `nearest` searches. Bits go through a product of -1 and 1, which float32 counts exactly.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

PAIRS = 16384  # pairs whose differences are computed at a time


class RealRows:
    """Real rows, centred: similarity is a.b - |a|^2 / 2 - |b|^2 / 2 = -d^2 / 2."""

    def __init__(self, x: np.ndarray, valid: np.ndarray, centre: np.ndarray):
        # Distances do not change with the origin, but the less rows have in common the less cancels.
        self.x = np.where(valid[:, None], x - centre, 0).astype(np.float32, copy=False)
        self.half = np.einsum("nd,nd->n", self.x, self.x) / 2
        self.offset = np.where(valid, self.half, np.float32(np.inf))
        self.skipped = int((~valid).sum())

    def __len__(self) -> int:
        return len(self.x)

    def operand(self, at: slice) -> np.ndarray:
        """float32 [n, D] rows for `product`."""
        return self.x[at]

    def product(self, x: np.ndarray, at: slice, out: np.ndarray) -> None:
        """Operand x [n, D] times rows `at` of these, into out [n, m]."""
        np.matmul(x, self.x[at].T, out=out)

    def take(self, rows: np.ndarray) -> RealRows:
        taken = object.__new__(RealRows)
        taken.x, taken.half, taken.offset, taken.skipped = self.x[rows], self.half[rows], self.offset[rows], 0
        return taken

    def squared_distances(self, i: np.ndarray, other: RealRows, j: np.ndarray) -> np.ndarray:
        """Exact squared distances of row pairs, float64 [n]."""
        result = np.empty(len(i))
        for part in slices(len(i), PAIRS):
            difference = self.x[i[part]].astype(np.float64) - other.x[j[part]]
            result[part] = np.einsum("nd,nd->n", difference, difference)
        return result

    def distances(self, i: np.ndarray, other: RealRows, j: np.ndarray) -> np.ndarray:
        return np.sqrt(self.squared_distances(i, other, j))


class BinaryRows:
    """Packed bits; similarity is the product of -1 and 1: bits - 2 * Hamming distance."""

    def __init__(self, x: np.ndarray):
        self.x = x
        valid = x.any(axis=1)
        self.offset = np.where(valid, np.float32(0), np.float32(np.inf))
        self.skipped = int((~valid).sum())

    def __len__(self) -> int:
        return len(self.x)

    def operand(self, at: slice) -> np.ndarray:
        """float32 [n, bits] of -1 and 1 for `product`."""
        bits = np.unpackbits(self.x[at], axis=1).astype(np.float32)
        bits *= 2
        bits -= 1
        return bits

    def product(self, x: np.ndarray, at: slice, out: np.ndarray) -> None:
        """Operand x [n, bits] times rows `at` of these, into out [n, m].

        Counts of 512 bits leave most of float32's 24 bits idle, so two rows share a column,
        low + base * high, and half the products give both.
        """
        rows = self.operand(at)
        bits, m = rows.shape[1], len(rows)
        base = 2.0 ** np.ceil(np.log2(2 * bits + 2))
        if bits * (base + 1) >= 2**24:
            np.matmul(x, rows.T, out=out)
            return
        middle = (m + 1) // 2
        shared = rows[:middle]
        shared[: m - middle] += np.float32(base) * rows[middle:]
        np.matmul(x, shared.T, out=out[:, :middle])
        low, high = out[:, : m - middle], out[:, middle:]
        np.rint(np.multiply(low, np.float32(1 / base), out=high), out=high)
        low -= np.float32(base) * high

    def distances(self, i: np.ndarray, other: BinaryRows, j: np.ndarray) -> np.ndarray:
        """Hamming distances of row pairs, [n]."""
        result = np.empty(len(i))
        for part in slices(len(i), PAIRS):
            different = self.x[i[part]] ^ other.x[j[part]]
            result[part] = np.unpackbits(different, axis=1).sum(axis=1)
        return result


Rows = RealRows | BinaryRows


def operands(a: np.ndarray, b: np.ndarray, binary: bool) -> tuple[Rows, Rows]:
    a, b = np.asarray(a), np.asarray(b)
    for x in (a, b):
        if x.ndim != 2 or (x.dtype != np.uint8 if binary else not np.issubdtype(x.dtype, np.floating)):
            expected = "packed bits, uint8 [N, bytes]" if binary else "floats [N, D]"
            raise ValueError(f"rows to match are {x.dtype} {list(x.shape)}, expected {expected}")
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"rows to match have widths {a.shape[1]} and {b.shape[1]}, expected equal ones")
    if binary:
        return BinaryRows(a), BinaryRows(b)
    a, b = a.astype(np.float32, copy=False), b.astype(np.float32, copy=False)
    # NaN is not equal to itself and inf - inf is NaN, so the sum of a bad row is not finite.
    valid_a, valid_b = (x.any(axis=1) & np.isfinite(x).all(axis=1) for x in (a, b))
    count = int(valid_a.sum() + valid_b.sum())
    total = sum(x.sum(axis=0, where=v[:, None], dtype=np.float64) for x, v in ((a, valid_a), (b, valid_b)))
    centre = (total / max(count, 1)).astype(np.float32)
    with np.errstate(invalid="ignore"):
        return RealRows(a, valid_a, centre), RealRows(b, valid_b, centre)


def slices(n: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` that cover 0..n."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))
