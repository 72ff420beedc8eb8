"""The extraction stage: what lands in the feature files, hard photos, and what is refused."""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from tests.support.textures import NAMES, SETTINGS, assert_same, read, texture
from xdesc_jax import cli, descriptors
from xdesc_jax.descriptors import DescriptorSpec, get_spec, register
from xdesc_jax.features import workers
from xdesc_jax.features.extract import ExtractSettings, configuration_keys, extract
from xdesc_jax.features.images import UnreadablePhoto
from xdesc_jax.features.keypoints import Keypoints, to_colmap
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.files.whole import read_json


def keypoint_file(path: Path, keypoints: dict[str, Keypoints], size: tuple[int, int] = (0, 0)) -> Path:
    """A feature file that serves for its keypoints alone."""
    with StoreWriter(path, get_spec("brief")) as writer:
        for name, points in keypoints.items():
            rows, valid = np.zeros((len(points), 64), np.uint8), np.ones(len(points), bool)
            writer.write(name, ImageFeatures(points.xy, rows, valid, size, points.scales, points.oris))
    return path


# --- What is written -------------------------------------------------------------------------------------


def test_files_of_all_descriptors_share_rows_and_mask(photos, tmp_path):
    out = extract(photos, tmp_path / "out", descriptors=("brief", "sift", "opencv-sift"), keypoints="opencv")
    brief, sift, opencv = (read(out, name) for name in ("brief", "sift", "opencv-sift"))
    assert list(brief) == list(sift) == list(opencv) == sorted(NAMES)
    for name in NAMES:
        a, b, c = brief[name], sift[name], opencv[name]
        assert len(a) > 20 and 0 < a.valid.sum() < len(a)
        for other in (b, c):
            for field in ("keypoints", "scales", "oris", "valid"):
                np.testing.assert_array_equal(getattr(a, field), getattr(other, field))
        for features in (a, b, c):
            assert features.image_size == (121, 97)
            np.testing.assert_array_equal(features.descriptors.any(axis=1), a.valid)
    assert sorted(p.name for p in out.iterdir()) == [
        "brief.h5", "extract.json", "opencv-sift.h5", "sift.h5",
    ]  # fmt: skip


def test_report_counts_photos_keypoints_and_valid_rows(photos, tmp_path):
    out = extract(photos, tmp_path / "out", **SETTINGS, max_keypoints=30)
    report = read_json(out / "extract.json")
    features = read(out, "opencv-sift").values()
    assert (report["photos"], report["keypoints"], report["skipped"]) == (4, 120, {})
    assert report["valid"] == sum(int(f.valid.sum()) for f in features)
    assert report["distinct_positions"] == sum(len({tuple(xy) for xy in f.keypoints}) for f in features)
    assert report["settings"]["max_keypoints"] == 30


def test_colmap_keypoints_bring_their_descriptors(photos, tmp_path):
    out = extract(photos, tmp_path / "out", descriptors=("colmap-sift", "opencv-sift"), max_keypoints=40)
    colmap, opencv = read(out, "colmap-sift")["a.png"], read(out, "opencv-sift")["a.png"]
    assert colmap.descriptors.dtype == np.uint8 and len(colmap) == 40
    # Two implementations of one idea: alike, not equal.
    a = colmap.descriptors[colmap.valid].astype(float)
    b = np.sqrt(opencv.descriptors[colmap.valid] / opencv.descriptors[colmap.valid].sum(axis=1, keepdims=True))
    cosine = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert np.median(cosine) > 0.7


def test_keypoints_are_taken_from_a_feature_file(photos, tmp_path):
    first = extract(photos, tmp_path / "first", **SETTINGS)
    source = str(first / "opencv-sift.h5")
    second = extract(photos, tmp_path / "second", descriptors=("opencv-sift",), keypoints=source)
    for name in NAMES:
        assert_same(read(first, "opencv-sift")[name], read(second, "opencv-sift")[name])


