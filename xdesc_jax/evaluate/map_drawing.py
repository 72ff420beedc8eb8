"""Pictures of maps and poses: a model from two sides, error curves, co-visibility.

In: models, poses and figures. Out: drawings in one look of a page; `reports.chart.chart` makes all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate.covisibility import Covisibility
from xdesc_jax.reports.chart import PALETTE, WIDE_PX, Look, log_x

FOUND, TRUE = PALETTE[5], PALETTE[2]
_LINE_PX = 22  # a line of text with the room around it


def model_picture(points: np.ndarray, found: Sequence[Pose], reference: Sequence[Pose] = (), *, look: Look) -> Figure:
    """Points and cameras from above and from the side; of narrow drawings, one above the other.

    Args:
        points: [P, 3].
        found: cameras of the model, in the same frame.
        reference: true cameras, in the same frame; none where the model is not aligned.
        look: of the drawing.
    """
    cameras = list(reference) or list(found)
    axes = view_axes(cameras)
    middle = np.mean([c.center for c in cameras], axis=0)
    shown = _inner(points, np.array([c.center for c in [*found, *reference]]))
    figure = look.figure(700 if look.narrow else 400, width_px=960)
    panels = figure.subplots(2, 1) if look.narrow else figure.subplots(1, 2)
    for panel, (x, y), title in zip(panels, ((0, 2), (0, 1)), ("from above", "from the side"), strict=True):
        flat = (shown - middle) @ axes.T
        panel.scatter(flat[:, x], flat[:, y], s=1.6, color=look.quiet, linewidths=0, alpha=0.6)
        for poses, color, marker in ((reference, TRUE, "o"), (found, FOUND, "x")):
            _draw_cameras(panel, poses, middle, axes, (x, y), color, marker)
        if y == 1:  # image coordinates: y points down
            panel.invert_yaxis()
        panel.set_aspect("equal", "datalim")
        panel.set_title(title)
        look.prepare(panel)
    names = [("true cameras", TRUE, "o")] if reference else []
    names.append((f"cameras found ({len(found)})", FOUND, "x"))
    handles = [Line2D([], [], color=c, marker=m, fillstyle="none", linestyle="", label=n) for n, c, m in names]
    figure.legend(handles=handles, loc="outside lower left", ncols=2, frameon=False)
    return figure


def view_axes(cameras: Sequence[Pose]) -> np.ndarray:
    """Axes [3, 3] to look along, as rows: right, down and forward of the mean camera, orthonormal."""
    down = np.mean([c.rotation[1] for c in cameras], axis=0)
    forward = np.mean([c.rotation[2] for c in cameras], axis=0)
    down /= max(float(np.linalg.norm(down)), 1e-12)
    forward = forward - (forward @ down) * down
    if np.linalg.norm(forward) < 1e-3:  # cameras that look at each other: any horizontal direction
        forward = np.eye(3)[np.argmin(np.abs(down))]
        forward = forward - (forward @ down) * down
    forward /= np.linalg.norm(forward)
    return np.stack([np.cross(down, forward), down, forward])


def _inner(points: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Points without the few far ones, which would shrink the picture."""
    if not len(points):
        return points
    middle = np.median(points, axis=0)
    distance = np.linalg.norm(points - middle, axis=1)
    cameras = np.linalg.norm(centers - middle, axis=1).max(initial=0) if len(centers) else 0
    return points[distance <= max(2 * np.percentile(distance, 90), cameras)]


def _draw_cameras(
    panel: Axes, poses: Sequence[Pose], middle: np.ndarray, axes: np.ndarray, columns: tuple[int, int], color: str,
    marker: str,
) -> None:  # fmt: skip
    if not poses:
        return
    centers = (np.array([p.center for p in poses]) - middle) @ axes.T
    ahead = np.array([p.rotation[2] for p in poses]) @ axes.T
    length = 0.08 * max(float(np.ptp(centers, axis=0).max()), 1e-9)
    x, y = columns
    size = {"facecolors": "none", "edgecolors": color} if marker == "o" else {"color": color}
    panel.scatter(centers[:, x], centers[:, y], s=26, marker=marker, linewidths=1.2, zorder=3, **size)  # type: ignore
    ends = centers + length * ahead
    for start, end in zip(centers, ends, strict=True):
        panel.plot([start[x], end[x]], [start[y], end[y]], color=color, linewidth=1, zorder=2)


