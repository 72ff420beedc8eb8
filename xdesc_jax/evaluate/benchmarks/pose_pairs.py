"""Lists of photo pairs with intrinsics and relative poses, as SuperGlue's authors publish them.

In: a text of 38 fields a line: `name0 name1 rot0 rot1`, K0 and K1 (3x3 each, row by row), T (4x4, row by row), which
takes points of camera 0 to camera 1. Out: the pairs. `rot` counts quarter turns that a photo would have to be turned
by; K, T and all positions are of the photos as their files hold them, so it is not applied.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from xdesc_jax.colmap.model import Pose
from xdesc_jax.console.words import counted
from xdesc_jax.evaluate.benchmarks.protocol import Checked, fingerprint

FIELDS = 38
PAIRS = 1500
# Of the two published sets: what their photos' names begin with.
SETS = {
    "ScanNet-1500": re.compile(r".*scene0(70[7-9]|7[1-9][0-9]|80[0-6])_0[0-9][/_]"),
    "MegaDepth-1500": re.compile(r"(.*/)?00(15|22)/"),
}
_FOLDERS = ("", "images", "scannet_test_images", "scannet_test_1500", "megadepth_test_1500")
_Pair = TypeVar("_Pair")
_ROTATION = 1e-2  # how far T's rotation may be from one; the lists have few digits


@dataclasses.dataclass(frozen=True)
class PosedPair:
    """Two photos, their intrinsics [3, 3], and the pose of camera 1 to camera 0's points."""

    name0: str
    name1: str
    k0: np.ndarray
    k1: np.ndarray
    pose: Pose


def read_list(path: Path) -> list[PosedPair]:
    """The pairs of a list.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a line of another number of fields, or whose numbers are no intrinsics or pose; or no pair.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such list of pairs")
    pairs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.strip():
            pairs.append(_pair(f"{path}, line {number}", line.split()))
    if not pairs:
        raise ValueError(f"{path}: holds no pair")
    return pairs


def _pair(where: str, fields: Sequence[str]) -> PosedPair:
    if len(fields) != FIELDS:
        raise ValueError(f"{where}: has {len(fields)} fields, expected {FIELDS}: name0 name1 rot0 rot1 K0 K1 T")
    try:
        numbers = np.array([float(text) for text in fields[2:]])
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    if not np.isfinite(numbers).all():
        raise ValueError(f"{where}: holds a number that is not finite")
    k0, k1, pose = numbers[2:11].reshape(3, 3), numbers[11:20].reshape(3, 3), numbers[20:].reshape(4, 4)
    for name, k in (("K0", k0), ("K1", k1)):
        if not (k[0, 0] > 0 and k[1, 1] > 0 and (k[2] == (0, 0, 1)).all() and k[0, 1] == k[1, 0] == 0):
            raise ValueError(f"{where}: {name} is {k.tolist()}, expected fx 0 cx, 0 fy cy, 0 0 1")
    rotation = pose[:3, :3]
    off = np.abs(rotation @ rotation.T - np.eye(3)).max()
    if off > _ROTATION or np.linalg.det(rotation) < 0 or not np.allclose(pose[3], (0, 0, 0, 1)):
        raise ValueError(f"{where}: T is {pose.tolist()}, expected a rotation and a translation")
    return PosedPair(fields[0], fields[1], k0, k1, Pose(rotation, pose[:3, 3]))


def orders(pairs: Iterable[_Pair], names: Iterable[tuple[str, str]]) -> list[list[_Pair]]:
    """The pairs, and apart from them those whose photos an earlier one has in the other order, where there are some.

    A file of matches holds two photos once, while each order has descriptors of its own where photos 0 and 1 differ.

    Args:
        pairs: of photos, in any form.
        names: of photos 0 and 1 of each.
    """
    seen: set[tuple[str, str]] = set()
    first: list[_Pair] = []
    turned: list[_Pair] = []
    for pair, (a, b) in zip(pairs, names, strict=True):
        if (b, a) in seen:
            turned.append(pair)
        else:
            seen.add((a, b))
            first.append(pair)
    return [group for group in (first, turned) if group]


def find_list(root: Path) -> Path | None:
    """The list in a folder: its only text whose first line has as many fields; the first by name of several."""
    for path in sorted(root.glob("*.txt")):
        with path.open(encoding="utf-8", errors="replace") as file:
            if len(file.readline().split()) == FIELDS:
                return path
    return None


def photos_of(root: Path, pairs: Sequence[PosedPair]) -> Path:
    """The folder that the names of a list are relative to."""
    return next((root / f for f in _FOLDERS if (root / f / pairs[0].name0).is_file()), root)


def check(root: Path, listed: Path | None = None) -> Checked:
    """What a folder of posed pairs holds (see `protocol.Checked`).

    Args:
        root: with the photos, and with the list unless that is given.
        listed: the list.
    """
    path = listed or find_list(root)
    if path is None:
        return Checked(root, "no list", (f"no list of pairs (a .txt of {FIELDS} fields a line) found",))
    try:
        pairs = read_list(path)
    except ValueError as error:
        return Checked(root, "a list that cannot be read", (str(error),))
    photos = photos_of(root, pairs)
    names = sorted({name for pair in pairs for name in (pair.name0, pair.name1)})
    problems = tuple(f"{name} is missing" for name in names if not (photos / name).is_file())
    found = next((title for title, begins in SETS.items() if all(begins.match(name) for name in names)), None)
    other = []
    if found is None:
        other.append(f"the names are none of {' or '.join(SETS)}, first {names[0]}")
    if len(pairs) != PAIRS:
        other.append(f"{counted(len(pairs), 'pair')}, where the sets have {PAIRS}")
    text = f"{path.name}: {counted(len(pairs), 'pair')} of {counted(len(names), 'photo')}"
    text += f" ({found})" if found and not other else ""
    files = [] if problems else [photos / name for name in names]
    made = fingerprint(files, photos) + fingerprint([path], path.parent) if files else ""
    return Checked(photos, text, problems, tuple(other), made)
