"""The stage `xdesc localize`: poses, results, and what it refuses before any work."""

import dataclasses
import json
import shutil

import h5py
import numpy as np
import pytest

from tests.support.localize_stage import check_exact, results, run
from tests.support.place import WIDTH, rewrite
from xdesc_jax.cli import main
from xdesc_jax.colmap.lists import read_poses
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.features.store import FeatureStore, StoreWriter
from xdesc_jax.localization.localizer import Localizer
from xdesc_jax.localization.outcome import PoseSettings


def test_poses_and_results_are_written(place, tmp_path, queries, pairs):
    out = tmp_path / "out"
    assert run(place, out, queries, "--pairs", pairs) == 0
    check_exact(place, out)
    assert sorted(path.name for path in out.iterdir()) == ["correspondences.npz", "poses.txt", "results.json"]
    found = results(out)
    assert found["settings"]["mode"] == "native"
    entry = found["queries"][place.queries[0]]
    assert entry["status"] == "localized" and entry["reason"] is None
    assert entry["inliers"] == entry["matches"] == 120 and entry["inlier_ratio"] == 1
    assert np.shape(entry["covariance"]) == (6, 6)
    pose = place.poses[place.queries[0]]
    np.testing.assert_allclose(entry["qvec"], pose.quaternion, atol=1e-5)
    np.testing.assert_allclose(entry["tvec"], pose.translation, atol=1e-4)
    assert set(entry["seconds"]) == {"retrieval", "translation", "matching", "pose", "total"}


def test_the_error_of_an_inlier_and_the_seed_that_were_asked_for_decide(place, tmp_path, queries, pairs):
    """Keypoints that are off by about what is allowed, so that samples disagree."""
    rng = np.random.default_rng(0)
    moved = rewrite(
        place.features["own-a"], tmp_path / "moved.h5",
        lambda n, p: dataclasses.replace(p, keypoints=p.keypoints + rng.normal(size=(len(p), 2)).astype(np.float32)),
    )  # fmt: skip
    name, found = place.queries[0], {}
    with FeatureStore(moved) as store:
        photo = store.read(name)
    for error, seed in ((1.5, 3), (1.5, 4), (2.5, 4)):
        words = ["--query-features", moved, "--pairs", pairs, "--max-error-px", error, "--seed", seed]
        out = tmp_path / f"{error} {seed}"
        assert run(place, out, queries, *words) == 0
        settings = PoseSettings(max_error_px=error, seed=seed)
        localizer = Localizer.open(place.model, [place.features["own-a"]], settings=settings)
        expected = localizer.localize(photo.keypoints, photo.descriptors, place.cameras[name])
        found[error, seed] = results(out)["queries"][name]
        np.testing.assert_allclose(found[error, seed]["tvec"], expected.pose.translation, rtol=1e-9)
        assert found[error, seed]["inliers"] == expected.inliers
    assert len({tuple(entry["tvec"]) for entry in found.values()}) == 3


@pytest.mark.parametrize("mode", [("embed",), ("directional",), ("directional", "--target", "own-b")])
def test_queries_of_another_descriptor_are_retrieved_and_localised(place, tmp_path, queries, mode):
    out = tmp_path / "out"
    words = ["--query-features", place.features["own-b"], "--model", place.translator, "--retrieval", 3]
    assert run(place, out, queries, *words, "--mode", *mode) == 0
    check_exact(place, out)
    assert all(len(entry["candidates"]) == 3 for entry in results(out)["queries"].values())


def test_a_query_in_the_map_is_not_matched_with_itself(place, tmp_path, pairs):
    name, camera = place.names[0], place.cameras[place.names[0]]
    path = tmp_path / "registered.txt"
    path.write_text(f"{name} {camera.model} 1024 768 {' '.join(map(str, camera.params))}\n")
    assert run(place, tmp_path / "out", path, "--pairs", "exhaustive") == 0
    found = results(tmp_path / "out")
    assert set(found["queries"][name]["candidates"]) == set(place.names[1:])
    assert found["compared"] == ["own-a with own-a, as own-a, ratio 0.9 (the default of native rows)"]


