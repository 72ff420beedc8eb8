"""Reading scene folders and ground truth."""

import numpy as np
import pytest

from xdesc_jax.evaluate.scenes import by_disparity, by_homography, find_scenes, read_homography

SHIFT = "1 0 10\n0 1 0\n0 0 1\n"


def make_scene(folder, photos=("1.png", "2.png"), homographies=("H_1_2",), text=SHIFT):
    folder.mkdir(parents=True)
    for name in photos:
        (folder / name).touch()
    for name in homographies:
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("photos", "homographies"),
    [
        (("1.ppm", "2.ppm", "3.ppm"), ("H_1_2", "H_1_3")),
        (("img1.ppm", "img2.ppm", "img3.ppm"), ("H1to2p", "H1to3p")),
        (("1.PNG", "2.jpg", "3.webp"), ("H_1_2", "H1to3p")),
    ],
)
def test_photo_1_is_the_query_of_every_pair(tmp_path, photos, homographies):
    make_scene(tmp_path / "wall", photos, homographies)
    (scene,) = find_scenes(tmp_path)
    assert scene.name == "wall"
    assert [(p.query, p.database) for p in scene.pairs] == [(f"wall/{photos[0]}", f"wall/{p}") for p in photos[1:]]
    assert scene.photos == [f"wall/{p}" for p in photos]


def test_a_scene_folder_itself_is_one_scene(tmp_path):
    make_scene(tmp_path / "graf")
    (scene,) = find_scenes(tmp_path / "graf")
    assert (scene.name, scene.photos) == ("graf", ["1.png", "2.png"])


def test_scenes_are_sorted_and_other_folders_passed_over(tmp_path):
    make_scene(tmp_path / "b")
    make_scene(tmp_path / "a")
    (tmp_path / "notes").mkdir()
    assert [scene.name for scene in find_scenes(tmp_path)] == ["a", "b"]


def test_homography_maps_photo_1_to_photo_k():
    matrix = np.array([[2, 0, 1], [0, 3, -1], [0.5, 0, 1]])
    got = by_homography(matrix)(np.array([[2.0, 4.0], [0.0, 0.0]]))
    np.testing.assert_allclose(got, [[5 / 2, 11 / 2], [1, -1]])


def test_a_point_on_the_horizon_is_infinitely_far():
    matrix = np.array([[1, 0, 0], [0, 1, 0], [-1, 0, 1.0]])
    assert np.isposinf(by_homography(matrix)(np.array([[1.0, 5.0]]))).all()


def test_disparity_moves_left_and_is_unknown_where_the_map_is():
    disparity = np.array([[1.0, 2.0, np.nan], [3.0, np.inf, 5.0]])
    xy = np.array([[0.6, 0.0], [2.0, 0.0], [1.0, 1.0], [2.0, 1.4], [9.0, 0.0], [0.0, -3.0]])
    got = by_disparity(disparity)(xy)
    np.testing.assert_allclose(got[[0, 3]], [[0.6 - 2, 0], [2 - 5, 1.4]])
    assert np.isnan(got[[1, 2, 4, 5]]).all()


def test_a_missing_homography_file_is_named(tmp_path):
    make_scene(tmp_path / "wall", ("1.png", "2.png", "3.png"))
    with pytest.raises(FileNotFoundError, match="photo 3 has no homography file H_1_3"):
        find_scenes(tmp_path)


def test_a_missing_photo_is_named(tmp_path):
    make_scene(tmp_path / "wall", homographies=("H_1_2", "H_1_4"))
    with pytest.raises(FileNotFoundError, match="H_1_4 has no photo 4"):
        find_scenes(tmp_path)


def test_photo_1_makes_no_pair_with_itself(tmp_path):
    make_scene(tmp_path / "wall", homographies=("H_1_1", "H_1_2"))
    (scene,) = find_scenes(tmp_path)
    assert [pair.database for pair in scene.pairs] == ["wall/2.png"]


def test_two_homographies_of_one_photo_are_refused(tmp_path):
    make_scene(tmp_path / "wall", homographies=("H_1_2", "H1to2p"))
    with pytest.raises(ValueError, match="wall: two homographies of photo 2: H1to2p and H_1_2"):
        find_scenes(tmp_path)


def test_a_homography_that_is_not_text_is_refused_by_file_name(tmp_path):
    path = tmp_path / "H_1_2"
    path.write_bytes(b"\xff\xfe1\x00 \x00")
    with pytest.raises(ValueError, match="H_1_2: .*utf-8.* expected 3 rows of 3 numbers"):
        read_homography(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 0 0\n0 1 0\n", r"2 rows of \[3\] values, expected 3 rows"),
        ("1 0\n0 1\n0 0\n", r"3 rows of \[2\] values"),
        ("", "0 rows"),
        ("1 0 0\n0 1 0\n0 0 x\n", "expected 3 rows of 3 numbers"),
        ("1 0 0\n0 1 0\n0 0 nan\n", "not finite"),
        ("1 2 3\n2 4 6\n0 0 1\n", "singular"),
        ("0 0 0\n0 0 0\n0 0 0\n", "singular"),
    ],
)
def test_a_bad_homography_is_refused_by_file_name(tmp_path, text, message):
    path = tmp_path / "H_1_2"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"H_1_2: .*{message}"):
        read_homography(path)


def test_a_strong_but_regular_homography_is_read(tmp_path):
    path = tmp_path / "H_1_2"
    matrix = np.array([[1e-3, 0, 4000], [0, 1e-3, 3000], [1e-7, 0, 1]])
    np.savetxt(path, matrix)
    np.testing.assert_array_equal(read_homography(path), matrix)


@pytest.mark.parametrize(
    ("photos", "message"),
    [
        (("2.png",), "expected photo 1"),
        (("1.png",), "at least one more"),
        (("1.png", "1.ppm"), "two photos number 1"),
    ],
)
def test_incomplete_or_ambiguous_scenes_are_refused(tmp_path, photos, message):
    make_scene(tmp_path / "wall", photos)
    with pytest.raises(ValueError, match=message):
        find_scenes(tmp_path)


def test_a_folder_without_scenes_and_a_missing_one_are_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no scene"):
        find_scenes(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        find_scenes(tmp_path / "absent")
