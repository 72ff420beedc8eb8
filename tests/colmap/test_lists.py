"""Query lists and pose lists as text."""

import numpy as np
import pytest

from xdesc_jax.colmap.camera_models import guessed_pinhole
from xdesc_jax.colmap.lists import read_names, read_poses, read_queries, write_poses
from xdesc_jax.colmap.model import Camera, Pose


def write(tmp_path, text):
    path = tmp_path / "queries.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_queries_are_read(tmp_path):
    path = write(
        tmp_path,
        "# comment\nq/1.jpg SIMPLE_RADIAL 640 480 500.5 320 240 -0.1\n\n"
        "night shots/PINHOLE 2.jpg PINHOLE 800 600 700 701 400 300\r\n",
    )
    assert read_queries(path) == {
        "q/1.jpg": Camera("SIMPLE_RADIAL", 640, 480, (500.5, 320, 240, -0.1)),
        "night shots/PINHOLE 2.jpg": Camera("PINHOLE", 800, 600, (700, 701, 400, 300)),
    }


def test_names_alone_have_no_camera(tmp_path):
    assert read_queries(write(tmp_path, "a.jpg\nphoto 1 of 2\n")) == {"a.jpg": None, "photo 1 of 2": None}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a.jpg PINHOLE 640 480 500 320 240", "3 parameters, but PINHOLE has 4"),
        ("a.jpg PINHOLE 640 480 500 500 320 240 0", "5 parameters, but PINHOLE has 4"),
        ("a.jpg PINHOL 640 480 500 500 320 240", "no camera model that COLMAP knows"),
        ("a.jpg pinhole 640 480 500 500 320 240", "no camera model that COLMAP knows"),
        ("a.jpg 640 480 500 320", "no camera model that COLMAP knows"),
        ("a.jpg PINHOLE 640 480 500 nan 320 240", "with finite numbers"),
        ("a.jpg PINHOLE 640 480 500 x 320 240", "with finite numbers"),
        ("a.jpg PINHOLE 640", "with finite numbers"),
        ("a.jpg PINHOLE 0 480 500 500 320 240", "photo size is 0 x 480 px, expected above 0"),
        ("a.jpg PINHOLE 64.5 480 500 500 320 240", "expected whole numbers"),
        ("a.jpg PINHOLE 640 480 -500 500 320 240", "focal length is -500 px"),
        ("ok.jpg", "query 'ok.jpg' is listed twice"),
    ],
)
def test_wrong_lines_are_named(tmp_path, line, message):
    with pytest.raises(ValueError, match=r"queries\.txt:2: .*" + message):
        read_queries(write(tmp_path, f"ok.jpg PINHOLE 640 480 500 500 320 240\n{line}\n"))


def test_empty_missing_and_binary_lists_are_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no query"):
        read_queries(write(tmp_path, "# nothing\n"))
    with pytest.raises(FileNotFoundError, match="absent.txt: no such list"):
        read_queries(tmp_path / "absent.txt")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not UTF-8 text, expected a list of photos and cameras"):
        read_queries(tmp_path / "binary.txt")


def test_guess_is_flagged():
    assert guessed_pinhole(600, 800) == Camera("SIMPLE_PINHOLE", 600, 800, (960, 300, 400), known=False)


def test_poses_are_read_back_with_all_their_digits(tmp_path):
    rng = np.random.default_rng(0)
    poses = {name: Pose.from_quaternion(rng.normal(size=4), rng.normal(size=3)) for name in ("a.jpg", "b c/\u00e9.jpg")}
    path = write_poses(tmp_path / "poses.txt", poses)
    assert path.read_text(encoding="utf-8").split("\n")[0].count(" ") == 7
    found = read_poses(path)
    assert list(found) == list(poses)
    for name, pose in poses.items():
        np.testing.assert_allclose(found[name].rotation, pose.rotation, atol=1e-14)
        np.testing.assert_array_equal(found[name].translation, pose.translation)


def test_pose_line_is_world_to_camera_in_the_order_wxyz(tmp_path):
    quarter = Pose(np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]), np.array([1.0, 2, 3]))  # 90 degrees about z
    words = write_poses(tmp_path / "poses.txt", {"a": quarter}).read_text().split()
    np.testing.assert_allclose([float(w) for w in words[1:]], [0.5**0.5, 0, 0, 0.5**0.5, 1, 2, 3])