def test_keypoints_are_taken_from_a_file_that_does_not_name_its_descriptor(photos, tmp_path):
    first = extract(photos, tmp_path / "first", **SETTINGS)
    with h5py.File(tmp_path / "hloc.h5", "w") as file:
        for name, features in read(first, "opencv-sift").items():
            group = file.create_group(name)
            group["descriptors"] = np.zeros((7, len(features)), np.uint8)  # of a kind nobody knows
            group["image_size"] = np.array(features.image_size)
            for key in ("keypoints", "scales", "oris"):
                group[key] = getattr(features, key)
    source = str(tmp_path / "hloc.h5")
    second = extract(photos, tmp_path / "second", descriptors=("opencv-sift",), keypoints=source)
    for name in NAMES:
        assert_same(read(first, "opencv-sift")[name], read(second, "opencv-sift")[name])
    with h5py.File(tmp_path / "hloc.h5", "a") as file:
        for name in NAMES:
            file[name]["oris"][...] = np.rad2deg(file[name]["oris"][...])  # as hloc's own of SIFT
    turned = extract(photos, tmp_path / "turned", descriptors=("opencv-sift",), keypoints=source)
    for name in NAMES:
        kept, found = read(first, "opencv-sift")[name], read(turned, "opencv-sift")[name]
        np.testing.assert_allclose(found.oris, kept.oris, atol=1e-5)
        assert np.abs(found.descriptors - kept.descriptors).max() <= 1
    with h5py.File(tmp_path / "hloc.h5", "a") as file:
        del file["a.png/scales"]
        file["a.png/scales"] = np.ones(3)
    with pytest.raises(ValueError, match=r"hloc.h5: features of 'a.png'.*scales has shape \(3,\)"):
        extract(photos, tmp_path / "third", descriptors=("opencv-sift",), keypoints=source)


def test_keypoints_and_descriptors_are_taken_from_a_database(photos, tmp_path):
    from xdesc_jax.colmap.bindings.api import pycolmap

    out = extract(photos, tmp_path / "out", descriptors=("colmap-sift",), max_keypoints=50)
    native = read(out, "colmap-sift")
    path = tmp_path / "map.db"
    with pycolmap.Database.open(path) as db:
        pinhole = pycolmap.Camera(model="SIMPLE_PINHOLE", width=121, height=97, params=[100, 60, 48])
        camera = db.write_camera(pinhole)
        for name, f in native.items():
            image = db.write_image(pycolmap.Image(name=name, camera_id=camera))
            db.write_keypoints(image, to_colmap(Keypoints(f.keypoints, f.scales, f.oris)))
            kind = pycolmap.FeatureExtractorType.SIFT
            db.write_descriptors(image, pycolmap.FeatureDescriptors(type=kind, data=f.descriptors))
    before = path.read_bytes()
    again = extract(photos, tmp_path / "again", descriptors=("colmap-sift",), keypoints=str(path))
    for name, features in read(again, "colmap-sift").items():
        np.testing.assert_allclose(features.keypoints, native[name].keypoints, atol=2e-5)
        np.testing.assert_allclose(features.scales, native[name].scales, rtol=1e-5)
        np.testing.assert_array_equal(features.descriptors, native[name].descriptors)
    assert path.read_bytes() == before


def test_database_without_the_descriptors_asked_for_is_named(photos, tmp_path):
    from xdesc_jax.colmap.bindings.api import pycolmap

    path = tmp_path / "map.db"
    with pycolmap.Database.open(path) as db:
        pinhole = pycolmap.Camera(model="SIMPLE_PINHOLE", width=121, height=97, params=[100, 60, 48])
        camera = db.write_camera(pinhole)
        for name in NAMES:
            image = db.write_image(pycolmap.Image(name=name, camera_id=camera))
            db.write_keypoints(image, np.array([[60, 50, 2, 0.5]], np.float32))
    with pytest.raises(ValueError, match="map.db: 'A.png': colmap-sift asked for 1 keypoints, found none"):
        extract(photos, tmp_path / "out", descriptors=("colmap-sift",), keypoints=str(path))


def test_affine_shapes_are_kept(photos, tmp_path):
    shapes = np.array([[[3, 1], [0, 2]], [[2, 0], [1, 2]]], np.float32)
    source = tmp_path / "shapes.h5"
    with StoreWriter(source, get_spec("brief")) as writer:
        for name in NAMES:
            xy = np.array([[60, 50], [50, 40]], np.float32)
            zero, valid = np.zeros((2, 64), np.uint8), np.ones(2, bool)
            writer.write(name, ImageFeatures(xy, zero, valid, (121, 97), affine=shapes))
    out = extract(photos, tmp_path / "out", descriptors=("opencv-sift",), keypoints=str(source))
    features = read(out, "opencv-sift")["a.png"]
    np.testing.assert_array_equal(features.affine, shapes)
    assert features.scales is None and features.valid.all()


