"""Bootstrapping a translated map: rows of new photos in the place of translated ones (paper, section 3.1).

In: a map whose rows were translated, and new photos of the place with real rows of that descriptor. Out: the map
with the photos registered; in the track of each 3D point that they observe, translated rows are replaced by real
ones. Of several new photos that observe a point, a map photo gets the row of the one that looks at it from the
nearest direction, from which a patch looks most alike. Rows that are real already are never touched. Pure: files
and printing are elsewhere (`update`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from xdesc_jax.colmap.bindings.pose import residuals_px
from xdesc_jax.colmap.bindings.registration import NewPhoto
from xdesc_jax.colmap.camera_models import focals
from xdesc_jax.colmap.model import Camera, Model, Pose
from xdesc_jax.descriptors import from_stored
from xdesc_jax.features.frames import of_features, of_usable
from xdesc_jax.features.keypoints import COLMAP_CENTER
from xdesc_jax.features.store import ImageFeatures
from xdesc_jax.localization.localizer import Localizer
from xdesc_jax.localization.map import LocalizationMap, MapPhoto
from xdesc_jax.localization.outcome import Localization, PoseSettings
from xdesc_jax.localization.read_query import localize_read
from xdesc_jax.mapping.tracks import Tracks, gathered
from xdesc_jax.matching.feature_set import Held
from xdesc_jax.matching.vlad import VladIndex, vlad
from xdesc_jax.translation.translator import EMBEDDING

Recall = Callable[[str, Callable[[], Localization]], Localization]


def _at_once(name: str, localize: Callable[[], Localization]) -> Localization:
    return localize()


@dataclasses.dataclass(frozen=True)
class Shares:
    """How far a map is made of real rows.

    Attributes:
        rows: of the rows of the map's first photos that observe a 3D point, those that are real.
        points: of the 3D points, those that a real row observes, those of new photos included.
    """

    rows: float
    points: float


class UpdatedMap:
    """A map that takes in new photos.

    Args:
        built: the map, in mode 'native': all its rows are of one descriptor.
        model: the sparse model that it was built of.
        real: photo -> [N] bool, which rows are real.
        settings: when a pose is believed.
        retrieval: photos matched with a new one; None for all.
        max_residual_px: an observation further from its projected point is not used.

    Attributes:
        added: the photos taken in, in order.
        real: photo -> [N] bool, as it is now; new photos are not among them.
    """

    def __init__(
        self,
        built: LocalizationMap,
        model: Model,
        real: Mapping[str, np.ndarray],
        settings: PoseSettings,
        retrieval: int | None = None,
        max_residual_px: float = 4.0,
    ):
        built = dataclasses.replace(built, photos=_of_one_descriptor(built.photos))
        self._map, self._settings, self._retrieval, self._limit = built, settings, retrieval, max_residual_px
        self._names, self._centers = model.names, np.array([pose.center for pose in model.poses.values()])
        self._rows = {name: photo.rows.copy() for name, photo in built.photos.items()}
        self.real = {name: real[name].copy() for name in built.photos}
        self._observed = np.zeros(len(built.points), bool)
        self._tracks = Tracks.of(model, built.photos)
        # Only translated rows have an angle to beat: real ones stay.
        is_real = gathered(self.real, model.names, self._tracks.view, self._tracks.keypoint)
        self._angle = np.where(is_real, -1.0, np.inf)
        self.added: list[NewPhoto] = []

    @property
    def localizer(self) -> Localizer:
        """Localises in the map as it is now."""
        return Localizer(self._map, retrieval=self._retrieval, settings=self._settings)

    def rows(self, name: str) -> np.ndarray:
        """Rows of one of the map's first photos, as `nearest` takes them."""
        return self._rows[name]

    def shares(self) -> Shares:
        """How far the map is made of real rows."""
        real = total = 0
        points = self._observed.copy()
        for name, photo in self._map.photos.items():
            if name not in self.real:
                continue
            seen = photo.point >= 0
            total += int(seen.sum())
            real += int((self.real[name] & seen).sum())
            points[photo.point[self.real[name] & seen]] = True
        return Shares(real / max(1, total), float(points.mean()) if len(points) else 0.0)

    def take_in(
        self, batch: Sequence[tuple[str, ImageFeatures, Held, Camera]], recall: Recall = _at_once
    ) -> dict[str, Localization]:
        """Registers new photos, then replaces rows that they observe.

        Args:
            batch: name, features, what they are, camera. All are localised in the map as it was before.
            recall: (name, what localises the photo) -> what became of it, where that may be known already.

        Returns:
            What became of each; those that failed change nothing.
        """
        localizer, found, photos = self.localizer, {}, dict(self._map.photos)
        changed: set[str] = set()
        for name, features, held, camera in batch:
            result = recall(name, partial(localize_read, localizer, name, features, held, camera))
            found[name] = result
            if result.pose is None:
                continue
            point = self._observations(features, result, camera)
            rows = from_stored(_valid(features), held.spec, name) if not held.spec.binary else _valid(features)
            changed |= {name, *self._replace(rows, point, result.pose)}
            frames = of_usable(of_features(features), np.any(rows, axis=1))
            photos[name] = MapPhoto(held, held.spec, rows, point, features.keypoints, features.image_size, frames)
            xy = features.keypoints.astype(np.float64) + COLMAP_CENTER
            self.added.append(NewPhoto(name, _refined(camera, result), result.pose, xy, point))
        for name in changed & self.real.keys():
            photos[name] = dataclasses.replace(photos[name], rows=self._rows[name].copy())
        index = self._indexed(photos, changed) if self._map.index is not None else None
        self._map = dataclasses.replace(self._map, photos=photos, index=index)
        return found

    def _indexed(self, photos: Mapping[str, MapPhoto], changed: set[str]) -> VladIndex:
        """The index with the vectors of photos whose rows changed, in the vocabulary that it has."""
        index, translator = self._map.index, self._map.translator
        assert index is not None and translator is not None
        vectors = dict(zip(index.names, index.vectors, strict=True))
        for name in changed:
            photo = photos[name]
            stream = translator.stream(photo.space.name, EMBEDDING, packed=photo.space.binary)
            embedded = stream(photo.rows, frames=photo.frames, positions=photo.positions)
            vectors[name] = vlad(embedded, index.centers)
        return VladIndex(index.centers, list(vectors), np.stack(list(vectors.values())))

    def _observations(self, features: ImageFeatures, result: Localization, camera: Camera) -> np.ndarray:
        """[N] which point each keypoint observes, each point once; -1 for none."""
        assert result.pose is not None
        rows, points = result.inlier_keypoints, result.inlier_points
        xy = features.keypoints[rows].astype(np.float64) + COLMAP_CENTER
        distance = residuals_px(_refined(camera, result), result.pose, self._map.points[points], xy)
        order = np.argsort(distance, kind="stable")
        order = order[distance[order] <= self._limit]
        for values in (rows, points):  # the nearest of each keypoint, then of each point
            order = order[np.sort(np.unique(values[order], return_index=True)[1])]
        point = np.full(len(features), -1)
        point[rows[order]] = points[order]
        return point

    def _replace(self, rows: np.ndarray, point: np.ndarray, pose: Pose) -> set[str]:
        """Puts rows of a new photo in the place of translated ones of the same points; gives the photos changed."""
        seen = np.flatnonzero((point >= 0) & rows.any(axis=1))
        self._observed[point[seen]] = True
        which, observation = self._tracks.observing(point[seen])
        x = self._map.points[point[seen]][which]
        angle = _angles(pose.center - x, self._centers[self._tracks.view[observation]] - x)
        nearer = angle < self._angle[observation]
        observation, source = observation[nearer], seen[which[nearer]]
        self._angle[observation] = angle[nearer]
        views, keypoints = self._tracks.view[observation], self._tracks.keypoint[observation]
        order = np.argsort(views, kind="stable")
        present, starts = np.unique(views[order], return_index=True)
        for view, part in zip(present.tolist(), np.split(order, starts)[1:], strict=True):
            name = self._names[view]
            self._rows[name][keypoints[part]] = rows[source[part]]
            self.real[name][keypoints[part]] = True
        return {self._names[view] for view in present.tolist()}


