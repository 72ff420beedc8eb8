"""Retrieval: photos of one place find each other, whatever their descriptors."""

import numpy as np
import pytest

from tests.support.in_use import check_refused_while_in_use
from tests.support.place import WIDTH, exact_translator
from tests.support.stopped import Calls, Stopped
from xdesc_jax.cli import main
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.files.claim import beside
from xdesc_jax.matching import vlad as vlad_module
from xdesc_jax.matching.pairs import pair_line, read_pairs
from xdesc_jax.matching.vlad import VladIndex, vlad, vocabulary

PLACES, PHOTOS, ROWS = 3, 4, 60


def rows_of_photos(seed=0):
    """Photo name -> rows: photos of one place show two thirds of its 90 points, with noise."""
    rng = np.random.default_rng(seed)
    rows = {}
    for place in range(PLACES):
        points = rng.normal(size=(90, WIDTH))
        for photo in range(PHOTOS):
            seen = points[rng.permutation(90)[:ROWS]]
            rows[f"{place}/{photo}.jpg"] = unit_rows(seen + 0.1 * rng.normal(size=seen.shape))
    return rows


def write(path, rows, spec_name="own-a", step=1):
    with StoreWriter(path, DescriptorSpec(spec_name, WIDTH)) as writer:
        for name, values in rows.items():
            n = len(values)
            xy = np.zeros((n, 2), np.float32)
            writer.write(name, ImageFeatures(xy, values[:, ::step], values.any(axis=1), (64, 48)))
    return path


def lines(path):
    return [tuple(line.split()) for line in path.read_text().splitlines()]


@pytest.fixture
def model(tmp_path):
    return exact_translator().save(tmp_path / "model.safetensors")


def test_vlad_is_the_normalised_sum_of_residuals_of_each_centre():
    centers = np.array([[1, 0], [0, 1]], np.float32)
    rows = np.array([[3, 0], [1, 1.5], [0, 2], [0, 0]], np.float32)
    # Residuals (2, 0) of the first centre; (1, 0.5) and (0, 1) of the second; each sum to unit length, then all.
    second = np.array([1, 1.5]) / np.hypot(1, 1.5)
    np.testing.assert_allclose(vlad(rows, centers), np.array([1, 0, *second]) / np.sqrt(2), atol=1e-6)


def test_vlad_of_many_rows_equals_a_loop():
    rng = np.random.default_rng(3)
    rows, centers = rng.normal(size=(9001, 5)).astype(np.float32), rng.normal(size=(7, 5)).astype(np.float32)
    sums = np.zeros((7, 5))
    for row in rows.astype(np.float64):
        nearest = int(((row - centers) ** 2).sum(axis=1).argmin())
        sums[nearest] += row - centers[nearest]
    sums /= np.linalg.norm(sums, axis=1, keepdims=True)
    np.testing.assert_allclose(vlad(rows, centers), sums.ravel() / np.sqrt(7), atol=1e-4)


def test_vocabulary_is_the_means_of_clouds():
    """Clouds a tenth as wide as they are apart, so that no row of one is near its mean."""
    rng = np.random.default_rng(0)
    clouds = np.array([[9, 0, 0], [0, 9, 0], [0, 0, 9], [9, 9, 9]])
    member = rng.integers(4, size=250)
    rows = clouds[member] + rng.normal(size=(250, 3))
    means = np.array([rows[member == k].mean(axis=0) for k in range(4)])
    photos = dict(zip("abcde", np.split(rows, 5), strict=True))
    found = vocabulary(photos.__getitem__, list(photos), 4, seed=1)
    nearest = np.linalg.norm(means[:, None] - found, axis=2).argmin(axis=1)
    assert sorted(nearest) == [0, 1, 2, 3]
    np.testing.assert_allclose(found[nearest], means, rtol=1e-5)


def test_vocabulary_is_no_larger_than_the_distinct_rows():
    assert len(vocabulary(lambda _: np.tile(np.eye(3, 4), (5, 1)), ["a", "b"], 64, seed=0)) == 3