def test_own_descriptor_is_extracted_by_name(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(descriptors, "_REGISTRY", dict(descriptors._REGISTRY))
    register(DescriptorSpec("mean", 2, normalized=False), _mean)
    out = extract(photos, tmp_path / "out", descriptors=("mean",), keypoints="opencv")
    features = read(out, "mean")["a.png"]
    assert (features.descriptors[features.valid, 0] > 0).all()
    np.testing.assert_array_equal(features.descriptors[:, 1], 2 * features.descriptors[:, 0])


def _mean(patches):
    import jax.numpy as jnp

    return jnp.stack([patches.mean(axis=(1, 2)), 2 * patches.mean(axis=(1, 2))], axis=1)


# --- Hard photos and keypoints ---------------------------------------------------------------------------


def test_blank_photo_has_zero_rows_in_every_file(photos, tmp_path):
    Image.fromarray(np.full((50, 60), 255, np.uint8)).save(photos / "white.png")
    out = extract(photos, tmp_path / "out", descriptors=("colmap-sift", "brief", "opencv-sift"), max_keypoints=9)
    for name in ("colmap-sift", "brief", "opencv-sift"):
        features = read(out, name)["white.png"]
        assert features.descriptors.shape == (0, get_spec(name).stored_width)
        assert features.image_size == (60, 50)
    assert read_json(out / "extract.json")["photos_without_keypoints"] == 1


def test_border_and_flat_keypoints_keep_their_rows_in_every_file(tmp_path):
    gray = texture(140, 151)
    gray[:64, :64] = 0
    (tmp_path / "photos").mkdir()
    Image.fromarray(gray).save(tmp_path / "photos" / "a.png")
    xy = [[0.5, 0.5], [150.5, 139.5], [30, 30], [100, 100]]
    points = Keypoints(xy, [40, 40, 1, 2], np.zeros(4))
    source = keypoint_file(tmp_path / "points.h5", {"a.png": points})
    names = ("brief", "sift", "opencv-sift")
    out = extract(tmp_path / "photos", tmp_path / "out", descriptors=names, keypoints=str(source))
    for name in names:
        features = read(out, name)["a.png"]
        assert features.valid.tolist() == [False, False, False, True]
        assert features.descriptors.any(axis=1).tolist() == [False, False, False, True]
        assert np.isfinite(features.descriptors).all()


def test_brightness_leaves_brief_as_it_is(tmp_path):
    gray = np.clip(texture(97, 121), 0, 240)
    (tmp_path / "photos").mkdir()
    Image.fromarray(gray).save(tmp_path / "photos" / "a.png")
    Image.fromarray(gray + 10).save(tmp_path / "photos" / "b.png")
    rng = np.random.default_rng(0)
    points = Keypoints(rng.uniform(30, 70, (20, 2)), np.full(20, 2.0), rng.uniform(-3, 3, 20))
    source = keypoint_file(tmp_path / "points.h5", {"a.png": points, "b.png": points})
    out = extract(tmp_path / "photos", tmp_path / "out", descriptors=("brief",), keypoints=str(source))
    both = read(out, "brief")
    assert both["a.png"].valid.all()
    np.testing.assert_array_equal(both["a.png"].descriptors, both["b.png"].descriptors)


def test_unreadable_photos_are_left_out_and_named(photos, tmp_path, caplog):
    (photos / "empty.jpg").touch()
    (photos / "sub" / "text.png").write_text("no photo")
    (photos / "gone.png").symlink_to(photos / "nowhere.png")
    out = extract(photos, tmp_path / "out", **SETTINGS)
    assert sorted(read(out, "opencv-sift")) == sorted(NAMES)
    skipped = read_json(out / "extract.json")["skipped"]
    assert sorted(skipped) == ["empty.jpg", "gone.png", "sub/text.png"]
    assert "0 bytes" in skipped["empty.jpg"]
    assert sum(record.getMessage().startswith("left out: ") for record in caplog.records) == 3


def test_photos_with_names_that_are_not_utf8_or_too_long_a_side_are_left_out(photos, tmp_path):
    (Path(os.fsdecode(os.fsencode(photos) + b"/\xff.png"))).write_bytes((photos / "a.png").read_bytes())
    Image.fromarray(np.zeros((2, 32767), np.uint8)).save(photos / "long.png")
    out = extract(photos, tmp_path / "out", **SETTINGS)
    assert sorted(read(out, "opencv-sift")) == sorted(NAMES)
    assert sorted(read_json(out / "extract.json")["skipped"]) == [repr(b"\xff.png"), "long.png"]
    with pytest.raises(UnreadablePhoto, match="is not UTF-8"):
        extract(photos, tmp_path / "strict", **SETTINGS, strict=True)


def test_strict_stops_at_an_unreadable_photo(photos, tmp_path):
    (photos / "empty.jpg").touch()
    with pytest.raises(UnreadablePhoto, match="empty.jpg"):
        extract(photos, tmp_path / "out", **SETTINGS, strict=True)
    assert not (tmp_path / "out" / "opencv-sift.h5").exists()


def test_no_readable_photo_is_an_error(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").touch()
    with pytest.raises(ValueError, match="no photo can be read, first of 1: .*a.png"):
        extract(tmp_path / "photos", tmp_path / "out", **SETTINGS)
    assert not (tmp_path / "out" / "opencv-sift.h5").exists()


# --- Weights ---------------------------------------------------------------------------------------------


def test_the_content_of_the_weights_decides_wherever_they_lie(tmp_path, monkeypatch):
    monkeypatch.setenv("XDESC_DATA", str(tmp_path))
    installed, given = tmp_path / "weights/tfeat.safetensors", tmp_path / "mine.safetensors"
    installed.parent.mkdir()

    def key(**weights):
        return configuration_keys(ExtractSettings(("tfeat",), "opencv", weights=weights))["tfeat"]

    installed.write_bytes(b"one")
    given.write_bytes(b"one")
    assert key() == key(tfeat=given)
    before = key()
    installed.write_bytes(b"two")
    assert key() != before


# --- Refused before any work -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"descriptors": ("colmap-sift",), "keypoints": "opencv"}, "'colmap-sift' exists only where COLMAP"),
        ({"descriptors": ("sift", "sfit")}, "unknown descriptor 'sfit'; did you mean sift"),
        ({"descriptors": ("sift", "sift")}, "each may be named once"),
        ({"descriptors": ()}, "no descriptor"),
        ({"descriptors": ("tfeat",)}, "'tfeat'.*--weights tfeat=FILE"),
        ({"descriptors": ("sift",), "weights": ("tfeat=a.npz",)}, "weights are given for .'tfeat'."),
        ({"descriptors": ("tfeat",), "weights": ("tfeat",)}, "weights 'tfeat': expected NAME=FILE"),
        ({"descriptors": ("brief",), "max_keypoints": 0}, "limit of keypoints is 0"),
        ({"descriptors": ("brief",), "nms": -1.0}, "nms is -1.0 px, expected 0 or more"),
        ({"descriptors": ("brief",), "nms": float("inf")}, "nms is inf px"),
        ({"descriptors": ("brief",), "first_octave": -2}, "first octave is -2"),
        ({"descriptors": ("brief",), "processes": 0}, "processes is 0"),
        ({"descriptors": ("brief",), "keypoints": __file__}, "neither a feature file"),
    ],
)
def test_unusable_settings_are_refused_before_any_work(photos, tmp_path, monkeypatch, settings, message):
    monkeypatch.setattr(workers, "detect_photo", None)
    with pytest.raises(ValueError, match=message):
        extract(photos, tmp_path / "out", **settings)


