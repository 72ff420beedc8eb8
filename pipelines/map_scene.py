"""A scene with true poses, and its features: what the experiments on maps start from.

A scene is a folder with `images/` and `reference/`, a COLMAP model with the true poses and cameras of its photos.
Features are extracted once for each descriptor, at the same keypoints.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.colmap.model import Camera, Model, Pose
from xdesc_jax.evaluate.divided import write_lines
from xdesc_jax.evaluate.poses import Scale
from xdesc_jax.evaluate.stages.homography import given_stores
from xdesc_jax.features.extract import extract

DESCRIPTORS = ("brief", "sift", "hardnet-xdesc", "sosnet-xdesc")


@dataclasses.dataclass(frozen=True)
class MapScene:
    """Photos of a place.

    Attributes:
        folder: of the scene.
        names: photos with a true pose, sorted.
        poses, cameras: the true ones, by photo.
        stores: descriptor -> feature file of all photos.
        scale: 'metric' where the true poses are in metres.
    """

    folder: Path
    names: list[str]
    poses: dict[str, Pose]
    cameras: dict[str, Camera]
    stores: dict[str, Path]
    scale: Scale

    @property
    def reference(self) -> Path:
        """Folder of the true model."""
        return self.folder / "reference"


def open_scene(
    folder: Path, features: Path, descriptors: Sequence[str], scale: Scale, max_keypoints: int, keypoints: str
) -> MapScene:
    """Reads a scene and extracts its features where they are not there yet.

    Args:
        folder: the scene.
        features: folder for the feature files.
        descriptors: to extract.
        scale: 'metric' where the true poses are in metres, else 'relative'.
        max_keypoints: of a photo.
        keypoints: detector, 'colmap' or 'opencv'.
    """
    model: Model = read_model(folder / "reference")
    extract(
        folder / "images", features, descriptors=tuple(descriptors), keypoints=keypoints, max_keypoints=max_keypoints
    )
    cameras = dict(zip(model.names, model.cameras, strict=True))
    return MapScene(folder, list(model.names), model.poses, cameras, given_stores([features], descriptors), scale)


def write_pairs(path: Path, names: Sequence[str]) -> Path:
    """Writes all pairs of some photos."""
    return write_lines(path, [f"{a}\t{b}" for a, b in itertools.combinations(sorted(names), 2)])
