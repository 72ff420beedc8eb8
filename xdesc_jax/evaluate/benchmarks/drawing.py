"""Pictures of benchmarks: rows as bars, with what they are means of as marks.

In: rows of results. Out: drawings in one look of a page; `reports.chart.chart` makes all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from xdesc_jax.evaluate.benchmarks.results import Row
from xdesc_jax.reports.chart import PALETTE, Look

_LINE_PX = 20
_NOISE = {"e": PALETTE[2], "h": PALETTE[1], "t": PALETTE[5]}
_PLANE_MARKS = "o^sDxv"
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


def accuracy_curves(rows: Sequence[Row], *, look: Look) -> Figure:
    """Matching accuracy against the threshold: a curve a row, a panel for all sequences and each kind of them.

    Args:
        rows: with `detail['mma']`: kind -> [10].
        look: of the drawing; of narrow ones, a panel above another.
    """
    kinds = list(rows[0].detail["mma"])
    beside = 2 if look.narrow else 4  # names in a row of the legend
    height = 260 * (len(kinds) if look.narrow else 1) + _LINE_PX * -(-len(rows) // beside)
    figure = look.figure(height, width_px=1100)
    shape = (len(kinds), 1) if look.narrow else (1, len(kinds))
    panels = figure.subplots(*shape, squeeze=False, sharey=True).ravel()
    for panel, kind in zip(panels, kinds, strict=True):
        for i, row in enumerate(rows):
            curve = 100 * np.asarray(row.detail["mma"][kind])
            style = ("-", "--", ":", "-.")[i // len(PALETTE) % 4]
            panel.plot(np.arange(1, len(curve) + 1), curve, color=PALETTE[i % len(PALETTE)], linestyle=style)
        panel.set(title=kind, xlabel="threshold [px]", ylim=(0, 100), xticks=(1, 4, 7, 10))
        look.prepare(panel)
    panels[0].set_ylabel("MMA [%]")
    figure.legend(panels[0].lines, [row.name for row in rows], loc="outside lower left", ncols=beside, frameon=False)
    return figure


def scene_differences(best: Row, others: Sequence[Row], *, look: Look) -> Figure:
    """How a row differs from others, a bar a sequence, ordered; a panel each.

    Args:
        best, others: with `detail['area']`: sequence -> share.
        look: of the drawing.
    """
    figure = look.figure(190 * len(others) + 20)
    panels = figure.subplots(len(others), 1, squeeze=False).ravel()
    for panel, other in zip(panels, others, strict=True):
        less = np.sort([100 * (best.detail["area"][s] - other.detail["area"][s]) for s in best.detail["area"]])[::-1]
        colors = [PALETTE[2] if value >= 0 else PALETTE[5] for value in less]
        panel.bar(np.arange(len(less)), less, color=colors, width=0.9)
        panel.axhline(0, color=look.ink, linewidth=0.8)
        panel.set(title=f"{best.name} less {other.name}", ylabel="area [%]", xticks=())
        look.prepare(panel, "y")
    panels[-1].set_xlabel("sequences, by their difference")
    return figure


def shares_within(
    errors: Mapping[str, Sequence[float]], limit: float, what: str, *, look: Look
) -> Figure:  # fmt: skip
    """Share of all within an error, a curve a row; what failed has inf.

    Args:
        errors: label -> one a pair.
        limit: of the axis.
        what: label of the axis.
        look: of the drawing.
    """
    beside = 2 if look.narrow else 4
    figure = look.figure(300 + _LINE_PX * -(-len(errors) // beside))
    panel = figure.subplots()
    for i, (name, values) in enumerate(errors.items()):
        ordered = np.sort(np.asarray(values, np.float64))
        inside = ordered[ordered <= limit]
        share = 100 * np.arange(1, len(inside) + 1) / max(1, len(ordered))
        x, y = np.concatenate([[0], inside, [limit]]), np.concatenate([[0], share, share[-1:] if len(share) else [0]])
        style = ("-", "--", ":", "-.")[i // len(PALETTE) % 4]
        panel.plot(x, y, label=name, color=PALETTE[i % len(PALETTE)], linestyle=style)
    panel.set(xlim=(0, limit), ylim=(0, 100), xlabel=what, ylabel="share [%]")
    look.prepare(panel)
    figure.legend(loc="outside lower left", ncols=beside, frameon=False)
    return figure


def planes(rows: Sequence[Row], *, look: Look) -> Figure:
    """Embeddings laid out in a plane: a panel a row, a colour a descriptor.

    Args:
        rows: with `detail['plane']`: descriptor -> [P, 2].
        look: of the drawing; of narrow ones, a panel above another.
    """
    figure = look.figure(360 * (len(rows) if look.narrow else 1), width_px=900)
    shape = (len(rows), 1) if look.narrow else (1, len(rows))
    panels = figure.subplots(*shape, squeeze=False).ravel()
    for panel, row in zip(panels, rows, strict=True):
        for i, (name, points) in enumerate(row.detail["plane"].items()):
            x, y = np.asarray(points).T
            panel.plot(
                x, y, _PLANE_MARKS[i % len(_PLANE_MARKS)], color=PALETTE[i % len(PALETTE)], markersize=4, label=name
            )
        panel.set(title=row.name, xticks=(), yticks=(), aspect="equal")
    lines = panels[0].lines
    figure.legend(lines, [line.get_label() for line in lines], loc="outside lower left", ncols=4, frameon=False)
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
