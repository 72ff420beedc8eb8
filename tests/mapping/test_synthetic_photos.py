"""From rendered photos of known cameras to a map, and a query's pose in it, through the stages of the command line."""

import numpy as np
import pytest

from xdesc_jax.cli import main
from xdesc_jax.colmap.bindings.api import pycolmap, read_model
from xdesc_jax.colmap.lists import read_poses
from xdesc_jax.evaluate.alignment import align


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Folder of 8 photos and their true model, as COLMAP renders them."""
    folder = tmp_path_factory.mktemp("synthetic")
    pycolmap.set_random_seed(2)
    options = pycolmap.SyntheticDatasetOptions(num_rigs=1, num_frames_per_rig=8, num_points3D=120)
    options.camera_width, options.camera_height = 512, 384
    options.camera_params = [640.0, 256.0, 192.0, 0.0]
    scene = pycolmap.synthesize_dataset(options)
    (folder / "photos").mkdir()
    pycolmap.synthesize_images(pycolmap.SyntheticImageOptions(), scene, folder / "photos")
    (folder / "true").mkdir()
    scene.write(folder / "true")
    return folder


def test_photos_become_a_map_in_which_another_photo_is_found(photos, tmp_path):
    true = read_model(photos / "true")
    query, *others = true.names
    (tmp_path / "map.txt").write_text("".join(f"{name}\n" for name in others))
    camera = true.cameras[0]
    line = f"{query} {camera.model} {camera.width} {camera.height} {' '.join(map(str, camera.params))}\n"
    (tmp_path / "query.txt").write_text(line)
    features = tmp_path / "features"
    stages = [
        ["extract", photos / "photos", features, "--descriptors", "sift", "--keypoints", "colmap"],
        ["match", features / "sift.h5", tmp_path / "m.h5", "--pairs", "exhaustive"],
        ["reconstruct", features / "sift.h5", tmp_path / "map", "--matches", tmp_path / "m.h5",
         "--intrinsics", photos / "true", "--only", tmp_path / "map.txt", "--min-initial-inliers", 30, "--threads", 1],
        ["localize", tmp_path / "map" / "models" / "0", tmp_path / "out", "--features", features / "sift.h5",
         "--queries", tmp_path / "query.txt", "--pairs", "exhaustive"],
    ]  # fmt: skip
    for words in stages:
        assert main([str(word) for word in words]) == 0, words[0]
    model = read_model(tmp_path / "map" / "models" / "0")
    assert set(model.names) == set(others)
    moved = align(tmp_path / "map" / "models" / "0", model, true.poses, max_error=0.1)
    size = np.ptp([pose.center for pose in true.poses.values()], axis=0).max()
    for name, pose in model.poses.items():
        assert np.linalg.norm(moved.pose(pose).center - true.poses[name].center) < 0.03 * size
    found = moved.pose(read_poses(tmp_path / "out" / "poses.txt")[query])
    assert np.linalg.norm(found.center - true.poses[query].center) < 0.03 * size
