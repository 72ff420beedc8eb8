"""The reports of localisation and of reconstruction.

In: figures and models. Out: pages (see `reports.page`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.colmap.model import Model, Pose
from xdesc_jax.evaluate import map_drawing
from xdesc_jax.evaluate.covisibility import Covisibility
from xdesc_jax.evaluate.localization import Localized, shares
from xdesc_jax.evaluate.poses import LOCALIZATION, MAPPING, UNITS, PoseErrors, label
from xdesc_jax.evaluate.sfm import SfmResult
from xdesc_jax.reports.chart import chart
from xdesc_jax.reports.page import write_page
from xdesc_jax.reports.parts import Answer, Column, Number, Part, Picture, Section, Table
from xdesc_jax.reports.settings import Settings

_RELATIVE = "Positions are divided by u = {:.4g}, the reference's median distance from a camera to its nearest."


def write_localization_report(
    path: Path, errors: PoseErrors, found: Localized, *, settings: Settings, provenance: Mapping[str, Any]
) -> Path:
    """The page of `xdesc evaluate localization`."""
    unit, count = UNITS[errors.scale], len(errors.names)
    limits = [(name, _count(share, count), 100 * share) for name, share in shares(errors).items()]
    within = Table(["within", "queries", Column("share", "%", digits=1)], limits)
    explained = "Shares are of all queries; one without a pose counts as not localised."
    if errors.scale == "relative":
        explained += " " + _RELATIVE.format(errors.unit)
    heads: list[Column | str] = ["query", Column("position error", unit, digits=4), "rotation error [deg]", "inliers"]
    failed = not errors.found.all()
    rows = []
    for name, position, rotation in _per_photo(errors):
        reason = [found.reasons.get(name, "")] if failed else []
        rows.append([name, position, rotation, found.inliers.get(name), *reason])
    heads += [Column("why it failed", text=True)] if failed else []
    curves = chart(map_drawing.error_curves, {"queries": errors.position}, unit, title="Position errors")
    sections = [
        Section("Accuracy", [within, curves], explained),
        Section("Queries", [Table(heads, rows, find="words of a query" if count > 20 else "", anchor="queries")]),
    ]
    return write_page(
        path, "Localisation", localization_answer(errors, found), sections, settings=settings, provenance=provenance
    )


def localization_answer(errors: PoseErrors, found: Localized) -> Answer:
    """How many queries are within the tightest limit, and the medians of those localised."""
    limit, count = LOCALIZATION[errors.scale][0], len(errors.names)
    near = _count(errors.within(*limit), count)
    sentence = f"{near} of {count} queries localised within {label(*limit, errors.scale)}."
    numbers = [Number(f"{int(errors.found.sum())} of {count}", "queries localised at all")]
    numbers += _medians(errors)
    if inliers := [number for name, number in found.inliers.items() if name in found.poses]:
        numbers.append(Number(f"{np.median(inliers):.0f}", f"median inliers of the {len(inliers)} localised"))
    return Answer(sentence, numbers)


def write_sfm_report(
    path: Path,
    result: SfmResult,
    model: Model,
    reference: Mapping[str, Pose],
    shared: Covisibility | None,
    *,
    settings: Settings,
    provenance: Mapping[str, Any],
) -> Path:
    """The page of `xdesc evaluate sfm`."""
    parts: list[Part] = [two_sides(result, model, reference)]
    if result.errors is not None:
        parts.append(_near(result.errors))
    sections = [Section("Model", parts, _sfm_text(result))]
    if shared is not None and len(shared.kinds) > 1:
        picture = chart(map_drawing.covisibility_picture, shared, caption="Shares of 3D points.")
        sections.append(Section("Co-visibility", [picture], "Which kinds of descriptor a point's track is made of."))
    if result.errors is not None:
        unit = UNITS[result.errors.scale]
        heads: list[Column | str] = ["photo", Column("position error", unit, digits=4), "rotation error [deg]"]
        curves = chart(map_drawing.error_curves, {"photos": result.errors.position}, unit, title="Position errors")
        sections.append(Section("Photos", [curves, Table(heads, _per_photo(result.errors))]))
    return write_page(
        path, "Reconstruction", sfm_answer(result), sections, settings=settings, provenance=provenance
    )  # fmt: skip


def sfm_answer(result: SfmResult) -> Answer:
    """How many photos were registered, how many near to their true pose, and the model's figures."""
    sentence = f"{result.registered} of {result.asked} photos registered"
    numbers = []
    if result.errors is None:
        sentence += "; the model cannot be aligned to the reference."
    else:
        limit = MAPPING[result.errors.scale][0]
        near = _count(result.errors.within(*limit), result.asked)
        sentence += f", {near} of them within {label(*limit, result.errors.scale)} of the true pose."
        numbers += _medians(result.errors)
    numbers.append(Number(f"{result.points:,}", f"3D points, {result.observations:,} observations"))
    if result.points:
        numbers.append(Number(f"{result.track_length:.2f}", "mean track length"))
    if result.observations:
        numbers.append(Number(f"{result.reprojection_px:.2f}", "mean reprojection error", "px"))
    return Answer(sentence, numbers)


def two_sides(result: SfmResult, model: Model, reference: Mapping[str, Pose], caption: str = "") -> Picture:
    """The model from above and from the side, with the true cameras where it could be aligned."""
    poses, points = list(model.poses.values()), model.points
    true: list[Pose] = []
    if result.similarity is not None:
        poses, points = [result.similarity.pose(p) for p in poses], result.similarity.points(points)
        true = list(reference.values())
    return chart(map_drawing.model_picture, points, poses, true, title="The model from two sides", caption=caption)


def _sfm_text(result: SfmResult) -> str:
    if result.errors is None:
        return f"The model cannot be aligned to the reference: {result.reason}. No photo counts as near to it."
    explained = "Shares are of all photos of the reference; one that was not registered is not near to it."
    return explained + (" " + _RELATIVE.format(result.errors.unit) if result.errors.scale == "relative" else "")


def _near(errors: PoseErrors) -> Table:
    limits = MAPPING[errors.scale]
    found = [(f"{p:g} {UNITS[errors.scale]}", errors.within(p)) for p, _ in limits]
    found += [(label(p, r, errors.scale), errors.within(p, r)) for p, r in limits]
    rows = [(name, _count(share, len(errors.names)), 100 * share) for name, share in found]
    return Table(["within", "photos", Column("share", "%", digits=1)], rows)


def _medians(errors: PoseErrors) -> list[Number]:
    if not errors.found.any():
        return []
    position, rotation = errors.medians()
    return [
        Number(f"{position:.3g}", "median position error", UNITS[errors.scale]),
        Number(f"{rotation:.2g}", "median rotation error", "deg"),
    ]


def _per_photo(errors: PoseErrors) -> list[tuple[str, float | None, float | None]]:
    """Name, position and rotation error; None for photos without a pose."""

    def known(values: np.ndarray) -> list[float | None]:
        return [float(v) if np.isfinite(v) else None for v in values]

    return list(zip(errors.names, known(errors.position), known(errors.rotation_deg), strict=True))


def _count(share: float, of: int) -> int:
    return round(share * of)
