"""The joint space seen: the paper's t-SNE figure, and how well one patch's embeddings find each other.

In: photos, or feature files of them at the same keypoints, and translators trained with and without the matching loss.
Out: embeddings of the same patches from all descriptors: the share of patches whose nearest neighbour among another
descriptor's embeddings is themselves, and a plane in which t-SNE lays out all (van der Maaten and Hinton, JMLR 2008).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.console.words import counted
from xdesc_jax.evaluate.benchmarks import run_folder
from xdesc_jax.evaluate.benchmarks.feature_rows import stores_of
from xdesc_jax.evaluate.benchmarks.protocol import Benchmark, Checked, fingerprint, require
from xdesc_jax.evaluate.benchmarks.results import Column, Result, Row
from xdesc_jax.evaluate.stages.homography import extracted_stores
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import config_hash, content_hash, input_hash
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.nearest import nearest2
from xdesc_jax.matching.routes import Rows
from xdesc_jax.translation.translator import EMBEDDING, Translator

VERSION = 1  # of the figures
PERPLEXITY = 30.0
COLUMNS = (
    Column("same patch", "% of patches"), Column("of the worst pair", "%"), Column("of the best pair", "%"),
    Column("in the plane", "%"),
)  # fmt: skip


def check(root: Path) -> Checked:
    """What a folder of photos holds (see `protocol.Checked`)."""
    from xdesc_jax.features.images import list_photos

    names = list_photos(root)
    other = ("photos of one's own, where the paper takes patches that it trained on",)
    return Checked(root, counted(len(names), "photo"), (), other, fingerprint([root / name for name in names], root))


BENCHMARK = Benchmark(
    "joint-space",
    "t-SNE of the joint space",
    "a folder of photos, such as those that were trained on",
    "https://github.com/filipradenovic/revisitop (distractors, of which the paper trains on 3190)",
    "any",
    "Figure 't-SNE visualization of the joint space'",
    check,
)


def run(
    *,
    data: Path,
    out: Path,
    model: Path,
    without: Path | None = None,
    features: tuple[Path, ...] = (),
    descriptors: tuple[str, ...] = (),
    patches: int = 512,
    plotted: int = 128,
    seed: int = 0,
    keypoints: str = "opencv",
    max_keypoints: int = 500,
    weights: tuple[str, ...] = (),
    processes: int = 1,
    overwrite: bool = False,
) -> Result:
    """The joint space: how well one patch's embeddings find each other, and a picture of it by t-SNE.

    Args:
        data: folder of photos.
        out: folder for result.json, table.md, report.html and, where they are extracted, the features.
        model: translator: a model file, or the name of one that ships with the package.
        without: the same trained without matching loss, to compare.
        features: feature files of the photos, or folders of them, all at the same keypoints; extracted where none are
            given.
        descriptors: which ones; by default all of the feature files, or all of the model's that photos give.
        patches: drawn at random from all photos.
        plotted: of these, for each descriptor.
        seed: of the draw and of t-SNE.
        keypoints: 'opencv', 'colmap', or a file that holds them, where features are extracted.
        max_keypoints: of a photo: the strongest that are kept of what a detector finds.
        weights: NAME=FILE weight files of learned descriptors that are neither shipped nor installed.
        processes: processes that extract.
        overwrite: measure again even if the result is there.

    Returns:
        The result, which is also in OUT: a row a model.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: too few patches, a descriptor that a model lacks, or feature files of other keypoints.
        FileExistsError: OUT holds a result of other settings.
        InUse: another process works in OUT.
    """
    found = require(BENCHMARK, data)
    given: dict[str, Any] = {"model": model, "without": without, "features": features}
    models = {"with matching loss": pretrained.resolve(model)}
    if without is not None:
        models["without matching loss"] = pretrained.resolve(without)
    translators = {name: Translator.load(path) for name, path in models.items()}
    first = next(iter(translators.values()))

    def extract(names: Sequence[str]) -> dict[str, Path]:
        return extracted_stores(
            found.root, out / "features", names, keypoints=keypoints,
            max_keypoints=max_keypoints, weights=weights, processes=processes, overwrite=overwrite,
        )  # fmt: skip

    stores = stores_of(features, descriptors, first, keypoints, out, extract)
    if len(stores) < 2 or not 2 <= plotted <= patches:
        raise ValueError(
            f"{len(stores)} descriptors, {plotted} of {patches} patches plotted: expected at least 2 of each"
        )
    for name, translator in translators.items():
        if lacking := [d for d in stores if d not in translator.names]:
            raise ValueError(f"{models[name]}: has no {', '.join(lacking)} (it has {translator.describe()})")
        if translator.space_id is None:
            raise ValueError(f"{models[name]}: has no joint space: it is of pair networks")
    with console.status("reading the inputs"):
        hashes = {name: input_hash(path) for name, path in stores.items()}
        held = {name: content_hash(path) for name, path in models.items()}
        expected = config_hash([BENCHMARK.name, VERSION, found.fingerprint, hashes, held, patches, plotted, seed])
    given |= {"descriptors": list(stores), "patches": patches, "plotted": plotted, "seed": seed}
    given |= {"keypoints": keypoints, "max_keypoints": max_keypoints, "weights": weights}

    def measure(kept: Journal) -> Result:
        chosen = draw(stores, patches, seed)
        rows = []
        for name, translator in translators.items():
            make = functools.partial(_figures, chosen, stores, translator, plotted, seed)
            rows.append(row_of(name, list(stores), kept.recall(name, make)))
        return Result.of(BENCHMARK, found, given, COLUMNS, rows)

    return run_folder.carry_out(
        BENCHMARK, out, expected, overwrite, measure, _page, told={"data": found.told, **given}, stage=run
    )


def draw(stores: Mapping[str, Path], patches: int, seed: int) -> dict[str, np.ndarray]:
    """Photo -> rows of patches drawn from all photos, of which every descriptor has a valid row.

    Raises:
        ValueError: feature files of other keypoints, or fewer patches than asked for.
    """
    usable: dict[str, np.ndarray] = {}
    for path in stores.values():
        with FeatureStore(path) as store:
            for name, photo in store:
                valid = usable.setdefault(name, photo.valid)
                if len(valid) != len(photo.valid):
                    raise ValueError(f"{path}: {name!r} has {len(photo.valid)} keypoints, another file {len(valid)}")
                usable[name] = valid & photo.valid
    places = [(name, row) for name in sorted(usable) for row in np.flatnonzero(usable[name])]
    if len(places) < patches:
        raise ValueError(f"the photos have {len(places)} patches, of which {patches} are asked for")
    found: dict[str, list[int]] = {}
    for place in np.sort(np.random.default_rng(seed).choice(len(places), patches, replace=False)):
        name, row = places[place]
        found.setdefault(name, []).append(int(row))
    return {name: np.array(rows) for name, rows in found.items()}


def embeddings(chosen: Mapping[str, np.ndarray], path: Path, translator: Translator) -> np.ndarray:
    """[patches, E] embeddings of the chosen rows of a feature file."""
    with FeatureSet([path], model=translator) as features:
        rows = Rows(features, translator)
        return np.concatenate([rows(name, translator.spec(EMBEDDING))[of] for name, of in chosen.items()])


def same_patch(a: np.ndarray, b: np.ndarray) -> float:
    """Share of rows [N, E] whose nearest row of b [N, E] is that of the same place."""
    return float(np.mean(nearest2(a, b).index == np.arange(len(a))))


def _figures(
    chosen: Mapping[str, np.ndarray], stores: Mapping[str, Path], translator: Translator, plotted: int, seed: int
) -> dict[str, Any]:  # fmt: skip
    """'pairs' [D, D] shares of one pair of descriptors each; 'plane' [D, plotted, 2]."""
    found = [embeddings(chosen, path, translator) for path in stores.values()]
    pairs = np.array([[same_patch(a, b) for b in found] for a in found])
    few = np.random.default_rng(seed).permutation(len(found[0]))[:plotted]
    return {"pairs": pairs, "plane": plane(np.array([one[few] for one in found]), seed)}


def plane(found: np.ndarray, seed: int) -> np.ndarray:
    """[D, P, E] embeddings of P patches of D descriptors -> [D, P, 2] by t-SNE of all of them together."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # which scikit-learn comes with

    points = found.reshape(-1, found.shape[-1]).astype(np.float64)
    perplexity = min(PERPLEXITY, (len(points) - 1) / 3)
    with threadpool_limits(1):  # of so few points, threads wait for each other
        laid = TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(points)
    return np.asarray(laid, np.float32).reshape(*found.shape[:2], 2)


