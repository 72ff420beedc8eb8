"""Matches of the benchmark across descriptors: nearest neighbours, or a network.

In: a case, pairs, and the feature files of map and device. Out: each pair with the rows that match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax import console
from xdesc_jax.descriptors import from_stored
from xdesc_jax.evaluate.benchmarks.across.data import Pair
from xdesc_jax.evaluate.benchmarks.across.plan import Case
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.files.whole import atomic
from xdesc_jax.matching import nearest
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.match import match
from xdesc_jax.matching.matches import MatchFile
from xdesc_jax.matching.routes import Rows
from xdesc_jax.translation.translator import Translator

RATIO = 0.9  # where none is calibrated


def nearest_rows(
    case: Case, pairs: Sequence[Pair], known: Path, device: Path, suffix: str, translator: Translator
) -> Iterator[tuple[Pair, np.ndarray]]:
    """Mutual nearest neighbours at the calibrated ratio, int [M, 2] a pair.

    Args:
        case: what is matched, and how.
        pairs: the photos.
        known, device: feature files of the map and of the device.
        suffix: behind the names of the device's photos in its file.
        translator: for all ways but 'native' and 'naive'.
    """
    if case.way in ("native", "naive"):
        with FeatureStore(known) as first, FeatureStore(device) as second:
            for pair in pairs:
                a, b = (_own_rows(s, n) for s, n in ((first, pair.known), (second, pair.device + suffix)))
                yield pair, nearest.match(a, b, ratio=RATIO).indices
        return
    joint = case.way == "joint"
    target = translator.embedding_spec if joint else translator.spec(case.device)
    assert target is not None
    ratio = translator.ratio(case.known, case.device, joint=joint) or RATIO
    with FeatureSet([known], model=translator) as first, FeatureSet([device], model=translator) as second:
        rows, others = Rows(first, translator), Rows(second, translator if joint else None)
        for pair in pairs:
            a, b = rows(pair.known, target), others(pair.device + suffix, target)
            yield pair, nearest.match(a, b, binary=target.binary, ratio=ratio).indices


def by_network(
    case: Case,
    pairs: Sequence[Pair],
    known: Path,
    device: Path,
    suffix: str,
    model: Path,
    folder: Path,
    weights: tuple[str, ...],
) -> Iterator[tuple[Pair, np.ndarray]]:
    """What LightGlue matches, on rows translated to the device's descriptor or native ones; arguments as before.

    Args:
        model: file of the translator.
        folder: for the match file and its list of pairs.
        weights: NAME=FILE of the network, where they are not installed.
    """
    name = f"{case.condition} {case.keypoints} {case.known} {case.device}"
    listed, out = folder / f"{name}.txt", folder / f"{name}.h5"
    folder.mkdir(parents=True, exist_ok=True)
    with atomic(listed) as temporary:
        lines = dict.fromkeys(f"{pair.known} {pair.device}{suffix}\n" for pair in pairs)
        temporary.write_text("".join(lines), encoding="utf-8")
    native = case.known == case.device
    with console.inner():
        match(
            (known,), out, pairs=str(listed), other=(device,), mode="native" if native else "directional",
            model=None if native else model, target=None if native else case.device, 
            matcher="lightglue", weights=weights, overwrite=True,
        )  # fmt: skip
    with FeatureStore(known) as first, MatchFile(out, first.names) as matches:
        for pair in pairs:
            yield pair, matches.indices(pair.known, pair.device + suffix)


def _own_rows(store: FeatureStore, name: str) -> np.ndarray:
    """All rows of a photo in canonical form, those that are not valid zero; bits as -1 and 1 to the same length."""
    photo = store.read(name)
    rows = from_stored(photo.usable_rows(), store.spec, f"{store.path}: {name!r}")
    if not store.spec.binary:
        return rows
    signs = np.where(rows, np.float32(1), np.float32(-1)) / np.float32(np.sqrt(store.spec.width))
    return np.where(photo.valid[:, None], signs, np.float32(0))
