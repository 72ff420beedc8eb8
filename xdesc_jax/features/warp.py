"""Other views of a photo: random homographies and changes of light, focus, noise and compression.

In: a photo, gray or in colour, and a random generator. Out: the same scene seen from elsewhere under other conditions,
and the homography between the two, which carries keypoints over. What a plane shows is all that a homography can
show: occlusion and parallax come from real multi-view photos alone.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from xdesc_jax.features.keypoints import Keypoints

MAX_SIDE_PX = 1400
MIN_SIDE_PX = 64
_ROUNDING = 1e-6  # px that positions may be off by the arithmetic


@dataclasses.dataclass(frozen=True)
class WarpSettings:
    """How far views may differ; each view draws its own amounts.

    Raises:
        ValueError: a value out of range.
    """

    zoom: tuple[float, float] = (0.3, 1.5)
    """Scale of the second view against the photo, drawn log-uniformly."""
    max_tilt: float = 2.5
    """Largest foreshortening of one direction against the other (1 / cos of the viewing angle)."""
    upright_share: float = 0.5
    """Share of views turned by `upright_deg` at most; the others turn freely."""
    upright_deg: float = 15.0
    """The most that these are turned, to either side, degrees."""
    max_perspective: float = 0.25
    """Largest change of scale across the photo that the perspective brings, relative."""
    max_blur_px: float = 2.5
    """Largest Gaussian blur, sigma in px."""
    max_noise: float = 5.0
    """Largest pixel noise, standard deviation in gray levels."""
    gamma: float = 0.35
    """Standard deviation of log gamma."""
    exposure: tuple[float, float] = (0.25, 1.6)
    """Gain of gray values, drawn log-uniformly; what passes 255 is clipped as in an overexposed photo."""
    jpeg: tuple[int, int] = (30, 95)
    """JPEG quality."""
    balance: float = 0.0
    """Standard deviation of the log gain of each colour, of photos in colour."""

    def __post_init__(self) -> None:
        for field in ("zoom", "exposure", "jpeg"):
            low, high = getattr(self, field)
            if not 0 < low <= high:
                raise ValueError(f"{field} is {(low, high)}, expected 0 < low <= high")
        if self.max_tilt < 1:
            raise ValueError(f"max_tilt is {self.max_tilt}, expected at least 1")
        if not 0 <= self.upright_deg <= 180:
            raise ValueError(f"upright_deg is {self.upright_deg}, expected 0 to 180")
        for field in ("max_blur_px", "max_noise", "gamma", "balance"):
            if getattr(self, field) < 0:
                raise ValueError(f"{field} is {getattr(self, field)}, expected 0 or more")
        if self.jpeg[1] > 100:
            raise ValueError(f"jpeg is {self.jpeg}, expected at most 100")
        for field in ("upright_share", "max_perspective"):
            if not 0 <= getattr(self, field) < 1 and (field, getattr(self, field)) != ("upright_share", 1):
                raise ValueError(f"{field} is {getattr(self, field)}, expected 0 to below 1")


@dataclasses.dataclass(frozen=True)
class View:
    """One drawn view: photo -> view homography [3, 3] (px, origin at the centre of the first pixel), the view's
    (width, height), and what happens to its pixels."""

    homography: np.ndarray
    size: tuple[int, int]
    blur_px: float
    gamma: float
    exposure: float
    noise: float
    jpeg: int
    seed: int
    balance: tuple[float, float, float] = (1.0, 1.0, 1.0)


def draw_view(rng: np.random.Generator, size: tuple[int, int], settings: WarpSettings, effort: float = 1.0) -> View:
    """Draws a view of a photo.

    Args:
        rng: source of the draws.
        size: (width, height) of the photo, px.
        settings: how far views may differ.
        effort: 0..1, shrinks all changes towards none.

    Returns:
        A view whose canvas holds the whole warped photo, or `MAX_SIDE_PX` of it around its middle.
    """
    width, height = size
    zoom = np.exp(effort * rng.uniform(*np.log(settings.zoom)))
    tilt = np.exp(effort * rng.uniform(0, np.log(settings.max_tilt)))
    upright = rng.random() < settings.upright_share
    turn = effort * np.deg2rad(settings.upright_deg if upright else 180) * rng.uniform(-1, 1)
    direction = rng.uniform(0, np.pi)
    linear = zoom * _rotation(turn) @ _rotation(direction).T @ np.diag([tilt**-0.5, tilt**0.5]) @ _rotation(direction)
    # The scale changes by 1 / (1 + p x) across the photo, x = -1..1 over half its diagonal.
    towards = rng.uniform(0, 2 * np.pi)
    steepness = effort * settings.max_perspective * rng.random() / (0.5 * np.hypot(width, height))
    middle = np.array([[1, 0, -(width - 1) / 2], [0, 1, -(height - 1) / 2], [0, 0, 1]])
    around = np.eye(3)
    around[:2, :2] = linear
    around[2, :2] = steepness * np.cos(towards), steepness * np.sin(towards)
    centred = around @ middle
    corners = project(centred, _corners(width, height))
    low, high = np.maximum(corners.min(0), -MAX_SIDE_PX / 2), np.minimum(corners.max(0), MAX_SIDE_PX / 2)
    view_size = np.maximum(np.ceil(high - low).astype(int) + 1, MIN_SIDE_PX)
    shift = np.array([[1, 0, -low[0]], [0, 1, -low[1]], [0, 0, 1]])
    drawn = View(
        homography=shift @ centred,
        size=(int(view_size[0]), int(view_size[1])),
        blur_px=effort * settings.max_blur_px * rng.random() ** 2,
        gamma=float(np.exp(effort * settings.gamma * rng.normal())),
        exposure=float(np.exp(effort * rng.uniform(*np.log(settings.exposure)))),
        noise=effort * settings.max_noise * rng.random() ** 2,
        jpeg=round(95 + effort * (rng.integers(settings.jpeg[0], settings.jpeg[1] + 1) - 95)),
        seed=int(rng.integers(2**31)),
    )
    # Of a generator of its own: views of gray photos are the same whether or not colours change.
    gains = np.exp(effort * settings.balance * np.random.default_rng([drawn.seed, 1]).standard_normal(3))
    return dataclasses.replace(drawn, balance=tuple(gains.tolist()))


def within(view: View, size: tuple[int, int], max_side_px: int) -> View:
    """The part of a view that shows nothing from beyond the photo's border.

    Args:
        view: of a photo.
        size: (width, height) of the photo, px.
        max_side_px: the most that either side of the part may have.

    Returns:
        The same view on the largest upright rectangle inside the warped photo, or on the middle of that.
    """
    low, high = largest_rectangle(project(view.homography, _corners(*size)))
    sides = high - low + 1
    low = low + np.maximum(0, sides - max_side_px) // 2
    sides = np.minimum(sides, max_side_px)
    shift = np.array([[1, 0, -low[0]], [0, 1, -low[1]], [0, 0, 1]])
    return dataclasses.replace(view, homography=shift @ view.homography, size=(int(sides[0]), int(sides[1])))


def largest_rectangle(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest upright rectangle of whole pixels inside a convex quadrilateral.

    In a convex shape a rectangle lies inside where its left and its right edge do. Of a wide shape 256 columns are
    looked at.

    Args:
        corners: [4, 2] px, in the order in which a photo's corners go round it from the first pixel along x.

    Returns:
        Its first and its last pixel, int [2] each; the last before the first where there is no whole pixel.
    """
    first, last = np.ceil(corners[:, 0].min() - _ROUNDING), np.floor(corners[:, 0].max() + _ROUNDING)
    x = np.unique(np.rint(np.linspace(first, max(first, last), 256)))
    top, bottom = np.full(len(x), -np.inf), np.full(len(x), np.inf)
    for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        along = b - a
        if abs(along[0]) > _ROUNDING:
            y = a[1] + along[1] / along[0] * (x - a[0])
            top, bottom = (np.maximum(top, y), bottom) if along[0] > 0 else (top, np.minimum(bottom, y))
    top, bottom = np.ceil(top - _ROUNDING), np.floor(bottom + _ROUNDING)
    height = np.minimum(bottom[:, None], bottom) - np.maximum(top[:, None], top) + 1
    area = np.maximum(0, height) * np.maximum(0, x - x[:, None] + 1)
    left, right = np.unravel_index(area.argmax(), area.shape)
    low = np.array([x[left], max(top[left], top[right])], int)
    return low, np.array([x[right], low[1] + height[left, right] - 1], int)


