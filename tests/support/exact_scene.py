"""A scene whose keypoints are exact projections: feature files, match files and the model they come from, for tests."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.descriptors import get_spec
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.matching.matches import MatchWriter

SIZE = (1024, 768)
CAMERA = "SIMPLE_RADIAL 1024 768 1280 512 384 0.05"
# Blanks, a folder and letters beyond ASCII; not in the order of the model's ids.
NAMES = ("c.jpg", "a b.jpg", "日本/1.jpg", "sub/e\u0301.jpg", "z.jpg", "d.jpg")


@dataclasses.dataclass(frozen=True)
class Scene:
    """What COLMAP made up.

    Attributes:
        model: poses and points; its image i + 1 is NAMES[i].
        names: of the photos.
        xy: of each photo, keypoints [N, 2] with COLMAP's origin.
        point: of each photo, which point a keypoint is of [N]; -1 for none.
    """

    model: pycolmap.Reconstruction
    names: tuple[str, ...]
    xy: dict[str, np.ndarray]
    point: dict[str, np.ndarray]

    def centers(self, names: Sequence[str]) -> np.ndarray:
        """True positions of photos, [V, 3]."""
        image = {image.name: image for image in self.model.images.values()}
        return np.array([image[name].projection_center() for name in names])

    def write_model(self, folder: Path) -> Path:
        """The model in a folder."""
        folder.mkdir(parents=True)
        self.model.write(folder)
        return folder

    def write_features(
        self, path: Path, names: Sequence[str] | None = None, *, descriptor: str = "brief", origin_px: float = 0.5
    ) -> Path:
        """A feature file with random rows; `origin_px` is where the store's origin lies in COLMAP's coordinates."""
        rng = np.random.default_rng(len(path.name))
        spec = get_spec(descriptor)
        with StoreWriter(path, spec) as writer:
            for name in self.names if names is None else names:
                rows = rng.integers(0, 255, (len(self.xy[name]), spec.stored_width)).astype(spec.stored_dtype)
                xy = (self.xy[name] - origin_px).astype(np.float32)
                writer.write(name, ImageFeatures(xy, rows, np.ones(len(xy), bool), SIZE))
        return path

    def matches(self, a: str, b: str) -> np.ndarray:
        """True matches of two photos, [M, 2] int32."""
        _, i, j = np.intersect1d(self.point[a], self.point[b], return_indices=True)
        seen = self.point[a][i] >= 0
        return np.stack([i[seen], j[seen]], axis=1).astype(np.int32)

    def write_matches(self, path: Path, of: Callable[[str, str], np.ndarray | None] | None = None) -> Path:
        """A match file of all pairs, of what `of` gives for each (None for no pair), the true matches without."""
        with MatchWriter(path) as writer:
            for a, b in itertools.combinations(self.names, 2):
                indices = (of or self.matches)(a, b)
                if indices is not None:
                    writer.write(a, b, len(self.xy[a]), indices, np.ones(len(indices), np.float32))
        return path


def make_scene(names: Sequence[str] = NAMES, points: int = 200, seed: int = 3) -> Scene:
    """A scene of photos around `points` points, each seen by every photo."""
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_frames_per_rig, options.num_points3D = 1, len(names), points
    pycolmap.set_random_seed(seed)
    model = pycolmap.synthesize_dataset(options)
    xy, point = {}, {}
    for name, (_, image) in zip(names, sorted(model.images.items()), strict=True):
        image.name = name
        xy[name] = np.array([p.xy for p in image.points2D])
        point[name] = np.array([p.point3D_id if p.has_point3D() else -1 for p in image.points2D])
    return Scene(model, tuple(names), xy, point)


def aligned_error(found: np.ndarray, true: np.ndarray) -> float:
    """Largest distance between positions [V, 3] after the similarity that fits best, over the true extent."""
    a, b = found - found.mean(0), true - true.mean(0)
    u, s, vt = np.linalg.svd(b.T @ a)  # Umeyama 1991
    sign = np.array([1, 1, np.sign(np.linalg.det(u @ vt))])
    scale = (s * sign).sum() / (a**2).sum()
    return float(np.linalg.norm(scale * a @ (u * sign @ vt).T - b, axis=1).max() / np.linalg.norm(b, axis=1).max())
