"""The stage `xdesc inspect`."""

from __future__ import annotations

import json
import struct

import h5py
import numpy as np
import pytest

from tests.support import small_translators
from tests.support.databases import SPECS, edit, make_3, make_4, make_model, state
from xdesc_jax import cli
from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.database_writer import DatabaseWriter
from xdesc_jax.export.quantization import quantized
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.inspection.inspect import inspect
from xdesc_jax.inspection.kinds import kind
from xdesc_jax.matching.matches import MatchWriter
from xdesc_jax.translation.translate import translate


@pytest.fixture
def old(tmp_path):
    return make_3(tmp_path / "old.db")


@pytest.fixture
def store(tmp_path):
    """A feature file of 3 and 0 rows, one of which is not valid."""
    path = tmp_path / "plain.h5"
    with StoreWriter(path, SPECS["plain"], {"translated_from": "bits", "ratios": '{"bits->plain": 0.6}'}) as writer:
        for name, n in (("a.jpg", 3), ("sub/b.jpg", 0)):
            valid = np.arange(n) != 1
            writer.write(
                name,
                ImageFeatures(
                    np.zeros((n, 2), np.float32), np.ones((n, 9), np.float32), valid, (4, 3), np.ones(n), np.zeros(n)
                ),
            )
    return path


def test_a_file_of_global_features_is_described(tmp_path, capsys):
    with h5py.File(tmp_path / "netvlad.h5", "w") as file:
        file["db/a.jpg/global_descriptor"] = np.ones(8, np.float16)
        file["b.jpg/global_descriptor"] = np.zeros(8, np.float16)
    found = inspect(tmp_path / "netvlad.h5", images=True)
    assert (found["kind"], found["images"], found["values_of_a_vector"]) == ("file of global features", 2, 8)
    assert found["vectors_of_zeros"] == 1
    assert kind(tmp_path / "netvlad.h5") == "file of global features, 2 photos"
    assert "db/a.jpg" in capsys.readouterr().out


def test_a_feature_file_that_does_not_say_what_it_holds_is_known_as_one(tmp_path, store):
    with h5py.File(tmp_path / "hloc.h5", "w") as file:
        file["a.jpg/keypoints"], file["a.jpg/descriptors"] = np.zeros((2, 2)), np.ones((9, 2))
    assert kind(tmp_path / "hloc.h5") == "feature file, 1 photo"
    assert kind(store) == "feature file of plain, 2 photos"


def test_a_database_of_colmap_3_is_described(old):
    found = inspect(old)
    assert (found["kind"], found["schema"], found["user_version"]) == ("COLMAP database", "3.x", 3800)
    assert (found["images"], found["cameras"], found["rigs"], found["frames"]) == (4, 1, None, None)
    assert found["keypoints"] == {"total": 8, "min": 0, "median": 1, "max": 5}
    assert found["keypoint_columns"] == {"6": 2}
    assert found["descriptors"] == [
        {"spec": "colmap-sift", "type": "SIFT", "translated_from": None, "images": 2, "rows": 8}
    ]
    assert (found["images_without_keypoints"], found["images_without_descriptors"]) == (2, 2)
    assert (found["matched_pairs"], found["matches"], found["verified_pairs"]) == (1, 2, 1)
    assert found["xdesc_tables"] is None and found["ratios"] == {} and "image_list" not in found


def test_a_database_of_colmap_4_is_described(tmp_path):
    found = inspect(make_4(tmp_path / "map.db"))
    assert (found["schema"], found["images"], found["cameras"]) == ("4.x", 6, 2)
    assert (found["rigs"], found["frames"], found["pose_priors"]) == (2, 6, 6)
    with pycolmap.Database.open(tmp_path / "map.db") as db:
        assert found["keypoints"]["total"] == db.num_keypoints()
        assert found["matches"] == db.num_matches()
        assert found["inlier_matches"] == db.num_inlier_matches()
        assert (found["matched_pairs"], found["verified_pairs"]) == (
            db.num_matched_image_pairs(), db.num_verified_image_pairs(),
        )  # fmt: skip


