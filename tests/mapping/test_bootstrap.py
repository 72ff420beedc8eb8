"""Bootstrapping a translated map: which rows are replaced, and by what."""

import dataclasses
import json
import shutil

import h5py
import numpy as np
import pytest

from tests.support.html_page import HtmlPage
from tests.support.in_use import check_refused_while_in_use
from tests.support.place import rewrite
from tests.support.stopped import Calls, Stopped
from tests.support.updated_map import photos, run
from xdesc_jax.cli import main
from xdesc_jax.colmap.bindings.api import pycolmap, read_model
from xdesc_jax.colmap.bindings.database import NewDatabase
from xdesc_jax.colmap.descriptor_types import OTHER_TYPE
from xdesc_jax.colmap.lists import read_queries
from xdesc_jax.descriptors import unit_rows
from xdesc_jax.features.keypoints import Keypoints, to_colmap
from xdesc_jax.files.claim import beside
from xdesc_jax.localization.localizer import Localizer
from xdesc_jax.mapping.bootstrap import UpdatedMap
from xdesc_jax.matching.feature_set import FeatureSet


def point_of(model, name):
    """Row -> point of a photo."""
    at = model.names.index(name)
    return dict(zip(model.keypoint[model.view == at].tolist(), model.point[model.view == at].tolist(), strict=True))


def test_rows_of_observed_points_become_those_of_the_new_photo_and_others_stay(place, translated, new, tmp_path):
    out = tmp_path / "out"
    one = tmp_path / "one.txt"
    one.write_text(new.read_text().splitlines()[0] + "\n")
    assert run(place, out, translated, one) == 0
    before, after, native = photos(translated), photos(out / "features.h5"), photos(place.features["own-b"])
    model, name = read_model(out / "model"), place.queries[0]
    seen = {point: row for row, point in point_of(model, name).items()}
    assert len(seen) > 100
    for photo in place.names:
        for row, point in point_of(model, photo).items():
            assert after[photo].real[row] == (point in seen)
            if point in seen:
                expected = native[name].descriptors[seen[point]]
                np.testing.assert_allclose(after[photo].descriptors[row], expected, atol=1e-6)
            else:
                np.testing.assert_array_equal(after[photo].descriptors[row], before[photo].descriptors[row])
        unseen = np.setdiff1d(np.arange(len(before[photo])), list(point_of(model, photo)))
        assert not after[photo].real[unseen].any()
        np.testing.assert_array_equal(after[photo].descriptors[unseen], before[photo].descriptors[unseen])
    summary = json.loads((out / "summary.json").read_text())
    assert summary["registered"] == [name] and summary["failed"] == {}
    assert summary["steps"][0]["real_rows"] == 0 and summary["steps"][1]["real_rows"] > 0.9
    page, last = HtmlPage.read(out / "report.html"), summary["steps"][1]
    page.check()
    real = f"{100 * last['real_rows']:.1f}"
    assert page.by_class["answer"] == [f"1 of 1 new photos registered; {real} % of the map's rows are real now."]
    assert [row[:3] for row in page.rows[1:3]] == [["0", "0", "0.0"], ["1", "1", real]]


def test_new_photos_are_part_of_the_model_which_localises(place, translated, new, tmp_path):
    out = tmp_path / "out"
    assert run(place, out, translated, new) == 0
    old, found = pycolmap.Reconstruction(place.model), pycolmap.Reconstruction(out / "model")
    assert found.num_reg_images() == old.num_reg_images() + 2
    assert found.compute_num_observations() > old.compute_num_observations() + 200
    assert found.compute_mean_reprojection_error() < 0.01
    model = read_model(out / "model")
    for name in place.queries:
        np.testing.assert_allclose(model.poses[name].center, place.poses[name].center, atol=1e-4)
    words = ["localize", out / "model", tmp_path / "again", "--features", out / "features.h5", "--queries", new]
    assert main([str(w) for w in [*words, "--query-features", place.features["own-b"], "--pairs", "exhaustive"]]) == 0