def test_finished_work_is_kept_and_other_settings_are_refused(place, tmp_path, queries, capsys):
    out = tmp_path / "out"
    assert run(place, out, queries, "--pairs", "exhaustive") == 0
    before = (out / "poses.txt").stat().st_mtime_ns
    assert run(place, out, queries, "--pairs", "exhaustive") == 0
    assert "up to date" in capsys.readouterr().out
    assert run(place, out, queries, "--pairs", "exhaustive", "--min-inliers", 200) == 2
    assert "made with another configuration (min_inliers: 12 -> 200)" in capsys.readouterr().err
    assert (out / "poses.txt").stat().st_mtime_ns == before
    assert run(place, out, queries, "--pairs", "exhaustive", "--min-inliers", 200, "--overwrite") == 0
    assert (out / "poses.txt").read_text() == ""


def test_failed_queries_are_in_the_results_alone(place, tmp_path, queries, pairs, capsys):
    good, bad = place.queries

    def dark(name, photo):
        return dataclasses.replace(photo, valid=np.zeros(len(photo), bool)) if name == bad else photo

    features = rewrite(place.features["own-a"], tmp_path / "q.h5", dark)
    out = tmp_path / "out"
    assert run(place, out, queries, "--query-features", features, "--pairs", pairs) == 0
    assert list(read_poses(out / "poses.txt")) == [good]
    entry = results(out)["queries"][bad]
    assert entry["status"] == "failed" and entry["qvec"] is entry["tvec"] is entry["covariance"] is None
    assert entry["reason"] == "none of 130 keypoints has a finite position and a descriptor"
    assert f"{bad!r} failed: none of 130 keypoints" in " ".join(capsys.readouterr().err.split())


def test_a_damaged_query_fails_alone(place, tmp_path, queries, pairs):
    good, bad = place.queries
    features = rewrite(place.features["own-a"], tmp_path / "q.h5", lambda name, photo: photo)
    with h5py.File(features, "a") as file:
        del file[bad]["descriptors"]
        file[bad]["descriptors"] = np.zeros((WIDTH, 3), np.float32)
    out = tmp_path / "out"
    assert run(place, out, queries, "--query-features", features, "--pairs", pairs) == 0
    assert list(read_poses(out / "poses.txt")) == [good]
    assert "descriptors have shape (3, 24)" in results(out)["queries"][bad]["reason"]


def test_a_query_without_keypoints_or_pairs_fails(place, tmp_path, queries):
    blank, alone = place.queries

    def empty(name, photo):
        fields = {f: getattr(photo, f)[:0] for f in ("keypoints", "descriptors", "valid")}
        return dataclasses.replace(photo, **fields) if name == blank else photo

    features = rewrite(place.features["own-a"], tmp_path / "q.h5", empty)
    (tmp_path / "pairs.txt").write_text(f"{blank} {place.names[0]}\n")
    out = tmp_path / "out"
    assert run(place, out, queries, "--query-features", features, "--pairs", tmp_path / "pairs.txt") == 0
    entries = results(out)["queries"]
    assert [entries[name]["reason"] for name in (blank, alone)] == ["no keypoints", "no candidate photo"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{query} absent.jpg", "names 7 photos not in the map, first ['absent.jpg0'"),
        ("absent.jpg {photo}", "names 7 photos not in the query list, first ['absent.jpg0'"),
        ("{query} {unregistered}", "names 1 photo not in the map"),
        ("{query} one with blanks.jpg", "names 7 photos not in the map, first ['one with blanks.jpg0'"),
    ],
)
def test_pairs_of_other_photos_are_left_out_and_counted(place, tmp_path, queries, pairs, capsys, line, message):
    line = line.format(query=place.queries[0], photo=place.names[0], unregistered=place.queries[1])
    others = [line.replace(".jpg", f".jpg{i}", 1) if ".jpg" in line else line for i in range(7)]
    with pairs.open("a") as file:
        file.write("".join(f"{other}\n" for other in others))
    assert run(place, tmp_path / "out", queries, "--pairs", pairs) == 0
    check_exact(place, tmp_path / "out")
    assert results(tmp_path / "out")["pairs_left_out"] == 7
    told = " ".join(capsys.readouterr().err.split())
    assert message in told and "7 of 19 pairs are left out" in told and "6'" not in told
    assert run(place, tmp_path / "strict", queries, "--pairs", pairs, "--strict") == 2
    assert message in capsys.readouterr().err and not (tmp_path / "strict").exists()


