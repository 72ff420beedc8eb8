"""The stage `xdesc match`: features -> matches.

In: feature files and COLMAP databases, whose photos may hold different descriptors, and which photos to match.
Out: mutual nearest neighbours of each pair, as a match file in hloc's layout (see `matches`) or in a copy of
the database. How the rows of two photos are made comparable is the mode's choice (see `routes`). All names and
routes are looked up before any work. Matches are kept in parts until all are there, so a run that was stopped
goes on. Runs on the base install.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.colmap.database import DatabaseReader, is_database
from xdesc_jax.colmap.database_writer import DatabaseWriter
from xdesc_jax.features.store import found_hash
from xdesc_jax.files import dry_run
from xdesc_jax.files.claim import beside, claimed
from xdesc_jax.files.whole import already_done, config_hash, content_hash, write_json
from xdesc_jax.matching.feature_set import FeatureSet, Held
from xdesc_jax.matching.matches import Extent, MatchWriter, check_names
from xdesc_jax.matching.nearest import Matches
from xdesc_jax.matching.pairs import Pair, distinct, in_blocks, read_pairs
from xdesc_jax.matching.parts import MatchParts, PairMatches
from xdesc_jax.matching.routes import KEPT_BYTES, Mode, Route, Router, Rows
from xdesc_jax.translation.ratios import strictest
from xdesc_jax.translation.translator import Translator

EXHAUSTIVE, RETRIEVAL = "exhaustive", "retrieval"
BACKENDS = {"numpy": "xdesc_jax.matching.nearest", "jax": "xdesc_jax.matching.nearest_jax"}
PAIRS_A_PART = 500
SHOWN = 5

Matcher = Callable[..., Matches]


@dataclasses.dataclass(frozen=True)
class MatchPlan:
    """What is matched, and how.

    Attributes:
        pairs: in the order of work.
        routes: of each pair.
        counts: of given, own and repeated pairs.
    """

    pairs: list[Pair]
    routes: list[Route]
    counts: dict[str, int]


def match(
    features: tuple[Path, ...],
    out: Path,
    *,
    pairs: str,
    other: tuple[Path, ...] = (),
    mode: Mode = "native",
    model: Path | None = None,
    target: str | None = None,
    order: tuple[str, ...] = (),
    ratio: float | Literal["auto"] | None = "auto",
    backend: Literal["numpy", "jax"] = "numpy",
    top: int = 20,
    descriptor: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Features -> matches.

    Args:
        features: feature files (.h5) and COLMAP databases; each photo is in one of them. Behind them, `out`.
        out: match file (.h5) to write; or, where `features` is one COLMAP database, a database (.db): a copy with
            these matches instead of those it had.
        pairs: text file with two photo names a line, 'exhaustive' for all pairs, or 'retrieval' for the `top`
            most alike by their embeddings (see `xdesc retrieve`).
        other: files of the second photos of each pair, if not the same.
        mode: 'native' matches rows of one descriptor as they are; 'embed' takes all into the joint space;
            'progressive' translates the lower descriptor of an order to the higher; 'directional' translates
            all to `target`, or without one the first photo's to the second's.
        model: model file (.safetensors), or the name of one that ships with the package; not for 'native'.
        target: descriptor to translate to, in mode 'directional'.
        order: descriptors from the worst to the best, in mode 'progressive'; the model's validation says it
            where none is given.
        ratio: largest first-to-second distance ratio, on the L2 scale; 'None' for mutual neighbours alone;
            'auto' for the one calibrated for each pair of descriptors, 0.9 where none is known.
        backend: 'numpy', or 'jax' for an accelerator.
        top: photos retrieved for each photo, where pairs are 'retrieval'.
        descriptor: what the files hold, where they do not say (hloc's).
        overwrite: replace a result made with other settings.

    Returns:
        `out`; a summary lies beside it as `<out>.json`.

    Raises:
        ValueError: rows that do not compare, names that a file lacks, or `out` is an input.
        FileExistsError: `out` was made with other settings and `overwrite` is off.
        InUse: another process makes it.
    """
    out, summary = Path(out), Path(out).with_name(Path(out).name + ".json")
    listed = [] if pairs in (EXHAUSTIVE, RETRIEVAL) else [Path(pairs)]
    _check_out(out, [*map(Path, (*features, *other)), *listed])
    into_database = _into_database(out, features, other)
    named, model = model, pretrained.resolve(model) if model is not None else None
    translator = Translator.load(model) if model is not None else None
    if pairs == RETRIEVAL:
        pairs = str(_retrieved(features, other, out, model, top, descriptor, overwrite))
    with (
        FeatureSet(features, descriptor, strict=not other) as first,
        FeatureSet(other or features, descriptor, strict=not other) as second,
    ):
        files = {"features": first.paths, "other": second.paths if other else []}
        ratios = strictest(first.ratios, second.ratios)
        router = Router(mode, translator, target=target, order=order or None, ratio=ratio, ratios=ratios)
        plan = make_plan(pairs, first, second, router, bool(other))
        with console.status("reading the inputs"):
            hashes = {name: [content_hash(path) for path in paths] for name, paths in files.items()}
        config = {
            "stage": "match",
            **hashes,
            "pairs": config_hash(sorted(plan.pairs)),
            "mode": mode,
            "model": content_hash(model) if model is not None else None,
            "target": target,
            "order": list(router.order),
            "ratio": ratio,
            "descriptor": descriptor,
        }
        expected = config_hash(config)
        found = _found_hash(out) if out.exists() else None
        if already_done(out, found, expected, overwrite, beside=[summary]):
            console.up_to_date(out)
            return out
        given: dict[str, Any] = {
            **files,
            "model": named,
            "pairs": pairs,
            "mode": mode,
            "target": target,
            "order": order,
        }
        given |= {"ratio": ratio, "top": top, "descriptor": descriptor, "backend": backend}
        console.settings(f"xdesc match -> {out}", {**given, "pairs to match": len(plan.pairs)}, match)
        rows0 = Rows(first, translator)
        rows1 = Rows(second, translator) if other else rows0
        matcher: Matcher = importlib.import_module(BACKENDS[backend]).match
        with claimed(beside(out), "xdesc match", out):
            parts = MatchParts(out.with_name(f".{out.name}.parts"), expected)
            match_pairs(plan, rows0, rows1, matcher, parts)
            writer = _write_database if into_database else _write_file
            writer(out, first, second, parts, expected, config)
            figures = {**plan.counts, **_figures(plan, parts, first, second, rows0, rows1)}
            for rows in (rows0, rows1) if other else (rows0,):
                for text in rows.findings() + rows.strange():
                    console.warn(text)
            write_json(summary, {"config": config, "config_hash": expected, "settings": given, **figures})
            parts.remove()
    _print(mode, figures)
    console.result(out, figures=summary)
    return out


