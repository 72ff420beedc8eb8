"""Interactive pictures of a sweep, by plotly, whose script the page carries inside.

In: members' records and the axes of the swept fields. Out: plots, whose colours are the page's, light or dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from xdesc_jax.reports.parts import Plot
from xdesc_jax.sweep.fields import FEW, Axis, shortened, text
from xdesc_jax.sweep.ranking import counts, explained
from xdesc_jax.sweep.results import Record, field_value

RANK = "mean rank-1"
FEWEST = 8  # members from which on outliers are told and shares of variance mean something
JITTER = 0.22  # of the distance between categories
_BEST = [f"var(--best-{i})" for i in range(1, 6)]


def script() -> str:
    """Plotly's own script, which draws the plots, for the page."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def shown_range(records: Sequence[Record]) -> tuple[float, float]:
    """The range of mean rank-1 that plots show: of all members, but for single ones far below the others."""
    values = np.array([r["mean_rank1"] for r in records if counts(r)] or [0.0, 1.0])
    low, high = float(values.min()), float(values.max())
    if len(values) >= FEWEST:
        first, third = np.quantile(values, [0.25, 0.75])
        low = float(values[values >= first - 3 * (third - first)].min())
    return low, high if high > low else low + 1e-3


def parallel_coordinates(records: Sequence[Record], axes: Sequence[Axis]) -> Plot:
    """A line a member through its values, coloured by its mean rank-1; members without one are left out."""
    kept = [i for i, record in enumerate(records) if counts(record)]
    ranks = [records[i]["mean_rank1"] for i in kept]
    low, high = shown_range(records)
    dimensions = []
    apart = _spread(len(kept))
    for axis in axes:
        places = axis.positions[kept]
        width = float(np.ptp(axis.positions)) or 1.0
        # Lines through the same few points would hide each other.
        positions = (places + (0.015 * width * apart if axis.labels else 0)).tolist()
        dimension: dict[str, Any] = {"label": _plain(shortened(axis.name, 26)), "values": positions}
        if axis.ticks:
            dimension |= {"tickvals": list(axis.ticks), "ticktext": [_plain(shortened(t, 20)) for t in axis.labels]}
            dimension["range"] = [
                float(axis.positions.min() - 0.03 * width),
                float(axis.positions.max() + 0.03 * width),
            ]
        dimensions.append(dimension)
    # Those far below all others stand at the foot of the axis, which would else show little but their distance.
    dimensions.append({"label": RANK, "values": [max(rank, low) for rank in ranks], "range": [low, high]})
    line = {"color": ranks, "coloraxis": "coloraxis"}
    label_room = {"labelangle": -18, "labelside": "top"} if len(dimensions) > 5 else {}
    fonts = {"labelfont": {"size": 13}, "tickfont": {"size": 12}, "rangefont": {"size": 12}}
    data = [{"type": "parcoords", "line": line, "dimensions": dimensions, **fonts, **label_room}]
    bar = {"thickness": 12, "title": {"text": RANK, "side": "right"}, "outlinewidth": 0}
    layout = {
        "coloraxis": {"cmin": low, "cmax": high, "colorbar": bar, "colorscale": _scale()},
        "margin": {"l": 90, "r": 30, "t": 90 if label_room else 60, "b": 30},
    }
    return Plot("Parallel coordinates of the members", data, layout, 460, 108 * len(dimensions) + 120)


