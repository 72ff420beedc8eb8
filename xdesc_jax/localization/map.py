"""A map to localise in: the descriptors of a sparse model's photos, and the 3D point behind each.

In: a model, and feature files or databases with the features that it was made from. Out: a
`LocalizationMap`, all in memory and never changed, so that threads may share it.

All rows of a photo are kept, those without a 3D point included: the ratio test and mutual neighbours ask
whether *another* keypoint of the photo resembles the query's as much, and most keypoints of a photo have no
point. A row of 128 floats takes 512 bytes, so 1 M keypoints take 0.5 GB, and as much again for each view.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from xdesc_jax.colmap.model import Model
from xdesc_jax.console.words import counted
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.keypoints import COLMAP_CENTER
from xdesc_jax.localization.upright import upright_turns
from xdesc_jax.matching.feature_set import FeatureSet, Held
from xdesc_jax.matching.retrieval import joint_space
from xdesc_jax.matching.routes import Router, Rows
from xdesc_jax.matching.vlad import VladIndex
from xdesc_jax.networks.views import View
from xdesc_jax.translation.translator import Translator

SHOWN = 5
# Of the longer side: how far the keypoints of an undistorted model may lie from those of the features; the rows
# of another detection lie a third of the photo apart.
MAX_SHIFT = 0.1
_NOTHING = DescriptorSpec("none", 1)  # of a photo without descriptors, of which nothing says what they would be


@dataclasses.dataclass(frozen=True)
class MapPhoto:
    """What a query is matched with.

    Attributes:
        held: what the features hold.
        space: what `rows` are.
        rows: [N, D] float32 canonical rows or [N, bytes] uint8 packed bits; zero where they never match.
        point: [N] int, row in the map's points that a keypoint observes; -1 where none.
        positions: [N, 2] px of the keypoints, origin at the centre of the first pixel.
        size: (width, height) of the photo in px; (0, 0) where the features do not say.
        frames: [N, 2] of the keypoints; None where the features have none, or no model could take them.
        views: what `rows` are in each of the map's views, for each turn of queries; none where the photo's rows are
            not rendered.
    """

    held: Held
    space: DescriptorSpec
    rows: np.ndarray
    point: np.ndarray
    positions: np.ndarray
    size: tuple[int, int] = (0, 0)
    frames: np.ndarray | None = None
    views: tuple[np.ndarray, ...] = ()

    @property
    def observes(self) -> bool:
        """Whether any keypoint with a descriptor observes a 3D point."""
        return bool((self.rows.any(axis=1) & (self.point >= 0)).any())

    @property
    def described(self) -> bool:
        """Whether its features hold descriptors, and not keypoints alone."""
        return self.space != _NOTHING


@dataclasses.dataclass(frozen=True)
class LocalizationMap:
    """A map in memory.

    Attributes:
        points: [P, 3] float64, world coordinates.
        photos: by name, in the model's order.
        router: how rows of queries and photos are compared.
        translator: makes them comparable; None where nothing is translated.
        index: photos by what they show; None where retrieval was not asked for.
        space: the joint space of the index.
        missing: photos of the model that the feature files lack.
        bare_points: 3D points that no keypoint with a descriptor observes.
        findings: what the translated rows give reason to warn of.
        views: of each photo, or of queries, that are matched; none: photos as they lie alone.
        query_turns: the turns that set queries upright, degrees clockwise; photos have their views upright once for
            each, in this order, turned as such a query lies.
    """

    points: np.ndarray
    photos: Mapping[str, MapPhoto]
    router: Router
    translator: Translator | None
    index: VladIndex | None
    space: DescriptorSpec | None
    missing: tuple[str, ...]
    bare_points: int
    findings: tuple[str, ...]
    views: tuple[View, ...] = ()
    query_turns: tuple[float, ...] = (0.0,)

    def views_of(self, photo: MapPhoto, query_turn_deg: float) -> tuple[np.ndarray, ...]:
        """Rows of a photo in each of `views`, as a query shows it that lies so; none where it is not rendered.

        Raises:
            ValueError: a turn for which the map was not rendered.
        """
        if not photo.views:
            return ()
        if query_turn_deg not in self.query_turns:
            raise ValueError(f"a query's turn is {query_turn_deg:g} deg, the map has views for {self.query_turns}")
        start = self.query_turns.index(query_turn_deg) * len(self.views)
        return photo.views[start : start + len(self.views)]

    @classmethod
    def build(
        cls,
        model: Model,
        features: FeatureSet,
        router: Router,
        translator: Translator | None = None,
        *,
        retrieval: bool = False,
        views: Sequence[View] = (),
        query_turns: Sequence[float] = (0.0,),
        allow_missing: bool = False,
        seed: int = 0,
        where: str = "the model",
        track: Callable[[Sequence[str]], Iterable[str]] = iter,
    ) -> LocalizationMap:
        """Reads the rows of all photos, translated where the router's mode asks for it.

        Args:
            model: as `read_model` gives it.
            features: what it was made from; photos that the model lacks are ignored.
            router: its mode says in which space a photo's rows are kept.
            translator: the model file; None where nothing is translated.
            retrieval: make an index as well, in the joint space; of each view, where the photos are rendered.
            views: to render photos in whose rows turn with their keypoints; those of others stay as they lie. Views of
                photos upright go by the model's poses.
            query_turns: the turns that set the queries upright, degrees clockwise, where they are not all 0.
            allow_missing: leave out photos of the model that the features lack.
            seed: of the index's vocabulary.
            where: the model's path, for error messages.
            track: goes over the photos, for a progress bar.

        Raises:
            ValueError: mode 'progressive', no 3D points, photos that the features lack, other keypoints than the
                model's, no 3D point with a descriptor, rows that the router or the translator refuses, or views of
                photos upright where poses do not tell where down is.
        """
        if router.mode == "progressive":
            raise ValueError("mode 'progressive' would translate the map anew for each query; use 'directional'")
        if not len(model.points) or not len(model.point):
            raise ValueError(f"{where}: holds no 3D points, so nothing can be localised in it")
        missing = tuple(name for name in model.names if name not in features)
        if missing and not allow_missing:
            features.check_names(model.names, f"the model {where}")
        if allow_missing:  # those that a database lists without keypoints, too
            missing = tuple(name for name in model.names if name in missing or not len(features.keypoints(name)))
        rows_of = Rows(features, translator, kept_bytes=0)
        photos: dict[str, MapPhoto] = {}
        starts = np.argsort(model.view, kind="stable")
        bounds = np.searchsorted(model.view[starts], np.arange(len(model.names) + 1))
        ids = {name: view for view, name in enumerate(model.names)}
        turns = upright_turns(model) if any(view.upright for view in views) else dict.fromkeys(model.names, 0.0)
        seen_as = {
            name: [view.of(turn - of_query) for of_query in query_turns for view in views]
            for name, turn in turns.items()
        }
        for name in track([name for name in model.names if name not in missing]):
            observed = starts[bounds[ids[name]] : bounds[ids[name] + 1]]
            _check_keypoints(model, ids[name], observed, features, where)
            photos[name] = _photo(model, name, observed, features, router, rows_of, seen_as[name])
        seen = [photo.point[photo.rows.any(axis=1)] for photo in photos.values()]
        described = np.unique(np.concatenate([point[point >= 0] for point in seen])) if seen else np.zeros(0)
        if not len(described):
            files = ", ".join(map(str, features.paths))
            raise ValueError(f"none of the {len(model.points)} 3D points of {where} has a descriptor in {files}")
        space = joint_space([features], translator) if retrieval else None
        index = _index(photos, rows_of, space, seen_as, seed) if space is not None else None
        return cls(
            points=model.points, photos=photos, router=router, translator=translator, index=index,
            space=space, missing=missing, bare_points=len(model.points) - len(described),
            findings=tuple(rows_of.findings()), views=tuple(views), query_turns=tuple(query_turns),
        )  # fmt: skip


def _photo(
    model: Model, name: str, observed: np.ndarray, features: FeatureSet, router: Router, rows_of: Rows,
    views: Sequence[View],
) -> MapPhoto:  # fmt: skip
    held, xy, size = features.held(name), features.keypoints(name), features.image_size(name)
    frames = features.frames(name) if rows_of.translates else None
    point = np.full(len(xy), -1)
    point[model.keypoint[observed]] = model.point[observed]
    if held is None:
        return MapPhoto(Held(_NOTHING), _NOTHING, np.zeros((len(point), 1), np.float32), point, xy, size, frames)
    space = router.route(held, held).target
    rows = rows_of(name, space)
    rendered = tuple(rows_of(name, space, view) for view in views) if rows_of.takes_views(name, space) else ()
    return MapPhoto(held, space, rows, point, xy, size, frames, rendered)


def _index(
    photos: Mapping[str, MapPhoto], rows_of: Rows, space: DescriptorSpec, views: Mapping[str, Sequence[View]], seed: int
) -> VladIndex:
    """The photos by what they show; one that is rendered is there once a view of those it has."""
    entries: dict[str, tuple[str, int | None]] = {}  # a name for each, which no photo's can be
    for name in photos:
        if rows_of.takes_views(name, space) and views[name]:
            entries |= {f"{name}\0{i}": (name, i) for i in range(len(views[name]))}
        else:
            entries[name] = (name, None)

    def embedded(entry: str) -> np.ndarray:
        name, view = entries[entry]
        photo = photos[name]
        if photo.space.name != space.name:
            return rows_of(name, space, None if view is None else views[name][view])
        return photo.rows if view is None else photo.views[view]

    index = VladIndex.build(embedded, list(entries), seed=seed)
    return VladIndex(index.centers, [name for name, _ in entries.values()], index.vectors)


def _check_keypoints(model: Model, view: int, observed: np.ndarray, features: FeatureSet, where: str) -> None:
    """Raises ValueError where a photo's features are not those that the model was made from."""
    assert model.xy is not None, "the model was not read from files"
    name = model.names[view]
    xy, rows = features.keypoints(name), model.keypoint[observed]
    least = int(rows.max(initial=-1)) + 1
    count = least if model.keypoint_counts is None else int(model.keypoint_counts[view])
    if len(xy) != count and (model.keypoint_counts is not None or len(xy) < least):
        told = counted(count, "keypoint") if model.keypoint_counts is not None else f"a keypoint in row {least - 1}"
        raise ValueError(
            f"{name!r} has {told} in the model {where}, but {len(xy)} in {features.path(name)}: "
            f"features must be those that the model was made from"
            + (" (--allow-missing leaves it out)" if not len(xy) else "")
        )
    shift_px = np.abs(xy[rows] + COLMAP_CENTER - model.xy[observed]).max(axis=1)
    camera = model.cameras[view]
    if len(shift_px) and np.median(shift_px) > MAX_SHIFT * max(camera.width, camera.height):
        raise ValueError(
            f"keypoints of {name!r} in {features.path(name)} lie {np.median(shift_px):.0f} px (median) from those of "
            f"the same rows in the model {where}: features must be those that the model was made from"
        )
