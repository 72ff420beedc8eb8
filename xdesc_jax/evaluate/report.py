"""The report of a homography evaluation.

In: results, pictures, settings and the model's card. Out: a page (see `page`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import __version__
from xdesc_jax.evaluate.drawing import counts, matches_picture, mma_curves
from xdesc_jax.evaluate.homography import Comparison, Mode, Result, Translates, matches_of
from xdesc_jax.evaluate.measures import RATIO, Measures
from xdesc_jax.evaluate.page import Picture, definitions, figure, number, table, write_page
from xdesc_jax.evaluate.scenes import PhotoPair
from xdesc_jax.translation.translator import Translator

MEASURES_EXPLAINED = {
    "AP": (
        "average precision: all query keypoints ranked by the ratio of their first to their second distance, "
        "correct at 3 px, over the query keypoints that have a database keypoint within 3 px of the truth"
    ),
    "MMA": "mean matching accuracy: share of mutual nearest neighbours within 1 to 5 px, mean of the five",
    "correct": "mutual nearest neighbours that pass the ratio test at 0.9 and lie within 3 px of the truth",
    "distinct": "the same, keypoints at one and the same position counted once",
    "precision": "correct over all matches that pass the ratio test",
    "matches": "mutual nearest neighbours, before the ratio test",
    "ratio": "the ratio that the model was calibrated to use instead of 0.9; 0.9 where it has none",
    "correct (cal.), precision (cal.)": "correct and precision at that ratio",
}
# What the tables list: heading, and the value of a row's measures.
COLUMNS: dict[str, str] = {
    "AP": "ap",
    "MMA": "mma_mean",
    "correct": "correct",
    "distinct": "distinct",
    "precision": "precision",
    "matches": "matches",
}
# Listed, too, where the model has calibrated ratios.
CALIBRATED_COLUMNS: dict[str, str] = {
    "ratio": "ratio",
    "correct (cal.)": "calibrated_correct",
    "precision (cal.)": "calibrated_precision",
}
_COUNTS = {"correct", "distinct", "matches", "correct (cal.)"}
_MATRICES: dict[Mode, str] = {
    "translated": "Query translated (diagonal: native)",
    "joint": "Both in the joint space",
    "naive": "Compared as they are",
}


@dataclasses.dataclass(frozen=True)
class Section:
    """One evaluation: a heading, some words about it, its results, and pictures of one pair's matches."""

    title: str
    text: str
    results: Sequence[Result]
    pair: str = ""
    pictures: Sequence[Picture] = ()


def write_report(
    path: Path | str,
    title: str,
    sections: Sequence[Section],
    *,
    text: str = "",
    settings: Mapping[str, Any],
    model: Mapping[str, Any] | None = None,
) -> Path:
    """Writes the report.

    Args:
        path: the .html file.
        title: its heading.
        sections: what was evaluated.
        text: a paragraph under the heading.
        settings: what the figures were made with.
        model: the card of the translator, if one was used.
    """
    body = [f"<h1>{escape(title)}</h1>", *([f"<p>{escape(text)}</p>"] if text else [])]
    for section in sections:
        body += _section(section)
    body += ["<h2>What the figures mean</h2>", definitions(MEASURES_EXPLAINED)]
    body += [
        '<p class="faint">All are means over the pairs of a scene, then over scenes. MMA alone flatters '
        "whoever matches less: judge by AP and by the correct matches.</p>"
    ]
    if model:
        body += ["<h2>Model</h2>", definitions(model)]
    body += ["<h2>Settings</h2>", definitions({**settings, "xdesc": __version__})]
    return write_page(path, title, body)


def columns(results: Iterable[Result]) -> dict[str, str]:
    """`COLUMNS`, with those at calibrated ratios where there are any."""
    calibrated = any(m.ratio != RATIO for r in results for pairs in r.pairs.values() for m in pairs.values())
    return COLUMNS | (CALIBRATED_COLUMNS if calibrated else {})


def table_rows(results: Sequence[Result]) -> list[list[Any]]:
    """Rows for the console: label, and the figures of `columns`."""
    listed = columns(results)
    return [[table_label(r.comparison), *figures(r.mean, listed).values()] for r in results]


def table_label(comparison: Comparison) -> str:
    """For tables without a column for the mode; only naive and joint rows would look alike."""
    return f"{comparison.label}{' (naive)' if comparison.mode == 'naive' else ''}"


def figures(measures: Measures, listed: Mapping[str, str] = COLUMNS) -> dict[str, str]:
    """The text of each column that is listed."""
    values = {name: getattr(measures, field) for name, field in listed.items()}
    return {name: f"{v:,.1f}" if name in _COUNTS else f"{v:.3f}" for name, v in values.items()}


def matrix(results: Iterable[Result], mode: Mode) -> tuple[list[str], list[list[float | None]]]:
    """AP of each source (row) and target (column); the diagonal holds native figures except in joint ones.

    Returns:
        The descriptor names, and rows of values; None where a pair was not compared.
    """
    found = {r.comparison: r.mean.ap for r in results}
    names = [c.source for c in found if c.mode == "native"]
    values = {(c.source, c.target): ap for c, ap in found.items() if c.mode == mode}
    if mode != "joint":
        values |= {(c.source, c.target): ap for c, ap in found.items() if c.mode == "native"}
    return names, [[values.get((s, t)) for t in names] for s in names]


