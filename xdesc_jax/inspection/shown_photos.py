"""The photos that features were made on, found again and made small enough for a page.

In: a folder of photos, and what the features say of one. Out: its pixels, raw as the features have them (no EXIF
rotation), or an error that says what is wrong. Needs Pillow.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from xdesc_jax.features.images import UnreadablePhoto, read_rgb


def read_photo(folder: Path, name: str, size: tuple[int, int], keypoints: np.ndarray, source: Path) -> np.ndarray:
    """A photo, uint8 [H, W, 3].

    Args:
        folder: of the photos.
        name: of the photo, relative to it.
        size: (width, height) in px that the features say; (0, 0) where they do not.
        keypoints: [N, 2] px; where the size is not said, they must lie in the photo.
        source: the features' file, for errors.

    Raises:
        ValueError: no such photo, not readable, or of another size than the features were made on.
    """
    path = folder / name
    if not path.is_file():
        raise UnreadablePhoto(f"{path}: no such photo; --photos names the folder of the photos in {source}")
    pixels = read_rgb(path)
    height, width = pixels.shape[:2]
    if min(size) > 0 and (width, height) != tuple(size):
        turned = "; it is turned (EXIF rotation does not count)" if (height, width) == tuple(size) else ""
        raise ValueError(
            f"{path}: has {width} x {height} px, but the features of {name!r} in {source} were made on {size[0]} x "
            f"{size[1]} px: give the photos that they were made on{turned}"
        )
    finite = keypoints[np.isfinite(keypoints).all(axis=1)]
    if min(size) <= 0 and len(finite) and (finite.max(axis=0) > [width, height]).any():
        x, y = finite.max(axis=0)
        raise ValueError(
            f"{path}: has {width} x {height} px, but keypoints of {name!r} in {source} reach ({x:.0f}, {y:.0f}) px: "
            "give the photos that they were made on"
        )
    return pixels


def fitted(pixels: np.ndarray, scale: float) -> np.ndarray:
    """A photo made `scale` times as large, uint8; at 1 as it is."""
    if scale == 1:
        return pixels
    size = tuple(max(1, round(side * scale)) for side in pixels.shape[1::-1])
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS))