@pytest.mark.parametrize("source", ["photo", "detector", "patch"])
def test_descriptor_that_comes_from_files_alone_is_refused(photos, tmp_path, monkeypatch, source):
    monkeypatch.setattr(descriptors, "_REGISTRY", dict(descriptors._REGISTRY))
    monkeypatch.setattr(workers, "detect_photo", None)
    register(DescriptorSpec("theirs", 64), source=source)
    with pytest.raises(ValueError, match="'theirs' (is registered without a function|comes with its own detector)"):
        extract(photos, tmp_path / "out", descriptors=("theirs",), keypoints="opencv")


def test_missing_keypoint_file_is_named(photos, tmp_path):
    with pytest.raises(FileNotFoundError, match="absent.h5: no such file; keypoints are 'colmap'"):
        extract(photos, tmp_path / "out", descriptors=("brief",), keypoints="absent.h5")


def test_photos_without_given_keypoints_are_listed_before_any_work(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "detect_photo", None)
    points = Keypoints([[50, 50]], [2], [0])
    source = keypoint_file(tmp_path / "points.h5", {"photos/a.png": points, "a.png": points})
    with pytest.raises(ValueError, match=r"no keypoints for 3 of 4 photos, first \['A.png', 'sub/B c.JPG'"):
        extract(photos, tmp_path / "out", descriptors=("opencv-sift",), keypoints=str(source))