def row_of(name: str, descriptors: Sequence[str], figures: Mapping[str, np.ndarray]) -> Row:
    """A row of the table (see `_figures`); means and extremes are over pairs of two different descriptors."""
    two = list(itertools.permutations(range(len(descriptors)), 2))
    shares = [100 * float(figures["pairs"][i, j]) for i, j in two]
    laid = np.asarray(figures["plane"], np.float32)
    values: dict[str, float | None] = {"same patch": float(np.mean(shares)), "of the worst pair": min(shares)}
    values |= {"of the best pair": max(shares)}
    values |= {"in the plane": 100 * float(np.mean([same_patch(laid[i], laid[j]) for i, j in two]))}
    pairs = {f"{descriptors[i]} | {descriptors[j]}": share for (i, j), share in zip(two, shares, strict=True)}
    detail = {"pairs": pairs, "plane": {d: one.tolist() for d, one in zip(descriptors, laid, strict=True)}}
    return Row(name, values, "joint", "", detail)


def _page(result: Result) -> run_folder.Page:
    from xdesc_jax.evaluate.benchmarks.drawing import planes
    from xdesc_jax.reports.chart import chart
    from xdesc_jax.reports.parts import Section

    best = result.rows[0]
    sentence = f"{best.values['same patch']:.1f} % of patches are nearest to themselves in another descriptor."
    drawn = chart(
        planes, result.rows, title="The joint space, laid out by t-SNE",
        caption="a mark an embedding, a colour a descriptor; where the space is joint, all of a patch lie together",
    )  # fmt: skip
    return sentence, [Section("Joint space", [drawn])]
