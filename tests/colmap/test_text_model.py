"""Text models of other writers: what COLMAP would misread is read as it is meant, or refused with file and line."""

import re
import shutil

import numpy as np
import pytest

from xdesc_jax.colmap.bindings.api import open_model, pycolmap, read_model
from xdesc_jax.colmap.text_model import count_entries
from xdesc_jax.inspection.inspect import inspect


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A model of 2 frames of a rig of 2 cameras, as COLMAP writes it."""
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_cameras_per_rig, options.num_frames_per_rig, options.num_points3D = 1, 2, 2, 5
    pycolmap.set_random_seed(0)
    folder = tmp_path_factory.mktemp("written")
    pycolmap.synthesize_dataset(options).write_text(folder)
    return folder


@pytest.fixture
def model(written, tmp_path):
    return shutil.copytree(written, tmp_path / "model")


@pytest.fixture
def plain(model):
    """Without rigs and frames, as COLMAP 3 has it."""
    (model / "rigs.txt").unlink()
    (model / "frames.txt").unlink()
    return model


def change(path, edit):
    path.write_text("".join(edit(line) for line in path.read_text().splitlines(keepends=True)))


def check_same(model, written):
    found, expected = read_model(model), read_model(written)
    assert found.names == expected.names
    np.testing.assert_allclose(found.rotations, expected.rotations, atol=1e-12)
    np.testing.assert_allclose(found.translations, expected.translations, atol=1e-12)
    assert found.residual_px.max() < 1e-9 and len(found.point) == len(expected.point) == 20


def scaled(*places):
    """Doubles the quaternions that begin at some places of a line, where values stand there."""

    def edit(line):
        words = line.split(" ")
        for at in places if not line.startswith("#") and len(words) in (10, 14, 15, 17) else ():
            words[at : at + 4] = [repr(2 * float(word)) for word in words[at : at + 4]]
        return " ".join(words)

    return edit


def test_quaternions_of_photos_may_have_any_length(plain, written):
    change(plain / "images.txt", scaled(1))
    assert scaled(1)("1 1 0 0 0 1 2 3 1 a.jpg\n") == "1 2.0 0.0 0.0 0.0 1 2 3 1 a.jpg\n"
    check_same(plain, written)


def test_quaternions_of_frames_and_rigs_may_have_any_length(model, written):
    change(model / "frames.txt", scaled(2))
    change(model / "rigs.txt", scaled(7))
    assert (model / "rigs.txt").read_text() != (written / "rigs.txt").read_text()
    check_same(model, written)


def test_unit_quaternions_stay_as_they_are(written):
    ours, theirs = open_model(written), pycolmap.Reconstruction(written)
    for frame_id, frame in theirs.frames.items():
        np.testing.assert_array_equal(
            ours.frames[frame_id].rig_from_world.rotation.quat, frame.rig_from_world.rotation.quat
        )


def test_comments_are_optional(model, written):
    for path in model.iterdir():
        change(path, lambda line: "" if line.startswith("#") else line)
    check_same(model, written)
    found = inspect(model)
    assert {k: found[k] for k in ("cameras", "images", "points3D", "rigs", "frames")} == {
        "cameras": 2, "images": 4, "points3D": 5, "rigs": 1, "frames": 2,
    }  # fmt: skip


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(("old", "new"), [("\n", "\r\n"), (" ", "\t"), (" ", "   ")])
def test_other_editors_blanks_and_marks_change_nothing(plain, written, mark, old, new):
    for path in plain.iterdir():
        path.write_bytes(mark + path.read_text().replace(old, new).encode())
    check_same(plain, written)


def photo(line):
    return not line.startswith("#") and len(line.split(" ")) == 10


@pytest.mark.parametrize(
    ("file", "edit", "message"),
    [
        (
            "images.txt",
            lambda x: x if photo(x) or x[0] == "#" else "",
            r"images.txt:6: behind each photo stands a line",
        ),
        ("images.txt", lambda x: re.sub(r"^1 \S+ \S+ \S+ \S+", "1 0 0 0 0", x), "images.txt:5: .* quaternion not zero"),
        ("images.txt", lambda x: re.sub(r"^1 \S+", "1 nan", x) if photo(x) else x, "images.txt:5: the pose is nan"),
        ("images.txt", lambda x: x.replace(" 1 camera", " 7 camera"), "images.txt:5: photo 1 has camera 7, which"),
        ("images.txt", lambda x: x.replace("2 ", "1 ", 1) if photo(x) else x, "images.txt:.* photo 1 is listed twice"),
        ("images.txt", lambda x: x if x[0] == "#" or photo(x) else "1 2\n", "images.txt:6: behind each photo"),
        (
            "images.txt",
            lambda x: x if x[0] == "#" or photo(x) else "1 2 1.5\n",
            "images.txt:6: keypoints of photo 1 name",
        ),
        ("images.txt", lambda x: "1 2 3\n" if photo(x) else x, "images.txt:5: 3 values, expected IMAGE_ID QW"),
        ("cameras.txt", lambda x: x.replace("1280", "nan"), "cameras.txt:4: camera 1: .* finite numbers"),
        ("cameras.txt", lambda x: x.replace("1280", "-300"), "cameras.txt:4: camera 1: focal length is -300 px"),
        (
            "cameras.txt",
            lambda x: x.replace("SIMPLE_RADIAL", "MINE"),
            "cameras.txt:4: camera 1: camera model is 'MINE'",
        ),
        ("cameras.txt", lambda x: "1\n", "cameras.txt:1: 1 values, expected CAMERA_ID MODEL"),
        ("points3D.txt", lambda x: re.sub(r"^1 \S+", "1 inf", x), "points3D.txt:4: point 1 is at inf"),
        (
            "points3D.txt",
            lambda x: x if x[0] == "#" else x.strip() + " 3\n",
            "points3D.txt:4: the track of point 1 has",
        ),
        (
            "points3D.txt",
            lambda x: x if x[0] == "#" else x.strip() + " 3 99\n",
            "points3D.txt:4: .* photo 3, which has 15",
        ),
        (
            "points3D.txt",
            lambda x: x if x[0] == "#" else x.strip() + " 9 0\n",
            "points3D.txt:4: .* which is not in images",
        ),
        ("points3D.txt", lambda x: x if x[0] == "#" else "p" + x, "points3D.txt:4: the point's id is 'p1'"),
    ],
)
def test_what_cannot_be_is_told_with_file_line_and_reason(plain, file, edit, message):
    change(plain / file, edit)
    with pytest.raises(ValueError, match=message):
        read_model(plain)


@pytest.mark.parametrize("part", ["frames.txt", "rigs.txt"])
def test_a_zero_quaternion_of_a_rig_is_told(model, part):
    at = {"frames.txt": 2, "rigs.txt": 7}[part]

    def edit(line):
        words = line.split(" ")
        return line if line[0] == "#" else " ".join([*words[:at], "0", "0", "0", "0", *words[at + 4 :]])

    change(model / part, edit)
    with pytest.raises(ValueError, match=f"{part}:4: the pose is 0 0 0 0"):
        read_model(model)


def test_a_photo_without_keypoints_has_an_empty_line(plain):
    change(plain / "points3D.txt", lambda line: "")
    change(plain / "images.txt", lambda line: line if line[0] == "#" or photo(line) else "\n")
    assert read_model(plain).keypoint_counts.tolist() == [0, 0, 0, 0]
    assert count_entries(plain / "images.txt") == 4


@pytest.mark.parametrize(
    ("params", "message"), [([0.0, 160, 120], "focal length is 0"), ([300, np.nan, 120], "finite")]
)
def test_a_camera_of_a_binary_model_that_cannot_be_is_refused(written, tmp_path, params, message):
    model = pycolmap.Reconstruction(written)
    for camera in model.cameras.values():
        camera.params = [*params, 0.0]
    model.write(tmp_path)
    with pytest.raises(ValueError, match=f"camera 1: .*{message}"):
        read_model(tmp_path)


def test_a_quaternion_of_a_binary_model_that_cannot_be_is_refused(written, tmp_path):
    model = pycolmap.Reconstruction(written)
    model.frames[1].rig_from_world.rotation.quat = np.zeros(4)
    model.write(tmp_path)
    with pytest.raises(ValueError, match="frame 1: its quaternion is .* not all zero"):
        read_model(tmp_path)
