"""`xdesc localize --matcher lightglue`, by a matcher that needs no torch, in a place whose poses are known."""

from __future__ import annotations

import dataclasses
import json

import h5py
import numpy as np
import pytest

from tests.support.fake_matcher import DIES, in_its_place
from tests.support.place import WIDTH, rewrite
from xdesc_jax.cli import main
from xdesc_jax.colmap.lists import read_poses
from xdesc_jax.descriptors import DescriptorSpec, get_spec
from xdesc_jax.features.store import FeatureStore, StoreWriter
from xdesc_jax.localization.localizer import Localizer
from xdesc_jax.localization.map import LocalizationMap
from xdesc_jax.translation.bundle import Bundle

PLAIN = DescriptorSpec("plain", WIDTH, frame="image")
LIGHTGLUE = ("--pairs", "exhaustive", "--matcher", "lightglue")


@pytest.fixture(scope="module")
def files(place, tmp_path_factory):
    """Feature files of the place, of `plain` and, with zeros behind, of ALIKED; and the model between the two."""
    folder = tmp_path_factory.mktemp("learned")
    aliked = get_spec("aliked-n16rot")
    found = {}
    for spec in (PLAIN, aliked):
        found[spec.name] = folder / f"{spec.name}.h5"
        with FeatureStore(place.features["own-a"]) as store, StoreWriter(found[spec.name], spec) as writer:
            for name, photo in store:
                rows = np.pad(photo.descriptors, ((0, 0), (0, spec.width - WIDTH)))
                writer.write(name, dataclasses.replace(photo, descriptors=rows))
    wider, zeros = np.eye(WIDTH, aliked.width, dtype=np.float32), np.zeros(aliked.width, np.float32)
    networks = {"encoder/plain": [(np.eye(WIDTH, dtype=np.float32), zeros[:WIDTH])]}
    networks |= {"encoder/aliked-n16rot": [(wider.T.copy(), zeros[:WIDTH])], "decoder/aliked-n16rot": [(wider, zeros)]}
    specs = {spec.name: spec for spec in (PLAIN, aliked)}
    found["model"] = Bundle("encoder_decoder", specs, WIDTH, networks, frame="image").save(folder / "m.safetensors")
    found["queries"] = folder / "queries.txt"
    found["queries"].write_text(place.query_list)
    return found


@pytest.fixture(autouse=True)
def weights(monkeypatch, tmp_path):
    return in_its_place(monkeypatch, tmp_path)


def run(place, files, out, *words, features="aliked-n16rot", queries="aliked-n16rot"):
    given = ["localize", place.model, out, "--features", files.get(features, features)]
    given += ["--query-features", files.get(queries, queries), "--queries", files["queries"], *words]
    return main([str(word) for word in given])


def check_exact(place, poses):
    assert list(poses) == place.queries
    for name, pose in poses.items():
        np.testing.assert_allclose(pose.center, place.poses[name].center, atol=1e-4)


def results(out):
    return json.loads((out / "results.json").read_text())


def heard(capsys):
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "features, queries, mode",
    [
        ("aliked-n16rot", "aliked-n16rot", ("native",)),
        ("plain", "aliked-n16rot", ("directional", "--target", "aliked-n16rot")),
        ("aliked-n16rot", "plain", ("directional",)),
    ],
    ids=["native", "the map translated", "queries translated"],
)
def test_poses_are_found_from_what_the_matcher_finds(place, files, tmp_path, weights, calls, features, queries, mode):
    words = ["--mode", *mode, *(["--model", files["model"]] if mode[0] != "native" else [])]
    assert run(place, files, tmp_path / "out", *LIGHTGLUE, weights, *words, features=features, queries=queries) == 0
    check_exact(place, read_poses(tmp_path / "out" / "poses.txt"))
    found = results(tmp_path / "out")
    assert found["compared"] == [f"{queries} with {features}, as aliked-n16rot, ratio None (none: lightglue decides)"]
    assert found["queries"][place.queries[0]]["inliers"] == 120
    # Each query with each photo of the map, whose sizes are those of its camera and of the features.
    with FeatureStore(files["plain"]) as store:
        counts = {name: len(photo) for name, photo in store}
    size = "(1024, 768)"
    told = [f"{counts[q]} {size} {counts[name]} {size}" for q in place.queries for name in place.names]
    assert sorted(calls()) == sorted(told)


def test_several_threads_find_what_one_does_from_python(place, files, tmp_path, weights):
    assert run(place, files, tmp_path / "out", *LIGHTGLUE, weights, "--workers", 2) == 0
    poses = read_poses(tmp_path / "out" / "poses.txt")
    given = {"lightglue-aliked": tmp_path / "lightglue-aliked.npz"}
    with (
        FeatureStore(files["aliked-n16rot"]) as store,
        Localizer.open(place.model, [files["aliked-n16rot"]], matcher="lightglue", weights=given) as localizer,
    ):
        for name in place.queries:
            photo = store.read(name)
            found = localizer.localize(photo.keypoints, photo.descriptors, place.cameras[name])
            np.testing.assert_allclose(found.pose.center, poses[name].center, rtol=1e-12)


