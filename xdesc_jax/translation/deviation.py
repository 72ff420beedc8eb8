"""Tells descriptors from those a model was trained on: another implementation, order of bins, or scale.

In: canonical rows of one descriptor and the statistics of its training rows. Out: a sentence that says how
they deviate, or None. Imports numpy alone.

Photos differ, so the mean of a photo's descriptors does too; a test that knows only the spread of single
rows cannot tell a facade from another SIFT. The fine test therefore measures the mean against how the means
of *photos* vary: another implementation moves it in directions in which photos do not.
"""

from __future__ import annotations

import dataclasses

import numpy as np

# Calibrated on 600 SIFT keypoints a photo of 4 training sets, tested on other photos of 7 kinds (nature,
# facades, wallpapers, ImageNet, planar scenes, buildings, objects), and on wrong implementations of each.
MIN_ROWS = 64
MIN_ROWS_FINE = 8192  # several photos' worth: a single facade may lie as far off as another SIFT
MAX_CORRELATION = 0.15  # of mean vectors; own rows: 0.5 and more (BRIEF of single facades 0.0); permuted: 0.1
MIN_SHIFT = 0.1  # mean squared z-score of the means; permuted rows: 0.12 (BRIEF), 0.26 (SIFT) and more
MAX_ENERGY_RATIO = 4.0  # of mean squared norms
# Squared Mahalanobis distance / D. A scene of some photos shows one place, so its own rows lie the farther off the
# less their means look like those of the training (c: correlation of the two means). Scenes of 16,000 rows and more,
# largest of the descriptors whose means are not flat: 1.7 where c is over 0.95, 2.4 at 0.93, 5.6 at 0.84. Other
# implementations of SIFT, RootSIFT among them: 4.0 to 5.6 where c is over 0.95, 5.2 to 5.9 at 0.93, 6.1 to 7.1 at 0.87.
# So MAX_DISTANCE + PLACE * (1 - c) may be reached, up to MAX_PLACE.
MAX_DISTANCE = 2.0
PLACE = 25.0
MAX_PLACE = 6.0
# Means that hardly differ from each other (learned descriptors: 0.01 of the variance of the rows, and ORB's) correlate
# by chance. There what a place may reach is told from how far the means are off in all: photos vary in few directions,
# so own rows have at most 3.0 times the distance of an equal shift in the directions in which photos vary, another
# network 4.8 to 6.5 times, permuted values 16.
MIN_SPREAD = 0.05
MAX_CONCENTRATION = 4.0
# The same of one photo of n rows: facades reach 9 for 300 rows, permuted bits 2 for 64, 9 for 300, 20 for 600,
# permuted SIFT three times that. So a photo may reach MAX_PHOTO * min(1, n / MAX_PHOTO_ROWS).
MAX_PHOTO = 16.0
MAX_PHOTO_ROWS = 400
# Of the mean of log2 of COLMAP's sigmas. 275 photos, one by one, differ from all by .12 (standard deviation) and .86 at
# most; blurred ones by 1.6, so several photos' worth is needed. A diameter is twice its sigma, so 1 off.
MAX_SIGMA_SHIFT = 0.9
# More than any photo is off, blurred or in a view of half its size, is told from one: ORB's patch is 18 sigmas wide.
FAR_SIGMA_SHIFT, FAR_ROWS = 2.5, 256
MIN_PHOTOS = 64  # fewer say too little about how photos vary
RIDGE = 0.02  # of the covariance's mean diagonal, added to it


@dataclasses.dataclass(frozen=True)
class RowStatistics:
    """What the training rows of one descriptor look like, in canonical form (bits as 0 and 1).

    Attributes:
        mean: [D] float32.
        std: [D] float32, standard deviation.
        photo_covariance: [D, D] float32, covariance of (mean of one photo - mean) / std over photos; None
            where the photos of the rows were not known or too few. Enables the fine test.
    """

    mean: np.ndarray
    std: np.ndarray
    photo_covariance: np.ndarray | None = None

    @classmethod
    def of(cls, rows: np.ndarray, photos: np.ndarray | None = None) -> RowStatistics:
        """RowStatistics of canonical rows [N, D]; `photos` [N] int says which photo each comes from."""
        x = np.asarray(rows, np.float32)
        keep = x.any(axis=1)
        mean, std = x[keep].mean(axis=0, dtype=np.float64), x[keep].std(axis=0, dtype=np.float64)
        covariance = None
        if photos is not None:
            z = (x[keep] - mean.astype(np.float32)) / _floored(std).astype(np.float32)
            covariance = _photo_covariance(z, np.asarray(photos)[keep])
        return cls(mean.astype(np.float32), std.astype(np.float32), covariance)

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that are known, by field."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def check(self, width: int, where: str) -> None:
        """Raises ValueError where an array is not of `width` values, all finite; `where` says whose they are."""
        for field, value in self.arrays().items():
            expected = (width, width) if field == "photo_covariance" else (width,)
            if value.shape != expected or value.dtype.kind != "f" or not np.isfinite(value).all():
                raise ValueError(f"{where}/{field} has shape {value.shape}, expected {expected}, all finite")


