"""A COLMAP SIFT map, made by pycolmap alone, serves devices that send XFeat or ALIKED, found by their own detectors.

Skipped without torch, kornia, the weights (see `tests/features/extractors/test_parity.py`) and the shared scenes. The
photos are of a place that no training saw.
"""

from __future__ import annotations

import json

import cv2
import numpy as np
import pycolmap
import pytest

from pipelines import demo
from tests.support.authors_weights import FOLDER, authors_weights, lacking
from xdesc_jax import cli

LACKING = lacking("xfeat", "aliked-n16rot")
pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"lacking {', '.join(LACKING)}")
QUERIES, SIDE = ("0001.jpg", "0007.jpg"), 640


def write_photos(scene, folder):
    """Photos of at most SIDE px in two folders, map and queries; how much smaller they are."""
    for path in sorted((scene / "images").iterdir()):
        photo = cv2.imread(str(path))
        scale = SIDE / max(photo.shape[:2])
        part = folder / ("queries" if path.name in QUERIES else "photos")
        part.mkdir(exist_ok=True)
        small = cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        assert cv2.imwrite(str(part / path.name), small, [cv2.IMWRITE_JPEG_QUALITY, 98])
    return scale


@pytest.fixture(scope="module")
def scene(shared, tmp_path_factory):
    """Folder with `map`, `database.db`, `queries` and `queries.txt`, in the coordinates of the reference."""
    source, folder = shared / "data" / "dev" / "scenes" / "fountain-p11", tmp_path_factory.mktemp("scene")
    if not source.is_dir():
        pytest.skip(f"no scene at {source}")
    scale = write_photos(source, folder)
    reference = pycolmap.Reconstruction(source / "reference")
    fx, fy, cx, cy = np.array(next(iter(reference.cameras.values())).params) * scale
    height, width = cv2.imread(str(folder / "queries" / QUERIES[0])).shape[:2]
    lines = [f"{name} PINHOLE {width} {height} {fx} {fy} {cx} {cy}" for name in QUERIES]
    (folder / "queries.txt").write_text("\n".join(lines) + "\n")
    options = pycolmap.ImageReaderOptions(camera_model="PINHOLE", camera_params=f"{fx},{fy},{cx},{cy}")
    extraction = pycolmap.FeatureExtractionOptions(use_gpu=False)
    matching = pycolmap.FeatureMatchingOptions(use_gpu=False)
    database = folder / "database.db"
    pycolmap.extract_features(
        database, folder / "photos", camera_mode=pycolmap.CameraMode.SINGLE, reader_options=options,
        extraction_options=extraction,
    )  # fmt: skip
    pycolmap.match_exhaustive(database, matching_options=matching)
    settings = pycolmap.IncrementalPipelineOptions(ba_refine_focal_length=False, ba_refine_extra_params=False)
    models = pycolmap.incremental_mapping(database, folder / "photos", folder / "models", options=settings)
    model = max(models.values(), key=lambda found: found.num_reg_images())
    centers = {image.name: image.projection_center() for image in reference.images.values()}
    names = [image.name for image in model.images.values() if image.has_pose]
    ransac = pycolmap.RANSACOptions(max_error=0.1)
    places = np.array([centers[name] for name in names])
    model.transform(pycolmap.align_reconstruction_to_locations(model, names, places, 3, ransac))
    (folder / "map").mkdir()
    model.write(folder / "map")
    return folder, centers


@pytest.mark.parametrize("descriptor", ["xfeat", "aliked-n16rot"])
@pytest.mark.parametrize("translated", [True, False], ids=["translated", "joint"])
def test_queries_with_keypoints_of_their_own_are_localised(scene, descriptor, translated, tmp_path):
    """Within 0.5 m, in a place of 25 m: the map translated, and both in the joint space."""
    folder, centers = scene
    extracted = folder / descriptor
    words = ["extract", str(folder / "queries"), str(extracted), "--keypoints", descriptor, "--descriptors", descriptor]
    assert cli.main([*words, "--weights", f"{descriptor}={authors_weights(descriptor)}"]) == 0
    features, mode = folder / "database.db", ["--model", "mixed", "--mode", "embed"]
    if translated:
        words = ["translate", str(features), str(tmp_path / "new.db"), "--target", descriptor, "--model", "mixed"]
        assert cli.main(words) == 0
        features, mode = tmp_path / "new.db", []
    words = ["localize", str(folder / "map"), str(tmp_path / "poses"), "--features", str(features)]
    words += [
        "--pairs",
        "exhaustive",
        "--queries",
        str(folder / "queries.txt"),
        "--query-features",
        str(extracted / f"{descriptor}.h5"),
    ]
    assert cli.main([*words, *mode]) == 0
    found = json.loads((tmp_path / "poses" / "results.json").read_text())["queries"]
    assert set(found) == set(QUERIES)
    for name, result in found.items():
        assert result["status"] == "localized" and result["inliers"] >= 20
        w, x, y, z = result["qvec"]
        rotation = pycolmap.Rotation3d(np.array([x, y, z, w])).matrix()
        position = -rotation.T @ np.array(result["tvec"])
        assert np.linalg.norm(position - centers[name]) < 0.5


def test_the_demo_shows_it(tmp_path, monkeypatch):
    """The stereo pair of scikit-image: each in a map of the other, by `mixed`; XFeat's own rows are 27 mm off."""
    monkeypatch.setenv("XDESC_DATA", str(FOLDER))
    photos = demo.write_photos(tmp_path / "photos", demo.DemoSettings(training_photos=(), test_photos=()))
    found = {(f.map, f.query): f for f in demo.localise_learned(photos / "stereo", tmp_path / "learned")}
    assert sorted(found) == sorted((a, b) for a in demo.LEARNED for b in demo.LEARNED)
    for ends in (demo.LEARNED, demo.LEARNED[::-1]):
        assert found[ends].mode == "embed" and found[ends].inliers >= 40 and found[ends].position_mm < 50
