"""The data of the benchmark across descriptors: pairs of photos with truth, in any folder that holds some.

In: a folder with homography sequences (`1.png` ..., `H_1_k`) and posed scenes (`images/`, and `reference/`, a COLMAP
model of them) at any place two levels deep. Out: pairs, a map's photo and a device's each, with where matches belong.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.model import Camera, Model, Pose
from xdesc_jax.console.words import counted
from xdesc_jax.evaluate.benchmarks.protocol import Checked, fingerprint
from xdesc_jax.evaluate.measures import Correspondence
from xdesc_jax.evaluate.scenes import find_scenes
from xdesc_jax.features.images import SUFFIXES

IMAGES, REFERENCE = "images", "reference"
PAIRS_A_SCENE = 10


@dataclasses.dataclass(frozen=True)
class Posed:
    """The true geometry of two photos: their cameras, and the pose of the second to the first."""

    cameras: tuple[Camera, Camera]
    pose: Pose


@dataclasses.dataclass(frozen=True)
class Pair:
    """A photo of a map and one of a device, by their names below the folder.

    Attributes:
        scene: the folder's name; where several have it, the folder below the root.
        known, device: the photos.
        truth: positions in the map's photo -> in the device's (a sequence), or both cameras (a posed scene).
        inverse: of a sequence, back; None where that is not known.
    """

    scene: str
    known: str
    device: str
    truth: Correspondence | Posed
    inverse: Correspondence | None = None


def folders(root: Path) -> tuple[list[Path], list[Path]]:
    """The sequences and the posed scenes at `root` and up to two levels below, sorted."""
    below = [root, *sorted(p for p in root.glob("*") if p.is_dir()), *sorted(p for p in root.glob("*/*") if p.is_dir())]
    sequences = [p for p in below if any(p.glob("H_1_*")) or any(p.glob("H1to*p"))]
    return sequences, [p for p in below if (p / IMAGES).is_dir() and (p / REFERENCE).is_dir()]


def check(root: Path) -> Checked:
    """What a folder holds (see `protocol.Checked`); there is no official set of it."""
    sequences, scenes = folders(root)
    problems, files = [], []
    for folder in sequences:
        try:
            names = [name for scene in find_scenes(folder) for name in scene.photos]
        except (FileNotFoundError, ValueError) as error:
            problems.append(str(error))
            continue
        files += [folder / name for name in names]
    for scene in scenes:
        photos = [path for path in sorted((scene / IMAGES).rglob("*")) if path.suffix.lower() in SUFFIXES]
        models = [path for path in sorted((scene / REFERENCE).iterdir()) if path.suffix in (".txt", ".bin")]
        if len(photos) < 2:
            problems.append(f"{scene / IMAGES}: holds {counted(len(photos), 'photo')}, expected two or more")
        problems += [f"{scene / REFERENCE}: holds no COLMAP model"] * (not models)
        files += photos + models
    if not sequences and not scenes:
        problems.append("neither a sequence (1.png ..., H_1_2 ...) nor a posed scene (images/, reference/) found")
    text = f"{len(sequences)} homography sequences and {len(scenes)} posed scenes"
    return Checked(root, text, tuple(problems), ("there is no official one",), fingerprint(files, root))


def read(root: Path, pairs_a_scene: int = PAIRS_A_SCENE) -> list[Pair]:
    """All pairs: photo 1 of each sequence with each other one, and neighbours of each posed scene.

    Args:
        root: as `check` takes it.
        pairs_a_scene: the most of a posed scene.

    Raises:
        ValueError: a model without two of the photos.
    """
    sequences, scenes = folders(root)
    names = collections.Counter(folder.name for folder in (*sequences, *scenes))
    found = []

    def named(folder: Path) -> str:
        below = folder.relative_to(root).as_posix()
        return folder.name if names[folder.name] == 1 or folder == root else below

    for folder in sequences:
        at = "" if folder == root else f"{folder.relative_to(root).as_posix()}/"
        for scene in find_scenes(folder):
            if "/" in scene.pairs[0].query:  # of a folder in this one, which is a sequence of its own
                continue
            name = named(folder)
            found += [Pair(name, at + p.query, at + p.database, p.correspondence, p.inverse) for p in scene.pairs]
    for folder in scenes:
        name = f"{named(folder)} (posed)" if folder in sequences else named(folder)
        found += _posed(root, folder, name, pairs_a_scene)
    return found


def _posed(root: Path, folder: Path, scene: str, count: int) -> list[Pair]:
    from xdesc_jax.colmap.bindings.api import read_model

    model = read_model(folder / REFERENCE)
    held = [i for i, name in enumerate(model.names) if (folder / IMAGES / name).is_file()]
    if len(held) < 2:
        raise ValueError(
            f"{folder / REFERENCE}: has {len(held)} of the photos in {folder / IMAGES}, expected two or more"
        )
    at = (folder / IMAGES).relative_to(root).as_posix()
    pairs = []
    for i, j in neighbours(model, held, count):
        a, b = (Pose(model.rotations[k], model.translations[k]) for k in (i, j))
        rotation = b.rotation @ a.rotation.T
        truth = Posed((model.cameras[i], model.cameras[j]), Pose(rotation, b.translation - rotation @ a.translation))
        pairs.append(Pair(scene, f"{at}/{model.names[i]}", f"{at}/{model.names[j]}", truth))
    return pairs


def neighbours(model: Model, held: Sequence[int], count: int) -> list[tuple[int, int]]:
    """At most `count` pairs, spread evenly over the photos: each with the second nearest of those that look its way."""
    rotations, translations = model.rotations[list(held)], model.translations[list(held)]
    centers = -np.einsum("vji,vj->vi", rotations, translations)
    chosen = np.unique(np.linspace(0, len(held) - 1, min(count, len(held))).round().astype(int))
    pairs = []
    for i in chosen:  # a row at a time: all distances of thousands of photos are gigabytes
        apart = np.linalg.norm(centers - centers[i], axis=1)
        apart[rotations[:, 2] @ rotations[i, 2] < np.cos(np.deg2rad(60))] = np.inf
        apart[i] = np.inf
        order = [j for j in np.argsort(apart, kind="stable") if np.isfinite(apart[j])]
        if order:
            pairs.append((held[i], held[order[min(1, len(order) - 1)]]))
    return list(dict.fromkeys(pairs))
