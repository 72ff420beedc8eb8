"""The pages and pictures of matches for `xdesc show`.

In: matches of pairs and the folder of their photos. Out: a page with the shown pairs, how their ratios are spread and
how many matches every pair has; a picture of one pair; or a folder with both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.files.whole import atomic
from xdesc_jax.inspection import match_drawing
from xdesc_jax.inspection.match_drawing import Drawing, Scale
from xdesc_jax.inspection.shown_matches import ListedPair, ShownMatches, ShownPair
from xdesc_jax.inspection.shown_photos import read_photo
from xdesc_jax.reports.chart import chart
from xdesc_jax.reports.page import write_page
from xdesc_jax.reports.parts import Answer, Column, Gallery, Number, Part, Section, Table, Words
from xdesc_jax.reports.parts import Picture as PagePicture
from xdesc_jax.reports.settings import Settings

KINDS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg"}
LISTED = 200
_LEAST_PX = 400


@dataclasses.dataclass(frozen=True)
class Coloring:
    """What the colours of a page say.

    Attributes:
        scale: of the values.
        field: of `ShownPair` that holds the values; None for one colour.
        text: how the values come about, for people.
    """

    scale: Scale
    field: str | None
    text: str

    def values(self, found: ShownPair) -> np.ndarray | None:
        """A value a match."""
        return None if self.field is None else getattr(found, self.field)


def shown_pairs(pairs: Sequence[ListedPair], most: int) -> list[ListedPair]:
    """Of many pairs those with most matches and, a third of all, those with fewest; pairs without any are left out.

    Args:
        pairs: those with most matches first.
        most: as many at most.
    """
    some = [pair for pair in pairs if pair.matches]
    if len(some) <= most:
        return some
    few = most // 3
    return some[: most - few] + some[len(some) - few :]


def coloring(found: Sequence[ShownPair], scores_are: str | None) -> Coloring:
    """Ratios where all pairs have them, else the scores of the file, else one colour."""
    ratios = [pair.ratios for pair in found if pair.ratios is not None]
    if len(ratios) == len(found):
        compared = ", ".join(dict.fromkeys(pair.compared for pair in found))
        return Coloring(
            match_drawing.ratio_scale(np.concatenate(ratios)), "ratios",
            f"the ratio of a match: the distance of its two descriptors ({compared}) over that to the nearest other "
            "one, the larger of both directions. Small is sure; at 1 another keypoint fits as well.",
        )  # fmt: skip
    why = next(pair.compared for pair in found if pair.ratios is None)
    why = f"There are no ratios: {why}"
    scores = [pair.scores for pair in found if pair.scores is not None]
    if scores_are is not None and scores:
        text = f"the score of a match in the file: {scores_are}. {why}"
        return Coloring(match_drawing.score_scale(np.concatenate(scores)), "scores", text)
    return Coloring(match_drawing.ratio_scale(np.zeros(0)), None, f"nothing, the file holds no scores. {why}")


def drawing(found: ShownPair, colored: Coloring, photos: Path, max_matches: int) -> Drawing:
    """What is drawn of a pair; reads its photos."""
    pixels = [
        read_photo(photos, name, size, keypoints, file)
        for name, size, keypoints, file in zip(found.pair.names, found.sizes, found.keypoints, found.files, strict=True)
    ]
    values = colored.values(found)
    rows = match_drawing.chosen(values, max_matches, colored.scale, len(found.indices))
    refused = match_drawing.spread(found.refused, max_matches)
    return Drawing(
        (pixels[0], pixels[1]), found.keypoints, found.indices[rows], None if values is None else values[rows],
        refused, colored.scale,
    )  # fmt: skip


def caption(found: ShownPair, drawn: Drawing) -> str:
    """For instance '318 matches of 1,200 and 1,180 keypoints; ratio 0.71 in the middle; 300 drawn'."""
    counts = [len(keypoints) for keypoints in found.keypoints]
    text = f"{count(len(found.indices), 'match', 'matches')} of {counts[0]:,} and {counts[1]:,} keypoints"
    if found.pair.verified is not None:
        text += ", verified" if found.pair.verified else ", not verified"
    if len(found.refused):
        text += f", {len(found.refused):,} more refused (dotted)"
    if (middle := match_drawing.median(drawn.values)) is not None:
        text += f"; median {drawn.scale.name} {middle:.2f}"
    if len(drawn.indices) < len(found.indices):
        text += f"; {len(drawn.indices):,} drawn"
    return text


def count(number: int, one: str, several: str) -> str:
    """For instance '1 match' or '1,200 matches'."""
    return f"{number:,} {one if number == 1 else several}"


def write_picture(
    out: Path, matches: ShownMatches, pair: ListedPair, photos: Path, max_matches: int
) -> tuple[Path, ShownPair]:
    """Writes a picture of one pair, with its names, counts and the scale of its colours."""
    found = matches.read(pair)
    colored = coloring([found], matches.scores_are)
    drawn = drawing(found, colored, photos, max_matches)
    title = f"{pair.name0} – {pair.name1}"
    data = match_drawing.match_figure(drawn, title, caption(found, drawn), KINDS[out.suffix.lower()])
    with atomic(out) as temporary:
        temporary.write_bytes(data)
    return out, found


def write_match_page(
    out: Path,
    matches: ShownMatches,
    shown: Sequence[ListedPair],
    photos: Path,
    max_matches: int,
    settings: Settings,
    keep: Callable[[int, ListedPair, Drawing, str], None] | None = None,
) -> None:
    """Writes the page of some pairs.

    Args:
        out: the page.
        matches: of all pairs.
        shown: the pairs that have a picture.
        photos: their folder.
        max_matches: drawn a pair.
        settings: of the stage, for the page's end.
        keep: takes the number, pair, drawing and caption of each picture, for what is written besides.
    """
    read = [matches.read(pair) for pair in console.track(shown, "reading", "pairs")]
    sections: list[Section] = []
    values: dict[tuple[str, str], np.ndarray | None] = {}
    colored = coloring(read, matches.scores_are) if read else None
    if colored is not None:
        pictures: dict[bool | None, list[Part]] = {True: [], False: [], None: []}
        for number, found in enumerate(console.track(read, "drawing", "pairs"), start=1):
            drawn = drawing(found, colored, photos, max_matches)
            text = caption(found, drawn)
            title = f"{found.pair.name0} – {found.pair.name1}"
            pictures[found.pair.verified].append(PagePicture(match_drawing.match_picture(drawn), title, text))
            values[found.pair.names] = colored.values(found)
            if keep is not None:
                keep(number, found.pair, drawn, text)
        sections.append(_colors(colored, read))
        for verified, title in ((True, "Verified pairs"), (False, "Pairs not verified"), (None, "Pairs")):
            if pictures[verified]:
                sections.append(Section(title, [Gallery(pictures[verified], _LEAST_PX)], _explained(verified)))
    sections.append(_listed(matches, values, colored))
    write_page(
        out, f"Matches in {matches.path.name}", _answer(matches, values, colored), sections, settings=settings,
        provenance={"matches": str(matches.path), "photos": str(photos), **_matched_as(matches)},
    )  # fmt: skip


def _matched_as(matches: ShownMatches) -> Mapping[str, Any]:
    return {"matched in mode": matches.mode} if matches.mode is not None else {}


def _explained(verified: bool | None) -> str:
    drawn = "A line a match, the surest on top; pale dots are keypoints without a match."
    if verified:
        return f"{drawn} Dotted lines are matches that one geometry of both photos does not explain."
    return drawn


def _answer(matches: ShownMatches, values: Mapping[Any, np.ndarray | None], colored: Coloring | None) -> Answer:
    counts = np.array([pair.matches for pair in matches.pairs], int)
    some = int((counts > 0).sum())
    if not some:
        text = f"No match in {count(len(counts), 'pair', 'pairs')} of photos." if len(counts) else "No pair of photos."
        return Answer(text, [Number("0", "matches"), Number(f"{len(counts):,}", "pairs")])
    numbers = [
        Number(f"{counts.sum():,}", "matches"),
        Number(f"{some:,}", "pairs with matches", f"of {len(counts):,}"),
        Number(f"{int(np.median(counts)):,}", "matches a pair, median"),
    ]
    text = f"{count(int(counts.sum()), 'match', 'matches')} in {count(some, 'pair', 'pairs')} of photos"
    verified = [pair for pair in matches.pairs if pair.verified]
    if any(pair.verified is not None for pair in matches.pairs):
        numbers.append(Number(f"{len(verified):,}", "pairs verified"))
    joined = np.concatenate([v for v in values.values() if v is not None] or [np.zeros(0)])
    if colored is not None and (middle := match_drawing.median(joined)) is not None:
        numbers.append(Number(f"{middle:.2f}", f"median {colored.scale.name} of the pairs shown"))
        of = "" if len(values) == some else f" in the {len(values)} pairs shown"
        text += f", with a median {colored.scale.name} of {middle:.2f}{of}"
    return Answer(f"{text}.", numbers)


def _colors(colored: Coloring, read: Sequence[ShownPair]) -> Section:
    values = [found for pair in read if (found := colored.values(pair)) is not None]
    words = f"Colours say {colored.text}"
    parts: list[Part] = []
    if values and len(joined := np.concatenate(values)):
        parts.append(
            chart(
                match_drawing.histogram, joined, colored.scale, "matches",
                title=f"{colored.scale.name.capitalize()}s of {count(len(joined), 'match', 'matches')}",
                caption="of the pairs shown, in the pictures' colours; the first and last bar hold what lies beyond.",
            )
        )  # fmt: skip
        if colored.field == "ratios" and any(pair.scores is not None for pair in read):
            parts.append(Words("The file holds scores as well; the ratios are computed anew from the descriptors."))
    return Section("What the colours say", parts, words)


def _listed(
    matches: ShownMatches, values: Mapping[tuple[str, str], np.ndarray | None], colored: Coloring | None
) -> Section:
    stated = any(pair.verified is not None for pair in matches.pairs)
    columns: list[Column | str] = ["pair", "matches"]
    columns += ["refused", Column("verified", text=True)] if stated else []
    columns += [Column(f"median {colored.scale.name}", digits=2)] if colored is not None and colored.field else []
    pairs = matches.pairs
    if some_shown := 0 < len(values) < len(pairs):
        columns.append(Column("shown", text=True))
    listed = pairs if len(pairs) <= LISTED else [*pairs[: LISTED // 2], *pairs[-LISTED // 2 :]]
    rows = []
    for pair in listed:
        row: list[Any] = [f"{pair.name0} – {pair.name1}", pair.matches]
        row += [pair.refused, "yes" if pair.verified else "no"] if stated else []
        row += [match_drawing.median(values.get(pair.names))] if colored is not None and colored.field else []
        row += ["yes" if pair.names in values else "no"] if some_shown else []
        rows.append(row)
    text = f"{count(len(pairs), 'pair', 'pairs')}, those with most matches first."
    if len(listed) < len(pairs):
        text += f" Of them, the first and the last {LISTED // 2} are listed."
    return Section("All pairs", [Table(columns, rows, tall=len(rows) > 20)] if rows else [], text)
