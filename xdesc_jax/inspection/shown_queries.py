"""Localised queries as they are shown: what `xdesc localize` wrote, checked, with the map that it was made in.

In: its folder. Out: each query with what became of it, and the map's points and cameras. Needs pycolmap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.colmap.camera_models import focals
from xdesc_jax.colmap.model import Model, Pose
from xdesc_jax.files.whole import read_json
from xdesc_jax.inspection.query_drawing import Scene, View
from xdesc_jax.localization import correspondences
from xdesc_jax.localization.correspondences import Correspondences
from xdesc_jax.localization.localize import model_hash
from xdesc_jax.localization.results import RESULTS


@dataclasses.dataclass(frozen=True)
class ShownQuery:
    """What became of a query.

    Attributes:
        name: of the photo.
        reason: why it failed; None where it was localised.
        inliers, matches: positions that support the pose, and that match a 3D point at all.
        size: (width, height) in px of its camera.
        view: None where it was not localised.
        spread: of the pose, for keypoints off by 1 px: standard deviations of the position in the map's units, the
            largest, and of the rotation in degrees; None where they are not known.
        matched: `point` holds COLMAP's ids.
        candidates: photos of the map that it was matched with.
    """

    name: str
    reason: str | None
    inliers: int
    matches: int
    size: tuple[int, int]
    view: View | None
    spread: tuple[float, float] | None
    matched: Correspondences
    candidates: Sequence[str]


@dataclasses.dataclass(frozen=True)
class ShownQueries:
    """All queries of one folder, and their map."""

    folder: Path
    queries: dict[str, ShownQuery]
    reconstruction: Path
    model: Model
    max_error_px: float

    @classmethod
    def read(cls, folder: Path, map: Path | None = None) -> ShownQueries:
        """Reads the folder of `xdesc localize`.

        Args:
            folder: with `results.json` and what lies beside it.
            map: the model, where it does not lie where it did.

        Raises:
            FileNotFoundError: no results, results of earlier versions that lack a part, or no model.
            ValueError: parts that do not belong together.
        """
        path = folder / RESULTS
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file, expected the folder that `xdesc localize` wrote")
        value = read_json(path)
        if not isinstance(value, dict) or not {"queries", "config_hash", "settings"} <= value.keys():
            raise ValueError(
                f"{path}: is not what `xdesc localize` writes, it has no queries, settings and config_hash"
            )
        matched = correspondences.read(folder / correspondences.FILE, value["config_hash"])
        if "reconstruction" not in value.get("paths", {}) and map is None:
            raise ValueError(f"{path}: does not say where the map lies; name it with --map")
        reconstruction = Path(map or value["paths"]["reconstruction"])
        if not reconstruction.exists():
            raise FileNotFoundError(
                f"{reconstruction}: no such folder, where {path} says the map is; --map names another"
            )
        if model_hash(reconstruction) != value["settings"]["reconstruction"]:
            raise ValueError(f"{reconstruction}: is another model than the one of {path}, or was changed since")
        try:
            queries = {name: _query(name, entry, matched[name]) for name, entry in value["queries"].items()}
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ValueError(f"{path}: holds a query that cannot be read ({error!r})") from error
        model = read_model(reconstruction)
        return cls(folder, queries, reconstruction, model, float(value["settings"]["max_error_px"]))

    def chosen(self, names: Sequence[str], most: int) -> list[ShownQuery]:
        """The queries named; without names those that failed, half of all at most, and those with most inliers.

        Raises:
            ValueError: names that no query has.
        """
        unknown = [name for name in names if name not in self.queries]
        if unknown:
            known = f"it has {len(self.queries)}, first {list(self.queries)[:5]}"
            raise ValueError(f"{self.folder}: has no query {unknown[0]!r}; {known}")
        if names:
            return [self.queries[name] for name in dict.fromkeys(names)]
        failed = [query for query in self.queries.values() if query.view is None]
        done = sorted((q for q in self.queries.values() if q.view is not None), key=lambda q: (-q.inliers, q.name))
        room = max(most - min(len(failed), most // 2), 0)
        few = room // 3 if len(done) > room else 0
        kept = done if len(done) <= room else [*done[: room - few], *done[len(done) - few :]]
        return [*kept, *failed[: most - len(kept)]]

    def scene(self, query: ShownQuery) -> Scene:
        """The map around a query."""
        model = self.model
        assert model.point_ids is not None, "the model was not read from files"
        rows = np.searchsorted(model.point_ids, query.matched.point[query.matched.inlier])
        views = [
            View.of(pose, (camera.width, camera.height), focal)
            for pose, camera, focal in zip(model.poses.values(), model.cameras, model.focals_px, strict=True)
        ]
        return Scene(model.points, views, query.view, model.points[np.unique(rows)])


def _query(name: str, entry: Mapping[str, Any], matched: Correspondences) -> ShownQuery:
    camera = entry["camera"]
    size = (int(camera["width"]), int(camera["height"]))
    view = None
    if entry["status"] == "localized":
        pose = Pose.from_quaternion(np.array(entry["qvec"], float), np.array(entry["tvec"], float))
        given = camera["params"][0] if focals(camera["model"]) else 0.0
        view = View.of(pose, size, float(entry["focal_px"] or given))
    spread = None
    if entry["covariance"] is not None:
        values = np.sqrt(np.maximum(np.linalg.eigvalsh(np.array(entry["covariance"], float)[3:, 3:]), 0))
        turns = np.sqrt(np.maximum(np.linalg.eigvalsh(np.array(entry["covariance"], float)[:3, :3]), 0))
        spread = float(values.max()), float(np.degrees(turns.max()))
    return ShownQuery(
        name, entry["reason"], int(entry["inliers"]), int(entry["matches"]), size, view, spread, matched,
        tuple(entry["candidates"]),
    )  # fmt: skip
