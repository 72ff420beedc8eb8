"""What files hold that do not say it: one name for all, or NAME=FILE for each."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.place import WIDTH, exact_translator
from xdesc_jax import cli
from xdesc_jax.descriptors import unit_rows
from xdesc_jax.inspection.shown_matches import ShownMatches, opened
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.matches import MatchWriter
from xdesc_jax.matching.named_files import NamedFiles
from xdesc_jax.matching.routes import Router
from xdesc_jax.translation.translator import Translator


def write(path, *photos, said=None):
    """As hloc writes features: without a word on what they are."""
    rng = np.random.default_rng(len(photos))
    with h5py.File(path, "w") as file:
        for name in photos:
            file[f"{name}/keypoints"] = rng.uniform(0, 60, (6, 2)).astype(np.float16)
            file[f"{name}/descriptors"] = unit_rows(rng.normal(size=(6, WIDTH))).T
        if said is not None:
            file.attrs["spec"] = said
    return path


@pytest.fixture
def files(tmp_path):
    """A file of 'own-a', one of 'own-b', both unnamed, and a model that knows both."""
    model = exact_translator().save(tmp_path / "model.safetensors")
    return write(tmp_path / "a.h5", "a.jpg", "b.jpg"), write(tmp_path / "b.h5", "c.jpg"), model


def run(*words):
    return cli.main([str(word) for word in words])


def kinds(summary):
    return {(entry["first"], entry["second"]) for entry in json.loads(summary.read_text())["by_descriptors"]}


def test_two_unnamed_files_of_different_descriptors_are_matched(files, tmp_path):
    a, b, model = files
    words = ("match", a, b, tmp_path / "m.h5", "--pairs", "exhaustive", "--mode", "embed", "--model", model)
    named = ("--descriptor", f"own-a={a}", "--descriptor", f"own-b={b}")
    assert run(*words, *named) == 0
    assert kinds(tmp_path / "m.h5.json") == {("own-a", "own-a"), ("own-a", "own-b")}
    assert json.loads((tmp_path / "m.h5.json").read_text())["config"]["descriptor"] == ["own-a", "own-b"]


def test_one_name_is_of_the_files_that_no_other_one_is_of(files, tmp_path, capsys):
    a, b, model = files
    words = ("--pairs", "exhaustive", "--mode", "embed", "--model", model, "--other", b)
    # The option stands before the paths, which are none of its values.
    assert run("match", "--descriptor", "own-a", "--descriptor", f"own-b={b}", a, tmp_path / "m.h5", *words) == 0
    assert kinds(tmp_path / "m.h5.json") == {("own-a", "own-b")}
    assert run("match", a, tmp_path / "n.h5", *words, "--descriptor", "own-a") == 0
    assert kinds(tmp_path / "n.h5.json") == {("own-a", "own-a")}
    assert json.loads((tmp_path / "n.h5.json").read_text())["config"]["descriptor"] == "own-a"


def test_retrieval_takes_a_name_a_file(files, tmp_path):
    a, b, model = files
    words = ("retrieve", a, tmp_path / "pairs.txt", "--database", b, "--model", model, "--clusters", "2")
    assert run(*words, "--descriptor", f"own-a={a}", "--descriptor", f"own-b={b}") == 0
    assert (tmp_path / "pairs.txt").read_text() == "a.jpg c.jpg\nb.jpg c.jpg\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["own-a=none.h5"], "--descriptor own-a=none.h5: none.h5 is not among"),
        (["=a.h5"], "--descriptor '=a.h5': expected NAME or NAME=FILE"),
        (["own-a="], "--descriptor 'own-a=': expected NAME or NAME=FILE"),
        (["own-a", "own-b"], "--descriptor: 'own-a' and 'own-b' are named for the same files"),
        (["own-a=a.h5", "own-b=./a.h5"], "--descriptor: 'own-a' and 'own-b' are named for ./a.h5"),
        (["own-a=a.h5"], "b.h5: does not say which descriptor it holds; name it by --descriptor"),
        (["own-a", "nope=b.h5"], "'nope'"),
    ],
)
def test_words_that_name_no_file_or_too_much_are_refused(files, tmp_path, monkeypatch, capsys, words, told):
    monkeypatch.chdir(tmp_path)
    given = [part for word in words for part in ("--descriptor", word)]
    assert run("match", "a.h5", "b.h5", "m.h5", "--pairs", "exhaustive", "--model", "model.safetensors", *given) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_a_file_that_says_something_else_than_was_named_for_it_is_refused(files, tmp_path):
    said = write(tmp_path / "said.h5", "d.jpg", said="hardnet")
    with pytest.raises(ValueError, match="said.h5: holds 'hardnet', but 'sift' was asked for"):
        FeatureSet([said], NamedFiles.of([f"sift={said}"], [said]))
    with FeatureSet([said, files[0]], NamedFiles("sift")) as features:  # a name for all is of those that say nothing
        assert [features.held(name).spec.name for name in ("a.jpg", "d.jpg")] == ["sift", "hardnet"]


def test_matches_of_two_unnamed_files_are_shown_in_the_space_of_the_names(files, tmp_path):
    a, b, model = files
    named = (f"own-a={a}", f"own-b={b}")
    options = [word for name in named for word in ("--descriptor", name)]
    words = ("--pairs", "exhaustive", "--mode", "embed", "--model", model, "--ratio", "None", *options)
    assert run("match", a, b, tmp_path / "m.h5", *words) == 0
    translator = Translator.load(model)
    with opened([a, b, tmp_path / "m.h5"], named, translator) as (first, second, source):
        shown = ShownMatches(first, second, source, Router("embed", translator), translator)
        found = shown.read(shown.find("a.jpg", "c.jpg"))
    assert found.compared.startswith("embedding:") and found.ratios is not None


def test_unnamed_files_of_different_widths_are_shown_as_they_are(tmp_path):
    """Nothing says what either holds, so each stands for itself, and rows of two widths are told not to compare."""
    write(tmp_path / "a.h5", "a.jpg", "b.jpg")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["c.jpg/keypoints"] = np.zeros((4, 2))
        file["c.jpg/descriptors"] = unit_rows(np.eye(4, 2 * WIDTH)).T
    with MatchWriter(tmp_path / "m.h5") as writer:
        for pair in (("a.jpg", "b.jpg"), ("a.jpg", "c.jpg")):
            writer.write(*pair, 6, np.array([[0, 1]], np.int32), np.ones(1, np.float32))
    with opened([tmp_path / name for name in ("a.h5", "b.h5", "m.h5")]) as (first, second, source):
        shown = ShownMatches(first, second, source, Router("native"))
        same, other = (shown.read(shown.find("a.jpg", name)) for name in ("b.jpg", "c.jpg"))
    assert same.compared == "not-said" and len(same.ratios) == 1
    assert other.ratios is None and "(real, 24) and 'not-said' (real, 48) do not compare" in other.compared


@pytest.mark.parametrize(
    ("words", "kept"),
    [((), None), (("disk",), "disk"), (("disk=a.h5", "disk=b.h5"), "disk"), (("disk=a.h5", "disk"), "disk"),
     (("disk=a.h5", "sift"), ["disk", "sift"]), (("disk=b.h5",), [None, "disk"])],
)  # fmt: skip
def test_a_configuration_keeps_what_is_meant_however_it_was_said(words, kept):
    paths = [Path("a.h5"), Path("b.h5")]
    assert NamedFiles.of(words, paths).config(paths) == kept