class Deviation:
    """Compares rows, block after block, with the training statistics of what they are said to be.

    Args:
        statistics: of the training rows.
        scaled: whether rows have a scale of their own (real and not of unit length), so that it is checked.
        fine: whether the fine test holds: not for descriptors with a detector of their own, at whose keypoints rows lie
            farther off than another implementation's (ALIKED's: 9.8 of 6.0, trained at COLMAP's).
    """

    def __init__(self, statistics: RowStatistics, scaled: bool, fine: bool = True):
        self._expected = statistics
        self._scaled, self._fine = scaled, fine
        self.rows = 0
        self._sum = np.zeros(len(statistics.mean))
        self._energy = 0.0

    def update(self, x: np.ndarray) -> None:
        """Adds float32 [n, D] canonical rows without zero rows."""
        self.rows += len(x)
        self._sum += x.sum(axis=0)
        if self._scaled:
            self._energy += float(np.einsum("nd,nd->", x, x))

    def message(self) -> str | None:
        """How the rows seen so far deviate; None where they do not, or where they are too few to tell."""
        if self.rows < MIN_ROWS:
            return None
        expected = self._expected
        mean, std = expected.mean.astype(np.float64), _floored(expected.std)
        if self._scaled:
            ratio = self._energy / self.rows / float(np.sum(mean**2 + std**2))
            if not 1 / MAX_ENERGY_RATIO <= ratio <= MAX_ENERGY_RATIO:
                return f"norms are {np.sqrt(ratio):.3g} times those of the training rows: wrong scale?"
        found = self._sum / self.rows
        z = (found - mean) / std
        shift, correlation = float(np.mean(z * z)), _correlation(found, mean)
        if shift > MIN_SHIFT and correlation < MAX_CORRELATION and self._distance(z) > self._photo_level():
            return (
                f"means correlate {correlation:.2f} with those of the training rows "
                f"(expected over {MAX_CORRELATION}): another descriptor, or another order of values?"
            )
        if not self._fine or expected.photo_covariance is None or self.rows < MIN_ROWS_FINE:
            return None
        distance, limit = self._distance(z), self._place_level(correlation, shift)
        if distance > limit:
            return (
                f"means are off by {distance:.2f} of how photos vary (expected under {limit:.2f}): "
                "another implementation, or another detector?"
            )
        return None

    def _distance(self, z: np.ndarray) -> float:
        """Squared Mahalanobis distance / D of z-scores of the mean; inf where photos are not known."""
        if self._expected.photo_covariance is None:
            return float("inf")
        covariance = self._expected.photo_covariance.astype(np.float64)
        # The mean of n rows has sampling noise of 1 / n.
        covariance += (RIDGE * np.trace(covariance) / len(z) + 1 / self.rows) * np.eye(len(z))
        return float(z @ np.linalg.solve(covariance, z) / len(z))

    def _place_level(self, correlation: float, shift: float) -> float:
        """What the distance of the photos of one place may reach."""
        expected = self._expected
        if np.var(expected.mean) >= MIN_SPREAD * np.mean(_floored(expected.std) ** 2):
            return min(MAX_DISTANCE + PLACE * (1 - correlation), MAX_PLACE)
        assert expected.photo_covariance is not None
        variance = float(np.trace(expected.photo_covariance)) / len(expected.mean)
        return max(MAX_DISTANCE, MAX_CONCENTRATION * shift / (variance * (1 + RIDGE) + 1 / self.rows))

    def _photo_level(self) -> float:
        """What the distance of a single photo may reach."""
        return MAX_PHOTO * min(1.0, self.rows / MAX_PHOTO_ROWS)


class SigmaDeviation:
    """Compares the sigmas of keypoints with those of the training: diameters or octaves given in their place.

    Args:
        log2_sigma: mean of log2 of the training keypoints' sigmas.
    """

    def __init__(self, log2_sigma: float):
        self._expected, self._sum, self.keypoints = log2_sigma, 0.0, 0

    def update(self, frames: np.ndarray) -> None:
        """Adds frames [n, 2]: sigma px, orientation."""
        self.keypoints += len(frames)
        self._sum += float(np.log2(frames[:, 0], dtype=np.float64).sum())

    def message(self) -> str | None:
        """How the sigmas seen so far deviate; None where they do not, or where they are too few to tell."""
        if self.keypoints < FAR_ROWS:
            return None
        shift = self._sum / self.keypoints - self._expected
        if abs(shift) <= (MAX_SIGMA_SHIFT if self.keypoints >= MIN_ROWS_FINE else FAR_SIGMA_SHIFT):
            return None
        # Of 8192 keypoints of a photo of 1152 px, the 2000 largest have sigmas 1.8 to 2.4 times as large.
        causes = "diameters, another detector, or the largest of many keypoints" if shift > 0 else "another detector"
        return f"their sigmas are {2**shift:.2g} times as large in the mean: {causes}?"


def _photo_covariance(z: np.ndarray, photos: np.ndarray) -> np.ndarray | None:
    """Covariance [D, D] of the photos' means, less what sampling adds to it; None for few photos."""
    labels, group, counts = np.unique(photos, return_inverse=True, return_counts=True)
    if len(labels) < MIN_PHOTOS or len(z) < 2 * len(labels):
        return None
    order = np.argsort(group, kind="stable")
    means = np.add.reduceat(z[order], np.cumsum(counts) - counts, axis=0) / counts[:, None]
    within = (z.T @ z - (means.T * counts) @ means) / (len(z) - len(labels))
    # Photos count by their rows: the means of few rows say little.
    between = ((means.T * counts) @ means - len(labels) * within) / len(z)
    values, vectors = np.linalg.eigh(between)
    return ((vectors * np.maximum(values, 0)) @ vectors.T).astype(np.float32)


def _floored(std: np.ndarray) -> np.ndarray:
    """Deviations as float64, none so small that a constant value would decide alone."""
    std = std.astype(np.float64)
    return np.maximum(std, 0.01 * np.sqrt(np.mean(std**2)) + 1e-12)


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    norm = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / norm) if norm > 0 else 1.0
