"""Photos by what they show: a vocabulary, VLAD, and the photos whose vectors are nearest.

In: rows of photos in a joint space, so that photos with different descriptors compare; or one vector a photo, of
whatever made it. Out: for each query the database photos with the most similar vectors. Runs on the base install.

A photo's rows are assigned to the nearest centre of a k-means vocabulary, their residuals summed per centre
(VLAD: Jegou, Douze, Schmid, Perez, CVPR 2010), each sum scaled to unit length, so that repeated texture does
not drown the rest (Arandjelovic and Zisserman, CVPR 2013), and the whole as well; vectors compare by cosine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from xdesc_jax.descriptors import unit_rows

CLUSTERS = 64  # vectors of 64 x 128 floats are 32 KB a photo
SAMPLE_ROWS = 32768  # that the vocabulary is made of
KEPT_BYTES = 1 << 29  # of their photos, which are not read and translated a second time: 500 of 2000 rows
MIN_ROWS_A_PHOTO = 64  # of the sample, so that it comes from at most 512 photos
ITERATIONS = 20
ROWS_A_CENTRE = 4  # at least, on the average
BLOCK = 8192  # rows assigned at a time
QUERY_BLOCK, PHOTO_BLOCK = 1024, 16384  # compared at a time; 64 MB of cosines

RowsOf = Callable[[str], np.ndarray]


class VladIndex:
    """Photos by what they show; read only after `build`, so that threads may share it.

    Args:
        centers: [K, D] float32 vocabulary.
        names: the photos.
        vectors: [V, K * D] float32, unit rows; zero for photos without rows, which nothing retrieves.
    """

    def __init__(self, centers: np.ndarray, names: Sequence[str], vectors: np.ndarray):
        self.centers, self.names, self.vectors = centers, tuple(names), vectors
        self._usable = np.asarray(vectors.any(axis=1))

    @classmethod
    def build(
        cls,
        rows_of: RowsOf,
        names: Sequence[str],
        *,
        clusters: int = CLUSTERS,
        seed: int = 0,
        track: Callable[[Sequence[str]], Iterable[str]] = iter,
        recall: Callable[[str, Callable[[], np.ndarray]], np.ndarray] = lambda _, make: make(),
        where: str = "the features",
    ) -> VladIndex:
        """Makes the vocabulary of some photos and the vectors of all.

        Args:
            rows_of: gives a photo's rows in the joint space, [N, D] float32; zero rows are ignored.
            names: the photos.
            clusters: size of the vocabulary; less where the photos have fewer rows.
            seed: of the sample and of k-means.
            track: goes over the photos, for a progress bar.
            recall: (key, what makes an array) -> the array, where an earlier run may have made it.
            where: the photos' files, for errors.

        Raises:
            ValueError: no photo has a row, or `clusters` is below 1.
        """
        kept: dict[str, np.ndarray] = {}

        def sampled(name: str) -> np.ndarray:
            rows = rows_of(name)
            if sum(other.nbytes for other in kept.values()) + rows.nbytes <= KEPT_BYTES:
                kept[name] = rows
            return rows

        def again(name: str) -> np.ndarray:
            return kept.pop(name) if name in kept else rows_of(name)

        centers = recall("vocabulary", lambda: vocabulary(sampled, names, clusters, seed, where))
        vectors = np.zeros((len(names), centers.size), np.float32)
        for at, name in enumerate(track(names)):
            vectors[at] = recall(f"photo {name}", partial(vector_of, again, name, centers))
        return cls(centers, names, vectors)

    def query(self, rows: np.ndarray, k: int) -> list[str]:
        """The k photos most like one of these rows, the most similar first; none where all rows are zero."""
        index, _ = self.nearest(vlad(rows, self.centers)[None], k)
        return [self.names[i] for i in index[0] if i >= 0]

    def nearest(self, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k photos most like each query.

        Args:
            vectors: [Q, K * D] of `vlad`.
            k: how many, at most.

        Returns:
            Indices into `names`, [Q, k] int, the most similar first (ties: the first photo), -1 where there
            is none; and their cosines, [Q, k] float32, -inf there.
        """
        k = min(k, len(self.names))
        index, scores = np.full((len(vectors), k), -1), np.full((len(vectors), k), -np.inf, np.float32)
        for start in range(0, len(vectors), QUERY_BLOCK):
            block = vectors[start : start + QUERY_BLOCK]
            blank = ~np.asarray(block.any(axis=1))
            at = slice(start, start + len(block))
            for first in range(0, len(self.names), PHOTO_BLOCK):
                cosine = block @ self.vectors[first : first + PHOTO_BLOCK].T
                cosine[:, ~self._usable[first : first + PHOTO_BLOCK]] = -np.inf
                cosine[blank] = -np.inf
                # What was found in earlier blocks stands first, as its photos do.
                found = k if first else 0
                values = np.hstack([scores[at, :found], cosine])
                chosen = _largest(values, k)
                before = np.take_along_axis(index[at], np.minimum(chosen, k - 1), axis=1)
                width = chosen.shape[1]
                index[at, :width] = np.where(chosen < found, before, first + chosen - found)
                scores[at, :width] = np.take_along_axis(values, chosen, axis=1)
        index[~np.isfinite(scores)] = -1
        return index, scores


