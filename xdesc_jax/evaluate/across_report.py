"""Tables and the page of matching across detectors.

In: what `across` measured. Out: rows for the console, and a page (see `reports.page`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xdesc_jax.console import counted
from xdesc_jax.evaluate.across import Across, Sides, correct_mutual
from xdesc_jax.evaluate.measures import CORRECT_PX
from xdesc_jax.evaluate.report import MEASURES_EXPLAINED, number_of_pairs, table_label
from xdesc_jax.reports.page import write_page
from xdesc_jax.reports.parts import Answer, Column, Definitions, Number, Section, Table
from xdesc_jax.reports.settings import Settings

_EXPLAINED = {
    **{name: MEASURES_EXPLAINED[name] for name in ("AP", "correct", "precision")},
    "mutual": f"mutual nearest neighbours within {CORRECT_PX:g} px of the truth, without a ratio test",
    "of query's, of database's": (
        "mutual, over what the file of the queries, or that of the database photos, gives with itself on both photos"
    ),
    "repeatability": (
        f"the most one-to-one pairs of keypoints within {CORRECT_PX:g} px, over the smaller number of keypoints of the "
        "two photos that lie in both (Mikolajczyk et al., IJCV 2005, with points for regions); keypoints at one "
        "position count once"
    ),
}
_FILES = {"across": "query | database", "query": "the queries' file", "database": "the database photos' file"}
Rows = tuple[str, tuple[str, ...], list[list[Any]]]  # title, headings, rows of texts


def match_rows(found: Across) -> Rows:
    """How well rows match across, and beside it what both files give natively."""
    heads = ("query, database", "AP", "correct", "precision", "mutual", "of query's", "of database's")
    rows = []
    for result in found.results:
        comparison, mutual = result.comparison, correct_mutual(result)
        of = [correct_mutual(native) for native in found.natively(comparison)]
        rows.append([table_label(comparison), *_figures(result.mean, mutual), *(_share(mutual, own) for own in of)])
    for side, results in found.native.items():
        for result in results:
            label = f"{result.comparison.source} ({_FILES[side]})"
            rows.append([label, *_figures(result.mean, correct_mutual(result)), "", ""])
    return "Across detectors (->: translated, |: joint space), and natively", heads, rows


def repeatability_rows(found: Across) -> Rows:
    """How many keypoints the detectors have in common."""
    heads = ("keypoints of", "with those of", "files", "in both photos", "and", "in common", "repeatability")
    rows: list[list[Any]] = []
    for each in found.repeated:
        m, sides = each.mean, each.sides
        counts = [f"{value:,.1f}" for value in (m.query, m.database, m.common)]
        rows.append([sides.query, sides.database, _FILES[sides.files], *counts, f"{m.share:.3f}"])
    return "What the detectors allow", heads, rows


def _figures(measures: Any, mutual: float) -> list[str]:
    return [f"{measures.ap:.3f}", f"{measures.correct:,.1f}", f"{measures.precision:.3f}", f"{mutual:,.1f}"]


def _share(value: float, of: float) -> str:
    return f"{value / of:.3f}" if of else ""


def write_report(path: Path, found: Across, settings: Mapping[str, Any], pairs: int, scenes: int) -> Path:
    """Writes the page.

    Args:
        path: the .html file.
        found: what was measured.
        settings: what it was measured with.
        pairs, scenes: how many.
    """
    sections = [
        Section(title, [_table(heads, rows)]) for title, heads, rows in (match_rows(found), repeatability_rows(found))
    ]
    text = "All are means over the pairs of a scene, then over scenes."
    sections.append(Section("What the figures mean", [Definitions(_EXPLAINED)], text))
    counts = f"{counted(pairs, 'pair')} of {counted(scenes, 'scene')}"
    return write_page(
        path, "Matching across detectors", _answer(found, pairs), sections,
        text=f"{counts}; the query is photo 1 of each scene.", settings=Settings({}, {}),
        provenance={"made by": "xdesc evaluate homography", **settings},
    )  # fmt: skip


def _answer(found: Across, pairs: int) -> Answer:
    number = number_of_pairs(pairs)
    if not found.results:
        return Answer("Nothing of these files can be compared.", [number])
    best = max(found.results, key=correct_mutual)
    sides = Sides(best.comparison.source, best.comparison.target)
    share = next(each.mean.share for each in found.repeated if each.sides == sides)
    sentence = (
        f"{sides.query} queries and {sides.database} photos have {correct_mutual(best):,.1f} correct matches a pair; "
        f"{100 * share:.0f} % of their keypoints are there in both."
    )
    numbers = [
        Number(f"{correct_mutual(best):,.0f}", "correct mutual neighbours a pair"),
        Number(f"{share:.2f}", "repeatability of the keypoints"),
        number,
    ]
    return Answer(sentence, numbers)


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    texts = {"query, database", "keypoints of", "with those of", "files"}
    return Table([Column(head, text=head in texts) for head in heads], [list(row) for row in rows])
