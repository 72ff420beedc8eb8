"""Views of one photo under known homographies, in other light, blurred and noisy.

In: a photo. Out: pictures of the same size, and the homographies that map the photo to them; or a scene
folder in the layout that `xdesc evaluate homography` reads.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import cv2
import numpy as np

from xdesc_jax.features.images import write_png


@dataclasses.dataclass(frozen=True)
class ViewSettings:
    """How far a view may depart from the photo; each is the bound at strength 1, drawn evenly."""

    rotation_deg: float = 40.0
    """Rotation in the image plane, to either side."""
    perspective: float = 0.25
    """Shift of each corner of the seen part towards its middle, as a share of its size."""
    zoom: float = 1.5
    """Magnification beyond what keeps the view inside the photo."""
    gain: float = 0.3
    """Contrast lost or gained."""
    offset: float = 25.0
    """Brightness lost or gained, gray levels."""
    blur_px: float = 1.2
    """Standard deviation of Gaussian blur."""
    noise: float = 5.0
    """Standard deviation of pixel noise, gray levels."""


def random_homography(
    rng: np.random.Generator, width: int, height: int, strength: float, settings: ViewSettings
) -> np.ndarray:
    """[3, 3] from a photo to a view of the same size that shows nothing from beyond the photo's border.

    A rectangle is made a random quadrilateral, turned, shrunk to fit the photo and put somewhere in it; the
    homography maps its corners to the corners of the view.
    """
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) / 2.0
    seen = corners * (1 - strength * settings.perspective * rng.random((4, 2))) * [width - 1, height - 1]
    angle = np.deg2rad(settings.rotation_deg) * strength * rng.uniform(-1, 1)
    seen = seen @ np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    room = np.array([width - 1, height - 1])
    fit = min(1.0, (room / np.ptp(seen, axis=0)).min())
    seen *= fit / (1 + strength * (settings.zoom - 1) * rng.random())
    seen += rng.uniform(-seen.min(axis=0), room - seen.max(axis=0))
    shown = (corners + 0.5) * room
    return cv2.getPerspectiveTransform(seen.astype(np.float32), shown.astype(np.float32))


def change_appearance(
    rng: np.random.Generator, photo: np.ndarray, strength: float, settings: ViewSettings
) -> np.ndarray:
    """Another exposure of `photo` (uint8), blurred and with noise."""
    x: np.ndarray = photo.astype(np.float32)
    sigma = strength * settings.blur_px * rng.random()
    if sigma > 0.1:
        x = cv2.GaussianBlur(x, (0, 0), sigma)
    x = (x - 128) * (1 + strength * settings.gain * rng.uniform(-1, 1)) + 128
    x += strength * settings.offset * rng.uniform(-1, 1)
    x += strength * settings.noise * rng.random() * rng.standard_normal(x.shape, dtype=np.float32)
    return np.clip(np.rint(x), 0, 255).astype(np.uint8)


def random_view(
    rng: np.random.Generator, photo: np.ndarray, strength: float, settings: ViewSettings
) -> tuple[np.ndarray, np.ndarray]:
    """A view of `photo` (uint8 [H, W] or [H, W, 3]) of the same size, and the homography [3, 3] to it."""
    height, width = photo.shape[:2]
    matrix = random_homography(rng, width, height, strength, settings)
    # Enlarging needs no low-pass; nothing is reduced, as the view shows a part of the photo.
    warped = cv2.warpPerspective(photo, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return change_appearance(rng, warped, strength, settings), matrix


def write_scene(folder: Path, photo: np.ndarray, views: int, rng: np.random.Generator, settings: ViewSettings) -> None:
    """Writes `1.png` (the photo), `2.png` ... and `H_1_2` ...; each view departs further than the last."""
    folder.mkdir(parents=True, exist_ok=True)
    write_png(folder / "1.png", photo)
    for k in range(views):
        view, matrix = random_view(rng, photo, (k + 1) / views, settings)
        write_png(folder / f"{k + 2}.png", view)
        np.savetxt(folder / f"H_1_{k + 2}", matrix, fmt="%.17g")
