"""The stage `xdesc inspect`: what a file holds.

In: a COLMAP database, a feature file, a match file, a file of global features, a model file, or the folder of a COLMAP
model. Out: a description, printed and as JSON. Reads no more than it must, and changes nothing. Runs on the base
install.
"""

from __future__ import annotations

import collections
import contextlib
import json as json_text
import re
from pathlib import Path
from typing import Any

from xdesc_jax import console, pretrained
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.files.tensors import read_header
from xdesc_jax.files.whole import write_json
from xdesc_jax.inspection import contents
from xdesc_jax.inspection.kinds import HDF5, SQLITE, STARTS, ZIP, is_safetensors, is_text
from xdesc_jax.matching.global_features import GlobalFeatures, hold_global
from xdesc_jax.matching.matches import MatchFile
from xdesc_jax.networks import context
from xdesc_jax.pretrained import hub
from xdesc_jax.translation import bundle, copies
from xdesc_jax.translation.ratios import RATIOS, TRANSLATED_FROM, parse
from xdesc_jax.translation.translator import Translator

_NOT_SAID = "not said"


def inspect(path: Path, *, images: bool = False, json: Path | None = None) -> dict[str, Any]:
    """Says what a file holds: images, keypoints, descriptors, matches, schema, or a model's descriptors.

    Args:
        path: COLMAP database, feature file, match file, file of global features, model file (or the name of a shipped
            one), or folder of a COLMAP model.
        images: list every image, too.
        json: file to write the description to, with every image.

    Returns:
        The description.

    Raises:
        FileNotFoundError: no such file.
        ValueError: of no kind that is known, or damaged.
    """
    path = Path(path)
    if not path.exists():
        path = pretrained.find(str(path)) or hub.find(path) or path
    with console.status(f"reading {path}"):
        found = {"path": str(path), **_describe(path)}
    if json is not None:
        write_json(json, found)
    listed = found.get("image_list") or []
    if not images:
        found.pop("image_list", None)
    _print(found, listed if images else [])
    if json is not None:
        console.result(json)
    return found


