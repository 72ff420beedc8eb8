"""The extraction stage: what lands in the feature files, bad input, and interrupted runs."""

import os
import signal
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from textures import texture

from xdesc_jax import cli, descriptors
from xdesc_jax.descriptors import DescriptorSpec, get_spec, register
from xdesc_jax.features import extract as stage
from xdesc_jax.features import workers
from xdesc_jax.features.extract import ExtractSettings, extract, extract_parts
from xdesc_jax.features.images import UnreadablePhoto, read_gray
from xdesc_jax.features.keypoints import Keypoints, to_colmap
from xdesc_jax.features.parts import part_path
from xdesc_jax.files import read_json
from xdesc_jax.store import FeatureStore, ImageFeatures, StoreWriter

NAMES = ["A.png", "a.png", "sub/B c.JPG", unicodedata.normalize("NFD", "sub/\u00e9 \u65e5.png")]


@pytest.fixture
def photos(tmp_path) -> Path:
    """Four small photos; two names differ by case alone, one holds blanks and one non-ASCII letters."""
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    for i, name in enumerate(NAMES):
        Image.fromarray(texture(97, 121, seed=i)).save(folder / name)
    return folder


def read(out: Path, name: str) -> dict[str, ImageFeatures]:
    with FeatureStore(out / f"{name}.h5") as store:
        return dict(store)


def assert_same(a: ImageFeatures, b: ImageFeatures) -> None:
    for field in ("keypoints", "descriptors", "valid", "scales", "oris", "affine", "image_size"):
        np.testing.assert_array_equal(getattr(a, field), getattr(b, field), err_msg=field)


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
    out = extract(
        photos, tmp_path / "out", descriptors=("opencv-sift",), keypoints="opencv", max_keypoints=30
    )
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
    b = np.sqrt(
        opencv.descriptors[colmap.valid] / opencv.descriptors[colmap.valid].sum(axis=1, keepdims=True)
    )
    cosine = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert np.median(cosine) > 0.7


def test_keypoints_are_taken_from_a_feature_file(photos, tmp_path):
    first = extract(photos, tmp_path / "first", descriptors=("opencv-sift",), keypoints="opencv")
    source = str(first / "opencv-sift.h5")
    second = extract(photos, tmp_path / "second", descriptors=("opencv-sift",), keypoints=source)
    for name in NAMES:
        assert_same(read(first, "opencv-sift")[name], read(second, "opencv-sift")[name])


def test_keypoints_and_descriptors_are_taken_from_a_database(photos, tmp_path):
    from xdesc_jax.colmap.pycolmap_api import pycolmap

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
    out = extract(
        photos, tmp_path / "out", descriptors=("colmap-sift", "brief", "opencv-sift"), max_keypoints=9
    )
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


def test_unreadable_photos_are_left_out_and_named(photos, tmp_path, capsys):
    (photos / "empty.jpg").touch()
    (photos / "sub" / "text.png").write_text("no photo")
    (photos / "gone.png").symlink_to(photos / "nowhere.png")
    out = extract(photos, tmp_path / "out", descriptors=("opencv-sift",), keypoints="opencv")
    assert sorted(read(out, "opencv-sift")) == sorted(NAMES)
    skipped = read_json(out / "extract.json")["skipped"]
    assert sorted(skipped) == ["empty.jpg", "gone.png", "sub/text.png"]
    assert "0 bytes" in skipped["empty.jpg"]
    assert "left out" in capsys.readouterr().err


def test_strict_stops_at_an_unreadable_photo(photos, tmp_path):
    (photos / "empty.jpg").touch()
    with pytest.raises(UnreadablePhoto, match="empty.jpg"):
        extract(photos, tmp_path / "out", descriptors=("opencv-sift",), keypoints="opencv", strict=True)
    assert not (tmp_path / "out" / "opencv-sift.h5").exists()


def test_no_readable_photo_is_an_error(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").touch()
    with pytest.raises(ValueError, match="no photo can be read, first of 1: .*a.png"):
        extract(tmp_path / "photos", tmp_path / "out", descriptors=("opencv-sift",), keypoints="opencv")
    assert not (tmp_path / "out" / "opencv-sift.h5").exists()


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
        ({"descriptors": ("brief",), "first_octave": -2}, "first octave is -2"),
        ({"descriptors": ("brief",), "processes": 0}, "processes is 0"),
        ({"descriptors": ("brief",), "keypoints": __file__}, "neither a feature file"),
    ],
)
def test_unusable_settings_are_refused_before_any_work(photos, tmp_path, monkeypatch, settings, message):
    monkeypatch.setattr(workers, "detect_photo", None)
    with pytest.raises(ValueError, match=message):
        extract(photos, tmp_path / "out", **settings)


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
    with pytest.raises(ValueError, match="points.h5: 'A.png': .* without `scales`"):
        extract(photos, tmp_path / "out", descriptors=("opencv-sift",), keypoints=str(source))


def test_limit_on_given_keypoints_is_refused(photos, tmp_path):
    source = keypoint_file(tmp_path / "points.h5", {})
    with pytest.raises(ValueError, match="are all kept"):
        extract(photos, tmp_path / "out", descriptors=("brief",), keypoints=str(source), max_keypoints=5)