def test_a_list_whose_pairs_are_all_of_other_photos_is_refused(place, tmp_path, queries, pairs, capsys):
    pairs.write_text(f"{place.queries[0]} absent.jpg\nabsent.jpg {place.names[0]}\n")
    assert run(place, tmp_path / "out", queries, "--pairs", pairs) == 2
    assert "names 1 photo not in the query list, first ['absent.jpg']" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_queries_without_intrinsics_are_named_or_guessed(place, tmp_path, queries, pairs, capsys):
    first = place.query_list.splitlines()[0]
    queries.write_text(f"{first}\n{place.queries[1]}\n")
    assert run(place, tmp_path / "out", queries, "--pairs", pairs) == 2
    assert "1 query has no intrinsics" in capsys.readouterr().err
    assert run(place, tmp_path / "out", queries, "--pairs", pairs, "--assume-focal") == 0
    entries = results(tmp_path / "out")["queries"]
    assert entries[place.queries[0]]["focal_px"] is None
    assert abs(entries[place.queries[1]]["focal_px"] - 1280) < 15


def test_the_size_of_a_camera_must_be_the_photos(place, tmp_path, queries, pairs, capsys):
    queries.write_text(place.query_list.replace("1024 768", "512 384"))
    assert run(place, tmp_path / "out", queries, "--pairs", pairs) == 2
    assert "has 512 x 384 px, but its features" in capsys.readouterr().err


def test_what_does_not_compare_is_refused_before_work(place, tmp_path, queries, pairs, capsys):
    other = tmp_path / "other.h5"
    with FeatureStore(place.features["own-a"]) as store, StoreWriter(other, DescriptorSpec("other", WIDTH)) as writer:
        for name, photo in store:
            writer.write(name, photo)
    words = ["--query-features", other, "--pairs", pairs]
    assert run(place, tmp_path / "out", queries, *words) == 2
    assert "rows of 'other' (real, 24) and 'own-a' (real, 24) do not compare" in capsys.readouterr().err
    assert run(place, tmp_path / "out", queries, *words, "--model", place.translator, "--mode", "embed") == 2
    assert "no descriptor 'other'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_else_lies_in_the_folder_of_a_model_is_no_part_of_it(place, tmp_path, queries, pairs, capsys):
    out = shutil.copytree(place.model, tmp_path / "model")
    words = ["localize", out, out, "--features", place.features["own-b"], "--queries", queries, "--pairs", pairs]
    for _ in range(2):
        assert main(list(map(str, words))) == 0
        (out / "notes.txt").write_text("seen")
    assert "up to date" in capsys.readouterr().out
    assert sorted(results(out)["settings"]["reconstruction"]) == sorted(p.name for p in place.model.iterdir())


@pytest.mark.parametrize("pairs", ["retrieval:5", "exhaustve", "."])
def test_pairs_that_are_no_list_are_told_with_what_may_stand_there(place, tmp_path, queries, capsys, pairs):
    assert run(place, tmp_path / "out", queries, "--pairs", pairs) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"{pairs}: no such pair list (or 'exhaustive' for all photos of the map; --retrieval N" in told


def test_unknown_queries_and_missing_choices_are_refused(place, tmp_path, queries, pairs, capsys):
    with queries.open("a") as file:
        file.write("absent.jpg PINHOLE 9 9 9 9 9 9\n")
    assert run(place, tmp_path / "out", queries, "--pairs", pairs) == 2
    assert "names 1 photo not in" in capsys.readouterr().err
    assert run(place, tmp_path / "out", queries) == 2
    assert "either --pairs" in capsys.readouterr().err
    assert run(place, tmp_path / "out", queries, "--pairs", pairs, "--retrieval", 3) == 2
    assert "either --pairs" in capsys.readouterr().err


