"""The reports of localisation and of reconstruction.

In: figures, models and pictures. Out: pages (see `page`) with sortable tables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import __version__
from xdesc_jax.colmap.model import Model, Pose
from xdesc_jax.evaluate import localization, map_drawing, sfm
from xdesc_jax.evaluate.covisibility import Covisibility
from xdesc_jax.evaluate.localization import Localized
from xdesc_jax.evaluate.page import Picture, definitions, figure, number, table, write_page
from xdesc_jax.evaluate.poses import UNITS, PoseErrors
from xdesc_jax.evaluate.sfm import SfmResult

_RELATIVE = "Positions are divided by u = {:.4g}, the reference's median distance from a camera to its nearest."


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
        return f"{text} \u00b1 {self.deviation:,.{self.digits}f}" if len(self.values) > 1 else text


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a report.

    Attributes:
        title, text: its heading and some words.
        columns: headings; the first `text_columns` hold text.
        rows: cells: texts, numbers or `Spread`s.
        text_columns: how many columns hold text.
        pictures: shown below it.
    """

    title: str
    text: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    text_columns: int = 1
    pictures: Sequence[Picture] = ()


def both(draw: Callable[..., bytes], *arguments: Any, title: str = "", caption: str = "") -> Picture:
    """A picture drawn for light and for dark pages."""
    return Picture(draw(*arguments), title, caption, draw(*arguments, dark=True))


def write_map_report(
    path: Path | str, title: str, tables: Sequence[Table], *, text: str = "", settings: Mapping[str, Any]
) -> Path:
    """Writes a page of tables and pictures.

    Args:
        path: the .html file.
        title: its heading.
        tables: in order, each with its pictures.
        text: a paragraph under the heading.
        settings: what the figures were made with.
    """
    body = [f"<h1>{escape(title)}</h1>", *([f"<p>{escape(text)}</p>"] if text else [])]
    for found in tables:
        body += [f"<h2>{escape(found.title)}</h2>", f"<p>{escape(found.text)}</p>"]
        if found.rows:
            body.append(
                table(found.columns, [_cells(row, found.text_columns) for row in found.rows], found.text_columns)
            )
        body += map(figure, found.pictures)
    body += ["<h2>Settings</h2>", definitions({**settings, "xdesc": __version__})]
    return write_page(path, title, body)


def _cells(row: Sequence[Any], text_columns: int) -> str:
    cells = [f'<td class="text">{escape(str(v))}</td>' for v in row[:text_columns]]
    for value in row[text_columns:]:
        shown = str(value) if not isinstance(value, float) else f"{value:.3f}"
        by = value.mean if isinstance(value, Spread) else value
        sortable = isinstance(by, (int, float)) and np.isfinite(by)
        cells.append(number("-" if value is None else shown, float(by) if sortable else -1e300))
    return "".join(cells)


def write_localization_report(path: Path, errors: PoseErrors, found: Localized, settings: Mapping[str, Any]) -> Path:
    """The page of `xdesc evaluate localization`."""
    unit = UNITS[errors.scale]
    per_query = [
        (
            name,
            found.reasons.get(name, ""),
            *(float(v) if np.isfinite(v) else None for v in (p, r)),
            found.inliers.get(name),
        )
        for name, p, r in zip(errors.names, errors.position, errors.rotation_deg, strict=True)
    ]
    columns = ("query", "why it failed", f"position error [{unit}]", "rotation error [deg]", "inliers")
    explained = "Shares are of all queries; one without a pose counts as not localised."
    if errors.scale == "relative":
        explained += (
            f" Positions are divided by u = {errors.unit:.4g}, the reference's median distance to the next camera."
        )
    curves = both(map_drawing.error_curves, {"queries": errors.position}, unit, title="Position errors")
    return write_map_report(
        path,
        "Localisation",
        [
            Table("Figures", explained, ("figure", "value"), localization.table_rows(errors), 2, [curves]),
            Table("Queries", "", columns, per_query, 2),
        ],
        settings=settings,
    )  # fmt: skip


def write_sfm_report(
    path: Path,
    result: SfmResult,
    model: Model,
    reference: Mapping[str, Pose],
    shared: Covisibility | None,
    settings: Mapping[str, Any],
) -> Path:
    """The page of `xdesc evaluate sfm`."""
    tables = [
        Table(
            "Figures",
            _sfm_text(result),
            ("figure", "value"),
            sfm.table_rows(result),
            2,
            [two_sides(result, model, reference)],
        )
    ]
    if shared is not None:
        picture = both(map_drawing.covisibility_picture, shared)
        text = "Which kinds of descriptor a point's track is made of."
        tables.append(Table("Co-visibility", text, (), (), 0, [picture]))
    if result.errors is not None:
        e, unit = result.errors, UNITS[result.errors.scale]
        rows = [
            (name, *(float(v) if np.isfinite(v) else None for v in (p, r)))
            for name, p, r in zip(e.names, e.position, e.rotation_deg, strict=True)
        ]
        columns = ("photo", f"position error [{unit}]", "rotation error [deg]")
        curves = both(map_drawing.error_curves, {"photos": e.position}, unit, title="Position errors")
        tables.append(Table("Photos", "", columns, rows, 1, [curves]))
    return write_map_report(path, "Reconstruction", tables, settings=settings)


def _sfm_text(result: SfmResult) -> str:
    if result.errors is None:
        return f"The model cannot be aligned to the reference: {result.reason}. No photo counts as near to it."
    if result.errors.scale == "relative":
        return _RELATIVE.format(result.errors.unit)
    return "Shares are of all photos of the reference; one that was not registered is not near to it."


def two_sides(result: SfmResult, model: Model, reference: Mapping[str, Pose]) -> Picture:
    """The model from above and from the side, with the true cameras where it could be aligned."""
    poses, points = list(model.poses.values()), model.points
    true: list[Pose] = []
    if result.similarity is not None:
        poses, points = [result.similarity.pose(p) for p in poses], result.similarity.points(points)
        true = list(reference.values())
    return both(map_drawing.model_picture, points, poses, true, title="The model from two sides")