def test_command_line_gives_one_line_for_bad_input(photos, tmp_path, capsys):
    words = ["extract", str(photos), str(tmp_path / "out"), "--keypoints", "opencv"]
    assert cli.main([*words, "--descriptors", "opencv-sift", "colmap-sift", "--max-keypoints", "5"]) == 2
    assert capsys.readouterr().err.startswith("error: descriptor 'colmap-sift' exists only")
    assert cli.main([*words, "--descriptors", "opencv-sift", "--processes", "1", "--strict"]) == 0
    assert sorted(read(tmp_path / "out", "opencv-sift")) == sorted(NAMES)


# --- Finished and interrupted runs -----------------------------------------------------------------------


@pytest.fixture
def detected(monkeypatch) -> list[str]:
    """The photos that a run in this process really works on."""
    names = []
    original = workers.detect_photo

    def counting(path, *rest):
        names.append(path.name)
        return original(path, *rest)

    monkeypatch.setattr(workers, "detect_photo", counting)
    return names


SETTINGS = {"descriptors": ("opencv-sift",), "keypoints": "opencv"}


def test_finished_files_are_skipped_and_another_configuration_is_refused(photos, tmp_path, detected):
    out = extract(photos, tmp_path / "out", **SETTINGS)
    detected.clear()
    extract(photos, out, **SETTINGS)
    assert detected == []
    before = (out / "opencv-sift.h5").read_bytes()
    with pytest.raises(FileExistsError, match="opencv-sift.h5 was made with another configuration"):
        extract(photos, out, **SETTINGS, max_keypoints=7)
    assert (out / "opencv-sift.h5").read_bytes() == before
    extract(photos, out, **SETTINGS, max_keypoints=7, overwrite=True)
    assert len(read(out, "opencv-sift")["a.png"]) == 7


def test_another_set_of_photos_is_another_configuration(photos, tmp_path):
    out = extract(photos, tmp_path / "out", **SETTINGS)
    Image.fromarray(texture(90, 90, seed=9)).save(photos / "new.png")
    with pytest.raises(FileExistsError):
        extract(photos, out, **SETTINGS)


def test_descriptor_is_added_to_finished_ones(photos, tmp_path):
    out = extract(photos, tmp_path / "out", descriptors=("brief",), keypoints="opencv")
    before = (out / "brief.h5").stat().st_mtime_ns
    extract(photos, out, descriptors=("brief", "sift"), keypoints="opencv")
    assert (out / "brief.h5").stat().st_mtime_ns == before
    for name in NAMES:
        a, b = read(out, "brief")[name], read(out, "sift")[name]
        np.testing.assert_array_equal(a.keypoints, b.keypoints)
        np.testing.assert_array_equal(a.valid, b.valid)


def test_file_cut_short_is_made_again(photos, tmp_path, capsys):
    out = extract(photos, tmp_path / "out", **SETTINGS)
    whole = read(out, "opencv-sift")
    path = out / "opencv-sift.h5"
    path.write_bytes(path.read_bytes()[:96])
    extract(photos, out, **SETTINGS)
    assert "it is made again" in " ".join(capsys.readouterr().err.split())
    for name in NAMES:
        assert_same(read(out, "opencv-sift")[name], whole[name])


def test_interrupted_run_works_on_the_rest_alone(photos, tmp_path, detected):
    settings = ExtractSettings(**SETTINGS)
    parts = tmp_path / "out" / ".parts"
    steps = extract_parts(photos, sorted(NAMES), settings, parts)
    done = [next(steps)[0] for _ in range(3)]
    steps.close()
    assert done == sorted(NAMES)[:3] and len(detected) == 3
    cut = part_path(parts, done[1])
    cut.write_bytes(cut.read_bytes()[:-100])
    detected.clear()
    out = extract(photos, tmp_path / "out", **SETTINGS)
    assert detected == [Path(done[1]).name, Path(sorted(NAMES)[3]).name]
    assert not parts.exists()
    whole = extract(photos, tmp_path / "whole", **SETTINGS)
    for name in NAMES:
        assert_same(read(out, "opencv-sift")[name], read(whole, "opencv-sift")[name])


@pytest.mark.parametrize("change", ["photo", "settings"])
def test_part_of_another_photo_or_setting_is_not_used(photos, tmp_path, detected, change):
    parts = tmp_path / "parts"
    list(extract_parts(photos, ["A.png", "a.png"], ExtractSettings(**SETTINGS), parts))
    detected.clear()
    limit = None
    if change == "photo":
        Image.fromarray(texture(97, 121, seed=8)).save(photos / "a.png")
    else:
        limit = 1000
    settings = ExtractSettings(**SETTINGS, max_keypoints=limit)
    list(extract_parts(photos, ["A.png", "a.png"], settings, parts))
    assert detected == (["a.png"] if change == "photo" else ["A.png", "a.png"])


def test_leftover_of_a_killed_writer_is_removed(photos, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".opencv-sift.h5.1234.partial").touch()
    out = extract(photos, tmp_path / "out", **SETTINGS)
    assert sorted(p.name for p in out.iterdir()) == ["extract.json", "opencv-sift.h5"]


