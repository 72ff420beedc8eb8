"""The extractor and the matcher in hloc's hands: its loader, its data, and files as it writes them."""

from __future__ import annotations

import importlib
import sys

import h5py
import numpy as np
import pytest

from tests.support import hloc_stand_in
from tests.support.blob_photos import write_blobs
from tests.support.framed_translators import framed_translator, frames, rows
from tests.support.place import WIDTH, exact_translator
from xdesc_jax.descriptors import DescriptorSpec, register, registered, unit_rows
from xdesc_jax.features.extract import ExtractSettings, extract_photo
from xdesc_jax.features.images import read_rgb
from xdesc_jax.features.store import FeatureStore
from xdesc_jax.integrations.hloc import contract, files
from xdesc_jax.integrations.hloc.extraction import PhotoExtractor
from xdesc_jax.integrations.hloc.pair_matching import PairMatching
from xdesc_jax.matching.nearest import match

ROOTS = ["xdesc_jax.integrations.hloc", "hloc"]
SHELLS = ["extractors.xdesc", "matchers.xdesc"]


@pytest.fixture
def hloc(tmp_path, monkeypatch):
    """hloc, with ours registered."""
    hloc_stand_in.install(tmp_path / "packages", monkeypatch)
    for shell in SHELLS:
        monkeypatch.delitem(sys.modules, f"xdesc_jax.integrations.hloc.{shell}", raising=False)
    contract.register()
    return importlib.import_module("hloc.utils.base_model")


@pytest.fixture
def translator(tmp_path):
    """A model file between `own-a` and `own-b`, which are known by name."""
    for name in ("own-a", "own-b"):
        if name not in registered():
            register(DescriptorSpec(name, WIDTH), None)
    return exact_translator().save(tmp_path / "model.safetensors")


def batch(**arrays):
    import torch

    return {key: torch.from_numpy(np.ascontiguousarray(value))[None] for key, value in arrays.items()}


def plain(found):
    return {key: value[0].cpu().numpy() for key, value in found.items()}


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("kind", contract.KINDS)
def test_the_loader_takes_the_one_class_of_a_module(hloc, root, kind):
    found = hloc.dynamic_load(importlib.import_module(f"{root}.{kind}"), "xdesc")
    assert issubclass(found, hloc.BaseModel) and found.__module__ == f"{root}.{kind}.xdesc"
    assert found.default_conf["name"] == "xdesc" and found.required_inputs


def test_what_is_extracted_is_what_the_package_extracts(hloc, tmp_path):
    (path,) = [write_blobs(tmp_path / "photos", ["a.png"]) / "a.png"]
    expected = extract_photo(path, ExtractSettings(("orb",), "opencv", max_keypoints=40)).image_features("orb")
    model = hloc.dynamic_load(importlib.import_module("hloc.extractors"), "xdesc")
    conf = {"name": "xdesc", "descriptor": "orb", "keypoints": "opencv", "max_keypoints": 40}
    image = read_rgb(path).astype(np.float32).transpose(2, 0, 1) / 255
    found = plain(model(conf)(batch(image=image)))
    valid = expected.valid
    np.testing.assert_array_equal(found["keypoints"], expected.keypoints[valid])
    np.testing.assert_array_equal(found["descriptors"], expected.descriptors[valid].T)
    np.testing.assert_array_equal(found["scales"], expected.scales[valid])
    assert found["descriptors"].shape == (32, valid.sum()) and valid.sum() > 10


def written(path, photos, dtype=np.float16):
    """As hloc's `extract_features` writes its dictionaries."""
    with h5py.File(path, "w") as file:
        for name, found in photos.items():
            group = file.create_group(name)
            for key, value in {**found, "image_size": np.array([640, 480])}.items():
                group[key] = value.astype(dtype) if value.dtype == np.float32 else value
    return path


def two_photos(rng):
    """Rows of `own-a`, and the same places in `own-b`, in another order and with some of their own."""
    rows = unit_rows(rng.normal(size=(31, WIDTH))).astype(np.float32)
    order = rng.permutation(31)[:27]
    others = unit_rows(rng.normal(size=(4, WIDTH)))
    first = {"keypoints": rng.uniform(0, 99, (31, 2)).astype(np.float32), "descriptors": rows.T.copy()}
    second = np.concatenate([rows[order], others])[:, ::-1].astype(np.float32)  # `own-b` holds the values reversed
    return first, {"keypoints": rng.uniform(0, 99, (31, 2)).astype(np.float32), "descriptors": second.T.copy()}, order


