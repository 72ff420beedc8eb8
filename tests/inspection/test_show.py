"""`xdesc show` on matches: which are drawn, in which colours and order, and what it says of them."""

from __future__ import annotations

import sqlite3

import h5py
import numpy as np
import pytest
from PIL import Image

from tests.support.html_page import HtmlPage
from xdesc_jax.cli import main
from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.descriptors import DescriptorSpec, binary_spec, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.inspection import match_drawing, match_page
from xdesc_jax.inspection.shown_matches import ListedPair, ShownMatches, match_ratios, opened
from xdesc_jax.matching.matches import MatchWriter
from xdesc_jax.matching.routes import Router

SIZE = (64, 48)
A, B, C = "a b.png", "sub/é.png", "c.png"
OWN, BITS = DescriptorSpec("own", 16), binary_spec("bits", 40)


def write_features(path, names, spec=OWN, rows=30, seed=0, size=SIZE):
    """Rows of the photos resemble each other, so that many match."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(rows, 16))
    with StoreWriter(path, spec) as writer:
        for name in names:
            if spec.binary:
                x = rng.integers(0, 256, (rows, spec.stored_width), dtype=np.uint8) | 1
            else:
                x = unit_rows(common + 0.5 * rng.normal(size=common.shape)).astype(np.float32)
            xy = rng.uniform(1, 46, (rows, 2)).astype(np.float32)
            writer.write(name, ImageFeatures(xy, x, np.ones(rows, bool), size))
    return path


def write_photos(folder, names, size=SIZE):
    rng = np.random.default_rng(7)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        small = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(small).resize(size, Image.Resampling.BICUBIC).save(folder / name)
    return folder


def write_matches(path, pairs, rows=30, **attributes):
    with MatchWriter(path, attributes) as writer:
        for (a, b), indices in pairs.items():
            indices = np.array(indices, np.int32).reshape(-1, 2)
            writer.write(a, b, rows, indices, np.linspace(0.9, 0.5, len(indices)).astype(np.float32))
    return path


@pytest.fixture
def made(tmp_path):
    """Features, photos and matches of three photos: 20 matches, 5, and none."""
    features = write_features(tmp_path / "f.h5", [A, B, C])
    pairs = {
        (A, B): [(i, i) for i in range(20)],
        (A, C): [(i, (i + 1) % 30) for i in range(5)],
        (B, C): [],
    }
    return features, write_matches(tmp_path / "m.h5", pairs), write_photos(tmp_path / "photos", [A, B, C])


def run(*words):
    return main(["show", *map(str, words)])


def read_pair(files, names, min_score=None):
    with opened(files) as (first, second, source):
        shown = ShownMatches(first, second, source, Router("native"), None, min_score)
        return shown.read(shown.find(*names))


def brute_force(a, b, indices):
    """The larger of both directions, from all distances."""
    distance = np.linalg.norm(a[:, None].astype(np.float64) - b, axis=2)
    ratios = []
    for i, j in indices:
        others = np.delete(distance[i], j).min(), np.delete(distance[:, j], i).min()
        ratios.append(distance[i, j] / min(others))
    return np.array(ratios)


# --- Ratios ----------------------------------------------------------------------------------------------------


def test_ratios_are_those_of_all_distances(made):
    features, matches, _ = made
    found = read_pair([features, matches], (A, C))
    with h5py.File(features) as file:
        a, c = file[A]["descriptors"][()].T, file[C]["descriptors"][()].T
    assert found.compared == "own"
    expected = brute_force(a, c, [(i, i + 1) for i in range(5)])
    assert expected.max() > 1  # rows that are not nearest neighbours
    np.testing.assert_allclose(found.ratios, expected, rtol=1e-5)


def test_matches_at_a_threshold_have_ratios_up_to_it(made, tmp_path):
    features, _, _ = made
    out = tmp_path / "at.h5"
    assert main(["match", str(features), str(out), "--pairs", "exhaustive", "--ratio", "0.63"]) == 0
    found = read_pair([features, out], (A, B))
    with h5py.File(features) as file:
        a, b = file[A]["descriptors"][()].T, file[B]["descriptors"][()].T
    distance = np.linalg.norm(a[:, None].astype(np.float64) - b, axis=2)
    mutual = [(i, j) for i, j in enumerate(distance.argmin(axis=1)) if distance[:, j].argmin() == i]
    below = brute_force(a, b, mutual) <= 0.63
    assert 0 < below.sum() < len(mutual)
    assert sorted(map(tuple, found.indices.tolist())) == [p for p, ok in zip(mutual, below, strict=True) if ok]
    assert 0.5 < found.ratios.max() <= 0.63


def test_ratios_of_bits_are_on_the_scale_of_their_l2_distance():
    a = np.array([[0b0000_0001], [0b1111_0000]], np.uint8)
    b = np.array([[0b0000_0011], [0b0001_1111], [0b1111_0000]], np.uint8)
    # 1 bit to its match; 4 to the nearest other row of b, 5 to the other row of a
    found = match_ratios(a, b, np.array([[0, 0], [1, 2]]), binary=True)
    np.testing.assert_allclose(found, [np.sqrt(1 / 4), 0])


def test_rows_that_never_match_have_no_ratio_and_lone_ones_are_sure():
    a, b = np.array([[0, 0], [1, 0]], np.float32), np.array([[0, 1]], np.float32)
    found = match_ratios(a, b, np.array([[0, 0], [1, 0]]), binary=False)
    assert np.isnan(found[0]) and found[1] == 0


def test_features_that_do_not_compare_are_coloured_by_score(made, tmp_path):
    _, _, photos = made
    files = [
        write_features(tmp_path / "x.h5", [A]), write_features(tmp_path / "y.h5", [B], BITS),
        write_matches(tmp_path / "xy.h5", {(A, B): [(0, 1), (2, 3)]}),
    ]  # fmt: skip
    found = read_pair(files, (A, B))
    assert found.ratios is None and "do not compare" in found.compared
    colored = match_page.coloring([found], "given")
    assert colored.field == "scores" and (colored.scale.low, colored.scale.high) == (0.5, pytest.approx(0.9))
    assert run(*files, "--photos", photos, "--out", tmp_path / "p.html") == 0
    text = HtmlPage.read(tmp_path / "p.html").text
    assert "the score of a match in the file: as the matcher that wrote them gave them" in text


def test_scores_are_explained_where_this_package_made_them(tmp_path, made):
    own = write_matches(tmp_path / "own.h5", {(A, B): [(0, 0)]}, config_hash="x", mode="native")
    with opened([made[0], own]) as (first, second, source):
        assert "share of equal ones" in ShownMatches(first, second, source, Router("native")).scores_are


# --- What is drawn ---------------------------------------------------------------------------------------------


def test_drawn_matches_run_from_the_worst_to_the_best_and_include_both_ends(made):
    features, matches, photos = made
    found = read_pair([features, matches], (A, B))
    colored = match_page.coloring([found], None)
    drawn = match_page.drawing(found, colored, photos, 7)
    assert len(drawn.indices) == 7 and (np.diff(drawn.values) <= 0).all()
    assert drawn.values[0] == found.ratios.max() and drawn.values[-1] == found.ratios.min()
    ratio_of = dict(zip(map(tuple, found.indices.tolist()), found.ratios, strict=True))
    assert [ratio_of[tuple(row)] for row in drawn.indices.tolist()] == drawn.values.tolist()
    every = match_page.drawing(found, colored, photos, 300)
    assert sorted(map(tuple, every.indices.tolist())) == [(i, i) for i in range(20)]


def test_better_matches_are_brighter_for_every_eye():
    def luminance(rgba):
        linear = np.where(rgba <= 0.04045, rgba / 12.92, ((rgba + 0.055) / 1.055) ** 2.4)
        return linear[:, :3] @ [0.2126, 0.7152, 0.0722]

    ratios = np.linspace(0.2, 1, 9)
    scale = match_drawing.ratio_scale(ratios)
    assert (np.diff(luminance(scale.of(ratios))) < -0.02).all()
    scores = match_drawing.score_scale(ratios)
    assert (np.diff(luminance(scores.of(ratios))) > 0.02).all()
    assert list(scale.order(np.array([0.3, np.nan, 0.9]))) == [1, 2, 0]
    assert list(scores.order(np.array([0.3, np.nan, 0.9]))) == [1, 0, 2]


def test_wide_photos_are_stacked_and_tall_ones_stand_side_by_side():
    for (width, height), offset in (((400, 300), (0, 1)), ((300, 400), (1, 0))):
        photos = np.full((height, width, 3), 255, np.uint8), np.zeros((height, width, 3), np.uint8)
        canvas = match_drawing.joined(photos, 600)
        assert max(canvas.pixels.shape) == pytest.approx(600, abs=2)
        assert tuple(np.sign(canvas.offset)) == offset
        at = canvas.at(np.array([[width - 1, height - 1]]), 1)[0]
        np.testing.assert_allclose(at[::-1], np.array(canvas.pixels.shape) - 1, atol=2)
        assert canvas.pixels[5, 5] > 100 and canvas.pixels[tuple(np.int64(canvas.offset)[::-1] + 3)] == 0


def test_pairs_with_most_and_with_fewest_matches_are_shown():
    pairs = [ListedPair(f"{i:02d}", "x", n) for i, n in enumerate([90, 80, 70, 60, 50, 4, 3, 0])]
    assert [pair.matches for pair in match_page.shown_pairs(pairs, 3)] == [90, 80, 3]
    assert [pair.matches for pair in match_page.shown_pairs(pairs, 6)] == [90, 80, 70, 60, 4, 3]
    assert [pair.matches for pair in match_page.shown_pairs(pairs, 20)] == [90, 80, 70, 60, 50, 4, 3]


def test_a_picture_differs_when_the_matches_do(made, tmp_path):
    features, matches, photos = made
    other = write_matches(tmp_path / "o.h5", {(A, B): [(i, 29 - i) for i in range(20)]})
    pictures = []
    for number, file in enumerate((matches, matches, other)):
        out = tmp_path / f"{number}.png"
        assert run(features, file, "--photos", photos, "--out", out) == 0
        with Image.open(out) as image:
            assert image.format == "PNG" and min(image.size) > 900
            pictures.append(np.asarray(image.convert("RGB")))
    assert pictures[0].std() > 20 and len(np.unique(pictures[0] @ [1, 256, 65536])) > 1000
    np.testing.assert_array_equal(pictures[0], pictures[1])
    assert pictures[2].shape == pictures[0].shape and (pictures[2] != pictures[0]).mean() > 0.01


# --- Pages -----------------------------------------------------------------------------------------------------


def test_the_page_says_its_counts_and_shows_every_pair_with_matches(made, tmp_path, capsys):
    features, matches, photos = made
    assert run(features, matches, "--photos", photos) == 0
    assert "2 of 3 pairs shown" in capsys.readouterr().out
    page = HtmlPage.read(tmp_path / "m.h5.html")
    page.check()
    assert page.by_class["answer"][0].startswith("25 matches in 2 pairs of photos, with a median ratio of 0.")
    jpegs = [found["alt"] for tag, found in page.tags if tag == "img" and found["src"].startswith("data:image/jpeg")]
    assert len(jpegs) == 2 and jpegs[0].startswith(f"{A} – {B} 20 matches of 30 and 30 keypoints; median ratio 0.")
    rows = {row[0]: row[1:] for row in page.rows}
    assert rows[f"{A} – {B}"][0] == "20" and rows[f"{A} – {C}"][0] == "5" and rows[f"{B} – {C}"] == ["0", "–", "no"]
    assert "Ratios of 25 matches" in page.text and "The file holds scores as well" in page.text


def test_few_matches_are_drawn_and_the_caption_says_so(made, tmp_path):
    features, matches, photos = made
    words = ["--max-matches", 3, "--pair", B, A, "--out", tmp_path / "p.html"]
    assert run(features, matches, "--photos", photos, *words) == 0
    assert "20 matches of 30 and 30 keypoints; median ratio" in (text := HtmlPage.read(tmp_path / "p.html").text)
    assert "; 3 drawn" in text


def test_matches_below_a_score_are_left_out(made, tmp_path):
    features, matches, photos = made
    found = read_pair([features, matches], (A, B), min_score=0.7)
    assert found.indices[:, 0].tolist() == list(range(10)) and found.scores.min() >= 0.7
    assert run(features, matches, "--photos", photos, "--min-score", 0.7, "--out", tmp_path / "p.html") == 0
    assert HtmlPage.read(tmp_path / "p.html").by_class["answer"][0].startswith("13 matches in 2 pairs")


def test_a_folder_holds_a_page_and_a_picture_of_each_pair(made, tmp_path):
    features, matches, photos = made
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "mine.txt").write_text("kept")
    assert run(features, matches, "--photos", photos, "--out", tmp_path / "shown") == 0
    names = sorted(path.name for path in (tmp_path / "shown").iterdir())
    assert names == ["01 a_b.png sub_é.png.jpg", "02 a_b.png c.png.jpg", "index.html", "mine.txt"]
    with Image.open(tmp_path / "shown" / names[0]) as image:
        assert image.format == "JPEG" and min(image.size) > 900


def test_a_file_without_matches_gives_a_page_that_says_so(made, tmp_path):
    features, _, photos = made
    empty = write_matches(tmp_path / "e.h5", {(A, B): []})
    assert run(features, empty, "--photos", photos, "--out", tmp_path / "p.html") == 0
    page = HtmlPage.read(tmp_path / "p.html")
    page.check()
    assert page.by_class["answer"] == ["No match in 1 pair of photos."]
    assert run(features, empty, "--photos", photos, "--out", tmp_path / "p.png") == 2
    assert not (tmp_path / "p.png").exists()


# --- Files of other kinds --------------------------------------------------------------------------------------


def test_two_files_of_the_same_photos_are_those_of_first_and_second_photos(made, tmp_path):
    features, _, _ = made
    second = write_features(tmp_path / "s.h5", [A, B], rows=40, seed=3)
    matches = write_matches(tmp_path / "two.h5", {(A, B): [(29, 39)]})
    found = read_pair([features, second, matches], (A, B))
    with h5py.File(second) as file:
        np.testing.assert_array_equal(found.keypoints[1], file[B]["keypoints"][()])
    assert found.files == (features, second)


def test_files_of_hloc_are_shown(made, tmp_path):
    """They say neither what they hold nor how a photo's name was written, and may lack scores."""
    features, _, photos = made
    with h5py.File(features) as old, h5py.File(tmp_path / "hloc.h5", "w") as new:
        for name in (A, B):
            for field in ("keypoints", "descriptors", "image_size"):
                new[f"{name}/{field}"] = old[name][field][()]
    with h5py.File(tmp_path / "hm.h5", "w") as file:
        file[f"{A}/{B.replace('/', '-')}/matches0"] = np.r_[np.arange(3), -np.ones(27)].astype(np.int32)
    found = read_pair([tmp_path / "hloc.h5", tmp_path / "hm.h5"], (A, B))
    with h5py.File(features) as file:
        a, b = (file[name]["descriptors"][()].T for name in (A, B))
    np.testing.assert_allclose(found.ratios, brute_force(a, b, [(0, 0), (1, 1), (2, 2)]), rtol=1e-5)
    assert run(tmp_path / "hloc.h5", tmp_path / "hm.h5", "--photos", photos) == 0