def test_failure_while_files_are_written_keeps_the_parts(photos, tmp_path, monkeypatch, detected):
    original = StoreWriter.write

    def failing(self, name, features):
        if name == NAMES[2]:
            raise OSError("no space left")
        original(self, name, features)

    monkeypatch.setattr(StoreWriter, "write", failing)
    with pytest.raises(OSError, match="no space left"):
        extract(photos, tmp_path / "out", **SETTINGS)
    assert not (tmp_path / "out" / "opencv-sift.h5").exists()
    monkeypatch.setattr(StoreWriter, "write", original)
    detected.clear()
    extract(photos, tmp_path / "out", **SETTINGS)
    assert detected == []


def _kills_parent(gray, points):
    """A descriptor whose worker kills the main process at the third photo, for good."""
    if (gray == read_gray(os.environ["KILLS_AT"])).all():
        os.kill(os.getppid(), signal.SIGKILL)
    return points.xy.copy(), np.ones(len(points), bool)


def _same(gray, points):
    return points.xy.copy(), np.ones(len(points), bool)


PROBED = {"descriptors": ("probe", "opencv-sift"), "keypoints": "opencv"}
SCRIPT = """
import sys
from pathlib import Path
import test_extract
from xdesc_jax.descriptors import DescriptorSpec, register
if __name__ == "__main__":
    register(DescriptorSpec("probe", 2, normalized=False), test_extract._kills_parent, source="photo")
    test_extract.extract(Path(sys.argv[1]), Path(sys.argv[2]), **test_extract.PROBED, processes=2)
"""


def test_killed_run_leaves_no_process_and_ends_in_the_same_files(photos, tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(stage.__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": paths, "KILLS_AT": str(photos / sorted(NAMES)[2])}
    command = [sys.executable, str(script), str(photos), str(tmp_path / "killed")]
    # Workers hold the pipe too, so this returns only when all of them have ended.
    killed = subprocess.run(command, env=environment, capture_output=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "probe.h5").exists()
    monkeypatch.setattr(descriptors, "_REGISTRY", dict(descriptors._REGISTRY))
    register(DescriptorSpec("probe", 2, normalized=False), _same, source="photo")
    for out in ("killed", "whole"):
        extract(photos, tmp_path / out, **PROBED)
    for descriptor in ("probe", "opencv-sift"):
        for name in NAMES:
            assert_same(
                read(tmp_path / "killed", descriptor)[name], read(tmp_path / "whole", descriptor)[name]
            )
    assert not (tmp_path / "killed" / ".parts").exists()


# --- Several processes -----------------------------------------------------------------------------------


def test_several_processes_give_what_one_gives(photos, tmp_path):
    (photos / "empty.jpg").touch()
    names = ("brief", "opencv-sift")
    one = extract(photos, tmp_path / "one", descriptors=names, keypoints="opencv")
    two = extract(photos, tmp_path / "two", descriptors=names, keypoints="opencv", processes=2)
    for descriptor in names:
        assert list(read(one, descriptor)) == list(read(two, descriptor))
        for name in NAMES:
            assert_same(read(one, descriptor)[name], read(two, descriptor)[name])
    assert list(read_json(two / "extract.json")["skipped"]) == ["empty.jpg"]


def _ends_the_process(gray, points):
    os._exit(3)


def test_worker_that_ends_is_reported(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(descriptors, "_REGISTRY", dict(descriptors._REGISTRY))
    register(DescriptorSpec("probe", 2, normalized=False), _ends_the_process, source="photo")
    with pytest.raises(OSError, match="a worker process ended .* run again with fewer processes"):
        extract(photos, tmp_path / "out", descriptors=("probe",), keypoints="opencv", processes=2)


# --- Imports ---------------------------------------------------------------------------------------------

PUBLIC = [
    "features.images", "features.keypoints", "features.response", "features.patches", "features.opencv",
    "features.extract", "colmap.database", "colmap.pycolmap_api",
]  # fmt: skip
DEFLATE = """
import importlib, sys
importlib.import_module("xdesc_jax." + sys.argv[1])
import numpy as np
from PIL import Image
Image.fromarray(np.arange(600, dtype=np.uint8).reshape(20, 30) % 7).save(sys.argv[2] + ".png")
np.savez_compressed(sys.argv[2] + ".npz", a=np.arange(1000) % 3)
if sys.argv[1].startswith("colmap.database"):
    assert not {"jax", "flax", "tensorflow", "pycolmap"} & set(sys.modules)
"""


def test_after_importing_any_module_alone_files_can_be_compressed(tmp_path):
    root = Path(stage.__file__).parents[2]
    running = {
        module: subprocess.Popen(
            [sys.executable, "-c", DEFLATE, module, str(tmp_path / module)],
            env={**os.environ, "PYTHONPATH": str(root)}, stderr=subprocess.PIPE,
        )
        for module in PUBLIC
    }  # fmt: skip
    for module, process in running.items():
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, f"{module}: {errors.decode()}"