def test_native_rows_are_never_touched(place, new, tmp_path):
    native = rewrite(place.features["own-b"], tmp_path / "b.h5", lambda n, p: p if n in place.names else None)
    assert run(place, tmp_path / "out", native, new) == 0
    after = photos(tmp_path / "out" / "features.h5")
    for name, photo in photos(native).items():
        np.testing.assert_array_equal(after[name].descriptors, photo.descriptors)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["steps"][0]["real_rows"] == 1


def test_a_photo_that_is_not_registered_changes_nothing(place, translated, new, tmp_path, capsys):
    rng = np.random.default_rng(1)
    other = rewrite(
        place.features["own-b"], tmp_path / "other.h5",
        lambda n, p: dataclasses.replace(p, descriptors=unit_rows(rng.normal(size=p.descriptors.shape))),
    )  # fmt: skip
    assert run(place, tmp_path / "out", translated, new, new_features=other) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["registered"] == [] and set(summary["failed"]) == set(place.queries)
    assert place.queries[0] in capsys.readouterr().err
    after = photos(tmp_path / "out" / "features.h5")
    for name, photo in photos(translated).items():
        np.testing.assert_array_equal(after[name].descriptors, photo.descriptors)
        assert not after[name].real.any()


def test_the_ratio_given_is_the_one_of_the_matching(place, translated, new, tmp_path):
    """Rows of a point differ, so under a ratio of next to nothing no two match."""
    assert run(place, tmp_path / "out", translated, new, "--ratio", "1e-6") == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["registered"] == [] and set(summary["failed"]) == set(place.queries)


def test_an_update_goes_on_from_an_update(place, translated, new, tmp_path):
    lines = new.read_text().splitlines(keepends=True)
    for i, line in enumerate(lines):
        (tmp_path / f"{i}.txt").write_text(line)
    first, second = tmp_path / "first", tmp_path / "second"
    assert run(place, first, translated, tmp_path / "0.txt") == 0
    assert run(place, second, first / "features.h5", tmp_path / "1.txt", model=first / "model") == 0
    a, b = photos(first / "features.h5"), photos(second / "features.h5")
    assert set(b) == set(a) | {place.queries[1]}
    for name in place.names:
        was = a[name].real
        np.testing.assert_array_equal(b[name].descriptors[was], a[name].descriptors[was])  # real rows stay
        assert b[name].real[was].all()
    steps = [json.loads((out / "summary.json").read_text())["steps"] for out in (first, second)]
    assert steps[1][0]["real_rows"] == pytest.approx(steps[0][-1]["real_rows"])


def test_a_map_of_which_a_part_is_gone_is_made_again(place, translated, new, tmp_path):
    out = tmp_path / "out"
    assert run(place, out, translated, new) == 0
    points = (out / "model" / "points3D.bin").read_bytes()
    shutil.rmtree(out / "model")
    assert run(place, out, translated, new) == 0
    assert (out / "model" / "points3D.bin").read_bytes() == points


def test_of_two_photos_the_one_that_looks_from_the_nearest_direction_gives_the_row(place, translated, new, tmp_path):
    """Both come in one batch and see all points."""
    assert run(place, tmp_path / "out", translated, new) == 0
    after, native = photos(tmp_path / "out" / "features.h5"), photos(place.features["own-b"])
    model = read_model(tmp_path / "out" / "model")
    rows = {name: {p: r for r, p in point_of(model, name).items()} for name in place.queries}
    photo, checked = place.names[0], 0
    for row, point in point_of(model, photo).items():
        if all(point in rows[name] for name in place.queries):
            rays = {n: place.poses[n].center - model.points[point] for n in [photo, *place.queries]}
            unit = {n: ray / np.linalg.norm(ray) for n, ray in rays.items()}
            nearest = max(place.queries, key=lambda n: unit[n] @ unit[photo])
            expected = native[nearest].descriptors[rows[nearest][point]]
            np.testing.assert_allclose(after[photo].descriptors[row], expected, atol=1e-6)
            checked += 1
    assert checked > 100


