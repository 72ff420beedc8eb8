"""How drawings look on a page: for light and dark pages, for wide and narrow screens.

In: a function that draws. Out: a `Picture` with each of its forms, as PNGs on a transparent ground. Lengths are the
page's pixels, so that the text of a drawing is as large as the page's.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from PIL import Image

from xdesc_jax.reports.parts import Picture

# After Okabe and Ito: they stay apart under colour blindness; blue and green lighter, for dark pages.
PALETTE = ("#2f86d0", "#e69f00", "#12a07a", "#cc79a7", "#56b4e9", "#d55e00", "#8a8a8a")
TEXT_PX = 12  # on a telephone of 390 px the page leaves about NARROW_PX, so nothing is scaled down
WIDE_PX, NARROW_PX = 720, 350
_DENSITY = 2
_POINTS = 72  # an inch; a pixel is taken as 1/100 inch
_PX = 100


@dataclasses.dataclass(frozen=True)
class Look:
    """One form of a drawing."""

    dark: bool = False
    narrow: bool = False

    @property
    def ink(self) -> str:
        return "#e6e8eb" if self.dark else "#1b1f24"

    @property
    def faint(self) -> str:
        return "#4a515b" if self.dark else "#cfd4da"

    @property
    def quiet(self) -> str:
        """For marks that are many, such as points."""
        return "#9aa3ae" if self.dark else "#6b7480"

    def figure(self, height_px: float, width_px: float = WIDE_PX) -> Figure:
        """An empty figure; `width_px` counts on wide screens alone."""
        width = NARROW_PX if self.narrow else width_px
        return Figure((width / _PX, height_px / _PX), dpi=_PX, layout="constrained", facecolor="none")

    def prepare(self, axes: Axes, grid: str = "both") -> None:
        """A clear ground and a faint grid along 'x', 'y', 'both' or 'none'."""
        axes.patch.set_alpha(0)
        axes.set_axisbelow(True)
        if grid != "none":
            axes.grid(color=self.faint, linewidth=0.7, alpha=0.7, axis=grid)  # type: ignore[arg-type]

    @property
    def style(self) -> Any:
        """Matplotlib's settings."""
        points = TEXT_PX * _POINTS / _PX
        style: Any = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), self.ink)
        style |= dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), self.faint)
        style |= dict.fromkeys(("font.size", "axes.labelsize", "xtick.labelsize", "ytick.labelsize"), points)
        style |= dict.fromkeys(("legend.fontsize", "axes.titlesize", "figure.titlesize"), points)
        return style | {"axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"}


def chart(draw: Callable[..., Figure], *arguments: Any, title: str = "", caption: str = "") -> Picture:
    """Draws all forms of a drawing.

    Args:
        draw: takes the arguments, and a `Look` by the name of `look`.
        arguments: what it draws.
        title, caption: of the picture; they say what it shows.
    """

    def png(dark: bool, narrow: bool) -> bytes:
        look = Look(dark, narrow)
        with matplotlib.rc_context(look.style):
            figure = draw(*arguments, look=look)
            figure.set_dpi(_DENSITY * _PX)
            canvas = FigureCanvasAgg(figure)
            canvas.draw()  # once; savefig draws twice
            buffer = io.BytesIO()
            Image.fromarray(np.asarray(canvas.buffer_rgba())).save(buffer, "png")
        return buffer.getvalue()

    return Picture(
        png(False, False), title, caption, dark=png(True, False), narrow=png(False, True), narrow_dark=png(True, True),
        density=_DENSITY,
    )  # fmt: skip


def log_x(axes: Axes, low: float, high: float) -> None:
    """A logarithmic horizontal axis with several labels, at round numbers, from `low` to `high`, both > 0."""
    axes.set(xscale="log", xlim=(low, high))
    axes.xaxis.set_major_locator(FixedLocator(round_ticks(low, high).tolist()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def round_ticks(low: float, high: float, fewest: int = 3, most: int = 7) -> np.ndarray:
    """Round numbers in a range that spans decades or less: of powers of ten, with 3, 2 and 5 or all digits between.

    Args:
        low, high: ends of the range, > 0.
        fewest: as many at least, if need be at equal distances.
        most: as many at most.
    """
    exponents = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    ticks = np.zeros(0)
    for digits in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
        found = np.outer(10.0**exponents, digits).ravel()
        ticks = found[(found >= low * (1 - 1e-9)) & (found <= high * (1 + 1e-9))]
        if len(ticks) >= fewest:
            break
    else:
        step = 10.0 ** np.floor(np.log10((high - low) / fewest))
        step *= max(f for f in (1, 2, 5) if f * step <= (high - low) / fewest)
        ticks = np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step
    return ticks[:: -(-len(ticks) // most)] if len(ticks) > most else ticks
