"""`xdesc match --matcher lightglue`, by a matcher that needs no torch."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sqlite3

import h5py
import numpy as np
import pytest

from tests.support.exact_scene import make_scene
from tests.support.fake_matcher import DIES, FAILS, OUTSIDE, REPEATS, in_its_place
from tests.support.mixed_database import translator, write_mixed
from xdesc_jax import cli
from xdesc_jax.descriptors import DescriptorSpec, get_spec, unit_rows
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.matching import learned
from xdesc_jax.matching.matches import MatchFile

LIMIT = 0.05
SIZES = {"a.png": (200, 100), "b/c.png": (90, 300), "d.png": (640, 480), "none.png": (50, 40)}


@pytest.fixture(autouse=True)
def fake(monkeypatch, tmp_path):
    """The fake in the place of the network, and no installed weights."""
    in_its_place(monkeypatch, tmp_path)


@pytest.fixture
def weights(tmp_path):
    return [f"--weights={name}={weight_file(tmp_path, name)}" for name in ("lightglue-aliked",)]


def weight_file(folder, name, limit=LIMIT):
    np.savez(folder / f"{name}.npz", limit=limit)
    return folder / f"{name}.npz"


def photo(name, seed=0, rows=9, size=None):
    """Rows in an order of each photo's own, at places that a common row has in all, and one that is not valid."""
    rng = np.random.default_rng(3)
    base, places = unit_rows(rng.normal(size=(12, 128))), rng.uniform(0.1, 0.9, (12, 2))
    order = np.random.default_rng([seed, len(name)]).permutation(12)[:rows]
    size = size or SIZES[name]
    xy = (places[order] * size).astype(np.float32)
    return ImageFeatures(xy, base[order], np.arange(rows) != 4, size)


def write(path, descriptor="aliked-n16rot", photos=None, spec=None):
    photos = {name: photo(name, rows=9 * (name != "none.png")) for name in SIZES} if photos is None else photos
    with StoreWriter(path, spec or get_spec(descriptor)) as writer:
        for name, features in photos.items():
            writer.write(name, features)
    return path


def run(*words):
    return cli.main(["match", *map(str, words), "--pairs", "exhaustive", "--matcher", "lightglue"])


def expected(first, second):
    """Equal rows at equal places, but for the one in either photo that is not valid."""
    return [
        [i, j]
        for i in range(len(first))
        for j in range(len(second))
        if i != 4 and j != 4 and np.array_equal(first.descriptors[i], second.descriptors[j])
    ]


def test_matches_and_scores_lie_in_hlocs_layout(tmp_path, weights, calls):
    features = write(tmp_path / "f.h5")
    assert run(features, tmp_path / "m.h5", *weights) == 0
    with MatchFile(tmp_path / "m.h5") as file:
        assert len(file.pairs()) == 6
        for a, b in file.pairs():
            indices, scores = file.read(a, b)
            found = [] if "none.png" in (a, b) else expected(photo(a), photo(b))
            assert indices.tolist() == found and (a == "none.png" or b == "none.png" or len(found) >= 3)
            np.testing.assert_allclose(scores, 1, atol=1e-6)
    with h5py.File(tmp_path / "m.h5") as file:
        assert file["a.png"]["b-c.png"]["matches0"].shape == (9,)
    # Without the row that is not valid, with sizes as width and height, and no pair of a photo without keypoints.
    assert sorted(calls()) == ["8 (200, 100) 8 (640, 480)", "8 (200, 100) 8 (90, 300)", "8 (90, 300) 8 (640, 480)"]


def test_places_and_sizes_reach_the_matcher(tmp_path):
    """With a narrow limit, a photo of a size that its keypoints are not of matches nothing."""
    limit = weight_file(tmp_path, "narrow", 1e-4)
    photos = {"a.png": photo("a.png"), "d.png": photo("d.png")}
    wrong = photos | {"d.png": dataclasses.replace(photo("d.png"), image_size=(1280, 480))}
    for name, given, found in (("right", photos, len(expected(*photos.values()))), ("wrong", wrong, 0)):
        features = write(tmp_path / f"{name}.h5", photos=given)
        assert run(features, tmp_path / f"{name}-m.h5", f"--weights=lightglue-aliked={limit}") == 0
        with MatchFile(tmp_path / f"{name}-m.h5") as file:
            assert len(file.indices("a.png", "d.png")) == found


