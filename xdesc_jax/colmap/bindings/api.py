"""The one module that imports pycolmap.

In: arrays, or paths of photos, databases and models. Out: arrays and files. pycolmap exports zlib symbols of
its own: imported before zlib or OpenCV, it makes the process abort or hang on the first deflate (PNG, .npz,
gzip), hence the order of imports here.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.colmap.camera_models import check_camera
from xdesc_jax.colmap.foreign import as_colmap
from xdesc_jax.colmap.foreign.read import KNOWN, find, read_scene
from xdesc_jax.colmap.model import Camera, Model
from xdesc_jax.colmap.model_arrays import NO_POINT, read_keypoints, read_points
from xdesc_jax.colmap.model_files import check_model_files, meant
from xdesc_jax.colmap.text_model import readable

if TYPE_CHECKING:
    import pycolmap
else:

    class _AtFirstUse:
        """pycolmap, imported when one of its names is asked for: a command line is read and helped without it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(_pycolmap(), name)

    pycolmap = _AtFirstUse()


@functools.cache
def _pycolmap() -> Any:
    import zlib  # noqa: F401

    with contextlib.suppress(ModuleNotFoundError):
        import cv2  # noqa: F401

    import pycolmap

    # It prints a stack of calls at SIGTERM, and takes the signal from who waits for it (`train.preemption`).
    before = signal.getsignal(signal.SIGTERM)  # Python's, which is not told
    if before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)

    # COLMAP warns of much that a caller checks and tells by itself, and of nothing that only it would know.
    level = pycolmap.logging.INFO if console.is_verbose() else pycolmap.logging.ERROR
    pycolmap.logging.minloglevel = level.value
    return pycolmap


# COLMAP's limit keeps the largest scales, so it is set out of reach and the caller chooses.
_NO_LIMIT = 1 << 30
_UNIT = 1e-14  # of a quaternion's length: what COLMAP writes stays as it is, bit for bit


@functools.cache
def _sift(first_octave: int) -> pycolmap.FeatureExtractor:
    options = pycolmap.FeatureExtractionOptions()
    options.use_gpu = False
    options.num_threads = 1
    options.sift.max_num_features = _NO_LIMIT
    options.sift.first_octave = first_octave
    return pycolmap.FeatureExtractor.create(options, pycolmap.Device.cpu)


def detect_sift(rgb: np.ndarray, first_octave: int = -1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """COLMAP's SIFT with its default settings, without a limit to the number of features.

    Args:
        rgb: uint8 [H, W, 3].
        first_octave: -1 doubles the photo first, 0 does not.

    Returns:
        Keypoints in COLMAP's form, float32 [N, 6] with corner origin; descriptors uint8 [N, 128]; and the
        Rec. 709 gray they come from, uint8 [H, W].
    """
    bitmap = pycolmap.Bitmap.from_array(np.ascontiguousarray(rgb)).clone_as_grey()
    keypoints, descriptors = _sift(first_octave).extract(bitmap)
    columns = np.array([(k.x, k.y, k.a11, k.a12, k.a21, k.a22) for k in keypoints], np.float32).reshape(-1, 6)
    gray = bitmap.to_array().reshape(rgb.shape[:2])
    return columns, np.asarray(descriptors.data, np.uint8).reshape(-1, 128), gray


def open_model(path: Path) -> pycolmap.Reconstruction:
    """COLMAP's own form of a model: of its folder, or of a file of another program (`foreign`).

    Raises:
        FileNotFoundError: there is no model.
        ValueError: its files cannot be read, or are cut short.
    """
    with _colmap_folder(path, None) as (folder, _):
        return _open(folder, path)


def _with_camera(images: list[pycolmap.Image], model: pycolmap.Reconstruction, path: Path) -> list[pycolmap.Image]:
    """The photos but those whose camera cannot be and that see no point, where others do: COLMAP leaves such in small
    models.

    Raises:
        ValueError: a camera that cannot be, of a photo that is needed.
    """
    lost, seeing = set(), {image.camera_id for image in images if image.num_points3D}
    for camera_id in dict.fromkeys(image.camera_id for image in images):
        try:
            check_camera(plain_camera(model.cameras[camera_id]), f"{path}: camera {camera_id}")
        except ValueError as error:
            if camera_id in seeing or not seeing:
                raise
            for image in images:
                if image.camera_id == camera_id:
                    console.warn(f"left out: {image.name!r}, which sees no point ({error})")
            lost.add(camera_id)
    return [image for image in images if image.camera_id not in lost]


def _open(folder: Path, path: Path) -> pycolmap.Reconstruction:
    """The model of a folder; `path` is what messages call it."""
    if not any((folder / f"images{end}").exists() for end in (".bin", ".txt")):
        if hint := meant(folder):
            raise FileNotFoundError(f"{path}: holds no COLMAP model{hint}")
        raise FileNotFoundError(
            f"{path}: holds no COLMAP model (cameras, images and points3D, .bin or .txt), and is none of {KNOWN}"
        )
    check_model_files(folder)
    with contextlib.nullcontext(folder) if _is_binary(folder) else readable(folder) as plain:
        try:
            model = pycolmap.Reconstruction(plain)
        except (ValueError, RuntimeError, IndexError, KeyError) as error:
            raise ValueError(f"{path}: not a readable COLMAP model ({error})") from error
    _scale_rotations(model, path)
    return model


@contextlib.contextmanager
def _colmap_folder(
    path: Path, photos: Mapping[str, tuple[int, int]] | None
) -> Iterator[tuple[Path, list[np.ndarray] | None]]:
    """The folder of a COLMAP model: the path, or of a model of another program a temporary one, and then of each photo
    the rows of its keypoints in that program's files; photo i has the id i + 1."""
    if (file := find(path)) is None:
        yield path, None
        return
    scene = read_scene(file)
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder), as_colmap.write(scene, scene.names(photos or ()), scene.cameras(photos or {}), Path(folder))


