"""Reading a sparse model: the arrays are what COLMAP's own objects say, and an observation costs no object."""

import struct

import numpy as np
import pytest

from tests.support.counting import calls
from tests.support.unheld import photos_with_own_cameras, unheld
from xdesc_jax.colmap.bindings.api import open_model, pycolmap, read_model


@pytest.fixture
def model():
    """Two rigs of two cameras with frames; some keypoints observe nothing, and ids do not follow each other."""
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_cameras_per_rig, options.num_frames_per_rig, options.num_points3D = 2, 2, 2, 23
    pycolmap.set_random_seed(1)
    made = pycolmap.synthesize_dataset(options)
    for i, image in made.images.items():
        image.name = f"{'zayx'[i % 4]}/{i}é.jpg"
    for point_id in (3, 17):
        made.delete_point3D(point_id)
    return made


@pytest.fixture(params=["binary", "text"])
def folder(model, tmp_path, request):
    {"binary": model.write_binary, "text": model.write_text}[request.param](tmp_path)
    return tmp_path


def test_arrays_are_what_the_objects_of_colmap_say(model, folder):
    found = read_model(folder)
    images = {image.name: image for image in model.images.values()}
    assert found.names == tuple(sorted(images))
    assert found.point_ids.tolist() == sorted(model.points3D) and 17 not in found.point_ids
    np.testing.assert_array_equal(found.points, [model.points3D[i].xyz for i in found.point_ids.tolist()])
    seen = []
    for view, name in enumerate(found.names):
        image = images[name]
        pose = image.cam_from_world()
        np.testing.assert_allclose(found.rotations[view], pose.rotation.matrix(), atol=1e-14)
        np.testing.assert_allclose(found.translations[view], pose.translation, atol=1e-14)
        assert found.keypoint_counts[view] == len(image.points2D)
        seen += [(p.point3D_id, view, row, *p.xy) for row, p in enumerate(image.points2D) if p.has_point3D()]
    assert len(seen) < sum(len(image.points2D) for image in images.values())
    columns = (found.point_ids[found.point], found.view, found.keypoint, *found.xy.T)
    assert list(zip(*(c.tolist() for c in columns), strict=True)) == sorted(seen)
    errors = [
        images[found.names[v]].project_point(found.points[p]) for p, v in zip(found.point, found.view, strict=True)
    ]
    np.testing.assert_allclose(found.residual_px, np.linalg.norm(errors - found.xy, axis=1), atol=1e-9)


def test_a_model_without_points_is_read(tmp_path, model):
    model.delete_all_points2D_and_points3D()
    model.write(tmp_path)
    found = read_model(tmp_path)
    assert found.points.shape == (0, 3) and found.xy.shape == (0, 2) and len(found.names) == 8


def test_a_keypoint_of_a_point_that_is_not_there_is_told(tmp_path, model):
    model.write_binary(tmp_path)
    file = tmp_path / "images.bin"
    whole, lost = file.read_bytes(), (5).to_bytes(8, "little")
    assert lost in whole
    file.write_bytes(whole.replace(lost, (555).to_bytes(8, "little")))
    with pytest.raises(ValueError, match=f"{tmp_path}.*555"):
        read_model(tmp_path)


def test_a_photo_without_points_whose_camera_cannot_be_is_left_out(tmp_path, caplog):
    """COLMAP leaves such in models of less than 20 photos: no point holds the focal length."""
    made = photos_with_own_cameras()
    lost = unheld(made)
    made.write(tmp_path)
    found = read_model(tmp_path)
    assert found.names == tuple(sorted(image.name for image in made.images.values() if image.name != lost))
    assert len(found.points) == len(made.points3D) and np.isfinite(found.residual_px).all()
    assert f"left out: '{lost}', which sees no point" in caplog.text


def test_a_camera_that_cannot_be_is_told_where_its_photo_is_needed(tmp_path):
    made = photos_with_own_cameras()
    made.cameras[3].params = [-1e8, 512, 384, 0]
    made.write(tmp_path)
    with pytest.raises(ValueError, match=f"{tmp_path}: camera 3: focal length is -1e\\+08 px"):
        read_model(tmp_path)
    made.delete_all_points2D_and_points3D()  # poses alone, as of a reference
    made.write(tmp_path)
    with pytest.raises(ValueError, match="camera 3: focal length"):
        read_model(tmp_path)
    made.add_point3D(np.zeros(3), pycolmap.Track())  # of a cloud that no photo is said to see
    made.write(tmp_path)
    with pytest.raises(ValueError, match="camera 3: focal length"):
        read_model(tmp_path)


@pytest.mark.parametrize("values", ["NaN", "inf"])
def test_a_pose_that_is_not_finite_is_told(tmp_path, model, values):
    """In a binary model, of which COLMAP takes any number."""
    image = model.images[1]
    translation = struct.pack("<3d", *model.frames[image.frame_id].rig_from_world.translation)
    model.write_binary(tmp_path)
    file = tmp_path / "frames.bin"
    assert translation in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(translation, struct.pack("<3d", 1, float(values), 2)))
    with pytest.raises(ValueError, match=f"{tmp_path}: the pose of '.*' is not finite .rotation .*, translation"):
        read_model(tmp_path)


@pytest.mark.parametrize("what", ["a point", "a keypoint of 'xxx1é.jpg'", "name of a photo is not UTF-8"])
def test_what_is_no_number_or_no_name_is_told(tmp_path, model, what):
    """In a binary model, likewise."""
    image = model.images[1]
    image.name = "xxx1é.jpg"
    seen = next(p for p in image.points2D if p.has_point3D())
    model.write_binary(tmp_path)
    file, old, new = {
        "a p": ("points3D.bin", struct.pack("<3d", *model.points3D[5].xyz), struct.pack("<3d", 1, np.nan, 2)),
        "a k": ("images.bin", struct.pack("<2d", *seen.xy), struct.pack("<2d", np.inf, 2)),
        "nam": ("images.bin", b"xxx1\xc3", b"xxx1\xff"),
    }[what[:3]]
    content = (tmp_path / file).read_bytes()
    assert old in content
    (tmp_path / file).write_bytes(content.replace(old, new))
    with pytest.raises(ValueError, match=f"{tmp_path}: .*{what}"):
        read_model(tmp_path)


def test_observations_make_no_calls_of_their_own(tmp_path):
    """Of as many photos and points, each seen twice or by every photo."""
    counts = []
    for seen_by in (2, 6):
        folder = tmp_path / str(seen_by)
        folder.mkdir()
        options = pycolmap.SyntheticDatasetOptions()
        options.num_rigs, options.num_frames_per_rig, options.num_points3D, options.track_length = 1, 6, 50, seen_by
        pycolmap.synthesize_dataset(options).write(folder)
        assert open_model(folder).compute_num_observations() == 50 * seen_by
        counts.append(calls(lambda: read_model(folder)))  # noqa: B023
    assert counts[0] == counts[1]
