"""Bootstrapping a translated map: what is refused, and photos that fail alone."""

import dataclasses
import json
import shutil

import h5py
import numpy as np
import pytest

from tests.support.place import WIDTH, rewrite
from tests.support.updated_map import SPEC, run
from xdesc_jax.features.store import FeatureStore, StoreWriter


def test_photos_of_another_descriptor_or_of_the_map_are_refused(place, translated, new, tmp_path, capsys):
    assert run(place, tmp_path / "out", translated, new, new_features=place.features["own-a"]) == 2
    error = capsys.readouterr().err
    assert "several descriptors" in error and "own-a" in error and "own-b" in error
    (tmp_path / "own.txt").write_text(new.read_text().replace(place.queries[0], place.names[0]))
    assert run(place, tmp_path / "out", translated, tmp_path / "own.txt") == 2
    assert f"1 new photos are in the map already, first ['{place.names[0]}']" in capsys.readouterr().err
    words = ["--test-queries", new, "--test-features", place.features["own-b"]]
    assert run(place, tmp_path / "out", translated, new, *words) == 2
    assert "2 test photos are in the map or among the new ones" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_rows_that_are_translations_themselves_are_refused(place, translated, new, tmp_path, capsys):
    fake = tmp_path / "fake.h5"
    with (
        FeatureStore(place.features["own-b"]) as store,
        StoreWriter(fake, SPEC, {"translated_from": "own-a"}) as writer,
    ):
        for name in place.queries:
            writer.write(name, store.read(name))
    assert run(place, tmp_path / "out", translated, new, new_features=fake) == 2
    assert "were translated from 'own-a'" in capsys.readouterr().err


def test_an_output_that_is_or_holds_an_input_or_other_things_is_refused(place, translated, new, tmp_path, capsys):
    parent = tmp_path / "map"
    shutil.copytree(place.model, parent / "0")
    (parent / "database.db").write_bytes(b"only copy")
    before = sorted(path.name for path in parent.rglob("*"))
    for out in (parent, parent / "0", parent / "0" / "updated"):
        assert run(place, out, translated, new, "--overwrite", model=parent / "0") == 2
        assert "choose another output" in capsys.readouterr().err
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    assert run(place, other, translated, new, "--overwrite") == 2
    assert (other / "thesis.txt").read_text() == "mine"
    assert sorted(path.name for path in parent.rglob("*")) == before


def test_other_features_of_test_photos_are_another_configuration(place, translated, new, tmp_path, capsys):
    for name, line in zip("ab", new.read_text().splitlines(keepends=True), strict=True):
        (tmp_path / f"{name}.txt").write_text(line)
    dark = rewrite(
        place.features["own-b"], tmp_path / "dark.h5", lambda n, p: dataclasses.replace(p, valid=np.zeros(len(p), bool))
    )
    words = ["--test-queries", tmp_path / "b.txt", "--test-features"]
    assert run(place, tmp_path / "out", translated, tmp_path / "a.txt", *words, place.features["own-b"]) == 0
    assert run(place, tmp_path / "out", translated, tmp_path / "a.txt", *words, dark) == 2
    told = f"another configuration (test_features: {place.features['own-b']} -> {dark})"
    assert told in capsys.readouterr().err


@pytest.fixture
def damaged(place, tmp_path):
    """Features whose first query has fewer rows than keypoints."""
    path = rewrite(place.features["own-b"], tmp_path / "damaged.h5", lambda n, p: p)
    with h5py.File(path, "a") as file:
        del file[place.queries[0]]["descriptors"]
        file[place.queries[0]]["descriptors"] = np.zeros((WIDTH, 3), np.float32)
    return path


def test_a_damaged_photo_fails_alone(place, translated, new, damaged, tmp_path):
    assert run(place, tmp_path / "out", translated, new, new_features=damaged) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(summary["failed"]) == [place.queries[0]] and summary["registered"] == [place.queries[1]]


@pytest.fixture
def unlike(place, tmp_path):
    """Features of unit rows, of which the first query's are 9 long."""
    first = place.queries[0]
    return rewrite(
        place.features["own-b"], tmp_path / "unlike.h5",
        lambda n, p: dataclasses.replace(p, descriptors=p.descriptors * (9 if n == first else 1)),
    )  # fmt: skip


def test_a_photo_whose_rows_are_not_what_they_are_said_to_be_fails_alone(
    place, translated, new, unlike, tmp_path, capsys
):
    assert run(place, tmp_path / "out", translated, new, new_features=unlike) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert "row 0 has norm 9" in summary["failed"][place.queries[0]] and summary["registered"] == [place.queries[1]]
    (tmp_path / "all.txt").write_text(new.read_text().splitlines()[0] + "\n")
    assert run(place, tmp_path / "none", translated, tmp_path / "all.txt", new_features=unlike) == 2
    assert f"{place.queries[0]!r}: the query: row 0 has norm 9" in " ".join(capsys.readouterr().err.split())
    words = ["--test-queries", tmp_path / "test.txt", "--test-features", unlike]
    (tmp_path / "test.txt").write_text(new.read_text().splitlines()[0] + "\n")
    (tmp_path / "one.txt").write_text(new.read_text().splitlines()[1] + "\n")
    assert run(place, tmp_path / "tested", translated, tmp_path / "one.txt", *words) == 0
    summary = json.loads((tmp_path / "tested" / "summary.json").read_text())
    assert [step["test"]["localized"] for step in summary["steps"]] == [0, 0]


def test_a_damaged_test_photo_is_not_localised_and_named_once(place, translated, new, damaged, tmp_path, capsys):
    lines = new.read_text().splitlines(keepends=True)
    (tmp_path / "test.txt").write_text(lines[0])
    (tmp_path / "new.txt").write_text(lines[1])
    words = ["--test-queries", tmp_path / "test.txt", "--test-features", damaged]
    assert run(place, tmp_path / "out", translated, tmp_path / "new.txt", *words) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["registered"] == [place.queries[1]]
    assert [step["test"] for step in summary["steps"]] == [{"localized": 0, "median_inliers": 0}] * 2
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("a test photo fails: ") == 1 and f"{place.queries[0]!r}: descriptors have shape" in told
