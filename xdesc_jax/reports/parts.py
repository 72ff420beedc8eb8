"""What pages are made of: answers, sections, tables, pictures, plots and settings, as plain values.

In: figures, texts and encoded pictures. Out: values that the templates of `page` lay out; texts are texts, whatever
they hold. Imports numpy alone.
"""

from __future__ import annotations

import base64
import dataclasses
import struct
from collections.abc import Mapping, Sequence, Set
from typing import Any, ClassVar, TypeAlias

import numpy as np

NOTHING = "\u2013"  # what a cell without a figure shows


@dataclasses.dataclass(frozen=True)
class Number:
    """A large figure at the top of a page.

    Attributes:
        value: as it is shown.
        label: what it is, in a few words.
        unit: behind the value, small.
    """

    value: str
    label: str
    unit: str = ""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a page says first: one sentence, and the few figures that matter most."""

    sentence: str
    numbers: Sequence[Number] = ()


@dataclasses.dataclass(frozen=True)
class Spread:
    """A figure of several runs.

    Attributes:
        values: one a run; those that are not finite are left out.
        digits: behind the point.
    """

    values: tuple[float, ...]
    digits: int = 1

    @property
    def mean(self) -> float:
        finite = [v for v in self.values if np.isfinite(v)]
        return float(np.mean(finite)) if finite else float("nan")

    @property
    def deviation(self) -> float:
        """Standard deviation over the runs, 0 for one."""
        finite = [v for v in self.values if np.isfinite(v)]
        return float(np.std(finite, ddof=1)) if len(finite) > 1 else 0.0

    def __str__(self) -> str:
        if np.isnan(self.mean):
            return "-"
        text = f"{self.mean:,.{self.digits}f}"
        return f"{text} \u00b1 {self.deviation:,.{self.digits}f}" if np.isfinite(self.values).sum() > 1 else text


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: its heading.
        unit: of its figures, beside the heading.
        text: whether it holds texts, which stand left and sort as texts.
        digits: behind the point, of floats.
    """

    name: str
    unit: str = ""
    text: bool = False
    digits: int = 3

    @classmethod
    def of(cls, heading: Column | str, text: bool = False) -> Column:
        """A heading such as 'rotation error [deg]' as a column."""
        if isinstance(heading, Column):
            return heading
        name, bracket, unit = heading.partition(" [")
        return cls(name, unit.removesuffix("]"), text) if bracket else cls(heading, text=text)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: what it shows.
        value: what it sorts as in a column of figures; None stands last, however it is sorted.
        href: what it links to.
        anchor: its name, for links to it.
        badge: the kind of a badge that the text stands in, such as 'native'; none where it is empty.
    """

    text: str
    value: float | None = None
    href: str = ""
    anchor: str = ""
    badge: str = ""

    @classmethod
    def of(cls, value: Any, column: Column) -> Cell:
        """A text, a figure, a `Spread` or a cell as a cell; None and NaN as one without a figure."""
        if isinstance(value, Cell):
            return value
        if isinstance(value, Spread):
            return cls(NOTHING) if np.isnan(value.mean) else cls(str(value), value.mean)
        if isinstance(value, str):
            return cls(value) if column.text else cls(value, _figure(value))
        if value is None or not np.isfinite(value):
            return cls(NOTHING if value is None or np.isnan(value) else str(value))
        whole = isinstance(value, (int, np.integer))
        return cls(f"{value:,}" if whole else f"{value:,.{column.digits}f}", float(value))


@dataclasses.dataclass(frozen=True)
class Table:
    """A table that sorts by its headings; its first column stays in sight and names the row.

    Attributes:
        columns: `Column`s or headings; of headings, the first holds texts.
        rows: a cell a column: texts, figures, `Spread`s or `Cell`s.
        caption: above it.
        find: what a field above it finds, for instance 'words of a member'; without one where it is empty.
        anchor: its name; needed where something is found in it.
        tall: whether it scrolls within a part of the page.
    """

    template: ClassVar[str] = "table"
    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    find: str = ""
    anchor: str = ""
    tall: bool = False

    @property
    def heads(self) -> list[Column]:
        return [Column.of(column, text=i == 0) for i, column in enumerate(self.columns)]

    @property
    def cells(self) -> list[list[Cell]]:
        heads = self.heads
        return [[Cell.of(value, head) for value, head in zip(row, heads, strict=True)] for row in self.rows]


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Values from 0 to 1 of pairs, darker where they are larger.

    Attributes:
        rows, columns: names.
        values: [rows][columns]; None where there is none.
        caption: above it.
        corner: what rows and columns are, for the upper left.
        marked: (row, column) of those set apart.
    """

    template: ClassVar[str] = "matrix"
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    caption: str = ""
    corner: str = ""
    marked: Set[tuple[int, int]] = frozenset()