def test_no_pose_is_an_empty_file(tmp_path):
    assert read_poses(write_poses(tmp_path / "poses.txt", {})) == {}


@pytest.mark.parametrize("line", ["a 1 0 0 0 1 2", "a 0 0 0 0 1 2 3", "a 1 0 0 x 1 2 3", "a 1 0 0 nan 1 2 3"])
def test_wrong_pose_lines_are_named(tmp_path, line):
    with pytest.raises(ValueError, match=r"queries\.txt:1: expected 'name qw"):
        read_poses(write(tmp_path, line))
    with pytest.raises(ValueError, match=r"queries\.txt:2: 'b' has two poses"):
        read_poses(write(tmp_path, "b 1 0 0 0 1 2 3\nb 1 0 0 0 1 2 3\n"))


# --- Names that look like something else ---------------------------------------------------------------------

AWKWARD = ["#c.png", "# c.png", " a.png", "a.png ", '"q".png', '"q" r.png', "#", "x PINHOLE.png", "\u00a0n.png"]
CAMERA = Camera("PINHOLE", 320, 240, (300, 300, 160, 120))
WORDS = "PINHOLE 320 240 300 300 160 120"


def test_poses_of_awkward_names_are_read_back(tmp_path):
    pose = Pose(np.eye(3), np.array([1.0, 2, 3]))
    assert list(read_poses(write_poses(tmp_path / "poses.txt", dict.fromkeys(AWKWARD, pose)))) == AWKWARD


def test_poses_of_other_programs_whose_names_begin_with_a_hash_are_no_comments(tmp_path):
    path = write(tmp_path, "# qw qx qy qz tx ty tz\n#c.png 1 0 0 0 1 2 3\n#\n#made by 1 2 3 4 5 6\n# 1 0 0 0 1 2 3\n")
    assert list(read_poses(path)) == ["#c.png"]


@pytest.mark.parametrize("known", [(), ("#c.png", "a.png")])
def test_a_query_that_begins_with_a_hash_is_no_comment(tmp_path, known):
    path = write(tmp_path, f"# a list of PINHOLE 3 cameras\n#c.png {WORDS}\n#\n#or PINHOLE or OPENCV\na.png {WORDS}\n")
    assert read_queries(path, known) == {"#c.png": CAMERA, "a.png": CAMERA}


def test_a_query_that_was_taken_out_stays_out(tmp_path):
    path = write(tmp_path, f"#a.png {WORDS}\n# a.png {WORDS}\nb.png {WORDS}\n")
    assert list(read_queries(path, ["a.png", "b.png"])) == ["b.png"]


def test_a_query_that_begins_with_a_hash_and_is_wrong_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"queries\.txt:1: '#c.png': 3 parameters, but PINHOLE has 4"):
        read_queries(write(tmp_path, "#c.png PINHOLE 320 240 300 160 120\n"))


def test_names_that_photos_have_are_read_whole(tmp_path):
    text = "".join(f"{name}\n" for name in AWKWARD)
    assert read_names(write(tmp_path, text + "#no photo\n"), AWKWARD) == sorted(AWKWARD)
    assert list(read_queries(write(tmp_path, text + "#no photo\n"), AWKWARD)) == AWKWARD
    text = "".join(f"{name} {WORDS}\n" for name in AWKWARD)
    assert read_queries(write(tmp_path, text), AWKWARD) == dict.fromkeys(AWKWARD, CAMERA)


def test_quoted_names_are_read(tmp_path):
    assert read_names(write(tmp_path, '"a.png "\n"#c.png"\n  b.png\t\r\n')) == ["#c.png", "a.png ", "b.png"]
    assert read_queries(write(tmp_path, f'"#c.png"\n"a.png " {WORDS}\n')) == {"#c.png": None, "a.png ": CAMERA}


def test_columns_may_be_parted_by_tabs(tmp_path):
    path = write(tmp_path, f"a b.png\t{WORDS.replace(' ', chr(9))}\n")
    assert read_queries(path) == {"a b.png": CAMERA}
    assert list(read_poses(write(tmp_path, "a b.png\t1\t0\t0\t0\t1\t2\t3\n"))) == ["a b.png"]