def ablation(records: Sequence[Record], axis: Axis, fields: Sequence[str]) -> Plot:
    """Mean rank-1 against one field: a point a member, and the median a value (of many values, of neighbours)."""
    low, high = shown_range(records)
    pad = 0.06 * (high - low)
    places = axis.positions
    if not axis.numeric:
        places = places + JITTER * _spread(len(records))
    kinds: dict[str, list[int]] = {}
    for i, record in enumerate(records):
        kind = record["status"] if record["status"] == "diverged" or counts(record) else "diverged"
        below = counts(record) and record["mean_rank1"] < low
        kinds.setdefault("below the plot" if below else kind, []).append(i)
    data = []
    for kind, members in kinds.items():
        at_floor = kind in ("below the plot", "diverged")
        heights = [low - pad if at_floor else records[i]["mean_rank1"] for i in members]
        data.append(_points(kind, [places[i] for i in members], heights, [records[i] for i in members], fields))
    data.append(_medians(records, axis))
    x: dict[str, Any] = {}
    if axis.ticks:
        x |= {"tickvals": list(axis.ticks), "ticktext": [_plain(shortened(t, 24)) for t in axis.labels]}
    if not axis.numeric:
        x["range"] = [-0.5, len(axis.labels) - 0.5]
    y = {"title": {"text": RANK}, "range": [low - 2 * pad, high + pad]}
    layout = {"xaxis": x, "yaxis": y, "showlegend": False, "margin": {"l": 64, "r": 16, "t": 28, "b": 40}}
    width = 40 * len(axis.labels) + 80 if not axis.numeric else 0
    return Plot(f"{RANK} against {axis.name}", data, layout, 330, width, axis.name)


def learning_curves(records: Sequence[Record], best: Sequence[Record], fields: Sequence[str]) -> Plot:
    """Mean rank-1 against the epoch: the best members' in colours, the others' faint."""
    named = {record["member"] for record in best}
    others = [record for record in records if record["member"] not in named]
    faint = _curve([r for r in others if r["status"] != "diverged"], fields, "var(--faint)", "others")
    faint["opacity"] = 0.35 if len(others) > 10 else 0.6
    lost = _curve([r for r in others if r["status"] == "diverged"], fields, "var(--bad)", "diverged")
    lost["line"]["dash"] = "dot"
    data = [trace for trace in (faint, lost) if trace["x"]]
    for place, record in enumerate(best[: len(_BEST)], 1):
        trace = _curve([record], fields, _BEST[place - 1], f"{place}: {record['member']}")
        trace["line"]["width"] = 2.5
        data.append(trace)
    last = max((point["epoch"] for record in records for point in record.get("history") or []), default=0)
    layout = {
        "xaxis": {"title": {"text": "epoch"}, **({"dtick": 1} if last <= FEW else {})},
        "yaxis": {"title": {"text": RANK}},
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "margin": {"l": 64, "r": 16, "t": 28, "b": 56},
    }
    return Plot("Learning curves", data, layout, 480)


def importance(records: Sequence[Record], axes: Sequence[Axis]) -> Plot | None:
    """Bars of `shares`; None where there are none."""
    found = shares(records, axes)
    if not found:
        return None
    names = list(found)[::-1]  # bars are drawn from below
    values = [found[name] for name in names]
    bar = {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(names))),
        "x": values,
        "text": [f"{value:.0%}" for value in values],
        "textposition": "outside",
        "cliponaxis": False,
        "hoverinfo": "skip",
        "marker": {"color": "var(--heat)"},
    }
    ticks = {"tickvals": list(range(len(names))), "ticktext": [_plain(shortened(name, 32)) for name in names]}
    layout = {
        "xaxis": {
            "range": [0, max(0.05, 1.12 * max(values))],
            "tickformat": ".0%",
            "title": {"text": "of the variance"},
        },
        "yaxis": {**ticks, "automargin": True},
        "margin": {"l": 16, "r": 48, "t": 28, "b": 50},
    }
    return Plot("Share of the variance that each field explains", [bar], layout, 100 + 30 * len(names))


def shares(records: Sequence[Record], axes: Sequence[Axis]) -> dict[str, float]:
    """Share of the variance of mean rank-1 that each field alone explains, largest first; empty for few members."""
    kept = np.array([counts(record) for record in records])
    if kept.sum() < FEWEST:
        return {}
    values = np.array([r["mean_rank1"] for r in records if counts(r)])
    found = {axis.name: explained(axis.groups(8)[kept], values) for axis in axes}
    known = {name: share for name, share in found.items() if share is not None}
    return dict(sorted(known.items(), key=lambda item: -item[1]))


