"""Time of `Localizer.localize` from descriptors against a map of 50 photos, and the share of its own work.

Run: python benchmarks/localize.py. A synthetic map: a ring of 50 cameras around 12000 points, 2000 keypoints
of 128 floats a photo, half of which observe a point; queries from between them, with a fifth of their
keypoints without a point in the map. Prints the median over queries of the time in all, and of the share
spent neither matching nor in RANSAC (target <= 20 %): retrieval of 20 photos, translation, and the rest. The
first row compares native rows with all photos, the second translates the queries into the joint space of the
shipped 'colmap' model and matches retrieved photos.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np

from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.descriptors import get_spec, unit_rows
from xdesc_jax.localization.localizer import Localizer
from xdesc_jax.localization.map import LocalizationMap, MapPhoto
from xdesc_jax.localization.outcome import Localization
from xdesc_jax.matching.feature_set import Held
from xdesc_jax.matching.routes import Router
from xdesc_jax.matching.vlad import VladIndex
from xdesc_jax.translation.translator import EMBEDDING, Translator

PHOTOS, POINTS, KEYPOINTS, QUERIES, RETRIEVED = 50, 12000, 2000, 15, 20
NOISE_PX, NOISE = 0.7, 0.5  # of keypoints, and of a row relative to its length
CAMERA = Camera("SIMPLE_PINHOLE", 1000, 750, (900.0, 500.0, 375.0))
SPEC = get_spec("colmap-sift")
TARGET_PERCENT = 20


class Scene:
    """Points on a cylinder and what cameras on a ring around it see of them."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        angle, height = self.rng.uniform(0, 2 * np.pi, POINTS), self.rng.uniform(-2, 2, POINTS)
        radius = self.rng.uniform(3, 3.5, POINTS)
        self.points = np.stack([radius * np.cos(angle), height, radius * np.sin(angle)], axis=1)
        self.rows = self.sift(POINTS)

    def sift(self, n: int) -> np.ndarray:
        return unit_rows(np.abs(self.rng.normal(size=(n, SPEC.width))))

    def pose(self, turn: float) -> Pose:
        center = 9 * np.array([np.cos(turn), 0.1 * np.sin(3 * turn), np.sin(turn)])
        z = -center / np.linalg.norm(center)
        x = np.cross([0.0, 1.0, 0.0], z)
        x /= np.linalg.norm(x)
        rotation = np.stack([x, np.cross(z, x), z])
        return Pose(rotation, -rotation @ center)

    def photo(self, turn: float, seen: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Keypoints [N, 2], their rows [N, D] and points [N], -1 for those of nothing in the map."""
        pose = self.pose(turn)
        in_camera = self.points @ pose.rotation.T + pose.translation
        xy = CAMERA.params[0] * in_camera[:, :2] / in_camera[:, 2:] + CAMERA.params[1:]
        facing = np.linalg.norm(self.points - pose.center, axis=1) < 8
        inside = ((xy > 0) & (xy < [CAMERA.width, CAMERA.height])).all(axis=1) & facing
        point = self.rng.permutation(np.flatnonzero(inside))[:seen]
        free = KEYPOINTS - len(point)
        noise = self.rng.normal(size=(len(point), SPEC.width)) * NOISE / np.sqrt(SPEC.width)
        rows = np.concatenate([unit_rows(np.abs(self.rows[point] + noise)), self.sift(free)])
        at = xy[point] - 0.5 + NOISE_PX * self.rng.normal(size=(len(point), 2))
        elsewhere = self.rng.uniform(0, 1, (free, 2)) * [CAMERA.width, CAMERA.height]
        return np.concatenate([at, elsewhere]), rows, np.concatenate([point, np.full(free, -1)])


def build(scene: Scene, translator: Translator | None) -> LocalizationMap:
    """The map, native or in the joint space of a model."""
    space = SPEC if translator is None else translator.spec(EMBEDDING)
    photos: dict[str, MapPhoto] = {}
    for k in range(PHOTOS):
        keypoints, rows, point = scene.photo(2 * np.pi * k / PHOTOS, KEYPOINTS // 2)
        if translator is not None:
            rows = translator.stream(SPEC.name, space.name)(rows)
        photos[str(k)] = MapPhoto(Held(SPEC), space, rows, point, keypoints)
    index = VladIndex.build(lambda name: photos[name].rows, list(photos)) if translator is not None else None
    router = Router("native" if translator is None else "embed", translator)
    return LocalizationMap(scene.points, photos, router, translator, index, space, (), 0, ())


def report(title: str, found: list[Localization]) -> None:
    """Prints medians over queries."""

    def median(part: str) -> float:
        return statistics.median(one.seconds[part] for one in found)

    share = statistics.median(1 - (f.seconds["matching"] + f.seconds["pose"]) / f.seconds["total"] for f in found)
    localized = sum(one.status == "localized" for one in found)
    print(
        f"{title}: {1000 * median('total'):.0f} ms a query, {100 * share:.1f} % outside matching and RANSAC (target "
        f"{TARGET_PERCENT}); matching {1000 * median('matching'):.0f}, RANSAC {1000 * median('pose'):.1f}, translation "
        f"{1000 * median('translation'):.1f}, retrieval {1000 * median('retrieval'):.1f} ms; {localized} of "
        f"{len(found)} localized, median {statistics.median(one.inliers for one in found):.0f} inliers"
    )


def main() -> None:
    scene = Scene()
    queries = [scene.photo(2 * np.pi * (k + 0.5) / QUERIES, 4 * KEYPOINTS // 5) for k in range(QUERIES)]
    modes = (
        (f"native, all {PHOTOS} photos", None, None),
        (f"embed, {RETRIEVED} of {PHOTOS} photos", Translator.from_pretrained("colmap"), RETRIEVED),
    )
    for title, translator, retrieved in modes:
        localizer = Localizer(build(scene, translator), retrieval=retrieved)
        work = [localizer.localize(xy, rows, CAMERA, descriptor=SPEC.name) for xy, rows, _ in queries]
        report(title, work)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    main()
