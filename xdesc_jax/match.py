"""The stage `xdesc match`: feature files -> a match file.

In: one feature file, or two of the same descriptor, and a list of photo pairs. Out: mutual nearest neighbours
of each pair in hloc's layout (see `match_file`). All names are looked up before any work. Runs on the base
install.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from xdesc_jax import console
from xdesc_jax.descriptors import from_stored, get_spec
from xdesc_jax.files import already_done, config_hash, content_hash, write_json
from xdesc_jax.match_file import MatchWriter, check_names
from xdesc_jax.matching import match as match_rows
from xdesc_jax.ratios import choose
from xdesc_jax.store import FeatureStore, found_hash

EXHAUSTIVE = "exhaustive"
PHOTOS_KEPT = 32  # of each feature file, so that a photo of many pairs is read once
SHOWN = 5

Pair = tuple[str, str]


def match(
    features: Path,
    out: Path,
    *,
    pairs: str,
    other: Path | None = None,
    ratio: float | Literal["auto"] | None = "auto",
    descriptor: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Feature files -> match file.

    Args:
        features: feature file of the first photo of each pair.
        out: match file (.h5) to write.
        pairs: text file with two photo names a line, or 'exhaustive' for all pairs.
        other: feature file of the second photos, if not the same.
        ratio: largest first-to-second distance ratio, on the L2 scale; 'None' for mutual neighbours alone;
            'auto' for the one calibrated for how the rows were translated, 0.9 where none is known.
        descriptor: what the files hold, where they do not say (hloc's).
        overwrite: replace a result made with other settings.

    Returns:
        `out`; a summary lies beside it as `<out>.json`.

    Raises:
        ValueError: files of different descriptors or spaces, names that a file lacks, or `out` is an input.
        FileExistsError: `out` was made with other settings and `overwrite` is off.
    """
    features, out, second = Path(features), Path(out), Path(other or features)
    summary = out.with_name(out.name + ".json")
    _check_out(out, [features, second] + ([] if pairs == EXHAUSTIVE else [Path(pairs)]))
    spec = get_spec(descriptor) if descriptor else None
    with FeatureStore(features, spec) as store0, FeatureStore(second, spec) as store1:
        _check_specs(store0, store1)
        used, why = choose(store0, store1) if ratio == "auto" else (ratio, "given")
        chosen, counts = _choose(pairs, store0, store1)
        config = {
            "stage": "match",
            "features": content_hash(features),
            "other": content_hash(second),
            "pairs": config_hash(chosen),
            "ratio": used,
        }
        expected = config_hash(config)
        if already_done(out, found_hash(out), expected, overwrite) and summary.exists():
            console.out.print(f"{out} is up to date", markup=False)
            return out
        console.settings(
            f"xdesc match -> {out}",
            {
                "features": features,
                "other": second,
                "descriptor": store0.spec.name,
                "ratio": f"{used} ({why})",
                **counts,
            },
        )
        attributes = {"config_hash": expected, "spec": store0.spec.name, "ratio": used or 0.0}
        figures = _match_pairs(chosen, store0, store1, used, MatchWriter(out, attributes))
    figures = {**counts, **figures}
    write_json(summary, {"config": config, "config_hash": expected, "ratio_is": why, **figures})
    console.table(
        f"matches of {store0.spec.name}",
        ("", "value"),
        [(k.replace("_", " "), v) for k, v in figures.items()],
    )
    return out


def _check_out(out: Path, inputs: list[Path]) -> None:
    if out.resolve() in [path.resolve() for path in inputs]:
        raise ValueError(f"{out}: is the input itself")


def _check_specs(store0: FeatureStore, store1: FeatureStore) -> None:
    a, b = store0.spec, store1.spec
    if (a.name, a.width, a.kind) != (b.name, b.width, b.kind):
        raise ValueError(
            f"{store0.path} holds {a.name!r} ({a.kind}, {a.width}) and {store1.path} {b.name!r} ({b.kind}, "
            f"{b.width}): only rows of one descriptor or one joint space match; translate one of them first"
        )


# --- Pairs -----------------------------------------------------------------------------------------------


