"""Match files of other programs, and what no match file can be."""

import h5py
import numpy as np
import pytest

from tests.support.feature_files import write_store
from xdesc_jax.matching.matches import Extent, MatchFile, MatchWriter


def write(tmp_path, arrays, **attributes):
    with h5py.File(tmp_path / "m.h5", "w") as file:
        for key, values in arrays.items():
            file[key] = values
        file.attrs.update(attributes)
    return tmp_path / "m.h5"


def test_names_with_underscores_are_told_apart_by_the_photos(tmp_path):
    names = ["a_1.jpg", "b_2.jpg", "sub/c_3.jpg"]
    path = write(tmp_path, {"a_1.jpg_b_2.jpg/matches0": [2, -1], "a_1.jpg_sub-c_3.jpg/matches0": [0]})
    with MatchFile(path, names) as file:
        assert file.pairs() == [("a_1.jpg", "b_2.jpg"), ("a_1.jpg", "sub/c_3.jpg")]
        assert file.read("b_2.jpg", "a_1.jpg")[0].tolist() == [[2, 0]]
        assert file.indices("a_1.jpg", "sub/c_3.jpg").tolist() == [[0, 0]]
    with MatchFile(path) as file:
        assert file.pairs()[0] == ("a_1.jpg", "b_2.jpg")


def test_names_that_can_be_told_apart_in_two_ways_are_refused(tmp_path):
    path = write(tmp_path, {"a_b_c/matches0": [0]})
    with MatchFile(path, ["a", "b_c", "a_b", "c"]) as file:
        with pytest.raises(ValueError, match="m.h5: the pair 'a_b_c' may be 'a' and 'b_c' or 'a_b' and 'c'"):
            file.pairs()


@pytest.mark.parametrize(
    "values", [[0, -0.5], [0, 0.25], [0, np.nan], [0, np.inf], [0, 3e9], [True, False], [b"x", b"y"]]
)
def test_rows_that_are_no_whole_numbers_are_refused(tmp_path, values):
    with MatchFile(write(tmp_path, {"a/b/matches0": values})) as file, pytest.raises(ValueError) as error:
        file.read("a", "b")
    assert "m.h5: matches of 'a' and 'b'" in str(error.value) and "expected whole numbers" in str(error.value)


def test_whole_numbers_may_be_stored_as_floats(tmp_path):
    with MatchFile(write(tmp_path, {"a/b/matches0": [1.0, -1.0, 0.0]})) as file:
        assert file.indices("a", "b").tolist() == [[0, 1], [2, 0]]


def test_a_list_of_matches_names_no_row_below_0(tmp_path):
    with MatchFile(write(tmp_path, {"a/b": [[0, 1], [2, -1]]})) as file:
        with pytest.raises(ValueError, match="name row -1, expected whole numbers from 0"):
            file.read("a", "b")


def test_scores_are_of_rows_or_of_matches(tmp_path):
    arrays = {"a/b/matches0": [3, -1, 4], "a/b/matching_scores0": np.array([0.5, 0, 0.25])}
    with MatchFile(write(tmp_path, arrays)) as file:
        assert file.read("a", "b")[1].tolist() == [0.5, 0.25]
    with MatchFile(write(tmp_path, arrays | {"a/b/matching_scores0": [0.5, 0.25]})) as file:
        assert file.read("a", "b")[1].tolist() == [0.5, 0.25]
    with MatchFile(write(tmp_path, arrays | {"a/b/matching_scores0": np.ones(7)})) as file:
        assert file.indices("a", "b").tolist() == [[0, 3], [2, 4]]
        with pytest.raises(ValueError, match="'a' and 'b' have 7 scores, expected 3"):
            file.read("a", "b")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a/b/matches0": [0], "a/c": np.zeros((4, 3), np.int32)}, "'a/c' is no matches, expected 'matches0' or rows"),
        ({"a/b/matches0": [0], "a/c": np.zeros((4, 2), np.float32)}, "'a/c' is no matches"),
        ({"notes": [1.5]}, r"holds no matches: it is an HDF5 file of other content, first \['notes'\]"),
    ],
)
def test_files_of_other_content_are_named(tmp_path, arrays, message):
    with MatchFile(write(tmp_path, arrays)) as file, pytest.raises(ValueError, match=f"m.h5: {message}"):
        file.pairs()


def test_a_feature_file_is_no_match_file(tmp_path):
    with MatchFile(write_store(tmp_path, "hardnet", ["a.jpg", "s/b.jpg"])) as file:
        with pytest.raises(ValueError, match="hardnet.h5: holds no matches: it is a feature file"):
            file.pairs()


@pytest.mark.parametrize("shape", [(4_000_000_000,), (128, 4_000_000_000)])
def test_declared_rows_that_are_not_stored_are_refused_unread(tmp_path, shape):
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.create_dataset("a/b/matches0", shape, np.int32)
    with (
        MatchFile(tmp_path / "m.h5") as file,
        pytest.raises(ValueError, match="m.h5: matches of 'a' and 'b' cannot be"),
    ):
        file.read("a", "b")


@pytest.mark.parametrize("version", ["new", [1, 2]])
def test_a_version_that_is_no_number_is_refused(tmp_path, version):
    with pytest.raises(ValueError, match="m.h5: format version is .* expected a number"):
        MatchFile(write(tmp_path, {"a/b/matches0": [0]}, version=version))


