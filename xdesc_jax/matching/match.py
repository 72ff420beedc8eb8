"""The stage `xdesc match`: features -> matches.

In: feature files and COLMAP databases, whose photos may hold different descriptors, and which photos to match.
Out: mutual nearest neighbours of each pair, or what a network matches (see `learned`), as a match file in hloc's layout
(see `matches`) or in a copy of the database. How the rows of two photos are made comparable is the mode's choice (see
`routes`). All names and routes are looked up before any work. Matches are kept in parts until all are there, so a run
that was stopped goes on. Runs on the base install.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from xdesc_jax import console, pretrained
from xdesc_jax.colmap.database import DatabaseReader, is_database
from xdesc_jax.colmap.database_writer import DatabaseWriter
from xdesc_jax.features.keypoints import check_nms
from xdesc_jax.features.weights import parse_weights
from xdesc_jax.files import dry_run
from xdesc_jax.files.changes import changes
from xdesc_jax.files.claim import beside, claimed
from xdesc_jax.files.hdf5 import found_attribute
from xdesc_jax.files.whole import already_done, config_hash, content_hash, write_json
from xdesc_jax.matching import learned
from xdesc_jax.matching.feature_set import FeatureSet, take_only
from xdesc_jax.matching.match_figures import figures_of, tell
from xdesc_jax.matching.match_plan import EXHAUSTIVE, MatchPlan, make_plan
from xdesc_jax.matching.matches import Extent, MatchWriter, refuse_features
from xdesc_jax.matching.named_files import NamedFiles
from xdesc_jax.matching.pair_choice import Choice, choose, parse
from xdesc_jax.matching.pairs import Pairs, read_pairs
from xdesc_jax.matching.parts import MatchParts, PairMatches
from xdesc_jax.matching.retrieval import retrieve
from xdesc_jax.matching.routes import Mode, Route, Router, Rows
from xdesc_jax.translation.ratios import strictest
from xdesc_jax.translation.translator import Translator

NEAREST: Literal["nearest"] = "nearest"
Matcher = Literal["nearest", "lightglue"]
Device = Literal["auto", "cpu", "cuda"]
BACKENDS = {"numpy": "xdesc_jax.matching.nearest", "jax": "xdesc_jax.matching.nearest_jax"}
PAIRS_A_PART = 50  # half a minute of work to a few minutes, which is what a stopped run loses

PairMatcher = Callable[[Rows, Rows, str, str, Route], PairMatches]


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
    matcher: Matcher = NEAREST,
    weights: tuple[str, ...] = (),
    device: Device = "auto",
    min_score: float = 0.0,
    top: int = 20,
    photos: Path | None = None,
    global_features: tuple[Path, ...] = (),
    nms: float = 0.0,
    only: Path | None = None,
    descriptor: tuple[str, ...] = (),
    overwrite: bool = False,
) -> Path:
    """Features -> matches.

    Args:
        features: feature files (.h5) and COLMAP databases; each photo is in one of them. Behind them, `out`.
        out: match file (.h5) to write; or, where `features` is one COLMAP database, a database (.db): a copy with
            these matches instead of those it had.
        pairs: text file with two photo names a line, 'exhaustive' for all pairs, 'sequential:N' for each photo and the
            next N of its folder, 'gps:N' for the N nearest by position, 'retrieval:N' for the N most alike by their
            embeddings (see `xdesc retrieve`), or several with '+': 'sequential:10+retrieval:5' closes the loops of a
            video by the 5 most alike that are more than 10 places away.
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
        backend: of nearest neighbours, 'numpy', or 'jax' for an accelerator.
        matcher: 'nearest' for mutual nearest neighbours, or 'lightglue' for a network, on rows of ALIKED (n16rot, n16,
            n32) and DISK, native or translated to them (--mode directional --target aliked-n16rot). It needs the sizes
            of the photos and the extra 'learned', and takes no ratio.
        weights: weight files of 'lightglue', as NAME=FILE; installed ones (`xdesc weights install lightglue-aliked
            lightglue-disk`) are found without.
        device: on which 'lightglue' computes: 'auto' is CUDA where there is some.
        min_score: of what 'lightglue' finds, 0 to 1; a higher one leaves fewer matches, of which more are right.
        top: photos retrieved for each photo, where pairs are 'retrieval' without a number.
        photos: folder of the photos, of whose EXIF positions are read for 'gps', where no database has pose priors.
        global_features: files of one vector a photo (`global_descriptor`, as hloc writes NetVLAD's), by which
            'retrieval' compares photos in place of embeddings.
        nms: of several keypoints closer than so many px, only that of the highest score is matched, or the first where
            a file has no scores; 0 matches all. Indices of matches remain those of the files.
        only: text file of the photos to match, one name a line; all without. Pairs of others are left out, of a list,
            too, and no rule counts or retrieves them.
        descriptor: what the files hold, where they do not say (hloc's); NAME=FILE for one of several. May be given
            again.
        overwrite: replace a result made with other settings.

    Returns:
        `out`; a summary lies beside it as `<out>.json`.

    Raises:
        ValueError: rows that do not compare, names that a file lacks, or `out` is an input.
        FileExistsError: `out` was made with other settings and `overwrite` is off.
        InUse: another process makes it.
    """
    out, summary = Path(out), Path(out).with_name(Path(out).name + ".json")
    choice = parse(pairs)
    listed = [] if choice is not None or pairs == EXHAUSTIVE else [Path(pairs)]
    check_matcher(matcher, weights, device, min_score, ratio, backend)
    check_nms(nms)
    _check_out(out, [*map(Path, (*features, *other)), *listed])
    into_database = _into_database(out, features, other)
    held = NamedFiles.of(descriptor, [*map(Path, features), *map(Path, other)])
    named, model = model, pretrained.resolve(model) if model is not None else None
    translator = Translator.load(model) if model is not None else None
    _check_choice(choice, photos, global_features)
    by_embeddings: Path | None = None
    if choice is not None and choice.retrieves and not global_features:
        wanted = choice.retrieval or top
        by_embeddings = _retrieved(features, other, out, model, wanted, choice.sequential, only, descriptor, overwrite)
    with (
        FeatureSet(features, held, strict=not other, model=translator) as first,
        FeatureSet(other, held, strict=False, model=translator) if other else contextlib.nullcontext(first) as second,
    ):
        taken = take_only(only, first, second)
        files = {"features": first.paths, "other": second.paths if other else []}
        ratios = strictest(first.ratios, second.ratios)
        network: learned.LearnedMatching | None = None
        router = Router(mode, translator, target=target, order=order or None, ratio=ratio, ratios=ratios)
        rule: str | Pairs = pairs
        if choice is not None:
            names = first.names, second.names
            rule = choose(
                choice, first, second if other else None, photos=photos, global_features=global_features, top=top,
                retrieved=None if by_embeddings is None else partial(read_pairs, by_embeddings, *names),
            )  # fmt: skip
        plan = make_plan(rule, first, second, router, bool(other))
        if matcher != NEAREST:
            network = learned.LearnedMatching(plan, first, second, parse_weights(weights), device, min_score)
            plan = network.plan
        with console.status("reading the inputs"):
            hashes = {"features": first.hashes(), "other": second.hashes() if other else []}
        config: dict[str, Any] = {
            "stage": "match",
            **hashes,
            "pairs": plan.pairs.hash(),
            "mode": mode,
            "model": content_hash(model) if model is not None else None,
            "target": target,
            "order": list(router.order),
            "ratio": ratio,
            "descriptor": held.config([*first.paths, *(second.paths if other else [])]),
        }
        if network is not None:
            config["matcher"] = {matcher: network.config()}
        if nms:
            config["nms"] = nms
        config |= taken
        expected = config_hash(config)
        found = _found_hash(out) if out.exists() else None
        given: dict[str, Any] = {
            **files,
            "model": named,
            "pairs": pairs,
            "mode": mode,
            "target": target,
            "order": order,
        }
        given |= {"ratio": ratio, "top": top, "only": only, "descriptor": descriptor, "backend": backend}
        given |= {"matcher": matcher, "weights": weights, "device": device, "min_score": min_score, "nms": nms}
        given |= {"photos": photos, "global_features": global_features}
        differs = partial(changes, summary, found, config, given, names_kept=["settings"])
        if already_done(out, found, expected, overwrite, beside=[summary], differs=differs):
            console.up_to_date(out)
            return out
        console.settings(f"xdesc match -> {out}", {**given, "pairs to match": len(plan.pairs)}, match)
        rows0 = Rows(first, translator, nms_px=nms)
        rows1 = Rows(second, translator, nms_px=nms) if other else rows0
        with claimed(beside(out), "xdesc match", out), network or contextlib.nullcontext():
            size = PAIRS_A_PART if network is None else learned.PAIRS_A_PART
            parts = MatchParts(out.with_name(f".{out.name}.parts"), f"{expected}, {size} pairs a part")
            match_pair = nearest(backend) if network is None else network.match_pair
            match_pairs(plan, rows0, rows1, match_pair, parts, size)
            writer = _write_database if into_database else _write_file
            writer(out, first, second, parts, expected, config)
            figures = {**plan.counts, **figures_of(plan, parts, first, second, rows0, rows1, nms)}
            for rows in (rows0, rows1) if other else (rows0,):
                for text in rows.findings() + rows.strange():
                    console.warn(text)
            write_json(summary, {"config": config, "config_hash": expected, "settings": given, **figures})
            parts.remove()
    tell(mode, figures)
    console.result(out, figures=summary)
    return out


def _check_out(out: Path, inputs: list[Path]) -> None:
    if out.resolve() in [path.resolve() for path in inputs]:
        raise ValueError(f"{out}: is the input itself")
    if out.suffix == ".h5" and out.is_file():
        refuse_features(out)


def check_matcher(
    matcher: str,
    weights: tuple[str, ...],
    device: str,
    min_score: float = 0.0,
    ratio: float | str | None = "auto",
    backend: str = "numpy",
) -> None:
    """Raises ValueError where settings are of another matcher, or a score that none can have."""
    if matcher == NEAREST:
        if weights or device != "auto" or min_score:
            told = "--weights, --device and --min-score are"
            raise ValueError(f"{told} for --matcher {learned.LIGHTGLUE}, not {matcher}")
        return
    if not 0 <= min_score < 1:
        raise ValueError(f"--min-score is {min_score:g}, expected at least 0 and less than 1")
    if ratio != "auto":
        raise ValueError(f"--ratio {ratio} is for --matcher {NEAREST}; {matcher} decides without one")
    if backend != "numpy":
        raise ValueError(f"--backend {backend} is for --matcher {NEAREST}; {matcher} computes on --device")


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


def _check_choice(choice: Choice | None, photos: Path | None, global_features: tuple[Path, ...]) -> None:
    """Raises ValueError where settings of a rule come without it."""
    if global_features and (choice is None or not choice.retrieves):
        raise ValueError("--global-features are for --pairs retrieval, alone or behind a '+'")
    if photos is not None and (choice is None or not choice.gps):
        raise ValueError(f"--photos {photos}: are for --pairs gps:N, alone or behind a '+'")


def _retrieved(
    features: tuple[Path, ...], other: tuple[Path, ...], out: Path, model: Path | None, top: int, apart: int,
    only: Path | None, descriptor: tuple[str, ...], overwrite: bool,
) -> Path:  # fmt: skip
    path = out.with_name(out.name + ".pairs.txt")
    with dry_run.step(out), console.inner():
        retrieve(
            features, path, database=other, model=model, top=top, apart=apart, only=only,
            descriptor=descriptor, overwrite=overwrite,
        )  # fmt: skip
    return path


def _found_hash(out: Path) -> str | None:
    if out.suffix == ".h5":
        return found_attribute(out, "config_hash")
    with DatabaseReader(out) as reader:
        return reader.attributes.get("config_hash")


# --- Matching --------------------------------------------------------------------------------------------


def nearest(backend: str) -> PairMatcher:
    """Mutual nearest neighbours of two photos, by a name of `BACKENDS`."""
    matcher = importlib.import_module(BACKENDS[backend]).match

    def matched(rows0: Rows, rows1: Rows, a: str, b: str, route: Route) -> PairMatches:
        x, y = rows0(a, route.target), rows1(b, route.target)
        found = matcher(x, y, binary=route.target.binary, ratio=route.ratio)
        return PairMatches(a, b, len(x), found.indices, found.scores)

    return matched


def match_pairs(plan: MatchPlan, rows0: Rows, rows1: Rows, matcher: PairMatcher, parts: MatchParts, size: int) -> None:
    """Matches the pairs that are not in a part of `size` pairs yet, and writes them as parts."""
    starts = range(0, len(plan.pairs), size)
    missing = [start for start in starts if not parts.has(start // size)]
    left = sum(min(size, len(plan.pairs) - start) for start in missing)
    with console.progress_bar("pairs") as bar:
        task = bar.add_task("matching", total=len(plan.pairs), completed=len(plan.pairs) - left)
        for start in missing:
            found = []
            for (a, b), route in plan.part(start, start + size):
                found.append(matcher(rows0, rows1, a, b, route))
                bar.advance(task)
            parts.save(start // size, found)


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
