"""Files that ship with the package, found by name wherever a model is given."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from xdesc_jax import cli, pretrained
from xdesc_jax.descriptors import unit_rows
from xdesc_jax.evaluate.stages.homography import homography
from xdesc_jax.export.export import export
from xdesc_jax.files import pytorch
from xdesc_jax.translation import bundle
from xdesc_jax.translation.translator import Translator

ROWS = unit_rows(np.random.default_rng(0).normal(size=(7, 5)))


def test_names_are_sorted_and_told_by_kind(shipped):
    assert pretrained.names() == ["colmap", "hardnet-xdesc", "opencv"]
    assert pretrained.names("translator") == ["colmap", "opencv"]
    assert pretrained.names("weights") == ["hardnet-xdesc"]


def test_a_name_leads_to_the_shipped_file(shipped):
    assert pretrained.resolve("colmap") == shipped / "colmap.safetensors"
    assert pretrained.resolve("hardnet-xdesc", "weights") == shipped / "hardnet-xdesc.safetensors"


def test_an_own_file_wins_over_a_shipped_name(shipped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "colmap").write_bytes(b"mine")
    assert pretrained.resolve("colmap").read_bytes() == b"mine"


def test_a_folder_does_not_hide_the_shipped_model(shipped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "colmap").mkdir()
    assert pretrained.resolve("colmap") == shipped / "colmap.safetensors"


def test_a_folder_in_place_of_a_model_is_refused(shipped, tmp_path):
    with pytest.raises(ValueError, match=r"is a folder, expected a model file \(xdesc export"):
        pretrained.resolve(tmp_path)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("colmpa", r"colmpa: no such model file, .*; did you mean colmap\? \(there are colmap, opencv\)"),
        ("models/opencv.safetensors", r"models/opencv.safetensors: no such model file.*mean opencv\?"),
        ("out/opncv.safetensors", r"ships with the package \(there are colmap, opencv\)"),
        ("opera", r"ships with the package \(there are colmap, opencv\)"),
        ("xyz", r"xyz: no such model file, nor one that ships with the package \(there are colmap, opencv\)"),
        ("hardnet-xdesc", r"hardnet-xdesc: no such model file"),
    ],
)
def test_an_unknown_model_is_answered_with_near_names(shipped, model, message):
    with pytest.raises(FileNotFoundError, match=message):
        pretrained.resolve(model)


def test_an_unknown_name_with_nothing_shipped(empty):
    with pytest.raises(FileNotFoundError, match=r"no translator 'colmap' ships with the package \(there is none\)"):
        Translator.from_pretrained("colmap")


def test_a_shipped_translator_is_loaded_by_name(shipped):
    found = Translator.from_pretrained("colmap").translate(ROWS, "ones", "twos")
    np.testing.assert_allclose(found, ROWS[:, ::-1], atol=1e-6)
    with pytest.raises(FileNotFoundError, match="no translator 'opnecv' ships .*; did you mean opencv"):
        Translator.from_pretrained("opnecv")


# --- Where a model is given ------------------------------------------------------------------------------


def test_translate_takes_a_shipped_model(shipped, tmp_path):
    np.save(tmp_path / "in.npy", ROWS)
    words = ["translate", str(tmp_path / "in.npy"), str(tmp_path / "out.npy"), "--source", "ones", "--target", "twos"]
    assert cli.main([*words, "--model", "colmap"]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), ROWS[:, ::-1], atol=1e-6)


@pytest.mark.parametrize(
    "words",
    [
        ["translate", "{tmp}/in.npy", "{tmp}/out.npy", "--source", "ones", "--target", "twos", "--model", "colmpa"],
        ["evaluate", "homography", "{tmp}/scenes", "--out", "{tmp}/out", "--model", "colmpa"],
        ["calibrate", "colmpa", "{tmp}/scenes", "--out", "{tmp}/out"],
    ],
    ids=lambda words: words[0],
)
def test_stages_suggest_near_names_for_an_unknown_model(words, shipped, tmp_path, capsys):
    np.save(tmp_path / "in.npy", ROWS)
    scene = tmp_path / "scenes" / "wall"
    scene.mkdir(parents=True)
    for name in ("1.ppm", "2.ppm"):
        (scene / name).write_bytes(b"P5 1 1 255 x")
    (scene / "H_1_2").write_text("1 0 0\n0 1 0\n0 0 1\n")
    assert cli.main([word.format(tmp=tmp_path) for word in words]) == 2
    assert "colmpa: no such model file, nor one that ships" in capsys.readouterr().err
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.npy").exists()


def test_a_shipped_model_is_calibrated_into_another_file_alone(shipped, tmp_path, capsys):
    before = (shipped / "colmap.safetensors").read_bytes()
    assert cli.main(["calibrate", "colmap", str(tmp_path)]) == 2
    assert "colmap: ships with the package and stays as it is; name another file with --out" in capsys.readouterr().err
    assert (shipped / "colmap.safetensors").read_bytes() == before


def test_a_shipped_model_is_exported_to_pytorch_by_name(shipped, tmp_path, monkeypatch):
    written = {}
    monkeypatch.setattr(pytorch, "write", lambda path, content: path.write_bytes(b"x") and written.update(content))
    export(Path("colmap"), tmp_path / "model.pth", format="pth")
    assert [name for name, _ in written["encoders"]] == ["ones", "twos"]


def test_evaluation_takes_a_shipped_model_and_says_what_it_lacks(shipped, scene_and_features, tmp_path, capsys):
    scenes, features = scene_and_features
    results = homography(scenes, out=tmp_path / "report", features=(features,), model="colmap")
    assert [r.comparison.label for r in results if r.comparison.mode == "native"] == ["brief"]
    shown = capsys.readouterr().err.replace("\n", "").replace(" ", "")  # the console folds it
    assert "nothingofbriefistranslated,ithasones(5values),twos(5values)" in shown


@pytest.fixture
def scene_and_features(tmp_path):
    """A scene of two equal photos, and a feature file of `brief`."""
    from xdesc_jax.descriptors import get_spec, stored
    from xdesc_jax.features.store import ImageFeatures, StoreWriter

    scene = tmp_path / "scenes" / "wall"
    scene.mkdir(parents=True)
    rng = np.random.default_rng(0)
    keypoints, bits = (40 * rng.random((11, 2))).astype(np.float32), rng.random((11, 512)) < 0.5
    pixels = rng.integers(0, 255, (48, 48), dtype=np.uint8).tobytes()
    (scene / "H_1_2").write_text("1 0 0\n0 1 0\n0 0 1\n")
    spec = get_spec("brief")
    with StoreWriter(tmp_path / "brief.h5", spec) as writer:
        for name in ("1.ppm", "2.ppm"):
            (scene / name).write_bytes(b"P5\n48 48\n255\n" + pixels)
            sizes = {"scales": np.ones(11, np.float32), "oris": np.zeros(11, np.float32)}
            features = ImageFeatures(keypoints, stored(bits, spec), np.ones(11, bool), (48, 48), **sizes)
            writer.write(f"wall/{name}", features)
    return tmp_path / "scenes", tmp_path / "brief.h5"


# --- Cards -----------------------------------------------------------------------------------------------


def change_card(folder, **changes):
    file = folder / "colmap.json"
    fields = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({key: value for key, value in fields.items() if value is not None}))


def test_a_card_comes_back_whole(shipped):
    change_card(shipped, extra=[1])
    card = pretrained.card("colmap")
    assert card["extra"] == [1] and card["rows"] == 1000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"date": None}, "colmap.json: 'date' is None, expected a str"),
        ({"descriptors": "ones"}, "colmap.json: 'descriptors' is 'ones', expected a list"),
        ({"rows": None}, "colmap.json: 'rows' is None, expected a number of rows"),
        ({"name": "opencv"}, "colmap.json: is of translator 'opencv', expected translator or weights 'colmap'"),
        ({"kind": "network"}, "colmap.json: is of network 'colmap'"),
    ],
)
def test_a_card_that_lacks_something_is_named(shipped, changes, message):
    change_card(shipped, **changes)
    with pytest.raises(ValueError, match=message):
        pretrained.card("colmap")


@pytest.mark.parametrize("text", ["[]", "{", ""])
def test_a_damaged_card_is_named(shipped, text):
    (shipped / "colmap.json").write_text(text)
    with pytest.raises(ValueError, match=r"colmap\.json: "):
        pretrained.card("colmap")


def test_a_file_without_card_is_named(shipped):
    (shipped / "colmap.json").unlink()
    with pytest.raises(FileNotFoundError, match="colmap.json: no such card"):
        pretrained.names("translator")


# --- What really ships -----------------------------------------------------------------------------------


def test_every_shipped_file_has_a_card_and_fits_it():
    for name in pretrained.names():
        card = pretrained.card(name)
        if card["kind"] == "translator":
            assert sorted(card["descriptors"]) == Translator.from_pretrained(name).names
        else:
            assert card["descriptors"] == [name]
    assert {file.stem for file in pretrained.FOLDER.glob("*.json")} == set(pretrained.names())


def test_small_encoders_take_less_than_300_kb_each_and_are_of_the_space_of_mixed(tmp_path):
    model = Translator.from_pretrained("mixed-small")
    assert model.space_id == Translator.from_pretrained("mixed").space_id
    for name in model.names:
        words = {"source": name, "target": "embedding", "format": "npz"}  # int8, as the model itself
        assert export(Path("mixed-small"), tmp_path / f"{name}.npz", **words).stat().st_size < 300_000


# --- Damaged model files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 5, 300, -1])
def test_a_model_cut_short_is_named(shipped, kept):
    file = shipped / "colmap.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"colmap\.safetensors: not a safetensors file, or cut short"):
        Translator.from_pretrained("colmap")


@pytest.mark.parametrize("content", [b"<!DOCTYPE html>" * 40, b"PK\x03\x04" + bytes(99), b"version https://git-lfs"])
def test_a_file_of_another_kind_is_named(tmp_path, content):
    (tmp_path / "m.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"m\.safetensors: not a safetensors file"):
        bundle.load(tmp_path / "m.safetensors")


def test_a_weight_file_is_no_model(tmp_path):
    from safetensors.numpy import save_file

    save_file({"features.0.weight": np.ones(3, np.float32)}, tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match=r"m\.safetensors: format is None, expected 'xdesc-translator'"):
        bundle.load(tmp_path / "m.safetensors")