@pytest.fixture
def database(tmp_path):
    """Three photos: a verified pair, of whose 6 matches 4 remain, and one that is not."""
    path = tmp_path / "d.db"
    rng = np.random.default_rng(0)
    names = ["0.png", "1.png", "2.png"]
    with pycolmap.Database.open(path) as db:
        camera = db.write_camera(pycolmap.Camera(model="PINHOLE", width=64, height=48, params=[50.0, 50, 32, 24]))
        for name in names:
            image = db.write_image(pycolmap.Image(name=name, camera_id=camera))
            xy = rng.uniform(1, 46, (9, 2)).astype(np.float32)
            db.write_keypoints(image, xy)
            data = rng.integers(1, 60, (9, 128), dtype=np.uint8)
            kind = pycolmap.FeatureExtractorType.SIFT
            db.write_descriptors(image, pycolmap.FeatureDescriptors(type=kind, data=data))
        rows = np.array([[i, i] for i in range(6)], np.uint32)
        db.write_matches(1, 2, rows)
        db.write_matches(1, 3, rows[:2])
        db.write_two_view_geometry(1, 2, pycolmap.TwoViewGeometry(config=2, inlier_matches=rows[2:]))
    return path, write_photos(tmp_path / "photos", names)


def test_a_database_shows_verified_pairs_apart_and_what_was_refused(database, tmp_path):
    path, photos = database
    with opened([path]) as (first, second, source):
        shown = ShownMatches(first, second, source, Router("native"))
        assert [(p.names, p.matches, p.verified, p.refused) for p in shown.pairs] == [
            (("0.png", "1.png"), 4, True, 2),
            (("0.png", "2.png"), 2, False, 0),
        ]
        found = shown.read(shown.pairs[0])
        assert found.indices.tolist() == [[2, 2], [3, 3], [4, 4], [5, 5]] and found.refused.tolist() == [[0, 0], [1, 1]]
        assert found.compared == "colmap-sift" and found.ratios.shape == (4,) and found.scores is None
    assert run(path, "--photos", photos, "--out", tmp_path / "p.html") == 0
    page = HtmlPage.read(tmp_path / "p.html")
    assert page.headings.index("Verified pairs") < page.headings.index("Pairs not verified")
    assert "4 matches of 9 and 9 keypoints, verified, 2 more refused (dotted)" in page.text
    assert ["0.png – 2.png", "2", "0", "no"] in [row[:4] for row in page.rows]


