"""HPatches sequences: matching accuracy on 108 planar scenes (the paper's supplement, figure 6, and its ablations).

In: the released sequences, feature files or what to extract, a translator. Out: of each row the share of mutual matches
within 1 to 10 px, overall, under changing light and from changing places; how it differs from sequence to sequence; and
the share of homographies within 1, 3 and 5 px at the corners. Photo 1 is the query, and its descriptors are translated.
The 8 sequences with photos over 1600x1200 px are left out, as in the paper.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xdesc_jax import console, pretrained
from xdesc_jax.evaluate.benchmarks import run_folder
from xdesc_jax.evaluate.benchmarks.feature_rows import planned, stores_of
from xdesc_jax.evaluate.benchmarks.patch_strips import KINDS, facts
from xdesc_jax.evaluate.benchmarks.protocol import Benchmark, Checked, fingerprint, require
from xdesc_jax.evaluate.benchmarks.results import Column, Result, Row
from xdesc_jax.evaluate.benchmarks.sequence_scores import CORNER_PX, OVERALL, area, pair_scores, summary
from xdesc_jax.evaluate.benchmarks.tables import paper_row
from xdesc_jax.evaluate.homography import Comparison, Mode, search
from xdesc_jax.evaluate.scenes import Scene, find_scenes
from xdesc_jax.evaluate.stages.homography import extracted_stores, scene_config
from xdesc_jax.files import dry_run
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import config_hash, content_hash, input_hash
from xdesc_jax.translation.translator import Translator

PHOTOS, LARGE_PX = 6, 1600 * 1200
SIZES = {"v_bark": (765, 512), "v_graffiti": (800, 640), "i_leuven": (900, 600)}  # of photo 1, px
MODES: tuple[Mode, ...] = ("native", "translated", "joint")
VERSION = 1  # of the figures
COLUMNS = (
    Column("MMA 3 px"), Column("area to 5 px"), Column("illumination"), Column("viewpoint"),
    *(Column(f"homography {limit} px") for limit in CORNER_PX), Column("matches", "", 0), Column("correct", "", 0),
)  # fmt: skip


def check(root: Path) -> Checked:
    """What a folder of sequences holds (see `protocol.Checked`)."""
    root = next((f for f in (root, root / "hpatches-sequences-release") if f.is_dir() and _folders(f)), root)
    problems, files, sizes = [], [], {}
    for folder in _folders(root):
        photos = {k: next(iter(sorted(folder.glob(f"{k}.*"))), None) for k in range(1, PHOTOS + 1)}
        homographies = [folder / f"H_1_{k}" for k in range(2, PHOTOS + 1)]
        problems += [f"{folder.name}/{k}.ppm is missing" for k, photo in photos.items() if photo is None]
        problems += [f"{folder.name}/{path.name} is missing" for path in homographies if not path.is_file()]
        files += [path for path in (*photos.values(), *homographies) if path is not None and path.is_file()]
        sizes[folder.name] = {k: photo_size(photo) for k, photo in photos.items() if photo is not None}
    if not sizes:
        problems.append("no sequence (folders with 1.ppm ... 6.ppm and H_1_2 ... H_1_6) found")
    official, large = set(facts()["splits"]["full"]), facts()["large_sequences"]
    other = []
    if missing := sorted(official - set(large) - set(sizes)):
        other.append(f"{len(missing)} of {len(official) - len(large)} sequences are not there, first {missing[0]}")
    if further := sorted(set(sizes) - official):
        other.append(f"{len(further)} sequences are none of the set, first {further[0]}")
    for name, size in SIZES.items():
        if name in sizes and sizes[name].get(1) != size:
            other.append(f"photo 1 of {name} is {sizes[name].get(1)} px, where the set has {size}")
    for name in large:
        if name in sizes and not any(width * height > LARGE_PX for width, height in sizes[name].values()):
            other.append(f"{name} has no photo over 1600x1200 px, where the set has")
    kept = [name for name in sizes if name not in large]
    text = f"{len(sizes)} sequences, {len(kept)} without the large ones"
    return Checked(root, text, tuple(problems), tuple(other), "" if problems else fingerprint(files, root))


def _folders(root: Path) -> list[Path]:
    return sorted(f for f in root.iterdir() if f.is_dir() and any(f.glob("H_1_*")))


def photo_size(path: Path) -> tuple[int, int]:
    """Width and height of a photo, from its head; (0, 0) of what is none."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return image.size
    except (UnidentifiedImageError, OSError):
        return 0, 0


BENCHMARK = Benchmark(
    "hpatches-sequences",
    "HPatches sequences",
    "the folder hpatches-sequences-release: 116 sequences of 6 photos with homographies",
    "https://github.com/hpatches/hpatches-dataset",
    "1.3 GB",
    "Figure 6",
    check,
)


