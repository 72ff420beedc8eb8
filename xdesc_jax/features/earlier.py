"""What the files of a folder were made by, one or several extractions, and how that differs from what is asked for.

In: a folder with its `extract.json`, and settings. Out: the differences as people read them, and a refusal where the
files of one folder would have different keypoints.

`extract.json` describes the latest extraction, and under `files` what each file was made by, with the same entries.
Those of version 1 have no more than the names and hashes of the latest extraction's files there.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from xdesc_jax import console
from xdesc_jax.descriptors import get_entry, get_spec, registered
from xdesc_jax.features.photo import ExtractSettings
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.files.fields import differences
from xdesc_jax.files.whole import already_done, read_json

SUMMARY = "extract.json"
MASKING = ("photo", "network")  # what `valid` depends on besides patches
_KEYPOINTS = ("keypoints", "max_keypoints", "first_octave", "nms")


def check_keypoints(out: Path, settings: ExtractSettings, overwrite: bool) -> None:
    """All feature files of a folder have the same rows: raises where those that stay were made at other keypoints.

    Keypoints of a file are not compared: they may be those of the folder itself.

    Args:
        out: the folder.
        settings: what is extracted into it.
        overwrite: warn alone.

    Raises:
        FileExistsError: says the other files, and which settings differ.
    """
    summary, others = _summary(out), dict[str, list[str]]()
    for name in registered():
        if name in settings.descriptors or not (out / f"{name}.h5").exists():
            continue
        found = _settings(_made(summary, name))
        if found is None or settings.given or found.given:
            continue
        if what := _told(_of_keypoints(found), _of_keypoints(settings)):
            others.setdefault(what, []).append(f"{name}.h5")
    for what, files in others.items():
        if not overwrite:
            raise FileExistsError(
                f"{out}: its files ({', '.join(files)}) were made with other keypoints ({what}), and all files of a "
                "folder have the same rows; choose another output or pass --overwrite"
            )
        console.warn(f"{out}: {', '.join(files)} stay as they are, with keypoints of other settings ({what})")


def recorded_files(out: Path) -> dict[str, dict[str, Any]]:
    """Descriptor -> what its file was made by, of those files of the folder of which `extract.json` tells."""
    summary = _summary(out)
    names = [name for name in _files(summary) if (out / f"{name}.h5").exists()]
    return {name: _made(summary, name) for name in names}


def finished(out: Path, name: str, expected: str, overwrite: bool, settings: ExtractSettings, photos: int) -> bool:
    """Whether the file of a descriptor is there, of this very configuration; a damaged one is made again.

    Args:
        out: the folder.
        name: the descriptor.
        expected: hash of the configuration that is asked for.
        overwrite: make it anew in either case.
        settings: that are asked for, to tell how they differ.
        photos: number of the photos that are there.

    Raises:
        FileExistsError: it was made with another configuration and `overwrite` is off; says what differs.
    """
    path, found = out / f"{name}.h5", None
    if path.exists() and not overwrite:
        try:
            with FeatureStore(path, get_spec(name)) as store:
                found = store.attributes.get("config_hash")
        except ValueError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            console.warn(f"{error}; it is made again")
            return False
    differs = partial(_difference, out, name, found, settings, photos)
    return already_done(path, found, expected, overwrite, differs=differs)


def _difference(out: Path, name: str, found_hash: str | None, settings: ExtractSettings, photos: int) -> str:
    """How the settings differ from those that a file was made with, as 'max_keypoints: 500 -> 1000'; '' where the
    summary does not tell of it."""
    made = _made(_summary(out), name)
    found = _settings(made)
    if found is None or made.get("config_hash") != found_hash:
        return ""
    told = _told(_decisive(found, name), _decisive(settings, name))
    if not told and (before := made.get("photos", 0) + len(made.get("skipped", ()))) != photos:
        told = f"photos: {before} -> {photos}"
    return told or "other content of photos, weights or given keypoints"


def _summary(out: Path) -> dict[str, Any]:
    try:
        found = read_json(out / SUMMARY)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _files(summary: dict[str, Any]) -> dict[str, Any]:
    found = summary.get("files")
    return found if isinstance(found, dict) else {}


def _made(summary: dict[str, Any], name: str) -> dict[str, Any]:
    """What a descriptor's file was made by; what is not told of it alone is told of the latest extraction."""
    own = _files(summary).get(name)
    own = own if isinstance(own, dict) else {}
    latest = {key: value for key, value in summary.items() if key not in ("version", "files")}
    return own if "settings" in own else latest | own


def _settings(made: dict[str, Any]) -> ExtractSettings | None:
    """The settings that something was made by; None where there are none, or none of this version."""
    try:
        return ExtractSettings(**made["settings"])
    except (KeyError, TypeError, ValueError):
        return None


def _told(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Differences of the settings that both have: those of one detector mean nothing to another."""
    return "; ".join(differences({k: old[k] for k in old if k in new}, {k: new[k] for k in new if k in old}))


def _of_keypoints(settings: ExtractSettings) -> dict[str, Any]:
    fields = {name: getattr(settings, name) for name in _KEYPOINTS}
    if settings.keypoints != "colmap":
        del fields["first_octave"]
    if settings.detector is not None:
        fields["network_side"] = settings.network_side
    return fields


def _decisive(settings: ExtractSettings, name: str) -> dict[str, Any]:
    """Those settings that the file of a descriptor depends on."""
    of_mask = [other for other in settings.descriptors if get_entry(other).source in MASKING]
    fields = _of_keypoints(settings) | {"network_side": settings.network_side if settings.networks else None}
    weights = {n: str(file) for n, file in settings.weights.items() if n in (name, settings.detector)}
    return fields | {"descriptors": " ".join(sorted({name, *of_mask})), "weights": weights}
