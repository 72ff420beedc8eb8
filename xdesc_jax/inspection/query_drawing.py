"""Pictures of localised queries: the photo with what its pose rests on, and the map around its camera.

In: a photo, correspondences, a model and a pose. Out: encoded pictures. Keypoints have the colour of their reprojection
error; the map is seen from above and from the front, along the axes in which its cameras and points lie.
"""

from __future__ import annotations

import dataclasses

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from xdesc_jax.colmap.model import Pose
from xdesc_jax.inspection.match_drawing import (
    BAR_PX,
    FILE_SIDE_PX,
    PAGE_SIDE_PX,
    Scale,
    color_bar,
    darkened,
    encoded,
    show_pixels,
    titled,
)  # fmt: skip
from xdesc_jax.inspection.shown_photos import fitted
from xdesc_jax.localization.correspondences import Correspondences, spread
from xdesc_jax.reports.chart import PALETTE, Look, chart
from xdesc_jax.reports.parts import Picture

QUERY, SEEN = PALETTE[5], PALETTE[0]
_PX = 100
_COLUMN_PX = 540  # of a page with two columns
_POINT = 72 / _PX
_POINTS_DRAWN, _RAYS_DRAWN, _CAMERAS_DRAWN = 12000, 40, 400
_DEPTH = 0.07  # of the map's extent: how long a camera is drawn
_LEVEL = 0.3  # length of the cameras' mean downward direction, below which they have no common one


@dataclasses.dataclass(frozen=True)
class View:
    """A camera to draw: where it is, and how much it sees at depth 1, to the right and downwards."""

    pose: Pose
    half: tuple[float, float]

    @classmethod
    def of(cls, pose: Pose, size: tuple[int, int], focal_px: float) -> View:
        """Of a camera of a size (width, height) in px; one without a focal length sees all around, and is drawn as one
        that sees 90 degrees."""
        width, height = size
        scale = 2 * focal_px if focal_px else max(size)
        return cls(pose, (width / scale, height / scale))

    def corners(self, depth: float) -> np.ndarray:
        """Where its picture's corners are at some depth, [4, 3] in the world."""
        x, y = self.half
        seen = depth * np.array([[-x, -y, 1], [x, -y, 1], [x, y, 1], [-x, y, 1]])
        return (seen - self.pose.translation) @ self.pose.rotation


@dataclasses.dataclass(frozen=True)
class Scene:
    """The map around a query.

    Attributes:
        points: [P, 3] of the map.
        cameras: of the map.
        query: None where it was not localised.
        seen: [I, 3], points that support the pose.
    """

    points: np.ndarray
    cameras: list[View]
    query: View | None
    seen: np.ndarray


def error_scale(errors_px: np.ndarray) -> Scale:
    """A scale of reprojection errors of inliers, up to the round number above nearly all of them."""
    finite = errors_px[np.isfinite(errors_px)]
    high = float(np.percentile(finite, 95)) if len(finite) else 1.0
    step = 10.0 ** np.floor(np.log10(max(high, 1e-3)))
    return Scale("reprojection error [px]", 0.0, float(np.ceil(high / step) * step) or step, best="good")


def draw_query(axes: Axes, photo: np.ndarray, found: Correspondences, scale: Scale, side_px: int) -> None:
    """The photo with its inliers, the best on top, and its outliers as faint crosses."""
    factor = side_px / max(photo.shape[:2])
    gray = darkened(fitted(photo, factor))
    show_pixels(axes, gray)
    pixel = side_px / PAGE_SIDE_PX * _POINT
    at = (np.asarray(found.xy, np.float64) + 0.5) * factor - 0.5
    x, y = at[~found.inlier].T
    axes.scatter(x, y, s=(9 * pixel) ** 2, marker="x", color="#ffffff", alpha=0.55, linewidths=1.2 * pixel)
    rows = np.flatnonzero(found.inlier)
    rows = rows[scale.order(found.error_px[rows])]
    x, y = at[rows].T
    colors = scale.of(found.error_px[rows])
    axes.scatter(x, y, s=(11 * pixel) ** 2, color=colors, edgecolors="#101010", linewidths=pixel, zorder=3)