def test_accuracy_is_reported_after_every_batch(place, translated, new, tmp_path, capsys):
    lines = new.read_text().splitlines(keepends=True)
    (tmp_path / "a.txt").write_text(lines[0])
    (tmp_path / "b.txt").write_text(lines[1])
    scene = pycolmap.Reconstruction()
    for i, (name, camera) in enumerate(read_queries(new).items(), start=1):
        pinhole = pycolmap.Camera(
            camera_id=i, model=camera.model, width=camera.width, height=camera.height, params=list(camera.params)
        )
        scene.add_camera_with_trivial_rig(pinhole)
        pose = pycolmap.Rigid3d(pycolmap.Rotation3d(place.poses[name].rotation), place.poses[name].translation)
        scene.add_image_with_trivial_frame(pycolmap.Image(name=name, camera_id=i, image_id=i), pose)
    (tmp_path / "true").mkdir()
    scene.write(tmp_path / "true")
    words = ["--test-queries", tmp_path / "b.txt", "--test-features", place.features["own-b"]]
    assert run(place, tmp_path / "out", translated, tmp_path / "a.txt", *words, "--reference", tmp_path / "true") == 0
    steps = json.loads((tmp_path / "out" / "summary.json").read_text())["steps"]
    assert [step["test"]["localized"] for step in steps] == [1, 1]
    assert steps[1]["test"]["within"]["0.25 m, 2 deg"] == 1 and steps[1]["test"]["median_position"] < 1e-3
    assert "localised" in capsys.readouterr().out


def test_cameras_that_the_list_lacks_come_from_other_intrinsics(place, translated, new, tmp_path, capsys):
    """As `xdesc localize` takes them; without, the photo is named."""
    names = tmp_path / "names.txt"
    names.write_text("".join(f"{name}\n" for name in place.queries))
    assert run(place, tmp_path / "out", translated, names) == 2
    assert f"{len(place.queries)} queries have no intrinsics" in capsys.readouterr().err
    assert run(place, tmp_path / "out", translated, names, "--intrinsics", new) == 0
    assert run(place, tmp_path / "expected", translated, new) == 0
    found, expected = (read_model(tmp_path / folder / "model") for folder in ("out", "expected"))
    assert found.cameras == expected.cameras and found.names == expected.names
    assert set(place.queries) <= set(found.names)
    camera = place.cameras[place.queries[0]]
    words = [camera.model, camera.width, camera.height, *camera.params]
    assert run(place, tmp_path / "one", translated, names, "--camera", " ".join(map(str, words))) == 0
    assert read_model(tmp_path / "one" / "model").cameras == expected.cameras
    assert json.loads((tmp_path / "one" / "summary.json").read_text())["settings"]["camera"]["model"] == camera.model


def test_of_two_keypoints_of_a_photo_at_one_point_one_is_replaced(place, translated, new, tmp_path):
    model = pycolmap.Reconstruction(place.model)
    image = next(i for i in model.images.values() if i.name == place.names[0])
    seen = [k for k, p in enumerate(image.points2D) if p.has_point3D()]
    free = next(k for k, p in enumerate(image.points2D) if not p.has_point3D())
    model.add_observation(image.points2D[seen[0]].point3D_id, pycolmap.TrackElement(image.image_id, free))
    (tmp_path / "twice").mkdir()
    model.write(tmp_path / "twice")
    assert run(place, tmp_path / "out", translated, new, model=tmp_path / "twice") == 0
    after = photos(tmp_path / "out" / "features.h5")[place.names[0]]
    assert after.real[seen[0]] and not after.real[free]


def test_a_rig_that_has_the_next_id_is_no_obstacle(place, translated, new, tmp_path):
    model = pycolmap.Reconstruction(place.model)
    rig = pycolmap.Rig()
    rig.rig_id = max(*model.cameras, *model.images) + 1
    camera = pycolmap.Camera(camera_id=rig.rig_id + 7, model="SIMPLE_PINHOLE", width=9, height=9, params=[9, 4, 4])
    model.add_camera(camera)
    rig.add_ref_sensor(camera.sensor_id)
    model.add_rig(rig)
    (tmp_path / "rigs").mkdir()
    model.write(tmp_path / "rigs")
    assert run(place, tmp_path / "out", translated, new, model=tmp_path / "rigs") == 0
    assert pycolmap.Reconstruction(tmp_path / "out" / "model").num_reg_images() == len(place.names) + 2


