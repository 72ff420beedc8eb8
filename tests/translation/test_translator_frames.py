"""Translations in a joint space of frame 'image': frames go in, by every way, and are asked for where they lack."""

from __future__ import annotations

import dataclasses
import json
import sqlite3

import h5py
import numpy as np
import pytest

from tests.support.databases import sift_rows
from tests.support.framed_translators import FRAMED, ROUTES, SPECS, by_definition, framed_translator, frames, rows
from xdesc_jax import cli
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.descriptors import DescriptorSpec, get_spec, stored, unit_rows
from xdesc_jax.export.quantization import quantized
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.translation.bundle import Bundle, load
from xdesc_jax.translation.deviation import RowStatistics
from xdesc_jax.translation.translator import Translator

NO_WAY = "from a descriptor without frames to one with them there is no translation, only the joint space"


@pytest.fixture(scope="module")
def bundle():
    return framed_translator()


@pytest.mark.parametrize(("source", "target"), ROUTES)
def test_a_translation_is_that_of_the_definition(bundle, source, target, monkeypatch):
    monkeypatch.setattr("xdesc_jax.translation.stream.BLOCK_ROWS", 5)
    x, seen = rows(13)[source], frames(13)
    expected = by_definition(bundle.networks, x, source, target, seen)
    found = Translator(bundle).translate(x, source, target, frames=seen)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    takes = any(name in FRAMED for name in Translator(bundle).route(source, target))
    assert Translator(bundle).takes_frames(source, target) == takes
    if takes:
        other = Translator(bundle).translate(x, source, target, frames=frames(13, seed=9))
        assert np.abs(other.astype(np.float32) - found).max() > 0.1
    else:
        np.testing.assert_array_equal(Translator(bundle).translate(x, source, target), found)


@pytest.mark.parametrize("target", ["turned", "turned-bits"])
def test_from_a_descriptor_without_frames_there_is_the_joint_space_alone(bundle, target):
    translator, x = Translator(bundle), rows(4)["upright"]
    with pytest.raises(ValueError, match=rf"^upright -> {target}: {NO_WAY}"):
        translator.translate(x, "upright", target)
    assert translator.embed(x, "upright").shape == (4, 8)


def test_rows_that_had_a_frame_are_asked_for_it(bundle):
    with pytest.raises(
        ValueError, match="rows of 'turned' come without the scales and orientations .* to make 'upright'"
    ):
        Translator(bundle).translate(rows(4)["turned"], "turned", "upright")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_a_model_file_says_its_frame_and_checks_itself(bundle, dtype, suffix, tmp_path):
    held = bundle if dtype == "float32" else quantized(bundle, dtype)
    found = load(held.save(tmp_path / f"m.{suffix}", dtype))
    assert (found.frame, found.harmonics) == ("image", 3)
    assert {name: spec.frame for name, spec in found.specs.items()} == {
        "turned": "keypoint", "turned-bits": "keypoint", "upright": "image",
    }  # fmt: skip
    assert Translator(found).self_check() < 1e-5
    broken = dataclasses.replace(found.sample, frames={n: x[::-1] for n, x in found.sample.frames.items()})
    with pytest.raises(ValueError, match="is off by"):
        Translator(dataclasses.replace(found, sample=broken)).self_check()


def test_readers_that_know_no_frames_refuse_the_file(bundle, tmp_path):
    from safetensors import safe_open

    for dtype in ("float32", "int8"):
        with safe_open(bundle.save(tmp_path / "m.safetensors", dtype), "numpy") as file:
            assert file.metadata()["version"] == "3"
            told = {"space": "image", "harmonics": 3, "log2_sigma": None}
            assert json.loads(file.metadata()["frame"]) == told


def test_networks_without_room_for_frames_are_refused(bundle):
    with pytest.raises(ValueError, match=r"encoder/turned/0: kernel \(19, 17\)"):
        dataclasses.replace(bundle, harmonics=2)


# --- Files -----------------------------------------------------------------------------------------------


@pytest.fixture
def model(bundle, tmp_path):
    return bundle.save(tmp_path / "model.safetensors")


def store(path, shape, name="turned"):
    x = stored(rows(9)[name], SPECS[name])
    with StoreWriter(path, SPECS[name]) as writer:
        writer.write("a.jpg", ImageFeatures(np.ones((9, 2)), x, np.ones(9, bool), (64, 64), **shape))
    return path


