"""What poses rest on: computed errors against an independent projection, and the file that keeps them."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from tests.support.place import rewrite
from xdesc_jax.cli import main
from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.localization import correspondences
from xdesc_jax.localization.correspondences import Correspondences


def made(n, inliers, seed=0):
    rng = np.random.default_rng(seed)
    return Correspondences(
        np.arange(n), rng.integers(0, 2**40, n), rng.random((n, 2)) * 100, rng.random(n), np.arange(n) < inliers
    )


def localized(place, tmp_path, *words, features="own-a"):
    queries = tmp_path / "queries.txt"
    queries.write_text(place.query_list)
    given = ["localize", place.model, tmp_path / "out", "--features", place.features["own-a"], "--queries", queries]
    given += ["--pairs", "exhaustive", "--query-features", place.features.get(features, features), *words]
    assert main([str(word) for word in given]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    return results, correspondences.read(tmp_path / "out" / correspondences.FILE, results["config_hash"])


def test_what_is_written_is_read(tmp_path):
    given = {"a b/é.jpg": made(5, 3), "none.jpg": Correspondences.none(), "c.jpg": made(7, 0, seed=1)}
    path = correspondences.write(tmp_path / "c.npz", "abc", given)
    found = correspondences.read(path, "abc")
    assert list(found) == list(given)
    for name, expected in given.items():
        for field in dataclasses.fields(Correspondences):
            values = getattr(expected, field.name)
            np.testing.assert_allclose(getattr(found[name], field.name), values, rtol=1e-6)
    assert found["c.jpg"].point.dtype == np.int64


def test_a_file_holds_few_of_many_and_inliers_first(tmp_path):
    found = correspondences.read(correspondences.write(tmp_path / "c.npz", "h", {"a": made(5000, 1200)}), "h")["a"]
    assert len(found) == correspondences.KEPT and found.inlier.sum() == 1200
    np.testing.assert_array_equal(found.keypoint[:1200], np.arange(1200))
    assert found.keypoint[1200] == 1200 and found.keypoint[-1] == 4999
    more = correspondences.read(correspondences.write(tmp_path / "d.npz", "h", {"a": made(5000, 4000)}), "h")["a"]
    assert len(more) == correspondences.KEPT and more.inlier.all() and more.keypoint[-1] == 3999


def test_a_file_of_other_results_is_refused(tmp_path):
    path = correspondences.write(tmp_path / "c.npz", "abc", {"a": made(2, 1)})
    with pytest.raises(ValueError, match=r"c\.npz: belongs to results of configuration abc, .* of xyz"):
        correspondences.read(path, "xyz")


@pytest.mark.parametrize("keep", [0, 40, 400])
def test_a_file_that_is_cut_short_is_refused(tmp_path, keep):
    path = correspondences.write(tmp_path / "c.npz", "abc", {"a": made(9, 4)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"c\.npz: not an \.npz file"):
        correspondences.read(path, "abc")


def test_localize_keeps_errors_and_colmap_ids_of_its_inliers(place, tmp_path):
    """Half of a query's keypoints are moved by 3 px: their errors say so, by a projection written out here."""

    def moved(name, photo):
        keypoints = photo.keypoints.copy()
        keypoints[::2, 0] += 3
        return dataclasses.replace(photo, keypoints=keypoints)

    results, found = localized(place, tmp_path, features=rewrite(place.features["own-a"], tmp_path / "q.h5", moved))
    model = read_model(place.model)
    with FeatureStore(tmp_path / "q.h5") as store:
        for name in place.queries:
            kept, entry = found[name], results["queries"][name]
            assert kept.inlier.sum() == entry["inliers"] and len(kept) >= entry["matches"]
            np.testing.assert_array_equal(kept.xy, store.keypoints(name)[kept.keypoint])
            w, x, y, z = entry["qvec"]
            rotation = np.array(
                [
                    [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
                    [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
                    [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
                ]
            )
            points = model.points[[list(model.point_ids).index(i) for i in kept.point]]
            seen = points @ rotation.T + entry["tvec"]
            camera = entry["camera"]
            assert camera["model"] == "SIMPLE_RADIAL"
            f, cx, cy, k = camera["params"]
            u = seen[:, :2] / seen[:, 2:]
            projected = f * u * (1 + k * (u**2).sum(axis=1, keepdims=True)) + [cx, cy] - 0.5
            errors = np.linalg.norm(projected - kept.xy, axis=1)
            np.testing.assert_allclose(kept.error_px, errors, atol=1e-3)
            assert (errors[kept.inlier] <= results["settings"]["max_error_px"]).all() and errors.max() > 1


def test_results_say_where_their_files_lie(place, tmp_path, monkeypatch):
    monkeypatch.chdir(place.model.parent)
    results, _ = localized(dataclasses.replace(place, model=place.model.relative_to(place.model.parent)), tmp_path)
    assert results["paths"]["reconstruction"] == str(place.model.resolve())
    assert results["paths"]["features"] == [str(place.features["own-a"].resolve())]


def test_a_query_without_a_pose_keeps_its_matches(place, tmp_path):
    results, found = localized(place, tmp_path, "--min-inliers", 500)
    for name in place.queries:
        assert results["queries"][name]["status"] == "failed" and results["queries"][name]["matches"] == 120
        assert len(found[name]) == 120 and not found[name].inlier.any() and np.isnan(found[name].error_px).all()


def test_results_without_the_file_are_made_again(place, tmp_path):
    localized(place, tmp_path)
    (tmp_path / "out" / correspondences.FILE).unlink()
    localized(place, tmp_path)
    assert (tmp_path / "out" / correspondences.FILE).exists()


@pytest.mark.parametrize(
    ("array", "values"),
    [
        ("count", np.array([5, -5])),
        ("count", np.array([2.0, 3.0])),
        ("count", np.array([5])),
        ("count", np.array([2**62, 2**62])),
        ("xy", np.zeros(5, "f4")),
        ("keypoint", np.zeros(5, "M8[s]")),
        ("inlier", np.zeros(5, "f4")),
        ("point", np.zeros((5, 2), "i8")),
    ],
)
def test_arrays_that_do_not_fit_the_queries_are_refused(tmp_path, array, values):
    path = correspondences.write(tmp_path / "c.npz", "abc", {"a": made(2, 1), "b": made(3, 1)})
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **(arrays | {array: values}))
    with pytest.raises(ValueError, match="c.npz: (is damaged|not an .npz)"):
        correspondences.read(path, "abc")


@pytest.mark.parametrize("names", [["a", {}], ["a", "a"], {"a": 1, "b": 2}, 7])
def test_queries_that_are_no_names_are_refused(tmp_path, names):
    path = correspondences.write(tmp_path / "c.npz", "abc", {"a": made(2, 1), "b": made(3, 1)})
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(bytes(arrays["header"])) | {"queries": names}
    np.savez(path, **(arrays | {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}))
    with pytest.raises(ValueError, match="c.npz: is damaged, its queries are"):
        correspondences.read(path, "abc")