def test_a_translated_database_says_what_each_image_is_and_was(old, tmp_path):
    with DatabaseWriter(old, tmp_path / "mixed.db") as writer:
        writer.set_descriptors("sub/é.jpg", np.ones((3, 3), np.uint8), SPECS["bits"], None)
    model = make_model(tmp_path / "model.safetensors")
    out = translate(tmp_path / "mixed.db", tmp_path / "out.db", descriptor="colmap-sift", target="plain", model=model)
    found = inspect(out, images=True)
    assert found["descriptors"] == [
        {"spec": "bits", "type": "UNDEFINED", "translated_from": None, "images": 1, "rows": 3},
        {"spec": "plain", "type": "UNDEFINED", "translated_from": "colmap-sift", "images": 1, "rows": 5},
    ]
    assert found["ratios"] == {"colmap-sift->plain": 0.7}
    assert found["xdesc_tables"] == "1" and found["attributes"]["model"] == "model.safetensors"
    image = {"name": "a b.jpg", "keypoints": 5, "columns": 6, "rows": 5, "spec": "plain"}
    assert found["image_list"][0] == image | {"type": "UNDEFINED", "translated_from": "colmap-sift", "damage": None}


def test_damaged_and_unknown_rows_are_told_and_not_refused(old, tmp_path):
    edit(old, "UPDATE descriptors SET data = x'00' WHERE image_id = 1")
    edit(old, "UPDATE descriptors SET cols = 64, data = zeroblob(192) WHERE image_id = 3")
    found = inspect(old)
    assert found["damaged"] == ["a b.jpg: descriptors hold 1 bytes, expected 640 for 5 x 128"]
    assert [d["spec"] for d in found["descriptors"]] == ["colmap-sift", "not said (type SIFT, 64 bytes)"]


def test_nothing_is_changed(old, store):
    before = state(old.parent)
    inspect(old)
    inspect(store)
    assert state(old.parent) == before


def test_a_feature_file_is_described(store):
    found = inspect(store, images=True)
    assert (found["kind"], found["images"], found["rows_not_valid"]) == ("feature file", 2, 1)
    assert found["keypoints"] == {"total": 3, "min": 0, "median": 1, "max": 3}
    assert found["keypoint_columns"] == {"keypoints, scales, oris": 2}
    described = {"spec": "plain", "stored": "float32 x 9", "translated_from": "bits", "images": 2, "rows": 3}
    assert found["descriptors"] == [described]
    assert found["ratios"] == {"bits->plain": 0.6}
    assert found["image_list"][1] == {"name": "sub/b.jpg", "keypoints": 0, "descriptors": "float32 x 9"}


def test_a_feature_file_that_does_not_say_what_it_holds_is_described(tmp_path):
    import h5py

    with h5py.File(tmp_path / "hloc.h5", "w") as file:
        file["a.jpg/keypoints"] = np.zeros((4, 2), np.float16)
        file["a.jpg/descriptors"] = np.zeros((256, 4), np.float16)
    [found] = inspect(tmp_path / "hloc.h5")["descriptors"]
    assert (found["spec"], found["stored"]) == ("not said", "float16 x 256")


def test_a_match_file_is_described(tmp_path):
    with MatchWriter(tmp_path / "one.h5", {}) as writer:
        writer.write("a/1.jpg", "b.jpg", 4, np.array([[0, 1]]), np.ones(1))
    assert kind(tmp_path / "one.h5") == "match file, 1 pair"
    with MatchWriter(tmp_path / "matches.h5", {"ratio": 0.8}) as writer:
        writer.write("a/1.jpg", "b.jpg", 4, np.array([[0, 1], [3, 0]]), np.ones(2))
        writer.write("a/1.jpg", "c.jpg", 4, np.zeros((0, 2), int), np.ones(0))
    found = inspect(tmp_path / "matches.h5")
    assert (found["kind"], found["images"], found["pairs"]) == ("match file", 3, 2)
    assert (found["matches"]["total"], found["pairs_without_matches"]) == (2, 1)
    assert found["attributes"]["ratio"] == 0.8


