"""The data of the Image Matching challenge: scenes of PhotoTourism, as its authors publish them.

In: a folder with a folder a scene; in `SCENE/set_100` lie `images.txt`, `calibration.txt` and `visibility.txt`, which
list files one a line in one order; `calibration/calibration_PHOTO.h5` with K, R [3, 3] and T; `visibility`: points that
a photo shares with each, a number a photo of the list; `new-vis-pairs/keys-th-0.1.npy`, texts PHOTO-PHOTO of pairs that
see at least a tenth of each other; and `sub_set/SIZEbag_NUMBER.txt`, photos to reconstruct together. Out: scenes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.model import Pose
from xdesc_jax.console.words import counted
from xdesc_jax.evaluate.benchmarks.protocol import Checked, fingerprint
from xdesc_jax.files.hdf5 import DAMAGE, array, open_file

SET, PAIRS = "set_100", "new-vis-pairs/keys-th-0.1.npy"
PHOTOS = {"reichstag": 75, "sacre_coeur": 100, "st_peters_square": 100}  # of the three scenes with public truth
BAGS = {5: 100, 10: 50, 25: 25}  # size -> bags of a scene
SHARED_POINTS = 100  # photos of a bag that share no more are not matched
_BAG = re.compile(r"(\d+)bag_(\d+)\.txt")
_ROTATION = 1e-3  # how far R may be from a rotation

Pair = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Scene:
    """A scene; photos are named relative to the folder of all scenes.

    Attributes:
        name: of its folder.
        photos: in the order of the list.
        intrinsics: photo -> K [3, 3].
        poses: photo -> world to camera.
        pairs: of the stereo task.
        bags: size -> photos of each bag of the multi-view task.
        apart: pairs, in either order, that share too few points to be matched in a bag.
    """

    name: str
    photos: tuple[str, ...]
    intrinsics: Mapping[str, np.ndarray]
    poses: Mapping[str, Pose]
    pairs: tuple[Pair, ...]
    bags: Mapping[int, tuple[tuple[str, ...], ...]]
    apart: frozenset[Pair]

    def relative(self, a: str, b: str) -> Pose:
        """Takes points of camera a to camera b."""
        return relative(self.poses[a], self.poses[b])


def relative(a: Pose, b: Pose) -> Pose:
    """Takes points of camera a to camera b, from both poses in the world."""
    rotation = b.rotation @ a.rotation.T
    return Pose(rotation, b.translation - rotation @ a.translation)


def find_root(root: Path) -> Path:
    """The folder of the scenes: the one given, or `phototourism` in it."""
    return next((f for f in (root, root / "phototourism") if f.is_dir() and scene_names(f)), root)


def scene_names(root: Path) -> list[str]:
    """The scenes of a folder, sorted."""
    return sorted(f.name for f in root.iterdir() if (f / SET / "images.txt").is_file())


def read_scene(root: Path, name: str) -> Scene:
    """A scene.

    Raises:
        FileNotFoundError: a list or a listed file is not there.
        ValueError: a file that is damaged or does not fit the list of photos.
    """
    folder = root / name / SET
    photos = tuple(f"{name}/{SET}/{line}" for line in _lines(folder / "images.txt"))
    by_stem = {Path(photo).stem: photo for photo in photos}
    if len(by_stem) < len(photos):
        raise ValueError(f"{folder / 'images.txt'}: lists a photo twice")
    intrinsics, poses = {}, {}
    for line in _lines(folder / "calibration.txt"):
        stem = Path(line).stem.removeprefix("calibration_")
        if stem in by_stem:
            intrinsics[by_stem[stem]], poses[by_stem[stem]] = read_calibration(folder / line)
    if lacking := [photo for photo in photos if photo not in poses]:
        raise ValueError(f"{folder / 'calibration.txt'}: lists none of {lacking[0]} (first of {len(lacking)})")
    pairs = tuple(_pair(key, by_stem, folder / PAIRS) for key in _keys(folder / PAIRS))
    bags: dict[int, list[tuple[str, ...]]] = {}
    for size, path in _bags(folder):
        bag = tuple(f"{name}/{SET}/{line}" for line in _lines(path))
        if strange := [photo for photo in bag if photo not in poses] or len(set(bag)) != size:
            raise ValueError(
                f"{path}: holds {strange if len(bag) == size else len(bag)}, expected {size} of the photos"
            )
        bags.setdefault(size, []).append(bag)
    return Scene(
        name, photos, intrinsics, poses, pairs, {size: tuple(found) for size, found in bags.items()},
        _apart(folder, photos),
    )  # fmt: skip


def read_calibration(path: Path) -> tuple[np.ndarray, Pose]:
    """K [3, 3] and the pose of a photo.

    Raises:
        FileNotFoundError, ValueError: see `read_scene`.
    """
    with open_file(path, "calibration") as file:
        try:
            k, rotation = (array(file, key, np.float64, (3, 3)) for key in ("K", "R"))
            translation = array(file, "T", np.float64).reshape(-1)
        except (*DAMAGE, ValueError) as error:
            raise ValueError(f"{path}: is no calibration with K, R and T ({error})") from error
    if translation.shape != (3,) or not all(np.isfinite(part).all() for part in (k, rotation, translation)):
        raise ValueError(f"{path}: T is {translation.tolist()}, and K, R and T should be finite")
    if not (k[0, 0] > 0 and k[1, 1] > 0 and (k[2] == (0, 0, 1)).all()):
        raise ValueError(f"{path}: K is {k.tolist()}, expected fx s cx, 0 fy cy, 0 0 1")
    if np.abs(rotation @ rotation.T - np.eye(3)).max() > _ROTATION or np.linalg.det(rotation) < 0:
        raise ValueError(f"{path}: R is {rotation.tolist()}, expected a rotation")
    return k, Pose(rotation, translation)


def check(root: Path) -> Checked:
    """What a folder of scenes holds (see `protocol.Checked`)."""
    root = find_root(root)
    problems, other, files, counts = [], [], [], []
    names = scene_names(root)
    for name in names:
        folder = root / name / SET
        photos: list[str] = []
        for listing in ("images.txt", "calibration.txt", "visibility.txt"):
            lines = _lines(folder / listing) if (folder / listing).is_file() else []
            photos = lines if listing == "images.txt" else photos
            if not lines and listing != "visibility.txt":
                problems.append(f"{name}/{SET}/{listing} is missing or empty")
            missing = [line for line in lines if not (folder / line).is_file()]
            problems += [f"{name}/{SET}/{line} is missing" for line in missing]
            files += [folder / line for line in lines if line not in missing]
        if not (folder / PAIRS).is_file():
            problems.append(f"{name}/{SET}/{PAIRS} is missing")
        bags = _bags(folder)
        if not bags:
            problems.append(f"{name}/{SET}/sub_set holds no SIZEbag_NUMBER.txt")
        files += [path for _, path in bags] + ([folder / PAIRS] if (folder / PAIRS).is_file() else [])
        held = {size: sum(s == size for s, _ in bags) for size in sorted({s for s, _ in bags})}
        counts.append(f"{name} ({counted(len(photos), 'photo')})")
        if name in PHOTOS and (len(photos) != PHOTOS[name] or held != BAGS):
            told = f"{counted(len(photos), 'photo')} and bags {held}"
            other.append(f"{name} has {told}, where the set has {PHOTOS[name]} and {BAGS}")
        if not (folder / "visibility.txt").is_file():
            other.append(f"{name} has no visibility.txt, so all pairs of a bag are matched")
    if not names:
        problems.append(f"no scene (a folder SCENE/{SET} with images.txt) found")
    elif set(names) != set(PHOTOS):
        other.append(f"scenes are {', '.join(names)}, where the set has {', '.join(PHOTOS)}")
    made = "" if problems else fingerprint(files, root)
    return Checked(root, ", ".join(counts) or "no scene", tuple(problems), tuple(other), made)


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _bags(folder: Path) -> list[tuple[int, Path]]:
    """Size and list of each bag, in the order of sizes and numbers."""
    found = [(m, path) for path in (folder / "sub_set").glob("*.txt") if (m := _BAG.fullmatch(path.name))]
    return [(int(m[1]), path) for m, path in sorted(found, key=lambda one: (int(one[0][1]), int(one[0][2])))]


def _keys(path: Path) -> list[str]:
    try:
        keys = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: is no list of pairs ({error})") from error
    if keys.ndim != 1 or keys.dtype.kind not in "US":
        raise ValueError(f"{path}: holds {keys.dtype} {list(keys.shape)}, expected texts PHOTO-PHOTO")
    return [str(key) for key in keys.astype(str)]


def _pair(key: str, by_stem: Mapping[str, str], path: Path) -> Pair:
    cuts = [(key[:i], key[i + 1 :]) for i, letter in enumerate(key) if letter == "-"]
    found = next(((a, b) for a, b in cuts if a in by_stem and b in by_stem and a != b), None)
    if found is None:
        raise ValueError(f"{path}: {key!r} are no two photos of images.txt, expected PHOTO-PHOTO")
    return by_stem[found[0]], by_stem[found[1]]


def _apart(folder: Path, photos: tuple[str, ...]) -> frozenset[Pair]:
    listing = folder / "visibility.txt"
    if not listing.is_file():
        return frozenset()
    lines = _lines(listing)
    if len(lines) != len(photos):
        raise ValueError(f"{listing}: lists {len(lines)} files, expected one for each of {len(photos)} photos")
    rows = []
    for line in lines:
        try:
            rows.append(np.loadtxt(folder / line, ndmin=1).reshape(-1))
        except ValueError as error:
            raise ValueError(f"{folder / line}: {error}") from error
        if len(rows[-1]) != len(photos):
            raise ValueError(f"{folder / line}: holds {len(rows[-1])} numbers, expected {len(photos)}")
    shared = np.array(rows)
    few = np.argwhere(np.maximum(shared, shared.T) <= SHARED_POINTS)
    return frozenset((photos[i], photos[j]) for i, j in few)
