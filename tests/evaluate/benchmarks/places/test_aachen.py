"""The benchmark of Aachen Day-Night, on a synthetic place in its layout."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.aachen_folder import shuffled, write_folder
from tests.support.place import exact_translator
from tests.support.stopped import Calls, Stopped
from xdesc_jax import cli
from xdesc_jax.colmap.lists import read_poses
from xdesc_jax.evaluate.benchmarks import tables
from xdesc_jax.evaluate.benchmarks.places import aachen, aachen_data, query_scores
from xdesc_jax.evaluate.benchmarks.places.aachen import run, run_sizes, sizes_plan
from xdesc_jax.evaluate.benchmarks.places.deployments import Deployment
from xdesc_jax.evaluate.benchmarks.results import Column, Result, Row
from xdesc_jax.translation.translator import Translator

BEST = "0.25 m, 2 deg"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("aachen"))


def test_exact_features_localise_all_queries_in_every_scenario(folder, tmp_path):
    result = run(
        data=folder.root, out=tmp_path, model=folder.model, features=(folder.features,), pairs=folder.pairs,
        reference=folder.truth, neighbors=2,
    )  # fmt: skip
    assert [row.name for row in result.rows] == [
        "standard: own-a", "standard: own-b", "continuous deployment: own-a -> own-b",
        "continuous deployment: own-b -> own-a", "cross-device: own-a <- own-b", "cross-device: own-b <- own-a",
        "collaborative: embed <- own-a", "collaborative: embed <- own-b",
    ]  # fmt: skip
    for row in result.rows:
        for light in folder.queries:
            assert row.values[f"{light} {BEST}"] == row.values[f"{light} localised"] == 100, row
            assert row.values[f"{light} inliers"] > 110
    assert not result.official and result.benchmark == "aachen"
    poses = read_poses(tmp_path / "submissions/cross-device_own-a_from_own-b.txt")
    assert sorted(poses) == sorted(name.rsplit("/", 1)[1] for name in folder.queries.values())
    for query in folder.queries.values():
        found = poses[query.rsplit("/", 1)[1]]
        np.testing.assert_allclose(found.center, folder.poses[query].center, atol=1e-4)
    # each photo is matched with its two nearest, not with all
    assert len((tmp_path / "pairs-map.txt").read_text().splitlines()) < 15


def test_shuffled_queries_are_not_localised(folder, tmp_path):
    features = shuffled(folder.features, tmp_path / "f", "query/")
    asked = {"data": folder.root, "features": (features,), "descriptors": ("own-a",), "pairs": folder.pairs}
    (row,) = run(**asked, out=tmp_path / "out", reference=folder.truth, neighbors=5).rows
    assert {row.values[f"{light} {BEST}"] for light in folder.queries} == {0}
    assert row.values["map points"] > 100


def test_v1_1_and_photos_retrieved_in_the_joint_space(tmp_path):
    folder = write_folder(tmp_path, "v1.1")
    result = run_sizes(data=folder.root, out=tmp_path / "out", models=(folder.model,), query="own-b", retrieval=3,
                       features=(folder.features,), neighbors=5)  # fmt: skip
    (row,) = result.rows
    assert row.name == "collaborative: embed 24" and not row.paper and result.benchmark == "aachen-embedding-size-v1.1"
    assert row.values["day localised"] == row.values["night localised"] == 100
    assert [column.key for column in result.columns] == [
        "day localised", "day inliers", "night localised", "night inliers", "map points",
    ]  # fmt: skip
    value = json.loads((tmp_path / "out/localized/collaborative_embed_24/results.json").read_text())
    assert all(len(entry["candidates"]) == 3 for entry in value["queries"].values())


def test_a_run_that_was_stopped_goes_on_with_the_rows_that_are_left(folder, tmp_path, monkeypatch):
    asked = {"data": folder.root, "out": tmp_path / "out", "features": (folder.features,), "pairs": folder.pairs}
    calls = Calls(monkeypatch, aachen, "localised")
    calls.until = 1  # of 2 rows
    with pytest.raises(Stopped):
        run(**asked)
    calls.done, calls.until = 0, None
    first = run(**asked)
    assert calls.done == 1 and len(first.rows) == 2
    assert run(**asked) == first and calls.done == 1
    with pytest.raises(FileExistsError, match="another configuration"):
        run(**asked, neighbors=3)


def test_what_is_missing_is_told(tmp_path, capsys):
    folder = write_folder(tmp_path)
    asked = ["benchmark", "check", "aachen", "--data", str(folder.root)]
    assert cli.main(asked) == 0
    assert "v1: a map of 6 photos, queries 1 day, 1 night" in " ".join(capsys.readouterr().out.split())
    (folder.root / "images/images_upright" / folder.queries["night"]).unlink()
    (folder.root / "images/images_upright" / folder.known[0]).unlink()
    (folder.root / "3D-models/database_intrinsics.txt").unlink()
    problems = aachen_data.check(folder.root).problems
    assert problems == (
        "3D-models/database_intrinsics.txt is missing", f"images_upright/{folder.queries['night']} is missing",
        "1 of the map's 6 photos are missing in images_upright",
    )  # fmt: skip
    assert cli.main(asked) == 2 and "get it from https://www.visuallocalization.net" in capsys.readouterr().err
    assert aachen_data.check(tmp_path).problems[0].endswith("(or the folder 3D-models/aachen_v_1_1)")


@pytest.mark.parametrize("version", ["v1", "v1.1"])
def test_the_published_sets_are_known_by_their_counts(tmp_path, monkeypatch, version):
    folder = write_folder(tmp_path, version)
    assert not aachen_data.check(folder.root).official
    monkeypatch.setitem(aachen_data.COUNTS, version, (6, {"day": 1, "night": 1}))
    assert aachen_data.check(folder.root).official


def test_photos_to_match_with_and_counts_are_asked_for(folder, tmp_path):
    asked = {"data": folder.root, "out": tmp_path, "features": (folder.features,)}
    with pytest.raises(ValueError, match="--pairs or --global-features"):
        run(**asked)
    with pytest.raises(ValueError, match="give one of them"):
        run(**asked, pairs=folder.pairs, global_features=folder.pairs)
    with pytest.raises(ValueError, match="neighbors is 0"):
        run(**asked, pairs=folder.pairs, neighbors=0)


def test_spaces_of_one_width_or_without_a_descriptor_are_refused(tmp_path):
    path = exact_translator().save(tmp_path / "m.safetensors")
    one = (path, Translator.load(path))
    with pytest.raises(ValueError, match="both have joint spaces of 24 values"):
        sizes_plan(["own-a", "own-b"], [one, one], "own-a")
    with pytest.raises(ValueError, match="lacks sift"):
        sizes_plan(["own-a", "sift"], [one], "own-a")
    with pytest.raises(ValueError, match="queries of 'sosnet', expected one of own-a"):
        sizes_plan(["own-a"], [one], "sosnet")


def test_maps_of_other_descriptors_or_queries_are_not_compared_with_the_papers():
    four = ["brief", "sift", "hardnet-xdesc", "sosnet-xdesc"]
    mixed, known = (Deployment(*row) for row in (("collaborative", "embed", "sift"), ("cross-device", "brief", "sift")))
    paper = tables.paper()["aachen"]["rows"]
    assert mixed.paper_row_among(four) in paper and known.paper_row_among(four[:2]) in paper
    for among in (four[:2], [*four, "orb"], [*four[:3], "hardnet"]):
        assert mixed.paper_row_among(among) == ""
    model = ("m", SimpleNamespace(names=four, embedding_spec=SimpleNamespace(width=128)))
    asked = ((four, "sosnet-xdesc"), (four, "brief"), (four[1:], "sosnet-xdesc"))
    found = [sizes_plan(names, [model], query)[0] for names, query in asked]
    assert {task.name for task in found} == {"collaborative: embed 128"}
    assert [task.paper in tables.paper()["aachen-embedding-size"]["rows"] for task in found] == [True, False, False]


def test_shares_of_each_group_are_those_of_a_plain_loop(folder):
    queries, groups = ["q1", "q2", "q3"], {"day": ["q1", "q3"], "night": ["q2"]}
    found = {"localised": [True, True, False], "inliers": [40, 12, 3]}
    found |= {"position_m": [0.3, 0.1, None], "rotation_deg": [1.0, 3.0, None]}
    assert query_scores.values(found, queries, groups) == {
        "day localised": 50, "day inliers": 40, "night localised": 100, "night inliers": 12,
        f"day {BEST}": 0, "day 0.5 m, 5 deg": 50, "day 5 m, 10 deg": 50,
        f"night {BEST}": 0, "night 0.5 m, 5 deg": 100, "night 5 m, 10 deg": 100,
    }  # fmt: skip
    pose = folder.poses[folder.known[0]]
    with pytest.raises(ValueError, match=r"two queries are called '1.jpg'"):
        query_scores.submission(folder.root / "s.txt", {"a/1.jpg": pose, "b/1.jpg": pose})
    with pytest.raises(ValueError, match="lacks the pose of 1 of 1 queries, first"):
        query_scores.read_reference(folder.truth, ["elsewhere/9.jpg"])


def test_columns_of_known_poses_are_the_papers():
    names = {column.key for column in query_scores.columns(["day", "night"], True)}
    assert set(tables.paper()["aachen"]["rows"]["standard: SIFT"]) <= names


def test_shares_that_the_server_alone_knows_are_compared_with_the_papers_which_stand_last():
    data = {"folder": "a", "text": "v1", "official": True, "other": [], "fingerprint": "a"}
    row = Row("standard: sift", {"day localised": 90.0}, "standard", "standard: SIFT")
    result = Result("aachen", "Aachen Day-Night", data, {}, [Column("day localised")], [row])
    assert "figures are none of these and stand last" in tables.note(result)
    heads, (texts,) = tables.headings(result), tables.cells(result)
    assert heads[:3] == ["", "day localised [%]", "paper: day 0.25 m, 2 deg [%]"]
    assert texts == ["standard: sift", "90.0", "82.5", "88.7", "52.0", "61.2"] and len(heads) == len(texts)
    other = dataclasses.replace(result, data={**data, "official": False, "other": ["a map of 6 photos"]})
    assert tables.headings(other) == heads[:2]
