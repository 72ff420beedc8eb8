"""The one module that imports pycolmap.

In: arrays, or paths of photos, databases and models. Out: arrays and files. pycolmap exports zlib symbols of
its own: imported before zlib or OpenCV, it makes the process abort or hang on the first deflate (PNG, .npz,
gzip), hence the order of imports here.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import zlib  # noqa: F401
from collections.abc import Sequence
from pathlib import Path

import numpy as np

with contextlib.suppress(ModuleNotFoundError):
    import cv2  # noqa: F401

import pycolmap

from xdesc_jax.colmap.model import Camera, Model

pycolmap.logging.minloglevel = pycolmap.logging.WARNING.value

# COLMAP's limit keeps the largest scales, so it is set out of reach and the caller chooses.
_NO_LIMIT = 1 << 30


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


# --- Reconstruction ----------------------------------------------------------------------------------------


def add_photos(database: Path, photos: Path, names: Sequence[str]) -> None:
    """Makes a database of photos that have no features yet, each with its own camera; ids follow `names`.

    Args:
        database: the file to make.
        photos: folder that holds `names`. Damaged photos are left out of the database.
    """
    pycolmap.Database.open(database).close()  # `import_images` asks for an existing one
    pycolmap.import_images(database, photos, pycolmap.CameraMode.PER_IMAGE, list(names))


def add_features(database: Path, photos: Path, max_features: int, max_side_px: int, threads: int) -> None:
    """Writes SIFT features of the database's photos that have none; larger photos are shrunk to `max_side_px` first."""
    options = pycolmap.FeatureExtractionOptions()
    options.use_gpu = False
    options.num_threads = threads
    options.max_image_size = max_side_px
    options.sift.max_num_features = max_features
    with pycolmap.Database.open(database) as db:
        missing = [image.name for image in db.read_all_images() if not db.exists_keypoints(image.image_id)]
    if missing:
        mode, device = pycolmap.CameraMode.PER_IMAGE, pycolmap.Device.cpu
        pycolmap.extract_features(database, photos, missing, mode, extraction_options=options, device=device)


def add_matches(database: Path, neighbours: int | None, seed: int, threads: int) -> None:
    """Matches and verifies the pairs of photos that are not matched yet.

    Args:
        database: with SIFT features; others abort the process.
        neighbours: match each photo to so many that follow it in the order of names; None matches all pairs.
        seed: of the geometric verification.
        threads: to run on.
    """
    matching = pycolmap.FeatureMatchingOptions()
    matching.use_gpu = False
    matching.num_threads = threads
    geometry = pycolmap.TwoViewGeometryOptions()
    geometry.ransac.random_seed = seed
    device = pycolmap.Device.cpu
    if neighbours is None:
        pycolmap.match_exhaustive(database, matching, verification_options=geometry, device=device)
        return
    pairing = pycolmap.SequentialPairingOptions()
    pairing.overlap = neighbours
    pairing.quadratic_overlap = False  # True matches to the 1st, 2nd, 4th, 8th ... instead
    pycolmap.match_sequential(database, matching, pairing, geometry, device=device)


def database_counts(database: Path) -> dict[str, int]:
    """Photos, features and verified pairs of photos in a database."""
    with pycolmap.Database.open(database) as db:
        pairs = sum(inliers > 0 for inliers in db.read_two_view_geometry_num_inliers()[1])
        return {"photos": db.num_images(), "features": db.num_keypoints(), "verified pairs": pairs}


def map_photos(database: Path, photos: Path, out: Path, two_view_tracks: bool, seed: int, threads: int) -> None:
    """Incremental mapping; writes models `out`/0, 1, ..., those with most photos (then points) first.

    Points of two photos are kept with `two_view_tracks`. No model is written where the verified matches
    are not enough: COLMAP raises nothing then. It also refuses to start from a pair that moves forward, so
    where that is all there is, a second try allows it.
    """
    options = pycolmap.IncrementalPipelineOptions()
    options.num_threads = threads
    options.random_seed = seed
    options.min_model_size = 3
    options.extract_colors = False
    options.triangulation.ignore_two_view_tracks = not two_view_tracks
    raw = out / "raw"
    raw.mkdir(parents=True)
    models = pycolmap.incremental_mapping(database, photos, raw, options)
    if not models:
        options.mapper.init_max_forward_motion = 1.0
        options.mapper.init_min_tri_angle = 4.0
        models = pycolmap.incremental_mapping(database, photos, raw, options)
    ordered = sorted(models.values(), key=lambda model: (-model.num_reg_images(), -model.num_points3D()))
    for index, model in enumerate(ordered):
        (out / str(index)).mkdir()
        model.write(out / str(index))
    shutil.rmtree(raw)


def read_model(path: Path) -> Model:
    """Reads a model's folder, text or binary; views are sorted by name.

    Raises:
        FileNotFoundError: the folder does not hold a model.
        ValueError: its files cannot be read.
    """
    if not any((path / f"images{end}").exists() for end in (".bin", ".txt")):
        raise FileNotFoundError(f"{path}: holds no COLMAP model (cameras, images and points3D, .bin or .txt)")
    try:
        model = pycolmap.Reconstruction(path)
    except (ValueError, RuntimeError, IndexError) as error:
        raise ValueError(f"{path}: not a readable COLMAP model ({error})") from error
    images = sorted((model.images[i] for i in model.reg_image_ids()), key=lambda image: image.name)
    if not images:
        raise ValueError(f"{path}: the COLMAP model has no registered photo")
    row_of = {point_id: row for row, point_id in enumerate(sorted(model.points3D))}
    points = np.array([model.points3D[point_id].xyz for point_id in row_of], np.float64).reshape(-1, 3)
    poses = [image.cam_from_world() for image in images]
    cameras = [model.cameras[image.camera_id] for image in images]
    columns: list[list[np.ndarray]] = []
    for view, (image, pose, camera) in enumerate(zip(images, poses, cameras, strict=True)):
        rows = np.array(image.get_observation_point2D_idxs(), np.int64)
        seen = [image.point2D(int(row)) for row in rows]
        of = np.array([row_of[p.point3D_id] for p in seen], np.int64)
        xy = np.array([p.xy for p in seen], np.float64).reshape(-1, 2)
        projected = np.asarray(camera.img_from_cam(points[of] @ pose.rotation.matrix().T + pose.translation))
        columns.append([of, np.full(len(of), view), rows, np.linalg.norm(projected.reshape(-1, 2) - xy, axis=1), xy])
    point, view_of, keypoint, residual_px, xy_of = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.lexsort((keypoint, view_of, point))
    return Model(
        names=tuple(image.name for image in images),
        rotations=np.array([pose.rotation.matrix() for pose in poses]),
        translations=np.array([pose.translation for pose in poses]),
        cameras=tuple(Camera(c.model.name, c.width, c.height, tuple(c.params.tolist())) for c in cameras),
        focals_px=np.array([camera.mean_focal_length() for camera in cameras]),
        points=points,
        point=point[order],
        view=view_of[order],
        keypoint=keypoint[order],
        residual_px=residual_px[order],
        xy=xy_of[order],
        keypoint_counts=np.array([image.num_points2D() for image in images]),
    )