def test_a_map_photo_without_descriptors_gets_real_rows(place, translated, new, tmp_path):
    bare = place.names[0]
    rest = shutil.copy(translated, tmp_path / "rest.h5")
    with h5py.File(rest, "a") as file:
        del file[bare]
    xy = photos(translated)[bare].keypoints
    with NewDatabase(tmp_path / "bare.db") as db:
        image = db.add_photo(bare, db.add_camera(place.cameras[bare]))
        db.write_features(image, to_colmap(Keypoints(xy, np.full(len(xy), 2.0), np.ones(len(xy)))), None, OTHER_TYPE)
    words = ["map", "update", place.model, tmp_path / "out", "--features", rest, tmp_path / "bare.db"]
    words += [
        "--queries",
        new,
        "--new-features",
        place.features["own-b"],
        "--retrieval",
        4,
        "--model",
        place.translator,
    ]
    assert main(list(map(str, words))) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["registered"] == place.queries and summary["steps"][-1]["real_rows"] > 0.9
    photo = photos(tmp_path / "out" / "features.h5")[bare]
    assert photo.real.sum() > 100
    np.testing.assert_array_equal(photo.valid, photo.real)
    np.testing.assert_array_equal(photo.descriptors.any(axis=1), photo.real)
    np.testing.assert_allclose(np.stack([photo.scales, photo.oris]), np.tile([[2.0], [1.0]], len(xy)), atol=1e-6)


def test_new_photos_are_native_afterwards_and_the_others_are_not(place, translated, new, tmp_path):
    assert run(place, tmp_path / "out", translated, new) == 0
    with FeatureSet([tmp_path / "out" / "features.h5"]) as features:
        assert features.held(place.queries[0]).translated_from is None
        assert features.held(place.names[0]).translated_from == "own-a"


def test_new_photos_are_retrieved_for_later_ones(place, translated, new, tmp_path, monkeypatch):
    candidates, take_in = {}, UpdatedMap.take_in

    def watched(self, batch, *recall):
        found = take_in(self, batch, *recall)
        candidates.update({name: result.candidates for name, result in found.items()})
        return found

    monkeypatch.setattr(UpdatedMap, "take_in", watched)
    words = ["--batch", 1, "--retrieval", 50, "--model", place.translator]
    assert run(place, tmp_path / "out", translated, new, *words) == 0
    first, second = place.queries
    assert first in candidates[second] and set(candidates[first]) == set(place.names)


def test_a_stopped_update_goes_on_and_ends_as_an_undisturbed_one(
    place, translated, new, tmp_path, monkeypatch, caplog, capsys
):
    lines = new.read_text().splitlines(keepends=True)
    (tmp_path / "a.txt").write_text(lines[0])
    (tmp_path / "b.txt").write_text(lines[1])
    words = ["--test-queries", tmp_path / "b.txt", "--test-features", place.features["own-b"]]
    expected, out = tmp_path / "expected" / "map", tmp_path / "out" / "map"
    assert run(place, expected, translated, tmp_path / "a.txt", *words) == 0
    localized = Calls(monkeypatch, Localizer, "localize")
    localized.until = 2  # the test photo, and the new one
    with pytest.raises(Stopped):
        run(place, out, translated, tmp_path / "a.txt", *words)
    localized.until = None
    with caplog.at_level("INFO", "xdesc_jax"):
        assert run(place, out, translated, tmp_path / "a.txt", *words) == 0
    assert localized.done == 3 and "going on: 2 photos are localised already" in caplog.text
    assert [path.name for path in out.parent.iterdir()] == ["map"]
    for path in sorted(path for path in expected.rglob("*") if path.is_file()):
        assert (out / path.relative_to(expected)).read_bytes() == path.read_bytes(), path
    given = ["map", "update", place.model, out, "--features", translated, "--queries", new, "--overwrite"]
    given += ["--new-features", place.features["own-b"]]
    check_refused_while_in_use(given, beside(out), out, capsys)