def _points(
    kind: str, x: Sequence[float], y: Sequence[float], records: Sequence[Record], fields: Sequence[str]
) -> dict[str, Any]:
    symbol, color = {
        "finished": ("circle", "var(--heat)"),
        "stopped": ("circle-open", "var(--heat)"),
        "diverged": ("x-thin-open", "var(--bad)"),
        "below the plot": ("triangle-down-open", "var(--heat)"),
    }[kind]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": kind,
        "x": [float(v) for v in x],
        "y": list(y),
        "marker": {"symbol": symbol, "color": color, "size": 7, "opacity": 0.55 if len(records) > 60 else 0.8},
        "text": [_hover(record, fields) for record in records],
        "hovertemplate": "%{text}<extra></extra>",
        "customdata": [record["member"] for record in records],
    }


def _medians(records: Sequence[Record], axis: Axis) -> dict[str, Any]:
    kept = np.array([counts(record) for record in records])
    groups, places = axis.groups()[kept], axis.positions[kept]
    values = np.array([r["mean_rank1"] for r in records if counts(r)], np.float64)
    names = np.unique(groups)
    x = [float(np.median(places[groups == g])) for g in names]
    y = [float(np.median(values[groups == g])) for g in names]
    marks = {"symbol": "line-ew-open", "size": 26, "line": {"width": 3}} if not axis.numeric else {"size": 4}
    return {
        "type": "scatter",
        "mode": "lines+markers" if axis.numeric else "markers",
        "name": "median",
        "x": x,
        "y": y,
        "line": {"color": "var(--ink)", "width": 2},
        "marker": {"color": "var(--ink)", **marks},
        "hovertemplate": "median %{y:.4f}<extra></extra>",
    }


def _curve(records: Sequence[Record], fields: Sequence[str], color: str, name: str) -> dict[str, Any]:
    """One trace for all records, with a gap between them: hundreds of traces would be slow."""
    x: list[float | None] = []
    y: list[float | None] = []
    texts: list[str] = []
    members: list[str | None] = []
    for record in records:
        points = [point for point in record.get("history") or [] if point["mean_rank1"] is not None]
        x += [*(point["epoch"] for point in points), None]
        y += [*(point["mean_rank1"] for point in points), None]
        about = _hover(record, fields)
        texts += [*(f"epoch {p['epoch']}: {p['mean_rank1']:.4f}<br>{about}" for p in points), ""]
        members += [*(record["member"] for _ in points), None]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": x,
        "y": y,
        "text": texts,
        "customdata": members,
        "hovertemplate": "%{text}<extra></extra>",
        "line": {"color": color, "width": 1.2},
        "marker": {"size": 4},
        "connectgaps": False,
    }


def _hover(record: Record, fields: Sequence[str]) -> str:
    rank = "none" if record["mean_rank1"] is None else f"{record['mean_rank1']:.4f}"
    lines = [f"<b>{_plain(record['member'])}</b> {record['status']}", f"{RANK}: {rank}"]
    lines += [f"{_plain(name)}: {_plain(shortened(text(field_value(record, name)), 60))}" for name in fields]
    if record.get("reason"):
        lines.append(_plain(shortened(record["reason"], 80)))
    return "<br>".join(lines)


def _plain(label: str) -> str:
    """A text that plotly, which reads some markup, shows as it is."""
    return escape(label, quote=False)


def _spread(count: int) -> np.ndarray:
    """[count] in -1 to 1, neighbours far apart: multiples of the golden ratio, modulo 1."""
    return 2 * np.modf(0.5 + 0.618034 * np.arange(count))[0] - 1


def _scale() -> list[list[Any]]:
    return [[i / 3, f"var(--scale-{i})"] for i in range(4)]
