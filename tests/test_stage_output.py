"""What people see of a stage: no hashes, no Python spellings, and where the result is, in one form everywhere."""

import json
import re

import numpy as np
import pytest

from tests.support.place import WIDTH, exact_translator
from xdesc_jax import cli
from xdesc_jax.descriptors import DescriptorSpec, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter

HASH = re.compile(r"(?<!:)\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b")  # the name of a joint space apart
PHOTOS = ["a 1.jpg", "b/2.jpg", "c.jpg"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with features and a model; paths are relative, as people give them."""
    monkeypatch.chdir(tmp_path)
    exact_translator().save(tmp_path / "model.safetensors")
    rng = np.random.default_rng(0)
    with StoreWriter(tmp_path / "in.h5", DescriptorSpec("own-a", WIDTH)) as writer:
        for name in PHOTOS:
            rows, xy = unit_rows(rng.normal(size=(30, WIDTH))), rng.uniform(0, 60, (30, 2)).astype(np.float32)
            writer.write(name, ImageFeatures(xy, rows, np.ones(30, bool), (64, 48)))
    return tmp_path


STAGES = {
    "match": ("match in.h5 m.h5 --pairs exhaustive", "m.h5"),
    "match, translated": ("match in.h5 m.h5 --pairs exhaustive --mode embed --model model.safetensors", "m.h5"),
    "retrieve": ("retrieve in.h5 pairs.txt --model model.safetensors --top 2", "pairs.txt"),
    "translate": ("translate in.h5 out.h5 --target own-b --model model.safetensors", "out.h5"),
    "inspect": ("inspect in.h5 --json seen.json", "seen.json"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_ends_with_where_its_result_is(place, capsys, stage):
    words, result = STAGES[stage]
    assert cli.main(words.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    last = lines.index(f"result: {result}")
    assert (place / result).exists()
    for line in lines[last + 1 :]:
        name, path = line.split(": ")
        assert name.isidentifier() and (place / path).exists()


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_shows_neither_hashes_nor_python(place, capsys, stage):
    words, _ = STAGES[stage]
    assert cli.main(words.split()) == 0
    shown = "".join(capsys.readouterr())
    assert [word for word in ("Path(", "{'", "['", "None", "True", "False") if word in shown] == []
    assert HASH.findall(shown) == []


@pytest.mark.parametrize("stage", ["match", "retrieve", "translate"])
def test_what_is_not_said_lies_beside_the_result(place, stage):
    words, result = STAGES[stage]
    assert cli.main(words.split()) == 0
    summary = json.loads((place / f"{result}.json").read_text())
    told = {**summary["config"], **summary.get("settings", {}), **summary.get("inputs", {})}
    assert told["features"] in ("in.h5", ["in.h5"])
    if stage == "match":
        given = {"ratio": "auto", "mode": "native", "pairs": "exhaustive", "backend": "numpy"}
        assert given.items() <= told.items()
    if stage == "retrieve":
        assert (told["top"], told["clusters"], told["seed"]) == (2, 64, 0)


def test_settings_at_their_defaults_are_not_said(place, capsys):
    assert cli.main(["match", "in.h5", "m.h5", "--pairs", "exhaustive", "--ratio", "0.85"]) == 0
    assert capsys.readouterr().err.splitlines()[:5] == [
        "xdesc match -> m.h5",
        "  features: in.h5",
        "  pairs: exhaustive",
        "  ratio: 0.85",
        "  pairs to match: 3",
    ]


def test_a_result_that_is_there_is_named_in_the_same_form(place, capsys):
    words = ["match", "in.h5", "m.h5", "--pairs", "exhaustive"]
    assert cli.main(words) == 0
    capsys.readouterr()
    assert cli.main(words) == 0
    assert capsys.readouterr().out == "result: m.h5 (up to date)\n"