@dataclasses.dataclass(frozen=True)
class Picture:
    """An encoded picture (PNG or JPEG) under a caption.

    Attributes:
        data: for light pages, and for all where the others are None.
        title, caption: the first is set in bold; both together say what the picture shows.
        dark: for dark pages.
        narrow, narrow_dark: the same for screens as narrow as a telephone's.
        density: pixels of the file to a pixel of the page; 2 for drawings that shall be sharp.
    """

    template: ClassVar[str] = "picture"
    data: bytes
    title: str = ""
    caption: str = ""
    dark: bytes | None = None
    narrow: bytes | None = None
    narrow_dark: bytes | None = None
    density: float = 1

    @property
    def sources(self) -> list[tuple[str, str, int | None]]:
        """Media query, data URI and width [px] of each form but the first, the most special ones first."""
        small, night = "(max-width: 700px)", "(prefers-color-scheme: dark)"
        forms = [(f"{small} and {night}", self.narrow_dark), (small, self.narrow), (night, self.dark)]
        return [(media, uri(data), self.width(data)) for media, data in forms if data is not None]

    @property
    def address(self) -> str:
        return uri(self.data)

    def width(self, data: bytes | None = None) -> int | None:
        """Width on the page [px], where the file says it."""
        data = self.data if data is None else data
        if not data.startswith(b"\x89PNG") or len(data) < 24:
            return None
        return round(struct.unpack(">I", data[16:20])[0] / self.density)


@dataclasses.dataclass(frozen=True)
class Gallery:
    """Parts side by side where there is room, each at least `least_px` wide."""

    template: ClassVar[str] = "gallery"
    parts: Sequence[Part]
    least_px: int = 480


@dataclasses.dataclass(frozen=True)
class Plot:
    """A plot in plotly's terms; the page must carry plotly's script (see `page.write_page`).

    Attributes:
        label: what it shows, for those who cannot see it.
        data, layout: as plotly takes them; colours may be the page's, 'var(--ink)'.
        height_px: of the plot.
        width_px: on a narrower screen it scrolls.
        title: above it.
    """

    template: ClassVar[str] = "plot"
    label: str
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    height_px: int = 320
    width_px: int = 0
    title: str = ""


@dataclasses.dataclass(frozen=True)
class Words:
    """A paragraph."""

    template: ClassVar[str] = "words"
    text: str


@dataclasses.dataclass(frozen=True)
class Definitions:
    """Names and values, nested where a value is a mapping."""

    template: ClassVar[str] = "definitions"
    values: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Folded:
    """Parts that show only when they are asked for."""

    template: ClassVar[str] = "folded"
    summary: str
    parts: Sequence[Part]


@dataclasses.dataclass(frozen=True)
class Group:
    """Parts of a section under a heading of their own."""

    template: ClassVar[str] = "group"
    title: str
    parts: Sequence[Part]
    text: str = ""


Part: TypeAlias = Table | Matrix | Picture | Gallery | Plot | Words | Definitions | Folded | Group


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading, some words, and parts in order."""

    title: str
    parts: Sequence[Part] = ()
    text: str = ""


def uri(data: bytes) -> str:
    """A PNG or JPEG as a data URI."""
    kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _figure(text: str) -> float | None:
    try:
        return float(text.replace(",", "").removesuffix("%"))
    except ValueError:
        return None