def run(
    *,
    data: Path,
    out: Path,
    model: Path | None = None,
    features: tuple[Path, ...] = (),
    descriptors: tuple[str, ...] = (),
    modes: tuple[Mode, ...] = MODES,
    keypoints: str = "colmap",
    max_keypoints: int = 8192,
    weights: tuple[str, ...] = (),
    processes: int = 1,
    overwrite: bool = False,
) -> Result:
    """HPatches sequences: matching accuracy at 1 to 10 px, and homographies.

    Args:
        data: the folder hpatches-sequences-release, or the one that holds it.
        out: folder for result.json, table.md, report.html and, where they are extracted, the features.
        model: translator: a model file, or the name of one that ships with the package; without it there are only
            native and naive rows.
        features: feature files, or folders of them, of the photos by their names below DATA; extracted where none are
            given.
        descriptors: which ones; by default all of the feature files, or all of the model's that photos give.
        modes: kinds of rows: native, translated, joint, naive.
        keypoints: 'opencv', 'colmap', or a file that holds them, where features are extracted.
        max_keypoints: the strongest that are kept of what a detector finds.
        weights: NAME=FILE weight files of learned descriptors that are neither shipped nor installed.
        processes: processes that extract.
        overwrite: measure again even if the result is there.

    Returns:
        The result, which is also in OUT.

    Raises:
        FileNotFoundError: no such folder or file.
        ValueError: the folder is incomplete, no descriptor is named, or feature files do not fit the photos.
        FileExistsError: OUT holds a result of other settings.
        InUse: another process works in OUT.
    """
    found = require(BENCHMARK, data)
    named, model = model, pretrained.resolve(model) if model else None
    translator = Translator.load(model) if model else None
    scenes = [scene for scene in find_scenes(found.root) if scene.name not in facts()["large_sequences"]]

    def extract(names: Sequence[str]) -> dict[str, Path]:
        return extracted_stores(
            _photos(found.root, scenes, out), out / "features", names, keypoints=keypoints,
            max_keypoints=max_keypoints, weights=weights, processes=processes, overwrite=overwrite,
        )  # fmt: skip

    stores = stores_of(features, descriptors, translator, keypoints, out, extract)
    plan = planned(stores, translator, modes)
    with console.status("reading the inputs"):
        hashes = {name: input_hash(path) for name, path in stores.items()}
        config = [BENCHMARK.name, VERSION, scene_config(scenes), hashes, content_hash(model) if model else None]
        expected = config_hash([*config, [str(comparison) for comparison in plan]])
    given: dict[str, Any] = {"model": named, "features": features, "descriptors": list(stores), "modes": modes}
    given |= {"keypoints": keypoints, "max_keypoints": max_keypoints, "weights": weights}
    told = {"data": found.told, "sequences": len(scenes), "rows": len(plan)}

    def measure(kept: Journal) -> Result:
        measured = dict(_scenes(found.root, scenes, stores, translator, plan, kept))
        rows = [
            row_of(comparison, summary({s: m[i] for s, m in measured.items()})) for i, comparison in enumerate(plan)
        ]
        return Result.of(BENCHMARK, found, given, COLUMNS, rows)

    return run_folder.carry_out(BENCHMARK, out, expected, overwrite, measure, _page, told={**told, **given}, stage=run)


def _photos(root: Path, scenes: Sequence[Scene], out: Path) -> Path:
    """A folder of these scenes alone: the root itself, or one with links to their folders."""
    if dry_run.active() or len(_folders(root)) == len(scenes):
        return root
    linked = out / "sequences"
    linked.mkdir(parents=True, exist_ok=True)
    for scene in scenes:
        if not (linked / scene.name).exists():
            (linked / scene.name).symlink_to((root / scene.name).resolve(), target_is_directory=True)
    return linked


def _scenes(
    root: Path, scenes: Sequence[Scene], stores: Mapping[str, Path], translator: Translator | None,
    plan: Sequence[Comparison], kept: Journal,
) -> Iterator[tuple[str, list[list[dict[str, Any]]]]]:  # fmt: skip
    """Each scene with the figures [row][pair] of all rows; those that were finished before come from the journal."""
    left = [scene for scene in scenes if scene.name not in kept]
    truths = {(scene.name, pair.database): pair for scene in left for pair in scene.pairs}
    finished = sum(len(scene.pairs) for scene in scenes if scene.name in kept)
    searched = search(scenes, stores, translator, plan, finished) if left else iter(())
    for name, found in itertools.groupby(searched, lambda one: one.scene):
        rows: list[list[dict[str, Any]]] = [[] for _ in plan]
        for one in found:
            pair = truths[name, one.database]
            size = photo_size(root / pair.query)
            rows[plan.index(one.comparison)].append(pair_scores(one, pair.correspondence, size))
        kept.add(name, {"rows": rows})
    for scene in scenes:
        yield scene.name, kept[scene.name]["rows"]


def row_of(comparison: Comparison, figures: Mapping[str, Any]) -> Row:
    """A row of the table, from the figures of `summary`."""
    mma = figures["mma"]
    values: dict[str, float | None] = {"MMA 3 px": 100 * mma[OVERALL][2], "area to 5 px": 100 * area(mma[OVERALL])}
    values |= {kind: 100 * area(mma[kind]) if kind in mma else None for kind in KINDS.values()}
    values |= {f"homography {limit} px": 100 * share for limit, share in figures["homography"].items()}
    values |= {"matches": figures["matches"], "correct": figures["correct"]}
    detail = {"mma": mma, "area": figures["area"]}
    return Row(comparison.label, values, comparison.mode, paper_row(comparison), detail)


def _page(result: Result) -> run_folder.Page:
    from xdesc_jax.evaluate.benchmarks.drawing import accuracy_curves, scene_differences
    from xdesc_jax.reports.chart import chart
    from xdesc_jax.reports.parts import Section

    best = max(result.rows, key=lambda row: row.values["area to 5 px"] or 0)
    sentence = f"{best.name} matches best: {best.values['MMA 3 px']:.1f} % of its mutual matches lie within 3 px."
    curves = chart(
        accuracy_curves, result.rows, title="Matching accuracy", caption="share of mutual matches within 1 to 10 px"
    )
    sections = [Section("Accuracy", [curves])]
    native = sorted(
        (row for row in result.rows if row.mode == "native"), key=lambda row: row.values["area to 5 px"] or 0
    )
    if len(native) > 1:
        drawn = chart(
            scene_differences, native[-1], native[:-1], title="From sequence to sequence",
            caption="Area under the accuracy up to 5 px: the best descriptor's less another's, a bar a sequence.",
        )  # fmt: skip
        sections.append(Section("Sequences", [drawn]))
    return sentence, sections
