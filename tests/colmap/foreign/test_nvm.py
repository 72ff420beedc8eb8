"""VisualSFM's models, of which poses alone are asked."""

import numpy as np
import pytest

from xdesc_jax.colmap.foreign.nvm import count_photos, read_poses

# A quarter turn about z takes world x to camera y; the camera stands at (1, 2, 3).
TURNED = "0.7071067811865476 0 0 0.7071067811865476"
HEAD = "NVM_V3 \n\n2\n"
LINES = f"db/a.jpg\t100 {TURNED} 1 2 3 0.1 0\ndb/b c.jpg 100 1 0 0 0 0 0 5 0 0 \n"


def test_a_pose_is_the_quaternion_and_the_position(tmp_path):
    path = tmp_path / "m.nvm"
    path.write_text(f"{HEAD}{LINES}\n1\n0 0 0 255 255 255 1 0 0 1.0 2.0\n0\n")
    poses = read_poses(path)
    assert list(poses) == ["db/a.jpg", "db/b c.jpg"] and count_photos(path) == 2
    np.testing.assert_allclose(poses["db/a.jpg"].center, [1, 2, 3], atol=1e-12)
    np.testing.assert_allclose(poses["db/a.jpg"].rotation @ [1, 0, 0], [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(poses["db/b c.jpg"].translation, [0, 0, -5])


def test_a_name_ends_before_its_focal_length_wherever_else_these_digits_stand(tmp_path):
    path = tmp_path / "m.nvm"
    path.write_text("NVM_V3\n\n2\na b.jpg\t500 1 0 0 0 0.5001 0 0 0 0\n500 c.jpg 500 1 0 0 0 1500 500 0 0 0\n0\n")
    assert list(read_poses(path)) == ["a b.jpg", "500 c.jpg"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hello\n2\n", "m.nvm:1: begins with 'hello', expected NVM_V3"),
        ("NVM_V3\nx\n", "m.nvm:2: the number of cameras is 'x'"),
        (f"{HEAD}db/a.jpg 100 {TURNED} 1 2 3 0.1 0\n", "is cut short, it has 1 of 2 cameras"),
        (f"{HEAD}{LINES}", "is cut short, it ends before the number of points"),
        (f"{HEAD}{LINES}2\n0 0 0 1 1 1 0\n", "is cut short, it has 1 of 2 points"),
        (f"NVM_V3\n1\ndb/a.jpg 100 {TURNED} 1 2 0.1 0\n0\n", "m.nvm:3: a camera holds 'db/a.jpg'"),
        ("NVM_V3\n1\ndb/a.jpg 100 0 0 0 0 1 2 3 0 0\n0\n", "quaternion is zero"),
        (f"{HEAD}{LINES.splitlines()[0]}\n{LINES.splitlines()[0]}\n0\n", "m.nvm: 'db/a.jpg' is listed twice"),
    ],
)
def test_a_file_that_is_none_is_told_with_its_line(tmp_path, text, told):
    path = tmp_path / "m.nvm"
    path.write_text(text)
    with pytest.raises(ValueError, match=told):
        read_poses(path)


def test_poses_are_of_the_largest_model_with_points_and_its_points_need_not_be_any(tmp_path):
    path = tmp_path / "m.nvm"
    alone = "1\nelse.jpg 100 1 0 0 0 0 0 0 0 0\n1\n0 0 0 1 1 1 1 0 0 5 5\n"
    path.write_text(f"NVM_V3\n{alone}2\n{LINES}1\nno point\n0\n#the last part of NVM file\n0\n")
    assert list(read_poses(path)) == ["db/a.jpg", "db/b c.jpg"] and count_photos(path) == 1