def _check_out(out: Path, inputs: list[Path]) -> None:
    if out.resolve() in [path.resolve() for path in inputs]:
        raise ValueError(f"{out}: is the input itself")


def _into_database(out: Path, features: Sequence[Path], other: Sequence[Path]) -> bool:
    """Whether matches go into a copy of the database."""
    if out.suffix == ".h5":
        return False
    if out.suffix != ".db":
        raise ValueError(f"{out}: expected a match file (.h5), or a database (.db) where the features are one")
    if len(features) != 1 or other or not is_database(features[0]):
        raise ValueError(
            f"{out}: matches go into a copy of one COLMAP database, but features are "
            f"{', '.join(map(str, (*features, *other)))}; write a match file (.h5), from which `xdesc reconstruct` "
            f"makes a database"
        )
    return True


def _retrieved(
    features: tuple[Path, ...], other: tuple[Path, ...], out: Path, model: Path | None, top: int,
    descriptor: str | None, overwrite: bool,
) -> Path:  # fmt: skip
    from xdesc_jax.matching.retrieval import retrieve

    path = out.with_name(out.name + ".pairs.txt")
    with dry_run.step(out), console.inner():
        retrieve(features, path, database=other, model=model, top=top, descriptor=descriptor, overwrite=overwrite)
    return path


def _found_hash(out: Path) -> str | None:
    if out.suffix == ".h5":
        return found_hash(out)
    with DatabaseReader(out) as reader:
        return reader.attributes.get("config_hash")


# --- Pairs -----------------------------------------------------------------------------------------------


