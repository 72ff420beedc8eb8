"""A COLMAP 4 database of SIFT and ALIKED photos: matched, translated, inspected, and made one map by one command."""

import itertools
import json

import numpy as np
import pytest

from tests.support.exact_scene import CAMERA, NAMES, make_scene
from tests.support.fake_matcher import in_its_place
from tests.support.mixed_database import codes, translator, write_mixed
from tests.support.network_calls import CALLS
from xdesc_jax import cli
from xdesc_jax.colmap.bindings.api import pycolmap, read_model
from xdesc_jax.colmap.camera_models import parse_camera
from xdesc_jax.colmap.cameras import choose_intrinsics
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.descriptors import get_spec
from xdesc_jax.features.given import KeypointFile
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.inspection.inspect import inspect
from xdesc_jax.mapping.build import build_database
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.matches import MatchFile, MatchWriter

SIFT = (NAMES[0], NAMES[3], NAMES[4])
TYPES = pycolmap.FeatureExtractorType


@pytest.fixture(scope="module")
def scene():
    return make_scene()


@pytest.fixture(scope="module")
def inputs(scene, tmp_path_factory):
    """The database of a scene, half of it SIFT, and a model."""
    folder = tmp_path_factory.mktemp("mixed")
    camera = next(iter(scene.model.cameras.values()))
    write_mixed(folder / "mixed.db", scene, camera, SIFT)
    translator(folder / "model.safetensors")
    return folder


def test_photos_hold_what_their_type_says_and_frames_where_they_have_some(inputs):
    with FeatureSet([inputs / "mixed.db"]) as features:
        for name in NAMES:
            held = features.held(name)
            assert (held.spec.name, held.translated_from) == (
                "colmap-sift" if name in SIFT else "aliked-n16rot", None,
            )  # fmt: skip
            assert (features.frames(name) is not None) == (name in SIFT)
            assert (features.read(name).scales is not None) == (name in SIFT)


def test_inspect_shows_the_types(inputs, capsys):
    kinds = {(d["spec"], d["type"], d["images"]) for d in inspect(inputs / "mixed.db")["descriptors"]}
    assert kinds == {("colmap-sift", "SIFT", 3), ("aliked-n16rot", "ALIKED_N16ROT", 3)}
    assert "ALIKED_N16ROT" in capsys.readouterr().out


def test_patches_are_refused_where_keypoints_of_aliked_lie(inputs):
    aliked = next(name for name in NAMES if name not in SIFT)
    with (
        KeypointFile(inputs / "mixed.db") as file,
        pytest.raises(ValueError, match="holds positions alone, as of ALIKED"),
    ):
        file.read(aliked)
    with KeypointFile(inputs / "mixed.db", framed=False) as file:
        assert not file.read(aliked).keypoints.framed and file.read(SIFT[0]).keypoints.framed


def test_one_command_makes_one_map_of_both(inputs, scene, tmp_path, capsys):
    words = ["reconstruct", inputs / "mixed.db", tmp_path / "map", "--pairs", "exhaustive", "--mode", "embed"]
    asked = [str(w) for w in (*words, "--model", inputs / "model.safetensors", "--threads", 1)]
    assert cli.main(asked) == 0
    found = read_model(tmp_path / "map" / "models" / "0")
    assert sorted(found.names) == sorted(NAMES) and len(found.points) == 200
    with MatchFile(tmp_path / "map" / "matches.h5") as file:
        for a, b in file.pairs():
            indices, scores = file.read(a, b)
            right = scene.matches(a, b).tolist()
            assert len(indices) > 0.9 * len(right) and all(match in right for match in indices.tolist())
            # Codes are equal where the encoder was told each keypoint's frame, up to the rounding of SIFT.
            assert scores.min() > 0.995
    with DatabaseReader(tmp_path / "map" / "database.db") as reader:
        assert {reader.spec(name).name for name in NAMES if name not in SIFT} == {"aliked-n16rot"}
    capsys.readouterr()
    assert cli.main(asked) == 0 and "up to date" in capsys.readouterr().out
    summary = json.loads((tmp_path / "map" / "summary.json").read_text())
    assert (summary["inputs"]["pairs"], summary["inputs"]["mode"]) == ("exhaustive", "embed")


def test_one_command_makes_a_map_by_lightglue(inputs, scene, tmp_path, monkeypatch):
    """By a matcher in its place, which looks for equal rows; SIFT is translated to ALIKED."""
    weights = in_its_place(monkeypatch, tmp_path)
    calls = tmp_path / "calls"
    monkeypatch.setenv(CALLS, str(calls))
    photos = NAMES[:3]
    (tmp_path / "pairs.txt").write_text("".join(f"{a}\t{b}\n" for a, b in itertools.combinations(photos, 2)))
    words = ["reconstruct", inputs / "mixed.db", tmp_path / "map", "--pairs", tmp_path / "pairs.txt", "--threads", 1]
    words += ["--mode", "directional", "--target", "aliked-n16rot", "--model", inputs / "model.safetensors"]
    words += ["--matcher", "lightglue", weights]
    assert cli.main([str(word) for word in words]) == 0
    assert len(calls.read_text().splitlines()) == 3
    with MatchFile(tmp_path / "map" / "matches.h5") as file:
        for a, b in file.pairs():
            right = scene.matches(a, b).tolist()
            assert sorted(file.read(a, b)[0].tolist()) == sorted(right) and len(right) == 200
    assert sorted(read_model(tmp_path / "map" / "models" / "0").names) == sorted(photos)
    summary = json.loads((tmp_path / "map" / "summary.json").read_text())
    assert summary["inputs"]["matcher"] == "lightglue" and summary["verified_pairs"] == 3


