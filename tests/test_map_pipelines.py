"""The experiments on maps, on a synthetic corner of a room; the parts that they share."""

from __future__ import annotations

import json

import numpy as np
import pytest

cv2 = pytest.importorskip("cv2", reason="needs the features extra")

from pipelines import corner, motorcycle  # noqa: E402
from pipelines.collaborative import collaborative  # noqa: E402
from pipelines.collaborative import table_rows as mapping_rows  # noqa: E402
from pipelines.localization import localization  # noqa: E402
from tests.support.feature_files import write_store  # noqa: E402
from tests.support.html_page import HtmlPage  # noqa: E402
from xdesc_jax.evaluate.benchmarks.places.deployments import Deployment  # noqa: E402
from xdesc_jax.evaluate.benchmarks.places.deployments import table_rows as localization_rows  # noqa: E402
from xdesc_jax.evaluate.divided import split, write_split  # noqa: E402
from xdesc_jax.features.store import FeatureStore  # noqa: E402
from xdesc_jax.localization.localizer import Localizer  # noqa: E402

FOUR = ("brief", "sift", "hardnet-xdesc", "sosnet-xdesc")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """Six photos with their true model."""
    return corner.save_scene(tmp_path_factory.mktemp("scene") / "corner")


SMALL = {"descriptors": ("brief", "sift"), "model": "opencv", "keypoints": "opencv", "max_keypoints": 300, "seeds": 2}


def test_table_1_has_the_rows_of_the_paper():
    rows = localization_rows(FOUR)
    counts = {s: sum(r.scenario == s for r in rows) for s in dict.fromkeys(r.scenario for r in rows)}
    assert counts == {"standard": 4, "continuous deployment": 12, "cross-device": 12, "collaborative": 4}
    assert Deployment("continuous deployment", "a", "b").mode == ("directional", "b")
    assert Deployment("cross-device", "a", "b").mode == ("directional", "a")


def test_table_2_has_the_rows_of_the_paper():
    assert [(r.method, r.descriptor) for r in mapping_rows(FOUR)] == [
        *(("standard", d) for d in FOUR), *(("own quarter", d) for d in FOUR), ("embed", "all"), ("progressive", "all"),
    ]  # fmt: skip


def test_all_rows_of_table_1_localise_on_a_scene_and_are_kept(scene, tmp_path, monkeypatch):
    rows = localization(scene, out=tmp_path, scale="relative", every=3, **SMALL)
    assert len(rows) == 2 + 2 + 2 + 2
    for row in rows:
        for repeat in row["repeats"]:
            assert repeat["within"]["0.5 u, 5 deg"] == 1, row
            assert repeat["inliers"] >= 12 and repeat["median_position"] < 0.1
    value = json.loads((tmp_path / "results.json").read_text())
    assert value["settings"]["queries"] == 2 and len(value["rows"]) == 8
    page = HtmlPage.read(tmp_path / "report.html")
    page.check()
    limit = next(iter(rows[0]["repeats"][0]["within"]))
    near = {
        s: np.mean([100 * repeat["within"][limit] for row in rows if row["scenario"] == s for repeat in row["repeats"]])
        for s in ("standard", "continuous deployment", "cross-device")
    }
    assert page.by_class["answer"] == [
        f"In maps of another descriptor {near['continuous deployment']:.0f} % of the queries are localised within "
        f"{limit} where the map is translated, {near['cross-device']:.0f} % where they are; in maps of their own "
        f"{near['standard']:.0f} %."
    ]
    assert len(page.tables[0]) == 1 + 8
    monkeypatch.setattr(Localizer, "open", None)  # nothing is localised again
    assert localization(scene, out=tmp_path, scale="relative", every=3, **SMALL) == rows


def test_a_model_that_takes_frames_gets_those_of_the_queries(scene, tmp_path):
    asked = {**SMALL, "descriptors": ("brief", "opencv-sift"), "model": "mixed", "seeds": 1}
    rows = localization(scene, out=tmp_path, scale="relative", every=3, **asked)
    joint = [row["repeats"][0] for row in rows if row["scenario"] == "collaborative"]
    assert len(joint) == 2 and all(repeat["within"]["0.5 u, 5 deg"] == 1 for repeat in joint)


