"""The HPatches patches as they are released, and their descriptors.

In: the folder `hpatches-release`: a folder a sequence (i_* under changing light, v_* from changing places), each with
`ref.png`, `e1.png` ... `e5.png`, `h1` ... `h5`, `t1` ... `t5`: columns of N patches of 65x65 px, row k of all of the
same place, with little (e), more (h) and much (t) jitter. Out: patches of 32x32 px, and descriptors of a sequence as
one array, kept on disk.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.console.words import counted
from xdesc_jax.evaluate.benchmarks.protocol import Checked, fingerprint
from xdesc_jax.files.whole import atomic

NOISE = {"e": "easy", "h": "hard", "t": "tough"}
STRIPS = ("ref", *(f"{noise}{k}" for noise in NOISE for k in range(1, 6)))
KINDS = {"i_": "illumination", "v_": "viewpoint"}
SIDE_PX, PATCH_PX = 65, 32
CONTRAST = 10.0  # gray levels; patches of less are not retrieved
_PNG = b"\x89PNG\r\n\x1a\n"


@functools.cache
def facts() -> dict[str, Any]:
    """What is known of the official set: test sets of the splits, least numbers of patches, large sequences."""
    found: dict[str, Any] = json.loads((Path(__file__).parent / "hpatches.json").read_text(encoding="utf-8"))
    return found


def kind_of(name: str) -> str:
    """What changes in a sequence, by its name: 'illumination' (i_*), 'viewpoint' (v_*), or 'other'."""
    return KINDS.get(name[:2], "other")


def splits() -> dict[str, list[str]]:
    """Split -> the sequences that it is measured on."""
    found: dict[str, list[str]] = facts()["splits"]
    return found


def check(root: Path) -> Checked:
    """What a folder of patches holds (see `protocol.Checked`)."""
    root = next((f for f in (root, root / "hpatches-release") if f.is_dir() and sequences(f)), root)
    counts, problems = {}, []
    for name in sequences(root):
        heights = {}
        for strip in STRIPS:
            path = root / name / f"{strip}.png"
            if not path.is_file():
                problems.append(f"{name}/{strip}.png is missing")
                continue
            width, height = png_size(path)
            if width != SIDE_PX or height < SIDE_PX or height % SIDE_PX:
                problems.append(f"{name}/{strip}.png is {width}x{height} px, expected {SIDE_PX} x a multiple of it")
            else:
                heights[strip] = height
        if len(set(heights.values())) > 1:
            numbers = ", ".join(f"{strip} {height // SIDE_PX}" for strip, height in heights.items())
            problems.append(f"{name} has strips of different numbers of patches ({numbers})")
        counts[name] = heights.get("ref", 0) // SIDE_PX
        if counts[name] == 1:
            problems.append(f"{name} has one patch, expected two at least")
    if len(counts) < 2:
        problems.append(f"{len(counts)} sequences (folders with ref.png, e1.png ... t5.png) found, expected 2 at least")
    official, least = set(splits()["full"]), facts()["least_patches"]
    missing, further = sorted(official - set(counts)), sorted(set(counts) - official)
    other = []
    if missing:
        other.append(f"{len(missing)} of {len(official)} sequences are not there, first {missing[0]}")
    if further:
        other.append(f"{len(further)} sequences are none of the set, first {further[0]}")
    if small := [name for name, count in least.items() if 0 < counts.get(name, 0) < count]:
        other.append(f"{small[0]} has {counts[small[0]]} patches, where the set has {least[small[0]]} at least")
    places = sum(counts.values())
    text = f"{counted(len(counts), 'sequence')}, {places:,} places, {places * len(STRIPS):,} patches"
    files = [] if problems else [root / name / f"{strip}.png" for name in counts for strip in STRIPS]
    return Checked(root, text, tuple(problems), tuple(other), fingerprint(files, root) if files else "")


def sequences(root: Path) -> list[str]:
    """Names of the folders that hold strips, sorted."""
    return sorted(f.name for f in root.iterdir() if f.is_dir() and any((f / f"{s}.png").is_file() for s in STRIPS))


def png_size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG, from its head; (0, 0) of what is none."""
    with path.open("rb") as file:
        head = file.read(24)
    if len(head) < 24 or not head.startswith(_PNG):
        return 0, 0
    width, height = struct.unpack(">II", head[16:24])
    return int(width), int(height)


