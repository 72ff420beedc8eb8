"""Matches of the benchmark across descriptors: nearest neighbours, or a network.

In: a case, pairs, and the feature files of map and device. Out: each pair with the rows that match.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax import console
from xdesc_jax.evaluate.benchmarks.across.data import Pair
from xdesc_jax.evaluate.benchmarks.across.plan import Case
from xdesc_jax.evaluate.divided import write_lines
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.matching import nearest
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.match import match
from xdesc_jax.matching.matches import MatchFile
from xdesc_jax.matching.routes import Rows
from xdesc_jax.translation.ratios import DEFAULT
from xdesc_jax.translation.translator import Translator


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
    joint, ratio = case.way == "joint", DEFAULT
    if case.way in ("native", "naive"):
        with FeatureStore(known) as first_store, FeatureStore(device) as second_store:
            targets = (first_store.spec, second_store.spec)
    else:
        target = translator.embedding_spec if joint else translator.spec(case.device)
        assert target is not None
        targets = (target, target)
        ratio = translator.ratio(case.known, case.device, joint=joint) or DEFAULT
    with FeatureSet([known], model=translator) as first, FeatureSet([device], model=translator) as second:
        rows, others = Rows(first, translator), Rows(second, translator if joint else None)
        for pair in pairs:
            a, b = rows(pair.known, targets[0]), others(pair.device + suffix, targets[1])
            yield pair, nearest.match(a, b, binary=targets[0].binary, ratio=ratio).indices


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
    write_lines(listed, list(dict.fromkeys(f"{pair.known} {pair.device}{suffix}" for pair in pairs)))
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