def highlights(results: Sequence[Result]) -> list[Comparison]:
    """The comparisons most worth drawing: the best translation, its native and joint rows, the best naive."""

    def best(mode: Mode) -> list[Comparison]:
        rows = [r for r in results if r.comparison.mode == mode]
        return [max(rows, key=lambda r: r.mean.ap).comparison] if rows else []

    translated = best("translated")
    if not translated:
        return best("native") + best("naive")
    source, target = translated[0].source, translated[0].target
    wanted = [Comparison("native", target, target), *translated, Comparison("joint", source, target)]
    made = {r.comparison for r in results}
    return [c for c in wanted if c in made] + best("naive")


def matched_pictures(
    pair: PhotoPair,
    photos: tuple[np.ndarray, np.ndarray],
    stores: Mapping[str, Path],
    translator: Translates | None,
    plan: Sequence[Comparison],
) -> list[Picture]:
    """One picture per comparison: the mutual nearest neighbours of a pair.

    Args:
        pair: the pair.
        photos: its photos, gray uint8 [H, W].
        stores: feature file of each descriptor.
        translator: for translated and joint comparisons.
        plan: the comparisons.
    """
    return [
        Picture(matches_picture(*photos, matched), f"{c.mode}: {_arrow(c.label)}", counts(matched))
        for c, matched in zip(plan, matches_of(pair, stores, translator, plan), strict=True)
    ]


def model_card(translator: Translator) -> dict[str, Any]:
    """What a model file says about itself, for `write_report`."""
    bundle = translator.bundle
    return {
        "kind": bundle.kind,
        "descriptors": ", ".join(f"{name} ({spec.width} {spec.kind})" for name, spec in bundle.specs.items()),
        "joint space": f"{bundle.space_id}, {bundle.embedding_width} values" if bundle.space_id else "none",
        "weights": sum(kernel.size + bias.size for layers in bundle.networks.values() for kernel, bias in layers),
        "calibrated ratios": bundle.ratios,
        "configuration": bundle.config,
        "provenance": bundle.provenance,
    }


def _section(section: Section) -> list[str]:
    results = section.results
    parts = [f"<h2>{escape(section.title)}</h2>", f"<p>{escape(section.text)}</p>"]
    present = [mode for mode in _MATRICES if any(r.comparison.mode == mode for r in results)]
    parts += ['<div class="row">', *(_matrix(results, mode) for mode in present), "</div>"]
    parts += ["<h3>Matching accuracy</h3>", _curves(results)]
    parts += ["<h3>All comparisons</h3>", _list(results)]
    if len(results[0].pairs) > 1:
        parts += ["<details><summary>AP of every scene</summary>", _by_scene(results), "</details>"]
    if section.pictures:
        parts += [f"<h3>Mutual nearest neighbours of {escape(section.pair)}</h3>", '<div class="pictures">']
        parts += [*(figure(picture) for picture in section.pictures), "</div>"]
    return parts


def _matrix(results: Sequence[Result], mode: Mode) -> str:
    names, rows = matrix(results, mode)
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = ""
    for i, (name, row) in enumerate(zip(names, rows, strict=True)):
        cells = ""
        for j, value in enumerate(row):
            native = " native" if i == j and mode != "joint" else ""
            cells += "<td></td>" if value is None else _heat(value, native)
        body += f"<tr><th>{escape(name)}</th>{cells}</tr>"
    return (
        f'<div class="scroll"><table class="matrix"><caption>AP: {_MATRICES[mode]}. Rows: query, columns: '
        f"database.</caption><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _heat(value: float, extra: str) -> str:
    return f'<td class="value{extra}" style="--share:{value:.3f}">{value:.3f}</td>'


def _list(results: Sequence[Result]) -> str:
    rows, listed = [], columns(results)
    for result in results:
        mode = result.comparison.mode
        label = escape(_arrow(result.comparison.label))
        cells = "".join(number(text) for text in figures(result.mean, listed).values())
        rows.append(f'<td>{label}</td><td class="text"><span class="mode {mode}">{mode}</span></td>{cells}')
    return table(["query, database", "mode", *listed], rows)


def _by_scene(results: Sequence[Result]) -> str:
    scenes = list(results[0].pairs)
    rows = []
    for result in results:
        label = escape(_arrow(result.comparison.label))
        cells = "".join(number(f"{result.scenes[scene].ap:.3f}") for scene in scenes)
        rows.append(f'<td>{label}</td><td class="text">{result.comparison.mode}</td>{cells}')
    return table(["query, database", "mode", *scenes], rows)


def _arrow(label: str) -> str:
    return label.replace("->", "\u2192")


def _curves(results: Sequence[Result]) -> str:
    light, dark = (mma_curves(results, dark=dark) for dark in (False, True))
    alt = "Share of mutual matches within 1 to 10 px, by target descriptor"
    return figure(Picture(light, "", alt, dark))
