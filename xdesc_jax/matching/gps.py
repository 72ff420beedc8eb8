"""Pairs of photos that were taken near each other.

In: features, of whose databases the pose priors are read, and a folder of photos, of whose files EXIF is. Out:
positions in metres, and of each photo the nearest ones. Needs Pillow for EXIF.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.colmap.database import DatabaseReader, is_database
from xdesc_jax.colmap.pose_priors import WGS84, earth_position, positions
from xdesc_jax.features.images import read_exif
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.pairs import Pairs

_GPS = 0x8825  # the tag of EXIF's table of positions
_LATITUDE, _LONGITUDE, _ALTITUDE = (1, 2), (3, 4), (5, 6)  # tags of the side and of the value
_SHOWN = 5


def photo_positions(sets: Sequence[FeatureSet], photos: Path | None) -> dict[str, np.ndarray]:
    """Photo -> position [3] in metres, of those of which it is known: a database's comes first, then EXIF.

    Raises:
        ValueError: nothing knows any, or some are on the earth and others in a frame of their own.
    """
    found: dict[str, tuple[int, np.ndarray]] = {}
    names = [name for features in sets for name in features.names]
    for path in dict.fromkeys(path for features in sets for path in features.paths if is_database(path)):
        with DatabaseReader(path) as reader:
            found |= positions(reader)
    if photos is not None:
        if not photos.is_dir():
            raise FileNotFoundError(f"{photos}: no such folder of photos")
        for name in names:
            if name not in found and (at := exif_position(photos / name)) is not None:
                found[name] = (WGS84, at)
    known = {name: found[name] for name in dict.fromkeys(names) if name in found}
    if not known:
        files = [str(path) for features in sets for path in features.paths]
        holds = f"{', '.join(files)} {'holds' if len(files) == 1 else 'hold'} no pose priors"
        exif = f"nor EXIF in {photos}" if photos is not None else "and --photos, whose EXIF may, is not given"
        raise ValueError(f"no position of any photo is known: {holds}, {exif}")
    kinds = {kind: name for name, (kind, _) in reversed(known.items())}
    if len(kinds) > 1:
        a, b = kinds.values()
        raise ValueError(f"positions of {a!r} and {b!r} are in two systems, on the earth and in a frame of their own")
    if lost := [name for name in dict.fromkeys(names) if name not in known]:
        told = console.counted(len(lost), "photo has no position and is", "photos have no position and are")
        console.warn(f"{told} in no pair by it, first {lost[:_SHOWN]}")
    return {name: at for name, (_, at) in known.items()}


def exif_position(path: Path) -> np.ndarray | None:
    """Position [3] on the earth in metres that a photo's EXIF says; None where it says none, or there is no such photo.

    Raises:
        ValueError: a position that cannot be.
    """
    tags, _ = read_exif(path, _GPS)
    if not {*_LATITUDE, *_LONGITUDE} <= tags.keys():
        return None
    try:
        latitude, longitude = (_degrees(tags[value], tags[side]) for side, value in (_LATITUDE, _LONGITUDE))
        height = float(tags.get(_ALTITUDE[1], 0))
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise ValueError(f"{path}: the position in its EXIF cannot be read ({error})") from error
    below = tags.get(_ALTITUDE[0]) in (1, b"\x01")
    return earth_position(latitude, longitude, -height if below else height, f"{path}: the position in its EXIF")


def _degrees(value: Any, side: Any) -> float:
    """Degrees of degrees, minutes and seconds; below 0 in the south and west."""
    parts = [float(part) for part in value]
    degrees = sum(part / 60**power for power, part in enumerate(parts))
    return -degrees if str(side).strip("\0 ").upper() in ("S", "W") else degrees


def near_pairs(names0: Sequence[str], names1: Sequence[str] | None, at: Mapping[str, np.ndarray], count: int) -> Pairs:
    """Each photo with the `count` nearest ones.

    Args:
        names0: the photos.
        names1: those that are looked among; None for the same, and none with itself.
        at: photo -> position [3]; photos without one are in no pair.
        count: at least 1.
    """
    from scipy.spatial import KDTree

    others = names0 if names1 is None else names1
    rows0 = np.array([row for row, name in enumerate(names0) if name in at], np.int32)
    rows1 = np.array([row for row, name in enumerate(others) if name in at], np.int32)
    if not len(rows0) or not len(rows1):
        return Pairs(names0, others, np.zeros(0, np.int32), np.zeros(0, np.int32))
    places0, places1 = (np.array([at[of[row]] for row in rows]) for of, rows in ((names0, rows0), (others, rows1)))
    wanted = min(count + (names1 is None), len(rows1))
    _, found = KDTree(places1).query(places0, k=[*range(1, wanted + 1)])
    first, second = np.repeat(rows0, wanted), rows1[found.reshape(-1)]
    if names1 is None:
        keep = (first != second).reshape(-1, wanted)
        keep &= np.cumsum(keep, axis=1) <= count
        first, second = first[keep.reshape(-1)], second[keep.reshape(-1)]
    return Pairs(names0, others, first, second)