def test_a_feature_file_gives_its_frames(bundle, model, tmp_path):
    seen = frames(9)
    path = store(tmp_path / "in.h5", {"scales": seen[:, 0], "oris": seen[:, 1]})
    assert (
        cli.main(["translate", str(path), str(tmp_path / "out.h5"), "--target", "upright", "--model", str(model)]) == 0
    )
    x = Translator(bundle).translate(stored(rows(9)["turned"], SPECS["turned"]), "turned", "upright", frames=seen)
    with FeatureStore(tmp_path / "out.h5") as found:
        np.testing.assert_array_equal(found.read("a.jpg").descriptors, x)
        np.testing.assert_array_equal(found.read("a.jpg").scales, seen[:, 0])


def test_a_feature_file_without_them_is_named(model, tmp_path, capsys):
    path = store(tmp_path / "in.h5", {})
    assert (
        cli.main(["translate", str(path), str(tmp_path / "out.h5"), "--target", "upright", "--model", str(model)]) == 2
    )
    assert "in.h5: 'a.jpg': rows of 'turned' come without the scales and orientations" in capsys.readouterr().err
    assert not (tmp_path / "out.h5").exists()


def test_a_photo_without_keypoints_lacks_none(model, tmp_path):
    seen = frames(9)
    path = store(tmp_path / "in.h5", {"scales": seen[:, 0], "oris": seen[:, 1]})
    with h5py.File(path, "a") as file:
        file["blank.jpg/keypoints"], file["blank.jpg/descriptors"] = np.zeros((0, 2)), np.zeros((12, 0), np.uint8)
    words = ["translate", str(path), str(tmp_path / "out.h5"), "--target", "upright", "--model", str(model)]
    assert cli.main(words) == 0
    with FeatureStore(tmp_path / "out.h5") as found:
        assert [len(photo) for _, photo in found] == [9, 0]


def test_an_array_takes_them_from_another(bundle, model, tmp_path, capsys):
    x, seen = rows(9)["upright"], frames(9)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "frames.npy", seen)
    words = ["translate", str(tmp_path / "x.npy"), str(tmp_path / "y.npy"), "--descriptor", "upright"]
    words += ["--target", "turned", "--model", str(model)]
    assert cli.main(words) == 2 and NO_WAY in capsys.readouterr().err
    assert cli.main([*words, "--frames", str(tmp_path / "frames.npy")]) == 0
    expected = Translator(bundle).translate(x, "upright", "turned", frames=seen, storage=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)
    np.save(tmp_path / "frames.npy", frames(8))
    assert cli.main([*words, "--frames", str(tmp_path / "frames.npy"), "--overwrite"]) == 2
    assert "frames.npy: frames have shape (8, 2), expected (9, 2)" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [2, 4, 6])
def test_a_database_gives_those_of_its_keypoints(tmp_path, columns, capsys):
    """Of 4 or 6 columns; with 2 there are none, and the database is named."""
    import xdesc_jax.colmap.bindings.api as api

    bundle = framed_translator()
    sift = get_spec("colmap-sift")
    rng = np.random.default_rng(1)
    networks = {
        "encoder/colmap-sift": [(rng.normal(size=(128 + 7, 8)).astype(np.float32), np.zeros(8, np.float32))],
        "decoder/upright": bundle.networks["decoder/upright"],
    }
    specs = {"colmap-sift": sift, "upright": SPECS["upright"]}
    model = dataclasses.replace(bundle, specs=specs, networks=networks, sample=type(bundle.sample)(), space_id=None)
    file, x, seen = model.save(tmp_path / "m.safetensors"), sift_rows(9), frames(9)
    with api.open_database(tmp_path / "map.db"):
        pass
    c, s = seen[:, 0] * np.cos(seen[:, 1]), seen[:, 0] * np.sin(seen[:, 1])
    shape = {2: [], 4: [seen[:, 0], seen[:, 1]], 6: [c, -s, s, c]}[columns]
    keypoints = np.column_stack([np.ones(9), np.ones(9), *shape]).astype(np.float32)
    with sqlite3.connect(tmp_path / "map.db") as db:
        params = np.array([50.0, 32, 32]).tobytes()
        db.execute("INSERT INTO cameras VALUES (1, 0, 64, 64, ?, 1)", (params,))
        db.execute("INSERT INTO images (image_id, name, camera_id) VALUES (1, 'a.jpg', 1)")
        db.execute("INSERT INTO keypoints VALUES (1, 9, ?, ?)", (columns, keypoints.tobytes()))
        db.execute(
            "INSERT INTO descriptors (image_id, rows, cols, data, type) VALUES (1, 9, 128, ?, 0)", (x.tobytes(),)
        )
    words = [
        "translate",
        str(tmp_path / "map.db"),
        str(tmp_path / "new.db"),
        "--target",
        "upright",
        "--model",
        str(file),
    ]
    if columns == 2:
        assert cli.main(words) == 2
        assert "map.db: 'a.jpg': rows of 'colmap-sift' come without the scales" in capsys.readouterr().err
        return
    assert cli.main(words) == 0
    with DatabaseReader(tmp_path / "new.db") as found:
        expected = Translator(load(file)).translate(x, "colmap-sift", "upright", frames=seen)
        np.testing.assert_allclose(found.descriptors("a.jpg"), expected, atol=1e-5)


