"""Simulated conditions: photos as another device, or the same by night, would take them.

In: a photo, a condition, and the photo's name, from which everything that is drawn comes. Out: the photo as it would
be, and where its positions lie in the photo as it is. Whatever is measured under them is labelled as simulated.
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import Literal

import numpy as np

Condition = Literal["plain", "night", "device"]
CONDITIONS: tuple[Condition, ...] = ("plain", "night", "device")
GAMMA = 2.2
STOPS = (3.0, 5.0)  # by which a night is darker, before the camera brings back what it can
GAIN = 6.0  # of the camera at night
LAMPS, LAMP_GAIN = (2, 5), 1.5  # local lights, and how bright the brightest is against daylight
READ_NOISE, FULL_WELL = 0.004, 400.0  # of the sensor, relative to white; electrons of white at that gain
SCALE, LENS, QUALITY = 0.6, 0.12, 45  # resolution of the other device, radial distortion at the corner, JPEG


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where px of a simulated photo lie in the photo itself; origins at the centres of the first pixels.

    Attributes:
        size, photo_size: (width, height) of the simulated photo and of the photo, px.
        bend: x' = x (1 + bend r^2) of positions x from the middle, r = 1 at the corner; 0 is no lens.
    """

    size: tuple[int, int]
    photo_size: tuple[int, int]
    bend: float = 0.0

    def to_photo(self, xy: np.ndarray) -> np.ndarray:
        """Positions [N, 2] px in the simulated photo -> in the photo."""
        size, photo_size = np.array(self.size, np.float64), np.array(self.photo_size, np.float64)
        off = np.asarray(xy, np.float64) + 0.5 - size / 2
        r2 = (off * off).sum(axis=-1, keepdims=True) / ((size / 2) ** 2).sum()
        return np.asarray(off * (1 + self.bend * r2) * (photo_size / size) + photo_size / 2 - 0.5)


def placement(photo_size: tuple[int, int], condition: Condition, name: str) -> Placement:
    """How the simulated photo lies to the photo, by its size and name alone."""
    if condition != "device":
        return Placement(photo_size, photo_size)
    width, height = (max(1, round(SCALE * length)) for length in photo_size)
    bend = LENS * np.random.default_rng([zlib.crc32(name.encode()), 1]).uniform(-1, 1)
    # A lens that pushes outwards would show what lies beyond the border: the bend is taken inwards alone.
    return Placement((width, height), photo_size, -abs(float(bend)))


def simulated(photo: np.ndarray, condition: Condition, name: str) -> np.ndarray:
    """A photo, uint8 RGB [H, W, 3], under a condition; 'plain' as it is."""
    if condition == "night":
        return _night(photo, np.random.default_rng([zlib.crc32(name.encode()), 0]))
    if condition == "device":
        return _other_device(photo, name)
    return photo


def _night(photo: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Dark but for some lamps, warm, noisy: light is scaled before the sensor, noise comes with it."""
    height, width = photo.shape[:2]
    light = (photo.astype(np.float32) / 255) ** GAMMA
    y, x = np.mgrid[:height, :width].astype(np.float32)
    level = np.full((height, width), 2.0 ** -rng.uniform(*STOPS), np.float32)
    for _ in range(rng.integers(*LAMPS)):
        cx, cy = rng.uniform(0, width), rng.uniform(0, height)
        reach = rng.uniform(0.08, 0.25) * max(width, height)
        level += np.float32(rng.uniform(0.2, LAMP_GAIN) / GAIN) * np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / reach**2)
    warm = np.array([1.0, rng.uniform(0.7, 0.9), rng.uniform(0.4, 0.7)], np.float32)
    seen = light * level[..., None] * warm * GAIN
    seen = rng.poisson(np.clip(seen, 0, 1.5) * FULL_WELL) / FULL_WELL + READ_NOISE * GAIN * rng.normal(size=seen.shape)
    return np.asarray(np.rint(255 * np.clip(seen, 0, 1) ** (1 / GAMMA)), np.uint8)


def _other_device(photo: np.ndarray, name: str) -> np.ndarray:
    """Smaller, through a lens that bends, and compressed."""
    import cv2

    placed = placement(photo.shape[1::-1], "device", name)
    width, height = placed.size
    grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).reshape(-1, 2)
    places = placed.to_photo(grid).reshape(height, width, 2).astype(np.float32)
    blurred = cv2.GaussianBlur(photo, (0, 0), 0.4 / SCALE)
    seen = cv2.remap(blurred, places[..., 0], places[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101)
    done, packed = cv2.imencode(".jpg", seen, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    assert done
    return np.asarray(cv2.imdecode(packed, cv2.IMREAD_COLOR))