def test_all_rows_of_table_2_map_a_scene(scene, tmp_path):
    rows = collaborative(scene, out=tmp_path, scale="relative", **SMALL)
    found = {(row["method"], row["descriptor"]): row["repeats"] for row in rows}
    assert len(found) == 6 and all(len(repeats) == 2 for repeats in found.values())
    for key in (("standard", "sift"), ("embed", "all")):
        for repeat in found[key]:
            assert repeat["aligned"] and repeat["registered_share"] >= 4 / 6, (key, repeat)
            assert repeat["within_position"]["0.5 u"] >= 4 / 6
    assert all(repeat["registered_share"] <= 0.5 for repeat in found["own quarter", "sift"])
    page = HtmlPage.read(tmp_path / "report.html")
    page.check()
    together = np.mean([100 * repeat.get("within_position", {}).get("0.1 u", 0) for repeat in found["embed", "all"]])
    assert f"together: {together:.0f} % are mapped within 0.1 u in the joint space" in page.by_class["answer"][0]
    assert "Co-visibility, embed" in page.text


def test_a_split_is_balanced_and_follows_the_seed():
    names = [f"{i}.jpg" for i in range(11)]
    a, b = split(names, FOUR, 0), split(names, FOUR, 1)
    assert a == split(names, FOUR, 0) != b and set(a) == set(names)
    assert sorted(sum(kind == d for kind in a.values()) for d in FOUR) == [2, 3, 3, 3]


def test_split_files_hold_each_photo_once_with_its_rows(tmp_path):
    names = ["a.jpg", "b.jpg", "c.jpg"]
    stores = {d: write_store(tmp_path, d, names) for d in ("sift", "hardnet")}
    files = write_split(stores, {"a.jpg": "sift", "b.jpg": "hardnet", "c.jpg": "sift"}, tmp_path / "split")
    with FeatureStore(files[0]) as found, FeatureStore(stores["sift"]) as whole:
        assert found.names == ["a.jpg", "c.jpg"] and found.spec.name == "sift"
        np.testing.assert_array_equal(found.read("c.jpg").descriptors, whole.read("c.jpg").descriptors)
    with FeatureStore(files[1]) as found:
        assert found.names == ["b.jpg"] and found.spec.name == "hardnet"


def test_files_of_one_split_are_not_taken_for_those_of_another(tmp_path):
    names = ["a.jpg", "b.jpg", "c.jpg"]
    stores = {d: write_store(tmp_path, d, names) for d in ("sift", "hardnet")}
    write_split(stores, dict(zip(names, ("sift", "hardnet", "sift"), strict=True)), tmp_path / "split")
    (alone,) = write_split(stores, dict.fromkeys(names, "sift"), tmp_path / "split")
    with FeatureStore(alone) as found:
        assert found.names == names
    other = {"sift": write_store(tmp_path / "other", "sift", names, rows=4)}
    (again,) = write_split(other, dict.fromkeys(names, "sift"), tmp_path / "split")
    with FeatureStore(again) as found, FeatureStore(other["sift"]) as whole:
        np.testing.assert_array_equal(found.read("c.jpg").descriptors, whole.read("c.jpg").descriptors)


def test_disparity_becomes_points_that_the_right_photo_sees_at_it():
    rng = np.random.default_rng(0)
    disparity = np.full((500, 741), np.nan)
    keypoints = np.stack([rng.integers(100, 700, 40), rng.integers(0, 500, 40)], axis=1).astype(np.float32)
    shift = rng.uniform(5, 60, 40)
    disparity[keypoints[:, 1].astype(int), keypoints[:, 0].astype(int)] = shift
    disparity[int(keypoints[3, 1]), int(keypoints[3, 0])] = np.inf
    model = motorcycle.map_of_left(keypoints, disparity)
    assert 3 not in model.keypoint and len(model.points) == 39
    pose, right = motorcycle.true_pose(), motorcycle.camera(motorcycle.OFFSET_PX, (741, 500))
    seen = model.points @ pose.rotation.T + pose.translation
    xy = seen[:, :2] / seen[:, 2:] * right.params[:2] + right.params[2:] - 0.5
    expected = keypoints[model.keypoint] - np.stack([shift[model.keypoint], np.zeros(39)], axis=1)
    np.testing.assert_allclose(xy, expected, atol=1e-3)
