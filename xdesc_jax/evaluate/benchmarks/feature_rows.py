"""Rows of benchmarks that compare feature files.

In: feature files or what to extract, a translator, and the kinds of rows asked for. Out: a feature file of each
descriptor, and the comparisons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from xdesc_jax import console
from xdesc_jax.descriptors import get_entry, registered
from xdesc_jax.evaluate.benchmarks import run_folder
from xdesc_jax.evaluate.homography import Comparison, Mode, comparisons
from xdesc_jax.evaluate.photos import spec_by_name
from xdesc_jax.evaluate.stages.homography import given_stores, to_extract
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.files import dry_run
from xdesc_jax.translation.translator import Translator


def stores_of(
    features: Sequence[Path],
    descriptors: Sequence[str],
    translator: Translator | None,
    keypoints: str,
    out: Path,
    extract: Callable[[Sequence[str]], dict[str, Path]],
) -> dict[str, Path]:
    """Descriptor -> feature file: those given, or else what is extracted.

    Args:
        features: feature files, or folders of them.
        descriptors: which ones; all that there are, or that the translator has, where empty.
        translator: whose descriptors they are.
        keypoints: that are extracted.
        out: the run's folder, of whose result extraction is a step.
        extract: makes the files of some descriptors.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no descriptor is named, or no file has one of them.
    """
    if features:
        return given_stores(features, descriptors, translator)
    names = to_extract(descriptors, translator, keypoints)
    with dry_run.step(out / run_folder.RESULT):
        return extract(names)


def from_worst(
    stores: Mapping[str, Path], descriptors: Sequence[str], translator: Translator | None
) -> dict[str, Path]:
    """Feature files in the order of their descriptors from the worst to the best.

    Args:
        stores: descriptor -> feature file.
        descriptors: the order, where it is asked for; else it is the model's (`Translator.order`).
        translator: where it does not say how good a descriptor is, the files stay as they are, which is told.
    """
    if descriptors or translator is None or len(stores) < 2:
        return dict(stores)
    try:
        order = translator.order()
    except ValueError:  # it was not validated
        order = ()
    if lacking := [name for name in stores if name not in order]:
        console.warn(
            f"the model does not say how good {', '.join(lacking)} are: they are taken from the worst to the best as "
            f"{', '.join(stores)}; name them by --descriptors in their order"
        )
        return dict(stores)
    return {name: stores[name] for name in order if name in stores}


def of_network(name: str) -> bool:
    """Whether a network finds the descriptor's keypoints."""
    return name in registered() and get_entry(name).source == "network"


def extracted_by_detector(
    photos: Path,
    out: Path,
    descriptors: Sequence[str],
    *,
    keypoints: str,
    max_keypoints: int,
    weights: tuple[str, ...],
    processes: int,
    overwrite: bool,
) -> dict[str, Path]:
    """Descriptor -> feature file: those of networks at keypoints of their own, the others all at the same."""
    from xdesc_jax.features.extract import extract

    groups: dict[str, tuple[tuple[str, ...], str]] = {n: ((n,), n) for n in descriptors if of_network(n)}
    if others := tuple(name for name in descriptors if not of_network(name)):
        groups["same"] = (others, keypoints)
    for folder, (names, detector) in groups.items():
        own = tuple(text for text in weights if text.partition("=")[0] in (*names, detector))
        with console.inner():
            extract(
                photos, out / folder, descriptors=names, keypoints=detector, max_keypoints=max_keypoints, weights=own,
                processes=processes, overwrite=overwrite, strict=True,
            )  # fmt: skip
    return given_stores([out / folder for folder in groups], descriptors)


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
