"""The Image Matching challenge, on scenes whose poses are known."""

import dataclasses
import shutil

import h5py
import numpy as np
import pytest

from tests.support import phototourism
from tests.support.phototourism import COUNT, SCENES, K, name, pose, stem, write_features, write_scene
from tests.support.place import exact_translator
from tests.support.stopped import Calls, Stopped
from xdesc_jax import cli
from xdesc_jax.evaluate.benchmarks import tables
from xdesc_jax.evaluate.benchmarks.image_matching import scenes, tasks
from xdesc_jax.evaluate.benchmarks.image_matching.benchmark import run
from xdesc_jax.evaluate.benchmarks.image_matching.methods import Method, methods
from xdesc_jax.evaluate.benchmarks.image_matching.scores import mean_average_accuracy, over_bags
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter

AREAS = [f"{task} AUC {limit} deg" for task in ("stereo", "multi-view") for limit in (5, 10)]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for scene in SCENES:
        write_scene(root / "phototourism", scene)
    return root


@pytest.fixture
def data(written, tmp_path):
    return shutil.copytree(written, tmp_path / "data")


def test_exact_features_give_all_poses_native_translated_and_joint(written, tmp_path):
    model = exact_translator().save(tmp_path / "model.safetensors")
    files = (write_features(tmp_path / "f"),)
    result = run(
        data=written, out=tmp_path / "out", model=model, features=files, ratios=(0.8, 0.9), max_errors_px=(1.0,), runs=2
    )
    found = {row.name: row for row in result.rows}
    assert list(found) == ["own-a", "own-b", "own-a -> own-b", "own-a | own-b"]
    for row in found.values():
        assert [row.values[area] for area in AREAS] == [100.0] * 4
        assert row.values["registered"] == 100 and row.values["matches"] == phototourism.POINTS
        assert row.values["ratio"] == 0.8  # the first of equal ones
        assert row.detail["scenes"][AREAS[0]] == {"sacre_coeur": [100.0, 100.0]}
    assert not result.official


def test_files_that_are_not_named_are_translated_in_the_models_order(written, tmp_path, caplog):
    files = (write_features(tmp_path / "f"),)
    asked = {"data": written, "features": files, "ratios": (1.0,), "max_errors_px": (1.0,), "runs": 1}
    asked |= {"kinds": ("directional",), "tasks": ("stereo",)}
    rank1 = {"own-b->own-a": 0.9, "own-a->own-b": 0.1}  # own-b is the worse target
    bundle = dataclasses.replace(exact_translator(), provenance={"validation": {"rank1": rank1}})
    model = bundle.save(tmp_path / "model.safetensors")
    (row,) = run(**asked, out=tmp_path / "out", model=model).rows
    assert row.name == "own-b -> own-a" and row.values["stereo AUC 5 deg"] == 100
    (row,) = run(**asked, out=tmp_path / "named", model=model, descriptors=("own-a", "own-b")).rows
    assert row.name == "own-a -> own-b"
    plain = exact_translator().save(tmp_path / "plain.safetensors")
    (row,) = run(**asked, out=tmp_path / "plain", model=plain).rows
    assert row.name == "own-a -> own-b"
    assert "does not say how good own-a, own-b are" in caplog.text


def test_a_pair_is_matched_in_either_order_that_it_is_listed_in(data, tmp_path):
    scene, folder = "sacre_coeur", write_features(tmp_path / "f")
    np.save(data / "phototourism" / scene / "set_100" / scenes.PAIRS, [f"{stem(1)}-{stem(0)}", f"{stem(0)}-{stem(1)}"])
    whole = (folder / "own-a.h5").rename(tmp_path / "whole.h5")
    with FeatureStore(whole) as store, StoreWriter(folder / "own-a.h5", store.spec) as writer:
        for photo in store.names:  # photo 0 has rows of other keypoints, and is the one that is translated in 1-0
            p = store.read(photo)
            rows = np.roll(p.descriptors, 9, axis=0) if photo == name(scene, 0) else p.descriptors
            writer.write(photo, dataclasses.replace(p, descriptors=rows))
    asked = {"data": data, "model": exact_translator().save(tmp_path / "model.safetensors"), "features": (folder,)}
    asked |= {"ratios": (1.0,), "max_errors_px": (1.0,), "runs": 1, "tasks": ("stereo",), "scenes": (scene,)}
    (row,) = run(**asked, out=tmp_path / "out", kinds=("directional",), descriptors=("own-a", "own-b")).rows
    assert [0 <= error < 1 for error in row.detail["error_deg"]] == [False, True]


