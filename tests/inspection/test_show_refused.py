"""`xdesc show` on matches: what is refused, in one line that names it."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from tests.support.shown_files import A, B, C, run, write_features, write_matches, write_photos
from xdesc_jax.inspection import match_drawing


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
        (["{f}", "{m}", "--photos", "{p}", "--pair", "c.png", "z.png"], "--pair names 1 photo not in"),
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
