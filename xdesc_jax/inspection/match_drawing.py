"""Pictures of matches: two photos with a line a match, coloured by how sure it is, and what the colours say.

In: photos, matched keypoints, and a value a match. Out: encoded pictures. Photos are shown gray and dark, so that
colours stand out; colours run from dark violet to bright yellow, which also those see who do not tell red from green.
"""

from __future__ import annotations

import dataclasses
import io
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import MaxNLocator

from xdesc_jax.inspection.shown_photos import fitted
from xdesc_jax.localization.correspondences import spread
from xdesc_jax.reports.chart import Look

PAGE_SIDE_PX, FILE_SIDE_PX = 1200, 1600  # the longer side of a picture on a page, and of one in a file
_GAP_PX = 8
_PX = 100  # an inch
_POINT = 72 / _PX  # pixels in matplotlib's points
_BRIGHTNESS = 0.62  # of the photos
_GROUND = 38  # gray around photos
_NO_VALUE = "#b9bec6"
_KEYPOINTS_DRAWN = 1500
_COLORS = ListedColormap(matplotlib.colormaps["plasma"](np.linspace(0.22, 1, 256)))


@dataclasses.dataclass(frozen=True)
class Scale:
    """What the colour of a match or keypoint says.

    Attributes:
        name: of the value.
        low, high: the range; values beyond it have the colour of its end.
        low_is_best: whether low values are the good ones, which are bright.
        best: what the good end is, in a word.
    """

    name: str
    low: float
    high: float
    low_is_best: bool = True
    best: str = "sure"

    @property
    def label(self) -> str:
        """Its name, and which end is the good one."""
        return f"{self.name} ({'small' if self.low_is_best else 'large'} is {self.best})"

    @property
    def colors(self) -> Colormap:
        """From `low` to `high`."""
        return _COLORS.reversed() if self.low_is_best else _COLORS

    def of(self, values: np.ndarray) -> np.ndarray:
        """Colours RGBA [N, 4]; gray for NaN."""
        values = np.asarray(values, np.float64)
        found = self.colors(Normalize(self.low, self.high, clip=True)(values).filled(0))
        found[np.isnan(values)] = matplotlib.colors.to_rgba(_NO_VALUE)
        return found

    def order(self, values: np.ndarray) -> np.ndarray:
        """Rows from the worst to the best, those without a value first."""
        worth = -values if self.low_is_best else values
        return np.argsort(np.where(np.isnan(worth), -np.inf, worth), kind="stable")


def ratio_scale(ratios: np.ndarray) -> Scale:
    """A scale of ratios that ends at 1 and begins at the round number below nearly all of them."""
    finite = ratios[np.isfinite(ratios)]
    low = np.floor(10 * np.percentile(finite, 2)) / 10 if len(finite) else 0
    return Scale("ratio", float(np.clip(low, 0, 0.8)), 1.0)


