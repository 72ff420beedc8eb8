"""`xdesc show` on matches: which are drawn, in which colours and order, and what it says of them."""

from __future__ import annotations

import shutil

import h5py
import numpy as np
import pytest
from PIL import Image

from tests.support.html_page import HtmlPage
from tests.support.shown_files import BITS, A, B, C, run, write_features, write_matches
from xdesc_jax.cli import main
from xdesc_jax.inspection import match_drawing, match_page
from xdesc_jax.inspection.shown_matches import ListedPair, ShownMatches, match_ratios, opened
from xdesc_jax.matching.routes import Router


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


def test_a_folder_holds_a_page_and_a_picture_of_each_pair(made, tmp_path, caplog):
    features, matches, photos = made
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "mine.txt").write_text("kept")
    assert run(features, matches, "--photos", photos, "--out", tmp_path / "shown") == 0
    names = sorted(path.name for path in (tmp_path / "shown").iterdir())
    assert names == ["01 a_b.png sub_é.png.jpg", "02 a_b.png c.png.jpg", "index.html", "mine.txt"]
    with Image.open(tmp_path / "shown" / names[0]) as image:
        assert image.format == "JPEG" and min(image.size) > 900
    assert run(features, matches, "--photos", photos, "--out", tmp_path / "shown", "--pair", A, "c.png") == 0
    assert f"holds 2 pictures not of this page, first {names[0]!r}" in " ".join(caplog.text.split())


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


def test_two_files_that_do_not_say_what_they_hold_are_compared_with_a_warning(made, tmp_path, caplog):
    features, matches, _ = made
    for name in ("a.h5", "b.h5"):
        shutil.copy(features, tmp_path / name)
        with h5py.File(tmp_path / name, "r+") as file:
            for key in ("spec", "spec_json"):
                file.attrs.pop(key, None)
    with opened([tmp_path / "a.h5", tmp_path / "b.h5", matches]):
        pass
    assert "b.h5 do not say what they hold, and are taken to hold the same; --descriptor NAME=FILE" in caplog.text


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