@pytest.mark.parametrize("mode", ["embed", "directional"])
def test_two_descriptors_match_through_a_translator(hloc, translator, mode):
    first, second, order = two_photos(np.random.default_rng(1))
    conf = {
        "name": "xdesc",
        "descriptor": "own-a",
        "descriptor_ref": "own-b",
        "translator": str(translator),
        "mode": mode,
    }
    model = hloc.dynamic_load(importlib.import_module("hloc.matchers"), "xdesc")(conf)
    data = {f"{k}{i}": v for i, photo in enumerate((first, second)) for k, v in photo.items()}
    found = plain(model(batch(**data, image0=np.zeros((1, 48, 64)), image1=np.zeros((1, 48, 64)))))
    expected = np.full(31, -1)
    expected[order] = np.arange(27)
    kept = found["matches0"] >= 0
    np.testing.assert_array_equal(found["matches0"][kept], expected[kept])
    assert kept.sum() >= 25 and found["matches0"].dtype == np.int64
    assert ((found["matching_scores0"] > 0) == kept).all()


@pytest.mark.parametrize("sides", [(0,), (1,), (0, 1)])
def test_orientations_may_be_the_degrees_of_hlocs_own_sift(tmp_path, sides):
    model, seen = framed_translator().save(tmp_path / "model.safetensors"), frames(19)
    photo = {"keypoints": np.zeros((19, 2)), "descriptors": rows(19)["turned"].T, "scales": seen[:, 0]}
    conf = {"descriptor": "turned", "translator": str(model), "mode": "directional", "target": "upright"}

    def found(in_degrees):
        oris = [np.rad2deg(seen[:, 1]) if side in in_degrees else seen[:, 1] for side in (0, 1)]
        data = {f"{key}{side}": value for side in (0, 1) for key, value in (photo | {"oris": oris[side]}).items()}
        return PairMatching.of(conf)(data)

    np.testing.assert_array_equal(found(sides)["matches0"], found(())["matches0"])
    assert (found(())["matches0"] == np.arange(19)).all()


def test_packed_bits_that_became_floats_match_as_bits():
    bits = np.random.default_rng(2).integers(0, 256, (2, 19, 32)).astype(np.uint8)
    bits[1, :12] = bits[0, :12]
    xy = np.zeros((19, 2), np.float32)
    data = {f"descriptors{i}": bits[i].T.astype(np.float32) for i in (0, 1)} | {"keypoints0": xy, "keypoints1": xy}
    found = PairMatching.of({"descriptor": "orb", "ratio": None})(data)
    own = match(bits[0], bits[1], binary=True)
    rows = np.flatnonzero(found["matches0"] >= 0)
    np.testing.assert_array_equal(np.stack([rows, found["matches0"][rows]], axis=1), own.indices)
    assert (found["matches0"][:12] == np.arange(12)).all()


def test_photos_without_keypoints_match_nothing():
    some = unit_rows(np.random.default_rng(3).normal(size=(5, 128)) ** 2).T
    data = {"keypoints0": np.zeros((5, 2)), "descriptors0": some, "keypoints1": np.zeros((0, 2))}
    found = PairMatching.of({"descriptor": "colmap-sift"})({**data, "descriptors1": np.zeros((128, 0))})
    assert found["matches0"].tolist() == [-1] * 5


@pytest.mark.parametrize(
    ("make", "conf", "message"),
    [
        (PhotoExtractor, {"descriptr": "orb"}, "the configuration has 'descriptr', expected descriptor, keypoints"),
        (PhotoExtractor, {"descriptor": "orb", "keypoints": "opencv", "target": "sift"}, "has no 'translator'"),
        (PhotoExtractor, {"descriptor": "orbb"}, "orbb"),
        (PairMatching, {}, "has no 'descriptor'"),
        (
            PairMatching,
            {"descriptor": "orb", "descriptor_ref": "sift"},
            "rows of 'orb' .* and 'sift' .* do not compare",
        ),
        (PairMatching, {"descriptor": "orb", "mode": "embed"}, "mode 'embed' translates, so it needs a model"),
    ],
)
def test_a_configuration_that_cannot_be_is_told(make, conf, message):
    with pytest.raises(ValueError, match=message):
        make.of(conf)