def query_picture(photo: np.ndarray, found: Correspondences, scale: Scale) -> bytes:
    """A picture without words, as JPEG, for a page that has them."""
    height, width = photo.shape[:2]
    size = np.array([width, height]) * PAGE_SIDE_PX / max(width, height)
    figure = Figure(tuple(size / _PX), dpi=_PX)
    draw_query(figure.add_axes((0, 0, 1, 1)), photo, found, scale, PAGE_SIDE_PX)
    return encoded(figure, "jpeg")


def map_axes(points: np.ndarray, cameras: list[View]) -> np.ndarray:
    """Axes [3, 3] to look along, as rows: right, down and forward.

    Down is where the cameras' downward directions agree, else where points and cameras spread least; right is where
    they spread most at right angles to it, so that a wall or a street lies across the picture.
    """
    poses = [view.pose for view in cameras]
    cloud = np.concatenate([points, [pose.center for pose in poses]]) if poses else points
    cloud = cloud - np.median(cloud, axis=0)
    cloud = cloud[np.linalg.norm(cloud, axis=1) <= np.percentile(np.linalg.norm(cloud, axis=1), 95)]
    down = np.mean([pose.rotation[1] for pose in poses], axis=0) if poses else np.zeros(3)
    if np.linalg.norm(down) < _LEVEL:
        down = np.linalg.svd(cloud, full_matrices=True)[2][-1]
    down = down / np.linalg.norm(down)
    level = cloud - (cloud @ down)[:, None] * down
    right = np.linalg.svd(level, full_matrices=True)[2][0]
    right = right - (right @ down) * down
    right /= np.linalg.norm(right)
    forward = np.cross(right, down)
    ahead = np.sum([pose.rotation[2] for pose in poses], axis=0) if poses else forward
    if ahead @ forward < 0:
        right, forward = -right, -forward
    return np.stack([right, down, forward])


def map_picture(scene: Scene, title: str, caption: str) -> Picture:
    """The map from above and from the front, for a page."""
    return chart(_map_figure, scene, title=title, caption=caption)


def _map_figure(scene: Scene, *, look: Look) -> Figure:
    figure = look.figure(720 if look.narrow else 340, width_px=_COLUMN_PX)
    panels = figure.subplots(2, 1) if look.narrow else figure.subplots(1, 2)
    draw_map(list(panels), scene, look)
    figure.legend(handles=_legend(scene, look), loc="outside lower center", ncols=2, frameon=False)
    return figure


def _legend(scene: Scene, look: Look) -> list[Line2D]:
    """What the marks of a map mean."""
    handles = [
        Line2D([], [], color=look.quiet, marker=".", linestyle="", label="points of the map"),
        Line2D([], [], color=look.ink, linewidth=1.2, label=f"its cameras ({len(scene.cameras)})"),
    ]
    if scene.query is not None:
        handles.append(Line2D([], [], color=SEEN, marker=".", markersize=8, linestyle="", label="inlier points"))
        handles.append(Line2D([], [], color=QUERY, linewidth=2.2, label="the query"))
    return handles


