"""Figures of the benchmark across descriptors, scene by scene: shared rows, threads, LightGlue, and runs that stop."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.fake_matcher import in_its_place
from tests.support.network_calls import CALLS
from tests.support.posed_folder import SIZE as POSED_SIZE
from tests.support.posed_folder import K, between, seen
from tests.support.sequence_folder import POINTS, SIZE, homography, positions, write_sequences
from xdesc_jax.colmap.model import Camera
from xdesc_jax.descriptors import get_spec, unit_rows
from xdesc_jax.evaluate.benchmarks.cross import benchmark, matching, plan
from xdesc_jax.evaluate.benchmarks.cross.data import Pair, Posed
from xdesc_jax.evaluate.benchmarks.cross.measuring import Measuring
from xdesc_jax.evaluate.benchmarks.cross.stores import of_matchers
from xdesc_jax.evaluate.relative_ransac import estimator
from xdesc_jax.evaluate.scenes import by_homography
from xdesc_jax.features.images import write_png
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.files.journal import Journal
from xdesc_jax.translation.bundle import Bundle
from xdesc_jax.translation.translator import Translator

pytest.importorskip("cv2", reason="needs the features extra")
pytest.importorskip("pycolmap", reason="needs the features extra")
CAMERA = Camera("PINHOLE", *POSED_SIZE, (K[0, 0], K[1, 1], K[0, 2], K[1, 2]))
SIFT, ALIKED = "opencv-sift", "aliked-n16rot"
NAMES = (SIFT, ALIKED)


def reversing(names=NAMES, width=128):
    """A model that reverses the values of the second descriptor, and leaves those of the first."""
    straight, zeros = np.eye(width, dtype=np.float32), np.zeros(width, np.float32)
    kernels = dict(zip(names, (straight, straight[::-1].copy()), strict=True))
    networks = {f"{part}/{name}": [(k, zeros)] for part in ("encoder", "decoder") for name, k in kernels.items()}
    return Translator(Bundle("encoder_decoder", {name: get_spec(name) for name in names}, width, networks))


@pytest.fixture
def scenes(tmp_path):
    """A plane in three photos and a room in two, with exact rows of SIFT and ALIKED: pairs, and the feature files."""
    write_sequences(tmp_path / "data", ("v_roof",))
    both = [(by_homography(homography(k)), by_homography(np.linalg.inv(homography(k)))) for k in (2, 3)]
    pairs = [Pair("v_roof", "v_roof/1.ppm", f"v_roof/{k}.ppm", *truth) for k, truth in zip((2, 3), both, strict=True)]
    pairs.append(Pair("hall", "hall/0.png", "hall/1.png", Posed((CAMERA, CAMERA), between(0, 1))))
    for k in range(2):
        write_png(tmp_path / f"data/hall/{k}.png", np.zeros((*POSED_SIZE[::-1], 3), np.uint8))
    rng = np.random.default_rng(0)
    points, room = (unit_rows(np.abs(rng.normal(size=(n, 128)))) for n in (POINTS, 60))
    stores = {}
    for name, step, scale in ((SIFT, 1, 512), (ALIKED, -1, 1)):
        stores[name] = tmp_path / f"{name}.h5"
        with StoreWriter(stores[name], get_spec(name)) as writer:
            for k in (1, 2, 3):
                found = scale * points[:, ::step]
                writer.write(f"v_roof/{k}.ppm", ImageFeatures(positions(k), found, np.ones(POINTS, bool), SIZE))
            for k in range(2):
                xy, order = seen(k)
                found = scale * room[order, ::step]
                writer.write(f"hall/{k}.png", ImageFeatures(xy - 0.5, found, np.ones(60, bool), POSED_SIZE))
    return tmp_path / "data", pairs, {("plain", "own"): stores}


def settings(scenes, network=None, estimate=None, translator=None):
    root, _, stores = scenes
    return Measuring(root, stores, translator or reversing(), network, estimate or estimator(), 0)


def planned(*asked):
    return [case for case in plan.cases(NAMES, NAMES, ("plain",), asked, reversing()) if case.keypoints == "own"]


def test_exact_rows_are_all_matched_in_every_way_and_scene(scenes, tmp_path):
    cases = planned("translated", "joint")
    assert len(cases) == 2 + 1 + 2  # ALIKED's keypoints have no frames, which SIFT's rows would need
    with Journal(tmp_path / "journal", "hash") as kept:
        found = settings(scenes).all_figures(cases, scenes[1], kept)
    assert list(found) == cases
    for of_case in found.values():
        assert [(p["matches"], p["correct"], p["repeatability"]) for p in of_case["v_roof"]] == [(41, 41, 1.0)] * 2
        (hall,) = of_case["hall"]
        assert (hall["matches"], hall["inliers"], hall["right"]) == (60, 60, 1.0) and hall["error_deg"] < 0.02


def test_each_photo_is_read_into_a_space_once_for_all_cases(scenes, tmp_path, monkeypatch):
    made = []

    class Rows(matching.Rows):
        def __call__(self, name, target, view=None):
            made.append((self.features.path(name).stem, name, target.name))
            return super().__call__(name, target, view)

    monkeypatch.setattr(matching, "Rows", Rows)
    with Journal(tmp_path / "journal", "hash") as kept:
        settings(scenes).all_figures(planned("translated", "joint"), scenes[1], kept)
    assert len(made) == len(set(made))
    photos = {name: {photo for of, photo, target in made if of == name and "embedding" in target} for name in NAMES}
    assert photos[SIFT] == photos[ALIKED] and len(photos[SIFT]) == 5
    # Of what goes to another descriptor, the map's photos alone.
    assert {photo for of, photo, target in made if (of, target) == (SIFT, ALIKED)} == {"v_roof/1.ppm", "hall/0.png"}


def test_a_run_that_was_stopped_goes_on_and_gives_what_one_without_a_stop_does(scenes, tmp_path):
    cases, calls = planned("translated", "joint"), []

    def stopped(*given, **how):
        calls.append(given)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return estimator()(*given, **how)

    with Journal(tmp_path / "whole", "hash") as kept:
        expected = settings(scenes).all_figures(cases, scenes[1], kept)
    with Journal(tmp_path / "journal", "hash") as kept, pytest.raises(KeyboardInterrupt):
        settings(scenes, estimate=stopped).all_figures(cases, scenes[1], kept)
    with Journal(tmp_path / "journal", "hash") as kept:
        done = len(kept)
        assert 5 <= done < 10  # the sequence, and a part of the posed scene
        seconds = []
        again = settings(scenes, estimate=lambda *a, **b: seconds.append(a) or estimator()(*a, **b))
        assert again.all_figures(cases, scenes[1], kept) == expected
    assert len(seconds) == 10 - done


@pytest.fixture
def weights(monkeypatch, tmp_path):
    return (in_its_place(monkeypatch, tmp_path).removeprefix("--weights="),)


def test_lightglue_matches_native_and_translated_rows_in_sequences_and_posed_scenes(
    scenes, tmp_path, monkeypatch, weights
):
    monkeypatch.setenv(CALLS, str(tmp_path / "calls"))
    cases = planned("lightglue")
    assert [(case.known, case.device) for case in cases if case.way == "lightglue"] == [
        (SIFT, ALIKED),
        (ALIKED, ALIKED),
    ]
    network = benchmark.matcher_of(cases, reversing(), (*weights, "xfeat=of-a-descriptor"))
    with network, Journal(tmp_path / "journal", "hash") as kept:
        found = settings(scenes, network).all_figures(cases, scenes[1], kept)
    for case in cases:
        assert [p["correct"] for p in found[case]["v_roof"]] == [41, 41]
        assert found[case]["hall"][0]["inliers"] == 60
    assert len((tmp_path / "calls").read_text().splitlines()) == 2 * 3  # two cases, three pairs


def test_lightglue_has_weights_for_all_targets_or_says_so_before_any_work(monkeypatch, tmp_path, weights):
    names = (ALIKED, "disk")
    cases = plan.cases(names, names, ("plain",), ("lightglue",), reversing(names))
    targets = {(case.known, case.device) for case in cases if case.way == "lightglue" and case.keypoints == "own"}
    assert targets == {(a, b) for a in names for b in names}
    with pytest.raises(ValueError, match="lightglue-disk"):
        benchmark.matcher_of(cases, reversing(names), weights)
    np.savez(tmp_path / "lightglue-disk.npz", limit=9.0)
    both = (*weights, f"lightglue-disk={tmp_path / 'lightglue-disk.npz'}")
    assert of_matchers((*both, "xfeat=x")) == both
    network = benchmark.matcher_of(cases, reversing(names), both)
    assert sorted(network.config()) == ["lightglue-aliked", "lightglue-disk"]
    assert benchmark.matcher_of(planned("joint"), reversing(), both) is None