def test_it_is_another_configuration_than_neighbours(place, files, tmp_path, weights, capsys):
    assert run(place, files, tmp_path / "out", *LIGHTGLUE, weights) == 0
    assert run(place, files, tmp_path / "out", *LIGHTGLUE, weights) == 0
    assert "up to date" in capsys.readouterr().out
    assert run(place, files, tmp_path / "out", "--pairs", "exhaustive") == 2
    assert "made with another configuration" in heard(capsys)


@pytest.mark.parametrize(
    "words, told",
    [
        (["--mode", "embed"], "aliked-n16rot, aliked-n16, aliked-n32, disk, not rows of the joint space"),
        (["--mode", "directional", "--target", "plain"], "not 'plain' (real, 24); translate to one of them"),
        (["--ratio", "0.8"], "--ratio 0.8 is for --matcher nearest; lightglue decides without one"),
        (["--views", "roll=0,90"], "--views: is for --matcher nearest, whose ratios tell which view agrees best"),
        (["--min-score", "-0.1"], "--min-score is -0.1, expected at least 0 and less than 1"),
        (["--weights", "lightglue-disk=x"], "--weights lightglue-disk: is not needed here, only lightglue-aliked"),
    ],
)
def test_settings_that_do_not_fit_are_refused(place, files, tmp_path, weights, capsys, calls, words, told):
    model = ["--model", files["model"]] if "--mode" in words else []
    assert run(place, files, tmp_path / "out", *LIGHTGLUE, weights, *model, *words) == 2
    assert told in heard(capsys)
    assert not (tmp_path / "out").exists() and calls() == []


def test_a_map_of_photos_of_no_size_is_refused_by_name(place, files, tmp_path, weights, capsys):
    features = rewrite(files["aliked-n16rot"], tmp_path / "sizeless.h5", lambda name, photo: photo)
    with h5py.File(features, "a") as file:
        del file[place.names[2]]["image_size"]
    assert run(place, files, tmp_path / "out", *LIGHTGLUE, weights, features=features) == 2
    told = f"sizeless.h5: does not say the size of {place.names[2]!r}, which --matcher lightglue needs"
    assert told in heard(capsys)
    given = {"lightglue-aliked": tmp_path / "lightglue-aliked.npz"}
    with pytest.raises(ValueError, match="does not say the size"):
        Localizer.open(place.model, [features], matcher="lightglue", weights=given)


def test_a_damaged_query_fails_alone(place, files, tmp_path, weights):
    good, bad = place.queries

    def outside(name, photo):
        xy = photo.keypoints + np.float32(2000) * (name == bad)
        return dataclasses.replace(photo, keypoints=xy)

    queries = rewrite(files["aliked-n16rot"], tmp_path / "queries.h5", outside)
    assert run(place, files, tmp_path / "out", *LIGHTGLUE, weights, queries=queries) == 0
    assert list(read_poses(tmp_path / "out" / "poses.txt")) == [good]
    reason = results(tmp_path / "out")["queries"][bad]["reason"]
    assert reason.startswith("the query: keypoint 0 lies at [") and "outside of its photo of 1024 x 768 px" in reason


@pytest.mark.parametrize("wrong", ["weights", "death"])
def test_what_is_wrong_with_the_matcher_ends_the_run(place, files, tmp_path, weights, capsys, wrong):
    """It is no query's fault, so none is told to have failed."""
    features = files["aliked-n16rot"]
    if wrong == "weights":
        np.savez(tmp_path / "lightglue-aliked.npz", limit=-1.0)
    else:

        def first(name, photo):
            xy = photo.keypoints.copy()
            xy[0, 0] = DIES
            return dataclasses.replace(photo, keypoints=xy)

        features = rewrite(features, tmp_path / "dies.h5", first)
    assert run(place, files, tmp_path / "out", *LIGHTGLUE, weights, queries=features) == 2
    told = {
        "weights": "limit is -1.0, expected more than 0",
        "death": "the process of the networks ended with status 3",
    }
    assert told[wrong] in heard(capsys)
    assert not (tmp_path / "out" / "results.json").exists()


def test_a_map_in_views_takes_no_matcher(place, files):
    built = Localizer.open(place.model, [files["aliked-n16rot"]]).map
    viewed: LocalizationMap = dataclasses.replace(built, views=(object(),))
    with pytest.raises(ValueError, match="--views: is for --matcher nearest"):
        Localizer(viewed, matcher=object())