def test_diameters_given_for_sigmas_are_told(bundle):
    """From 8192 keypoints on; the same sigmas as in the training, and half of an octave more, are nothing to tell."""
    seen, x = frames(8192), rows(8192)["turned"]
    log2_sigma = float(np.log2(seen[:, 0].astype(np.float64)).mean())
    translator = Translator(dataclasses.replace(bundle, log2_sigma=log2_sigma))

    def told(factor, n=8192):
        stream = translator.stream("turned", "upright")
        stream(x[:n], frames=seen[:n] * np.array([factor, 1], np.float32))
        return [text for _, text in stream.findings()]

    assert told(1) == told(2**0.5) == told(2, n=8191) == []
    assert told(2)[0] == (
        "keypoints of 'turned' are not as in the training: their sigmas are 2 times as large in the mean: diameters, "
        "another detector, or the largest of many keypoints?"
    )
    assert "0.25 times as large in the mean: another detector?" in told(0.25)[0]
    # What no photo can be, as ORB's sizes halved, is told from one photo.
    assert "their sigmas are 9" in told(9, n=400)[0] and told(4, n=400) == told(9, n=200) == []


def test_rows_of_a_resumed_run_count_among_the_sigmas(bundle):
    seen, x = frames(8192), rows(8192)["turned"]
    log2_sigma = float(np.log2(seen[:, 0].astype(np.float64)).mean()) - 1
    stream = Translator(dataclasses.replace(bundle, log2_sigma=log2_sigma)).stream("turned", "upright")
    stream.observe(x[:6000], "before", seen[:6000])
    stream(x[6000:8191], frames=seen[6000:8191])
    assert not stream.findings() and stream.rows == 8191
    stream(x[8191:], frames=seen[8191:])
    assert "their sigmas are 2 times as large" in stream.findings()[0][1]


def test_rows_of_another_network_are_told_and_those_at_its_own_keypoints_are_not(bundle):
    """Rows of equal width: means that correlate with the training's pass, others do not, from 256 rows on."""
    rng = np.random.default_rng(5)
    spec = DescriptorSpec("wide", 64, frame="image")
    middle, photos = rng.normal(0, 0.08, 64), np.repeat(np.arange(80), 60)

    def of(mean, spread, n):
        return unit_rows(mean + spread + rng.normal(0, 0.1, (n, 64)))

    training = np.concatenate([of(middle, rng.normal(0, 0.02, 64), 60) for _ in range(80)])
    encoder = [(rng.normal(size=(64, 8)).astype(np.float32), np.zeros(8, np.float32))]
    model = Bundle(
        "encoder_decoder", {"wide": spec}, 8, {"encoder/wide": encoder}, {"wide": RowStatistics.of(training, photos)},
        frame="image",
    )  # fmt: skip

    def told(rows, frame="image"):
        specs = {"wide": dataclasses.replace(spec, frame=frame)}
        stream = Translator(dataclasses.replace(model, specs=specs, frame=frame)).stream("wide", "embedding")
        stream(rows)
        return [text for _, text in stream.findings()]

    elsewhere = of(middle, rng.normal(0, 0.06, 64), 9000)
    assert told(elsewhere) == [] and "another implementation, or another detector?" in told(elsewhere, "keypoint")[0]
    (text,) = told(of(rng.permutation(middle), 0, 256))
    assert "another descriptor, or another order of values?" in text