def _describe(path: Path) -> dict[str, Any]:
    if path.is_dir():
        return contents.model_folder(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file, nor a model of that name that ships with the package")
    with path.open("rb") as file:
        start = file.read(32)
    size = {"bytes": path.stat().st_size}
    if start.startswith(SQLITE):
        return {"kind": "COLMAP database", **size, **contents.database(path)}
    if start.startswith(HDF5):
        return {**_hdf5(path), **size}
    if is_safetensors(start):
        return {**_safetensors(path), **size}
    if start.startswith(ZIP) and path.suffix == ".npz":
        return {**_translator(path), **size}
    kind = next((text for magic, text in STARTS.items() if start.startswith(magic)), None)
    if kind is None:
        kind = "an empty file" if not start else "text" if is_text(start) else f"a file that begins with {start[:8]!r}"
    raise ValueError(
        f"{path}: is {kind}, expected a COLMAP database, a feature or match file (.h5), a model file (.safetensors, "
        ".npz) or the folder of a COLMAP model"
    )


# --- Feature and match files -------------------------------------------------------------------------------


def _hdf5(path: Path) -> dict[str, Any]:
    # The name stands in only where the file does not say one.
    with FeatureStore(path, fallback=DescriptorSpec("unknown", 1)) as store:
        if store.names or store.says_spec:
            return _features(store, said=store.says_spec)
    if hold_global([path]):
        return _global(GlobalFeatures([path]))
    with MatchFile(path) as matches:
        return _matches(matches)


def _global(features: GlobalFeatures) -> dict[str, Any]:
    return {
        "kind": "file of global features",
        "images": len(features.names),
        "values_of_a_vector": features.vectors.shape[1],
        "vectors_of_zeros": int((~features.vectors.any(axis=1)).sum()),
        "image_list": [{"name": name} for name in features.names],
    }


def _features(store: FeatureStore, said: bool) -> dict[str, Any]:
    counts, invalid, forms, listed = {}, 0, collections.Counter[str](), []
    for name in store.names:
        counts[name] = store.count(name)
        forms[", ".join(["keypoints", *store.frames(name)])] += 1
        invalid += store.invalid(name)
        listed.append({"name": name, "keypoints": counts[name], "descriptors": store.stored_form(name)})
    origin = store.attributes.get(TRANSLATED_FROM)
    forms_of = collections.Counter(item["descriptors"] for item in listed)
    return {
        "kind": "feature file",
        "descriptor": store.spec.to_dict() if said else None,
        "descriptors": [
            {
                "spec": store.spec.name if said else _NOT_SAID,
                "stored": form,
                "translated_from": None if origin is None else str(origin),
                "images": n,
                "rows": sum(item["keypoints"] for item in listed if item["descriptors"] == form),
            }
            for form, n in sorted(forms_of.items())
        ],
        "images": len(store),
        "keypoints": contents.spread(list(counts.values())),
        "keypoint_columns": dict(forms),
        "rows_not_valid": invalid,
        "images_without_keypoints": sum(n == 0 for n in counts.values()),
        "ratios": parse(store.attributes.get(RATIOS), store.path),
        "attributes": {k: _plain(v) for k, v in store.attributes.items() if k not in ("spec_json", RATIOS)},
        "image_list": listed,
    }


def _matches(file: MatchFile) -> dict[str, Any]:
    try:
        pairs = file.pairs()
        counts = [len(file.indices(a, b)) for a, b in pairs]
    except (KeyError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{file.path}: an HDF5 file, but neither features nor matches nor global features of photos ({error})"
        ) from error
    return {
        "kind": "match file" if pairs else "empty HDF5 file",
        "images": len({name for pair in pairs for name in pair}),
        "pairs": len(pairs),
        "pairs_without_matches": counts.count(0),
        "matches": contents.spread(counts),
        "attributes": {k: _plain(v) for k, v in file.attributes.items()},
        "image_list": [{"pair": list(pair), "matches": n} for pair, n in zip(pairs, counts, strict=True)],
    }


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value if isinstance(value, (int, float)) else str(value)


# --- Models ------------------------------------------------------------------------------------------------


def _safetensors(path: Path) -> dict[str, Any]:
    entries, tensors = read_header(path)
    if entries.get("format") != bundle.FORMAT:
        return {"kind": "weight file", "tensors": len(tensors), "attributes": entries}
    return _translator(path)


def _translator(path: Path) -> dict[str, Any]:
    translator = Translator.load(path)
    model = translator.bundle
    try:
        order = list(translator.order())
    except ValueError:
        order = None
    return {
        "kind": "translator",
        "networks": model.kind,
        "space_id": model.space_id,
        "embedding_width": model.embedding_width,
        "frame": model.frame,
        **({"context": {**form, "of": sorted(model.contexts)}} if (form := bundle.form_of(model.context)) else {}),
        **({"weights": told} if (told := copies.described(model)) else {}),
        **({"encoders": f"learnt from model {of['model']}"} if (of := model.provenance.get("distilled")) else {}),
        "descriptors": [
            {
                "spec": spec.name,
                "kind": spec.kind,
                "width": spec.width,
                "frame": spec.frame,
                "source": any(n == f"encoder/{name}" or n.startswith(f"pair/{name}/") for n in model.networks),
                "target": any(
                    n == f"decoder/{name}" or n.endswith(f"/{name}") and n.startswith("pair/") for n in model.networks
                ),
            }
            for name, spec in model.specs.items()
        ],
        "parameters": sum(k.size + b.size for layers in model.weights().values() for k, b in layers),
        "order": order,
        "ratios": model.ratios,
        "provenance": model.provenance,
        "config": model.config,
    }


# --- Printing ----------------------------------------------------------------------------------------------


def _print(found: dict[str, Any], listed: list[dict[str, Any]]) -> None:
    """Figures of what there is, a table of descriptors, one of images; hashes are for programs, and for --json."""
    long = (
        "path",
        "kind",
        "context",
        "descriptors",
        "descriptor",
        "ratios",
        "provenance",
        "config",
        "attributes",
        "image_list",
        "damaged",
    )
    told = {k: _short(v, k) for k, v in found.items() if k not in long}
    if (looks := found.get("context")) is not None:
        told["looks_at"] = context.described(looks["nearest"], looks["larger"], looks["of"])
    console.figures(f"{found['path']}: {found['kind']}", told)
    if found.get("descriptors"):
        _print_rows("descriptors", found["descriptors"])
    for key in ("attributes", "provenance"):
        told = {name: _parsed(value) for name, value in found.get(key, {}).items() if not _is_hash(name, value)}
        plain = {name: _short(value, name) for name, value in told.items() if key == "attributes" or _is_plain(value)}
        if plain:
            console.figures(key, plain)
    if found.get("ratios"):
        console.table("ratios", ("rows", "ratio"), sorted(found["ratios"].items()))
    for text in found.get("damaged", []):
        console.warn(text)
    if listed:
        _print_rows("images", listed)


def _print_rows(title: str, rows: list[dict[str, Any]]) -> None:
    columns = list(rows[0])
    console.table(title, [c.replace("_", " ") for c in columns], [[_short(r.get(c)) for c in columns] for r in rows])


def _is_hash(name: str, value: Any) -> bool:
    return "hash" in name or (isinstance(value, str) and re.fullmatch("[0-9a-f]{12,64}", value) is not None)


def _is_plain(value: Any) -> bool:
    return not isinstance(value, (dict, list))


def _parsed(value: Any) -> Any:
    """An attribute that holds JSON."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        with contextlib.suppress(ValueError):
            return json_text.loads(value)
    return value


def _short(value: Any, name: str = "") -> str:
    if value is None:
        return "-"
    if "version" in name:  # a number to be told apart, not to be read as a quantity
        return str(value)
    return console.shown(value) if value not in ({}, [], ()) else "-"
