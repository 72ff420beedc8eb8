"""Stage: results of a sweep -> merged results, a page to explore them, and the best configurations as files.

In: a sweep's folder, also while it runs. Out: `results.jsonl`, `results.parquet`, `report.html` (one file that needs
no network) and `best/<place>-<member>.py`, ready for `xdesc train --config`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from xdesc_jax import __version__, console
from xdesc_jax.config import TrainConfig, from_dict
from xdesc_jax.evaluate.page import definitions, number, table, write_page
from xdesc_jax.files import dry_run
from xdesc_jax.files.whole import atomic, making, read_json
from xdesc_jax.sweep import drawing
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

_MISSING = -1e300  # what an absent number sorts as
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
    "rows/s, seconds": (
        "rows of the batches that a population shares, a second, and the time of the member's steps at that rate"
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
    write_page(out, f"Sweep {workdir.resolve().name}", _page(workdir, out, sweep, records, files), drawing.style())
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


def _page(
    workdir: Path, out: Path, sweep: Mapping[str, Any], records: Sequence[Record], files: Mapping[str, Path]
) -> list[str]:
    axes = varying(sweep, records)
    settings = ranked(records)
    best = [setting.best for setting in settings if setting.best["member"] in files]
    body = [f"<h1>Sweep {escape(workdir.resolve().name)}</h1>", f"<p>{_ended(sweep, records)}.</p>"]
    if "descriptors" in axes:
        body.append(
            '<p class="faint">Which descriptors take part varies: the figures of members are means over different '
            "pairs, and compare only among members of the same descriptors.</p>"
        )
    body += ["<h2>Best settings</h2>"]
    shown = [setting for setting in settings if setting.best["member"] in files]
    body += [_settings(shown, axes, out, files)] if shown else ["<p>No member has a figure to rank it by.</p>"]
    body += _plots(records, axes, best)
    if len(settings) < len(records):
        body += ["<h2>Settings</h2>", f"<p>{_SETTINGS_EXPLAINED}</p>", _find("settings", "of a setting")]
        body += [f'<div id="settings" class="tall">{_settings(settings, axes, out, files)}</div>']
    body += ["<h2>Members</h2>", _find("members", "of a member")]
    body += [f'<div id="members" class="tall">{_members(records, axes, workdir, out, files)}</div>']
    lost = [record for record in records if record["status"] == "diverged"]
    if lost:
        body += ["<h2>Diverged members</h2>", _diverged(lost, axes)]
    about = {k: v for k, v in sweep.items() if k != "members"}
    body += ["<h2>What the figures mean</h2>", definitions(_MEANING)]
    body += ["<h2>Sweep</h2>", definitions({**about, "xdesc": __version__}), drawing.script()]
    return body


_SETTINGS_EXPLAINED = (
    "Members that differ in their seed alone are one setting: mean \u00b1 standard deviation over the seeds that "
    "finished. Settings of which a seed diverged stand behind those without, settings stopped early behind both."
)


def _plots(records: Sequence[Record], axes: Mapping[str, Axis], best: Sequence[Record]) -> list[str]:
    ranks = [record for record in records if counts(record)]
    body = []
    if axes and len(ranks) > 1:
        body += ["<h2>Parallel coordinates</h2>", f'<p class="faint">{_lines_explained(records)}</p>']
        body += [drawing.parallel_coordinates(records, list(axes.values())).html()]
    if axes and ranks:
        body += ["<h2>Ablation</h2>", f'<p class="faint">{_ABLATION_EXPLAINED}</p>']
        panels = {name: drawing.ablation(records, found, list(axes)) for name, found in axes.items()}
        bars = drawing.importance(records, list(axes.values())) if len(axes) > 1 else None
        body += [drawing.plots_html(panels)]
        if bars is not None:
            body += ["<h3>What each field explains</h3>", f'<p class="faint">{_SHARES_EXPLAINED}</p>', bars.html()]
    if any(record.get("history") for record in records):
        body += ["<h2>Learning curves</h2>", drawing.learning_curves(records, best, list(axes)).html()]
    return body


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


def _settings(settings: Sequence[Setting], axes: Mapping[str, Axis], out: Path, files: Mapping[str, Path]) -> str:
    names = [name for name in axes if name != SEED]
    rows = []
    for place, setting in enumerate(settings, 1):
        member, path = setting.best["member"], files.get(setting.best["member"])
        cells = [number(str(place)), number(str(setting), _MISSING if setting.mean is None else setting.mean)]
        cells += [number(str(setting.seeds)), number(str(setting.diverged))]
        cells += [_value(axes[name], field_value(setting.best, name)) for name in names]
        cells += [f'<td class="text"><a href="#member-{escape(member)}">{escape(member)}</a></td>']
        cells += [f'<td class="text">{_link(path.name, path, out) if path else ""}</td>']
        rows.append("".join(cells))
    return _table(["", drawing.RANK, "seeds", "diverged", *names, "best seed", "configuration"], rows, axes)


def _members(
    records: Sequence[Record], axes: Mapping[str, Axis], workdir: Path, out: Path, files: Mapping[str, Path]
) -> str:
    means = {record["member"]: mean_figures(record) for record in records}
    figures = {name: label for name, label in _FIGURES.items() if any(name in found for found in means.values())}
    rows = []
    for record in sorted(records, key=lambda r: (not counts(r), -(r["mean_rank1"] or 0))):
        member, status = record["member"], record["status"]
        run = workdir / (record.get("run") or "")
        linked = _link(member, run, out) if record.get("run") and run.exists() else escape(member)
        cells = [f'<td class="text" id="member-{escape(member)}">{linked}</td>']
        cells += [f'<td class="text"><span class="mode {status}">{status}</span></td>']
        cells += [_figure(record["mean_rank1"], 4)]
        cells += [_value(found, field_value(record, name)) for name, found in axes.items()]
        cells += [_figure(means[member].get(name), 4) for name in figures]
        cells += [
            _figure(record.get(name), 0) for name in ("best_epoch", "epoch", "steps", "seconds", "rows_per_second")
        ]
        path = files.get(member)
        cells += [f'<td class="text">{_link(path.name, path, out) if path else ""}</td>']
        rows.append("".join(cells))
    last = ["best epoch", "epoch", "steps", "seconds", "rows/s", "configuration"]
    return _table(["member", "status", drawing.RANK, *axes, *figures.values(), *last], rows, axes)


def _diverged(records: Sequence[Record], axes: Mapping[str, Axis]) -> str:
    rows = []
    for record in records:
        cells = [f'<td class="text"><a href="#member-{escape(record["member"])}">{escape(record["member"])}</a></td>']
        cells += [f'<td class="text">{escape(record.get("reason") or "")}</td>', _figure(record.get("epoch"), 0)]
        cells += [_value(found, field_value(record, name)) for name, found in axes.items()]
        rows.append("".join(cells))
    return _table(["member", "reason", "epochs", *axes], rows, axes)


def _table(columns: Sequence[str], rows: Sequence[str], axes: Mapping[str, Axis]) -> str:
    """A sortable table; headings of texts stand left, as their cells do, and those of nested fields fold."""
    made = table(columns, rows, 0)
    texts = {"member", "status", "reason", "best seed", "configuration"}
    texts |= {name for name, found in axes.items() if not found.numeric}
    for column in columns:
        kind = " class=text" if column in texts else ""
        folded = escape(column).replace(".", ".<br>") if column in axes else escape(column)
        made = made.replace(f"<th>{escape(column)}</th>", f"<th{kind}>{folded}</th>", 1)
    return made


def _value(found: Axis, value: Any) -> str:
    if found.numeric:
        return number(f"{value:.4g}" if isinstance(value, float) else str(value), float(value))
    return f'<td class="text long" title="{escape(text(value))}">{escape(text(value))}</td>'


def _figure(value: float | None, digits: int) -> str:
    return number("-" if value is None else f"{value:,.{digits}f}", _MISSING if value is None else float(value))


def _link(label: str, target: Path, page: Path) -> str:
    relative = os.path.relpath(target.resolve(), page.resolve().parent)
    return f'<a href="{escape(quote(relative))}">{escape(label)}</a>'


def _find(rows: str, whose: str) -> str:
    return (
        f'<div class="find"><input type="search" data-rows="{rows}" placeholder="Find words {whose}" '
        f'aria-label="Find words {whose}"><output class="faint"></output></div>'
    )


def _ended(sweep: Mapping[str, Any], records: Sequence[Record]) -> str:
    planned = len(sweep.get("members", ()))
    return _counts(records) + (f" of {planned}" if planned > len(records) else "") + " ended"


def _counts(records: Sequence[Record]) -> str:
    found = {status: sum(record["status"] == status for record in records) for status in STATUSES}
    listed = ", ".join(f"{n} {status}" for status, n in found.items() if n)
    return f"{len(records)} member{'s' if len(records) > 1 else ''} ({listed})"
