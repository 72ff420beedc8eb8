"""The folder of Aachen Day-Night, v1 or v1.1, as the benchmark gives it.

In: the folder. Out: what is missing, whether it is the official set, and its parts: photos, poses and intrinsics of the
map, queries with intrinsics by the light they were taken in.

    images/images_upright/ (or images_upright/)    photos: db/, query/, in v1.1 sequences/, too
    3D-models/aachen_cvpr2018_db.nvm               v1: poses, with
    3D-models/database_intrinsics.txt              'name MODEL width height params...'
    3D-models/aachen_v_1_1/                        v1.1: a COLMAP model with poses and intrinsics
    queries/day_time_queries_with_intrinsics.txt   and night_time_..., 'name MODEL width height params...'
"""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

from xdesc_jax.colmap.foreign import nvm
from xdesc_jax.colmap.lists import read_queries
from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.colmap.text_model import count_entries
from xdesc_jax.evaluate.benchmarks.places.maps import write_posed
from xdesc_jax.evaluate.benchmarks.protocol import Checked, fingerprint

V1, V1_1 = "v1", "v1.1"
COUNTS = {V1: (4328, {"day": 824, "night": 98}), V1_1: (6697, {"day": 824, "night": 191})}  # of the map, of queries
MODELS = {V1: "3D-models/aachen_cvpr2018_db.nvm", V1_1: "3D-models/aachen_v_1_1"}
INTRINSICS = "3D-models/database_intrinsics.txt"
LIST_END = "_time_queries_with_intrinsics.txt"
_PHOTOS = ("images/images_upright", "images_upright")
_ENDS = {".jpg", ".jpeg", ".png"}


@dataclasses.dataclass(frozen=True)
class Aachen:
    """Where the parts of a folder lie.

    Attributes:
        root: the folder.
        version: 'v1' or 'v1.1'.
        photos: folder that the names of photos begin in.
        queries: light -> list of queries, sorted.
    """

    root: Path
    version: str
    photos: Path
    queries: dict[str, Path]

    @property
    def model(self) -> Path:
        """The map's poses: an .nvm file, or a COLMAP model."""
        return self.root / MODELS[self.version]

    def cameras(self) -> dict[str, dict[str, Camera]]:
        """Light -> query -> camera.

        Raises:
            ValueError: a query without intrinsics, or of two lists.
        """
        found: dict[str, dict[str, Camera]] = {}
        for light, path in self.queries.items():
            found[light] = {}
            for name, camera in read_queries(path).items():
                if camera is None or any(name in others for others in found.values()):
                    what = "has no intrinsics" if camera is None else "is in two lists"
                    raise ValueError(f"{path}: query {name!r} {what}")
                found[light][name] = camera
        return found

    def reference(self, out: Path) -> tuple[Path, dict[str, Pose]]:
        """A COLMAP model of the map's poses, written to `out` where there is none, and the poses.

        Raises:
            ValueError: a model or list that cannot be read, or a photo without intrinsics.
        """
        from xdesc_jax.colmap.bindings.api import read_model

        if self.version == V1_1:
            return self.model, read_model(self.model).poses
        poses = nvm.read_poses(self.model)
        known = {name: c for name, c in read_queries(self.root / INTRINSICS, poses).items() if c is not None}
        return write_posed(out, poses, known), poses


def parts(root: Path) -> Aachen:
    """The parts of a folder, whether they are there or not."""
    version = V1_1 if (root / MODELS[V1_1]).is_dir() else V1
    photos = next((root / name for name in _PHOTOS if (root / name).is_dir()), root / _PHOTOS[0])
    lists = sorted((root / "queries").glob(f"*{LIST_END}"))
    return Aachen(root, version, photos, {path.name.removesuffix(LIST_END): path for path in lists})


def check(root: Path) -> Checked:
    """What a folder of Aachen Day-Night holds (see `protocol.Checked`)."""
    found = parts(root)
    problems: list[str] = []
    files = list(found.queries.values())
    mapped = _map_size(found, problems, files)
    names: dict[str, list[str]] = {}
    if not found.queries:
        problems.append(f"queries/day{LIST_END} is missing")
    for light, path in found.queries.items():
        try:
            names[light] = list(read_queries(path))
        except ValueError as error:
            problems.append(str(error))
    if found.photos.is_dir():
        photos = {
            p.relative_to(found.photos).as_posix(): p for p in found.photos.rglob("*") if p.suffix.lower() in _ENDS
        }
        asked = [name for listed in names.values() for name in listed]
        problems += [f"{found.photos.name}/{name} is missing" for name in asked if name not in photos]
        of_map = len(photos) - len(photos.keys() & set(asked))
        if mapped is not None and of_map < mapped:
            problems.append(f"{mapped - of_map} of the map's {mapped} photos are missing in {found.photos.name}")
        files += photos.values()
    else:
        problems.append(f"{_PHOTOS[0]} is missing")
    counts = {light: len(listed) for light, listed in names.items()}
    other = []
    official_map, official_queries = COUNTS[found.version]
    if mapped != official_map:
        other.append(f"a map of {mapped} photos, where {found.version} has {official_map}")
    if counts != official_queries:
        other.append(f"queries {_told(counts)}, where {found.version} has {_told(official_queries)}")
    text = f"{found.version}: a map of {mapped} photos, queries {_told(counts)}"
    return Checked(root, text, tuple(problems), tuple(other), "" if problems else fingerprint(files, root))


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {light}" for light, count in counts.items()) or "none"


def _map_size(found: Aachen, problems: list[str], files: list[Path]) -> int | None:
    """Photos of the map, of the model's head; what is missing, and the files, are added to the lists."""
    if found.version == V1_1:
        binary, text = found.model / "images.bin", found.model / "images.txt"
        files += [path for path in sorted(found.model.iterdir()) if path.is_file()]
        if binary.is_file() and binary.stat().st_size >= 8:
            with binary.open("rb") as file:
                return int(struct.unpack("<Q", file.read(8))[0])
        if text.is_file():
            return count_entries(text)
        problems.append(f"{MODELS[V1_1]}/images.bin is missing")
        return None
    missing = [name for name in (MODELS[V1], INTRINSICS) if not (found.root / name).is_file()]
    files += [found.root / name for name in (MODELS[V1], INTRINSICS) if name not in missing]
    problems += [f"{name} is missing" for name in missing]
    if MODELS[V1] in missing:
        problems[-len(missing)] += f" (or the folder {MODELS[V1_1]})"
        return None
    try:
        return nvm.count_photos(found.model)
    except ValueError as error:
        problems.append(str(error))
        return None
