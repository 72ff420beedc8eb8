"""The pages and pictures of localised queries for `xdesc show`.

In: queries with their map, and the folder of their photos. Out: a page, a picture of one query, or a folder with both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.files.whole import atomic
from xdesc_jax.inspection import match_drawing, query_drawing
from xdesc_jax.inspection.match_drawing import Scale
from xdesc_jax.inspection.match_page import KINDS, count
from xdesc_jax.inspection.shown_photos import read_photo
from xdesc_jax.inspection.shown_queries import ShownQueries, ShownQuery
from xdesc_jax.reports.chart import chart
from xdesc_jax.reports.page import write_page
from xdesc_jax.reports.parts import Answer, Column, Definitions, Gallery, Number, Part, Picture, Section, Table
from xdesc_jax.reports.settings import Settings

_LEAST_PX = 460

Keep = Callable[[int, ShownQuery, bytes], None]


def write_query_page(
    out: Path, shown: ShownQueries, chosen: Sequence[ShownQuery], photos: Path, settings: Settings,
    keep: Keep | None = None,
) -> None:  # fmt: skip
    """Writes the page of some queries.

    Args:
        out: the page.
        shown: all queries and their map.
        chosen: those that are shown.
        photos: their folder.
        settings: of the stage, for the page's end.
        keep: takes the number, query and picture of each, for what is written besides.
    """
    scale = _scale(chosen)
    sections = [_colors(chosen, scale)] if any(query.view is not None for query in chosen) else []
    for number, query in enumerate(console.track(chosen, "drawing", "queries"), start=1):
        sections.append(_section(shown, query, photos, scale))
        if keep is not None:
            keep(number, query, query_image(shown, query, photos, "jpeg"))
    sections.append(_listed(shown))
    write_page(
        out, "Localised queries", _answer(shown), sections, settings=settings,
        provenance={"queries": str(shown.folder), "map": str(shown.reconstruction), "photos": str(photos)},
    )  # fmt: skip


def write_query_picture(out: Path, shown: ShownQueries, query: ShownQuery, photos: Path) -> None:
    """Writes a picture of one query: its photo, and the map around it."""
    data = query_image(shown, query, photos, KINDS[out.suffix.lower()])
    with atomic(out) as temporary:
        temporary.write_bytes(data)


def query_image(shown: ShownQueries, query: ShownQuery, photos: Path, kind: str) -> bytes:
    """A picture of one query that stands alone, 'png' or 'jpeg'."""
    return query_drawing.query_figure(
        _photo(shown, query, photos), query.matched, shown.scene(query), _scale([query]), query.name,
        caption(query), kind,
    )  # fmt: skip


def _photo(shown: ShownQueries, query: ShownQuery, photos: Path) -> np.ndarray:
    return read_photo(photos, query.name, query.size, query.matched.xy, shown.folder)


def _scale(queries: Sequence[ShownQuery]) -> Scale:
    return query_drawing.error_scale(
        np.concatenate([np.zeros(0), *(q.matched.error_px[q.matched.inlier] for q in queries)])
    )


def caption(query: ShownQuery) -> str:
    """For instance '120 inliers of 130 matches to 3D points; median error 0.8 px'."""
    text = f"{query.inliers:,} inliers of {count(query.matches, 'match', 'matches')} to 3D points"
    if query.view is None:
        return f"failed: {query.reason}"
    middle = match_drawing.median(query.matched.error_px[query.matched.inlier])
    return text if middle is None else f"{text}; median error {middle:.2f} px"


def _section(shown: ShownQueries, query: ShownQuery, photos: Path, scale: Scale) -> Section:
    photo = query_drawing.query_picture(_photo(shown, query, photos), query.matched, scale)
    ok = query.view is not None
    text = "Colours are inliers, crosses other matches to 3D points." if ok else "Crosses are matches to 3D points."
    parts: list[Part] = [Picture(photo, "Photo", text)]
    if query.view is not None:
        seen = "Lines run from the query to some of the points that its pose rests on."
        parts.append(query_drawing.map_picture(shown.scene(query), "Map", seen))
    return Section(
        query.name, [Gallery(parts, _LEAST_PX), Definitions(_figures(query))], f"{_sentence(caption(query))}"
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _figures(query: ShownQuery) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    if query.view is not None:
        pose = query.view.pose
        figures["position in the map"] = place_text(pose.center)
        figures["quaternion w, x, y, z (world to camera)"] = ", ".join(f"{v:.4f}" for v in pose.quaternion)
        if query.spread is not None:
            position, turn = query.spread
            figures["deviation for keypoints off by 1 px"] = f"{position:.2g} map units, {turn:.2g} deg"
    shown = ", ".join(query.candidates[:8]) + (f" and {len(query.candidates) - 8} more" if query.candidates[8:] else "")
    return figures | {"matched with": shown or None}


def place_text(center: np.ndarray) -> str:
    """A place in the map's units, to the centimetre where they are metres of UTM."""
    return ", ".join(f"{v:.9g}" for v in center)


def _answer(shown: ShownQueries) -> Answer:
    done = [query for query in shown.queries.values() if query.view is not None]
    total = len(shown.queries)
    numbers = [Number(f"{len(done):,}", "localised", f"of {total:,}")]
    text = f"{len(done):,} of {count(total, 'query', 'queries')} localised"
    if done:
        inliers = int(np.median([query.inliers for query in done]))
        share = float(np.median([query.inliers / max(query.matches, 1) for query in done]))
        numbers.append(Number(f"{inliers:,}", "inliers, median"))
        numbers.append(Number(f"{100 * share:.0f} %", "of matches are inliers, median"))
        text += f", with a median of {count(inliers, 'inlier', 'inliers')}"
    return Answer(f"{text}.", numbers)


def _colors(chosen: Sequence[ShownQuery], scale: Scale) -> Section:
    errors = np.concatenate([query.matched.error_px[query.matched.inlier] for query in chosen])
    picture = chart(
        match_drawing.histogram, errors, scale, "inliers",
        title=f"Errors of {count(len(errors), 'inlier', 'inliers')}",
        caption="of the queries shown, in the pictures' colours; the last bar holds what lies beyond.",
    )  # fmt: skip
    text = (
        "Colours say how far a 3D point, seen from the pose that was found, lies from its keypoint. Inliers lie near "
        "by choice: a wrong pose has few of them rather than far ones."
    )
    return Section("What the colours say", [picture], text)


def _listed(shown: ShownQueries) -> Section:
    columns: list[Column | str] = [
        "query", "inliers", "matches", Column("median error", "px", digits=2), Column("why it failed", text=True),
    ]  # fmt: skip
    rows = [
        (q.name, q.inliers, q.matches, match_drawing.median(q.matched.error_px[q.matched.inlier]), q.reason or "")
        for q in shown.queries.values()
    ]
    return Section("All queries", [Table(columns, rows, tall=len(rows) > 20)])