def count(root: Path, name: str) -> int:
    """Patches of a strip of a sequence."""
    return png_size(root / name / "ref.png")[1] // SIDE_PX


def read_strip(path: Path) -> np.ndarray:
    """The patches of a strip, gray uint8 [N, 65, 65].

    Raises:
        UnreadablePhoto: the file is damaged.
        ValueError: it is no column of patches.
    """
    from xdesc_jax.features.images import read_gray

    gray = read_gray(path, max_side_px=1 << 30)
    if gray.shape[1] != SIDE_PX or len(gray) % SIDE_PX:
        raise ValueError(f"{path}: is {gray.shape[1]}x{len(gray)} px, expected {SIDE_PX} x a multiple of it")
    return gray.reshape(-1, SIDE_PX, SIDE_PX)


def textured(root: Path, name: str) -> np.ndarray:
    """[N] bool: whose reference patch has contrast."""
    patches = read_strip(root / name / "ref.png")
    return np.asarray(patches.reshape(len(patches), -1).std(axis=1, dtype=np.float32) > CONTRAST)


def resized(patches: np.ndarray) -> np.ndarray:
    """uint8 [N, 65, 65] -> uint8 [N, 32, 32], bilinear, as the authors of HardNet describe these patches."""
    import cv2

    small = np.empty((len(patches), PATCH_PX, PATCH_PX), np.uint8)
    for patch, out in zip(patches, small, strict=True):
        cv2.resize(patch, (PATCH_PX, PATCH_PX), dst=out, interpolation=cv2.INTER_LINEAR)
    return small


def described(
    root: Path, name: str, folder: Path, descriptor: str, weights: Mapping[str, Path | str] | None = None
) -> np.ndarray:
    """Descriptors of all strips of a sequence; computed once, and kept.

    Args:
        root: of the patches.
        name: the sequence.
        folder: for the rows, `<name>.npy`.
        descriptor: a registered one that is computed from patches.
        weights: descriptor -> weight file.

    Returns:
        [16, N, stored_width] in the stored form, strips in the order of `STRIPS`; mapped from the file.
    """
    path = folder / f"{name}.npy"
    if not path.is_file():
        from xdesc_jax.features.describe import describe_patches

        strips = [resized(read_strip(root / name / f"{strip}.png")) for strip in STRIPS]
        if len({len(strip) for strip in strips}) > 1:
            raise ValueError(f"{root / name}: strips of {[len(strip) for strip in strips]} patches, expected as many")
        rows = describe_patches([descriptor], np.concatenate(strips), weights)[descriptor]
        with atomic(path) as temporary, temporary.open("wb") as file:
            np.save(file, rows.reshape(len(STRIPS), -1, rows.shape[1]))
    found: np.ndarray = np.load(path, mmap_mode="r")
    return found


def names_of(split: str, root: Path) -> Sequence[str]:
    """The sequences of a split that a folder holds; of 'full' all that there are.

    Raises:
        ValueError: no such split, or fewer than two of its sequences.
    """
    there = sequences(root)
    if split not in splits():
        raise ValueError(f"no split is called {split!r}, expected one of {', '.join(splits())}")
    if split == "full":
        return there
    kind = {"illum": "i_", "view": "v_"}.get(split)
    found = [name for name in there if (name.startswith(kind) if kind else name in splits()[split])]
    if len(found) < 2:
        raise ValueError(f"{root}: holds {len(found)} sequences of split {split!r}, expected 2 at least")
    return found