def test_a_database_takes_the_matches_of_a_file(database, tmp_path):
    path, _ = database
    found = read_pair([path, write_matches(tmp_path / "m.h5", {("1.png", "2.png"): [(8, 0)]}, 9)], ("1.png", "2.png"))
    assert found.indices.tolist() == [[8, 0]] and found.ratios is not None


# --- What is refused -------------------------------------------------------------------------------------------


def refused(capsys, *words):
    assert run(*words) == 2
    return " ".join(capsys.readouterr().err.split())


def test_a_missing_photo_is_named(made, capsys, tmp_path):
    features, matches, photos = made
    (photos / B).unlink()
    assert f"{photos / B}: no such photo" in refused(capsys, features, matches, "--photos", photos)
    assert not (tmp_path / "m.h5.html").exists()


def test_photos_of_another_size_are_refused(made, capsys, tmp_path):
    features, matches, photos = made
    write_photos(photos, [A], (48, 64))
    text = refused(capsys, features, matches, "--photos", photos, "--out", tmp_path / "x.png")
    assert f"{photos / A}: has 48 x 64 px, but the features of {A!r} in {features} were made on 64 x 48 px" in text
    assert "it is turned" in text and not (tmp_path / "x.png").exists()


def test_keypoints_outside_a_photo_of_unknown_size_are_refused(made, capsys, tmp_path):
    _, matches, photos = made
    features = write_features(tmp_path / "n.h5", [A, B, C], size=(0, 0))
    write_photos(photos, [A], (20, 20))
    assert "has 20 x 20 px, but keypoints of 'a b.png'" in refused(capsys, features, matches, "--photos", photos)


