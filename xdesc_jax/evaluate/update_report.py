"""The report of `xdesc map update`: how the share of real rows and the accuracy grew.

In: the summary of an update. Out: a page with a table and drawings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xdesc_jax.evaluate import map_drawing
from xdesc_jax.evaluate.poses import UNITS
from xdesc_jax.reports.chart import chart
from xdesc_jax.reports.page import write_page
from xdesc_jax.reports.parts import Answer, Column, Gallery, Number, Section, Table
from xdesc_jax.reports.settings import Settings

TEXT = (
    "Rows: of the map's rows that observe a 3D point, the share that is real, and no longer translated. Points: the "
    "share of 3D points that a real row observes. Test photos are localised after every batch and never added."
)


def write_report(path: Path, about: Mapping[str, Any], defaults: Mapping[str, Any], *, linked: bool = True) -> Path:
    """Writes the page of an update.

    Args:
        path: the .html file.
        about: what was done (see `mapping.update`).
        defaults: of its settings.
        linked: see `reports.page.write_page`.
    """
    steps, unit = about["steps"], UNITS[about["settings"]["scale"]]
    photos = [step["photos"] for step in steps]
    curves = {
        "real rows": [step["real_rows"] for step in steps],
        "3D points with a real row": [step["real_points"] for step in steps],
    }
    inliers: dict[str, list[float]] = {}
    if "test" in steps[0]:
        curves["test photos localised"] = [step["test"]["localized"] for step in steps]
        inliers["test photos"] = [step["test"]["median_inliers"] for step in steps]
    drawn = [chart(map_drawing.growth, photos, curves, "share", title="Shares as new photos come in")]
    if inliers:
        drawn.append(chart(map_drawing.growth, photos, inliers, "median inliers", title="Inliers of test photos"))
    sections = [Section("Growth", [Gallery(drawn), _table(steps, unit)], TEXT)]
    if failed := list(about["failed"].items()):
        heads = [Column("photo", text=True), Column("reason", text=True)]
        sections.append(Section("Not registered", [Table(heads, failed)], "These photos changed nothing."))
    hashes = {k: v for k, v in about["settings"].items() if k in _FILES and v not in (None, [])}
    chosen = {k: v for k, v in about["settings"].items() if k not in {*_FILES, "stage"}}
    return write_page(
        path,
        f"Map update: {about['descriptor']}",
        answer(about),
        sections,
        settings=Settings.of(chosen, defaults),
        provenance={"made by": "xdesc map update", "sha256 of": hashes},
        linked=linked,
    )


_FILES = (
    "reconstruction", "features", "queries", "new_features", "model", "test_queries", "test_features", "reference",
)  # fmt: skip


def answer(about: Mapping[str, Any]) -> Answer:
    """How many photos came in, what share of the rows is real now, and how test photos fare."""
    first, last = about["steps"][0], about["steps"][-1]
    registered, real = f"{last['registered']} of {last['photos']}", f"{100 * last['real_rows']:.1f}"
    points = f"{100 * last['real_points']:.1f}"
    sentence = f"{registered} new photos registered; {real} % of the map's rows are real now"
    numbers = [
        Number(registered, "new photos registered"),
        Number(real, f"of the rows real, before {100 * first['real_rows']:.1f} %", "%"),
        Number(points, f"of 3D points with a real row, before {100 * first['real_points']:.1f} %", "%"),
    ]
    if "test" in last:
        before, after = (100 * step["test"]["localized"] for step in (first, last))
        sentence += f", and {after:.0f} % of test photos are localised"
        numbers.append(Number(f"{after:.1f}", f"of test photos localised, before {before:.1f} %", "%"))
        before, after = (step["test"]["median_inliers"] for step in (first, last))
        numbers.append(Number(f"{after:.0f}", f"median inliers of test photos, before {before:.0f}"))
    return Answer(sentence + ".", numbers)


def _table(steps: list[Mapping[str, Any]], unit: str) -> Table:
    heads = [
        Column("new photos"), Column("registered"), Column("real rows", "%", digits=1),
        Column("real points", "%", digits=1), Column("median inliers", digits=0),
    ]  # fmt: skip
    tested = "test" in steps[0]
    measured = tested and "within" in steps[0]["test"]
    if tested:
        heads += [Column("test: localised", "%", digits=1), Column("test: median inliers", digits=0)]
    if measured:
        heads += [Column(f"test: within {limit}", "%", digits=1) for limit in steps[0]["test"]["within"]]
        heads += [Column("test: position error", unit, digits=4), Column("test: rotation error", "deg")]
    rows = []
    for step in steps:
        row = [step["photos"], step["registered"], *(100 * step[key] for key in ("real_rows", "real_points"))]
        row.append(step["median_inliers"])
        if tested:
            row += [100 * step["test"]["localized"], step["test"]["median_inliers"]]
        if measured:
            row += [100 * share for share in step["test"]["within"].values()]
            row += [step["test"]["median_position"], step["test"]["median_rotation_deg"]]
        rows.append(row)
    return Table(heads, rows)