def test_photos_of_the_same_place_come_first():
    rows = rows_of_photos()
    index = VladIndex.build(rows.__getitem__, list(rows), clusters=16)
    for name, values in rows.items():
        assert {found[0] for found in index.query(values, PHOTOS)} == {name[0]}
        assert index.query(values, 1) == [name]


def test_the_same_seed_gives_the_same_index():
    rows = rows_of_photos()
    a, b = (VladIndex.build(rows.__getitem__, list(rows), clusters=16, seed=7) for _ in range(2))
    np.testing.assert_array_equal(a.vectors, b.vectors)


def test_no_photo_is_read_or_translated_twice_as_long_as_its_rows_fit(monkeypatch):
    rows, read = rows_of_photos(), []
    size = next(iter(rows.values())).nbytes
    found = []
    for kept, further in ((vlad_module.KEPT_BYTES, 0), (5 * size, len(rows) - 5), (0, len(rows))):
        monkeypatch.setattr(vlad_module, "KEPT_BYTES", kept)
        read.clear()
        found.append(VladIndex.build(lambda name: read.append(name) or rows[name], list(rows), clusters=16))
        assert len(read) == len(rows) + further and set(read) == set(rows)
    for index in found[1:]:
        np.testing.assert_array_equal(index.vectors, found[0].vectors)


def test_photos_without_descriptors_retrieve_nothing_and_are_not_retrieved():
    rows = {**rows_of_photos(), "blank.jpg": np.zeros((0, WIDTH)), "dark.jpg": np.zeros((9, WIDTH))}
    index = VladIndex.build(rows.__getitem__, list(rows), clusters=8)
    assert len(index.query(rows["0/0.jpg"], 99)) == PLACES * PHOTOS
    assert index.query(rows["dark.jpg"], 3) == index.query(rows["blank.jpg"], 3) == []


def test_zero_and_infinite_rows_are_ignored():
    rows = rows_of_photos()
    index = VladIndex.build(rows.__getitem__, list(rows), clusters=8)
    bad = np.concatenate([rows["1/1.jpg"], np.zeros((3, WIDTH)), np.full((2, WIDTH), np.nan)])
    np.testing.assert_array_equal(vlad(bad, index.centers), vlad(rows["1/1.jpg"], index.centers))


