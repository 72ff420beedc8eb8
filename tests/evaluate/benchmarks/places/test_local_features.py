"""The benchmark of the Local Feature Evaluation, on a synthetic collection in its layout."""

import dataclasses

import numpy as np
import pytest

from tests.support.aachen_folder import shuffled
from tests.support.collection_folder import SCENE, write_folder
from tests.support.place import exact_translator
from tests.support.stopped import Calls, Stopped
from xdesc_jax import cli
from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.colmap.model import Pose
from xdesc_jax.evaluate.benchmarks import tables
from xdesc_jax.evaluate.benchmarks.places import local_features, local_features_data, pseudo_truth
from xdesc_jax.evaluate.benchmarks.places.local_features import rows_of, run
from xdesc_jax.translation.translator import Translator

BEST = "within 0.25 m, 2 deg"


def test_exact_features_map_all_photos_by_every_method(tmp_path):
    data, features, place = write_folder(tmp_path)
    result = run(data=data, out=tmp_path / "out", model=place.translator, features=features, threads=1)
    found = {row.name.removeprefix("Madrid Metropolis, "): row.values for row in result.rows}
    assert list(found) == [
        "standard: own-a", "standard: own-b", "own quarter: own-a", "own quarter: own-b", "embed", "progressive",
    ]  # fmt: skip
    for name, values in found.items():
        share = 50 if name.startswith("own quarter") else 100  # of two descriptors, each photo holds one
        assert values[BEST] == values["localised"] == share, name
        assert values["points"] > 100 and values["reprojection error"] < 0.1
        assert values["track length"] == pytest.approx(8 * share / 100, abs=0.3)
    shared = result.rows[-2].detail["covisibility"]
    assert shared["kinds"] == ["own-a", "own-b"] and shared["by_count"][1] > 0.95
    assert not any(row.paper for row in result.rows)  # photos of two descriptors are none of the paper's
    assert not result.official and "8 photos, where the set has 1344" in result.data["other"][0]
    assert result.data["text"].endswith("truth: 8 photos of Madrid_Metropolis (the paper's: 453), given in metres")


def test_files_that_are_not_named_stand_in_the_models_order(tmp_path):
    data, features, _ = write_folder(tmp_path)
    rank1 = {"own-b->own-a": 0.9, "own-a->own-b": 0.1}  # own-b is the worse target
    bundle = dataclasses.replace(exact_translator(), provenance={"validation": {"rank1": rank1}})
    model = bundle.save(tmp_path / "model.safetensors")
    asked = {"data": data, "model": model, "features": features, "methods": ("progressive",), "threads": 1}
    result = run(**asked, out=tmp_path / "out")
    assert result.settings["descriptors"] == ["own-b", "own-a"] and result.rows[0].values["localised"] == 100


def test_shuffled_rows_map_nothing_near(tmp_path):
    data, features, _ = write_folder(tmp_path, known=4)
    shuffled(features / SCENE, tmp_path / "f" / SCENE, "")
    asked = {"data": data, "features": tmp_path / "f", "descriptors": ("own-a",), "methods": ("standard",)}
    (row,) = run(**asked, out=tmp_path / "out", threads=1).rows
    assert row.values[BEST] == 0 and row.values["points"] == 0 and "reason" in row.detail


def test_a_truth_is_made_in_four_steps_where_there_is_none(tmp_path):
    data, features, place = write_folder(tmp_path, known=0)
    a, b, c = sorted(place.poses)[:3]
    lines = [f"{m} {n} {np.linalg.norm(place.poses[m].center - place.poses[n].center)}\n" for m, n in ((a, b), (b, c))]
    (data / SCENE / "distances.txt").write_text("".join(lines))
    asked = {"data": data, "features": features, "descriptors": ("own-a",), "methods": ("standard",), "threads": 1}
    with pytest.raises(ValueError, match=r"to be made with 'sosnet', expected one of own-a \(--truth\)"):
        run(**asked, out=tmp_path / "out")
    result = run(**asked, out=tmp_path / "out", truth="own-a")
    assert result.data["text"].endswith("(the paper's: 453), made in metres")
    (row,) = result.rows
    assert row.values[BEST] == row.values["localised"] == 100
    found = read_model(tmp_path / "out" / SCENE / "truth/reference").poses
    assert sorted(found) == sorted(place.poses)
    for m, n in ((a, c), (b, sorted(place.poses)[-1])):
        true = np.linalg.norm(place.poses[m].center - place.poses[n].center)
        assert np.linalg.norm(found[m].center - found[n].center) == pytest.approx(true, rel=0.02)


