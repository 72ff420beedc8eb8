"""Cutting normalised patches around keypoints.

In: a gray photo and its keypoints. Out: one uint8 32x32 patch per keypoint and a mask of the usable ones.
Patch pixel (column u, row v) shows the photo at xy + S (u - 16, v - 16), where S turns and scales such that
the patch is 12 sigma wide. It is sampled bilinearly from the level of a `pyrDown` pyramid on which
one patch pixel spans 1 to 2 photo pixels. This is the definition of the PyPI package extract-patches 0.2.0,
here for all keypoints of a level at once.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from xdesc_jax.features.keypoints import Keypoints

SIZE = 32
MAG = 12.0  # patch width in sigma
# Keypoints per call of cv2.remap: enough to hide the calls, and far from its limit of 32767 a side.
_CHUNK = 256


def extract_patches(
    gray: np.ndarray, keypoints: Keypoints, mag: float = MAG, size: int = SIZE
) -> tuple[np.ndarray, np.ndarray]:
    """Cuts a patch around each keypoint; runs on as many threads as OpenCV is set to.

    Args:
        gray: uint8 [H, W].
        keypoints: N keypoints; their `affine` shapes, where given, replace scale and orientation.
        mag: width of the patch in sigma.
        size: width and height of the patch in px.

    Returns:
        uint8 [N, size, size], the photo's border replicated, and valid bool [N]: False where a part of the
        patch lies outside the photo or the patch is flat (one value everywhere). Rows keep their place.

    Raises:
        ValueError: `gray` is not uint8 [H, W].
    """
    if gray.ndim != 2 or gray.dtype != np.uint8 or gray.size == 0:
        raise ValueError(f"photo is {gray.dtype} {list(gray.shape)}, expected uint8 [H, W] with pixels")
    n = len(keypoints)
    if n == 0:
        return np.zeros((0, size, size), np.uint8), np.zeros(0, bool)
    warps, step = _warps(keypoints, mag, size)
    pyramid = _pyramid(gray, max(1, size // 2))
    level = np.maximum(np.floor(np.log2(step)), 0)
    on_level = (warps / 2.0 ** level[:, None, None]).astype(np.float32)
    # The reference keeps the positions of the level that the last one stands in for; such a patch is
    # wider than the photo and never valid.
    patches = _sample(pyramid, np.minimum(level, len(pyramid) - 1).astype(int), on_level, size)
    flat = patches.reshape(n, -1).min(axis=1) == patches.reshape(n, -1).max(axis=1)
    return patches, _inside(warps, gray.shape, size) & ~flat


def _warps(keypoints: Keypoints, mag: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    """float64 [N, 2, 3]: patch pixel (u, v, 1) -> photo (x, y); and [N] photo px that a patch pixel spans."""
    shape = keypoints.shapes() * (mag / size)
    corner = keypoints.xy - shape.sum(axis=2) * (size / 2)
    if keypoints.affine is None:
        step = keypoints.scales.astype(np.float64) * (mag / size)
    else:
        step = np.sqrt(np.abs(shape[:, 0, 0] * shape[:, 1, 1] - shape[:, 0, 1] * shape[:, 1, 0]))
    return np.concatenate([shape, corner[:, :, None]], axis=2), step


def _pyramid(gray: np.ndarray, min_side: int) -> list[np.ndarray]:
    import cv2

    levels = [gray]
    while min(levels[-1].shape) > min_side:
        levels.append(cv2.pyrDown(levels[-1]))
    return levels


def _inside(warps: np.ndarray, shape: tuple[int, ...], size: int) -> np.ndarray:
    """Whether all sampled positions lie in the photo: whether their bounding box does."""
    sides = warps[:, :, :2] * (size - 1)
    low = warps[:, :, 2] + np.minimum(sides, 0).sum(axis=2)
    high = warps[:, :, 2] + np.maximum(sides, 0).sum(axis=2)
    height, width = shape
    return np.asarray((low >= 0).all(axis=1) & (high <= (width - 1, height - 1)).all(axis=1))


def _sample(pyramid: list[np.ndarray], level: np.ndarray, warps: np.ndarray, size: int) -> np.ndarray:
    """Bilinear samples uint8 [N, size, size] of each keypoint's level."""
    import cv2

    patches = np.empty((len(level), size * size), np.uint8)
    threads = max(1, cv2.getNumThreads()) if len(level) > 2 * _CHUNK else 1
    jobs = []
    for i, image in enumerate(pyramid):
        rows = np.flatnonzero(level == i)
        pieces = threads * -(-len(rows) // (threads * _CHUNK))  # of one size, for all threads to end together
        jobs += [(image, piece) for piece in np.array_split(rows, max(1, pieces)) if len(piece)]

    # As complex numbers x + iy, a warp's three columns move both coordinates at once.
    columns = warps[:, 0] + 1j * warps[:, 1]

    def run(jobs: list[tuple[np.ndarray, np.ndarray]]) -> None:
        buffer = np.empty(size * size * _CHUNK, np.complex64)
        for image, rows in jobs:
            maps = _positions(columns[rows].T, buffer, size)
            # `maps` holds both coordinates; OpenCV's stubs do not know that the second map may be None.
            samples = cv2.remap(image, maps, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)  # type: ignore[call-overload]
            patches[rows] = cv2.transpose(samples)

    if threads == 1:
        run(jobs)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, [jobs[i::threads] for i in range(threads)]))
    return patches.reshape(-1, size, size)


def _positions(columns: np.ndarray, buffer: np.ndarray, size: int) -> np.ndarray:
    """Where n patches are sampled, float32 [size * size, n, 2], from their warps' columns, complex64 [3, n].

    Keypoints are the last, fastest axis: numpy then adds long runs. The sum is rounded as cv2.warpAffine
    rounds it, v first; at x = 5000 another order puts 0.2 % of the samples off by one gray level.
    """
    u, v, origin = columns
    t = np.arange(size, dtype=np.float32)[:, None]
    out = buffer[: size * size * len(u)].reshape(size, size, -1)
    np.add((v * t + origin)[:, None], (u * t)[None], out=out)
    return out.view(np.float32).reshape(size * size, -1, 2)
