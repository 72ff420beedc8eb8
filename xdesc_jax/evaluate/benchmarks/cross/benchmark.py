"""Our own benchmark: a map of any descriptor, and a device that sends any other, in any folder of scenes.

In: homography sequences and posed scenes (see `data`), a translator, descriptors to extract. Out: of each map,
device, way of matching and condition: correct matches and precision, their share of what the weaker side reaches with
itself, repeatability of the keypoints, and the pose error's area under the curve; and for each map and device the best
way. Night and other devices are simulated, and labelled so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xdesc_jax import console, pretrained
from xdesc_jax.evaluate.benchmarks import run_folder
from xdesc_jax.evaluate.benchmarks.cross import data as scene_data
from xdesc_jax.evaluate.benchmarks.cross.measuring import Measuring
from xdesc_jax.evaluate.benchmarks.cross.page import page
from xdesc_jax.evaluate.benchmarks.cross.plan import Case, Way, cases, spec_of, ways
from xdesc_jax.evaluate.benchmarks.cross.scores import COLUMNS, row_of
from xdesc_jax.evaluate.benchmarks.cross.simulated import CONDITIONS, Condition
from xdesc_jax.evaluate.benchmarks.cross.stores import extracted, of_matchers
from xdesc_jax.evaluate.benchmarks.protocol import Benchmark, require
from xdesc_jax.evaluate.benchmarks.results import Result
from xdesc_jax.evaluate.relative_ransac import Ransac, estimator
from xdesc_jax.evaluate.stages.homography import to_extract
from xdesc_jax.features.weights import parse_weights
from xdesc_jax.files import dry_run
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import config_hash, content_hash, input_hash
from xdesc_jax.matching.learned import LIGHTGLUE, LearnedMatcher
from xdesc_jax.matching.match import NEAREST, check_matcher
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
VERSION = 3  # of the figures


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
    min_score: float = 0.0,
    ransac: Ransac = "colmap",
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
        min_score: of what LightGlue finds, see `xdesc match`.
        ransac: of posed scenes, whose: colmap, or poselib (the extra 'poselib').
        seed: of RANSAC.
        processes: processes that extract.
        overwrite: measure again even if the result is there.

    Returns:
        The result, which is also in OUT.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: the folder holds no scene, or an incomplete one; no descriptor is named; LightGlue lacks weights.
        FileExistsError: OUT holds a result of other settings.
        InUse: another process works in OUT.
        ModuleNotFoundError: PoseLib is asked for and not installed.
    """
    estimate = estimator(ransac)
    found = require(BENCHMARK, data)
    named, model = model, pretrained.resolve(model)
    translator = Translator.load(model)
    names = to_extract(descriptors, translator, "colmap")
    plan = cases(names, maps or names, conditions, ways(matchers, translator, names), translator)
    network = matcher_of(plan, translator, weights, min_score)
    pairs = scene_data.read(found.root, pairs_a_scene)
    with dry_run.step(out / run_folder.RESULT):
        stores = extracted(found.root, pairs, out, names, conditions, max_keypoints, weights, processes, overwrite)
    with console.status("reading the inputs"):
        hashes = {str(key): {n: input_hash(path) for n, path in held.items()} for key, held in stores.items()}
        config: list[Any] = [BENCHMARK.name, VERSION, found.fingerprint, hashes, content_hash(model), pairs_a_scene]
        config += [seed, ransac, network and network.config()]
        expected = config_hash([*config, [str(case) for case in plan]])
    given: dict[str, Any] = {"model": named, "descriptors": names, "maps": maps, "conditions": conditions}
    given |= {"matchers": matchers, "max_keypoints": max_keypoints, "pairs_a_scene": pairs_a_scene, "weights": weights}
    given |= {"ransac": ransac, "seed": seed, "min_score": min_score}
    told = {"data": found.told, "pairs": len(pairs), "rows": len(plan), **given}

    def measure(kept: Journal) -> Result:
        with network or contextlib.nullcontext():
            measuring = Measuring(found.root, stores, translator, network, estimate, seed)
            figures = measuring.all_figures(plan, pairs, kept)
        return Result.of(BENCHMARK, found, given, COLUMNS, [row_of(case, figures) for case in plan])

    return run_folder.carry_out(BENCHMARK, out, expected, overwrite, measure, page, told=told, stage=run)


def matcher_of(
    plan: Sequence[Case], translator: Translator, weights: Sequence[str], min_score: float = 0.0
) -> LearnedMatcher | None:
    """LightGlue for all rows of a plan that it matches; None where there are none.

    Raises:
        FileNotFoundError, ValueError: as `LearnedMatcher`, before anything is computed.
    """
    targets = dict.fromkeys(case.device for case in plan if case.way == LIGHTGLUE)
    check_matcher(LIGHTGLUE if targets else NEAREST, (), "auto", min_score)
    if not targets:
        return None
    specs = [spec_of(name, translator) for name in targets]
    return LearnedMatcher(specs, parse_weights(of_matchers(weights)), "auto", min_score)
