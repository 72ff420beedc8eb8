"""Poses of VisualSFM's models."""

import numpy as np
import pytest

from xdesc_jax.colmap.nvm import count_nvm, read_nvm

# A quarter turn about z takes world x to camera y; the camera stands at (1, 2, 3).
TURNED = "0.7071067811865476 0 0 0.7071067811865476"
HEAD = "NVM_V3 \n\n2\n"
LINES = f"db/a.jpg\t100 {TURNED} 1 2 3 0.1 0\ndb/b c.jpg 100 1 0 0 0 0 0 5 0 0 \n"


def test_a_pose_is_the_quaternion_and_the_position(tmp_path):
    path = tmp_path / "m.nvm"
    path.write_text(f"{HEAD}{LINES}\n1\n0 0 0 255 255 255 1 0 0 1.0 2.0\n0\n")
    poses = read_nvm(path)
    assert list(poses) == ["db/a.jpg", "db/b c.jpg"] and count_nvm(path) == 2
    np.testing.assert_allclose(poses["db/a.jpg"].center, [1, 2, 3], atol=1e-12)
    np.testing.assert_allclose(poses["db/a.jpg"].rotation @ [1, 0, 0], [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(poses["db/b c.jpg"].translation, [0, 0, -5])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hello\n2\n", "begins with 'hello', expected NVM_V3"),
        ("NVM_V3\nx\n", "m.nvm:2: expected the number of photos: 'x'"),
        (f"{HEAD}db/a.jpg 100 {TURNED} 1 2 3 0.1 0\n", "ends after 1 photos, of 2"),
        (f"{HEAD}db/a.jpg 100 {TURNED} 1 2 3 0\n", "m.nvm:4: expected 'name focal"),
        (f"{HEAD}db/a.jpg 100 0 0 0 0 1 2 3 0 0\n", "quaternion not zero"),
        (f"{HEAD}{LINES.splitlines()[0]}\n{LINES.splitlines()[0]}\n", "m.nvm:5: 'db/a.jpg' is listed twice"),
    ],
)
def test_a_file_that_is_none_is_told_with_its_line(tmp_path, text, told):
    path = tmp_path / "m.nvm"
    path.write_text(text)
    with pytest.raises(ValueError, match=told):
        read_nvm(path)