def test_files_of_other_keypoints_are_refused_where_rows_are_translated_between_them(written, tmp_path):
    folder = write_features(tmp_path / "f")
    whole = (folder / "own-a.h5").rename(tmp_path / "whole.h5")
    with FeatureStore(whole) as store, StoreWriter(folder / "own-a.h5", store.spec) as writer:
        for photo in store.names:  # the same keypoints from the last to the first
            p = store.read(photo)
            writer.write(photo, ImageFeatures(p.keypoints[::-1], p.descriptors[::-1], p.valid, p.image_size))
    model = exact_translator().save(tmp_path / "model.safetensors")
    asked = {"data": written, "model": model, "features": (folder,), "ratios": (1.0,), "max_errors_px": (1.0,)}
    with pytest.raises(ValueError, match=r"own-b.h5: 'sacre_coeur/.* keypoints that differ from the 130 of .*own-a.h5"):
        run(**asked, out=tmp_path / "out")
    rows = run(**asked, out=tmp_path / "out", kinds=("standard", "embed"), tasks=("stereo",), runs=1).rows
    assert {row.values["stereo AUC 5 deg"] for row in rows} == {100}  # each photo is in one file


def test_a_dry_run_makes_nothing(written, tmp_path):
    asked = ["--data", str(written), "--out", str(tmp_path / "out"), "--descriptors", "orb", "--ratios", "0.9"]
    words = ["benchmark", "run", "image-matching-challenge", "--dry-run", *asked, "--max-errors-px", "1"]
    assert cli.main(words) == 0 and not (tmp_path / "out").exists()


def test_shuffled_rows_give_no_pose_better_than_chance(written, tmp_path):
    files = (write_features(tmp_path / "f", shuffled=True),)
    asked = {"ratios": (1.0,), "max_errors_px": (1.0,), "runs": 1, "descriptors": ("own-a",)}
    (row,) = run(data=written, out=tmp_path / "out", features=files, **asked).rows
    assert max(row.values[area] for area in AREAS[:2]) < 15
    assert [row.values[area] for area in AREAS[2:]] == [0, 0] and row.values["registered"] == 0


def test_stereo_by_poselib_finds_the_poses_of_exact_features(written, tmp_path):
    pytest.importorskip("poselib", reason="needs the poselib extra")
    files = (write_features(tmp_path / "f"),)
    asked = {"ratios": (1.0,), "max_errors_px": (1.0,), "runs": 1, "descriptors": ("own-a",), "tasks": ("stereo",)}
    (row,) = run(data=written, out=tmp_path / "out", features=files, ransac="poselib", **asked).rows
    assert row.values["stereo AUC 5 deg"] > 99


def test_the_accuracy_is_the_mean_share_below_whole_degrees():
    # below 1, 2, 3, 4, 5 deg: 0, 1/2, 1/2, 1/2, 1/2 of two pairs
    assert mean_average_accuracy([1.5, np.inf], 5) == pytest.approx(2 / 5)
    assert mean_average_accuracy([0.2, 9.5], 10) == pytest.approx((9 * 0.5 + 1) / 10)
    assert mean_average_accuracy([], 5) == 0 and mean_average_accuracy([1.0], 5) == pytest.approx(4 / 5)
    # bags weigh the same whatever their size, and so do sizes
    bags = {3: [[0.5], [np.inf] * 3], 5: [[0.5] * 10]}
    assert over_bags(bags, 10) == pytest.approx((0.5 + 1) / 2)


def test_the_accuracy_equals_cumulated_histograms():
    errors = np.random.default_rng(0).exponential(6, 41)
    errors[::7] = np.inf
    for limit in (5, 10):
        counts = [sum(low <= e < low + 1 for e in errors) for low in range(limit)]
        summed = [sum(counts[: k + 1]) / len(errors) for k in range(limit)]
        assert mean_average_accuracy(errors, limit) == pytest.approx(sum(summed) / limit)


def test_a_scene_is_read_field_by_field(written):
    scene = scenes.read_scene(written / "phototourism", "sacre_coeur")
    assert scene.photos == tuple(name("sacre_coeur", p) for p in range(COUNT))
    assert scene.pairs[0] == (name("sacre_coeur", 1), name("sacre_coeur", 0)) and len(scene.pairs) == 15
    np.testing.assert_array_equal(scene.intrinsics[scene.photos[2]], K)
    np.testing.assert_allclose(scene.poses[scene.photos[4]].rotation, pose(4).rotation)
    point = np.array([0.3, -0.2, 0.9])
    moved = scene.relative(scene.photos[1], scene.photos[4])
    a, b = (p.rotation @ point + p.translation for p in (pose(1), pose(4)))
    np.testing.assert_allclose(moved.rotation @ a + moved.translation, b, atol=1e-12)
    assert {size: [len(bag) for bag in bags] for size, bags in scene.bags.items()} == {3: [3, 3], 5: [5]}
    pairs = tasks.bag_pairs(scene)
    assert len(pairs) == 11  # 10 of five photos, with photo 5 two more, and 1 with 3 shares too few points
    assert (scene.photos[1], scene.photos[3]) not in pairs and (scene.photos[1], scene.photos[5]) in pairs


def test_rows_are_named_as_in_the_paper():
    four = methods(["brief", "sift", "hardnet-xdesc", "sosnet-xdesc"], _Knows(), ("standard", "directional", "embed"))
    assert {method.paper for method in four} == set(tables.paper()["image-matching-challenge"]["rows"])
    assert Method("embed", ("sosnet", "brief")).paper == "embed: BRIEF, SOSNet, 1/2"
    assert (
        Method("directional", ("brief", "orb")).paper == "" and Method("embed", ("sift", "sift-kornia05")).paper == ""
    )
    with pytest.raises(ValueError, match="no rows of kinds embed"):
        methods(["orb"], None, ("embed",))


