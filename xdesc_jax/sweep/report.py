"""Stage: results of a sweep -> merged results, a page to explore them, and the best configurations as files.

In: a sweep's folder, also while it runs. Out: `results.jsonl`, `results.parquet`, `report.html` (one file that needs
no network) and `best/<place>-<member>.py`, ready for `xdesc train --config`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from xdesc_jax import console
from xdesc_jax.config import TrainConfig
from xdesc_jax.files import dry_run
from xdesc_jax.files.fields import from_dict
from xdesc_jax.files.whole import atomic, making, read_json
from xdesc_jax.reports.page import write_page
from xdesc_jax.reports.parts import Answer, Cell, Column, Definitions, Gallery, Group, Number, Section, Table
from xdesc_jax.reports.settings import Settings
from xdesc_jax.sweep import drawing
from xdesc_jax.sweep.config import SweepConfig
from xdesc_jax.sweep.config_file import config_source
from xdesc_jax.sweep.fields import Axis, axis, shortened, text, varies
from xdesc_jax.sweep.ranking import SEED, Setting, counts, ranked
from xdesc_jax.sweep.results import (
    STATUSES,
    Record,
    field_value,
    mean_figures,
    merged_files,
    read_results,
    write_merged,
)

_FIGURES = {
    "rank1": "rank-1, translated",
    "joint_rank1": "rank-1, joint space",
    "translation_error": "translation error",
    "bit_accuracy": "bit accuracy",
}
_MEANING = {
    drawing.RANK: (
        "share of validation rows whose nearest row is their own partner, mean over all translations and all pairs in "
        "the joint space, at the member's best epoch"
    ),
    **{
        _FIGURES["rank1"]: "the same, mean over translations alone",
        _FIGURES["joint_rank1"]: "the same, mean over pairs in the joint space alone",
        _FIGURES["translation_error"]: "mean over pairs of the translation loss on validation rows; smaller is better",
        _FIGURES["bit_accuracy"]: "mean share of right bits, over translations into binary descriptors",
    },
    "finished, stopped, diverged": (
        "trained to the end; ended early by successive halving; loss no longer a finite number. Diverged members are "
        "never among the best"
    ),
    "time, speed": (
        "speed: rows of the batches that a population shares, a second; time: that of the member's steps at that speed"
    ),
}


def report(workdir: Path, *, out: Path | None = None, best: int = 5) -> Path:
    """Reports on a sweep: a page with sortable tables and plots, merged results, the best configurations as files.

    Works while the sweep runs, on the members that have ended. Settings, which are configurations but for the seed,
    are ranked by the mean over their seeds: those without a diverged seed first, then those with some, then those
    that successive halving stopped early. Each of the best settings is written as the configuration of its best seed.

    Args:
        workdir: the sweep's folder, as `xdesc sweep` makes it. The merged results go there, and best/.
        out: the page; report.html in the sweep's folder by default.
        best: settings that are written to best/, in place of those of an earlier report.

    Raises:
        FileNotFoundError: no sweep there, or no member of it has ended.
        ValueError: results that cannot be read.
    """
    if best < 1:
        raise ValueError(f"best is {best}, expected at least 1")
    workdir = Path(workdir)
    if not (workdir / "sweep.json").is_file():
        raise FileNotFoundError(f"{workdir}: no sweep (it holds no sweep.json)")
    sweep = read_json(workdir / "sweep.json")
    records = read_results(workdir)
    if not records:
        raise FileNotFoundError(f"{workdir}: no results yet; one comes as each member ends")
    out = workdir / "report.html" if out is None else Path(out)
    settings = ranked(records)
    winners = [setting for setting in settings if setting.mean is not None][:best]
    with dry_run.several():
        for made in (out, workdir / "best", *merged_files(workdir)):
            making(made)
    files = write_best(workdir, winners)
    write_merged(workdir)
    swept = sweep.get("config") or {}
    write_page(
        out, f"Sweep {workdir.resolve().name}", answer(sweep, records), _sections(workdir, out, sweep, records, files),
        settings=Settings.of(swept, SweepConfig().describe()),
        provenance={"made by": "xdesc sweep", **{k: v for k, v in sweep.items() if k not in ("members", "config")}},
        scripts=[drawing.script()],
    )  # fmt: skip
    columns, rows = table_rows(winners, varying(sweep, records))
    console.table(f"best of {_counts(records)}", columns, rows)
    if not winners:
        console.warn("no member has a figure to rank it by")
    console.result(out, configurations=workdir / "best" if files else None)
    return out


def varying(sweep: Mapping[str, Any], records: Sequence[Record]) -> dict[str, Axis]:
    """The swept fields of which these members have more than one value, in the sweep's order, as axes."""
    names = list(
        {name: None for fields in [sweep.get("fields", []), *(r["fields"] for r in records)] for name in fields}
    )
    values = {name: [field_value(record, name) for record in records] for name in names}
    return {name: axis(name, found) for name, found in values.items() if varies(found)}


