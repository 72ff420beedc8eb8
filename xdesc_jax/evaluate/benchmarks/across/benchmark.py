"""Our own benchmark: a map of any descriptor, and a device that sends any other, in any folder of scenes.

In: homography sequences and posed scenes (see `data`), a translator, descriptors to extract. Out: of each map,
device, way of matching and condition: correct matches and precision, their share of what the weaker side reaches with
itself, repeatability of the keypoints, and the pose error's area under the curve; and for each map and device the best
way. Night and other devices are simulated, and labelled so.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xdesc_jax import console, pretrained
from xdesc_jax.evaluate.benchmarks import run_folder
from xdesc_jax.evaluate.benchmarks.across import data as scene_data
from xdesc_jax.evaluate.benchmarks.across.data import Pair
from xdesc_jax.evaluate.benchmarks.across.matching import by_network, nearest_rows
from xdesc_jax.evaluate.benchmarks.across.plan import OWN, SAME, Case, Keypoints, Way, cases, ways
from xdesc_jax.evaluate.benchmarks.across.scores import COLUMNS, leaders, row_of, score
from xdesc_jax.evaluate.benchmarks.across.simulated import CONDITIONS, Condition, placement, simulated
from xdesc_jax.evaluate.benchmarks.feature_rows import extracted_by_detector, of_network, to_extract
from xdesc_jax.evaluate.benchmarks.hpatches_sequences import photo_size
from xdesc_jax.evaluate.benchmarks.protocol import Benchmark, require
from xdesc_jax.evaluate.benchmarks.results import Result
from xdesc_jax.features.images import read_rgb, write_png
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.files import dry_run
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import config_hash, content_hash, input_hash
from xdesc_jax.matching.learned import LIGHTGLUE
from xdesc_jax.translation.translator import Translator

BENCHMARK = Benchmark(
    "cross",
    "Across descriptors and detectors",
    "any folder of homography sequences (1.png ..., H_1_k) and posed scenes (images/, reference/)",
    "photos of your own; docs/benchmarks.md has the layout",
    "of any size",
    "",
    scene_data.check,
)
VERSION = 2  # of the figures
MAX_ERROR_PX = 1.0  # of an inlier of a relative pose
Stores = Mapping[tuple[Condition, Keypoints], Mapping[str, Path]]


def run(
    *,
    data: Path,
    out: Path,
    model: Path,
    descriptors: tuple[str, ...] = (),
    maps: tuple[str, ...] = (),
    conditions: tuple[Condition, ...] = CONDITIONS,
    matchers: tuple[Way, ...] = ("native", "translated", "joint", "naive"),
    max_keypoints: int = 2000,
    pairs_a_scene: int = scene_data.PAIRS_A_SCENE,
    weights: tuple[str, ...] = (),
    seed: int = 0,
    processes: int = 1,
    overwrite: bool = False,
) -> Result:
    """Maps and devices of all descriptors on any folder of scenes: own and shared keypoints, all ways of matching.

    Args:
        data: a folder with homography sequences and posed scenes, at most two levels deep.
        out: folder for result.json, table.md, report.html, the features, and the simulated photos.
        model: translator: a model file, or the name of one that ships with the package.
        descriptors: which ones; by default all of the model's that photos give.
        maps: of which descriptors maps are; by default all.
        conditions: of the device's photos: plain, night, device; the latter two are simulated.
        matchers: native, translated, joint, naive (rows of one width as they are), lightglue (on rows of ALIKED and
            DISK; needs the extra 'learned').
        max_keypoints: the strongest that are kept of what a detector finds.
        pairs_a_scene: the most pairs of a posed scene.
        weights: NAME=FILE weight files of networks that are neither shipped nor installed.
        seed: of RANSAC.
        processes: processes that extract.
        overwrite: measure again even if the result is there.

    Returns:
        The result, which is also in OUT.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: the folder holds no scene, or an incomplete one; no descriptor is named.
        FileExistsError: OUT holds a result of other settings.
        InUse: another process works in OUT.
    """
    found = require(BENCHMARK, data)
    named, model = model, pretrained.resolve(model)
    translator = Translator.load(model)
    names = to_extract(descriptors, translator, "colmap")
    pairs = scene_data.read(found.root, pairs_a_scene)
    with dry_run.step(out / run_folder.RESULT):
        stores = extracted(found.root, pairs, out, names, conditions, max_keypoints, weights, processes, overwrite)
    plan = cases(names, maps or names, conditions, ways(matchers, translator, names), translator)
    with console.status("reading the inputs"):
        hashes = {str(key): {n: input_hash(path) for n, path in held.items()} for key, held in stores.items()}
        config = [BENCHMARK.name, VERSION, found.fingerprint, hashes, content_hash(model), pairs_a_scene, seed]
        expected = config_hash([*config, [str(case) for case in plan]])
    given: dict[str, Any] = {"model": named, "descriptors": names, "maps": maps, "conditions": conditions}
    given |= {"matchers": matchers, "max_keypoints": max_keypoints, "pairs_a_scene": pairs_a_scene, "weights": weights}
    given |= {"seed": seed}
    told = {"data": found.told, "pairs": len(pairs), "rows": len(plan), **given}

    def measure(kept: Journal) -> Result:
        names_of_photos = {name for pair in pairs for name in (pair.known, pair.device)}
        sizes = {name: photo_size(found.root / name) for name in names_of_photos}
        figures: dict[Case, Mapping[str, Any]] = {}
        for case in console.track(plan, "matching", "rows"):
            make = functools.partial(measured, case, pairs, sizes, stores, model, translator, out, weights, seed)
            figures[case] = kept.recall(str(case), make)
        rows = [row_of(case, figures) for case in plan]
        return Result.of(BENCHMARK, found, given, COLUMNS, rows)

    return run_folder.carry_out(BENCHMARK, out, expected, overwrite, measure, _page, told=told, stage=run)


def extracted(
    root: Path, pairs: Sequence[Pair], out: Path, names: Sequence[str], conditions: Sequence[Condition],
    max_keypoints: int, weights: tuple[str, ...], processes: int, overwrite: bool,
) -> dict[tuple[Condition, Keypoints], dict[str, Path]]:  # fmt: skip
    """Feature files by condition and keypoints: each detector's own, and of the photos as they are shared ones."""
    from xdesc_jax.evaluate.stages.homography import extracted_stores

    stores: dict[tuple[Condition, Keypoints], dict[str, Path]] = {}
    own = tuple(word for word in weights if word not in of_matchers(weights))
    how: dict[str, Any] = {"max_keypoints": max_keypoints, "weights": own, "processes": processes}
    asked: tuple[Condition, ...] = ("plain", *(c for c in conditions if c != "plain"))
    for condition in asked:
        photos = root if condition == "plain" else _rendered(root, pairs, out / "photos" / condition, condition)
        stores[condition, OWN] = extracted_by_detector(
            photos, out / "features" / condition, names, keypoints="colmap", overwrite=overwrite, **how
        )
    if any(of_network(name) for name in names):  # else they are those of the detector that all have
        stores["plain", SAME] = extracted_stores(
            root, out / "features" / "shared", names, keypoints="colmap", overwrite=overwrite, **how
        )
    return stores


