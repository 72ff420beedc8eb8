"""The stage `xdesc translate` on feature files and arrays."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from tests.support.small_translators import SPECS
from xdesc_jax import cli
from xdesc_jax.descriptors import DescriptorSpec, pack_bits, stored, unit_rows
from xdesc_jax.features.store import FeatureStore, ImageFeatures, StoreWriter
from xdesc_jax.translation import translate
from xdesc_jax.translation.bundle import Bundle
from xdesc_jax.translation.translator import Translator


@pytest.fixture
def model(tmp_path):
    rng = np.random.default_rng(0)

    def layers(*widths):
        return [
            (rng.normal(size=(a, b)).astype(np.float32), rng.normal(size=b).astype(np.float32))
            for a, b in zip(widths, widths[1:], strict=False)
        ]

    networks = {f"encoder/{n}": layers(s.width, 17, 8) for n, s in SPECS.items()}
    networks |= {f"decoder/{n}": layers(8, 11, s.width) for n, s in SPECS.items()}
    return Bundle("encoder_decoder", SPECS, 8, networks).save(tmp_path / "model.safetensors")


def rows_of(name, n, seed=0):
    """Canonical rows."""
    rng = np.random.default_rng(seed)
    if name == "bits":
        return rng.random((n, 19)) < 0.4
    return unit_rows(rng.random((n, 12))) if name == "grid" else rng.normal(size=(n, 9)).astype(np.float32)


@pytest.fixture
def make_store(tmp_path):
    """Writes a feature file with photos of 7, 0 and 3 rows, row 2 of the first not valid."""

    def make(name, spec=None, file="in.h5"):
        spec = spec or SPECS[name]
        with StoreWriter(tmp_path / file, spec, {"detector": "dog"}) as writer:
            for i, (photo, n) in enumerate((("a/été 1.jpg", 7), ("empty.png", 0), ("z.jpg", 3))):
                rng = np.random.default_rng(i)
                keypoints, valid = rng.random((n, 2)).astype(np.float32), np.ones(n, bool)
                valid[2:3] = photo == "z.jpg"
                writer.write(
                    photo,
                    ImageFeatures(
                        keypoints, stored(rows_of(spec.name, n, seed=i), spec), valid, (640, 480),
                        scales=rng.random(n).astype(np.float32), oris=rng.random(n).astype(np.float32),
                    ),
                )  # fmt: skip
        return tmp_path / file

    return make


def write_one_row(path, spec):
    with StoreWriter(path, spec) as writer:
        row = unit_rows(np.ones((1, spec.width)))
        writer.write("a.jpg", ImageFeatures(np.zeros((1, 2), np.float32), row, np.ones(1, bool), (1, 1)))
    return path


def run(*arguments):
    return cli.main(["translate", *map(str, arguments)])


def run_array(folder, model, source, target):
    """Translates in.npy of a folder to its out.npy."""
    return run(folder / "in.npy", folder / "out.npy", "--source", source, "--target", target, "--model", model)


@pytest.mark.parametrize(
    "source, target", [("grid", "plain"), ("bits", "grid"), ("plain", "bits"), ("bits", "embedding")]
)
def test_a_feature_file_becomes_one_of_the_target(model, make_store, tmp_path, source, target):
    features = make_store(source)
    out = translate.translate(features, tmp_path / "out.h5", target=target, model=model, descriptor=source)
    translator = Translator.load(model)
    with FeatureStore(features) as before, FeatureStore(out) as after:
        assert after.spec == translator.spec(target)
        assert after.names == before.names == ["a/été 1.jpg", "empty.png", "z.jpg"]
        assert after.attributes["detector"] == "dog"
        for name, old in before:
            new = after.read(name)
            for field in ("keypoints", "valid", "scales", "oris"):
                np.testing.assert_array_equal(getattr(new, field), getattr(old, field))
            assert new.image_size == old.image_size
            assert new.descriptors.shape == (len(old), after.spec.stored_width)
            assert not new.descriptors[~old.valid].any()
            if old.valid.any():
                expected = translator.translate(
                    old.descriptors[old.valid], source, target, packed=source == "bits", storage=True
                )
                np.testing.assert_allclose(new.descriptors[old.valid].astype(float), expected.astype(float), atol=1e-5)


def test_the_source_may_be_left_out_where_the_file_says_it(model, make_store, tmp_path):
    assert run(make_store("grid"), tmp_path / "out.h5", "--target", "plain", "--model", model) == 0
    with FeatureStore(tmp_path / "out.h5") as store:
        assert store.spec == SPECS["plain"]


def test_a_stored_embedding_decodes(model, make_store, tmp_path):
    features = make_store("grid")
    joint = translate.translate(features, tmp_path / "joint.h5", target="embedding", model=model)
    decoded = translate.translate(joint, tmp_path / "decoded.h5", target="plain", model=model)
    direct = translate.translate(features, tmp_path / "direct.h5", target="plain", model=model)
    with FeatureStore(decoded) as a, FeatureStore(direct) as b:
        for name, photo in a:
            np.testing.assert_allclose(photo.descriptors, b.read(name).descriptors, atol=1e-4)


def test_rows_of_the_target_are_refused(model, make_store, tmp_path, capsys):
    assert run(make_store("grid"), tmp_path / "out.h5", "--target", "grid", "--model", model) == 2
    assert "in.h5: nothing to translate: holds 'grid' already" in capsys.readouterr().err
    np.save(tmp_path / "in.npy", rows_of("grid", 3))
    assert run_array(tmp_path, model, "grid", "grid") == 2
    assert "in.npy: nothing to translate: holds 'grid' already" in capsys.readouterr().err


def test_rows_that_are_translations_are_translated_again_with_a_warning(model, make_store, tmp_path, capsys):
    translate.translate(make_store("grid"), tmp_path / "plain.h5", target="plain", model=model)
    assert "already" not in capsys.readouterr().err
    translate.translate(tmp_path / "plain.h5", tmp_path / "bits.h5", target="bits", model=model)
    said = json.loads((tmp_path / "bits.h5.json").read_text())["warnings"]
    assert any(text.startswith("rows are translations already (grid -> plain)") for text in said)


def test_an_embedding_of_another_model_is_refused(model, tmp_path, capsys):
    joint = write_one_row(tmp_path / "joint.h5", DescriptorSpec("embedding:0123456789ab", 8))
    assert run(joint, tmp_path / "out.h5", "--target", "plain", "--model", model) == 2
    assert "not 'embedding:0123456789ab'" in capsys.readouterr().err


def test_a_feature_file_of_another_descriptor_is_refused(model, make_store, tmp_path, capsys):
    features = make_store("plain")
    assert run(features, tmp_path / "out.h5", "--source", "grid", "--target", "bits", "--model", model) == 2
    assert "in.h5: holds 'plain', but 'grid' was asked for" in capsys.readouterr().err
    assert not (tmp_path / "out.h5").exists()


def test_a_descriptor_the_model_lacks_is_refused_with_what_it_has(model, tmp_path, capsys):
    other = write_one_row(tmp_path / "other.h5", DescriptorSpec("plan", 9))
    assert run(other, tmp_path / "out.h5", "--target", "bits", "--model", model) == 2
    error = capsys.readouterr().err
    assert "no descriptor 'plan'" in error and "plain (9 values)" in error and "did you mean plain" in error


@pytest.mark.parametrize("named", [True, False])
def test_rows_of_another_width_are_refused_with_what_the_model_has(model, tmp_path, capsys, named):
    with h5py.File(tmp_path / "wide.h5", "w") as file:
        if named:
            file.attrs["spec_json"] = json.dumps(DescriptorSpec("plain", 256, normalized=False).to_dict())
        file["a.jpg/keypoints"] = np.zeros((4, 2), np.float32)
        file["a.jpg/descriptors"] = np.ones((256, 4), np.float32)
    assert (
        run(
            tmp_path / "wide.h5",
            tmp_path / "out.h5",
            "--source",
            "plain",
            "--target",
            "bits",
            "--model",
            model,
        )
        == 2
    )
    error = capsys.readouterr().err
    assert "wide.h5" in error and "256" in error and "plain (9 values)" in error


@pytest.mark.parametrize("source, target", [("grid", "plain"), ("plain", "bits"), ("grid", "embedding")])
@pytest.mark.parametrize("n", [0, 1, 23])
def test_an_array_translates_as_in_memory(model, tmp_path, monkeypatch, source, target, n):
    monkeypatch.setattr(translate, "ROWS", 5)
    x = rows_of(source, n)
    np.save(tmp_path / "in.npy", x)
    assert run_array(tmp_path, model, source, target) == 0
    found, expected = (
        np.load(tmp_path / "out.npy"),
        Translator.load(model).translate(x, source, target, storage=True),
    )
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(found.astype(float), expected.astype(float), atol=1e-5)


def test_an_array_of_packed_bits_translates(model, tmp_path):
    x = rows_of("bits", 11)
    np.save(tmp_path / "in.npy", pack_bits(x))
    arguments = ("--source", "bits", "--target", "plain", "--model", model)
    assert run(tmp_path / "in.npy", tmp_path / "out.npy", *arguments, "--packed") == 0
    expected = Translator.load(model).translate(x, "bits", "plain")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-5)


def test_an_array_needs_its_source_named(model, tmp_path, capsys):
    np.save(tmp_path / "in.npy", rows_of("plain", 2))
    assert run(tmp_path / "in.npy", tmp_path / "out.npy", "--target", "bits", "--model", model) == 2
    assert "in.npy: an array does not say which descriptor it holds; pass --descriptor" in capsys.readouterr().err


def test_a_bad_row_of_an_array_is_named_and_nothing_is_left(model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(translate, "ROWS", 5)
    x = rows_of("plain", 23)
    x[17, 4] = np.nan
    np.save(tmp_path / "in.npy", x)
    assert run_array(tmp_path, model, "plain", "bits") == 2
    assert "in.npy: row 17 of 'plain' holds a value that is not finite" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npy", "model.safetensors"]


def test_a_bad_row_of_a_feature_file_is_named_with_its_photo(model, make_store, tmp_path, capsys):
    features = make_store("plain")
    with h5py.File(features, "r+") as file:
        file["z.jpg/descriptors"][0, 1] = np.inf
    assert run(features, tmp_path / "out.h5", "--target", "bits", "--model", model) == 2
    assert "in.h5: 'z.jpg': row 1 of 'plain'" in capsys.readouterr().err
    assert not (tmp_path / "out.h5").exists()


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01\x00", b"no array at all"])
def test_a_file_that_is_no_array_is_refused_by_name(model, tmp_path, capsys, content):
    (tmp_path / "in.npy").write_bytes(content)
    assert run_array(tmp_path, model, "plain", "bits") == 2
    assert "in.npy: not a readable .npy array" in capsys.readouterr().err


def test_finished_work_is_skipped_and_other_work_refused(model, make_store, tmp_path, capsys):
    features, out = make_store("grid"), tmp_path / "out.h5"
    assert run(features, out, "--target", "plain", "--model", model) == 0
    before = out.stat().st_mtime_ns
    assert run(features, out, "--target", "plain", "--model", model) == 0
    assert out.stat().st_mtime_ns == before and "up to date" in capsys.readouterr().out
    assert run(features, out, "--target", "bits", "--model", model) == 2
    assert "made with another configuration (target: plain -> bits)" in capsys.readouterr().err
    assert out.stat().st_mtime_ns == before
    assert run(features, out, "--target", "bits", "--model", model, "--overwrite") == 0
    with FeatureStore(out) as store:
        assert store.spec == SPECS["bits"]


def test_a_finished_array_is_skipped(model, tmp_path, capsys):
    np.save(tmp_path / "in.npy", rows_of("plain", 2))
    arguments = (
        tmp_path / "in.npy",
        tmp_path / "out.npy",
        "--source",
        "plain",
        "--target",
        "bits",
        "--model",
        model,
    )
    assert run(*arguments) == 0 and run(*arguments) == 0
    assert "up to date" in capsys.readouterr().out


def test_zero_rows_are_reported_apart_from_rows_not_valid(model, make_store, tmp_path, capsys):
    features = make_store("plain")
    with h5py.File(features, "r+") as file:
        file["z.jpg/descriptors"][:, 1] = 0
    assert run(features, tmp_path / "out.h5", "--target", "grid", "--model", model) == 0
    summary = json.loads((tmp_path / "out.h5.json").read_text())
    assert (summary["photos"], summary["rows"], summary["invalid_rows"], summary["zero_rows"]) == (
        3,
        10,
        1,
        1,
    )
    assert "1 of 10 rows are zero though valid" in capsys.readouterr().err


@pytest.mark.parametrize("names", [("in.npz", "out.npy"), ("in.npy", "out.h5"), ("in.npy", "in.npy")])
def test_formats_that_do_not_fit_are_refused(model, tmp_path, names):
    np.save(tmp_path / "in.npy", rows_of("plain", 2))
    (tmp_path / "in.npz").touch()
    before = (tmp_path / "in.npy").read_bytes()
    paths = [tmp_path / name for name in names]
    assert run(*paths, "--source", "plain", "--target", "bits", "--model", model) == 2
    assert (tmp_path / "in.npy").read_bytes() == before


def test_an_archive_renamed_to_an_array_is_refused(model, tmp_path, capsys):
    np.savez(tmp_path / "in.npz", a=rows_of("plain", 2))
    (tmp_path / "in.npz").rename(tmp_path / "in.npy")
    arguments = ("--source", "plain", "--target", "bits", "--model", model)
    assert run(tmp_path / "in.npy", tmp_path / "out.npy", *arguments) == 2
    assert "in.npy: not a readable .npy array, or cut short (the magic string" in capsys.readouterr().err


def test_an_array_of_a_single_value_is_refused(model, tmp_path, capsys):
    arguments = ("--source", "plain", "--target", "bits", "--model", model)
    np.save(tmp_path / "in.npy", np.float32(1))
    assert run(tmp_path / "in.npy", tmp_path / "out.npy", *arguments) == 2
    assert "in.npy: holds a single value" in capsys.readouterr().err


def test_a_failed_overwrite_leaves_an_array_that_is_known_as_finished(model, tmp_path, capsys):
    np.save(tmp_path / "in.npy", rows_of("plain", 2))
    np.save(tmp_path / "bad.npy", np.full((2, 9), np.nan, np.float32))
    out, arguments = tmp_path / "out.npy", ("--source", "plain", "--target", "bits", "--model", model)
    assert run(tmp_path / "in.npy", out, *arguments) == 0
    assert run(tmp_path / "bad.npy", out, *arguments, "--overwrite") == 2
    assert run(tmp_path / "in.npy", out, *arguments) == 0
    assert "up to date" in capsys.readouterr().out


def test_a_lost_summary_is_made_again(model, make_store, tmp_path):
    features, summary = make_store("grid"), tmp_path / "out.h5.json"
    arguments = (features, tmp_path / "out.h5", "--target", "plain", "--model", model)
    assert run(*arguments) == 0
    before = json.loads(summary.read_text())
    summary.unlink()
    assert run(*arguments) == 0
    assert json.loads(summary.read_text()) | {"seconds": 0} == before | {"seconds": 0}


@pytest.mark.parametrize("n", [1, 70])
def test_an_array_of_root_sift_is_colmaps_and_not_opencvs(tmp_path, capsys, n):
    root = np.sqrt(np.random.default_rng(0).dirichlet(np.full(128, 0.5), n)).astype(np.float32)
    np.save(tmp_path / "in.npy", root)
    words = (tmp_path / "in.npy", tmp_path / "out.npy", "--target", "sift", "--model", "colmap", "--descriptor")
    assert run(*words, "opencv-sift") == 2
    error = capsys.readouterr().err
    assert "in.npy: row 0 has norm 1, but 'opencv-sift'" in error and "are they 'colmap-sift'" in error
    assert not (tmp_path / "out.npy").exists()
    assert run(*words, "colmap-sift") == 0
    assert np.load(tmp_path / "out.npy").shape == (n, 128)


def test_a_feature_file_does_not_become_a_database(model, make_store, tmp_path, capsys):
    assert run(make_store("grid"), tmp_path / "out.db", "--target", "plain", "--model", model) == 2
    assert "in.h5 is a .h5 file, so the output must be one, too" in capsys.readouterr().err


def test_a_folder_of_features_is_called_a_folder(model, tmp_path):
    with pytest.raises(ValueError, match=rf"^{tmp_path}: is a folder, expected a .h5 or .npy file, or "):
        translate.translate(tmp_path, tmp_path / "out.h5", target="grid", model=model)