def test_an_extent_tells_positions_and_their_order():
    xy = np.array([[1.0, 2], [5, 6], [np.nan, 0]])
    assert Extent.of(xy).place.tolist() == [(1 * 1 + 2 * 5) / 6, (1 * 2 + 2 * 6) / 6]
    assert Extent.of(np.zeros((0, 2))).place.tolist() == [0, 0]
    assert not np.allclose(Extent.of(xy).place, Extent.of(xy[[1, 0, 2]]).place)


def test_a_pair_takes_as_many_bytes_as_its_matches_need_and_others_read_it(tmp_path):
    """Of 30 pairs with 100 matches of 4000 keypoints, whose rows and scores alone are 32 000 bytes."""
    rng = np.random.default_rng(0)
    path, dense = tmp_path / "m.h5", {}
    with MatchWriter(path) as writer:
        for pair in range(30):
            i, j = (np.sort(rng.choice(4000, 100, replace=False)).astype(np.int32) for _ in range(2))
            scores = rng.random(100).astype(np.float32)
            extents = (Extent(4000, np.array([1.5, pair])), Extent(4000, np.array([2.5, pair])))
            writer.write("query/0.jpg", f"é {pair}.jpg", 4000, np.stack([i, j], axis=1), scores, extents)
            dense[f"é {pair}.jpg"] = (np.full(4000, -1, np.int32), np.zeros(4000, np.float32))
            dense[f"é {pair}.jpg"][0][i], dense[f"é {pair}.jpg"][1][i] = j, scores
    assert path.stat().st_size < 30 * 3200
    with h5py.File(path) as file:  # as hloc does
        assert sorted(file["query-0.jpg"]) == sorted(dense)
        for name, (rows, scores) in dense.items():
            group = file["query-0.jpg"][name]
            assert group["matches0"].dtype == np.int32 and group["matching_scores0"].dtype == np.float32
            np.testing.assert_array_equal(group["matches0"].__array__(), rows)
            np.testing.assert_array_equal(group["matching_scores0"].__array__(), scores)


def test_a_match_file_holds_no_time_so_that_its_bytes_are_those_of_its_content(tmp_path):
    with MatchWriter(tmp_path / "m.h5") as writer:
        writer.write("a", "b", 5, np.array([[1, 3]], np.int32), np.ones(1, np.float32))
        writer.write("a", "empty", 0, np.zeros((0, 2), np.int32), np.zeros(0, np.float32))
    with h5py.File(tmp_path / "m.h5") as file:
        items = [file, file["a"], file["a/b"], file["a/b/matches0"], file["a/empty"], file["a/empty/matches0"]]
        for item in items:
            about = h5py.h5o.get_info(item.id)
            assert (about.atime, about.mtime, about.ctime, about.btime) == (0, 0, 0, 0)


@pytest.mark.parametrize("name", [np.zeros(0), ["a", "b"], 7, np.zeros((2, 2))])
def test_names_of_a_pair_that_are_no_text_are_refused(tmp_path, name):
    path = write(tmp_path, {"a/b/matches0": [0]})
    with h5py.File(path, "a") as file:
        file["a/b"].attrs.update(name0=name, name1="b")
    with MatchFile(path) as file, pytest.raises(ValueError, match="(?s)m.h5: .* is of the photo .*expected a name"):
        file.pairs()


def test_a_pair_whose_name_is_no_utf8_is_refused_by_name(tmp_path):
    path = write(tmp_path, {"a/b/matches0": [0]})
    with MatchFile(path) as file, pytest.raises(ValueError, match="m.h5: matches of .* cannot be read"):
        file.indices("\udcff", "b")


def test_a_number_of_keypoints_that_is_infinite_is_refused(tmp_path):
    path = write(tmp_path, {"a/b/matches0": [0]})
    with h5py.File(path, "a") as file:
        file["a/b"].attrs.update(rows0=np.inf, place0=np.zeros(2))
    with MatchFile(path) as file, pytest.raises(ValueError, match="m.h5: matches of 'a' and 'b' cannot be read"):
        file.indices("a", "b")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_not_finite_are_refused(tmp_path, value):
    path = write(tmp_path, {"a/b/matches0": [0, 1], "a/b/matching_scores0": [0.5, value]})
    with MatchFile(path) as file, pytest.raises(ValueError, match="m.h5: scores of 'a' and 'b' are not all finite"):
        file.read("a", "b")


def test_a_match_file_is_looked_through_to_its_end(tmp_path):
    with MatchWriter(tmp_path / "a.h5") as writer:
        for name in ("b.jpg", "c" * 5000, "d.jpg"):  # no heap that was begun has room for the second
            rng = np.random.default_rng(len(name))
            rows = rng.permutation(400_000).astype(np.int32)
            writer.write("a.jpg", name, len(rows), np.stack([rows, rows[::-1]], 1), rng.random(len(rows)))
    data = bytearray((tmp_path / "a.h5").read_bytes())
    at = data.rindex(b"GCOL") + 16
    assert 1 << 20 < at < len(data) - (1 << 20)
    data[at : at + 64] = bytes(64)
    (tmp_path / "a.h5").write_bytes(data)
    with pytest.raises(ValueError, match="a.h5: not a readable HDF5 file"):
        MatchFile(tmp_path / "a.h5")