def write_best(workdir: Path, settings: Sequence[Setting]) -> dict[str, Path]:
    """Writes settings, best first, as configurations of their best seeds; those of earlier reports go.

    Returns:
        The file of each member written.
    """
    sources = {}
    for place, setting in enumerate(settings, 1):
        record = setting.best
        try:
            config = from_dict(record["config"], TrainConfig)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{workdir}: member {record['member']}: its configuration cannot be used: {error}"
            ) from error
        name = f"{place}-{record['member']}.py"
        sources[record["member"]] = (
            workdir / "best" / name,
            config_source(config, _about(workdir, place, setting, name)),
        )
    for path, source in sources.values():
        with atomic(path) as temporary:
            temporary.write_text(source, encoding="utf-8")
    written = {path for path, _ in sources.values()}
    for path in (workdir / "best").glob("*.py"):
        if path not in written and re.fullmatch(r"\d+-[0-9a-f]{12}\.py", path.name):
            path.unlink()
    return {member: path for member, (path, _) in sources.items()}


def table_rows(settings: Sequence[Setting], axes: Mapping[str, Axis]) -> tuple[list[str], list[list[Any]]]:
    """Headings and rows for the console: the fields that vary, mean rank-1, over how many seeds, the best member."""
    rows = []
    for setting in settings:
        values = {name: field_value(setting.best, name) for name in axes if name != SEED}
        fields = ", ".join(f"{name}={shortened(text(value), 40)}" for name, value in values.items())
        rows.append([fields or "all", str(setting), setting.seeds, setting.best["status"], setting.best["member"]])
    return ["setting", drawing.RANK, "seeds", "status", "best member"], rows


def _about(workdir: Path, place: int, setting: Setting, name: str) -> str:
    record = setting.best
    lines = [f"Number {place} of the sweep {workdir.resolve().name}: mean rank-1 {setting} on validation rows."]
    if setting.seeds > 1:
        lines.append(
            f"Mean and standard deviation over {setting.seeds} seeds; this one has {record['mean_rank1']:.4f}."
        )
    if record["status"] == "stopped":
        lines.append(f"It was stopped by successive halving after {record.get('epoch')} epochs.")
    swept = [f"{field} = {text(value)}" for field, value in record["fields"].items()]
    command = f"    xdesc train --config {workdir / 'best' / name} --data RECORDS --workdir RUN"
    return "\n".join([*lines, *(["", "Swept fields: " + "; ".join(swept) + "."] if swept else []), "", command])


