"""The stage `xdesc translate`: descriptors of one type -> another type, or embeddings.

In: a feature file (.h5) or an array (.npy), and a model file. Out: a file of the same format with translated
rows in their stored form; a feature file keeps keypoints, scales, orientations, `valid` and row order. Rows
stream through, so a file may be larger than memory. Runs on the base install.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console, pretrained
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.files import already_done, atomic, config_hash, content_hash, read_json, write_json
from xdesc_jax.infer import Stream, Translator, ZeroRowsWarning
from xdesc_jax.ratios import origin
from xdesc_jax.store import FeatureStore, StoreWriter, found_hash

ROWS = 65536  # rows of an array translated between two steps of the progress bar
FORMATS = (".h5", ".npy")
# Attributes of a feature file that describe its descriptors, and so do not pass to the translated file.
OWN_ATTRIBUTES = ("spec", "spec_json", "bits", "origin", "version", "config_hash")


def translate(
    features: Path,
    out: Path,
    *,
    target: str,
    model: Path,
    source: str | None = None,
    packed: bool = False,
    overwrite: bool = False,
) -> Path:
    """Descriptors -> another type, or the joint space.

    Args:
        features: feature file (.h5) or array (.npy, [N, D]).
        out: file to write, of the same format.
        target: descriptor to make, or 'embedding'.
        model: model file (.safetensors), or the name of one that ships with the package (see `xdesc models`).
        source: descriptor that `features` holds; may be left out where the file says so.
        packed: the array holds packed bits (feature files always do).
        overwrite: replace a result made with other settings.

    Returns:
        `out`; a summary lies beside it as `<out>.json`.

    Raises:
        FileNotFoundError: no such features, or no model of that path or name.
        ValueError: formats, names, widths or values that do not fit.
        FileExistsError: `out` was made with other settings and `overwrite` is off.
    """
    features, out = Path(features), Path(out)
    _check_paths(features, out)
    model = pretrained.resolve(model)
    translator = Translator.load(model)
    source = _source(features, source, translator)
    spec = translator.spec(source)
    packed = spec.binary if features.suffix == ".h5" else packed
    config = {
        "stage": "translate",
        "features": content_hash(features),
        "model": content_hash(model),
        "source": spec.name,
        "target": translator.spec(target).name,
        "packed": packed,
    }
    stream = translator.stream(source, target, packed=packed, storage=True)
    expected, summary = config_hash(config), out.with_name(out.name + ".json")
    if already_done(out, _found_hash(out, summary), expected, overwrite) and summary.exists():
        console.out.print(f"{out} is up to date", markup=False)
        return out
    console.settings(f"xdesc translate -> {out}", {"features": features, "model": model, **config, "hash": expected})
    start = time.perf_counter()
    if features.suffix == ".h5":
        attributes = {"config_hash": expected, "model": model.name}
        counts = _translate_store(features, out, stream, attributes, translator.bundle.ratios, summary)
    else:
        counts = _translate_array(features, out, stream, summary)
    _summarise(summary, stream, counts, config, time.perf_counter() - start)
    return out


def _check_paths(features: Path, out: Path) -> None:
    if not features.exists():
        raise FileNotFoundError(f"{features}: no such file")
    for path in (features, out):
        if path.suffix not in FORMATS:
            raise ValueError(f"{path}: is a {path.suffix or 'nameless'} file, expected one of {FORMATS}")
    if features.suffix != out.suffix:
        raise ValueError(f"{out}: {features} is a {features.suffix} file, so the output must be one, too")
    if features.resolve() == out.resolve():
        raise ValueError(f"{out}: is the input itself")


def _source(features: Path, source: str | None, translator: Translator) -> str:
    """The source's name, checked against what the file says and holds."""
    spec = translator.spec(source) if source is not None else None
    if features.suffix == ".npy":
        if spec is None:
            raise ValueError(f"{features}: an array does not say which descriptor it holds; pass --source")
        return spec.name
    with FeatureStore(features, spec) as store:
        found, expected = store.spec, _known(features, store.spec.name, translator)
        if (found.width, found.kind) != (expected.width, expected.kind):
            raise ValueError(
                f"{features}: its {found.name!r} is {found.kind} of width {found.width}, "
                f"but the model has {translator.describe()}"
            )
        for name in store.names[:1]:
            try:
                store.read(name)
            except ValueError as error:
                raise ValueError(f"{error}; the model has {translator.describe()}") from error
        return found.name


