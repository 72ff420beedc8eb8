"""Where photos were taken, as COLMAP databases say it: the table `pose_priors`.

In: a database of COLMAP 3.9 or later, of either schema. Out: positions in metres by photo, in a cartesian frame: as
they stand, or from latitude, longitude and altitude. Needs SQLite alone.
"""

from __future__ import annotations

import math

import numpy as np

from xdesc_jax.colmap.database import DatabaseReader

WGS84, CARTESIAN = 0, 1  # of the column `coordinate_system`; -1 is not said, and counts as CARTESIAN
_CAMERA = 0  # of the column `corr_sensor_type`
_AXIS_M, _FLATTENING = 6378137.0, 1 / 298.257223563  # of the ellipsoid


def positions(reader: DatabaseReader) -> dict[str, tuple[int, np.ndarray]]:
    """Photo -> coordinate system (WGS84 or CARTESIAN) and position [3] in metres; photos without one are left out.

    Raises:
        ValueError: a position that is no three numbers.
    """
    columns = reader.columns("pose_priors")
    if not columns:
        return {}
    newer = "corr_data_id" in columns
    ids = f"corr_data_id FROM pose_priors WHERE corr_sensor_type = {_CAMERA}" if newer else "image_id FROM pose_priors"
    names = {image: name for name, image in reader.ids.items()}
    found = {}
    for position, system, image in reader.query(f"SELECT position, coordinate_system, {ids}"):
        if image not in names or position is None:
            continue
        where = f"{reader.path}: the position of {names[image]!r}"
        if not isinstance(position, bytes) or len(position) != 24:
            raise ValueError(f"{where} is {position!r:.60}, expected 3 float64")
        xyz = np.frombuffer(position, np.float64)
        if not np.isfinite(xyz[:2]).all():
            continue  # COLMAP writes NaN where it knows none
        a, b, c = xyz.tolist()
        on_earth = system == WGS84
        place = earth_position(a, b, c, where) if on_earth else np.nan_to_num(xyz)
        found[names[image]] = (WGS84 if on_earth else CARTESIAN, place)
    return found


def earth_position(latitude_deg: float, longitude_deg: float, altitude_m: float, where: str) -> np.ndarray:
    """Position on the earth as x, y, z in metres from its centre, [3]; an altitude that is not finite is 0.

    Raises:
        ValueError: a latitude beyond the poles, or a longitude beyond 360 degrees.

    Source: WGS 84, NIMA TR8350.2.
    """
    if not (abs(latitude_deg) <= 90 and abs(longitude_deg) <= 360):
        raise ValueError(f"{where} is at latitude {latitude_deg:g}, longitude {longitude_deg:g}, expected degrees")
    altitude = altitude_m if math.isfinite(altitude_m) else 0.0
    latitude, longitude = math.radians(latitude_deg), math.radians(longitude_deg)
    squared = _FLATTENING * (2 - _FLATTENING)
    radius = _AXIS_M / math.sqrt(1 - squared * math.sin(latitude) ** 2)
    across = (radius + altitude) * math.cos(latitude)
    up = (radius * (1 - squared) + altitude) * math.sin(latitude)
    return np.array([across * math.cos(longitude), across * math.sin(longitude), up])
