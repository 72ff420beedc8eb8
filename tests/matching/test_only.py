"""`--only`: photos beyond a list are neither matched nor retrieved, by whichever rule."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from tests.matching.test_pair_choice import circle, features, matched
from tests.matching.test_retrieval import rows_of_photos, write
from tests.support.place import exact_translator
from xdesc_jax import cli

NAMES = ["a.jpg", "b c.jpg", "d.jpg", "e.jpg", "f.jpg"]
TAKEN = ["a.jpg", "d.jpg", "f.jpg"]
ALL_TAKEN = {("a.jpg", "d.jpg"), ("a.jpg", "f.jpg"), ("d.jpg", "f.jpg")}


@pytest.fixture
def only(tmp_path):
    (tmp_path / "only.txt").write_text("\n".join(TAKEN), encoding="utf-8")
    return tmp_path / "only.txt"


def run(*words):
    return cli.main([str(word) for word in words])


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        ("exhaustive", ALL_TAKEN),
        ("sequential:1", {("a.jpg", "d.jpg"), ("d.jpg", "f.jpg")}),  # the next one that is taken
    ],
)
def test_a_rule_is_of_the_photos_that_are_taken(only, tmp_path, pairs, found):
    words = ("--pairs", pairs, "--only", only)
    assert run("match", features(tmp_path / "f.h5", NAMES), tmp_path / "m.h5", *words) == 0
    assert matched(tmp_path / "m.h5") == found


@pytest.mark.parametrize("by", ["embeddings", "vectors"])
def test_what_is_retrieved_is_among_the_photos_that_are_taken(tmp_path, by):
    """Of each place two photos are taken, which find each other; of all, others are as near."""
    taken = [f"{place}/{photo}.jpg" for place in range(3) for photo in (1, 3)]
    (tmp_path / "only.txt").write_text("\n".join(taken))
    words = ["--pairs", "retrieval:1", "--only", tmp_path / "only.txt", "--mode", "embed"]
    words += ["--model", exact_translator().save(tmp_path / "model.safetensors")]
    if by == "vectors":
        with h5py.File(tmp_path / "g.h5", "w") as file:
            for name in rows_of_photos():
                file[f"{name}/global_descriptor"] = np.eye(3)[int(name[0])] + 0.01 * int(name[2])
        words += ["--global-features", tmp_path / "g.h5"]
    assert run("match", write(tmp_path / "f.h5", rows_of_photos()), tmp_path / "m.h5", *words) == 0
    assert matched(tmp_path / "m.h5") == {(taken[i], taken[i + 1]) for i in (0, 2, 4)}


def test_pairs_of_a_list_that_are_not_taken_are_left_out_and_counted(only, tmp_path, capsys):
    (tmp_path / "pairs.txt").write_text("a.jpg b c.jpg\nf.jpg a.jpg\nb c.jpg e.jpg\n", encoding="utf-8")
    words = ("match", features(tmp_path / "f.h5", NAMES), tmp_path / "m.h5", "--only", only)
    assert run(*words, "--pairs", tmp_path / "pairs.txt") == 0
    assert matched(tmp_path / "m.h5") == {("a.jpg", "f.jpg")}
    figures = json.loads((tmp_path / "m.h5.json").read_text())
    assert (figures["pairs_given"], figures["pairs_of_other_photos"], figures["pairs_matched"]) == (1, 2, 1)
    (tmp_path / "none.txt").write_text("b c.jpg e.jpg\n", encoding="utf-8")
    assert run(*words, "--pairs", tmp_path / "none.txt", "--overwrite") == 2
    assert "none.txt: holds 1 pair, none of two photos that are taken; see --only" in told(capsys)


def told(capsys):
    return " ".join(capsys.readouterr().err.split())


def test_queries_and_database_of_two_files_are_of_one_list(only, tmp_path, capsys):
    first, second = features(tmp_path / "q.h5", NAMES[:3]), features(tmp_path / "d.h5", NAMES[3:])
    words = ("match", first, tmp_path / "m.h5", "--other", second, "--pairs", "exhaustive", "--only")
    assert run(*words, only) == 0 and matched(tmp_path / "m.h5") == {("a.jpg", "f.jpg"), ("d.jpg", "f.jpg")}
    (tmp_path / "first.txt").write_text("a.jpg\n")
    assert run(*words, tmp_path / "first.txt", "--overwrite") == 2
    assert "first.txt names no photo of" in (error := told(capsys)) and "d.h5, expected some" in error
    (tmp_path / "more.txt").write_text("a.jpg\nz.jpg\n")
    assert run(*words, tmp_path / "more.txt", "--overwrite") == 2
    assert "more.txt names 1 photo not in" in (error := told(capsys)) and "first ['z.jpg']" in error


def test_other_photos_are_not_retrieved_by_vectors_either(only, tmp_path, capsys):
    words = ("retrieve", circle(tmp_path / "g.h5", NAMES), tmp_path / "pairs.txt", "--top", 2)
    assert run(*words, "--only", only) == 0
    lines = (tmp_path / "pairs.txt").read_text().splitlines()
    assert {tuple(sorted(line.split())) for line in lines} == ALL_TAKEN
    assert run(*words) == 2 and "another configuration" in told(capsys)