def test_matches_of_a_lower_score_than_asked_for_are_none(tmp_path, weights):
    """The fake's score is the cosine of the rows, of which every other one is turned a little."""
    photos = {"a.png": photo("a.png"), "d.png": photo("d.png")}
    rows = photos["d.png"].descriptors.copy()
    away = np.linspace(0.17, 0.35, len(rows[::2]))[:, None]
    rows[::2] = unit_rows(rows[::2] + away * np.roll(rows[::2], 1, axis=1))
    photos["d.png"] = dataclasses.replace(photos["d.png"], descriptors=rows)
    features, found = write(tmp_path / "f.h5", photos=photos), {}
    for least in ("0", "0.97"):
        assert run(features, tmp_path / f"{least}.h5", *weights, "--min-score", least) == 0
        with MatchFile(tmp_path / f"{least}.h5") as file:
            found[least] = file.read("a.png", "d.png")
    sure = found["0"][1] >= 0.97
    assert 0 < sure.sum() < len(sure)
    np.testing.assert_array_equal(found["0.97"][0], found["0"][0][sure])
    assert run(features, tmp_path / "0.h5", *weights, "--min-score", "0.97") == 2  # another result


def test_the_summary_says_by_what_and_that_no_ratio_decided(tmp_path, weights, capsys):
    features = write(tmp_path / "f.h5")
    assert run(features, tmp_path / "m.h5", *weights) == 0
    summary = json.loads((tmp_path / "m.h5.json").read_text())
    assert list(summary["config"]["matcher"]["lightglue"]) == ["lightglue-aliked"]
    (kind,) = [kind for kind in summary["by_descriptors"] if kind["matches"]]
    assert (kind["in"], kind["ratio"], kind["ratio_is"]) == ("aliked-n16rot", None, "none: lightglue decides")
    assert "decides" in capsys.readouterr().out  # narrow tables fold it


def test_rows_of_both_kinds_go_to_the_weights_of_their_own(tmp_path, monkeypatch):
    (tmp_path / "data" / "weights").mkdir(parents=True)
    for name, limit in (("lightglue-aliked", LIMIT), ("lightglue-disk", 1e-9)):
        np.savez(tmp_path / "data" / "weights" / f"{name}.npz", limit=limit)
    monkeypatch.setattr(learned, "released_file", lambda name, what: tmp_path / "data" / "weights" / f"{name}.npz")
    aliked = write(tmp_path / "a.h5", "aliked-n32", {"a.png": photo("a.png"), "d.png": photo("d.png")})
    disk = write(tmp_path / "d.h5", "disk", {"b/c.png": photo("b/c.png"), "e.png": photo("e.png", 1, size=(70, 80))})
    (tmp_path / "pairs.txt").write_text("a.png d.png\nb/c.png e.png\n")
    words = ["match", aliked, disk, tmp_path / "m.h5", "--pairs", tmp_path / "pairs.txt", "--matcher", "lightglue"]
    assert cli.main(list(map(str, words))) == 0
    with MatchFile(tmp_path / "m.h5") as file:
        assert len(file.indices("a.png", "d.png")) == len(expected(photo("a.png"), photo("d.png")))
        assert len(file.indices("b/c.png", "e.png")) == 0


def test_rows_translated_to_aliked_are_matched_into_a_database(tmp_path, weights):
    scene = make_scene(points=60)
    camera = next(iter(scene.model.cameras.values()))
    mixed = write_mixed(tmp_path / "mixed.db", scene, camera, scene.names[:3])
    model = translator(tmp_path / "model.safetensors")
    wide = weight_file(tmp_path, "wide", 2.0)
    more = ["--mode", "directional", "--target", "aliked-n16rot", "--model", model]
    assert run(mixed, tmp_path / "out.db", f"--weights=lightglue-aliked={wide}", *more) == 0
    db = sqlite3.connect(tmp_path / "out.db")
    assert db.execute("SELECT count(*) FROM matches WHERE rows = 60").fetchone() == (15,)
    db.close()