def test_a_photo_of_the_map_without_keypoints_is_left_out_where_photos_may_be_missing(
    place, tmp_path, queries, pairs, capsys
):
    def emptied(name, photo):
        none = {"keypoints": photo.keypoints[:0], "descriptors": photo.descriptors[:0], "valid": photo.valid[:0]}
        return photo if name != place.names[0] else dataclasses.replace(photo, **none)

    features = rewrite(place.features["own-a"], tmp_path / "map.h5", emptied)
    words = ["localize", place.model, tmp_path / "out", "--features", features, "--queries", queries, "--pairs", pairs]
    assert main([str(word) for word in words]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "but 0 in" in said and "(--allow-missing leaves it out)" in said
    assert main([*map(str, words), "--allow-missing"]) == 0
    check_exact(place, tmp_path / "out")


def test_queries_that_are_called_as_photos_of_the_map_are_told(place, tmp_path, capsys):
    own, listed = place.names[0], tmp_path / "queries.txt"
    listed.write_text(f"{own}\n{place.queries[0]}\n")
    assert run(place, tmp_path / "out", listed, "--pairs", "exhaustive", "--assume-focal") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert f"1 query with names of photos of the map, first ['{own}']: not matched with those; rename" in said
    listed.write_text(f"{place.queries[0]}\n")
    assert run(place, tmp_path / "other", listed, "--pairs", "exhaustive", "--assume-focal") == 0
    assert "names of photos of the map" not in capsys.readouterr().err


# --- Ratios and rows -----------------------------------------------------------------------------------------


def test_of_several_ratios_the_strictest_counts_as_in_matching(place, tmp_path, queries, pairs):
    files = []
    for name, ratio in (("map.h5", 0.7), ("queries.h5", 0.8)):
        files.append(rewrite(place.features["own-a"], tmp_path / name, lambda _, photo: photo))
        with h5py.File(files[-1], "a") as file:
            file.attrs["ratios"] = json.dumps({"own-a": ratio})
    for a, b in (files, files[::-1]):
        out = tmp_path / a.stem
        given = ["localize", place.model, out, "--features", a, "--queries", queries, "--pairs", pairs]
        assert main([str(word) for word in [*given, "--query-features", b]]) == 0
        assert results(out)["compared"] == ["own-a with own-a, as own-a, ratio 0.7 (calibrated for own-a)"]
        assert (
            main([str(w) for w in ["match", a, tmp_path / "m.h5", "--other", b, "--pairs", pairs, "--overwrite"]]) == 0
        )
        assert json.loads((tmp_path / "m.h5.json").read_text())["by_descriptors"][0]["ratio"] == 0.7


def test_rows_that_cannot_be_the_descriptor_are_refused(place, tmp_path, queries, pairs, capsys):
    def tiny(name, photo):
        return dataclasses.replace(photo, descriptors=photo.descriptors * np.float32(1e-30))

    features = rewrite(place.features["own-a"], tmp_path / "q.h5", tiny)
    assert run(place, tmp_path / "out", queries, "--query-features", features, "--pairs", pairs) == 2
    assert f"q.h5: {place.queries[0]!r}: the query: row 0 has norm 1e-30" in capsys.readouterr().err
    assert main([str(w) for w in ["match", features, tmp_path / "m.h5", "--pairs", "exhaustive"]]) == 2
    assert "has norm 1e-30, but 'own-a' expects unit-length floats" in capsys.readouterr().err
    assert not (tmp_path / "out").exists() and not (tmp_path / "m.h5").exists()


def test_a_file_that_does_not_say_what_it_holds_is_named_by_the_option_of_its_side(
    place, tmp_path, queries, pairs, capsys
):
    """hloc's files: without attributes."""
    features = tmp_path / "hloc.h5"
    shutil.copy(place.features["own-a"], features)
    with h5py.File(features, "r+") as file:
        for key in list(file.attrs):
            del file.attrs[key]
    assert run(place, tmp_path / "out", queries, "--query-features", features, "--pairs", pairs) == 2
    assert "hloc.h5: does not say which descriptor it holds; name it by --query-descriptor" in capsys.readouterr().err
    update = ["map", "update", place.model, tmp_path / "out", "--queries", queries, "--features", features]
    assert main([str(word) for word in [*update, "--new-features", features]]) == 2
    assert "holds; xdesc_jax.integrations.hloc.files writes a copy that does" in capsys.readouterr().err
