"""Relative poses of photo pairs, as MegaDepth-1500 and ScanNet-1500 measure them.

In: a list of pairs with intrinsics and poses (see `pose_pairs`), feature files or what to extract, of one detector or
of several, and a translator. Out: of each row the area under the error curve to 5, 10 and 20 degrees, the median error,
matches and inliers. In row `a -> b` photo 0 of each pair has `a`, translated, and photo 1 has `b`; in row `a | b` both
are in the joint space.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.evaluate.benchmarks import pose_pairs, run_folder
from xdesc_jax.evaluate.benchmarks.feature_rows import extracted_by_detector, planned, stores_of
from xdesc_jax.evaluate.benchmarks.pose_pairs import PosedPair
from xdesc_jax.evaluate.benchmarks.pose_scores import AUC_DEG, areas, fitting, pose_error_deg
from xdesc_jax.evaluate.benchmarks.protocol import Benchmark, Checked, require
from xdesc_jax.evaluate.benchmarks.results import Column, Result, Row
from xdesc_jax.evaluate.divided import write_lines
from xdesc_jax.evaluate.homography import Comparison, Mode
from xdesc_jax.evaluate.relative_ransac import Estimator, Ransac, estimator
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import config_hash, content_hash, input_hash
from xdesc_jax.matching import routes
from xdesc_jax.matching.match import match
from xdesc_jax.matching.matches import MatchFile
from xdesc_jax.translation.translator import Translator

BENCHMARK = Benchmark(
    "relative-pose",
    "Relative pose",
    "a folder of photos and a list of pairs with intrinsics and poses (38 fields a line), such as MegaDepth-1500 or "
    "ScanNet-1500",
    "https://github.com/magicleap/SuperGluePretrainedNetwork (lists), https://github.com/zju3dv/LoFTR (photos)",
    "0.3 GB (ScanNet-1500), 1.5 GB (MegaDepth-1500)",
    "",
    pose_pairs.check,
)
COLUMNS = (
    *(Column(f"AUC {limit} deg") for limit in AUC_DEG), Column("median error", "deg", 2), Column("precision"),
    Column("matches", "", 0), Column("inliers", "", 0),
)  # fmt: skip
PosedMode = Literal["native", "translated", "joint"]
MODES: tuple[PosedMode, ...] = ("native", "translated", "joint")
_WAYS: dict[Mode, routes.Mode] = {"native": "native", "translated": "directional", "joint": "embed"}
VERSION = 1  # of the figures


def run(
    *,
    data: Path,
    out: Path,
    pairs: Path | None = None,
    model: Path | None = None,
    features: tuple[Path, ...] = (),
    descriptors: tuple[str, ...] = (),
    modes: tuple[PosedMode, ...] = MODES,
    keypoints: str = "colmap",
    max_keypoints: int = 2048,
    weights: tuple[str, ...] = (),
    ratio: float | Literal["auto"] | None = "auto",
    max_error_px: float = 1.0,
    ransac: Ransac = "colmap",
    seed: int = 0,
    processes: int = 1,
    overwrite: bool = False,
) -> Result:
    """Relative poses of photo pairs: area under the error curve at 5, 10 and 20 degrees.

    Args:
        data: folder of the photos, and of the list.
        out: folder for result.json, table.md, report.html, matches and, where they are extracted, the features.
        pairs: list of pairs, 38 fields a line; by default the one in DATA.
        model: translator: a model file, or the name of one that ships with the package; without it there are only
            native rows.
        features: feature files, or folders of them, of the photos by their names in the list, each with keypoints of
            its own; extracted where none are given.
        descriptors: which ones; by default all of the feature files, or all of the model's that photos give.
        modes: kinds of rows: native, translated, joint.
        keypoints: 'opencv', 'colmap', or a file that holds them, where features are extracted; a network (xfeat,
            aliked-n16rot, ...) finds its own.
        max_keypoints: the strongest that are kept of what a detector finds.
        weights: NAME=FILE weight files of learned descriptors that are neither shipped nor installed.
        ratio: largest first-to-second distance ratio; 'auto' for the calibrated ones, 'None' for mutual neighbours.
        max_error_px: of an inlier.
        ransac: whose: colmap, or poselib (the extra 'poselib').
        seed: of RANSAC.
        processes: processes that extract.
        overwrite: measure again even if the result is there.

    Returns:
        The result, which is also in OUT.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: the folder is incomplete, the list is none, or no descriptor is named.
        FileExistsError: OUT holds a result of other settings.
        InUse: another process works in OUT.
        ModuleNotFoundError: PoseLib is asked for and not installed.
    """
    estimate = estimator(ransac)
    found, listed = _data(Path(data), pairs)
    posed = pose_pairs.read_list(listed)
    groups = pose_pairs.orders(posed, [(pair.name0, pair.name1) for pair in posed])
    named, model = model, pretrained.resolve(model) if model else None
    translator = Translator.load(model) if model else None
    extract = functools.partial(
        extracted_by_detector, found.root, out / "features", keypoints=keypoints, max_keypoints=max_keypoints,
        weights=weights, processes=processes, overwrite=overwrite,
    )  # fmt: skip
    stores = stores_of(features, descriptors, translator, keypoints, out, extract)
    plan = planned(stores, translator, modes)
    with console.status("reading the inputs"):
        hashes = {name: input_hash(path) for name, path in stores.items()}
        config = [BENCHMARK.name, VERSION, found.fingerprint, hashes, content_hash(model) if model else None, ratio]
        # Results from before there was a choice, or a group of pairs in the other order, stay.
        config += [max_error_px, seed, *[ransac] * (ransac != "colmap"), *[len(groups)] * (len(groups) > 1)]
        expected = config_hash([*config, [str(comparison) for comparison in plan]])
    given: dict[str, Any] = {"pairs": pairs, "model": named, "features": features, "descriptors": list(stores)}
    given |= {"modes": modes, "keypoints": keypoints, "max_keypoints": max_keypoints, "weights": weights}
    given |= {"ratio": ratio, "max_error_px": max_error_px, "ransac": ransac, "seed": seed}
    told = {"data": found.told, "rows": len(plan), **given}

    def measure(kept: Journal) -> Result:
        lists = []
        for i, group in enumerate(groups):
            lines = dict.fromkeys(f"{pair.name0} {pair.name1}" for pair in group)
            lists.append((group, write_lines(out / f"pairs{i or ''}.txt", list(lines))))
        rows = []
        for comparison in plan:
            make = functools.partial(
                _figures, comparison, lists, stores, out / "matches", model, ratio, max_error_px, seed, overwrite,
                estimate,
            )  # fmt: skip
            rows.append(row_of(comparison, kept.recall(str(comparison), make)))
            console.info(f"{rows[-1].name}: {rows[-1].values['AUC 10 deg']:.1f} % at 10 deg")
        return Result.of(BENCHMARK, found, given, COLUMNS, rows)

    return run_folder.carry_out(BENCHMARK, out, expected, overwrite, measure, _page, told=told, stage=run)


def _data(data: Path, pairs: Path | None) -> tuple[Checked, Path]:
    """What the folder holds, and the list."""
    if pairs is None:
        found = require(BENCHMARK, data)
        listed = pose_pairs.find_list(data)
        assert listed is not None  # else incomplete
        return found, listed
    given = dataclasses.replace(BENCHMARK, check=functools.partial(pose_pairs.check, listed=pairs))
    return require(given, data), pairs


def _figures(
    comparison: Comparison, lists: Sequence[tuple[Sequence[PosedPair], Path]], stores: Mapping[str, Path], folder: Path,
    model: Path | None, ratio: float | Literal["auto"] | None, max_error_px: float, seed: int, overwrite: bool,
    estimate: Estimator,
) -> dict[str, Any]:  # fmt: skip
    """Figures of every pair in one row; the pairs of each list are matched in a file of their own."""
    source, target = stores[comparison.source], stores[comparison.target]
    mode = _WAYS[comparison.mode]
    found: dict[str, list[float]] = {"error_deg": [], "matches": [], "inliers": [], "precision": []}
    for number, (pairs, listed) in enumerate(lists):
        end = f" {number}" if number else ""
        out = folder / f"{comparison.mode} {comparison.source} {comparison.target}{end}.h5"
        with console.inner():
            match(
                (source,), out, pairs=str(listed), other=(target,) if source != target else (), mode=mode,
                model=None if mode == "native" else model,
                target=comparison.target if mode == "directional" else None, ratio=ratio, overwrite=overwrite,
            )  # fmt: skip
        with FeatureStore(source) as first, FeatureStore(target) as second, MatchFile(out, first.names) as matches:
            for pair in console.track(pairs, f"{comparison.label}: poses", "pairs"):
                rows = matches.indices(pair.name0, pair.name1)
                xy0, xy1 = first.read(pair.name0).keypoints[rows[:, 0]], second.read(pair.name1).keypoints[rows[:, 1]]
                for key, value in pair_scores(xy0, xy1, pair, max_error_px, seed, estimate).items():
                    found[key].append(value)
    return found


def pair_scores(
    xy0: np.ndarray, xy1: np.ndarray, pair: PosedPair, max_error_px: float, seed: int, estimate: Estimator
) -> dict[str, float]:
    """Figures of one pair from its matches [M, 2]: error (-1 where no pose is found), matches, inliers, precision."""
    found = estimate(xy0, xy1, pair.k0, pair.k1, max_error_px=max_error_px, seed=seed)
    right = fitting(xy0, xy1, pair.k0, pair.k1, pair.pose)
    return {
        "error_deg": -1.0 if found is None else pose_error_deg(found.pose, pair.pose),
        "matches": len(xy0),
        "inliers": 0 if found is None else int(found.inlier.sum()),
        "precision": float(right.mean()) if len(right) else 0.0,
    }


def row_of(comparison: Comparison, figures: Mapping[str, Any]) -> Row:
    """A row of the table, from the figures of all pairs."""
    errors = np.array([np.inf if error < 0 else error for error in figures["error_deg"]])
    values: dict[str, float | None] = {
        f"AUC {limit} deg": 100 * area for limit, area in zip(AUC_DEG, areas(errors), strict=True)
    }
    median = float(np.median(errors))
    values |= {"median error": median if np.isfinite(median) else None}
    values |= {"precision": 100 * float(np.mean(figures["precision"]))}
    values |= {key: float(np.mean(figures[key])) for key in ("matches", "inliers")}
    return Row(comparison.label, values, comparison.mode, "", {"error_deg": list(figures["error_deg"])})


def _page(result: Result) -> run_folder.Page:
    from xdesc_jax.evaluate.benchmarks.drawing import shares_within
    from xdesc_jax.reports.chart import chart
    from xdesc_jax.reports.parts import Section

    best = max(result.rows, key=lambda row: row.values["AUC 10 deg"] or 0)
    sentence = f"{best.name} is best: {best.values['AUC 10 deg']:.1f} % of the area to 10 deg."
    errors = {row.name: [np.inf if e < 0 else e for e in row.detail["error_deg"]] for row in result.rows}
    drawn = chart(
        shares_within, errors, AUC_DEG[-1], "pose error [deg]", title="Pairs within an error",
        caption="share of pairs whose rotation and direction of translation are off by no more",
    )  # fmt: skip
    return sentence, [Section("Errors", [drawn])]