def score_scale(scores: np.ndarray) -> Scale:
    """A scale for the scores of a match file, which may lie anywhere."""
    finite = scores[np.isfinite(scores)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    return Scale("score", low, high if high > low else low + 1, low_is_best=False)


@dataclasses.dataclass(frozen=True)
class Drawing:
    """What is drawn of two photos.

    Attributes:
        photos: both, uint8 [H, W, 3].
        keypoints: of both, [N, 2] px, origin at the centre of the first pixel.
        indices: [M, 2] matched rows, from the worst to the best, which lie on top.
        values: [M], what the colours say; None for one colour.
        refused: [R, 2] matches drawn beneath, dotted and without colour.
        scale: of the values.
    """

    photos: tuple[np.ndarray, np.ndarray]
    keypoints: tuple[np.ndarray, np.ndarray]
    indices: np.ndarray
    values: np.ndarray | None
    refused: np.ndarray
    scale: Scale


def chosen(values: np.ndarray | None, count: int, scale: Scale, total: int) -> np.ndarray:
    """Rows of at most `count` of `total` matches, from the worst to the best: evenly, so that all kinds are seen."""
    order = scale.order(values) if values is not None else np.arange(total)
    return spread(order, count)


@dataclasses.dataclass(frozen=True)
class Canvas:
    """Two photos on one ground.

    Attributes:
        pixels: uint8 [H, W].
        scale: pixels of it to a pixel of a photo.
        offset: (x, y) of the second photo.
    """

    pixels: np.ndarray
    scale: float
    offset: tuple[int, int]

    def at(self, xy: np.ndarray, side: int) -> np.ndarray:
        """Positions of keypoints on it, as matplotlib's `imshow` has them."""
        return (np.asarray(xy, np.float64) + 0.5) * self.scale - 0.5 + (self.offset if side else (0, 0))


def joined(photos: tuple[np.ndarray, np.ndarray], side_px: int) -> Canvas:
    """Both photos beside or, where that is nearer to a square, above each other; the longer side is `side_px`."""
    (h0, w0), (h1, w1) = (photo.shape[:2] for photo in photos)
    beside, above = (w0 + w1, max(h0, h1)), (max(w0, w1), h0 + h1)
    stacked = abs(np.log(above[0] / above[1])) < abs(np.log(beside[0] / beside[1]))
    scale = (side_px - _GAP_PX) / max(above if stacked else beside)
    small = [darkened(fitted(photo, scale)) for photo in photos]
    offset = (0, len(small[0]) + _GAP_PX) if stacked else (small[0].shape[1] + _GAP_PX, 0)
    size = [max(small[0].shape[axis], small[1].shape[axis] + offset[1 - axis]) for axis in (0, 1)]
    pixels = np.full(size, _GROUND, np.uint8)
    for gray, (x, y) in zip(small, ((0, 0), offset), strict=True):
        pixels[y : y + len(gray), x : x + gray.shape[1]] = gray
    return Canvas(pixels, scale, offset)


def darkened(photo: np.ndarray) -> np.ndarray:
    """A photo [H, W, 3] as dark gray, uint8 [H, W]."""
    return (_BRIGHTNESS * (photo @ [0.299, 0.587, 0.114])).round().astype(np.uint8)


def draw_matches(axes: Axes, drawn: Drawing, canvas: Canvas) -> None:
    """Photos, keypoints without a match, refused matches, and matches."""
    show_pixels(axes, canvas.pixels)
    pixel = max(canvas.pixels.shape) / PAGE_SIDE_PX * _POINT
    for side in (0, 1):
        matched = np.concatenate([drawn.indices[:, side], drawn.refused[:, side]])
        rest = spread(np.setdiff1d(np.arange(len(drawn.keypoints[side])), matched), _KEYPOINTS_DRAWN)
        x, y = canvas.at(drawn.keypoints[side][rest], side).T
        axes.scatter(x, y, s=(3 * pixel) ** 2, color="#ffffff", alpha=0.28, linewidths=0)

    def ends(indices: np.ndarray) -> np.ndarray:
        return np.stack([canvas.at(drawn.keypoints[s][indices[:, s]], s) for s in (0, 1)], axis=1)

    dotted: Any = {"colors": _NO_VALUE, "linewidths": 1.1 * pixel, "linestyles": (0, (1, 3)), "alpha": 0.75}
    axes.add_collection(LineCollection(list(ends(drawn.refused)), **dotted))
    values = np.full(len(drawn.indices), np.nan) if drawn.values is None else drawn.values
    colors = drawn.scale.of(values) if drawn.values is not None else drawn.scale.of(best_of(drawn.scale, len(values)))
    lines = ends(drawn.indices)
    axes.add_collection(LineCollection(list(lines), colors=list(colors), linewidths=1.4 * pixel, alpha=0.7))
    for side in (0, 1):
        x, y = lines[:, side].T
        axes.scatter(x, y, s=(7 * pixel) ** 2, color=colors, edgecolors="#101010", linewidths=0.8 * pixel, zorder=3)


def best_of(scale: Scale, count: int) -> np.ndarray:
    """The best value, `count` times."""
    return np.full(count, scale.low if scale.low_is_best else scale.high)


def show_pixels(axes: Axes, gray: np.ndarray) -> None:
    """A gray picture that fills its axes, which have neither frame nor ticks."""
    axes.imshow(gray, cmap="gray", vmin=0, vmax=255, interpolation="antialiased")
    axes.set(xlim=(-0.5, gray.shape[1] - 0.5), ylim=(len(gray) - 0.5, -0.5))
    axes.axis("off")


def match_picture(drawn: Drawing) -> bytes:
    """A picture without words, as JPEG, for a page that has them."""
    canvas = joined(drawn.photos, PAGE_SIDE_PX)
    height, width = canvas.pixels.shape
    figure = Figure((width / _PX, height / _PX), dpi=_PX)
    draw_matches(figure.add_axes((0, 0, 1, 1)), drawn, canvas)
    return encoded(figure, "jpeg")


def match_figure(drawn: Drawing, title: str, caption: str, kind: str) -> bytes:
    """A picture that stands alone: with a title, a caption and the colours' scale.

    Args:
        drawn: what it shows.
        title, caption: set above it.
        kind: 'png' or 'jpeg'.
    """
    canvas = joined(drawn.photos, FILE_SIDE_PX)
    height, width = canvas.pixels.shape
    figure, axes = titled(width, [height, BAR_PX] if drawn.values is not None else [height], title, caption)
    draw_matches(axes[0], drawn, canvas)
    if drawn.values is not None:
        color_bar(axes[1], drawn.scale)
    return encoded(figure, kind)


BAR_PX = 22
_TEXT_PX, _LINE_PX, _MARGIN_PX, _BELOW_PX = 24, 33, 24, 64  # the last: for the labels below each picture but the first


def titled(width: int, heights: Sequence[int], title: str, caption: str) -> tuple[Figure, list[Axes]]:
    """A white figure with words, and below them axes of the given width and heights in px, from the top down."""
    columns = max(20, int(width / (0.56 * _TEXT_PX)))
    lines = [textwrap.fill(drawable(text), columns, break_long_words=True) for text in (title, caption)]
    tops = [_MARGIN_PX, _MARGIN_PX + (lines[0].count("\n") + 1) * _LINE_PX]
    top = tops[1] + (lines[1].count("\n") + 1) * _LINE_PX + _MARGIN_PX // 2
    whole = np.array([width + 2 * _MARGIN_PX, top + sum(heights) + _BELOW_PX * (len(heights) - 1) + _MARGIN_PX])
    figure = Figure(tuple(whole / _PX), dpi=_PX, facecolor="white")
    left = _MARGIN_PX / whole[0]
    for text, at, weight in zip(lines, tops, ("bold", "normal"), strict=True):
        figure.text(
            left, 1 - at / whole[1], text, weight=weight, fontsize=_TEXT_PX * _POINT, linespacing=1.2, va="top",
            color="#1b1f24", parse_math=False,  # '$' may be part of a photo's name
        )  # fmt: skip
    axes = []
    for i, height in enumerate(heights):
        axes.append(figure.add_axes((left, 1 - (top + height) / whole[1], width / whole[0], height / whole[1])))
        top += height + (_MARGIN_PX // 2 if i == 0 else _BELOW_PX)
    return figure, axes


def drawable(text: str) -> str:
    """A text in which letters that matplotlib's font lacks stand as their code points."""
    known = get_font(findfont(FontProperties())).get_charmap()
    return "".join(c if ord(c) in known or c.isspace() else f"\\u{ord(c):04x}" for c in text)


def color_bar(axes: Axes, scale: Scale) -> None:
    """The colours of a scale with their values."""
    axes.imshow(np.linspace(0, 1, 256)[None], aspect="auto", cmap=scale.colors, extent=(scale.low, scale.high, 0, 1))
    left, bottom, width, height = axes.get_position().bounds
    axes.set_position((left + 0.03 * width, bottom, 0.94 * width, height))  # room for the outer labels
    axes.set_yticks([])
    axes.tick_params(labelsize=0.8 * _TEXT_PX * _POINT)
    axes.set_xlabel(scale.label, fontsize=0.8 * _TEXT_PX * _POINT, labelpad=2)


def histogram(values: np.ndarray, scale: Scale, what: str, *, look: Look) -> Figure:
    """How many have which value, in the colours of the pictures."""
    figure = look.figure(230, width_px=560)
    axes = figure.subplots()
    look.prepare(axes, grid="y")
    finite = np.clip(values[~np.isnan(values)], scale.low, scale.high)
    counts, edges = np.histogram(finite, bins=24, range=(scale.low, scale.high))
    middle = (edges[1:] + edges[:-1]) / 2
    axes.bar(
        middle,
        counts,
        width=np.diff(edges),
        color=scale.of(middle),
        edgecolor=look.quiet,
        linewidth=0.6,
    )
    axes.set(xlim=(scale.low, scale.high), xlabel=scale.label, ylabel=what)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    return figure


def median(values: np.ndarray | None) -> float | None:
    """The median of what is not NaN; None where there is nothing."""
    if values is None or np.isnan(values).all():
        return None
    return float(np.nanmedian(values))


def encoded(figure: Figure, kind: str) -> bytes:
    """A figure as 'png' or 'jpeg'."""
    buffer = io.BytesIO()
    options: Any = {"pil_kwargs": {"quality": 86}} if kind == "jpeg" else {}
    figure.savefig(buffer, format=kind, dpi=figure.dpi, **options)
    return buffer.getvalue()