def test_a_stopped_run_goes_on_with_the_pairs_that_are_left(tmp_path, weights, monkeypatch, calls):
    photos = {f"{k}.png": photo(f"{k}.png", k, size=(200, 100)) for k in range(4)}
    features, out = write(tmp_path / "f.h5", photos=photos), tmp_path / "m.h5"
    assert run(features, tmp_path / "whole.h5", *weights) == 0
    assert len(calls()) == 6
    monkeypatch.setattr(learned, "PAIRS_A_PART", 2)
    match = learned.LearnedMatching.match_pair

    def stops(self, *pair):
        if len(calls()) == 6 + 5:
            raise KeyboardInterrupt
        return match(self, *pair)

    monkeypatch.setattr(learned.LearnedMatching, "match_pair", stops)
    assert run(features, out, *weights) == 130 and not out.exists()
    monkeypatch.setattr(learned.LearnedMatching, "match_pair", match)
    assert run(features, out, *weights) == 0
    assert len(calls()) == 6 + 5 + 2  # four of the five were kept
    with MatchFile(tmp_path / "whole.h5") as whole, MatchFile(out) as file:
        assert file.pairs() == whole.pairs()
        for pair in file.pairs():
            assert file.read(*pair)[0].tolist() == whole.read(*pair)[0].tolist()
    assert run(features, out, *weights) == 0 and len(calls()) == 13


def test_other_weights_are_another_configuration(tmp_path, weights, capsys):
    features = write(tmp_path / "f.h5")
    assert run(features, tmp_path / "m.h5", *weights) == 0
    other = weight_file(tmp_path, "other", 0.06)
    assert run(features, tmp_path / "m.h5", f"--weights=lightglue-aliked={other}") == 2
    assert "made with another configuration" in capsys.readouterr().err


# --- What is refused, before any work ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "more, told",
    [
        (["--ratio", "0.8"], "--ratio 0.8 is for --matcher nearest; lightglue decides without one"),
        (["--ratio", "None"], "--ratio None is for --matcher nearest"),
        (["--min-score", "1"], "--min-score is 1, expected at least 0 and less than 1"),
        (["--backend", "jax"], "--backend jax is for --matcher nearest; lightglue computes on --device"),
        (["--weights", "lightglue-disk=x.npz"], "--weights lightglue-disk: is not needed here, only lightglue-aliked"),
        (["--weights", "lightglue-aliked=no.npz"], "no.npz: no such weight file"),
        (
            [],
            "'lightglue-aliked' means the official weights, which are not part of this package: install them with "
            "`xdesc weights install lightglue-aliked`, or give their file with --weights lightglue-aliked=FILE",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, capsys, calls, more, told):
    features = write(tmp_path / "f.h5")
    assert run(features, tmp_path / "m.h5", *more) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "m.h5").exists() and calls() == []


@pytest.mark.parametrize("more", [["--weights", "lightglue-aliked=x"], ["--device", "cuda"], ["--min-score", "0.5"]])
def test_settings_of_a_network_are_refused_for_neighbours(tmp_path, capsys, more):
    features = write(tmp_path / "f.h5")
    words = ["match", features, tmp_path / "m.h5", "--pairs", "exhaustive", *more]
    assert cli.main(list(map(str, words))) == 2
    assert "--weights, --device and --min-score are for --matcher lightglue" in capsys.readouterr().err


