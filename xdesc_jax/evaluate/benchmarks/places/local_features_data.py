"""The folder of the Local Feature Evaluation: a folder a photo collection.

In: the folder. Out: what is missing, whether it is the official set, and its scenes.

    Madrid_Metropolis/images/                               photos
    Madrid_Metropolis/sparse-reference/filtered-metric/     COLMAP model of the true poses in metres, where known
    Madrid_Metropolis/distances.txt                         'photo photo metres' for a truth of one's own, where known
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from xdesc_jax.console.words import counted
from xdesc_jax.evaluate.benchmarks.protocol import Checked, fingerprint

# Scene -> the paper's name, photos in all, photos of the paper's truth.
SCENES = {
    "Madrid_Metropolis": ("Madrid Metropolis", 1344, 453),
    "Gendarmenmarkt": ("Gendarmenmarkt", 1463, 985),
    "Tower_of_London": ("Tower of London", 1576, 730),
}
REFERENCE, DISTANCES = "sparse-reference/filtered-metric", "distances.txt"
_ENDS = {".jpg", ".jpeg", ".png"}


@dataclasses.dataclass(frozen=True)
class Collection:
    """A scene.

    Attributes:
        folder: of the scene.
        photos: names below its `images`, sorted.
    """

    folder: Path
    photos: list[str]

    @property
    def images(self) -> Path:
        """Folder that the names begin in."""
        return self.folder / "images"

    @property
    def title(self) -> str:
        """The paper's name, or the folder's."""
        return SCENES[self.folder.name][0] if self.folder.name in SCENES else self.folder.name

    @property
    def papers_photos(self) -> int | None:
        """Photos of the paper's truth, where it has the scene."""
        return SCENES[self.folder.name][2] if self.folder.name in SCENES else None

    @property
    def reference(self) -> Path | None:
        """The true poses in metres, where there are some."""
        path = self.folder / REFERENCE
        return path if path.is_dir() else None

    @property
    def distances(self) -> Path | None:
        """Known distances, where there are some."""
        path = self.folder / DISTANCES
        return path if path.is_file() else None


def collections(root: Path) -> list[Collection]:
    """The scenes of a folder, the paper's first and in its order."""
    folders = [folder for folder in sorted(root.iterdir()) if (folder / "images").is_dir()]
    ranks = list(SCENES)
    folders.sort(key=lambda f: ranks.index(f.name) if f.name in SCENES else len(ranks))
    found = []
    for folder in folders:
        images = folder / "images"
        names = (p.relative_to(images).as_posix() for p in images.rglob("*") if p.suffix.lower() in _ENDS)
        found.append(Collection(folder, sorted(names)))
    return found


def check(root: Path) -> Checked:
    """What a folder of the Local Feature Evaluation holds (see `protocol.Checked`)."""
    scenes = collections(root)
    problems: list[str] = []
    other: list[str] = []
    files: list[Path] = []
    if not scenes:
        problems.append("no scene (a folder with a folder images, such as Madrid_Metropolis/images) found")
    for scene in scenes:
        name = scene.folder.name
        if len(scene.photos) < 3:
            problems.append(f"{name}/images has {counted(len(scene.photos), 'photo')}, expected at least 3")
        if scene.reference and not any((scene.reference / f"images{end}").is_file() for end in (".bin", ".txt")):
            problems.append(f"{name}/{REFERENCE} holds no COLMAP model")
        if name not in SCENES:
            other.append(f"{name} is none of the set's scenes")
        elif len(scene.photos) != SCENES[name][1]:
            other.append(f"{name} has {counted(len(scene.photos), 'photo')}, where the set has {SCENES[name][1]}")
        files += [scene.images / photo for photo in scene.photos]
        files += sorted(p for p in scene.reference.iterdir() if p.is_file()) if scene.reference else []
        files += [scene.distances] if scene.distances else []
    if missing := [name for name in SCENES if name not in {scene.folder.name for scene in scenes}]:
        other.append(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not there")
    text = ", ".join(f"{scene.folder.name} ({counted(len(scene.photos), 'photo')})" for scene in scenes) or "nothing"
    return Checked(root, text, tuple(problems), tuple(other), "" if problems else fingerprint(files, root))
