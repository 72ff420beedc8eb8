"""What a path is, in a few words and without reading more than its beginning.

In: a file or folder. Out: such as 'feature file of sift' or 'folder of 12 photos'.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from xdesc_jax.console.words import counted
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.images import SUFFIXES
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.files.tensors import LENGTH_BYTES
from xdesc_jax.matching.global_features import GlobalFeatures, hold_global
from xdesc_jax.matching.matches import MatchFile

NOT_SAID = DescriptorSpec("not-said", 1)  # stands in for what a file does not say
SQLITE, HDF5, ZIP = b"SQLite format 3\0", b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
STARTS = {
    b"\x1f\x8b": "a gzip archive", b"PK": "a zip archive (.npz, .pth)", b"\x93NUMPY": "a numpy array",
    b"\xff\xd8": "a JPEG photo", b"\x89PNG": "a PNG photo", b"%PDF": "a PDF", b"\x7fELF": "a program",
}  # fmt: skip
_FOLDERS = {  # a file that tells what a folder is
    "records.json": "records folder", "sweep.json": "sweep", "config.json": "run directory",
    "images.bin": "COLMAP model", "images.txt": "COLMAP model",
}  # fmt: skip


def kind(path: Path) -> str:
    """What there is at a path that exists."""
    if path.is_dir():
        return _folder(path)
    with path.open("rb") as file:
        start = file.read(32)
    if start.startswith(SQLITE):
        return "database"
    if start.startswith(HDF5):
        return _hdf5(path)
    if is_safetensors(start):
        return "model or weight file"
    known = next((text for magic, text in STARTS.items() if start.startswith(magic)), None)
    return known.removeprefix("a ") if known else "text" if is_text(start) else "file"


def is_safetensors(start: bytes) -> bool:
    """Whether the first 32 bytes are those of a .safetensors file."""
    return start[LENGTH_BYTES : LENGTH_BYTES + 1] == b"{" and len(start) > LENGTH_BYTES


def is_text(start: bytes) -> bool:
    """Whether all of these bytes are printed characters of ASCII."""
    return all(32 <= byte < 127 or byte in b"\t\r\n" for byte in start)


def _folder(path: Path) -> str:
    for name, text in _FOLDERS.items():
        if (path / name).exists():
            return text
    photos = sum(1 for file in path.rglob("*") if file.suffix.lower() in SUFFIXES)
    return f"folder of {counted(photos, 'photo')}" if photos else "folder"


def _hdf5(path: Path) -> str:
    with contextlib.suppress(ValueError), FeatureStore(path, fallback=NOT_SAID) as store:
        if store.names:
            held = f" of {store.spec.name}" if store.says_spec else ""
            return f"feature file{held}, {counted(len(store), 'photo')}"
    with contextlib.suppress(ValueError), MatchFile(path) as matches:
        if pairs := len(matches.pairs()):
            return f"match file, {counted(pairs, 'pair')}"
    with contextlib.suppress(ValueError):
        if hold_global([path]):
            return f"file of global features, {counted(len(GlobalFeatures([path]).names), 'photo')}"
    return "HDF5 file"
