"""The frame of all pages, and what they are made of."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from tests.support.html_page import HtmlPage
from xdesc_jax.reports.page import write_page
from xdesc_jax.reports.parts import (
    Answer,
    Cell,
    Column,
    Definitions,
    Folded,
    Gallery,
    Group,
    Matrix,
    Number,
    Picture,
    Plot,
    Section,
    Spread,
    Table,
    Words,
)
from xdesc_jax.reports.settings import Settings, defaults_of

ODD = "<script>alert(\"x\")</script> & 'M\u00fcnchen' </td>"


@pytest.mark.parametrize(
    ("values", "text"),
    [((4.0, 6.0), "5.0 \u00b1 1.4"), ((4.0, np.nan, 6.0), "5.0 \u00b1 1.4"), ((4.0,), "4.0"), ((np.nan, 4.0), "4.0"),
     ((np.nan, np.inf), "-")],
)  # fmt: skip
def test_a_spread_is_told_of_two_runs_or_more_that_have_the_figure(values, text):
    assert str(Spread(values)) == text


def png(width, height=3):
    buffer = io.BytesIO()
    Image.new("RGB", (width, height)).save(buffer, "png")
    return buffer.getvalue()


def test_the_answer_comes_before_all_else_and_provenance_last(tmp_path):
    answer = Answer("12 of 14 queries are near.", [Number("12", "of 14 queries"), Number("0.031", "median", "m")])
    path = write_page(
        tmp_path / "p.html", "A page", answer, [Section("Queries", [Words("each")], "Some words.")],
        settings=Settings({"ratio": 0.8}, {"seed": 0}), provenance={"model": {"space": "abc", "from": None}},
    )  # fmt: skip
    page = HtmlPage.read(path)
    page.check()
    assert page.by_class["answer"] == ["12 of 14 queries are near."]
    assert page.by_class["numbers"] == ["of 14 queries 12 median 0.031 m"]
    assert page.headings == ["A page", "Queries", "Settings", "Provenance"]
    places = [page.text.index(t) for t in ("12 of 14", "Some words.", "ratio 0.8", "1 as by default", "space abc")]
    assert places == sorted(places)


def everything(text):
    """A section with each part, and `text` wherever a text may stand."""
    picture = Picture(png(8), text, text, png(8), png(4), png(4), density=2)
    return Section(
        text,
        [
            Table([text, Column("n", text)], [[text, 1], [Cell(text, 2.0, "#" + text, "row", "native"), 2]],
                  caption=text, find=text, anchor="here", tall=True),
            Matrix([text], [text], [[0.5]], text, text, {(0, 0)}),
            Gallery([picture, Plot(text, [{"text": text}], {}, title=text)]),
            Definitions({text: text, "more": {text: [text]}}),
            Folded(text, [Words(text)]),
            Group(text, [Words(text)], text),
        ],
        text,
    )  # fmt: skip


def test_texts_stay_texts_wherever_they_stand(tmp_path):
    path = write_page(
        tmp_path / "p.html", ODD, Answer(ODD, [Number(ODD, ODD, ODD)]), [everything(ODD)], text=ODD,
        settings=Settings({ODD: ODD}, {ODD: ODD}), provenance={ODD: ODD},
    )  # fmt: skip
    page = HtmlPage.read(path)
    page.check()
    assert "<script>alert" not in page.source and "</td> &" not in page.source
    plain = HtmlPage.read(write_page(tmp_path / "q" / "q.html", "t", Answer("t"), [everything("t")]))
    extra = [tag for tag, _ in page.tags].count("script") - [tag for tag, _ in plain.tags].count("script")
    assert extra == 0
    assert ODD in page.by_class["answer"] and page.headings[0] == ODD


def test_figures_stand_under_units_and_sort_by_their_values(tmp_path):
    table = Table(
        ["photo", "error [m]", Column("share", digits=1), "of runs"],
        [["a", 0.1234, 1234.56, Spread((1.0, 2.0))], ["b", None, 7, "1,024"], ["c", float("nan"), 0.5, "failed"]],
    )
    page = HtmlPage.read(write_page(tmp_path / "p.html", "t", Answer("t"), [Section("s", [table])]))
    head, *body = page.tables[0]
    assert [text for _, _, text in head] == ["photo", "error m", "share", "of runs"]
    assert [[text for _, _, text in row] for row in body] == [
        ["a", "0.123", "1,234.6", "1.5 \u00b1 0.7"],
        ["b", "\u2013", "7", "1,024"],
        ["c", "\u2013", "0.5", "failed"],
    ]
    values = [[found.get("data-value") for _, found, _ in row] for row in body]
    assert values == [[None, "0.1234", "1234.56", "1.5"], [None, "", "7.0", "1024.0"], [None, "", "0.5", ""]]
    assert all(found["aria-sort"] == "none" for _, found, _ in head)
    assert [tag for tag, _ in page.tags].count("button") == 4  # keys reach each heading


def test_a_picture_has_forms_for_dark_and_narrow_screens(tmp_path):
    picture = Picture(png(20), "Curve", "of errors", png(22), png(10), png(12), density=2)
    page = HtmlPage.read(write_page(tmp_path / "p.html", "t", Answer("t"), [Section("s", [picture])]))
    forms = [(found["media"], found["width"]) for tag, found in page.tags if tag == "source"]
    narrow, dark = "(max-width: 700px)", "(prefers-color-scheme: dark)"
    assert forms == [(f"{narrow} and {dark}", "6"), (narrow, "5"), (dark, "11")]
    shown = next(found for tag, found in page.tags if tag == "img")
    assert shown["width"] == "10" and shown["alt"] == "Curve of errors"


def test_settings_are_parted_by_their_defaults():
    def stage(scenes, *, ratio=0.8, limits=(1, 2), names=()):
        """Only its defaults matter."""

    values = {"scenes": "photos", "ratio": 0.8, "limits": [1, 3], "names": (), "loss": {"alpha": 0.1, "kinds": {}}}
    settings = Settings.of(values, {**defaults_of(stage), "loss": {"alpha": 0.1}})
    assert settings.given == {"scenes": "photos", "limits": [1, 3], "loss.kinds": None}
    assert settings.default == {"ratio": 0.8, "names": (), "loss.alpha": 0.1}


@pytest.mark.parametrize("value", [float("nan"), np.inf])
def test_a_figure_that_is_not_finite_is_null_in_a_plot_and_told(tmp_path, caplog, value):
    write_page(tmp_path / "p.html", "t", Answer("t"), [Section("s", [Plot("p", [{"x": [1.5, value]}], {})])])
    assert '{"x": [1.5, null]}' in (tmp_path / "p.html").read_text()
    assert "what is not finite is written as null" in caplog.text