def answer(sweep: Mapping[str, Any], records: Sequence[Record]) -> Answer:
    """The best setting, its figure and its values of what varies."""
    best, *others = ranked(records)
    diverged = sum(record["status"] == "diverged" for record in records)
    planned = max(len(sweep.get("members", ())), len(records))
    ended = [Number(f"{len(records)} of {planned}", "members ended")]
    ended += [Number(str(diverged), "diverged")] if diverged else []
    if best.mean is None:
        return Answer(f"None of {_many(len(records), 'member')} has a figure to rank it by.", ended)
    named = {name: field_value(best.best, name) for name in varying(sweep, records) if name != SEED}
    values = [f"{name} {shortened(text(value), 40)}" for name, value in named.items()]
    spread = f" \u00b1 {best.deviation:.3f} over {best.seeds} seeds" if best.deviation is not None else ""
    sentence = f"Best of {_many(len(records), 'member')}: mean rank-1 {best.mean:.3f}{spread}"
    numbers = [Number(f"{best.mean:.3f}", "mean rank-1 of the best setting")]
    means = [best.mean, *(setting.mean for setting in others if setting.mean is not None)]
    if len(means) > 1:
        numbers.append(Number(f"{np.median(means):.3f}", f"median of {len(means)} settings"))
    figures = mean_figures(best.best)
    for name in ("rank1", "joint_rank1"):
        numbers += [Number(f"{figures[name]:.3f}", f"{_FIGURES[name]}, its best seed")] if name in figures else []
    return Answer(sentence + (f", with {', '.join(values)}." if values else "."), [*numbers, *ended])


def _sections(
    workdir: Path, out: Path, sweep: Mapping[str, Any], records: Sequence[Record], files: Mapping[str, Path]
) -> list[Section]:
    axes = varying(sweep, records)
    settings = ranked(records)
    shown = [setting for setting in settings if setting.best["member"] in files]
    nothing = "" if shown else "No member has a figure to rank it by."
    about = f"{_DIFFERENT_PAIRS if 'descriptors' in axes else ''}{nothing}"
    sections = [Section("Best settings", [_settings(shown, axes, out, files)] if shown else [], about)]
    sections += _plots(records, axes, [setting.best for setting in shown])
    if len(settings) < len(records):
        found = _settings(settings, axes, out, files, find="words of a setting", anchor="settings", tall=True)
        sections.append(Section("Settings", [found], _SETTINGS_EXPLAINED))
    sections.append(Section("Members", [_members(records, axes, workdir, out, files)], f"{_ended(sweep, records)}."))
    lost = [record for record in records if record["status"] == "diverged"]
    if lost:
        sections.append(Section("Diverged members", [_diverged(lost, axes)]))
    return [*sections, Section("What the figures mean", [Definitions(_MEANING)])]


_DIFFERENT_PAIRS = (
    "Which descriptors take part varies: the figures of members are means over different pairs, and compare only among "
    "members of the same descriptors. "
)
_SETTINGS_EXPLAINED = (
    "Members that differ in their seed alone are one setting: mean \u00b1 standard deviation over the seeds that "
    "finished. Settings of which a seed diverged stand behind those without, settings stopped early behind both."
)


def _plots(records: Sequence[Record], axes: Mapping[str, Axis], best: Sequence[Record]) -> list[Section]:
    ranks = [record for record in records if counts(record)]
    sections = []
    if axes and len(ranks) > 1:
        lines = drawing.parallel_coordinates(records, list(axes.values()))
        sections.append(Section("Parallel coordinates", [lines], _lines_explained(records)))
    if axes and ranks:
        panels = Gallery([drawing.ablation(records, found, list(axes)) for found in axes.values()], least_px=400)
        bars = drawing.importance(records, list(axes.values())) if len(axes) > 1 else None
        explained = [Group("What each field explains", [bars], _SHARES_EXPLAINED)] if bars is not None else []
        sections.append(Section("Ablation", [panels, *explained], _ABLATION_EXPLAINED))
    if any(record.get("history") for record in records):
        sections.append(Section("Learning curves", [drawing.learning_curves(records, best, list(axes))]))
    return sections


_ABLATION_EXPLAINED = (
    "A point a member: \u25cf finished, \u25cb stopped early, \u00d7 diverged (at the foot), \u25bd far below all "
    "others (too). The line is the median at each value, or among neighbours where there are many values. A click on a "
    "point goes to its row below."
)
_SHARES_EXPLAINED = (
    "Share of the variance of mean rank-1 that each field explains alone, corrected for how many values it has "
    "(epsilon squared). What fields do only together is in none of the bars; fields that were not varied "
    "independently share theirs. Diverged members are not counted."
)


