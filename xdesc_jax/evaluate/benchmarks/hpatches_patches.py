"""HPatches patches: verification, matching and retrieval of patches (the paper's supplement, figure 5).

In: the released patches (see `patch_strips`), a translator, and the official task lists where there are some. Out: mean
average precisions of each descriptor, and of each pair: the target's own rows in the reference images, translated rows
of the source in all others; or both in the joint space.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.descriptors import from_stored, get_entry, get_spec, registered
from xdesc_jax.evaluate.benchmarks import patch_strips, patch_tasks, run_folder
from xdesc_jax.evaluate.benchmarks.patch_scores import TOOLBOX, measured
from xdesc_jax.evaluate.benchmarks.patch_strips import STRIPS
from xdesc_jax.evaluate.benchmarks.patch_tasks import PAIRS, Tasks
from xdesc_jax.evaluate.benchmarks.protocol import Benchmark, Checked, fingerprint, require
from xdesc_jax.evaluate.benchmarks.results import Column, Result, Row
from xdesc_jax.evaluate.benchmarks.tables import paper_row
from xdesc_jax.evaluate.homography import Comparison, Mode, comparisons
from xdesc_jax.features.official import weight_file
from xdesc_jax.features.weights import parse_weights
from xdesc_jax.files.journal import Journal
from xdesc_jax.files.whole import config_hash, content_hash
from xdesc_jax.translation.translator import EMBEDDING, Translator

BENCHMARK = Benchmark(
    "hpatches-patches",
    "HPatches patches",
    "the folder hpatches-release: 116 sequences of patches, and better also the task lists of hpatches-benchmark",
    "https://github.com/hpatches/hpatches-dataset (lists: https://github.com/hpatches/hpatches-benchmark)",
    "4.2 GB",
    "Figure 5",
    patch_strips.check,
)
PUBLISHED = "Average precision as the benchmark's toolbox and published figures have it"
COLUMNS = (
    Column("verification"), Column("balanced verification"), Column("matching"), Column("retrieval"),
    *(Column(f"{TOOLBOX} {task}", table=PUBLISHED) for task in ("verification", "matching", "retrieval")),
)  # fmt: skip
MODES: tuple[Mode, ...] = ("native", "translated", "joint")
VERSION = 2  # of the figures
RowsOf = Callable[[str, str], np.ndarray]  # descriptor, sequence -> stored rows [16, N, W]


def run(
    *,
    data: Path,
    out: Path,
    model: Path | None = None,
    descriptors: tuple[str, ...] = (),
    modes: tuple[Mode, ...] = MODES,
    split: str = "full",
    tasks: Path | None = None,
    pairs: int = PAIRS,
    seed: int = 42,
    weights: tuple[str, ...] = (),
    overwrite: bool = False,
) -> Result:
    """HPatches patches: verification, matching and retrieval, mean average precision.

    Args:
        data: the folder hpatches-release, or the one that holds it.
        out: folder for result.json, table.md, report.html and the descriptors.
        model: translator: a model file, or the name of one that ships with the package; without it there are only
            native and naive rows.
        descriptors: which ones, computed from patches; by default all of the model's that are.
        modes: kinds of rows: native, translated, joint, naive.
        split: sequences: a, b, c (40 each), illum, view, or full (all).
        tasks: folder of the official task lists; DATA/tasks where that is there. Without, lists are drawn as those
            were, and the result is not the official one.
        pairs: of each kind, where lists are drawn.
        seed: of lists that are drawn.
        weights: NAME=FILE weight files of learned descriptors that are neither shipped nor installed.
        overwrite: measure again even if the result is there.

    Returns:
        The result, which is also in OUT.

    Raises:
        FileNotFoundError: no such folder, list or weight file.
        ValueError: the folder is incomplete, or no descriptor is named, or one that is not computed from patches.
        FileExistsError: OUT holds a result of other settings.
        InUse: another process works in OUT.
    """
    found = require(BENCHMARK, data)
    named, model = model, pretrained.resolve(model) if model else None
    translator = Translator.load(model) if model else None
    names = descriptors or from_patches(translator)
    if strange := [name for name in names if not of_patches(name)]:
        raise ValueError(f"descriptor {strange[0]!r} is not computed from patches, which are all that the set has")
    plan = planned(names, translator, modes)
    sequences = patch_strips.names_of(split, found.root)
    lists = tasks or (found.root / "tasks" if (found.root / "tasks").is_dir() else None)
    files = parse_weights(weights)
    used = {name: weight_file(name, files.get(name)) for name in names}
    with console.status("reading the inputs"):
        hashes = {name: content_hash(file) for name, file in used.items() if file is not None}
        config = {
            "benchmark": BENCHMARK.name, "version": VERSION, "data": found.fingerprint, "split": split,
            "tasks": fingerprint(lists.glob(f"*_split-{split}.csv"), lists) if lists else [pairs, seed],
            "model": content_hash(model) if model else None, "weights": hashes, "rows": [str(c) for c in plan],
        }  # fmt: skip
    expected = config_hash(config)
    given: dict[str, Any] = {"model": named, "descriptors": descriptors, "modes": modes, "split": split, "tasks": lists}
    given |= {"pairs": pairs, "seed": seed, "weights": weights}
    told = {"data": found.told, "rows": len(plan), **given}

    def measure(kept: Journal) -> Result:
        counts = [patch_strips.count(found.root, name) for name in sequences]
        if lists:
            drawn = patch_tasks.read(lists, split, sequences, counts)
        else:
            clear = [patch_strips.textured(found.root, name) for name in sequences]
            drawn = patch_tasks.draw(counts, clear, pairs=pairs, seed=seed)

        def rows_of(descriptor: str, name: str) -> np.ndarray:
            key = config_hash([found.fingerprint, hashes.get(descriptor)])
            folder = out / "described" / f"{descriptor}-{key}"
            return patch_strips.described(found.root, name, folder, descriptor, files)

        rows, starts = [], patch_tasks.offsets(counts)
        for comparison in plan:
            make = functools.partial(_figures, comparison, rows_of, sequences, starts, drawn, translator)
            entry = kept.recall(str(comparison), make)
            rows.append(row_of(comparison, entry))
            console.info(f"{rows[-1].name}: {_summary(rows[-1])}")
        settings = {**given, "tasks": drawn.origin}
        return Result.of(BENCHMARK, _named(found, drawn), settings, COLUMNS, rows)

    return run_folder.carry_out(BENCHMARK, out, expected, overwrite, measure, _page, told=told, stage=run)


def from_patches(translator: Translator | None) -> tuple[str, ...]:
    """The descriptors of a model that are computed from patches; ValueError where there are none."""
    names = [] if translator is None else translator.names
    found = [name for name in names if name in registered() and of_patches(name)]
    if not found:
        raise ValueError("name --descriptors that are computed from patches, or a --model that has some")
    return tuple(found)


def of_patches(name: str) -> bool:
    """Whether a registered descriptor is computed from patches; an unknown one raises ValueError."""
    entry = get_entry(name)
    return entry.source == "patch" and entry.describe is not None


def planned(names: Sequence[str], translator: Translator | None, modes: Sequence[Mode]) -> list[Comparison]:
    """The rows; those that need a keypoint's frame or neighbours, which patches lack, are left out with a warning."""

    def possible(comparison: Comparison) -> bool:
        if translator is None or comparison.mode in ("native", "naive"):
            return True
        ways = [(comparison.source, comparison.target)]
        if comparison.mode == "joint":
            ways = [(comparison.source, EMBEDDING), (comparison.target, EMBEDDING)]
        return not any(translator.takes_frames(*way) or translator.takes_context(*way) for way in ways)

    specs = {name: get_spec(name) for name in names}
    asked = [c for c in comparisons(specs, translator) if c.mode in modes]
    found = [c for c in asked if possible(c)]
    if len(found) < len(asked):
        console.warn(
            f"{len(asked) - len(found)} rows are left out: their networks look at the frame or the neighbours of a "
            "keypoint, which a patch does not have"
        )
    if not found:
        raise ValueError(f"no rows of modes {', '.join(modes)} with {', '.join(names)}; translated ones need --model")
    return found