@pytest.mark.parametrize("image", [np.zeros((2, 5, 5)), np.full((1, 5, 5), 255.0), np.full((3, 5, 5), np.nan)])
def test_pixels_that_cannot_be_are_told(image):
    with pytest.raises(ValueError, match="the image has"):
        PhotoExtractor.of({"descriptor": "orb", "keypoints": "opencv"})(image)


def test_without_hloc_it_is_named(monkeypatch):
    hloc_stand_in.forget(monkeypatch)
    monkeypatch.setitem(sys.modules, "hloc", None)
    with pytest.raises(ModuleNotFoundError, match="needs hloc and torch, which xdesc-jax does not install"):
        contract.register()


# --- Files -------------------------------------------------------------------------------------------------


def test_features_of_hloc_are_read_and_ours_lie_as_its_own(tmp_path, translator):
    first, _, _ = two_photos(np.random.default_rng(4))
    path = written(tmp_path / "feats.h5", {"db/a.jpg": first})
    ((name, photo),) = files.read_features(path, DescriptorSpec("own-a", WIDTH))
    assert name == "db/a.jpg" and photo.keypoints.dtype == np.float32
    np.testing.assert_allclose(photo.descriptors, first["descriptors"].T, atol=1e-3)
    out = files.write_features(tmp_path / "out.h5", [(name, photo)], DescriptorSpec("own-a", WIDTH))
    with h5py.File(out) as file:  # as hloc's `match_features` reads it
        group = file[name]
        assert group["descriptors"].shape == (WIDTH, 31) and tuple(group["image_size"]) == (640, 480)
        np.testing.assert_array_equal(group["keypoints"][()], photo.keypoints)
    with FeatureStore(out) as store:
        assert store.spec.name == "own-a"


def test_matches_of_hloc_are_read_and_ours_lie_as_its_own(tmp_path):
    with h5py.File(tmp_path / "hloc.h5", "w") as file:  # as its `writer_fn` does, in 16 bits
        group = file.create_group("db-a.jpg/q-b.jpg")
        group["matches0"] = np.array([-1, 2, -1, 0, -1], np.int16)
        group["matching_scores0"] = np.array([0, 0.5, 0, 0.25, 0], np.float16)
    (found,) = files.read_matches(tmp_path / "hloc.h5", ["db/a.jpg", "q/b.jpg"])
    assert (found.name0, found.name1) == ("db/a.jpg", "q/b.jpg")
    assert found.rows0 == 5 and found.indices.tolist() == [[1, 2], [3, 0]] and found.scores.tolist() == [0.5, 0.25]
    out = files.write_matches(tmp_path / "ours.h5", [found])
    with h5py.File(out) as file:
        assert file["db-a.jpg/q-b.jpg/matches0"][()].tolist() == [-1, 2, -1, 0, -1]


def test_photos_of_several_pairs_that_hloc_takes_for_one_are_refused(tmp_path):
    none = np.zeros((0, 2), np.int32), np.zeros(0, np.float32)
    pairs = [files.PairMatches("db/a.jpg", "b.jpg", 3, *none), files.PairMatches("db-a.jpg", "c.jpg", 3, *none)]
    with pytest.raises(ValueError, match="photos 'db/a.jpg' and 'db-a.jpg' have the same name in a match file"):
        files.write_matches(tmp_path / "m.h5", pairs)
    assert not (tmp_path / "m.h5").exists()


def test_pairs_go_both_ways(tmp_path):
    pairs = [("q/1.jpg", "db/2.jpg"), ("q/1.jpg", "db/3.jpg")]
    path = files.write_pairs(tmp_path / "pairs.txt", pairs)
    assert [line.split() for line in path.read_text().splitlines()] == [list(pair) for pair in pairs]  # hloc's reader
    assert files.read_pairs(path) == pairs
    with pytest.raises(ValueError, match="pairs.txt: photo name 'a b.jpg' holds a blank, which hloc's lists cannot"):
        files.write_pairs(path, [("a b.jpg", "c.jpg")])