def _choose(pairs: str, store0: FeatureStore, store1: FeatureStore) -> tuple[list[Pair], dict[str, int]]:
    """The pairs to match, each once in either order and none with itself, and how many were left out."""
    if pairs == EXHAUSTIVE:
        given = list(itertools.product(store0.names, store1.names))
        if store0.path == store1.path:
            given = list(itertools.combinations(store0.names, 2))
    else:
        given = read_pairs(Path(pairs), store0.names, store1.names)
    _check_known([a for a, _ in given], store0)
    _check_known([b for _, b in given], store1)
    chosen, own = _distinct(given, ordered=store0.path != store1.path)
    check_names(dict.fromkeys(name for pair in chosen for name in pair))
    counts = {"pairs_given": len(given), "self_pairs": own, "duplicates": len(given) - own - len(chosen)}
    return chosen, counts


def read_pairs(path: Path, names0: Sequence[str], names1: Sequence[str]) -> list[Pair]:
    """Reads two photo names a line, separated by a tab or blanks.

    Names with blanks are told apart by the names that exist; where that leaves a choice, a tab decides.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line that does not hold two names, no line at all, or not UTF-8.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such pair list (or {EXHAUSTIVE!r} for all pairs)")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error})") from error
    known0, known1 = set(names0), set(names1)
    found: list[Pair] = []
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip(" \r\n")
        if not line.strip():
            continue
        words = line.split("\t") if "\t" in line else line.split()
        splits = [(words[0], words[1])] if len(words) == 2 else []
        if "\t" not in line and len(words) > 2:
            blanks = [i for i, c in enumerate(line) if c == " "]
            splits = [(line[:i].rstrip(), line[i:].lstrip()) for i in blanks]
            splits = list(dict.fromkeys(s for s in splits if s[0] in known0 and s[1] in known1))
        if len(splits) != 1:
            raise ValueError(f"{path}:{number}: expected two photo names (a tab between names with blanks): {line!r}")
        found.append(splits[0])
    if not found:
        raise ValueError(f"{path}: holds no pair")
    return found


def _check_known(names: list[str], store: FeatureStore) -> None:
    known = set(store.names)
    missing = [name for name in dict.fromkeys(names) if name not in known]
    if missing:
        raise ValueError(
            f"{store.path} lacks {len(missing)} of the photos to match, first {missing[:SHOWN]}; "
            f"it has {len(known)}, first {store.names[:SHOWN]}"
        )


def _distinct(pairs: list[Pair], ordered: bool) -> tuple[list[Pair], int]:
    """Pairs without repeats in either order and without self pairs, and the number of self pairs.

    Within one file the names of a pair are put in order; with two, the first name is of the first file.
    """
    chosen: dict[Pair, Pair] = {}
    own = 0
    for a, b in pairs:
        key = (a, b) if a <= b else (b, a)
        if a == b:
            own += 1
        else:
            chosen.setdefault(key, (a, b) if ordered else key)
    return list(chosen.values()), own


# --- Matching --------------------------------------------------------------------------------------------


def _match_pairs(
    pairs: list[Pair], store0: FeatureStore, store1: FeatureStore, ratio: float | None, writer: MatchWriter
) -> dict[str, int]:
    """Matches and writes every pair; returns counts for the summary."""
    binary = store0.spec.binary
    rows0, rows1 = _reader(store0), _reader(store1)
    counts: list[int] = []
    skipped: dict[tuple[int, str], int] = {}
    with writer:
        for a, b in console.track(pairs, "match", "pair"):
            x, y = rows0(a), rows1(b)
            found = match_rows(x, y, binary=binary, ratio=ratio)
            writer.write(a, b, len(x), found.indices, found.scores)
            counts.append(len(found.indices))
            skipped[0, a], skipped[int(store0.path != store1.path), b] = found.skipped
    return {
        "pairs_matched": len(counts),
        "pairs_without_matches": counts.count(0),
        "matches": sum(counts),
        "median_matches": int(np.median(counts)) if counts else 0,
        "rows_never_matched": sum(skipped.values()),
    }


def _reader(store: FeatureStore) -> Callable[[str], np.ndarray]:
    """Rows of a photo as matching takes them; what is not valid or not finite is zero."""

    @functools.lru_cache(maxsize=PHOTOS_KEPT)
    def read(name: str) -> np.ndarray:
        photo = store.read(name)
        usable = photo.valid
        if not store.spec.binary:
            usable = usable & np.isfinite(photo.descriptors).all(axis=1)
        rows = np.where(usable[:, None], photo.descriptors, 0)
        return rows if store.spec.binary else from_stored(rows, store.spec, f"{store.path}: {name!r}")

    return read