def test_keypoints_of_a_photo_of_another_size_are_refused(photos, tmp_path):
    points = dict.fromkeys(NAMES, Keypoints([[50, 50]], [2], [0]))
    source = keypoint_file(tmp_path / "points.h5", points, size=(640, 480))
    with pytest.raises(ValueError, match="640 x 480 px, but .*A.png has 121 x 97 px"):
        extract(photos, tmp_path / "out", descriptors=("opencv-sift",), keypoints=str(source))


def test_keypoints_without_scales_are_refused(photos, tmp_path):
    source = tmp_path / "points.h5"
    with StoreWriter(source, get_spec("brief")) as writer:
        for name in NAMES:
            zero = np.zeros((1, 64), np.uint8)
            writer.write(name, ImageFeatures(np.ones((1, 2)), zero, np.ones(1, bool), (0, 0)))
    with pytest.raises(ValueError, match="points.h5: features of 'A.png' .* without `scales`"):
        extract(photos, tmp_path / "out", descriptors=("opencv-sift",), keypoints=str(source))


def test_limit_on_given_keypoints_is_refused(photos, tmp_path):
    source = keypoint_file(tmp_path / "points.h5", {})
    with pytest.raises(ValueError, match="are all kept"):
        extract(photos, tmp_path / "out", descriptors=("brief",), keypoints=str(source), max_keypoints=5)
    with pytest.raises(ValueError, match="are all kept.* found nms of 2.0 px"):
        extract(photos, tmp_path / "out", descriptors=("brief",), keypoints=str(source), nms=2.0)


def test_near_duplicates_are_left_out_of_every_file(photos, tmp_path):
    words = ["--keypoints", "opencv", "--descriptors", "opencv-sift", "orb"]
    assert cli.main(["extract", str(photos), str(tmp_path / "all"), *words]) == 0
    assert cli.main(["extract", str(photos), str(tmp_path / "some"), *words, "--nms", "2.5"]) == 0
    dropped = 0
    for name, every in read(tmp_path / "all", "opencv-sift").items():
        some = [read(tmp_path / "some", descriptor)[name].keypoints for descriptor in ("opencv-sift", "orb")]
        np.testing.assert_array_equal(*some)
        assert {tuple(xy) for xy in some[0]} <= {tuple(xy) for xy in every.keypoints}
        gaps = np.linalg.norm(some[0][:, None] - some[0][None], axis=-1) + 99 * np.eye(len(some[0]))
        assert (gaps >= 2.5).all()
        dropped += len(every) - len(some[0])
    assert dropped > 3
    with pytest.raises(FileExistsError, match="another configuration"):
        extract(photos, tmp_path / "some", descriptors=("opencv-sift", "orb"), keypoints="opencv")


def test_command_line_gives_one_line_for_bad_input(photos, tmp_path, capsys):
    words = ["extract", str(photos), str(tmp_path / "out"), "--keypoints", "opencv"]
    assert cli.main([*words, "--descriptors", "opencv-sift", "colmap-sift", "--max-keypoints", "5"]) == 2
    assert "error: descriptor 'colmap-sift' exists only" in capsys.readouterr().err
    assert cli.main([*words, "--descriptors", "opencv-sift", "--processes", "1", "--strict"]) == 0
    assert sorted(read(tmp_path / "out", "opencv-sift")) == sorted(NAMES)


def test_keypoints_of_a_database_without_scales_are_refused_as_those_of_a_file(photos, tmp_path):
    from xdesc_jax.colmap.bindings.api import pycolmap

    with pycolmap.Database.open(tmp_path / "points.db") as db:
        for name in NAMES:
            camera = db.write_camera(pycolmap.Camera(model="SIMPLE_PINHOLE", width=60, height=50, params=[50, 30, 25]))
            db.write_keypoints(db.write_image(pycolmap.Image(name=name, camera_id=camera)), np.ones((1, 2), np.float32))
    with pytest.raises(ValueError, match=r"points.db: 'A.png': the database holds positions alone, as of ALIKED"):
        extract(photos, tmp_path / "out", descriptors=("opencv-sift",), keypoints=str(tmp_path / "points.db"))
