"""The report of a homography evaluation.

In: results, pictures, settings and the model. Out: a page (see `reports.page`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.config import TrainConfig
from xdesc_jax.evaluate.drawing import counts, matches_picture, mma_curves
from xdesc_jax.evaluate.homography import Comparison, Mode, Result, Translates, matches_of
from xdesc_jax.evaluate.measures import RATIO, Measures
from xdesc_jax.evaluate.scenes import PhotoPair
from xdesc_jax.reports.chart import chart
from xdesc_jax.reports.page import write_page
from xdesc_jax.reports.parts import (
    Answer,
    Cell,
    Column,
    Definitions,
    Folded,
    Gallery,
    Group,
    Matrix,
    Number,
    Part,
    Picture,
    Section,
    Table,
)
from xdesc_jax.reports.settings import Settings
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


_MEANS_EXPLAINED = (
    "All are means over the pairs of a scene, then over scenes. MMA alone flatters whoever matches less: judge by AP "
    "and by the correct matches."
)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What was evaluated: a heading, some words about it, its results, and pictures of one pair's matches."""

    title: str
    text: str
    results: Sequence[Result]
    pair: str = ""
    pictures: Sequence[Picture] = ()


def write_report(
    path: Path | str,
    title: str,
    evaluations: Sequence[Evaluation],
    *,
    text: str = "",
    settings: Settings,
    provenance: Mapping[str, Any],
    model: Translator | None = None,
) -> Path:
    """Writes the report.

    Args:
        path: the .html file.
        title: its heading.
        evaluations: what was evaluated; the page's answer is that of the first.
        text: a paragraph under the answer.
        settings: what the figures were made with.
        provenance: what they were made from.
        model: the translator, if one was used.
    """
    sections = [Section(found.title, _parts(found), found.text) for found in evaluations]
    sections.append(Section("What the figures mean", [Definitions(MEASURES_EXPLAINED)], _MEANS_EXPLAINED))
    if model is not None:
        sections.append(Section("Model", _model_card(model)))
    return write_page(
        path, title, answer(evaluations), sections, text=text, settings=settings, provenance=provenance
    )  # fmt: skip


def answer(evaluations: Sequence[Evaluation]) -> Answer:
    """The best translation against what its target gives natively, of the first evaluation; without one, the best."""
    first, *others = evaluations
    means = {r.comparison: r.mean for r in first.results}
    plan = highlights(first.results)
    shown = next((c for c in plan if c.mode == "translated"), plan[0])
    where = f"{first.title}: " if others else ""
    numbers = [Number(f"{means[shown].ap:.3f}", f"AP, {_arrow(shown.label)}")]
    native = Comparison("native", shown.target, shown.target)
    if shown.mode == "native":
        count = sum(c.mode == "native" for c in means)
        best = f", the best of {count} descriptors" if count > 1 else ""
        sentence = f"{where}{shown.target} finds matches at AP {means[shown].ap:.3f}{best}."
    else:
        sentence = f"{where}{shown.source} queries matched {shown.target} photos at AP {means[shown].ap:.3f}"
        sentence += f", native {means[native].ap:.3f}." if native in means else "."
        if native in means:
            numbers.append(Number(f"{means[native].ap:.3f}", f"AP, native {shown.target}"))
        if share := _share_of_native(means):
            numbers.append(Number(f"{100 * share[0]:.0f}", f"of native AP, mean of {share[1]} translations", "%"))
    for other in others:
        again = {r.comparison: r.mean for r in other.results}
        if shown in again:
            numbers.append(Number(f"{again[shown].ap:.3f}", f"AP, {_arrow(shown.label)}, {other.title.lower()}"))
    numbers.append(Number(f"{means[shown].correct:,.0f}", f"correct matches a pair, {_arrow(shown.label)}"))
    pairs = sum(len(found) for e in evaluations for found in e.results[0].pairs.values())
    return Answer(sentence, [*numbers, number_of_pairs(pairs)])


def number_of_pairs(pairs: int) -> Number:
    """How many photo pairs a page's figures are of."""
    return Number(*console.counted(pairs, "photo pair").split(" ", 1))


def _share_of_native(means: Mapping[Comparison, Measures]) -> tuple[float, int] | None:
    """The mean over translations of AP over the target's own, and of how many; None where there are none."""
    native = {c.target: m.ap for c, m in means.items() if c.mode == "native"}
    shares = [m.ap / native[c.target] for c, m in means.items() if c.mode == "translated" and native.get(c.target)]
    return (float(np.mean(shares)), len(shares)) if shares else None


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


def _model_card(translator: Translator) -> list[Part]:
    """What a model file says about itself."""
    bundle = translator.bundle
    weights = sum(kernel.size + bias.size for layers in bundle.weights().values() for kernel, bias in layers)
    card = {
        "kind": bundle.kind,
        "descriptors": ", ".join(f"{name} ({spec.width} {spec.kind})" for name, spec in bundle.specs.items()),
        "joint space": f"{bundle.space_id}, {bundle.embedding_width} values" if bundle.space_id else "none",
        "weights": f"{weights:,}",
        "calibrated ratios": bundle.ratios,
        "provenance": bundle.provenance,
    }
    trained = Settings.of(bundle.config, dataclasses.asdict(TrainConfig()))
    parts: list[Part] = [Definitions(card)]
    if trained.given:
        parts.append(Group("Trained with", [Definitions(trained.given)]))
    if trained.default:
        parts.append(
            Folded(f"{len(trained.default)} settings of training as by default", [Definitions(trained.default)])
        )
    return parts


def _parts(evaluation: Evaluation) -> list[Part]:
    results = evaluation.results
    present = [mode for mode in _MATRICES if any(r.comparison.mode == mode for r in results)]
    drawn = chart(mma_curves, results, caption="Share of mutual matches within 1 to 10 px, by target descriptor.")
    parts: list[Part] = [
        Gallery([_matrix(results, mode) for mode in present], least_px=340),
        Group("Matching accuracy", [drawn]),
        Group("All comparisons", [_list(results)]),
    ]
    if len(results[0].pairs) > 1:
        parts.append(Folded("AP of every scene", [_by_scene(results)]))
    if evaluation.pictures:
        parts.append(Group(f"Mutual nearest neighbours of {evaluation.pair}", [Gallery(evaluation.pictures)]))
    return parts


def _matrix(results: Sequence[Result], mode: Mode) -> Matrix:
    names, rows = matrix(results, mode)
    native = set() if mode == "joint" else {(i, i) for i in range(len(names))}
    return Matrix(names, names, rows, f"AP: {_MATRICES[mode]}", "query \\ database", native)


def _list(results: Sequence[Result]) -> Table:
    listed = columns(results)
    heads = [Column("query, database", text=True), Column("mode", text=True), *map(Column, listed)]
    rows = [[*_named(r.comparison), *figures(r.mean, listed).values()] for r in results]
    return Table(heads, rows)


def _by_scene(results: Sequence[Result]) -> Table:
    scenes = list(results[0].pairs)
    heads = [Column("query, database", text=True), Column("mode", text=True), *map(Column, scenes)]
    return Table(heads, [[*_named(r.comparison), *(r.scenes[scene].ap for scene in scenes)] for r in results])


def _named(comparison: Comparison) -> list[Cell]:
    return [Cell(_arrow(comparison.label)), Cell(comparison.mode, badge=comparison.mode)]


def _arrow(label: str) -> str:
    return label.replace("->", "\u2192")
