"""Pages of the site that are made of what the repository holds elsewhere."""

from __future__ import annotations

import ast
import json

import pytest

pytest.importorskip("mkdocs", reason="needs the docs extra")

from docs.site import cards, pages
from tests.support.root import ROOT
from xdesc_jax import pretrained


@pytest.mark.parametrize(
    ("written", "page", "expected"),
    [
        ("[a](docs/maps/x.md#y)", "index.md", "[a](maps/x.md#y)"),
        ("[a](#install)", "index.md", "[a](install.md#install)"),
        ("[a](../README.md#try-it)", "formats.md", "[a](index.md#try-it)"),
        ("[a](../README.md#find-the-way)", "formats.md", "[a](architecture.md)"),
        ("[a](../xdesc_jax/cli.py)", "formats.md", "[a](source/xdesc_jax/cli.py.md)"),
        ("[a](../../CONTRIBUTING.md)", "notebooks/two-photos.md", "[a](../contributing.md)"),
        ("![a](docs/matches.png)", "index.md", "![a](matches.png)"),
        ("[a](notebooks/two-photos.ipynb)", "formats.md", "[a](notebooks/two-photos.md)"),
        ("[a](#below)", "formats.md", "[a](#below)"),
        ("[a](https://example.org/README.md)", "formats.md", "[a](https://example.org/README.md)"),
        ("```python\nx[0](../README.md)\n```\n", "formats.md", "```python\nx[0](../README.md)\n```\n"),
    ],
)
def test_links_of_the_repository_lead_to_pages(written, page, expected):
    linked: set[str] = set()
    assert pages.relink(written, page, linked) == expected
    assert linked == ({"xdesc_jax/cli.py"} if "cli.py" in written else set())


def test_each_section_of_readme_is_on_one_page_or_has_a_page_of_its_own(monkeypatch):
    made = pages.readme_pages()
    assert all(text.startswith("# ") for text in made.values())
    assert "pip install" in made["install.md"] and "pip install xdesc-jax " not in made["index.md"]
    monkeypatch.setattr(pages, "FOUND_ELSEWHERE", {})
    with pytest.raises(ValueError, match="Find the way"):
        pages.readme_pages()


def test_the_api_has_every_public_name_once():
    stub = ast.parse((ROOT / "xdesc_jax" / "__init__.pyi").read_text())
    names = [a.name for node in stub.body if isinstance(node, ast.ImportFrom) for a in node.names]
    entries = [line.rpartition(".")[2] for line in pages.api_page().splitlines() if line.startswith("::: ")]
    assert sorted(entries) == sorted(names)


@pytest.mark.parametrize("name", pretrained.names())
def test_the_page_of_a_model_says_what_its_card_says(name):
    card = pretrained.card(name)
    page = cards.card_page(card)
    assert card["data"] in page and card["command"] in page and f"`{card['config_hash']}`" in page
    whole = page.split("```json\n")[1].split("\n```")[0]
    assert json.loads(whole) == card
    assert f"[`{name}`]({name}.md)" in cards.index_page({name: card})


def test_a_translator_s_table_has_rows_to_columns_and_native_figures_on_the_diagonal():
    figures = {"native": {"a": 0.5, "b": 0.25}, "translation": {"a->b": 0.125}, "joint": {"b|a": 0.75}}
    rows = cards.matrix(["a", "b"], figures).splitlines()
    assert rows[2] == "| `a` | **.500** | .125 |"
    assert rows[3] == "| `b` | - (.750) | **.250** |"


def test_notebooks_are_kept_without_outputs():
    found = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
    assert len(found) == 2
    for path in found:
        cells = json.loads(path.read_text())["cells"]
        assert [c for c in cells if c.get("outputs") or c.get("execution_count")] == [], path