def vlad(rows: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """The vector of one photo.

    Args:
        rows: [N, D] float32; zero rows are ignored.
        centers: [K, D] vocabulary.

    Returns:
        [K * D] float32 of unit length; zero where no row is left.
    """
    rows = _usable(rows)
    sums = np.zeros(centers.shape, np.float32)
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        members = _assign(block, centers)[:, None] == np.arange(len(centers))
        sums += members.T.astype(np.float32) @ block - members.sum(axis=0)[:, None] * centers
    return unit_rows(unit_rows(sums).reshape(1, -1))[0]


def _largest(values: np.ndarray, k: int) -> np.ndarray:
    """Columns of the k largest values of each row, [Q, k] or all columns if fewer, the largest first.

    Of equal ones the first columns, as a stable sort of whole rows would give them.
    """
    width = values.shape[1]
    if k < width:
        least = np.partition(values, width - k, axis=1)[:, width - k, None]
        taken = values >= least
        tied = np.flatnonzero(np.count_nonzero(taken, axis=1) > k)
        if len(tied):
            above, equal = values[tied] > least[tied], values[tied] == least[tied]
            room = k - np.count_nonzero(above, axis=1)
            taken[tied] = above | (equal & (np.cumsum(equal, axis=1) <= room[:, None]))
        columns = np.nonzero(taken)[1].reshape(len(values), k)
    else:
        columns = np.broadcast_to(np.arange(width), values.shape)
    order = np.argsort(-np.take_along_axis(values, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)


def vector_of(rows_of: RowsOf, name: str, centers: np.ndarray) -> np.ndarray:
    return vlad(rows_of(name), centers)


def vocabulary(
    rows_of: RowsOf, names: Sequence[str], clusters: int, seed: int, where: str = "the features"
) -> np.ndarray:
    """Centres of k-means over a sample of the photos' rows, [K, D] float32 with K <= `clusters`.

    Of few rows there are fewer centres: rows that are their own centre have no residual, and photos of them no vector.
    """
    if clusters < 1:
        raise ValueError(f"a vocabulary of {clusters} clusters, expected at least 1")
    rng = np.random.default_rng(seed)
    quota = max(MIN_ROWS_A_PHOTO, -(-SAMPLE_ROWS // max(len(names), 1)))
    parts: list[np.ndarray] = []
    taken = 0
    for at in rng.permutation(len(names)):
        rows = _usable(rows_of(names[at]))
        parts.append(rows[rng.permutation(len(rows))[:quota]])
        taken += len(parts[-1])
        if taken >= SAMPLE_ROWS:
            break
    if not taken:
        raise ValueError(f"{where}: none of {len(names)} photos has a descriptor, so nothing can be retrieved")
    sample = np.concatenate([p for p in parts if len(p)])
    return _kmeans(sample, min(clusters, max(1, len(sample) // ROWS_A_CENTRE)), rng)


def _usable(rows: np.ndarray) -> np.ndarray:
    rows = np.asarray(rows, np.float32)
    return rows[rows.any(axis=1) & np.isfinite(rows).all(axis=1)]


def _assign(rows: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Index of the nearest centre of each row: argmax of x.c - |c|^2 / 2."""
    return np.argmax(rows @ centers.T - np.einsum("kd,kd->k", centers, centers) / 2, axis=1)


def _kmeans(rows: np.ndarray, clusters: int, rng: np.random.Generator) -> np.ndarray:
    """Lloyd's iterations from k-means++ seeds (Arthur and Vassilvitskii, SODA 2007)."""
    centers = rows[rng.integers(len(rows))][None]
    squared = np.full(len(rows), np.inf, np.float32)
    while len(centers) < clusters:
        squared = np.minimum(squared, ((rows - centers[-1]) ** 2).sum(axis=1))
        total = squared.sum(dtype=np.float64)
        if total <= 0:  # every row is a centre
            break
        centers = np.concatenate([centers, rows[rng.choice(len(rows), p=squared / total)][None]])
    for _ in range(ITERATIONS):
        nearest = _assign(rows, centers)
        order = np.argsort(nearest, kind="stable")
        present, first, count = np.unique(nearest[order], return_index=True, return_counts=True)
        moved = centers.copy()  # a centre that lost all its rows stays
        moved[present] = np.add.reduceat(rows[order], first, axis=0) / count[:, None]
        if np.array_equal(moved, centers):
            break
        centers = moved
    return centers
