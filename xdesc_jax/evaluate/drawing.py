"""Pictures for reports: matched pairs and curves of matching accuracy.

In: gray photos, matches and results. Out: encoded pictures as bytes, and drawings in each look of a page, by matplotlib
without a display.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from xdesc_jax.evaluate.homography import MatchedPair, Mode, Result
from xdesc_jax.evaluate.measures import THRESHOLDS_PX
from xdesc_jax.reports.chart import PALETTE, Look

CORRECT, WRONG = "#1fd36b", "#ff3b30"
_LINES: dict[Mode, dict[str, Any]] = {
    "native": {"linestyle": "-", "linewidth": 2.6},
    "translated": {"linestyle": "-", "linewidth": 1.4, "marker": "o", "markersize": 3},
    "joint": {"linestyle": "--", "linewidth": 1.2},
    "naive": {"linestyle": ":", "linewidth": 1.4},
}
_GAP_PX = 8
# More lines than these hide the photos; the counts are of all matches.
_LINES_DRAWN = 250
_DPI = 100


def side_by_side(query: np.ndarray, database: np.ndarray) -> tuple[np.ndarray, int]:
    """Two gray photos uint8 [H, W] on one white canvas, and the column where the second begins."""
    height = max(len(query), len(database))
    offset = query.shape[1] + _GAP_PX
    canvas = np.full((height, offset + database.shape[1]), 255, np.uint8)
    canvas[: len(query), : query.shape[1]] = query
    canvas[: len(database), offset:] = database
    return canvas, offset


def draw_matches(axes: Axes, query: np.ndarray, database: np.ndarray, matched: MatchedPair, title: str = "") -> None:
    """Both photos with a line per match: correct ones green, wrong ones red and dashed beneath.

    Of many matches every second, third, ... is drawn, so that the photos remain to be seen.

    Args:
        axes: where to draw; its frame and ticks are removed.
        query, database: gray photos, uint8 [H, W].
        matched: positions in px and which are correct.
        title: put above with the counts; nothing is written where it is empty.
    """
    canvas, offset = side_by_side(query, database)
    axes.imshow(canvas, cmap="gray", vmin=0, vmax=255, interpolation="antialiased")
    ends = np.stack([matched.query_xy, matched.database_xy + [offset, 0]], axis=1)
    drawn = np.zeros(len(ends), bool)
    drawn[:: max(1, -(-len(ends) // _LINES_DRAWN))] = True
    for correct, color, style in ((False, WRONG, (0, (4, 2))), (True, CORRECT, "solid")):
        rows = drawn & (matched.correct == correct)
        axes.add_collection(
            LineCollection(list(ends[rows]), colors=color, linewidths=0.6, alpha=0.75, linestyles=style)
        )
        x, y = ends[rows].reshape(-1, 2).T
        axes.scatter(x, y, s=3, color=color, linewidths=0)
    axes.set(xlim=(-0.5, canvas.shape[1] - 0.5), ylim=(len(canvas) - 0.5, -0.5))
    axes.axis("off")
    if title:
        axes.set_title(f"{title}: {counts(matched)}", fontsize=10, loc="left")


def counts(matched: MatchedPair) -> str:
    """For instance '120 of 150 matches correct'."""
    return f"{int(matched.correct.sum())} of {len(matched.correct)} matches correct"


def matches_picture(query: np.ndarray, database: np.ndarray, matched: MatchedPair, width_px: int = 1000) -> bytes:
    """One matched pair as JPEG of the given width, without a title."""
    canvas, _ = side_by_side(query, database)
    inches = width_px / _DPI
    figure = Figure((inches, inches * canvas.shape[0] / canvas.shape[1]), dpi=_DPI)
    draw_matches(figure.add_axes((0, 0, 1, 1)), query, database, matched)
    return _encoded(figure, "jpeg", pil_kwargs={"quality": 85})


def matches_grid(
    query: np.ndarray, database: np.ndarray, panels: Sequence[tuple[str, MatchedPair]], width_px: int = 1400
) -> bytes:
    """Several matchings of one pair, two in a row, as PNG with titles and counts."""
    canvas, _ = side_by_side(query, database)
    rows, inches = -(-len(panels) // 2), width_px / _DPI
    height = rows * (inches / 2 * canvas.shape[0] / canvas.shape[1] + 0.3)
    figure = Figure((inches, height), dpi=_DPI, layout="constrained", facecolor="white")
    grid = figure.subplots(rows, 2, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.axis("off")
    for axes, (title, matched) in zip(grid, panels, strict=False):
        draw_matches(axes, query, database, matched, title)
    return _encoded(figure, "png")


def mma_curves(results: Sequence[Result], *, look: Look) -> Figure:
    """Matching accuracy against the threshold, one panel per target descriptor; of narrow drawings, one above another.

    Args:
        results: the comparisons; the colour says the source, the line style the mode.
        look: of the drawing.
    """
    targets = list(dict.fromkeys(r.comparison.target for r in results))
    sources = list(dict.fromkeys(r.comparison.source for r in results))
    color = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(sources)}
    modes = [mode for mode in _LINES if any(r.comparison.mode == mode for r in results)]
    handles = [Line2D([], [], color=color[name], linewidth=4, label=f"from {name}") for name in sources]
    handles += [Line2D([], [], color=look.ink, label=mode, **_LINES[mode]) for mode in modes]
    columns = 1 if look.narrow else min(len(targets), 3)
    beside = 2 if look.narrow else 4  # names in a row of the legend
    rows = -(-len(targets) // columns)
    figure = look.figure(250 * rows + 24 * -(-len(handles) // beside) + 20, width_px=330 * columns + 20)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes in grid[len(targets) :]:
        axes.axis("off")
    for axes, target in zip(grid, targets, strict=False):
        for result in results:
            if result.comparison.target == target:
                line = _LINES[result.comparison.mode]
                axes.plot(THRESHOLDS_PX, result.mean.mma, color=color[result.comparison.source], **line)
        axes.set(title=f"to {target}", xlabel="threshold [px]", ylim=(0, 1), xticks=THRESHOLDS_PX[::3])
        look.prepare(axes)
    for axes in grid[::columns]:
        axes.set_ylabel("MMA")
    figure.legend(handles=handles, loc="outside lower left", ncols=beside, frameon=False)
    return figure


def _encoded(figure: Figure, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=figure.dpi, **options)
    return buffer.getvalue()