def make_plan(pairs: str, first: FeatureSet, second: FeatureSet, router: Router, two_sets: bool) -> MatchPlan:
    """The pairs to match, each once in either order and none with itself, and the route of each.

    Args:
        pairs: path of a pair list, or 'exhaustive'.
        first, second: features of the first and of the second photos.
        router: chooses routes.
        two_sets: whether the second photos are of other files.

    Raises:
        ValueError: names that the features lack, or rows that do not compare.
    """
    if pairs == EXHAUSTIVE:
        given = list(
            itertools.product(first.names, second.names) if two_sets else itertools.combinations(first.names, 2)
        )
    else:
        given = read_pairs(Path(pairs), first.names, second.names)
    where = "all pairs" if pairs == EXHAUSTIVE else f"pair list {pairs}"
    first.check_names([a for a, _ in given], where)
    second.check_names([b for _, b in given], where)
    chosen, own = distinct(given, ordered=two_sets)
    check_names(dict.fromkeys(name for pair in chosen for name in pair))
    counts = {"pairs_given": len(given), "self_pairs": own, "duplicates": len(given) - own - len(chosen)}
    if two_sets:
        counts["pairs_in_both_orders"] = _tell_of_both_orders(given, first, second)
    ordered = in_blocks(chosen, _places(first), _places(second), _photos_in_memory(first))
    return MatchPlan(ordered, _routes(ordered, first, second, router), counts)


def _tell_of_both_orders(given: Sequence[Pair], first: FeatureSet, second: FeatureSet) -> int:
    """Warns where two files hold the same photos and pairs stand in both orders; returns how many do."""
    listed = set(given)
    both = sorted((a, b) for a, b in listed if a < b and (b, a) in listed)
    if both:
        a, b = both[0]
        console.warn(
            f"{len(both)} pairs are in both orders, first {a!r} and {b!r}: a match file has one place for two photos, "
            f"so the order listed first is matched; match the other one into a file of its own ({first.path(a)} and "
            f"{second.path(b)} hold the same photos)"
        )
    return len(both)


def _places(features: FeatureSet) -> dict[str, int]:
    return {name: i for i, name in enumerate(features.names)}


