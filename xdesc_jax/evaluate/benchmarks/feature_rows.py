"""Rows of benchmarks that compare feature files.

In: feature files, a translator, and the kinds of rows asked for. Out: the comparisons; and which descriptors to extract
where no files are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from xdesc_jax.evaluate.homography import Comparison, Mode, comparisons
from xdesc_jax.evaluate.photos import spec_by_name
from xdesc_jax.evaluate.stages.homography import computable
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.translation.translator import Translator


def to_extract(descriptors: Sequence[str], translator: Translator | None, keypoints: str) -> tuple[str, ...]:
    """Those asked for, or all of a model that photos give; ValueError where there are none."""
    names = tuple(descriptors) or (computable(translator.names, keypoints) if translator else ())
    if not names:
        raise ValueError("name --descriptors to extract, or give a --model or --features")
    return names


def planned(stores: Mapping[str, Path], translator: Translator | None, modes: Sequence[Mode]) -> list[Comparison]:
    """All comparisons of these modes that the files and the translator allow; ValueError where there are none.

    Args:
        stores: descriptor -> feature file.
        translator: gives translated and joint rows.
        modes: of the rows.
    """
    specs = {}
    for name, path in stores.items():
        with FeatureStore(path, spec_by_name(name, translator)) as store:
            specs[name] = store.spec
    plan = [comparison for comparison in comparisons(specs, translator) if comparison.mode in modes]
    if not plan:
        raise ValueError(f"no rows of modes {', '.join(modes)} with {', '.join(stores)}; translated ones need --model")
    return plan
