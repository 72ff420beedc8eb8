"""The HTML report and its pictures."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.support.html_page import HtmlPage
from xdesc_jax.evaluate.drawing import counts, matches_grid, matches_picture, side_by_side
from xdesc_jax.evaluate.homography import Comparison, MatchedPair, Result
from xdesc_jax.evaluate.measures import Measures
from xdesc_jax.evaluate.report import COLUMNS, Evaluation, answer, matrix, table_rows, write_report
from xdesc_jax.reports.parts import Picture
from xdesc_jax.reports.settings import Settings


def measures(ap, ratio=0.9):
    mma = tuple(np.linspace(0, ap, 10).tolist())
    return Measures(ap, mma, float(np.mean(mma[:5])), 120, 0.5, 110, 1300, 240, 1000, 500, ratio, 150, 0.375)


def result(mode, source, target, ap, ratio=0.9):
    found = measures(ap, ratio)
    pairs = {"door": {"2.png": found}, "wall": {"2.png": found, "3.png": found}}
    return Result(Comparison(mode, source, target), pairs)


RESULTS = [
    result("native", "sift", "sift", 0.5),
    result("native", "brief", "brief", 0.4),
    result("translated", "sift", "brief", 0.25),
    result("translated", "brief", "sift", 0.125),
    result("joint", "sift", "brief", 0.375),
]


@pytest.fixture
def matched():
    xy = np.array([[1.0, 2.0], [30, 20], [10, 5]])
    return MatchedPair(xy, xy + 3, np.array([True, False, True]))


@pytest.fixture
def photos():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (31, 47), np.uint8), rng.integers(0, 256, (40, 52), np.uint8)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    picture = Picture(encoded(), "sift | <brief>", "3 of 4")
    evaluation = Evaluation("Warped & stereo", "Some <words>.", RESULTS, "a and b", [picture])
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(
        path, "A report", [evaluation], settings=Settings.of({"seed": 3, "limit": 2000}, {"limit": 2000}),
        provenance={"weights": None, "views": {"noise": 5.5}},
    )  # fmt: skip
    return HtmlPage.read(path)


def encoded():
    buffer = io.BytesIO()
    Image.new("L", (8, 4)).save(buffer, "jpeg")
    return buffer.getvalue()


def test_the_page_says_first_how_the_best_translation_compares_with_native_rows(page):
    page.check()
    assert page.by_class["answer"] == ["sift queries matched brief photos at AP 0.250, native 0.400."]
    # sift -> brief reaches 0.25 of 0.4, brief -> sift 0.125 of 0.5.
    assert page.by_class["numbers"] == [
        "AP, sift \u2192 brief 0.250 AP, native brief 0.400 of native AP, mean of 2 translations 44 % "
        "correct matches a pair, sift \u2192 brief 120 photo pairs 3"
    ]


def test_the_answer_is_of_the_first_evaluation_and_names_the_others():
    again = [result("native", "brief", "brief", 0.6), result("translated", "sift", "brief", 0.5)]
    found = answer([Evaluation("Warped", "", RESULTS), Evaluation("Stereo", "", again)])
    assert found.sentence == "Warped: sift queries matched brief photos at AP 0.250, native 0.400."
    assert [(n.value, n.label) for n in found.numbers][3] == ("0.500", "AP, sift \u2192 brief, stereo")


def test_without_a_translator_the_answer_is_the_best_descriptor():
    assert answer([Evaluation("", "", RESULTS[:2])]).sentence == (
        "sift finds matches at AP 0.500, the best of 2 descriptors."
    )


def test_page_shows_figures_and_settings_with_their_text_escaped(page):
    for text in ["0.125", "0.375", "sift \u2192 brief", "Some <words>.", "sift | <brief>", "seed 3", "noise 5.5"]:
        assert text in page.text, text
    assert page.text.index("seed 3") < page.text.index("1 as by default") < page.text.index("limit 2000")
    assert ["sift \u2192 brief", "translated", "0.250", "0.056", "120.0", "110.0", "0.500", "1,300.0"] in page.rows
    assert ["sift", "0.500", "0.250"] in page.rows and ["sift", "\u2013", "0.375"] in page.rows


def test_curves_are_there_for_each_kind_of_screen(page):
    forms = [found["media"] for tag, found in page.tags if tag == "source"]
    narrow, dark = "(max-width: 700px)", "(prefers-color-scheme: dark)"
    assert forms == [f"{narrow} and {dark}", narrow, dark]


def test_matrix_holds_native_figures_on_its_diagonal_and_none_where_not_compared():
    assert matrix(RESULTS, "translated") == (["sift", "brief"], [[0.5, 0.25], [0.125, 0.4]])
    assert matrix(RESULTS, "joint") == (["sift", "brief"], [[None, 0.375], [None, None]])


def test_table_rows_hold_mode_label_and_every_column():
    rows = table_rows(RESULTS)
    assert rows[2] == ["sift -> brief", "0.250", "0.056", "120.0", "110.0", "0.500", "1,300.0"]
    assert all(len(row) == 1 + len(COLUMNS) for row in rows)


def test_figures_at_calibrated_ratios_are_listed_where_there_are_any():
    rows = table_rows([*RESULTS, result("translated", "sift", "brief", 0.25, ratio=0.95)])
    assert rows[-1] == [
        "sift -> brief",
        "0.250",
        "0.056",
        "120.0",
        "110.0",
        "0.500",
        "1,300.0",
        "0.950",
        "150.0",
        "0.375",
    ]
    assert rows[0][-3] == "0.900"


def test_photos_of_two_sizes_share_a_canvas(photos):
    canvas, offset = side_by_side(*photos)
    np.testing.assert_array_equal(canvas[:31, :47], photos[0])
    np.testing.assert_array_equal(canvas[:, offset:], photos[1])


def test_counts_say_how_many_matches_are_correct(matched):
    assert counts(matched) == "2 of 3 matches correct"


def test_correct_matches_are_green_and_wrong_ones_red(photos, matched):
    def strongest(correct):
        only = MatchedPair(matched.query_xy[:1], matched.database_xy[:1], np.array([correct]))
        pixels = np.asarray(Image.open(io.BytesIO(matches_picture(*photos, only, 400))).convert("RGB"), int)
        return (pixels[..., 1] - pixels[..., 0]).max(), (pixels[..., 0] - pixels[..., 1]).max()

    green, red = strongest(True)
    assert green > 60 > red
    green, red = strongest(False)
    assert red > 60 > green


def test_a_pair_without_matches_is_drawn(photos):
    empty = MatchedPair(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0, bool))
    assert Image.open(io.BytesIO(matches_picture(*photos, empty, 300))).size[0] == 300


def test_grid_draws_an_odd_number_of_panels(photos, matched):
    picture = Image.open(io.BytesIO(matches_grid(*photos, [("a", matched)] * 3, 600)))
    assert picture.size[0] == 600