def _photos_in_memory(features: FeatureSet) -> int:
    """Photos of which two groups fit in what `Rows` keeps, by the first ones' numbers of keypoints."""
    sample = features.names[:: max(1, len(features) // 20)]
    rows = np.mean([len(features.keypoints(name)) for name in sample]) if sample else 0
    return max(1, int(KEPT_BYTES / 2 / max(1.0, rows * 512)))


def _routes(pairs: list[Pair], first: FeatureSet, second: FeatureSet, router: Router) -> list[Route]:
    """The route of each pair; a photo without descriptors takes what the other one holds."""
    held0 = {name: first.held(name) for name in dict.fromkeys(a for a, _ in pairs)}
    held1 = {name: second.held(name) for name in dict.fromkeys(b for _, b in pairs)}
    some = next((h for h in (*held0.values(), *held1.values()) if h is not None), None)
    if some is None:
        if not pairs:
            return []
        raise ValueError(f"no photo in {', '.join(map(str, (*first.paths, *second.paths)))} has descriptors")
    made: dict[tuple[Held, Held], Route] = {}
    routes = []
    for a, b in pairs:
        held = (held0[a] or held1[b] or some, held1[b] or held0[a] or some)
        if held not in made:
            try:
                made[held] = router.route(*held)
            except ValueError as error:
                raise ValueError(f"{first.path(a)}: {a!r} and {second.path(b)}: {b!r}: {error}") from error
        routes.append(made[held])
    return routes


# --- Matching --------------------------------------------------------------------------------------------


def match_pairs(plan: MatchPlan, rows0: Rows, rows1: Rows, matcher: Matcher, parts: MatchParts) -> None:
    """Matches the pairs that are not in a part yet, and writes them as parts."""
    starts = range(0, len(plan.pairs), PAIRS_A_PART)
    missing = [start for start in starts if not parts.has(start // PAIRS_A_PART)]
    left = sum(len(plan.pairs[start : start + PAIRS_A_PART]) for start in missing)
    with console.progress_bar("pairs") as bar:
        task = bar.add_task("matching", total=len(plan.pairs), completed=len(plan.pairs) - left)
        for start in missing:
            found = []
            for (a, b), route in zip(
                plan.pairs[start : start + PAIRS_A_PART], plan.routes[start : start + PAIRS_A_PART], strict=True
            ):
                x, y = rows0(a, route.target), rows1(b, route.target)
                matched = matcher(x, y, binary=route.target.binary, ratio=route.ratio)
                found.append(PairMatches(a, b, len(x), matched.indices, matched.scores))
                bar.advance(task)
            parts.save(start // PAIRS_A_PART, found)


def _write_file(
    out: Path, first: FeatureSet, second: FeatureSet, parts: MatchParts, expected: str, config: dict[str, Any]
) -> None:
    extents: dict[tuple[int, str], Extent] = {}

    def extent(features: FeatureSet, name: str) -> Extent:
        key = (int(features is second), name)
        if key not in extents:
            extents[key] = Extent.of(features.keypoints(name))
        return extents[key]

    with MatchWriter(out, {"config_hash": expected, "mode": config["mode"]}) as writer:
        for found in parts:
            a, b = found.name0, found.name1
            both = (extent(first, a), extent(second, b))
            writer.write(a, b, found.rows0, found.indices, found.scores, both)


def _write_database(
    out: Path, first: FeatureSet, second: FeatureSet, parts: MatchParts, expected: str, config: dict[str, Any]
) -> None:
    with DatabaseWriter(first.paths[0], out) as writer:
        writer.clear_matches()
        for found in parts:
            writer.write_matches(found.name0, found.name1, found.indices)
        writer.set_attribute("config_hash", expected)


# --- Summary ---------------------------------------------------------------------------------------------


def _figures(
    plan: MatchPlan, parts: MatchParts, first: FeatureSet, second: FeatureSet, rows0: Rows, rows1: Rows
) -> dict[str, Any]:
    """Counts over all pairs, and for each two descriptors the ratio and where it comes from."""
    counts: list[int] = []
    unique = 0
    by_kind: dict[tuple[str, str], dict[str, Any]] = {}
    positions: dict[tuple[int, str], np.ndarray] = {}

    def place(features: FeatureSet, name: str) -> np.ndarray:
        key = (int(features is second), name)
        if key not in positions:
            xy = features.keypoints(name)
            positions[key] = np.unique(xy, axis=0, return_inverse=True)[1].reshape(-1)
        return positions[key]

    for found, route in zip(parts, plan.routes, strict=True):
        a, b = first.held(found.name0), second.held(found.name1)
        kind = (a.spec.name if a else "none", b.spec.name if b else "none")
        entry = by_kind.setdefault(
            kind, {"pairs": 0, "matches": 0, "in": route.target.name, "ratio": route.ratio, "ratio_is": route.why}
        )
        entry["pairs"] += 1
        entry["matches"] += len(found.indices)
        counts.append(len(found.indices))
        i, j = place(first, found.name0)[found.indices[:, 0]], place(second, found.name1)[found.indices[:, 1]]
        unique += min(len(np.unique(i)), len(np.unique(j)))
        rows0.count(found.name0)
        rows1.count(found.name1)
    sides = [rows0] if rows1 is rows0 else [rows0, rows1]
    return {
        "pairs_matched": len(counts),
        "pairs_without_matches": counts.count(0),
        "matches": sum(counts),
        "matches_of_distinct_positions": unique,
        "median_matches": int(np.median(counts)) if counts else 0,
        "rows_never_matched": sum(sum(rows.skipped.values()) for rows in sides),
        "rows_not_finite": sum(sum(rows.not_finite.values()) for rows in sides),
        "by_descriptors": [{"first": a, "second": b, **entry} for (a, b), entry in by_kind.items()],
    }


def _print(mode: str, figures: dict[str, Any]) -> None:
    console.figures(f"matches, mode {mode}", {k: v for k, v in figures.items() if k != "by_descriptors"})
    console.table(
        "by descriptors",
        ("first, second", "pairs", "matches", "matched as", "ratio", "which is"),
        [
            (f"{e['first']}, {e['second']}", e["pairs"], e["matches"], e["in"], str(e["ratio"]), e["ratio_is"])
            for e in figures["by_descriptors"]
        ],
    )
