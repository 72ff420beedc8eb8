"""The stage `xdesc show`: pictures of your own matches and localised queries, without ground truth.

In: features with their matches, or the folder of `xdesc localize`; and the photos. Out: a page, a picture, or a folder
with both. Nothing that is read is changed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdesc_jax import console
from xdesc_jax.files.whole import atomic
from xdesc_jax.matching.routes import Mode

if TYPE_CHECKING:
    from xdesc_jax.inspection.shown_matches import ListedPair, ShownMatches

_PICTURES = (".png", ".jpg", ".jpeg")
_RESULTS = "results.json"


def show(
    inputs: tuple[Path, ...],
    *,
    photos: Path,
    out: Path | None = None,
    pair: tuple[str, str] | None = None,
    query: tuple[str, ...] = (),
    map: Path | None = None,
    most: int = 12,
    max_matches: int = 300,
    min_score: float | None = None,
    mode: Mode = "native",
    model: Path | None = None,
    target: str | None = None,
    descriptor: tuple[str, ...] = (),
) -> Path:
    """Shows matches, or localised queries, over the photos.

    Args:
        inputs: features and their matches, `A.h5 B.h5 MATCHES.h5` or `A.h5 MATCHES.h5`; a COLMAP database with its own
            matches; or the folder that `xdesc localize` wrote. Databases may stand for feature files.
        photos: folder of the photos that the features were made on.
        out: a page (.html), a picture (.png, .jpg) of one pair or query, or a folder for a page and its pictures.
            By default a page beside the matches, or `show.html` in the folder of the queries.
        pair: the two photos to show; by default those with most matches, and some with few.
        query: names of the queries to show; by default those that failed, and some that did not.
        map: the COLMAP model that queries were localised in, where it was moved since.
        most: pairs or queries shown on a page.
        max_matches: matches drawn a pair, from the surest to the least sure.
        min_score: leave out matches with a lower score in the match file.
        mode: how rows are made comparable for their ratios, as of `xdesc match`.
        model: model file (.safetensors), or the name of one that ships with the package; not for 'native'.
        target: descriptor to translate to, in mode 'directional'.
        descriptor: what the files hold, where they do not say (hloc's); NAME=FILE for one of several. May be given
            again.

    Returns:
        What was written.

    Raises:
        FileNotFoundError: no such file.
        ValueError: files that do not belong together, photos that are missing or of another size.
    """
    given = [Path(path) for path in inputs]
    photos = Path(photos)
    if not given:
        raise ValueError("name features and their matches, a COLMAP database, or the folder of `xdesc localize`")
    if not photos.is_dir():
        raise FileNotFoundError(f"{photos}: no such folder of photos")
    if most < 1 or max_matches < 1:
        raise ValueError(f"--most {most} and --max-matches {max_matches}: expected at least 1")
    for path in given:
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file or folder")
    values: dict[str, Any] = {
        "inputs": [str(path) for path in given], "photos": str(photos), "pair": pair, "query": query, "most": most,
        "max_matches": max_matches, "min_score": min_score, "mode": mode, "model": model, "target": target,
        "descriptor": descriptor, "map": map and str(map),
    }  # fmt: skip
    if given[0].is_dir() or given[0].name == _RESULTS:
        if len(given) != 1 or pair is not None:
            raise ValueError(f"{given[0]}: localised queries are shown alone, without other files and without --pair")
        if descriptor or any(value is not None for value in (min_score, model, target)) or mode != "native":
            raise ValueError(
                f"{given[0]}: --min-score, --mode, --model, --target and --descriptor are for matches, not for queries"
            )
        folder = given[0] if given[0].is_dir() else given[0].parent
        out = Path(out or folder / "show.html")
        _check_out(out, given)
        return _show_queries(folder, out, photos, query, map, most, values)
    if query or map is not None:
        raise ValueError(f"--query and --map are for the folder of `xdesc localize`, and {given[0]} is a file")
    out = Path(out or given[-1].with_name(given[-1].name + ".html"))
    _check_out(out, given)
    return _show_matches(given, out, photos, pair, most, max_matches, min_score, values)


def _check_out(out: Path, inputs: list[Path]) -> None:
    """Refuses to write over an input, or a kind of file that is none of ours."""
    if out.resolve() in [path.resolve() for path in inputs]:
        raise ValueError(f"{out}: is the input itself")
    if out.suffix and out.suffix.lower() not in (".html", *_PICTURES) and not out.is_dir():
        raise ValueError(f"{out}: expected a page (.html), a picture ({', '.join(_PICTURES)}) or a folder")


def _show_matches(
    given: list[Path], out: Path, photos: Path, pair: tuple[str, str] | None, most: int, max_matches: int,
    min_score: float | None, values: dict[str, Any],
) -> Path:  # fmt: skip
    from xdesc_jax import pretrained
    from xdesc_jax.inspection import match_drawing, match_page
    from xdesc_jax.inspection.shown_matches import ShownMatches, opened
    from xdesc_jax.matching.routes import Router
    from xdesc_jax.reports.settings import Settings, defaults_of
    from xdesc_jax.translation.translator import Translator

    model = values["model"]
    translator = Translator.load(pretrained.resolve(Path(model))) if model is not None else None
    router = Router(values["mode"], translator, target=values["target"])
    with opened(given, values["descriptor"], translator) as (first, second, source):
        matches = ShownMatches(first, second, source, router, translator, min_score)
        shown = [matches.find(*pair)] if pair is not None else match_page.shown_pairs(matches.pairs, most)
        if out.suffix.lower() in _PICTURES:
            if not shown:
                raise ValueError(f"{matches.path}: holds no match, so there is no picture; a page (.html) says so")
            match_page.write_picture(out, matches, shown[0], photos, max_matches)
            _print(matches, shown[:1], out)
            return out
        settings = Settings.of(values, defaults_of(show))
        folder = None if out.suffix.lower() == ".html" else out

        pictures: dict[str, bytes] = {}

        def keep(number: int, kept: ListedPair, drawn: match_drawing.Drawing, text: str) -> None:
            name = f"{number:02d} {' '.join(map(file_name, kept.names))}.jpg"
            pictures[name] = match_drawing.match_figure(drawn, f"{kept.name0} – {kept.name1}", text, "jpeg")

        page = out if folder is None else folder / "index.html"
        match_page.write_match_page(page, matches, shown, photos, max_matches, settings, keep if folder else None)
        _write(page.parent, pictures)
        _print(matches, shown, page)
    return out


def _print(matches: ShownMatches, shown: list[ListedPair], out: Path) -> None:
    rows = [(f"{p.name0} – {p.name1}", f"{p.matches:,}") for p in shown]
    console.table(f"{len(shown)} of {len(matches.pairs)} pairs shown", ("pair", "matches"), rows)
    console.result(out)


def _show_queries(
    folder: Path, out: Path, photos: Path, query: tuple[str, ...], map: Path | None, most: int, values: dict[str, Any]
) -> Path:
    from xdesc_jax.inspection import query_page
    from xdesc_jax.inspection.shown_queries import ShownQueries, ShownQuery
    from xdesc_jax.reports.settings import Settings, defaults_of

    shown = ShownQueries.read(folder, map)
    chosen = shown.chosen(query, most)
    if out.suffix.lower() in _PICTURES:
        if not chosen:
            raise ValueError(f"{folder}: holds no query, so there is no picture")
        chosen = chosen[:1]
        query_page.write_query_picture(out, shown, chosen[0], photos)
    else:
        into = None if out.suffix.lower() == ".html" else out

        pictures: dict[str, bytes] = {}

        def keep(number: int, kept: ShownQuery, picture: bytes) -> None:
            pictures[f"{number:02d} {file_name(kept.name)}.jpg"] = picture

        settings = Settings.of(values, defaults_of(show))
        page = out if into is None else into / "index.html"
        query_page.write_query_page(page, shown, chosen, photos, settings, keep if into else None)
        _write(page.parent, pictures)
    rows = [(kept.name, f"{kept.inliers:,}", kept.reason or "") for kept in chosen]
    console.table(f"{len(chosen)} of {len(shown.queries)} queries shown", ("query", "inliers", "why it failed"), rows)
    console.result(out)
    return out


def _write(folder: Path, pictures: dict[str, bytes]) -> None:
    """Writes pictures once all of them are there; tells of those that are left of an earlier page."""
    for name, data in pictures.items():
        with atomic(folder / name) as temporary:
            temporary.write_bytes(data)
    others = sorted(file.name for file in folder.glob("[0-9][0-9] *.jpg") if file.name not in pictures)
    if pictures and others:
        console.warn(f"{folder}: holds {console.counted(len(others), 'picture')} not of this page, first {others[0]!r}")


def file_name(name: str) -> str:
    """A photo's name without what file systems do not take, and not too long."""
    return re.sub(r"[^\w.+-]+", "_", name)[-60:]