def _is_binary(path: Path) -> bool:
    return all((path / f"{part}.bin").exists() for part in ("cameras", "images", "points3D"))


def _scale_rotations(model: pycolmap.Reconstruction, path: Path) -> None:
    """Brings quaternions to unit length, which other writers do not, and COLMAP takes for granted."""
    for frame in model.frames.values():
        if frame.has_pose():
            _scale(frame.rig_from_world.rotation, f"{path}: frame {frame.frame_id}")
    for rig in model.rigs.values():
        for sensor in rig.non_ref_sensors:
            if (pose := rig.sensor_from_rig(sensor)) is not None:
                _scale(pose.rotation, f"{path}: sensor {sensor.id} of rig {rig.rig_id}")
                rig.set_sensor_from_rig(sensor, pose)


def _scale(rotation: pycolmap.Rotation3d, where: str) -> None:
    quaternion = np.array(rotation.quat)
    length = float(np.linalg.norm(quaternion))
    if not 0 < length < np.inf:
        raise ValueError(f"{where}: its quaternion is {quaternion.tolist()}, expected finite numbers, not all zero")
    if abs(length - 1) > _UNIT:
        rotation.quat = quaternion / length


def write_model(model: pycolmap.Reconstruction, folder: Path) -> None:
    """Writes COLMAP's own form of a model to an existing folder.

    Raises:
        OSError: it could not be written whole. COLMAP tells nothing of a full disk.
    """
    model.write(folder)
    try:
        check_model_files(folder)
    except ValueError as error:
        raise OSError(f"{folder}: the model could not be written whole, is the disk full? ({error})") from error


@contextlib.contextmanager
def open_database(path: Path) -> Iterator[pycolmap.Database]:
    """A COLMAP database; a missing one is made, and one of an older schema brought to the present one.

    Raises:
        OSError: it cannot be opened or written: a full disk, a lock, a folder without the right to write.
    """
    try:
        with pycolmap.Database.open(path) as db:
            yield db
    except RuntimeError as error:
        if not any(words in str(error) for words in ("SQLite error", "database factory")):
            raise
        raise OSError(f"{path}: cannot be opened or written as a COLMAP database ({error})") from error


def plain_camera(camera: pycolmap.Camera) -> Camera:
    """COLMAP's camera as ours, `known` whatever its focal length comes from."""
    return Camera(camera.model.name, camera.width, camera.height, tuple(camera.params.tolist()))