def _of_one_descriptor(photos: Mapping[str, MapPhoto]) -> dict[str, MapPhoto]:
    """The photos, of which those without descriptors have zero rows of the others' descriptor: real ones may come."""
    some = next(photo for photo in photos.values() if photo.described)

    def empty(photo: MapPhoto) -> MapPhoto:
        rows = np.zeros((len(photo.point), some.rows.shape[1]), some.rows.dtype)
        return dataclasses.replace(photo, held=Held(some.space), space=some.space, rows=rows)

    return {name: photo if photo.described else empty(photo) for name, photo in photos.items()}


def _valid(features: ImageFeatures) -> np.ndarray:
    """Stored rows; those that are not valid or not finite are zero."""
    rows, usable = features.descriptors, features.valid
    if np.issubdtype(rows.dtype, np.floating):
        usable = usable & np.isfinite(rows).all(axis=1)
    return np.where(usable[:, None], rows, np.zeros((), rows.dtype))


def _refined(camera: Camera, result: Localization) -> Camera:
    """The camera with the focal length that was estimated with the pose, where its own was a guess."""
    if result.focal_px is None:
        return camera
    count = focals(camera.model)
    return dataclasses.replace(camera, params=(result.focal_px,) * count + camera.params[count:])


def _angles(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Angles between directions [M, 3] and as many others, rad, [M]."""
    return np.arctan2(np.linalg.norm(np.cross(a, b), axis=1), (a * b).sum(axis=1))