def draw_map(panels: list[Axes], scene: Scene, look: Look) -> None:
    """The map from above into the first axes, and from the front into the second."""
    views = [*scene.cameras, *([scene.query] if scene.query is not None else [])]
    axes = map_axes(scene.points, scene.cameras)
    centers = np.array([view.pose.center for view in views]).reshape(-1, 3)
    near = _near(scene.points, centers)
    middle = np.median(np.concatenate([near, centers]), axis=0) if len(near) + len(centers) else np.zeros(3)
    extent = float(np.ptp(np.concatenate([near, centers]) - middle, axis=0).max()) if len(near) else 1.0
    cameras = spread(np.arange(len(scene.cameras)), _CAMERAS_DRAWN)
    for panel, (x, y), title in zip(panels, ((0, 2), (0, 1)), ("from above", "from the front"), strict=True):
        look.prepare(panel)

        def flat(xyz: np.ndarray, columns: tuple[int, int] = (x, y)) -> np.ndarray:
            return ((xyz - middle) @ axes.T)[..., list(columns)]

        shown = flat(spread(near, _POINTS_DRAWN))
        panel.scatter(shown[:, 0], shown[:, 1], s=1.6, color=look.quiet, linewidths=0, alpha=0.45)
        for row in cameras:
            _draw_camera(panel, scene.cameras[row], _DEPTH * extent, flat, look.ink, 0.9)
        if scene.query is not None:
            seen = flat(scene.seen)
            start = flat(scene.query.pose.center)
            rays = [(start, end) for end in spread(seen, _RAYS_DRAWN)]
            panel.add_collection(LineCollection(rays, colors=QUERY, linewidths=0.5, alpha=0.35))
            panel.scatter(seen[:, 0], seen[:, 1], s=5, color=SEEN, linewidths=0, zorder=3)
            _draw_camera(panel, scene.query, 1.6 * _DEPTH * extent, flat, QUERY, 2.2)
        if y == 1:  # image coordinates: y points down
            panel.invert_yaxis()
        panel.set_aspect("equal", "datalim")
        panel.set_title(title)


def _near(points: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Points without the few far ones, which would shrink the picture."""
    if not len(points):
        return points.reshape(-1, 3)
    distance = np.linalg.norm(points - np.median(points, axis=0), axis=1)
    reach = np.linalg.norm(centers - np.median(points, axis=0), axis=1).max(initial=0)
    return points[distance <= max(2 * np.percentile(distance, 90), reach)]


def _draw_camera(panel: Axes, view: View, depth: float, flat, color: str, width: float) -> None:  # type: ignore[no-untyped-def]
    """A camera as the pyramid of what it sees."""
    corners, center = flat(view.corners(depth)), flat(view.pose.center)
    lines = [*((center, corner) for corner in corners), *zip(corners, np.roll(corners, -1, axis=0), strict=True)]
    panel.add_collection(LineCollection(lines, colors=color, linewidths=width, zorder=4, capstyle="round"))
    panel.update_datalim(np.concatenate([corners, center[None]]))


def query_figure(
    photo: np.ndarray, found: Correspondences, scene: Scene, scale: Scale, title: str, caption: str, kind: str
) -> bytes:
    """A picture that stands alone: the photo, the scale of its colours, and the map below.

    Args:
        photo: uint8 [H, W, 3].
        found: of the query.
        scene: the map around it.
        scale: of the errors.
        title, caption: set above it.
        kind: 'png' or 'jpeg'.
    """
    height, width = (int(side * FILE_SIDE_PX / max(photo.shape[:2])) for side in photo.shape[:2])
    map_px = width // 2
    look = Look()
    with matplotlib.rc_context(look.style | {"axes.titlesize": 16, "xtick.labelsize": 13, "ytick.labelsize": 13}):
        figure, (frame, bar, ground) = titled(width, [height, BAR_PX, map_px], title, caption)
        draw_query(frame, photo, found, scale, FILE_SIDE_PX)
        color_bar(bar, scale)
        ground.axis("off")
        panels = [ground.inset_axes((i * 0.53 + 0.04, 0.12, 0.43, 0.8)) for i in (0, 1)]
        draw_map(panels, scene, look)
        ground.legend(
            handles=_legend(scene, look), loc="lower center", bbox_to_anchor=(0.5, -0.02), ncols=4, fontsize=14,
            frameon=False,
        )  # fmt: skip
    return encoded(figure, kind)