class _Knows:
    names = ("brief", "sift", "hardnet-xdesc", "sosnet-xdesc")
    space_id = "one"


def _calibration(folder, change):
    with h5py.File(folder / f"calibration/calibration_{stem(2)}.h5", "r+") as file:
        change(file)


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (lambda f: _calibration(f, lambda h: h.pop("R")), "is no calibration with K, R and T"),
        (lambda f: _calibration(f, lambda h: h["R"].write_direct(2 * np.eye(3))), "expected a rotation"),
        (lambda f: _calibration(f, lambda h: h["T"].write_direct(np.full((3, 1), np.nan))), "should be finite"),
        (lambda f: _calibration(f, lambda h: h["K"].write_direct(np.zeros((3, 3)))), "K is"),
        (lambda f: np.save(f / scenes.PAIRS, np.array(["x-y"])), "'x-y' are no two photos"),
        (lambda f: np.save(f / scenes.PAIRS, np.arange(3)), "expected texts PHOTO-PHOTO"),
        (lambda f: (f / scenes.PAIRS).write_bytes(b"none"), "is no list of pairs"),
        (lambda f: (f / "sub_set/3bag_000.txt").write_text(f"images/{stem(0)}.jpg\n"), "expected 3 of the photos"),
        (lambda f: (f / f"visibility/vis_{stem(1)}.txt").write_text("1 2\n"), "holds 2 numbers, expected 6"),
    ],
)
def test_a_damaged_file_is_told_with_its_name(data, break_it, told):
    root = data / "phototourism"
    break_it(root / "sacre_coeur/set_100")
    with pytest.raises(ValueError, match=told):
        scenes.read_scene(root, "sacre_coeur")


def test_what_is_missing_is_told_with_where_to_get_it(data, capsys):
    asked = ["benchmark", "check", "image-matching-challenge", "--data"]
    assert cli.main([*asked, str(data)]) == 0
    assert "reichstag (6 photos), sacre_coeur (6 photos)" in capsys.readouterr().out
    folder = data / "phototourism/reichstag/set_100"
    (folder / f"calibration/calibration_{stem(3)}.h5").unlink()
    (folder / scenes.PAIRS).unlink()
    assert cli.main([*asked, str(data)]) == 2
    told = capsys.readouterr().err
    assert f"calibration_{stem(3)}.h5 is missing" in told and "keys-th-0.1.npy is missing" in told and "3 GB" in told


def test_the_published_set_is_known_by_its_names_and_counts(data, monkeypatch):
    found = scenes.check(data)
    assert "scenes are reichstag, sacre_coeur, where the set has" in found.verdict and not found.official
    monkeypatch.setattr(scenes, "PHOTOS", dict.fromkeys(SCENES, COUNT))
    assert not scenes.check(data).official
    monkeypatch.setattr(scenes, "BAGS", {3: 2, 5: 1})
    assert scenes.check(data).official
    (data / "phototourism/reichstag/set_100/visibility.txt").unlink()
    assert "has no visibility.txt" in scenes.check(data).verdict


def test_a_run_that_was_stopped_goes_on_with_the_bags_that_are_left(written, tmp_path, monkeypatch):
    asked = {"data": written, "out": tmp_path / "out", "features": (write_features(tmp_path / "f"),), "runs": 1}
    asked |= {"ratios": (0.9,), "max_errors_px": (1.0,), "descriptors": ("own-a",), "scenes": ("reichstag",)}
    calls = Calls(monkeypatch, tasks, "bag_errors")
    calls.until = 2
    with pytest.raises(Stopped):
        run(**asked)
    calls.done, calls.until = 0, None
    first = run(**asked)
    assert calls.done == 1
    assert run(**asked) == first and calls.done == 1
    with pytest.raises(FileExistsError, match="another configuration"):
        run(**asked, seed=1)


def test_photos_of_the_sets_alone_are_extracted(data, tmp_path):
    (data / "phototourism/sacre_coeur/dense").mkdir()
    shutil.copy(data / "phototourism" / name("sacre_coeur", 0), data / "phototourism/sacre_coeur/dense/0.jpg")
    asked = {"scenes": ("sacre_coeur",), "tasks": ("stereo",), "ratios": (0.9,), "max_errors_px": (1.0,), "runs": 1}
    (row,) = run(data=data, out=tmp_path / "out", descriptors=("orb",), max_keypoints=40, **asked).rows
    assert [row.values[area] is None for area in AREAS] == [False, False, True, True]
    with FeatureStore(tmp_path / "out/features/orb.h5") as store:
        assert sorted(store.names) == [name("sacre_coeur", p) for p in range(COUNT)]


def test_a_scene_that_is_not_there_is_told(written, tmp_path):
    with pytest.raises(ValueError, match="has no scene 'st_peters_square' .there are reichstag, sacre_coeur"):
        run(data=written, out=tmp_path / "out", scenes=("st_peters_square",), descriptors=("orb",))