def of_matchers(weights: Sequence[str]) -> tuple[str, ...]:
    """Those NAME=FILE words that name weights of LightGlue, and not of a descriptor."""
    return tuple(word for word in weights if word.startswith(f"{LIGHTGLUE}-"))


def _rendered(root: Path, pairs: Sequence[Pair], folder: Path, condition: Condition) -> Path:
    """The device's photos as they would be under a condition; those that are there stay."""
    names = sorted({pair.device for pair in pairs})
    left = [name for name in names if not _simulated_name(folder, name).exists()]
    for name in console.track(left, f"simulating {condition}", "photos"):
        write_png(_simulated_name(folder, name), simulated(read_rgb(root / name), condition, name))
    return folder


def _simulated_name(folder: Path, name: str) -> Path:
    """Where the simulated photo lies: named as the photo, .png behind it."""
    return folder / f"{name}.png"


def measured(
    case: Case,
    pairs: Sequence[Pair],
    sizes: Mapping[str, tuple[int, int]],
    stores: Stores,
    model: Path,
    translator: Translator,
    out: Path,
    weights: tuple[str, ...],
    seed: int,
) -> dict[str, list[dict[str, Any]]]:
    """Figures of all pairs of one row, by scene."""
    known = stores["plain", case.keypoints][case.known]
    device = stores[case.condition, case.keypoints][case.device]
    found: dict[str, list[dict[str, Any]]] = {}
    suffix = "" if case.condition == "plain" else ".png"
    with FeatureStore(known) as first, FeatureStore(device) as second:
        if case.way == LIGHTGLUE:
            matches = by_network(case, pairs, known, device, suffix, model, out / "matches", of_matchers(weights))
        else:
            matches = nearest_rows(case, pairs, known, device, suffix, translator)
        for pair, rows in matches:
            size = sizes[pair.device]
            seen = placement(size, case.condition, pair.device).to_photo(second.keypoints(pair.device + suffix))
            figures = score(pair, first.keypoints(pair.known), seen, sizes[pair.known], size, rows, MAX_ERROR_PX, seed)
            found.setdefault(pair.scene, []).append(figures)
    return found


def _page(result: Result) -> run_folder.Page:
    from xdesc_jax.reports.parts import Section, Table

    best = leaders(result.rows)
    head = ("map", "device", "keypoints", "condition", "best way", "correct", "of the weaker side [%]")
    table = Table(head, [list(line) for line in best])
    plain = [line for line in best if line[0] != line[1] and line[3] == "plain" and line[2] == OWN]
    sentence = "There is one descriptor alone."
    if plain:
        top = max(plain, key=lambda line: line[6] if line[6] is not None else -1)
        sentence = f"A map of {top[0]} serves {top[1]} best ({top[4]}): {top[5]:.0f} correct matches a pair."
    told = "For each map and device the way with the most correct matches; conditions but 'plain' are simulated."
    return sentence, [Section("Leaders", [table], told)]