def _known(features: Path, name: str, translator: Translator) -> DescriptorSpec:
    try:
        return translator.spec(name)
    except ValueError as error:
        raise ValueError(f"{features} holds {name!r}, which the model cannot take: {error}") from error


def _found_hash(out: Path, summary: Path) -> str | None:
    if not out.exists():
        return None
    if out.suffix == ".h5":
        return found_hash(out)
    return read_json(summary).get("config_hash") if summary.exists() else None


# The old result and its summary stay until the new one is complete. Then the summary goes first: it must not
# vouch for a file that it does not describe.


def _translate_store(
    features: Path,
    out: Path,
    stream: Stream,
    attributes: dict[str, Any],
    ratios: dict[str, float],
    summary: Path,
) -> dict[str, int]:
    """Translates photo by photo; returns counts for the summary."""
    invalid = 0
    with FeatureStore(features, stream.source) as store:
        kept = {k: v for k, v in store.attributes.items() if k not in OWN_ATTRIBUTES}
        kept |= origin(store, stream.target, ratios)
        with StoreWriter(out, stream.target, kept | attributes) as writer:
            for name in console.track(store.names, "translate", "photo"):
                photo = store.read(name)
                rows = np.where(photo.valid[:, None], photo.descriptors, 0)
                translated = stream(rows, where=f"{features}: {name!r}")
                writer.write(name, dataclasses.replace(photo, descriptors=translated))
                invalid += int((~photo.valid).sum())
            summary.unlink(missing_ok=True)
        return {"photos": len(store), "invalid_rows": invalid}


def _translate_array(features: Path, out: Path, stream: Stream, summary: Path) -> dict[str, int]:
    """Translates an array through memory maps; returns counts for the summary."""
    try:
        x = np.lib.format.open_memmap(features, mode="r")  # unlike np.load, takes no .npz or pickle
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{features}: not a readable .npy array, or cut short ({error})") from error
    if not x.ndim:
        raise ValueError(f"{features}: holds a single value, expected an array [N, D]")
    spec = stream.target
    with atomic(out) as temporary:
        shape = (len(x), spec.stored_width)
        y = np.lib.format.open_memmap(temporary, mode="w+", dtype=spec.stored_dtype, shape=shape)
        for start in console.track(range(0, max(len(y), 1), ROWS), "translate", f"x {ROWS} rows"):
            stop = start + ROWS
            stream(x[start:stop], out=y[start:stop], where=str(features), first_row=start)
        y.flush()
        del y
        summary.unlink(missing_ok=True)
    return {"invalid_rows": 0}


def _summarise(path: Path, stream: Stream, counts: dict[str, int], config: dict[str, Any], seconds: float) -> None:
    zero = stream.zero_rows - counts["invalid_rows"]
    figures = {**counts, "rows": stream.rows, "zero_rows": zero, "seconds": round(seconds, 3)}
    warnings = [text for category, text in stream.findings() if category is not ZeroRowsWarning]
    if zero:
        warnings.insert(0, f"{zero} of {stream.rows} rows are zero though valid; they stay zero")
    for text in warnings:
        console.warn(text)
    summary = {"config": config, "config_hash": config_hash(config), **figures, "warnings": warnings}
    write_json(path, summary)
    rate = stream.rows / seconds if seconds > 0 else 0.0
    console.table(
        f"{config['source']} -> {config['target']}",
        ("", "value"),
        [
            *((key.replace("_", " "), value) for key, value in figures.items()),
            ("rows per second", round(rate)),
        ],
    )
