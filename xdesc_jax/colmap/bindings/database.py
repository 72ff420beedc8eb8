"""pycolmap and databases: cameras of photos, a new database, and what a copied one lacks for mapping.

In: cameras, keypoints, rows, matches; the path of a database. Out: a database in COLMAP's present schema, in
which every photo has a frame. COLMAP refuses databases where some photos have one and others have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import numpy as np

from xdesc_jax.colmap.bindings.api import open_database, pycolmap
from xdesc_jax.colmap.camera_models import focals
from xdesc_jax.colmap.model import Camera

# --- Cameras -------------------------------------------------------------------------------------------------


def exif_camera(photo: Path) -> Camera:
    """What a photo's EXIF says of its camera; `known` is False where it says nothing.

    Raises:
        ValueError: the photo cannot be read.
    """
    try:
        return _camera(pycolmap.infer_camera_from_image(photo))
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{photo}: cannot be read as a photo ({error})") from error


def _camera(camera: pycolmap.Camera) -> Camera:
    params, known = tuple(camera.params.tolist()), camera.has_prior_focal_length or not focals(camera.model.name)
    return Camera(camera.model.name, camera.width, camera.height, params, known)


# --- Databases -----------------------------------------------------------------------------------------------


class NewDatabase:
    """A new COLMAP database; use as a context manager. Every photo gets a frame, every camera a rig.

    Args:
        path: the file to make.
    """

    def __init__(self, path: Path):
        self._path = path

    def __enter__(self) -> NewDatabase:
        self._opened = open_database(self._path)
        self._db = self._opened.__enter__()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._opened.__exit__(kind, error, trace)

    def add_camera(self, camera: Camera) -> int:
        """Adds a camera; its id."""
        camera_id = self._db.write_camera(_colmap_camera(camera))
        add_rig(self._db, camera_id)
        return camera_id

    def add_photo(self, name: str, camera_id: int) -> int:
        """Adds a photo; its id."""
        image_id = self._db.write_image(pycolmap.Image(name=name, camera_id=camera_id))
        add_frame(self._db, image_id, camera_id)
        return image_id

    def write_features(self, image_id: int, keypoints: np.ndarray, rows: np.ndarray | None, kind: int) -> None:
        """Writes keypoints float32 [N, 6], corner origin, and rows as bytes, uint8 [N, bytes], typed `kind`."""
        self._db.write_keypoints(image_id, np.ascontiguousarray(keypoints, np.float32))
        if rows is not None:
            typed = pycolmap.FeatureExtractorType(kind)
            self._db.write_descriptors(image_id, pycolmap.FeatureDescriptors(type=typed, data=rows))

    def write_matches(self, a: int, b: int, indices: np.ndarray) -> None:
        """Writes the matches of two image ids, a < b: int [M, 2], within the photos' rows."""
        self._db.write_matches(a, b, np.ascontiguousarray(indices, np.uint32))


def add_rig(db: pycolmap.Database, camera_id: int) -> int:
    """A rig of one camera; its id."""
    rig = pycolmap.Rig()
    rig.add_ref_sensor(pycolmap.sensor_t(pycolmap.SensorType.CAMERA, camera_id))
    return db.write_rig(rig)


def add_frame(db: pycolmap.Database, image_id: int, camera_id: int, rig_id: int | None = None) -> None:
    """A frame of one photo, in the rig of its camera (of the same id unless told)."""
    frame = pycolmap.Frame()
    frame.rig_id = camera_id if rig_id is None else rig_id
    sensor = pycolmap.sensor_t(pycolmap.SensorType.CAMERA, camera_id)
    frame.add_data_id(pycolmap.data_t(sensor, image_id))
    db.write_frame(frame)


def complete_frames(database: Path, dissolve: bool) -> int:
    """Gives each photo without a frame one of its own; returns how many there were.

    Args:
        database: of any schema; opening it brings it to the present one.
        dissolve: first take out all rigs and frames, so that each photo has its own.
    """
    with open_database(database) as db, pycolmap.DatabaseTransaction(db):
        if dissolve:
            db.clear_frames()
            db.clear_rigs()
        framed = {data.id for frame in db.read_all_frames() for data in frame.data_ids}
        rigs = {sensor.id: rig.rig_id for rig in db.read_all_rigs() for sensor in rig.sensor_ids()}
        missing = [image for image in db.read_all_images() if image.image_id not in framed]
        for image in missing:
            if image.camera_id not in rigs:
                rigs[image.camera_id] = add_rig(db, image.camera_id)
            add_frame(db, image.image_id, image.camera_id, rigs[image.camera_id])
    return len(missing)


def set_cameras(database: Path, cameras: Mapping[int, Camera]) -> bool:
    """Sets cameras by their ids; returns whether any was another before, and drops the geometries then."""
    with open_database(database) as db, pycolmap.DatabaseTransaction(db):
        changed = False
        for camera_id, camera in cameras.items():
            if _camera(db.read_camera(camera_id)) != camera:
                db.update_camera(_colmap_camera(camera, camera_id))
                changed = True
        if changed:
            db.clear_two_view_geometries()
    return changed


def image_cameras(database: Path) -> dict[str, int]:
    """Photo name -> id of its camera."""
    with open_database(database) as db:
        return {image.name: image.camera_id for image in db.read_all_images()}


def _colmap_camera(camera: Camera, camera_id: int | None = None) -> pycolmap.Camera:
    made = pycolmap.Camera(
        model=camera.model, width=camera.width, height=camera.height, params=np.array(camera.params),
        has_prior_focal_length=camera.known,
    )  # fmt: skip
    if camera_id is not None:
        made.camera_id = camera_id
    return made


def cameras_by_id(database: Path) -> dict[int, Camera]:
    """The cameras of a database by their ids."""
    with open_database(database) as db:
        return {camera.camera_id: _camera(camera) for camera in db.read_all_cameras()}


def frame_count(database: Path) -> int:
    """Frames of a database: a photo each, or all photos that a rig took at once."""
    with open_database(database) as db:
        return int(db.num_frames())


def image_names(database: Path) -> list[str]:
    """The photos of a database, sorted."""
    with open_database(database) as db:
        return sorted(image.name for image in db.read_all_images())
