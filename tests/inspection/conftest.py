"""Matches to show: of feature files and of a COLMAP database."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.shown_files import A, B, C, write_features, write_matches, write_photos
from xdesc_jax.colmap.bindings.api import pycolmap


@pytest.fixture
def made(tmp_path):
    """Features, photos and matches of three photos: 20 matches, 5, and none."""
    features = write_features(tmp_path / "f.h5", [A, B, C])
    pairs = {
        (A, B): [(i, i) for i in range(20)],
        (A, C): [(i, (i + 1) % 30) for i in range(5)],
        (B, C): [],
    }
    return features, write_matches(tmp_path / "m.h5", pairs), write_photos(tmp_path / "photos", [A, B, C])


@pytest.fixture
def database(tmp_path):
    """Three photos: a verified pair, of whose 6 matches 4 remain, and one that is not."""
    path = tmp_path / "d.db"
    rng = np.random.default_rng(0)
    names = ["0.png", "1.png", "2.png"]
    with pycolmap.Database.open(path) as db:
        camera = db.write_camera(pycolmap.Camera(model="PINHOLE", width=64, height=48, params=[50.0, 50, 32, 24]))
        for name in names:
            image = db.write_image(pycolmap.Image(name=name, camera_id=camera))
            xy = rng.uniform(1, 46, (9, 2)).astype(np.float32)
            db.write_keypoints(image, xy)
            data = rng.integers(1, 60, (9, 128), dtype=np.uint8)
            kind = pycolmap.FeatureExtractorType.SIFT
            db.write_descriptors(image, pycolmap.FeatureDescriptors(type=kind, data=data))
        rows = np.array([[i, i] for i in range(6)], np.uint32)
        db.write_matches(1, 2, rows)
        db.write_matches(1, 3, rows[:2])
        db.write_two_view_geometry(1, 2, pycolmap.TwoViewGeometry(config=2, inlier_matches=rows[2:]))
    return path, write_photos(tmp_path / "photos", names)