def test_a_model_is_described(tmp_path):
    found = inspect(make_model(tmp_path / "model.safetensors"))
    assert (found["kind"], found["networks"], found["embedding_width"]) == ("translator", "encoder_decoder", 8)
    assert len(found["space_id"]) == 12 and found["order"] is None
    bits = {"spec": "bits", "kind": "binary", "width": 19, "frame": "keypoint", "source": True, "target": True}
    assert bits in found["descriptors"] and len(found["descriptors"]) == 3
    assert found["ratios"]["bits->plain"] == 0.6
    assert found["parameters"] == sum((w + 1) * 17 + 18 * 8 + 9 * 11 + 12 * w for w in (128, 9, 19))


def test_a_smaller_copy_of_a_model_says_whose_space_it_is_of(tmp_path, capsys):
    bundle = small_translators.encoder_decoder()
    quantized(bundle, "int8").save(tmp_path / "small.safetensors", "int8")
    found = inspect(tmp_path / "small.safetensors")
    assert found["space_id"] == bundle.space_id
    assert found["weights"] == "int8, a copy in the joint space of the model that it was made of"
    assert found["weights"] in " ".join(capsys.readouterr().out.split())
    assert "weights" not in inspect(bundle.save(tmp_path / "whole.safetensors"))


def test_shipped_files_are_described_by_their_name():
    assert inspect("colmap")["order"][-1] == "sosnet-xdesc"
    assert inspect("hardnet-xdesc")["kind"] == "weight file"


@pytest.mark.parametrize("binary", [True, False])
def test_the_folder_of_a_model_is_described(tmp_path, binary):
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_cameras_per_rig, options.num_frames_per_rig, options.num_points3D = 2, 1, 2, 9
    model = pycolmap.synthesize_dataset(options)
    (model.write if binary else model.write_text)(tmp_path)
    found = inspect(tmp_path)
    assert (found["kind"], found["format"]) == ("COLMAP model", "bin" if binary else "txt")
    assert (found["cameras"], found["images"], found["points3D"]) == (2, 4, 9)
    assert (found["rigs"], found["frames"]) == (2, 4)


def test_the_description_is_written_as_json(old, tmp_path):
    assert cli.main(["inspect", str(old), "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["images"] == 4 and len(found["image_list"]) == 4


def test_images_are_listed_where_asked_for(old, capsys):
    assert cli.main(["inspect", str(old)]) == 0
    assert "sub/é.jpg" not in capsys.readouterr().out
    assert cli.main(["inspect", str(old), "--images"]) == 0
    assert "sub/é.jpg" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content, kind",
    [
        (b"", "an empty file"),
        (b"a.jpg b.jpg\n", "text"),
        (b"\x93NUMPY\x01\x00", "a numpy array"),
        (b"\x00\x01\x02", "a file that begins with"),
        (struct.pack("<Q", 900) + b'{"cut', "not a readable safetensors file, or cut short"),
        (b"\x89HDF\r\n\x1a\n cut", "not a readable HDF5 file, or cut short"),
        (b"SQLite format 3\0 cut", "not a readable COLMAP database"),
    ],
)
def test_other_files_are_refused_with_what_they_are(tmp_path, capsys, content, kind):
    (tmp_path / "file").write_bytes(content)
    assert cli.main(["inspect", str(tmp_path / "file")]) == 2
    error = capsys.readouterr().err
    assert kind in error and str(tmp_path / "file") in error


def test_an_hdf5_file_of_something_else_is_refused(tmp_path):
    import h5py

    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["a/b"] = np.zeros(3)
    with pytest.raises(ValueError, match="other.h5: an HDF5 file, but neither features nor matches"):
        inspect(tmp_path / "other.h5")


def test_a_missing_file_and_an_empty_folder_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent: no such file"):
        inspect(tmp_path / "absent")
    with pytest.raises(ValueError, match="holds no COLMAP model"):
        inspect(tmp_path)
    (tmp_path / "sift.h5").touch()
    with pytest.raises(ValueError, match=r"holds no COLMAP model .*; did you mean .*/sift\.h5\?"):
        inspect(tmp_path)


def test_a_model_of_numpy_arrays_is_a_translator(tmp_path):
    found = inspect(small_translators.encoder_decoder().save(tmp_path / "model.npz", "int8"))
    assert found["kind"] == "translator" and found["networks"] == "encoder_decoder"