def test_photos_of_one_type_match_as_they_are(inputs, scene, tmp_path):
    first, second = NAMES[2], NAMES[5]
    (tmp_path / "pairs.txt").write_text(f"{NAMES[2]} {NAMES[5]}\n", encoding="utf-8")
    words = ["match", inputs / "mixed.db", tmp_path / "out.db", "--pairs", tmp_path / "pairs.txt"]
    assert cli.main(list(map(str, words))) == 0
    with pycolmap.Database.open(tmp_path / "out.db") as db:
        ids = {image.name: image.image_id for image in db.read_all_images()}
        found = db.read_matches(ids[first], ids[second]).tolist()
        assert db.read_descriptors(ids[first]).type == TYPES.ALIKED_N16ROT
    right = scene.matches(first, second).tolist()
    assert len(found) > 190 and all(match in right for match in found)


def test_sift_is_translated_to_typed_aliked(inputs, scene, tmp_path):
    model, out = inputs / "model.safetensors", tmp_path / "aliked.db"
    words = ["translate", inputs / "mixed.db", out, "--target", "aliked-n16rot", "--model", model]
    assert cli.main(list(map(str, words))) == 0
    with pycolmap.Database.open(out) as db:
        for image in db.read_all_images():
            rows = db.read_descriptors(image.image_id)
            assert rows.type == TYPES.ALIKED_N16ROT
            seen = scene.point[image.name]
            floats = pycolmap.FeatureDescriptorsFloat.from_bytes(rows).data[seen >= 0]
            code = codes(1 + max(int(p.max()) for p in scene.point.values()))[seen[seen >= 0]]
            assert (floats[:, : code.shape[1]] * code).sum(axis=1).min() > 0.98
    with DatabaseReader(out) as reader:
        assert {reader.translated_from(name) for name in SIFT} == {"colmap-sift"}


def test_photos_of_both_types_do_not_match_without_a_model(inputs, tmp_path, capsys):
    words = ["match", inputs / "mixed.db", tmp_path / "m.h5", "--pairs", "exhaustive"]
    assert cli.main(list(map(str, words))) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "'aliked-n16rot' (real, 128) and 'colmap-sift' (real, 128) do not compare" in told
    assert not (tmp_path / "m.h5").exists()


def test_rows_of_a_feature_file_are_written_typed(scene, tmp_path):
    """As COLMAP writes them: keypoints of 6 columns that say nothing of a frame."""
    spec, names = get_spec("aliked-n32"), NAMES[:2]
    rows = {name: np.eye(128, dtype=np.float32)[np.arange(len(scene.xy[name])) % 128] for name in names}
    with StoreWriter(tmp_path / "aliked.h5", spec) as writer:
        for name in names:
            xy = (scene.xy[name] - 0.5).astype(np.float32)
            writer.write(name, ImageFeatures(xy, rows[name], np.ones(len(xy), bool), (1024, 768)))
    with MatchWriter(tmp_path / "m.h5") as writer:
        writer.write(*names, len(scene.xy[names[0]]), scene.matches(*names), np.ones(200, np.float32))
    with FeatureSet([tmp_path / "aliked.h5"]) as features:
        cameras = choose_intrinsics(dict.fromkeys(names, (1024, 768)), given=parse_camera(CAMERA, "test"))
        build_database(tmp_path / "map.db", features, cameras, tmp_path / "m.h5")
    with pycolmap.Database.open(tmp_path / "map.db") as db:
        for image in db.read_all_images():
            found = db.read_descriptors(image.image_id)
            assert found.type == TYPES.ALIKED_N32 and found.data.tobytes() == rows[image.name].tobytes()
            assert (db.read_keypoints(image.image_id)[:, 2:] == [1, 0, 0, 1]).all()


@pytest.mark.parametrize(
    "more, told",
    [
        (["--mode", "embed", "--model", "colmap"], "say by --pairs which photos to match"),
        (["--pairs", "exhaustive", "--mode", "embed"], "--mode embed translates, so it needs a model"),
        (["--matcher", "lightglue"], "--matcher lightglue: is of matching here: say by --pairs"),
        (
            ["--pairs", "exhaustive", "--device", "cpu"],
            "--weights, --device and --min-score are for --matcher lightglue",
        ),
        (["--pairs", "exhaustive", "--matches", "m.h5"], "--matches m.h5 and --pairs exhaustive; give one of them"),
    ],
)
def test_settings_of_matching_that_do_not_fit_are_refused(inputs, tmp_path, capsys, more, told):
    assert cli.main(["reconstruct", str(inputs / "mixed.db"), str(tmp_path / "map"), *more]) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "map").exists()
