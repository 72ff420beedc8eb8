"""pycolmap from photos to verified pairs: SIFT of photos, matching and verification by COLMAP itself.

In: photos and the path of a database. Out: the database, filled step by step, and models.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xdesc_jax.colmap.bindings.api import open_database, pycolmap
from xdesc_jax.colmap.bindings.mapper import map_database
from xdesc_jax.colmap.bindings.settings import MappingSettings


def add_photos(database: Path, photos: Path, names: Sequence[str]) -> None:
    """Makes a database of photos that have no features yet, each with its own camera; ids follow `names`.

    Args:
        database: the file to make.
        photos: folder that holds `names`. Damaged photos are left out of the database.
    """
    with open_database(database):
        pass  # `import_images` asks for an existing one
    pycolmap.import_images(database, photos, pycolmap.CameraMode.PER_IMAGE, list(names))


def add_features(database: Path, photos: Path, max_features: int, max_side_px: int, threads: int) -> None:
    """Writes SIFT features of the database's photos that have none; larger photos are shrunk to `max_side_px` first."""
    options = pycolmap.FeatureExtractionOptions()
    options.use_gpu = False
    options.num_threads = threads
    options.max_image_size = max_side_px
    options.sift.max_num_features = max_features
    with open_database(database) as db:
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
    with open_database(database) as db:
        pairs = sum(inliers > 0 for inliers in db.read_two_view_geometry_num_inliers()[1])
        return {"photos": db.num_images(), "features": db.num_keypoints(), "verified pairs": pairs}


def map_photos(database: Path, out: Path, two_view_tracks: bool, seed: int, threads: int) -> None:
    """Incremental mapping with every camera refined; see `map_database`."""
    map_database(database, out, MappingSettings(two_view_tracks=two_view_tracks, seed=seed, threads=threads))
