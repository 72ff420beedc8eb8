"""`xdesc export` to other run times: ONNX and StableHLO files of one translation or of all networks.

In: a model, and a source and target or none. Out: one file with JSON beside it, or a folder with a file for each
network and `manifest.json`. Each file is read back and run before it appears: it must give what numpy gives.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from xdesc_jax import console
from xdesc_jax.export import onnx_format, stablehlo_format
from xdesc_jax.export.file_format import FileFormat
from xdesc_jax.export.translation_graph import Graph, description, every, graph
from xdesc_jax.files import dry_run
from xdesc_jax.files.changes import changes
from xdesc_jax.files.whole import already_done, atomic, config_hash, content_hash, read_json, staged, write_json
from xdesc_jax.networks import context
from xdesc_jax.translation.bundle import Bundle
from xdesc_jax.translation.translator import PARITY_TOLERANCE, Translator

FORMATS: dict[str, FileFormat] = {"onnx": onnx_format.FORMAT, "stablehlo": stablehlo_format.FORMAT}
SUFFIXES = tuple(f".{name}" for name in FORMATS)
MANIFEST = "manifest.json"


def export_one(
    translator: Translator, source: str, target: str, out: Path, format: str, model_hash: str, overwrite: bool
) -> Path:
    """Writes the translation from `source` to `target` as one file, with <out>.json beside it.

    Args:
        translator: the model.
        source: descriptor, or 'embedding' for a decoder.
        target: descriptor, or 'embedding' for an encoder.
        out: .onnx or .stablehlo.
        format: one of FORMATS.
        model_hash: identifies the model.
        overwrite: replace another file.

    Raises:
        FileExistsError: `out` is another one and `overwrite` is off.
        ValueError: unknown names, a package is missing, or the file does not compute what numpy does.
    """
    config = {"model": model_hash, "format": format, "source": source, "target": target}
    expected = config_hash(list(config.values()))
    made = graph(translator, source, target, expected)
    beside = out.with_name(out.name + ".json")
    found = recorded_hash(beside, {"": out})
    if already_done(out, found, expected, overwrite, differs=partial(changes, beside, found, config)):
        console.up_to_date(out)
        return out
    FORMATS[format].require(out)
    with staged(out) as temporary, console.status(f"writing and checking {out}"):
        figures = _write(made, temporary, format, out)
    write_json(beside, {**figures, "config": config, "provenance": translator.bundle.provenance})
    _print(out, translator, {out.name: figures})
    console.result(out, figures=beside)
    return out


def export_all(translator: Translator, out: Path, format: str, model_hash: str, overwrite: bool) -> Path:
    """Writes every encoder and decoder, or every pair, as out/<network>.<format>, and out/manifest.json.

    Args, Raises: as `export_one`, and ValueError where `out` is a folder that this did not write.
    """
    config = {"model": model_hash, "format": format}
    expected = config_hash(list(config.values()))
    if dry_run.active():
        dry_run.remark(f"{console.counted(len(translator.bundle.networks), 'network')}, a file each")
    empty = out.is_dir() and not any(out.iterdir())
    if not empty:
        if overwrite and out.is_dir() and not (out / MANIFEST).is_file():
            raise ValueError(f"{out}: a folder without {MANIFEST}, so not one that xdesc export wrote; name another")
        found = recorded_hash(out / MANIFEST, _listed(out))
        if already_done(out, found, expected, overwrite, differs=partial(changes, out / MANIFEST, found, config)):
            console.up_to_date(out)
            return out
    FORMATS[format].require(out)
    figures: dict[str, dict[str, Any]] = {}
    with atomic(out) as temporary:
        for made in console.track(every(translator, expected), "writing and checking", "networks"):
            name = f"{made.name}.{format}"
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            figures[name] = _write(made, temporary / name, format, out / name)
        contents = {"config": config, "config_hash": expected, "files": figures}
        contents["provenance"] = translator.bundle.provenance
        write_json(temporary / MANIFEST, contents)
    _print(out, translator, figures)
    console.result(out, figures=out / MANIFEST)
    return out


def _write(made: Graph, file: Path, format: str, out: Path) -> dict[str, Any]:
    """Writes and checks a file that is to become `out`; what is to be said of it."""
    off = FORMATS[format].write_checked(file, made, str(out))
    size = round(file.stat().st_size / 1e6, 3)
    return {**description(made), "parity_deviation": off, "megabytes": size, "content": content_hash(file)}


def _listed(out: Path) -> dict[str, Path]:
    """Files that a folder's manifest names."""
    try:
        return {name: out / name for name in read_json(out / MANIFEST)["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def recorded_hash(record: Path, files: Mapping[str, Path]) -> str | None:
    """The configuration's hash in a JSON record, if its files are as they were when it was written.

    Args:
        record: the JSON.
        files: those that it lists, by their names there; '' for the one that it is of.
    """
    try:
        found = read_json(record)
        whole = all(
            content_hash(file) == (found["files"][name] if name else found)["content"] for name, file in files.items()
        )
        return found["config_hash"] if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def looks_at(bundle: Bundle, taken: Collection[str] | None = None) -> dict[str, str]:
    """What encoders of a model look at, as a line of a summary; nothing where none does.

    Args:
        bundle: the model.
        taken: the networks that count; None for all.
    """
    of = [name for name in bundle.contexts if taken is None or f"encoder/{name}" in taken]
    if bundle.context is None or not of:
        return {}
    return {"looks at": context.described(bundle.context.nearest, bundle.context.larger, of)}


def _print(out: Path, translator: Translator, figures: Mapping[str, Mapping[str, Any]]) -> None:
    worst = max(entry["parity_deviation"] for entry in figures.values())
    console.figures(
        str(out),
        {
            "joint space": translator.space_id or "none (pair networks)",
            "parity": f"off by {worst:.2g} (at most {PARITY_TOLERANCE:g})",
            "size": f"{sum(entry['megabytes'] for entry in figures.values()):.3f} MB",
            **looks_at(translator.bundle, {name for entry in figures.values() for name in entry["networks"]}),
        },
    )
    rows = []
    for name, entry in figures.items():
        widths = [entry[end]["width"] for end in ("source", "target")]
        rows.append((name, *widths, entry["megabytes"], f"{entry['parity_deviation']:.1e}"))
    console.table("files", ("file", "values in", "out", "MB", "deviation"), rows)