def test_photos_that_see_too_little_are_no_truth(tmp_path, monkeypatch):
    data, features, _ = write_folder(tmp_path, known=0)
    monkeypatch.setattr(pseudo_truth, "MIN_POINTS", 1000)
    with pytest.raises(ValueError, match="0 of 8 photos see 1000 3D points or more, expected at least 3"):
        run(data=data, out=tmp_path / "out", features=features, descriptors=("own-a",), truth="own-a", threads=1)


def test_the_scale_is_the_median_of_known_distances(tmp_path):
    poses = {name: Pose(np.eye(3), np.array([x, 0.0, 0.0])) for name, x in (("a", 0), ("b", 2), ("c", 6))}
    path = tmp_path / "distances.txt"
    path.write_text("a b 4\na\tc\t18\nb c 40\nx y 3\n")
    assert pseudo_truth.metres_a_unit(path, poses) == 3  # of 2, 3 and 10
    path.write_text("x y 3\n")
    with pytest.raises(ValueError, match="no line names two photos of the model"):
        pseudo_truth.metres_a_unit(path, poses)
    path.write_text("a b -3\n")
    with pytest.raises(ValueError, match="distances.txt:1: expected 'photo photo metres', above 0"):
        pseudo_truth.metres_a_unit(path, poses)


def test_a_run_that_was_stopped_goes_on_with_the_rows_that_are_left(tmp_path, monkeypatch):
    data, features, _ = write_folder(tmp_path)
    asked = {"data": data, "out": tmp_path / "out", "features": features, "methods": ("own quarter",), "threads": 1}
    calls = Calls(monkeypatch, local_features, "figures")
    calls.until = 1  # of 2 rows
    with pytest.raises(Stopped):
        run(**asked)
    calls.done, calls.until = 0, None
    first = run(**asked)
    assert calls.done == 1
    assert run(**asked) == first and calls.done == 1
    with pytest.raises(FileExistsError, match="another configuration"):
        run(**asked, seed=1)


def test_rows_are_those_of_table_2(tmp_path):
    translator = Translator.load(exact_translator().save(tmp_path / "m.safetensors"))
    assert rows_of(["own-a"], ["embed", "standard"], translator) == [("standard", "own-a"), ("embed", "all")]
    with pytest.raises(ValueError, match="the model lacks sift, which the maps of 'embed' hold"):
        rows_of(["sift"], ["embed"], translator)
    with pytest.raises(ValueError, match="need --model"):
        rows_of(["sift"], ["embed"], None)
    scene = local_features_data.Collection(tmp_path / "Tower_of_London", [])
    entry = {"scale": "metric", "registered_share": 0.5, "points": 7, "track_length": 3.0}
    entry |= {"reprojection_error_px": 0.5, "within_pose": {"0.25 m, 2 deg": 0.25, "0.5 m, 5 deg": 0.4}}
    four = ["brief", "sift", "hardnet-xdesc", "sosnet-xdesc"]
    row = local_features.row_of(scene, "own quarter", "sift", entry, four)
    paper = tables.paper()["local-feature-evaluation"]["rows"]
    assert set(paper[row.paper]) == set(row.values) and row.values["within 0.5 m, 5 deg"] == 40
    assert local_features.row_of(scene, "progressive", "all", entry, four).paper in paper
    assert local_features.row_of(scene, "embed", "all", entry, four[::-1]).paper in paper
    assert local_features.row_of(scene, "standard", "sift", entry, ["sift"]).paper in paper
    assert not local_features.row_of(scene, "progressive", "all", entry, four[::-1]).paper
    for among in (four[:2], [*four, "sosnet"]):
        assert not local_features.row_of(scene, "own quarter", "sift", entry, among).paper
        assert not local_features.row_of(scene, "embed", "all", entry, among).paper


def test_what_is_missing_is_told(tmp_path, capsys):
    data, features, _ = write_folder(tmp_path)
    assert cli.main(["benchmark", "check", "local-feature-evaluation", "--data", str(data)]) == 0
    assert "Madrid_Metropolis (8 photos)" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(ValueError, match="has no scene Rome"):
        run(data=data, out=tmp_path / "out", features=features, scenes=("Rome",))
    (tmp_path / "empty").mkdir()
    assert local_features_data.check(tmp_path / "empty").problems[0].startswith("no scene")


def test_the_published_set_is_known_by_its_counts(tmp_path, monkeypatch):
    data, _, _ = write_folder(tmp_path)
    assert not local_features_data.check(data).official
    monkeypatch.setattr(local_features_data, "SCENES", {SCENE: ("Madrid Metropolis", 8, 8)})
    assert local_features_data.check(data).official