def read_model(path: Path, photos: Mapping[str, tuple[int, int]] | None = None) -> Model:
    """Reads a model, text or binary, or of another program (`foreign`); views are sorted by name.

    Args:
        path: its folder, or the file of another program.
        photos: names of photos that are at hand and their (width, height) in px, (0, 0) where it is not known. Other
            programs' photos are called by them, and some programs do not say the sizes.

    Raises:
        FileNotFoundError: there is no model.
        ValueError: its files cannot be read, or are cut short, a name is not UTF-8, a pose, point or keypoint is not
            finite, a camera cannot be, or a keypoint observes a point that is not there.
    """
    with _colmap_folder(path, photos) as (folder, rows_of):
        return _read(folder, path, rows_of)


def _read(folder: Path, path: Path, rows_of: list[np.ndarray] | None) -> Model:
    model = _open(folder, path)
    try:
        images = sorted((model.images[i] for i in model.reg_image_ids()), key=lambda image: image.name)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: the name of a photo is not UTF-8 ({error})") from error
    if not images:
        raise ValueError(f"{path}: the COLMAP model has no registered photo")
    with _binary(folder, path, model) as binary:
        point_ids, points = read_points(binary)
        _check_finite(points, f"{path}: a point")
        keypoints_of = read_keypoints(binary)
    images = _with_camera(images, model, path)
    poses = [image.cam_from_world() for image in images]
    rotations = np.array([pose.rotation.matrix() for pose in poses])
    translations = np.array([pose.translation for pose in poses])
    for image, rotation, translation in zip(images, rotations, translations, strict=True):
        if not (np.isfinite(rotation).all() and np.isfinite(translation).all()):
            told = f"rotation {rotation.ravel().tolist()}, translation {translation.tolist()}"
            raise ValueError(f"{path}: the pose of {image.name!r} is not finite ({told})")
    cameras = {i: model.cameras[i] for i in dict.fromkeys(image.camera_id for image in images)}
    columns: list[list[np.ndarray]] = []
    for view, image in enumerate(images):
        keypoints = keypoints_of[image.image_id]
        rows = np.flatnonzero(keypoints.point_id != NO_POINT)
        of = _places(keypoints.point_id[rows], point_ids, f"{path}: {image.name!r}")
        xy = keypoints.xy[rows]
        _check_finite(xy, f"{path}: a keypoint of {image.name!r}")
        seen = points[of] @ rotations[view].T + translations[view]
        projected = np.asarray(cameras[image.camera_id].img_from_cam(seen)).reshape(-1, 2)
        own = rows if rows_of is None else rows_of[image.image_id - 1][rows]
        columns.append([of, np.full(len(of), view), own, np.linalg.norm(projected - xy, axis=1), xy])
    point, view_of, keypoint, residual_px, xy_of = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.argsort(point, kind="stable")  # views and rows ascend already
    plain = {i: plain_camera(camera) for i, camera in cameras.items()}
    focals = {i: camera.mean_focal_length() for i, camera in cameras.items()}
    return Model(
        names=tuple(image.name for image in images),
        rotations=rotations,
        translations=translations,
        cameras=tuple(plain[image.camera_id] for image in images),
        focals_px=np.array([focals[image.camera_id] for image in images]),
        points=points,
        point=point[order],
        view=view_of[order],
        keypoint=keypoint[order],
        residual_px=residual_px[order],
        xy=xy_of[order],
        keypoint_counts=None if rows_of else np.array([len(keypoints_of[image.image_id]) for image in images]),
        point_ids=point_ids,
    )


@contextlib.contextmanager
def _binary(folder: Path, path: Path, model: pycolmap.Reconstruction) -> Iterator[Path]:
    """A folder with the binary files of a model: its own, or of one in text a temporary one."""
    if _is_binary(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory() as temporary:
        try:
            model.write_binary(temporary)
        except RuntimeError as error:
            raise ValueError(f"{path}: rigs, frames and photos do not fit each other ({error})") from error
        yield Path(temporary)


def _check_finite(positions: np.ndarray, what: str) -> None:
    if not (fine := np.isfinite(positions).all(axis=1)).all():
        raise ValueError(f"{what} is at {positions[~fine][0].tolist()}, expected finite numbers")


def _places(ids: np.ndarray, among: np.ndarray, where: str) -> np.ndarray:
    """Where points [M] stand among the ids of all, ascending."""
    places = np.searchsorted(among, ids)
    lost = ids[np.take(among, places, mode="clip") != ids] if len(among) else ids
    if len(lost):
        raise ValueError(f"{where} observes point {lost[0]}, which the model does not hold")
    return places
