"""A synthetic place in the layout of Aachen Day-Night, v1 and v1.1, with feature files whose right answer is known."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import h5py
import numpy as np

from tests.support.place import Place, make_place
from xdesc_jax.colmap.lists import write_poses
from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.evaluate.benchmarks.places.maps import write_posed
from xdesc_jax.features.store import FeatureStore, StoreWriter

LIGHTS = ("day", "night")


@dataclasses.dataclass(frozen=True)
class Folder:
    """Where things lie.

    Attributes:
        root: the folder of the benchmark.
        known: photos of the map.
        queries: light -> name.
        poses, cameras: the true ones, by photo.
        features: folder of `own-a.h5` and `own-b.h5`, which holds the same values in reverse.
        pairs: list of photos to match queries with.
        model: translator, exact between the two.
        truth: text with the queries' true poses, under their names without folders.
    """

    root: Path
    known: list[str]
    queries: dict[str, str]
    poses: dict[str, Pose]
    cameras: dict[str, Camera]
    features: Path
    pairs: Path
    model: Path
    truth: Path


def camera_line(name: str, camera: Camera) -> str:
    return f"{name} {camera.model} {camera.width} {camera.height} {' '.join(map(repr, camera.params))}\n"


def write_folder(base: Path, version: str = "v1") -> Folder:
    """Writes a place of 6 photos and a query of each light."""
    (base / "place").mkdir(parents=True)
    place = make_place(base / "place")
    renamed = {name: f"db/{name}" for name in place.names}
    renamed |= {q: f"query/{light}/phone/{q}" for light, q in zip(LIGHTS, place.queries, strict=True)}
    poses = {renamed[name]: pose for name, pose in place.poses.items()}
    cameras = {renamed[name]: camera for name, camera in place.cameras.items()}
    known = [renamed[name] for name in place.names]
    queries = {light: renamed[q] for light, q in zip(LIGHTS, place.queries, strict=True)}
    root = base / "data"
    for name in renamed.values():
        photo = root / "images/images_upright" / name
        photo.parent.mkdir(parents=True, exist_ok=True)
        photo.write_bytes(name.encode())  # no test decodes it
    (root / "queries").mkdir()
    for light, name in queries.items():
        (root / f"queries/{light}_time_queries_with_intrinsics.txt").write_text(camera_line(name, cameras[name]))
    _write_model(root / "3D-models", known, poses, cameras, version)
    features = _rename(place, renamed, base / "features")
    pairs = base / "pairs.txt"
    pairs.write_text("".join(f"{q} {name}\n" for q in queries.values() for name in known))
    bare = {name.rsplit("/", 1)[1]: poses[name] for name in queries.values()}
    truth = write_poses(base / "truth.txt", bare)
    return Folder(root, known, queries, poses, cameras, features, pairs, place.translator, truth)


def _write_model(folder: Path, known: list[str], poses: dict, cameras: dict, version: str) -> None:
    folder.mkdir()
    if version == "v1.1":
        write_posed(folder / "aachen_v_1_1", {n: poses[n] for n in known}, cameras)
        return
    lines = ["NVM_V3 \n\n", f"{len(known)}\n"]
    for name in known:
        numbers = [cameras[name].params[0], *poses[name].quaternion, *poses[name].center, 0]
        lines.append(f"{name} {' '.join(repr(float(n)) for n in numbers)} 0\n")
    (folder / "aachen_cvpr2018_db.nvm").write_text("".join([*lines, "\n1\n0 0 0 1 2 3 0\n"]))
    (folder / "database_intrinsics.txt").write_text("".join(camera_line(n, cameras[n]) for n in known))


def _rename(place: Place, renamed: dict[str, str], folder: Path) -> Path:
    for descriptor, path in place.features.items():
        with FeatureStore(path) as store, StoreWriter(folder / f"{descriptor}.h5", store.spec) as writer:
            for name, photo in store:
                writer.write(renamed[name], photo)
    return folder


def shuffled(features: Path, folder: Path, only: str) -> Path:
    """The same files with the rows of photos whose names begin with `only` in another order."""
    for path in sorted(features.glob("*.h5")):
        with FeatureStore(path) as store, StoreWriter(folder / path.name, store.spec) as writer:
            for name, photo in store:
                if name.startswith(only):
                    order = np.random.default_rng(list(name.encode())).permutation(len(photo))
                    photo = dataclasses.replace(photo, descriptors=photo.descriptors[order])
                writer.write(name, photo)
    return folder


def write_global(path: Path, rows: dict[str, np.ndarray]) -> Path:
    """Global features in hloc's layout."""
    with h5py.File(path, "w") as file:
        for name, row in rows.items():
            file.create_group(name)["global_descriptor"] = row
    return path
