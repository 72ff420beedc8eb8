"""Which photos of a map are matched, which ones queries are matched with, and models of poses alone."""

import numpy as np
import pytest

from tests.support.aachen_folder import write_global
from xdesc_jax.colmap.bindings.api import read_model
from xdesc_jax.colmap.model import Camera, Pose
from xdesc_jax.evaluate.benchmarks.places import maps, retrieved
from xdesc_jax.evaluate.benchmarks.places.deployments import SCENARIOS, Deployment, possible

NAMES = [f"db/{i}.jpg" for i in range(13)]


def poses_at(centers):
    turn = Pose.from_quaternion(np.array([1, 0.1, -0.2, 0.3]), np.zeros(3)).rotation
    return {name: Pose(turn, -turn @ center) for name, center in zip(NAMES, np.asarray(centers, float), strict=False)}


def test_each_photo_is_paired_with_those_that_were_taken_nearest():
    poses = poses_at(np.random.default_rng(0).normal(size=(13, 3)))
    expected = set()
    for a in poses:
        near = sorted((np.linalg.norm(poses[a].center - poses[b].center), b) for b in poses if b != a)
        expected |= {(min(a, b), max(a, b)) for _, b in near[:4]}
    assert maps.spatial_pairs(poses, 4) == sorted(expected)
    assert len(maps.spatial_pairs(poses, 99)) == 13 * 12 // 2


def test_photos_taken_at_one_place_are_neighbours_by_name():
    pairs = maps.spatial_pairs(poses_at([[0, 0, 0]] * 4 + [[9, 0, 0]]), 1)
    assert ("db/0.jpg", "db/1.jpg") in pairs and len(pairs) == 4
    assert maps.spatial_pairs(poses_at([[0, 0, 0]]), 20) == []


def test_a_model_of_poses_alone_is_read_as_it_was_written(tmp_path):
    poses = poses_at([[1, 2, 3], [4, 5, 6]])
    cameras = {name: Camera("SIMPLE_RADIAL", 640, 480, (500.5 + i, 320, 240, 0.01)) for i, name in enumerate(poses)}
    model = read_model(maps.write_posed(tmp_path / "posed", poses, cameras))
    assert list(model.names) == sorted(poses) and len(model.points) == 0
    assert [c.params for c in model.cameras] == [cameras[n].params for n in model.names]
    for name, pose in poses.items():
        np.testing.assert_allclose(model.poses[name].center, pose.center, atol=1e-12)
    with pytest.raises(ValueError, match=r"1 photo has no intrinsics, first \['db/1.jpg'\]"):
        maps.write_posed(tmp_path / "other", poses, {NAMES[0]: cameras[NAMES[0]]})


def test_the_first_pairs_of_a_query_are_taken(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("q2 c\nq1 b\nq1 unknown\nother a\nq1 a\nq1 b\nq1 c\nq2 b\n")
    assert retrieved.listed(path, ["q1", "q2"], ["a", "b", "c"], 2) == [
        ("q1", "b"), ("q1", "a"), ("q2", "c"), ("q2", "b"),
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"pairs.txt: no pair of 1 of 2 queries .* first \['q3'\]"):
        retrieved.listed(path, ["q1", "q3"], ["a"], 2)


def test_photos_with_the_most_similar_global_features_are_found(tmp_path):
    rng = np.random.default_rng(1)
    rows = {
        name: rng.normal(size=7).astype(np.float32) * 10**i for i, name in enumerate([*NAMES[:5], "q/1.jpg", "q/2"])
    }
    path = write_global(tmp_path / "global.h5", rows)
    expected = []
    for query in ("q/1.jpg", "q/2"):
        cosine = {n: rows[query] @ rows[n] / np.linalg.norm(rows[n]) for n in NAMES[:5]}
        expected += [(query, n) for n in sorted(cosine, key=cosine.get, reverse=True)[:3]]
    assert retrieved.nearest(path, ["q/1.jpg", "q/2"], NAMES[4::-1], 3) == expected
    with pytest.raises(ValueError, match=r"1 photo without 'global_descriptor' in .*global.h5, first \['q/3'\]"):
        retrieved.nearest(path, ["q/3"], NAMES[:5], 3)
    alike = {name: np.ones(3, np.float32) for name in ("q", "b", "a", "c")}
    path = write_global(tmp_path / "alike.h5", alike | {"zero": np.zeros(3, np.float32)})
    assert retrieved.nearest(path, ["q"], ["c", "b", "a"], 2) == [("q", "a"), ("q", "b")]
    assert retrieved.nearest(path, ["q"], ["zero", "b"], 2) == [("q", "b")]
    with pytest.raises(ValueError, match=r"global features of 1 queries are zero, first \['zero'\]"):
        retrieved.nearest(path, ["q", "zero"], ["a"], 1)


def test_rows_are_those_that_the_translator_allows():
    four = ("brief", "sift", "hardnet", "sosnet")
    assert len(possible(four, four, True, SCENARIOS)) == 4 + 12 + 12 + 4
    assert [row.label for row in possible(("a", "b"), (), False, SCENARIOS)] == ["standard: a", "standard: b"]
    # one that the translator does not know takes no part in a collaborative map
    rows = possible(("a", "b", "c"), ("a", "b"), True, SCENARIOS)
    assert [row.scenario for row in rows].count("collaborative") == 0 and len(rows) == 3 + 2 + 2
    assert len(possible(("a", "b"), ("a", "b"), False, SCENARIOS)) == 6
    with pytest.raises(ValueError, match="no rows of cross-device with a, b; .* knows none"):
        possible(("a", "b"), (), False, ("cross-device",))
    assert Deployment("cross-device", "sift", "brief").paper_row == "cross-device: SIFT <- BRIEF"
    assert Deployment("collaborative", "embed", "sosnet-xdesc").paper_row == "collaborative: embed <- SOSNet"
    assert Deployment("standard", "xfeat", "xfeat").paper_row == ""
