"""What the documentation tells people to type: it can be parsed, and runs, page by page, in the order of each page."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest

import xdesc_jax
from tests.support.called import called
from tests.support.documentation import LANGUAGES, PAGES, blocks, chosen, commands, mentions
from tests.support.root import ROOT
from xdesc_jax import cli, descriptors
from xdesc_jax.command_line import pipelines

RUNNABLE = ("sh", "python")


@pytest.fixture(scope="session")
def documented_place(tmp_path_factory):
    pytest.importorskip("pycolmap")
    pytest.importorskip("skimage")
    from tests.support.documented_place import make_place

    return make_place(tmp_path_factory.mktemp("documented"))


def with_blocks() -> list[str]:
    return [page for page in PAGES if any(b.language in RUNNABLE and not b.needs for b in blocks(page))]


@pytest.mark.parametrize("page", with_blocks())
def test_the_blocks_of_a_page_run_in_their_order(page, documented_place, monkeypatch):
    from tests.support.documented_place import KEYPOINTS
    from xdesc_jax.data.records import records
    from xdesc_jax.evaluate.calibrate import calibrate
    from xdesc_jax.evaluate.stages.homography import homography
    from xdesc_jax.features.extract import extract

    monkeypatch.chdir(documented_place.folder)
    for stage in (calibrate, extract, homography, records):  # fewer rows than people want
        monkeypatch.setitem(stage.__kwdefaults__, "max_keypoints", KEYPOINTS)
    # What --plugin changes.
    monkeypatch.setenv(descriptors.PLUGINS, "")
    monkeypatch.setattr(descriptors, "_REGISTRY", dict(descriptors._REGISTRY))
    for block in blocks(page):
        documented_place.run(block)
    descriptors.load_plugins.cache_clear()


@pytest.mark.parametrize(("where", "words"), commands(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_command_can_be_parsed(where, words, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert called(monkeypatch, words) is not None


def test_every_command_within_a_line_names_a_stage_and_its_options(monkeypatch, capsys):
    known: dict[tuple[str, ...], str] = {}
    for where, words in mentions():
        named = [word for word in words if word not in ("STAGE", "NAME", "...")]
        if named[:1] == ["--plugin"]:  # which stands before any stage
            named = named[2:]
        if named[:1] == ["pipeline"]:
            assert set(named[1:2]) <= pipelines.shipped().keys(), where
            continue
        options = [re.sub(r"[=,.]*$", "", word.partition("=")[0]) for word in named if word.startswith("--")]
        stage = tuple(word for word in named[:3] if re.fullmatch(r"[a-z-]+", word) and not word.startswith("-"))
        stage = next((s for s in (stage, stage[:2], stage[:1]) if s in cli.STAGES), ())
        assert stage or not named or named[0] in ("plan", "help", "map", "weights", "evaluate") or options, where
        if stage not in known:
            assert cli.main([*stage, "--help"]) == 0, where
            known[stage] = capsys.readouterr().out
        assert [option for option in options if option not in known[stage] and option != "--help"] == [], where


def test_a_block_is_of_a_language_that_is_tested_or_shown():
    odd = [b.where for page in PAGES for b in blocks(page) if b.language and b.language not in LANGUAGES]
    assert odd == []


def test_what_a_block_comes_after_is_there():
    for page in PAGES:
        for block in blocks(page):
            assert all(chosen(target) for target in block.after), block.where


def test_python_blocks_can_be_compiled_and_import_public_names():
    seen = 0
    for page in PAGES:
        for block in (b for b in blocks(page) if b.language == "python"):
            for node in ast.walk(ast.parse(block.text, block.where)):
                if isinstance(node, ast.ImportFrom) and node.module == "xdesc_jax":
                    assert {alias.name for alias in node.names} <= set(xdesc_jax.__all__), block.where
                    seen += 1
    assert seen > 3


def test_every_extra_that_pip_is_told_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    told = [
        (page, extra)
        for page, path in PAGES.items()
        for names in re.findall(r"xdesc-jax\[([a-z,]+)\]", path.read_text())
        for extra in names.split(",")
    ]
    assert len(told) > 10 and [item for item in told if item[1] not in extras] == []