def _lines_explained(records: Sequence[Record]) -> str:
    left_out = sum(not counts(record) for record in records)
    told = (
        "A line a member. Drag along an axis to keep only the lines through that part; drag a name to move its axis. "
    )
    told += "Lines through one value stand a little apart."
    if left_out:
        told += f" {left_out} diverged member{'s are' if left_out > 1 else ' is'} not drawn; they are listed below."
    return told


def _settings(
    settings: Sequence[Setting], axes: Mapping[str, Axis], out: Path, files: Mapping[str, Path], **options: Any
) -> Table:
    names = [name for name in axes if name != SEED]
    rows = []
    for place, setting in enumerate(settings, 1):
        member, path = setting.best["member"], files.get(setting.best["member"])
        values = [_value(axes[name], field_value(setting.best, name)) for name in names]
        rows.append([
            place, Cell(str(setting), setting.mean), setting.seeds, setting.diverged, *values,
            Cell(member, href=f"#member-{member}"), Cell(path.name, href=_href(path, out)) if path else "",
        ])  # fmt: skip
    heads = [Column("#"), Column(drawing.RANK), Column("seeds"), Column("diverged"), *_heads(axes, names)]
    return Table([*heads, Column("best seed", text=True), Column("configuration", text=True)], rows, **options)


def _members(
    records: Sequence[Record], axes: Mapping[str, Axis], workdir: Path, out: Path, files: Mapping[str, Path]
) -> Table:
    means = {record["member"]: mean_figures(record) for record in records}
    figures = {name: label for name, label in _FIGURES.items() if any(name in found for found in means.values())}
    rows = []
    for record in sorted(records, key=lambda r: (not counts(r), -(r["mean_rank1"] or 0))):
        member, path = record["member"], files.get(record["member"])
        run = workdir / (record.get("run") or "")
        linked = _href(run, out) if record.get("run") and run.exists() else ""
        rows.append([
            Cell(member, href=linked, anchor=f"member-{member}"),
            Cell(record["status"], badge=record["status"]),
            record["mean_rank1"],
            *(_value(found, field_value(record, name)) for name, found in axes.items()),
            *(means[member].get(name) for name in figures),
            *(record.get(name) for name in ("best_epoch", "epoch", "steps", "seconds", "rows_per_second")),
            Cell(path.name, href=_href(path, out)) if path else "",
        ])  # fmt: skip
    heads = [Column("member", text=True), Column("status", text=True), Column(drawing.RANK, digits=4)]
    heads += [*_heads(axes, axes), *(Column(label, digits=4) for label in figures.values())]
    heads += [Column(name, digits=0) for name in ("best epoch", "epoch", "steps")]
    heads += [Column("time", "s", digits=0), Column("speed", "rows/s", digits=0), Column("configuration", text=True)]
    return Table(heads, rows, find="words of a member", anchor="members", tall=True)


def _diverged(records: Sequence[Record], axes: Mapping[str, Axis]) -> Table:
    rows = []
    for record in records:
        values = [_value(found, field_value(record, name)) for name, found in axes.items()]
        member = record["member"]
        rows.append([Cell(member, href=f"#member-{member}"), record.get("reason") or "", record.get("epoch"), *values])
    heads = [Column("member", text=True), Column("reason", text=True), Column("epochs"), *_heads(axes, axes)]
    return Table(heads, rows)


def _heads(axes: Mapping[str, Axis], names: Iterable[str]) -> list[Column]:
    return [Column(name, text=not axes[name].numeric) for name in names]


def _value(found: Axis, value: Any) -> Cell:
    if found.numeric:
        return Cell(f"{value:.4g}" if isinstance(value, float) else str(value), float(value))
    return Cell(text(value))


def _href(target: Path, page: Path) -> str:
    return quote(os.path.relpath(target.resolve(), page.resolve().parent))


def _ended(sweep: Mapping[str, Any], records: Sequence[Record]) -> str:
    planned = len(sweep.get("members", ()))
    return _counts(records) + (f" of {planned}" if planned > len(records) else "") + " ended"


def _counts(records: Sequence[Record]) -> str:
    found = {status: sum(record["status"] == status for record in records) for status in STATUSES}
    listed = ", ".join(f"{n} {status}" for status, n in found.items() if n)
    return f"{_many(len(records), 'member')} ({listed})"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
