"""The report of `xdesc map update`: how the share of real rows and the accuracy grew.

In: the summary of an update. Out: a page with a table and a plot.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xdesc_jax.evaluate import map_drawing
from xdesc_jax.evaluate.map_report import Spread, Table, both, write_map_report
from xdesc_jax.evaluate.poses import UNITS

TEXT = (
    "Rows: of the map's rows that observe a 3D point, the share that is real, and no longer translated. Points: the "
    "share of 3D points that a real row observes. Test photos are localised after every batch and never added."
)


def write_report(path: Path, about: Mapping[str, Any]) -> Path:
    """Writes the page of an update (see `update`)."""
    steps, unit = about["steps"], UNITS[about["settings"]["scale"]]
    columns = ["new photos", "registered", "% real rows", "% real points", "median inliers"]
    curves = {
        "real rows": [step["real_rows"] for step in steps],
        "3D points with a real row": [step["real_points"] for step in steps],
    }
    inliers: dict[str, list[float]] = {}
    tested = "test" in steps[0]
    if tested:
        columns += ["test: % localised", "test: median inliers"]
        curves["test photos localised"] = [step["test"]["localized"] for step in steps]
        inliers["test photos"] = [step["test"]["median_inliers"] for step in steps]
    measured = tested and "within" in steps[0]["test"]
    if measured:
        columns += [f"% {limit}" for limit in steps[0]["test"]["within"]]
        columns += [unit, "deg"]
    rows = [_row(step, tested, measured) for step in steps]
    photos = [step["photos"] for step in steps]
    pictures = [both(map_drawing.growth, photos, curves, "share", title="Shares as new photos come in")]
    if inliers:
        pictures.append(both(map_drawing.growth, photos, inliers, "median inliers", title="Inliers of test photos"))
    failed = [(name, reason) for name, reason in about["failed"].items()]
    tables = [Table("Growth", TEXT, columns, rows, 0, pictures)]
    if failed:
        tables.append(Table("Not registered", "These photos changed nothing.", ("photo", "reason"), failed, 2))
    return write_map_report(path, f"Map update: {about['descriptor']}", tables, settings=about["settings"])


def _row(step: Mapping[str, Any], tested: bool, measured: bool) -> list[Any]:
    def cell(value: float | None, digits: int, factor: float = 1) -> Spread | None:
        return None if value is None else Spread((factor * value,), digits)

    row: list[Any] = [step["photos"], step["registered"]]
    row += [cell(step[key], 1, 100) for key in ("real_rows", "real_points")] + [cell(step["median_inliers"], 0)]
    if tested:
        row += [cell(step["test"]["localized"], 1, 100), cell(step["test"]["median_inliers"], 0)]
    if measured:
        row += [cell(share, 1, 100) for share in step["test"]["within"].values()]
        row += [cell(step["test"]["median_position"], 4), cell(step["test"]["median_rotation_deg"], 3)]
    return row
