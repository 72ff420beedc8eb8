"""Pictures of benchmarks: rows as bars, with what they are means of as marks.

In: rows of results. Out: drawings in one look of a page; `reports.chart.chart` makes all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from xdesc_jax.evaluate.benchmarks.results import Row
from xdesc_jax.reports.chart import PALETTE, Look

_LINE_PX = 20
_NOISE = {"e": PALETTE[2], "h": PALETTE[1], "t": PALETTE[5]}
_MARKS = {"intra": "D", "inter": "*", "illumination": "x", "viewpoint": "^", "": "o", "other": "s"}


def patch_bars(rows: Sequence[Row], *, look: Look) -> Figure:
    """Verification, matching and retrieval of each row, best above, as in the paper's figure.

    Args:
        rows: of the benchmark of patches.
        look: of the drawing; of narrow ones, a panel above another.
    """
    tasks = ("verification", "matching", "retrieval")
    height = _LINE_PX * len(rows) + 80
    figure = look.figure(height * (3 if look.narrow else 1), width_px=1200)
    panels = figure.subplots(3, 1) if look.narrow else figure.subplots(1, 3)
    for panel, task in zip(panels, tasks, strict=True):
        ordered = sorted(rows, key=lambda row: row.values[task] or 0)
        ranked_bars(panel, [row.name for row in ordered], [row.values[task] or 0 for row in ordered])
        marks: dict[tuple[str, str], list[tuple[float, int]]] = {}
        for place, row in enumerate(ordered):
            for noise, kind, value in _marks(row.detail[task]):
                marks.setdefault((noise, kind), []).append((value, place))
        for (noise, kind), points in marks.items():
            panel.plot(*zip(*points, strict=True), marker=_MARKS[kind], color=_NOISE[noise], markersize=5, linestyle="")
        panel.set(title=task, xlabel="mean average precision [%]", xlim=(0, 100))
        look.prepare(panel, "x")
    return figure


def ranked_bars(panel: Axes, names: Sequence[str], values: Sequence[float]) -> None:
    """A horizontal bar a name, the first below."""
    places = np.arange(len(names))
    panel.barh(places, values, color=PALETTE[4], height=0.7)
    panel.set_yticks(places, names)
    panel.set_ylim(-0.6, len(names) - 0.4)


def _marks(detail: dict) -> Iterable[tuple[str, str, float]]:
    """Noise, kind and figure of all that a bar is the mean of."""
    for noise, found in detail.items():
        if isinstance(found, float):
            yield noise, "", found
            continue
        for kind, value in found.items():
            yield noise, kind, value["imbalanced"] if isinstance(value, dict) else value
