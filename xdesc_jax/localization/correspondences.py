"""What a query's pose rests on: its keypoints with 3D points of the map, and the file that keeps them.

In: the correspondences of each query. Out: `correspondences.npz` beside `results.json`, for pictures and for a
second look at single queries. At most `KEPT` correspondences a query are kept, inliers first, which bounds the file to
50 kB a query.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.files import arrays
from xdesc_jax.files.whole import parse_json

FILE = "correspondences.npz"
KEPT = 2000
_FORMAT, _VERSION = "xdesc-correspondences", "1"
_KINDS = {"keypoint": np.int32, "point": np.int64, "xy": np.float32, "error_px": np.float32, "inlier": np.bool_}


@dataclasses.dataclass(frozen=True)
class Correspondences:
    """K keypoints of a query, each with a 3D point that it matched.

    Attributes:
        keypoint: [K] int, row of the query's features; a row comes several times where it matched several points.
        point: [K] int, row of the map's points; in a file, COLMAP's id of the point.
        xy: [K, 2] px, position of the keypoint, origin at the centre of the first pixel.
        error_px: [K], distance of the projected point from it; inf where the camera cannot see it, NaN without a pose.
        inlier: [K] bool, whether the pose explains it.
    """

    keypoint: np.ndarray
    point: np.ndarray
    xy: np.ndarray
    error_px: np.ndarray
    inlier: np.ndarray

    def __len__(self) -> int:
        return len(self.keypoint)

    @classmethod
    def none(cls) -> Correspondences:
        """Of a query that nothing was matched with."""
        return cls.without_pose(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 2)))

    @classmethod
    def without_pose(cls, keypoint: np.ndarray, point: np.ndarray, xy: np.ndarray) -> Correspondences:
        """Matches that no pose was found for."""
        return cls(keypoint, point, xy, np.full(len(keypoint), np.nan), np.zeros(len(keypoint), bool))

    def take(self, rows: np.ndarray) -> Correspondences:
        """Some of them."""
        return Correspondences(**{name: getattr(self, name)[rows] for name in _KINDS})

    def at_most(self, count: int) -> Correspondences:
        """`count` of them, spread evenly over the inliers first and then over the rest, in their order."""
        if len(self) <= count:
            return self
        inliers, others = np.flatnonzero(self.inlier), np.flatnonzero(~self.inlier)
        kept = spread(inliers, count)
        return self.take(np.sort(np.concatenate([kept, spread(others, count - len(kept))])))


def spread(values: np.ndarray, count: int) -> np.ndarray:
    """At most `count` of some values, evenly over their order; the first and the last are among them."""
    if len(values) <= count:
        return values
    return values[np.linspace(0, len(values) - 1, count).round().astype(int)]


def write(path: Path, config_hash: str, queries: Mapping[str, Correspondences]) -> Path:
    """Writes the correspondences of all queries.

    Args:
        path: the file.
        config_hash: of the results that they belong to.
        queries: by name; `point` holds COLMAP's ids.
    """
    kept = [found.at_most(KEPT) for found in queries.values()] or [Correspondences.none()]
    columns = {
        name: np.concatenate([np.asarray(getattr(found, name), kind) for found in kept])
        for name, kind in _KINDS.items()
    }
    counts = np.array([len(found) for found in kept][: len(queries)], np.int64)
    header = {"config_hash": json.dumps(config_hash), "queries": json.dumps(list(queries))}
    return arrays.write(path, {**columns, "count": counts}, {"format": _FORMAT, "version": _VERSION, **header})


def read(path: Path, config_hash: str) -> dict[str, Correspondences]:
    """The correspondences of each query.

    Args:
        path: the file.
        config_hash: of the results that they must belong to.

    Raises:
        FileNotFoundError: no such file, as beside results of earlier versions.
        ValueError: damaged, of a newer version, or of other results.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: is missing, so the inliers of the queries are not known; `xdesc localize`, run again with the "
            "same settings, writes it"
        )
    try:
        header, columns = arrays.read(path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    kind, version = header.get("format"), header.get("version")
    if (kind, version) != (_FORMAT, _VERSION):
        raise ValueError(f"{path}: is {kind!r} of version {version}, expected {_FORMAT!r} of version {_VERSION}")
    found = parse_json(header.get("config_hash", "null"))
    if found != config_hash:
        raise ValueError(f"{path}: belongs to results of configuration {found}, those beside it are of {config_hash}")
    names, counts = parse_json(header.get("queries", "[]")), columns.get("count", np.zeros(0, np.int64))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise ValueError(f"{path}: is damaged, its queries are {names!r}, expected names, each once")
    if counts.shape != (len(names),) or counts.dtype.kind not in "iu" or counts.min(initial=0) < 0:
        raise ValueError(f"{path}: is damaged, {len(names)} queries have the counts {counts}, expected one each")
    total = int(counts.astype(np.float64).sum())
    for name, kind_ in _KINDS.items():
        expected = (total, 2) if name == "xy" else (total,)
        held = columns.get(name, np.zeros(0))
        if name not in columns or held.shape != expected or held.dtype.kind != np.dtype(kind_).kind:
            raise ValueError(
                f"{path}: is damaged, {name} is {held.dtype} {held.shape}, expected {np.dtype(kind_)} {expected} of "
                f"{len(names)} queries"
            )
    whole = Correspondences(**{name: columns[name] for name in _KINDS})
    ends = np.cumsum(counts)
    return {name: whole.take(np.arange(end - count, end)) for name, count, end in zip(names, counts, ends, strict=True)}
