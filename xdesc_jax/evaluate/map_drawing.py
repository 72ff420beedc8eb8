"""Pictures of maps and poses: a model from two sides, error curves, co-visibility.

In: models, poses and figures. Out: PNGs as bytes with transparent ground, drawn for light or for dark pages.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullFormatter

from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate.covisibility import Covisibility
from xdesc_jax.evaluate.drawing import PALETTE

_DPI = 160
FOUND, TRUE = PALETTE[5], PALETTE[2]


@contextmanager
def _style(dark: bool) -> Iterator[str]:
    """Sets text and axes for light or dark pages; yields the faint colour."""
    ink, faint = ("#e6e6e6", "#555555") if dark else ("#222222", "#cccccc")
    style: Any = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), ink)
    style |= {"axes.edgecolor": faint, "axes.spines.top": False, "axes.spines.right": False, "font.size": 9}
    with matplotlib.rc_context(style):
        yield faint


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI, facecolor="none")
    return buffer.getvalue()


def model_picture(
    points: np.ndarray, found: Sequence[Pose], reference: Sequence[Pose] = (), *, dark: bool = False
) -> bytes:
    """Points and cameras from above and from the side.

    Args:
        points: [P, 3].
        found: cameras of the model, in the same frame.
        reference: true cameras, in the same frame; none where the model is not aligned.
        dark: for a dark page.
    """
    cameras = list(reference) or list(found)
    axes = view_axes(cameras)
    middle = np.mean([c.center for c in cameras], axis=0)
    shown = _inner(points, np.array([c.center for c in [*found, *reference]]))
    with _style(dark) as faint:
        figure = Figure((9, 4.2), layout="constrained", facecolor="none")
        for panel, (x, y), title in zip(
            figure.subplots(1, 2), ((0, 2), (0, 1)), ("from above", "from the side"), strict=True
        ):
            panel.patch.set_alpha(0)
            flat = (shown - middle) @ axes.T
            panel.scatter(
                flat[:, x], flat[:, y], s=1.2, color="#9aa3ae" if dark else "#6b7480", linewidths=0, alpha=0.6
            )
            for poses, color, marker in ((reference, TRUE, "o"), (found, FOUND, "x")):
                _draw_cameras(panel, poses, middle, axes, (x, y), color, marker)
            if y == 1:  # image coordinates: y points down
                panel.invert_yaxis()
            panel.set_aspect("equal", "datalim")
            panel.set_title(title, loc="left", fontsize=10)
            panel.tick_params(labelsize=7)
            panel.grid(color=faint, linewidth=0.4, alpha=0.5)
        names = [("true cameras", TRUE, "o")] if reference else []
        names.append((f"cameras found ({len(found)})", FOUND, "x"))
        handles = [Line2D([], [], color=c, marker=m, fillstyle="none", linestyle="", label=n) for n, c, m in names]
        figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
        return _png(figure)


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


def error_curves(errors: Mapping[str, np.ndarray], unit: str, *, dark: bool = False) -> bytes:
    """Share of photos against the largest position error allowed, a curve a row; failed ones have inf.

    Args:
        errors: label -> [Q] position errors.
        unit: of the errors, for the axis.
        dark: for a dark page.
    """
    finite = np.concatenate([e[np.isfinite(e) & (e > 0)] for e in errors.values()] or [np.zeros(0)])
    low, high = (finite.min() / 1.5, finite.max() * 1.5) if len(finite) else (1e-3, 1.0)
    with _style(dark) as faint:
        figure = Figure((7.5, 3.6), layout="constrained", facecolor="none")
        panel = figure.subplots()
        panel.patch.set_alpha(0)
        for i, (name, values) in enumerate(errors.items()):
            ordered = np.sort(values[np.isfinite(values)])
            share = np.arange(1, len(ordered) + 1) / max(1, len(values))
            x = np.concatenate([[low], np.maximum(ordered, low), [high]])
            y = np.concatenate([[0], share, share[-1:] if len(share) else [0]])
            style = ("-", "--", ":", "-.")[i // len(PALETTE) % 4]
            panel.step(x, y, where="post", label=name, color=PALETTE[i % len(PALETTE)], linestyle=style, linewidth=1.6)
        panel.set(xscale="log", xlim=(low, high), ylim=(0, 1.02), xlabel=f"position error [{unit}]", ylabel="share")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.grid(color=faint, linewidth=0.5, alpha=0.6, which="both")
        if len(errors) > 1:
            figure.legend(loc="outside right center", frameon=False)
        return _png(figure)


def covisibility_picture(shared: Covisibility, *, dark: bool = False) -> bytes:
    """Share of points by the number of kinds in their tracks, and the co-occurrence of kinds."""
    kinds = shared.kinds
    with _style(dark):
        figure = Figure((8.5, 3.4), layout="constrained", facecolor="none")
        bars, matrix = figure.subplots(1, 2)
        for panel in (bars, matrix):
            panel.patch.set_alpha(0)
        numbers = np.arange(1, len(kinds) + 1)
        drawn = bars.bar(numbers, 100 * shared.by_count, color=PALETTE[0])
        bars.bar_label(drawn, fmt="%.1f", fontsize=8)
        bars.set(xticks=numbers, xlabel="kinds of descriptor in a track", ylabel="% of 3D points")
        values = 100 * shared.together
        image = matrix.imshow(values, cmap="Blues", vmin=0, vmax=max(1.0, float(values.max(initial=0))))
        for i in range(len(kinds)):
            for j in range(len(kinds)):
                red, green, blue, _ = image.to_rgba(values[i, j])
                ink = "#111111" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.55 else "#ffffff"
                matrix.text(j, i, f"{values[i, j]:.0f}", ha="center", va="center", fontsize=9, color=ink)
        matrix.set_xticks(range(len(kinds)), kinds, rotation=20, ha="right")
        matrix.set_yticks(range(len(kinds)), kinds)
        matrix.set_title("% of 3D points seen by both", loc="left", fontsize=10)
        return _png(figure)


def spread_bars(
    labels: Sequence[str], mean: Sequence[float], spread: Sequence[float], what: str, *, dark: bool = False
) -> bytes:
    """A bar a row with its spread, for figures such as inliers."""
    with _style(dark) as faint:
        figure = Figure((7.5, 0.26 * len(labels) + 0.9), layout="constrained", facecolor="none")
        panel = figure.subplots()
        panel.patch.set_alpha(0)
        places = np.arange(len(labels))
        panel.barh(places, mean, xerr=spread, color=PALETTE[0], ecolor=PALETTE[5], height=0.7)
        panel.set_yticks(places, labels, fontsize=8)
        panel.invert_yaxis()
        panel.set_xlabel(what)
        panel.grid(color=faint, linewidth=0.4, alpha=0.5, axis="x")
        return _png(figure)


def growth(steps: Sequence[float], curves: Mapping[str, Sequence[float]], what: str, *, dark: bool = False) -> bytes:
    """Figures against the number of new photos.

    Args:
        steps: numbers of photos.
        curves: label -> a value each.
        what: label of the vertical axis.
        dark: for a dark page.
    """
    with _style(dark) as faint:
        figure = Figure((7.5, 3.2), layout="constrained", facecolor="none")
        panel = figure.subplots()
        panel.patch.set_alpha(0)
        for i, (name, values) in enumerate(curves.items()):
            panel.plot(steps, values, label=name, color=PALETTE[i % len(PALETTE)], marker="o", markersize=3.5)
        panel.set(xlabel="new photos", ylabel=what)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set_ylim(bottom=0)
        panel.grid(color=faint, linewidth=0.5, alpha=0.6)
        if len(curves) > 1:
            figure.legend(loc="outside right center", frameon=False)
        return _png(figure)