def error_curves(errors: Mapping[str, np.ndarray], unit: str, *, look: Look) -> Figure:
    """Share of photos against the largest position error allowed, a curve a row; failed ones have inf.

    Args:
        errors: label -> [Q] position errors.
        unit: of the errors, for the axis.
        look: of the drawing.
    """
    finite = np.concatenate([e[np.isfinite(e) & (e > 0)] for e in errors.values()] or [np.zeros(0)])
    low, high = (float(finite.min()) / 1.5, float(finite.max()) * 1.5) if len(finite) else (1e-3, 1.0)
    figure = look.figure(300 + _legend_px(errors, look))
    panel = figure.subplots()
    for i, (name, values) in enumerate(errors.items()):
        ordered = np.sort(values[np.isfinite(values)])
        share = np.arange(1, len(ordered) + 1) / max(1, len(values))
        x = np.concatenate([[low], np.maximum(ordered, low), [high]])
        y = np.concatenate([[0], share, share[-1:] if len(share) else [0]])
        style = ("-", "--", ":", "-.")[i // len(PALETTE) % 4]
        panel.step(x, y, where="post", label=name, color=PALETTE[i % len(PALETTE)], linestyle=style, linewidth=1.8)
    log_x(panel, low, high)
    panel.set(ylim=(0, 1.02), xlabel=f"position error [{unit}]", ylabel="share")
    look.prepare(panel)
    _add_legend(figure, errors, look)
    return figure


def covisibility_picture(shared: Covisibility, *, look: Look) -> Figure:
    """Share of points by the number of kinds in their tracks, and the co-occurrence of kinds."""
    kinds = shared.kinds
    figure = look.figure(660 if look.narrow else 340, width_px=960)
    bars, matrix = figure.subplots(2, 1) if look.narrow else figure.subplots(1, 2)
    numbers = np.arange(1, len(kinds) + 1)
    drawn = bars.bar(numbers, 100 * shared.by_count, color=PALETTE[0])
    bars.bar_label(drawn, fmt="%.1f")
    bars.set(xticks=numbers, xlabel="kinds of descriptor in a track", ylabel="% of 3D points")
    look.prepare(bars, "y")
    values = 100 * shared.together
    image = matrix.imshow(values, cmap="Blues", vmin=0, vmax=max(1.0, float(values.max(initial=0))))
    for i in range(len(kinds)):
        for j in range(len(kinds)):
            red, green, blue, _ = image.to_rgba(values[i, j])
            ink = "#111111" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.55 else "#ffffff"
            matrix.text(j, i, f"{values[i, j]:.0f}", ha="center", va="center", color=ink)
    matrix.set_xticks(range(len(kinds)), kinds, rotation=20, ha="right")
    matrix.set_yticks(range(len(kinds)), kinds)
    matrix.set_title("% of 3D points seen by both")
    look.prepare(matrix, "none")
    return figure


def spread_bars(
    labels: Sequence[str], mean: Sequence[float], spread: Sequence[float], what: str, *, look: Look
) -> Figure:
    """A bar a row with its spread, for figures such as inliers."""
    figure = look.figure(_LINE_PX * len(labels) + 60)
    panel = figure.subplots()
    places = np.arange(len(labels))
    panel.barh(places, mean, xerr=spread, color=PALETTE[0], ecolor=PALETTE[5], height=0.7)
    panel.set_yticks(places, labels)
    panel.set_ylim(len(labels) - 0.4, -0.6)
    panel.set_xlabel(what)
    panel.xaxis.set_major_locator(MaxNLocator(4 if look.narrow else 8))
    look.prepare(panel, "x")
    return figure


def growth(steps: Sequence[float], curves: Mapping[str, Sequence[float]], what: str, *, look: Look) -> Figure:
    """Figures against the number of new photos.

    Args:
        steps: numbers of photos.
        curves: label -> a value each.
        what: label of the vertical axis.
        look: of the drawing.
    """
    figure = look.figure(280 + _legend_px(curves, look), width_px=540)
    panel = figure.subplots()
    for i, (name, values) in enumerate(curves.items()):
        panel.plot(steps, values, label=name, color=PALETTE[i % len(PALETTE)], marker="o", markersize=4)
    panel.set(xlabel="new photos", ylabel=what)
    panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.set_ylim(bottom=0)
    look.prepare(panel)
    _add_legend(figure, curves, look)
    return figure


def _add_legend(figure: Figure, curves: Mapping[str, object], look: Look) -> None:
    """Below, where a telephone has room."""
    if len(curves) > 1:
        figure.legend(loc="outside lower left", ncols=_beside(curves, look), frameon=False)


def _legend_px(curves: Mapping[str, object], look: Look) -> int:
    return _LINE_PX * -(-len(curves) // _beside(curves, look)) if len(curves) > 1 else 0


def _beside(curves: Mapping[str, object], look: Look) -> int:
    """As many names as stand beside each other; about 8 px a letter, and a mark of 45 px."""
    width = 8 * max(map(len, curves)) + 45
    return max(1, min(len(curves), 4, (340 if look.narrow else WIDE_PX // 2) // width))