def row_of(comparison: Comparison, figures: Mapping[str, Any]) -> Row:
    """A row of the table, from the figures of `measured`."""
    values = {column.key: figures["values"][column.key] for column in COLUMNS}
    return Row(comparison.label, values, comparison.mode, paper_row(comparison), figures["detail"])


# --- One row -----------------------------------------------------------------------------------------------


def _figures(
    comparison: Comparison, rows_of: RowsOf, sequences: Sequence[str], starts: np.ndarray, tasks: Tasks,
    translator: Translator | None,
) -> dict[str, Any]:  # fmt: skip
    rows = np.zeros((0, 0, 0))
    for i, name in enumerate(console.track(sequences, f"{comparison.label}: descriptors", "sequences")):
        part = _both(comparison, rows_of(comparison.source, name), rows_of(comparison.target, name), translator)
        if not i:
            rows = np.empty((len(STRIPS), starts[-1], part.shape[2]), part.dtype)
        rows[:, starts[i] : starts[i + 1]] = part
    return measured(rows, sequences, starts, tasks, comparison.label)


def _both(
    comparison: Comparison, source: np.ndarray, target: np.ndarray, translator: Translator | None
) -> np.ndarray:  # fmt: skip
    """[16, N, D] canonical rows of a sequence: of the target in the reference image, of the source in the others."""

    def made(stored: np.ndarray, name: str, to: str | None) -> np.ndarray:
        spec, (strips, n, width) = get_spec(name), stored.shape
        flat = np.ascontiguousarray(stored).reshape(-1, width)
        if to is None or translator is None:
            rows = from_stored(flat, spec)
        else:
            rows = translator.translate(flat, name, to, packed=spec.binary)
        return rows.reshape(strips, n, -1)

    of_source = {"translated": comparison.target, "joint": EMBEDDING}.get(comparison.mode)
    of_target = EMBEDDING if comparison.mode == "joint" else None
    reference = made(target[:1], comparison.target, of_target)
    return np.concatenate([reference, made(source[1:], comparison.source, of_source)])


# --- Report ------------------------------------------------------------------------------------------------


def _named(found: Checked, tasks: Tasks) -> Checked:
    """The data, which is the official one with the official lists alone."""
    other = found.other if tasks.official else (*found.other, "the task lists are drawn")
    return dataclasses.replace(found, text=f"{found.text}; {tasks.origin}", other=other)


def _summary(row: Row) -> str:
    return ", ".join(f"{key} {value:.1f}" for key, value in row.values.items() if value is not None)


def _page(result: Result) -> run_folder.Page:
    from xdesc_jax.evaluate.benchmarks.drawing import patch_bars
    from xdesc_jax.reports.chart import chart
    from xdesc_jax.reports.parts import Section

    best = max(result.rows, key=lambda row: row.values["matching"] or 0)
    sentence = f"{best.name} matches best, at {best.values['matching']:.1f} % mean average precision."
    drawn = chart(
        patch_bars, result.rows, title="Mean average precision, of the first table",
        caption="Green: easy, orange: hard, red: tough. Verification: diamonds for negatives of the same sequence, "
        "stars for those of others. Matching: crosses under changing light, triangles from changing places.",
    )  # fmt: skip
    return sentence, [Section("By task", [drawn])]
