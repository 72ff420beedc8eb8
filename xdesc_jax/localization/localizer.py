"""Where photos were taken, in a map that was made before.

In: a `LocalizationMap` and a query: keypoints (origin at the centre of the first pixel), descriptors of any
kind that the map's mode allows, a camera. Out: a `Localization`: a pose with its support, or the reason why
there is none. A query is matched with each candidate photo; its matches to keypoints that observe 3D points
become correspondences of the query's positions with points, each once, and their pose is found by RANSAC. In a map
with views, each photo is matched in the one that agrees best with the query.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, Self

import numpy as np

from xdesc_jax import pretrained
from xdesc_jax.colmap.bindings.pose import estimate_pose
from xdesc_jax.colmap.camera_models import check_camera
from xdesc_jax.colmap.model import Camera
from xdesc_jax.console.words import counted
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.keypoints import COLMAP_CENTER
from xdesc_jax.localization import rendered
from xdesc_jax.localization.correspondences import Correspondences
from xdesc_jax.localization.map import SHOWN, LocalizationMap
from xdesc_jax.localization.map_model import read_map
from xdesc_jax.localization.outcome import Localization, PoseSettings
from xdesc_jax.localization.query_features import QueryFeatures
from xdesc_jax.matching import learned
from xdesc_jax.matching.feature_set import FeatureSet, Held
from xdesc_jax.matching.match import NEAREST, Device, Matcher, check_matcher
from xdesc_jax.matching.routes import Mode, Router
from xdesc_jax.networks.views import View
from xdesc_jax.translation.names import named_spec
from xdesc_jax.translation.translator import Translator

# Photo -> keypoints [N, 2], descriptors [N, D] and, where a model takes them, frames [N, 2].
Extractor = Callable[[np.ndarray], tuple[np.ndarray, ...]]


class Localizer:
    """Localises queries in a map; threads may share it. Use as a context manager where it has a matcher, to end it.

    Args:
        map: where.
        retrieval: photos matched with a query that names no candidates, by the map's index; None for all.
        extractor: makes keypoints and descriptors of a photo, for `localize_image`.
        settings: when a pose is believed.
        matcher: LightGlue for what the map's router compares; None for mutual nearest neighbours.

    Raises:
        ValueError: retrieval in a map without an index, or of fewer than 1 photo; a matcher in a map of views.
    """

    def __init__(
        self,
        map: LocalizationMap,
        *,
        retrieval: int | None = None,
        extractor: Extractor | None = None,
        settings: PoseSettings | None = None,
        matcher: learned.LearnedMatcher | None = None,
    ):
        rendered.check_matcher(map.views, matcher is not None)
        if retrieval is not None and (map.index is None or retrieval < 1):
            raise ValueError(f"retrieval of {retrieval} photos, expected at least 1 and a map with an index")
        self.map, self.retrieval, self.extractor = map, retrieval, extractor
        self.settings, self._matcher = settings or PoseSettings(), matcher

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if self._matcher is not None:
            self._matcher.__exit__(kind)

    @classmethod
    def open(
        cls,
        model: Path | str,
        features: Sequence[Path | str] | Path | str,
        *,
        translator: Translator | Path | str | None = None,
        mode: Mode = "native",
        target: str | None = None,
        ratio: float | Literal["auto"] | None = "auto",
        descriptor: str | None = None,
        retrieval: int | None = None,
        views: Sequence[View] = (),
        query_turns: Sequence[float] = (0.0,),
        extractor: Extractor | None = None,
        settings: PoseSettings | None = None,
        allow_missing: bool = False,
        matcher: Matcher = NEAREST,
        weights: Mapping[str, Path | str] | None = None,
        device: Device = "auto",
        min_score: float = 0.0,
    ) -> Localizer:
        """Reads a map.

        Args:
            model: folder of a COLMAP model, or a file of OpenSfM, OpenMVG, Bundler or NVM.
            features: feature files (.h5) and COLMAP databases that the model was made from, or translations.
            translator: model file (.safetensors), or the name of one that ships with the package.
            mode: 'native', 'embed' or 'directional' (see `routes`). 'directional' with a target translates
                the map to it (continuous deployment), without one each query to the map's descriptor.
            target: see `mode`.
            ratio: largest first-to-second distance ratio; 'auto' for the calibrated one, None for no test.
            descriptor: what files hold that do not say (hloc's).
            retrieval: photos matched with a query that names no candidates, chosen in the translator's joint
                space; None for all.
            views: to match photos in, of which each pair takes the best (`networks.views`);
                rows of the map are rendered where they turn with their keypoints, else those of queries.
            query_turns: the `turn_deg` that queries may have, in views of photos upright.
            extractor: makes keypoints and descriptors of a photo, for `localize_image`.
            settings: when a pose is believed.
            allow_missing: leave out photos of the model that the features lack.
            matcher: 'nearest' for mutual nearest neighbours, or 'lightglue' for a network, on rows of ALIKED and DISK,
                native or translated to them, without views and ratios. It computes in a process, which ends with the
                localizer's `with`.
            weights: files of 'lightglue' by name; installed ones are found without.
            device: on which it computes: 'auto' is CUDA where there is some.
            min_score: its matches of a lower score are none.

        Raises:
            FileNotFoundError: no such model, features, translator or weights.
            ValueError: see `LocalizationMap.build`, `Router` and `LearnedMatcher`.
        """
        if translator is not None and not isinstance(translator, Translator):
            translator = Translator.load(pretrained.resolve(Path(translator)))
        check_matcher(matcher, tuple(weights or ()), device, min_score, ratio)
        with FeatureSet(features, descriptor, model=translator) as known:
            sparse = read_map(Path(model), known)
            router = Router(mode, translator, target=target, ratio=ratio, ratios=known.ratios)
            built = LocalizationMap.build(
                sparse, known, router, translator,
                retrieval=retrieval is not None, views=views, query_turns=query_turns, allow_missing=allow_missing,
                where=str(model),
            )  # fmt: skip
            network = None
            if matcher != NEAREST:
                learned.check_sizes(known, built.photos)
                targets = {photo.space.name: photo.space for photo in built.photos.values() if photo.observes}
                network = learned.LearnedMatcher(targets.values(), _paths(weights), device, min_score)
        return cls(built, retrieval=retrieval, extractor=extractor, settings=settings, matcher=network)

    def localize_image(
        self, image: np.ndarray, camera: Camera, *, descriptor: str | Held | None = None,
        candidates: Sequence[str] | None = None,
    ) -> Localization:  # fmt: skip
        """`localize` with the extractor's keypoints and descriptors of a photo."""
        if self.extractor is None:
            raise ValueError("the localizer was opened without an extractor; give one, or keypoints and descriptors")
        start = time.perf_counter()
        keypoints, descriptors, *frames = self.extractor(image)
        taken = time.perf_counter() - start
        found = self.localize(
            keypoints, descriptors, camera,
            descriptor=descriptor, candidates=candidates, frames=frames[0] if frames else None,
        )  # fmt: skip
        seconds = {"extraction": taken, **found.seconds, "total": taken + found.seconds["total"]}
        return dataclasses.replace(found, seconds=seconds)

    def localize(
        self,
        keypoints: np.ndarray,
        descriptors: np.ndarray,
        camera: Camera,
        *,
        descriptor: str | Held | None = None,
        candidates: Sequence[str] | None = None,
        exclude: Collection[str] = (),
        frames: np.ndarray | None = None,
        turn_deg: float = 0.0,
    ) -> Localization:
        """The pose of a photo.

        Args:
            keypoints: [N, 2] px, origin at the centre of the first pixel; rows that are not finite are ignored.
            descriptors: [N, D], stored or canonical (bits packed or bool); zero rows never match.
            camera: intrinsics in COLMAP's terms. Where its focal length is not known, it is estimated as well.
            descriptor: what the rows are; None where the map's rows are of one descriptor, and these as well.
            candidates: photos of the map to match with; None for the retrieved ones, or all.
            exclude: photos of the map not to match with, as the query itself where the map holds it.
            frames: [N, 2] of the keypoints, sigma px and orientation in radians, for models of frame 'image'.
            turn_deg: what sets the photo upright, degrees clockwise, as EXIF tells it (`upright.turns_of_queries`), in
                a map of views upright; one of its `query_turns`.

        Raises:
            ValueError: arrays or a camera that do not fit, candidates that the map lacks, a descriptor that
                does not compare with the map's.
        """
        seeds = [self.settings.seed]
        [found] = self.localize_repeatedly(
            keypoints, descriptors, camera, seeds, descriptor=descriptor, candidates=candidates, exclude=exclude,
            frames=frames, turn_deg=turn_deg,
        )  # fmt: skip
        return found

    def localize_repeatedly(
        self,
        keypoints: np.ndarray,
        descriptors: np.ndarray,
        camera: Camera,
        seeds: Sequence[int],
        *,
        descriptor: str | Held | None = None,
        candidates: Sequence[str] | None = None,
        exclude: Collection[str] = (),
        frames: np.ndarray | None = None,
        turn_deg: float = 0.0,
    ) -> list[Localization]:
        """`localize` once for each seed of RANSAC, from the same matches; for the spread of an evaluation."""
        clock = _Clock()
        check_camera(camera, "the query's camera")
        query = QueryFeatures(self._held(descriptor), keypoints, descriptors, self.map.translator, frames)
        names = self._candidates(query, candidates, exclude, clock)
        failed = self._hopeless(query, names)
        if failed is None:
            keypoint, point, views = self._match(query, names, (camera.width, camera.height), turn_deg, clock)
            results = [self._pose(query, keypoint, point, camera, seed, clock) for seed in seeds]
        else:
            results, views = [Localization("failed", failed)] * len(seeds), {}
        warnings, seconds = tuple(query.warnings), clock.seconds()
        return [
            dataclasses.replace(result, candidates=tuple(names), warnings=warnings, views=views, seconds=seconds)
            for result in results
        ]

    def _held(self, descriptor: str | Held | None) -> Held:
        if isinstance(descriptor, Held):
            return descriptor
        photos = [photo for photo in self.map.photos.values() if photo.observes]
        if descriptor is not None:
            return Held(self._spec(descriptor, {photo.held.spec.name: photo.held.spec for photo in photos}))
        spaces = {photo.space.name: photo.space for photo in photos}
        mode = self.map.router.mode
        to_target = mode == "directional" and any(photo.space.name != photo.held.spec.name for photo in photos)
        if len(spaces) != 1 or not (mode == "native" or to_target):
            raise ValueError(f"say which descriptor the query holds; the map's rows are {', '.join(sorted(spaces))}")
        return Held(next(iter(spaces.values())))

    def _spec(self, name: str, of_map: Mapping[str, DescriptorSpec]) -> DescriptorSpec:
        translator = self.map.translator
        known = translator is not None and name in translator.names
        return of_map[name] if name in of_map and not known else named_spec(name, translator)

    def _candidates(
        self, query: QueryFeatures, candidates: Sequence[str] | None, exclude: Collection[str], clock: _Clock
    ) -> list[str]:
        limit = None
        if candidates is not None:
            unknown = [name for name in candidates if name not in self.map.photos]
            if unknown:
                raise ValueError(
                    f"{counted(len(unknown), 'candidate is no photo', 'candidates are no photos')} of the map, "
                    f"first {unknown[:SHOWN]}; it has {len(self.map.photos)}, first {list(self.map.photos)[:SHOWN]}"
                )
            names = list(dict.fromkeys(candidates))
        elif self.retrieval is None:
            names = list(self.map.photos)
        else:
            assert self.map.index is not None and self.map.space is not None
            limit = self.retrieval
            with clock("translation"):
                rows = query.rows(self.map.space)
            with clock("retrieval"):
                # A photo is there once a view.
                entries = (limit + len(exclude)) * max(1, len(self.map.views) * len(self.map.query_turns))
                names = list(dict.fromkeys(self.map.index.query(rows, entries)))
        return [name for name in names if name not in exclude][:limit]

    def _hopeless(self, query: QueryFeatures, names: list[str]) -> str | None:
        """Why there is nothing to match; None where there is something."""
        if not len(query.keypoints):
            return "no keypoints"
        if not query.usable.any():
            return f"none of {len(query.keypoints)} keypoints has a finite position and a descriptor"
        if not names:
            return "no candidate photo"
        if not any(self.map.photos[name].observes for name in names):
            return f"none of {len(names)} candidate photos observes a 3D point"
        return None

    def _match(
        self, query: QueryFeatures, names: list[str], size: tuple[int, int], turn_deg: float, clock: _Clock
    ) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
        """Matched keypoints and 3D points, [M] and [M] int, each pair of position and point once; and views used."""
        pairs = [np.zeros((0, 2), np.int64)]
        used: dict[str, int] = {}
        for name in names:
            photo = self.map.photos[name]
            if not photo.observes:
                continue
            route = self.map.router.route(query.held, photo.held)
            with clock("translation"):
                seen = self.map.views_of(photo, turn_deg)
                compared = rendered.sides(query, photo, route.target, self.map.views, seen)
            with clock("matching"):
                if self._matcher is None:
                    view, found = rendered.best(compared, route)
                else:
                    view, rows, _ = compared[0]
                    asked = learned.Photo(rows, query.keypoints, size, "the query")
                    other = learned.Photo(photo.rows, photo.positions, photo.size, f"{name!r} of the map")
                    found, _ = self._matcher.match(asked, other, route.target)
            if self.map.views:
                used[view.name] = used.get(view.name, 0) + 1
            point = photo.point[found[:, 1]]
            pairs.append(np.stack([found[:, 0], point], axis=1)[point >= 0])
        keypoint, point = np.concatenate(pairs).T
        _, first = np.unique(query.position[keypoint] * len(self.map.points) + point, return_index=True)
        first.sort()
        return keypoint[first], point[first], dict(sorted(used.items()))

    def _pose(
        self, query: QueryFeatures, keypoint: np.ndarray, point: np.ndarray, camera: Camera, seed: int, clock: _Clock
    ) -> Localization:
        matches = len(np.unique(query.position[keypoint]))
        matched = Correspondences.without_pose(keypoint, point, query.keypoints[keypoint])
        wanted = self.settings.min_inliers
        if matches < wanted:
            reason = f"{matches} matches to 3D points, expected {wanted}"
            return Localization("failed", reason, matches=matches, correspondences=matched)
        with clock("pose"):
            # The one place where a query's keypoints get COLMAP's origin.
            xy = query.keypoints[keypoint] + np.float64(COLMAP_CENTER)
            found = estimate_pose(
                xy, self.map.points[point], camera, max_error_px=self.settings.max_error_px, seed=seed
            )
        if found is None:
            reason = f"no pose fits {matches} matches to 3D points"
            return Localization("failed", reason, matches=matches, correspondences=matched)
        inliers = len(np.unique(query.position[keypoint[found.inlier]]))
        support = Localization(
            "localized", inliers=inliers, matches=matches, inlier_ratio=inliers / matches,
            correspondences=dataclasses.replace(matched, inlier=found.inlier, error_px=found.error_px),
        )  # fmt: skip
        if inliers < wanted:
            reason = f"{inliers} inliers of {matches} matches to 3D points, expected {wanted}"
            return dataclasses.replace(support, status="failed", reason=reason)
        focal_px = None if camera.known else found.focal_px
        return dataclasses.replace(
            support, pose=found.pose, covariance=found.covariance, position_covariance=found.position_covariance,
            focal_px=focal_px,
        )  # fmt: skip


def _paths(weights: Mapping[str, Path | str] | None) -> dict[str, Path]:
    return {name: Path(file) for name, file in (weights or {}).items()}


class _Clock:
    """Seconds spent in each part of one call."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._spent = {"retrieval": 0.0, "translation": 0.0, "matching": 0.0, "pose": 0.0}

    @contextlib.contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._spent[part] += time.perf_counter() - start

    def seconds(self) -> dict[str, float]:
        return {**self._spent, "total": time.perf_counter() - self._start}