@pytest.mark.parametrize(
    "spec, told",
    [
        (get_spec("hardnet"), "not 'hardnet' (real, 128); translate to one of them: --mode directional --target NAME"),
        (get_spec("aliked-t16"), "not 'aliked-t16' (real, 64)"),
        (DescriptorSpec("aliked-n16", 64), "not 'aliked-n16' (real, 64)"),
        (DescriptorSpec("embedding:0123456789ab", 128), "not rows of the joint space"),
    ],
)
def test_rows_of_other_descriptors_are_refused(tmp_path, weights, capsys, calls, spec, told):
    rows = unit_rows(np.random.default_rng(0).normal(size=(3, spec.width)))
    photos = {name: ImageFeatures(np.ones((3, 2)), rows, np.ones(3, bool), (20, 20)) for name in ("a.png", "b.png")}
    features = write(tmp_path / "f.h5", photos=photos, spec=spec)
    assert run(features, tmp_path / "m.h5", *weights) == 2
    heard = " ".join(capsys.readouterr().err.split())
    assert "matches rows of aliked-n16rot, aliked-n16, aliked-n32, disk, " in heard and told in heard
    assert calls() == []


def test_photos_of_no_size_are_refused_by_name(tmp_path, weights, capsys, calls):
    features = write(tmp_path / "f.h5", photos={"a.png": photo("a.png"), "x.png": photo("x.png", size=(9, 9))})
    with h5py.File(features, "a") as file:
        del file["x.png"]["image_size"]
    assert run(features, tmp_path / "m.h5", *weights) == 2
    assert "f.h5: does not say the size of 'x.png', which --matcher lightglue needs" in capsys.readouterr().err
    assert calls() == []


def test_keypoints_outside_of_their_photo_are_refused_and_those_on_its_border_are_not(tmp_path, weights, capsys):
    near, far = photo("a.png"), photo("a.png")
    near.keypoints[5], far.keypoints[5] = (-0.5, 100.5), (-1.5, 20)
    for name, first, status in (("near", near, 0), ("far", far, 2)):
        features = write(tmp_path / f"{name}.h5", photos={"a.png": first, "d.png": photo("d.png")})
        assert run(features, tmp_path / f"{name}-m.h5", *weights) == status
    told = "far.h5: 'a.png': keypoint 5 lies at [-1.5, 20.0], outside of its photo of 200 x 100 px"
    assert told in capsys.readouterr().err


def test_missing_packages_are_named_with_the_extra(tmp_path, weights, capsys, monkeypatch):
    monkeypatch.undo()
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "kornia" else found(name, *a))
    features = write(tmp_path / "f.h5")
    assert run(features, tmp_path / "m.h5", *weights) == 2
    heard = " ".join(capsys.readouterr().err.split())
    assert "--matcher lightglue is computed with torch and kornia, but" in heard and "xdesc-jax[learned]" in heard


# --- What goes wrong in the process ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault, told",
    [
        (DIES, "'lightglue-aliked': the process of the networks ended with status 3"),
        (FAILS, "'lightglue-aliked': failed (RuntimeError: not enough memory)"),
        (REPEATS, "'lightglue-aliked' gave matches [2, 2] with scores [2], expected rows of 8 and 8 keypoints"),
        (OUTSIDE, "'lightglue-aliked' gave matches [1, 2] with scores [1], expected rows of 8 and 8 keypoints"),
    ],
)
def test_what_goes_wrong_names_the_pair_and_writes_nothing(tmp_path, weights, capsys, fault, told):
    first = photo("a.png")
    first.keypoints[0, 0] = fault
    features = write(tmp_path / "f.h5", photos={"a.png": first, "d.png": photo("d.png")})
    assert run(features, tmp_path / "m.h5", *weights) == 2
    heard = " ".join(capsys.readouterr().err.split())
    assert f"f.h5: 'a.png' and {features}: 'd.png': {told}" in heard
    assert not (tmp_path / "m.h5").exists()


def test_weights_of_another_network_are_refused(tmp_path, capsys):
    features, bad = write(tmp_path / "f.h5"), weight_file(tmp_path, "bad", -1)
    assert run(features, tmp_path / "m.h5", f"--weights=lightglue-aliked={bad}") == 2
    assert "bad.npz: limit is -1.0, expected more than 0" in capsys.readouterr().err
