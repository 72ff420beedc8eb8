"""Pages of one run link to each other."""

from __future__ import annotations

from tests.support.html_page import HtmlPage
from xdesc_jax.reports.page import link, write_page
from xdesc_jax.reports.parts import Answer


def page(path, title, **options):
    return write_page(path, title, Answer("It is so."), [], **options)


def links(path):
    found = HtmlPage.read(path).links
    assert all((path.parent / link.replace("%20", " ")).exists() for link in found)
    return found


def test_pages_of_a_folder_and_beside_it_link_to_each_other(tmp_path):
    run = tmp_path / "outer" / "a run"
    first = page(run / "report.html", "First")
    assert links(first) == []
    second, third = page(run / "poses.html", "M & N"), page(run.parent / "sfm" / "report.html", "Third")
    assert links(first) == ["poses.html", "../sfm/report.html"]
    assert links(second) == ["report.html", "../sfm/report.html"]
    assert links(third) == ["../a%20run/report.html"]
    assert "M & N First Third" in HtmlPage.read(first).text


def test_a_page_made_again_keeps_its_links_and_one_that_went_is_dropped(tmp_path):
    first, second = page(tmp_path / "a" / "report.html", "A"), page(tmp_path / "b" / "report.html", "B")
    page(first, "A again")
    assert links(first) == ["../b/report.html"] and "A again" in HtmlPage.read(second).text
    second.unlink()
    page(first, "A")
    assert links(first) == []


def test_pages_of_others_stay_as_they_are_and_are_not_linked(tmp_path):
    theirs = tmp_path / "x" / "run" / "index.html"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("<title>Mine</title><!--pages--><!--/pages-->")
    first = page(theirs.with_name("report.html"), "A")
    assert links(first) == [] and theirs.read_text() == "<title>Mine</title><!--pages--><!--/pages-->"


def test_a_page_is_linked_only_once_it_is_in_its_place(tmp_path):
    first = page(tmp_path / "a" / "report.html", "A")
    made = page(tmp_path / ".b.partial" / "report.html", "B", linked=False)
    assert links(first) == [] and links(made) == []
    placed = made.parent.rename(tmp_path / "b") / "report.html"
    link(placed)
    assert links(first) == ["../b/report.html"] and links(placed) == ["../a/report.html"]
