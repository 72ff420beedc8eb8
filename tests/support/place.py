"""A synthetic place with true poses: a sparse model, feature files of two kinds, and the exact translator."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.translation.bundle import Bundle

WIDTH = 24
NOISE = 0.03  # of a row's values, from photo to photo
QUERIES = 2


@dataclasses.dataclass(frozen=True)
class Place:
    """Files of a place: `own-b` holds the rows of `own-a` with their values reversed, of the same keypoints.

    Attributes:
        model: folder of the sparse model, without the queries.
        features: descriptor -> feature file of all photos, queries included.
        names: photos of the model, sorted.
        queries: photos that are not in the model.
        poses, cameras: the true ones of all photos.
        translator: model file, exact between the two.
    """

    model: Path
    features: dict[str, Path]
    names: list[str]
    queries: list[str]
    poses: dict[str, Pose]
    cameras: dict[str, Camera]
    translator: Path

    @property
    def query_list(self) -> str:
        """hloc's list of the queries."""
        lines = []
        for name in self.queries:
            camera = self.cameras[name]
            lines.append(f"{name} {camera.model} {camera.width} {camera.height} {' '.join(map(str, camera.params))}\n")
        return "".join(lines)


def make_place(folder: Path, points: int = 120) -> Place:
    """Writes a place of 8 photos, each of which sees all points."""
    pycolmap.set_random_seed(0)
    options = pycolmap.SyntheticDatasetOptions(num_frames_per_rig=4, num_points3D=points)
    scene = pycolmap.synthesize_dataset(options)
    rng = np.random.default_rng(0)
    of_point = {point: rng.normal(size=WIDTH) for point in sorted(scene.points3D)}
    photos: dict[str, ImageFeatures] = {}
    poses, cameras = {}, {}
    for image in sorted(scene.images.values(), key=lambda image: image.name):
        xy = np.array([p.xy for p in image.points2D]) - 0.5
        rows = [of_point[p.point3D_id] if p.has_point3D() else rng.normal(size=WIDTH) for p in image.points2D]
        rows = unit_rows(unit_rows(np.array(rows)) + NOISE * rng.normal(size=(len(rows), WIDTH)))
        camera = scene.cameras[image.camera_id]
        size = (camera.width, camera.height)
        photos[image.name] = ImageFeatures(xy.astype(np.float32), rows, np.ones(len(rows), bool), size)
        rigid = image.cam_from_world()
        poses[image.name] = Pose(rigid.rotation.matrix(), np.array(rigid.translation))
        cameras[image.name] = Camera(camera.model.name, *size, tuple(camera.params.tolist()))
    names = sorted(photos)
    queries = names[-QUERIES:]
    for image in list(scene.images.values()):
        if image.name in queries:
            scene.deregister_frame(image.frame_id)
    features = {}
    for name, step in (("own-a", 1), ("own-b", -1)):
        features[name] = folder / f"{name}.h5"
        with StoreWriter(features[name], DescriptorSpec(name, WIDTH)) as writer:
            for photo, held in photos.items():
                writer.write(photo, dataclasses.replace(held, descriptors=held.descriptors[:, ::step]))
    (folder / "model").mkdir()
    scene.write(folder / "model")
    translator = exact_translator().save(folder / "model.safetensors")
    return Place(folder / "model", features, names[:-QUERIES], queries, poses, cameras, translator)


def moved_model(model: Path, folder: Path, offset: np.ndarray) -> Path:
    """A model's folder with all of it moved by `offset` [3]; gives its folder."""
    moved = pycolmap.Reconstruction(model)
    moved.transform(pycolmap.Sim3d(1.0, pycolmap.Rotation3d(), np.asarray(offset, np.float64)))
    folder.mkdir(parents=True)
    moved.write(folder)
    return folder


def rewrite(source, out, change):
    """A copy of a feature file with each photo changed, or left out where `change` gives None."""
    with FeatureStore(source) as store, StoreWriter(out, store.spec) as writer:
        for name, photo in store:
            changed = change(name, photo)
            if changed is not None:
                writer.write(name, changed)
    return out


def exact_translator() -> Bundle:
    """Both networks of `own-b` reverse the values, so translations and embeddings are exact."""
    straight, zeros = np.eye(WIDTH, dtype=np.float32), np.zeros(WIDTH, np.float32)
    kernels = {"own-a": straight, "own-b": straight[::-1].copy()}
    networks = {f"{part}/{n}": [(k, zeros)] for part in ("encoder", "decoder") for n, k in kernels.items()}
    return Bundle("encoder_decoder", {name: DescriptorSpec(name, WIDTH) for name in kernels}, WIDTH, networks)