def render(photo: np.ndarray, view: View) -> np.ndarray:
    """The photo as `view` shows it.

    Args:
        photo: uint8 [H, W], or [H, W, 3] in colour (RGB).
        view: what to show.

    Returns:
        uint8 [view height, view width] or [..., 3]; beyond the photo, its border is repeated.
    """
    import cv2

    homography = view.homography
    # Bilinear samples of what shrinks alias: start from a pyramid level that shrinks less than by half.
    while smallest_scale(homography, photo.shape) < 0.5 and min(photo.shape[:2]) >= 2 * MIN_SIDE_PX:
        photo = cv2.pyrDown(photo)
        homography = homography @ np.diag([2.0, 2.0, 1.0])
    warped = cv2.warpPerspective(photo, homography, view.size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    if view.blur_px > 0.3:
        warped = cv2.GaussianBlur(warped, (0, 0), view.blur_px)
    gain = view.exposure if photo.ndim == 2 else np.float32(view.exposure) * np.array(view.balance, np.float32)
    levels = 255 * np.clip(gain * (warped.astype(np.float32) / 255) ** view.gamma, 0, 1)
    levels += view.noise * np.random.default_rng(view.seed).standard_normal(levels.shape, np.float32)
    pixels = np.clip(np.rint(levels), 0, 255).astype(np.uint8)
    # OpenCV takes and gives colours in the order BGR.
    ordered = pixels[..., ::-1] if photo.ndim == 3 else pixels
    _, code = cv2.imencode(".jpg", ordered, [cv2.IMWRITE_JPEG_QUALITY, view.jpeg])
    decoded: np.ndarray = cv2.imdecode(code, cv2.IMREAD_UNCHANGED)  # type: ignore[assignment]
    return np.ascontiguousarray(decoded[..., ::-1]) if photo.ndim == 3 else decoded


def smallest_scale(homography: np.ndarray, shape: tuple[int, ...]) -> float:
    """Square root of the smallest area factor of a homography over the corners of a photo of `shape` (H, W)."""
    corners = _corners(shape[1], shape[0])
    return float(np.sqrt(np.abs(np.linalg.det(local_affines(homography, corners)))).min())


def project(homography: np.ndarray, xy: np.ndarray) -> np.ndarray:
    """Positions [N, 2] -> positions [N, 2] in the other view, float64."""
    mapped = np.concatenate([np.asarray(xy, np.float64), np.ones((len(xy), 1))], axis=1) @ homography.T
    return mapped[:, :2] / mapped[:, 2:]


def local_affines(homography: np.ndarray, xy: np.ndarray) -> np.ndarray:
    """Derivative of the homography at positions [N, 2], float64 [N, 2, 2]."""
    xy = np.asarray(xy, np.float64)
    depth = xy @ homography[2, :2] + homography[2, 2]
    mapped = project(homography, xy)
    return (homography[:2, :2][None] - mapped[:, :, None] * homography[2, :2]) / depth[:, None, None]


def carry(keypoints: Keypoints, homography: np.ndarray) -> Keypoints:
    """Keypoints as the other view shows them: sigma by the area factor, orientation by its own direction."""
    derivatives = local_affines(homography, keypoints.xy)
    directions = np.stack([np.cos(keypoints.oris), np.sin(keypoints.oris)], axis=1)
    turned = np.einsum("nij,nj->ni", derivatives, directions)
    factors = np.sqrt(np.abs(np.linalg.det(derivatives)))
    return Keypoints(
        project(homography, keypoints.xy), keypoints.scales * factors, np.arctan2(turned[:, 1], turned[:, 0])
    )


def _corners(width: int, height: int) -> np.ndarray:
    """Centres of a photo's corner pixels, [4, 2]."""
    return np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], float)


def _rotation(angle: float) -> np.ndarray:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