def test_rows_that_a_photo_does_not_have_are_refused(made, capsys, tmp_path):
    features, _, photos = made
    bad = write_matches(tmp_path / "bad.h5", {(A, B): [(0, 30)]})
    assert f"use row 30 of {B!r}, which has 30 keypoints" in refused(capsys, features, bad, "--photos", photos)


def test_rows_of_a_database_that_a_photo_does_not_have_are_refused(database, capsys):
    path, photos = database
    with sqlite3.connect(path) as db:
        db.execute(
            "UPDATE matches SET data = ? WHERE pair_id % 2147483647 = 3", (np.array([0, 9, 1, 1], "u4").tobytes(),)
        )
    db.close()
    assert "use row 9 of '2.png', which has 9 keypoints" in refused(capsys, path, "--photos", photos)


def test_files_in_the_wrong_order_are_refused(made, capsys, tmp_path):
    features, _, photos = made
    second = write_features(tmp_path / "s.h5", [A, B], rows=40, seed=3)
    matches = write_matches(tmp_path / "two.h5", {(A, B): [(5, 5)]})
    text = refused(capsys, second, features, matches, "--photos", photos)
    assert "are of 30 keypoints" in text and "has 40: give the features that were matched, in the order" in text


def test_matches_of_other_photos_are_refused(made, capsys, tmp_path):
    features, _, photos = made
    other = write_matches(tmp_path / "o.h5", {("x.png", "y.png"): [(0, 0)]})
    text = refused(capsys, features, other, "--photos", photos)
    assert f"{other}: is of other photos than {features}" in text and "x.png" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--photos", "{p}"], "xdesc show expects INPUTS"),
        (["{f}", "--photos", "{p}"], "matches are shown with their features"),
        (["{f}", "{f}", "--photos", "{p}"], "holds features, expected the match file at the end"),
        (["{f}", "{m}", "--photos", "{p}/none"], "none: no such folder of photos"),
        (["{f}", "{p}/none.h5", "--photos", "{p}"], "none.h5: no such file"),
        (["{f}", "{m}", "--photos", "{p}", "--pair", "c.png", "z.png"], "--pair names 1 photos that are not in"),
        (["{f}", "{m}", "--photos", "{p}", "--pair", "c.png", "c.png"], "holds no matches of 'c.png' and 'c.png'"),
        (["{f}", "{m}", "--photos", "{p}", "--out", "{m}"], "is the input itself"),
        (["{f}", "{m}", "--photos", "{p}", "--out", "{p}/x.pdf"], "x.pdf: expected a page (.html)"),
        (["{f}", "{m}", "--photos", "{p}", "--most", "0"], "--most 0"),
        (["{f}", "{m}", "--photos", "{p}", "--query", "c.png"], "--query and --map are for the folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_shown_is_one_line(made, capsys, words, message):
    features, matches, photos = made
    assert message in refused(capsys, *(word.format(f=features, m=matches, p=photos) for word in words))


def test_scores_are_not_asked_of_a_database(database, capsys):
    path, photos = database
    assert "a database holds no scores" in refused(capsys, path, "--photos", photos, "--min-score", 0.5)


@pytest.mark.parametrize(
    ("name", "drawn"),
    [("a$_$b.jpg", "a$_$b.jpg"), ("日本/é.jpg", "\\u65e5\\u672c/é.jpg"), ("\U00020000.jpg", "\\u20000.jpg")],
)
def test_names_with_signs_of_formulas_and_letters_that_the_font_lacks_are_drawn(name, drawn):
    photo, xy = np.full((40, 60, 3), 99, np.uint8), np.zeros((3, 2))
    shown = match_drawing.Drawing(
        (photo, photo), (xy, xy), np.zeros((1, 2), int), None, np.zeros((0, 2), int),
        match_drawing.Scale("ratio", 0.0, 1.0),
    )  # fmt: skip
    assert match_drawing.match_figure(shown, name, "1 match", "png").startswith(b"\x89PNG")
    assert match_drawing.drawable(name) == drawn