def test_blocks_of_queries_change_nothing(monkeypatch):
    rows = rows_of_photos()
    index = VladIndex.build(rows.__getitem__, list(rows), clusters=8)
    whole = index.nearest(index.vectors, 5)
    monkeypatch.setattr("xdesc_jax.matching.vlad.QUERY_BLOCK", 5)
    for a, b in zip(whole, index.nearest(index.vectors, 5), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_no_descriptor_at_all_is_refused():
    with pytest.raises(ValueError, match="none of 2 photos has a descriptor"):
        VladIndex.build(lambda _: np.zeros((4, 5)), ["a", "b"])


def test_files_without_a_descriptor_are_named(model, tmp_path, capsys):
    features = write(tmp_path / "none.h5", {"a.jpg": np.zeros((5, WIDTH)), "b.jpg": np.zeros((0, WIDTH))})
    assert main(["retrieve", str(features), str(tmp_path / "pairs.txt"), "--model", str(model)]) == 2
    assert f"{features}: none of 2 photos has a descriptor" in " ".join(capsys.readouterr().err.split())


def test_photos_of_fewer_rows_than_the_vocabulary_has_centres_find_each_other(model, tmp_path):
    """Rows that were their own centres had no residual, and photos of them no vector."""
    rng = np.random.default_rng(0)
    places = [unit_rows(rng.normal(size=(8, WIDTH))) for _ in range(2)]
    rows = {
        f"{place}/{photo}.jpg": unit_rows(places[place] + 0.1 * rng.normal(size=(8, WIDTH)))
        for place in range(2)
        for photo in range(2)
    }
    words = ["retrieve", write(tmp_path / "few.h5", rows), tmp_path / "pairs.txt", "--model", model, "--top", 1]
    assert main([str(word) for word in words]) == 0
    assert sorted(lines(tmp_path / "pairs.txt")) == [("0/0.jpg", "0/1.jpg"), ("1/0.jpg", "1/1.jpg")]


def test_pair_lines_are_read_back(tmp_path):
    names = ["a.jpg", "sub dir/b c.jpg", "\u00e9.jpg"]
    pairs = [(a, b) for a in names for b in names if a != b]
    (tmp_path / "pairs.txt").write_text("".join(pair_line(a, b) for a, b in pairs), encoding="utf-8")
    assert list(read_pairs(tmp_path / "pairs.txt", names, names)) == pairs
    with pytest.raises(ValueError, match="holds a tab or a line break"):
        pair_line("a\tb", "c")


def test_stage_retrieves_across_descriptors(tmp_path, model):
    rows = rows_of_photos()
    queries = {name: rows[name] for name in ("0/0.jpg", "1/0.jpg", "2/0.jpg")}
    known = {name: values for name, values in rows.items() if name not in queries}
    a, b = write(tmp_path / "q.h5", queries), write(tmp_path / "map.h5", known, "own-b", -1)
    out = tmp_path / "pairs.txt"
    words = ["retrieve", a, out, "--database", b, "--model", model, "--top", 3, "--clusters", 16]
    assert main(list(map(str, words))) == 0
    assert len(lines(out)) == 9
    assert all(query[0] == found[0] for query, found in lines(out))
    before = out.stat().st_mtime_ns
    assert main(list(map(str, words))) == 0
    assert out.stat().st_mtime_ns == before
    assert main([*map(str, words[:-1]), "8"]) == 2


def test_stage_gives_each_pair_of_one_set_once(tmp_path, model):
    rows = {**rows_of_photos(), "blank.jpg": np.zeros((0, WIDTH), np.float32)}
    half = dict(list(rows.items())[::2])
    a = write(tmp_path / "a.h5", half)
    b = write(tmp_path / "b.h5", {n: v for n, v in rows.items() if n not in half}, "own-b", -1)
    out = tmp_path / "pairs.txt"
    words = ["retrieve", a, b, out, "--model", model, "--top", PHOTOS - 1, "--clusters", 16]
    assert main(list(map(str, words))) == 0
    found = lines(out)
    assert len(found) == PLACES * PHOTOS * (PHOTOS - 1) / 2
    assert len({frozenset(pair) for pair in found}) == len(found)
    assert all(x[0] == y[0] and x != y for x, y in found)


def test_stage_needs_a_joint_space(tmp_path, model, capsys):
    a = write(tmp_path / "a.h5", rows_of_photos())
    assert main(["retrieve", str(a), str(tmp_path / "p.txt")]) == 2
    assert "files hold ['own-a']: give a --model" in capsys.readouterr().err
    assert main(["retrieve", str(a), str(a), "--model", str(model)]) == 2
    assert "is the input itself" in capsys.readouterr().err
    assert main(["retrieve", str(a), "--model", str(model)]) == 2
    assert "error: xdesc retrieve expects FEATURES... OUT. See `xdesc retrieve --help`." in capsys.readouterr().err
    assert not (tmp_path / "p.txt").exists()


@pytest.mark.parametrize("k", [1, 3, 40, 200])
@pytest.mark.parametrize("block", [7, 50, 1000])
def test_the_nearest_are_those_of_a_stable_sort_of_all_whatever_the_blocks(monkeypatch, k, block):
    """Most photos look like several others, and every fifth has no rows."""
    monkeypatch.setattr(vlad_module, "PHOTO_BLOCK", block)
    monkeypatch.setattr(vlad_module, "QUERY_BLOCK", 4)
    rng = np.random.default_rng(0)
    vectors = np.eye(6, dtype=np.float32)[rng.integers(6, size=83)]
    vectors[::5] = 0
    queries = np.vstack([unit_rows(rng.integers(0, 3, (9, 6)).astype(np.float32)), np.zeros((2, 6), np.float32)])
    index, scores = VladIndex(np.eye(6), [str(i) for i in range(83)], vectors).nearest(queries, k)
    cosine = np.where(queries.any(axis=1)[:, None] & vectors.any(axis=1), queries @ vectors.T, -np.inf)
    order = np.argsort(-cosine, axis=1, kind="stable")[:, :k]
    expected = np.take_along_axis(cosine, order, axis=1)
    np.testing.assert_array_equal(scores, expected)
    np.testing.assert_array_equal(index, np.where(np.isfinite(expected), order, -1))


def test_what_is_sorted_and_held_at_a_time_does_not_grow_with_the_photos(monkeypatch):
    monkeypatch.setattr(vlad_module, "PHOTO_BLOCK", 100)
    sorted_, split = [], []
    argsort, partition = np.argsort, np.partition
    monkeypatch.setattr(np, "argsort", lambda a, **named: sorted_.append(a.shape[1]) or argsort(a, **named))
    monkeypatch.setattr(np, "partition", lambda a, *at, **named: split.append(a.shape[1]) or partition(a, *at, **named))
    rng = np.random.default_rng(0)
    vectors = unit_rows(rng.normal(size=(950, 8)))
    VladIndex(np.eye(8), [str(i) for i in range(950)], vectors).nearest(vectors[:3], 5)
    assert set(sorted_) == {5} and max(split) == 105 and sum(split) == 950 + 9 * 5


def test_a_stopped_retrieval_goes_on_and_ends_as_an_undisturbed_one(tmp_path, model, monkeypatch, caplog, capsys):
    rows = rows_of_photos()
    queries = {name: rows[name] for name in ("0/0.jpg", "1/0.jpg", "2/0.jpg")}
    known = {name: values for name, values in rows.items() if name not in queries}
    a, b = write(tmp_path / "q.h5", queries), write(tmp_path / "map.h5", known, "own-b", -1)

    def words(out, top=3):
        return [str(w) for w in ["retrieve", a, out, "--database", b, "--model", model, "--top", top, "--clusters", 16]]

    expected, out = tmp_path / "expected.txt", tmp_path / "out" / "pairs.txt"
    assert main(words(expected)) == 0
    made, vocabularies = (Calls(monkeypatch, vlad_module, name) for name in ("vlad", "vocabulary"))
    for until in (5, 10):  # among the photos of the database, and among the queries
        made.until = until
        with pytest.raises(Stopped):
            main(words(out))
    made.until = None
    with caplog.at_level("INFO", "xdesc_jax"):
        assert main(words(out)) == 0
    assert (made.done, vocabularies.done) == (len(rows), 1)
    assert "going on: 11 photos are indexed already" in caplog.text  # the vocabulary counts as one
    assert sorted(path.name for path in out.parent.iterdir()) == ["pairs.txt", "pairs.txt.json"]
    for end in ("", ".json"):
        assert (out.parent / f"pairs.txt{end}").read_bytes() == (tmp_path / f"expected.txt{end}").read_bytes()
    made.until = made.done + 4
    with pytest.raises(Stopped):
        main([*words(out), "--seed", "1", "--overwrite"])
    made.until, made.done = None, 0
    caplog.clear()
    with caplog.at_level("INFO", "xdesc_jax"):
        assert main([*words(out), "--seed", "2", "--overwrite"]) == 0
    assert made.done == len(rows) and ".pairs.txt.part: was made with other settings or inputs" in caplog.text
    capsys.readouterr()
    assert main([*words(out), "--seed", "3"]) == 2
    assert "pairs.txt was made with another configuration (seed: 2 -> 3)" in capsys.readouterr().err
    check_refused_while_in_use([*words(out), "--seed", "3", "--overwrite"], beside(out), out, capsys)
