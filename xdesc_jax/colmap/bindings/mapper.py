"""pycolmap from matches to models: geometric verification, mapping, triangulation.

In: the path of a database, and settings. Out: verified pairs in the database, and models in a folder.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from xdesc_jax.colmap.bindings.api import open_database, open_model, plain_camera, pycolmap, write_model
from xdesc_jax.colmap.bindings.settings import MappingSettings
from xdesc_jax.colmap.camera_models import check_camera
from xdesc_jax.colmap.model import Pose

_PAIRS_AT_ONCE = 64  # verified pairs between two commits
_PHOTOS_KEPT = 256  # keypoints in memory


# --- Verification --------------------------------------------------------------------------------------------


def pair_counts(database: Path) -> tuple[int, int, int]:
    """Pairs with matches, the most matches of a pair, and pairs that passed geometric verification."""
    with open_database(database) as db:
        matched = [count for count in db.read_num_matches()[1] if count]
        verified = sum(inliers > 0 for inliers in db.read_two_view_geometry_num_inliers()[1])
    return len(matched), max(matched, default=0), verified


def unverified_pairs(database: Path) -> list[tuple[int, int]]:
    """Pairs of image ids that have matches, but were not verified yet."""
    with open_database(database) as db:
        done = set(db.read_two_view_geometry_num_inliers()[0])
        ids = [i for i, count in zip(*db.read_num_matches(), strict=True) if count and i not in done]
        pairs = [(a, b) for a, b in map(pycolmap.pair_id_to_image_pair, ids)]
        # Those without an inlier are not among `done`.
        return [(a, b) for a, b in pairs if not db.exists_two_view_geometry(a, b)]


def verify_pairs(
    database: Path, pairs: list[tuple[int, int]], settings: MappingSettings, on_pairs: Callable[[int], None]
) -> None:
    """Writes the two-view geometries of pairs, as COLMAP's `geometric_verification` would.

    Each pair starts from the seed, so the number of threads changes nothing.

    Args:
        database: with keypoints and matches.
        pairs: of image ids.
        settings: see there.
        on_pairs: called with the number of pairs that were written.
    """
    options = pycolmap.TwoViewGeometryOptions()
    options.min_num_inliers = settings.min_inliers
    options.ransac.max_error = settings.max_error_px
    options.ransac.random_seed = settings.seed
    with open_database(database) as db, ThreadPoolExecutor(settings.threads) as pool:

        @functools.lru_cache(maxsize=_PHOTOS_KEPT)
        def photo(image_id: int) -> tuple[pycolmap.Camera, np.ndarray]:
            camera = db.read_camera(db.read_image(image_id).camera_id)
            return camera, np.asarray(db.read_keypoints(image_id), np.float64)[:, :2]

        for start in range(0, len(pairs), _PAIRS_AT_ONCE):
            block = pairs[start : start + _PAIRS_AT_ONCE]
            # The database is read in this thread alone.
            jobs = [(*photo(a), *photo(b), db.read_matches(a, b), options) for a, b in block]
            found = list(pool.map(lambda job: pycolmap.estimate_two_view_geometry(*job), jobs))
            with pycolmap.DatabaseTransaction(db):
                for (a, b), geometry in zip(block, found, strict=True):
                    db.write_two_view_geometry(a, b, geometry)
            on_pairs(len(block))


# --- Models --------------------------------------------------------------------------------------------------


def map_database(
    database: Path,
    out: Path,
    settings: MappingSettings,
    fixed: Collection[int] = (),
    on_frames: Callable[[int], None] = lambda number: None,
    only: Collection[str] = (),
) -> int:
    """Incremental mapping; writes models `out`/0, 1, ..., those with most photos (then points) first.

    COLMAP raises nothing where the verified matches are not enough for a model. It also refuses to start from
    a pair that moves forward, so where that is all there is, a second try allows it.

    Args:
        database: with verified pairs.
        out: an existing folder.
        settings: see there.
        fixed: ids of cameras to keep as they are.
        on_frames: called whenever frames were added to a model, with their number; a frame is a photo, or all that a
            rig took at once.
        only: photos to map; all of the database where empty.

    Returns:
        The number of models.
    """
    options = _options(settings)
    options.constant_cameras = set(fixed)
    options.image_names = list(only)
    raw = out / "raw"
    raw.mkdir(parents=True)
    run = functools.partial(
        pycolmap.incremental_mapping,
        database,
        raw,
        raw,
        options,
        initial_image_pair_callback=lambda: on_frames(2),
        next_image_callback=lambda: on_frames(1),
    )
    models = run()
    if not models:
        options.mapper.init_max_forward_motion = 1.0
        options.mapper.init_min_tri_angle = 4.0
        models = run()
    for model in models.values():
        _take_out_unheld(model)
    held = [model for model in models.values() if model.num_reg_images()]
    ordered = sorted(held, key=lambda model: (-model.num_reg_images(), -model.num_points3D()))
    for index, model in enumerate(ordered):
        _write(model, out / str(index))
    shutil.rmtree(raw)
    return len(ordered)


def _take_out_unheld(model: pycolmap.Reconstruction) -> None:
    """Takes frames out of a model that observe none of its points, or have a camera that cannot be.

    COLMAP does so itself at the end of mapping, but only in models of 20 photos or more. In smaller ones a photo
    whose points were all filtered keeps a pose that nothing holds, and a focal length refined to anything.
    """
    while lost := [frame_id for frame_id in model.reg_frame_ids() if not _is_held(model, frame_id)]:
        for frame_id in lost:
            model.deregister_frame(frame_id)  # a point that one photo alone observes goes, too
    model.tear_down()


def _is_held(model: pycolmap.Reconstruction, frame_id: int) -> bool:
    images = [model.images[data.id] for data in model.frames[frame_id].image_ids if data.id in model.images]
    try:
        for image in images:
            check_camera(plain_camera(model.cameras[image.camera_id]), image.name)
    except ValueError:
        return False
    return any(image.num_points3D for image in images)


def triangulate_database(database: Path, poses: Mapping[str, Pose], out: Path, settings: MappingSettings) -> int:
    """Triangulates the verified matches between photos of known poses; writes the model `out`/0.

    COLMAP does it around the cameras' own middle: far from the origin, as in UTM or ECEF coordinates, the rows of its
    linear systems differ in their last digits alone.

    Args:
        database: with verified pairs, and one frame per photo of each `poses`.
        poses: by photo name; each is in the database. Poses and cameras stay as they are.
        out: an existing folder.
        settings: see there.

    Returns:
        The number of points.
    """
    given, middle = pycolmap.Reconstruction(), np.median([pose.center for pose in poses.values()], axis=0)
    with open_database(database) as db:
        for camera in db.read_all_cameras():
            given.add_camera(camera)
        for rig in db.read_all_rigs():
            given.add_rig(rig)
        frames = {frame.frame_id: frame for frame in db.read_all_frames()}
        for image in db.read_all_images():
            if image.name in poses:
                pose, frame = poses[image.name], frames[image.frame_id]
                frame.rig_from_world = _rigid(pose.moved(-middle))
                given.add_frame(frame)
                given.add_image(image)
                given.register_frame(frame.frame_id)
    raw = out / "raw"
    raw.mkdir(parents=True)
    model = pycolmap.triangulate_points(given, database, raw, raw, options=_options(settings))
    shutil.rmtree(raw)
    for point in model.points3D.values():
        point.xyz = np.asarray(point.xyz) + middle
    for image in model.images.values():
        model.frame(image.frame_id).rig_from_world = _rigid(poses[image.name])
    _write(model, out / "0")
    return model.num_points3D()


def _rigid(pose: Pose) -> pycolmap.Rigid3d:
    rotation = pycolmap.Rotation3d(np.asarray(pose.rotation, np.float64))
    return pycolmap.Rigid3d(rotation, np.asarray(pose.translation, np.float64))


def _options(settings: MappingSettings) -> pycolmap.IncrementalPipelineOptions:
    options = pycolmap.IncrementalPipelineOptions()
    options.num_threads = settings.threads
    options.random_seed = settings.seed
    options.min_num_matches = settings.min_matches
    options.min_model_size = settings.min_model_size
    options.extract_colors = False
    options.mapper.init_min_num_inliers = settings.min_initial_inliers
    options.mapper.abs_pose_min_num_inliers = settings.min_pose_inliers
    options.mapper.abs_pose_max_error = settings.max_pose_error_px
    options.mapper.filter_max_reproj_error = settings.max_reprojection_px
    options.mapper.filter_min_tri_angle = settings.min_angle_deg
    options.triangulation.min_angle = settings.min_angle_deg
    options.triangulation.ignore_two_view_tracks = not settings.two_view_tracks
    return options


def _write(model: pycolmap.Reconstruction, folder: Path) -> None:
    folder.mkdir()
    write_model(model, folder)


def model_figures(folder: Path) -> dict[str, float | int]:
    """Photos, points, observations, mean track length and mean reprojection error (px) of a model's folder."""
    model = open_model(folder)
    model.update_point_3d_errors()
    points = model.num_points3D()
    return {
        "photos": model.num_reg_images(),
        "points": points,
        "observations": model.compute_num_observations(),
        "mean_track_length": model.compute_mean_track_length() if points else 0.0,
        "mean_reprojection_error_px": model.compute_mean_reprojection_error() if points else 0.0,
    }


def model_names(folder: Path) -> list[str]:
    """The registered photos of a model's folder, sorted."""
    model = open_model(folder)
    return sorted(model.images[i].name for i in model.reg_image_ids())
