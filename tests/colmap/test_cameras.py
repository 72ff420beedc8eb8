"""Where a photo's camera comes from, and which photos may share one."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from tests.support.exact_scene import make_scene
from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.bindings.database import NewDatabase, cameras_by_id, set_cameras
from xdesc_jax.colmap.camera_models import CAMERA_MODELS, PARAMETERS, focals, parse_camera, pinhole
from xdesc_jax.colmap.cameras import (
    Intrinsics,
    choose_intrinsics,
    database_cameras,
    guessed_camera,
    read_intrinsics,
    share_cameras,
)
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.model import Camera

LISTED = Camera("PINHOLE", 640, 480, (500.0, 510.0, 320.0, 240.0))
GIVEN = Camera("SIMPLE_RADIAL", 640, 480, (480.0, 320.0, 240.0, 0.01))
OWN = Camera("SIMPLE_RADIAL", 640, 480, (490.0, 320.0, 240.0, 0.02))
SIZES = {"sub/\u00e9 1.jpg": (640, 480), "b.jpg": (640, 480)}
MM35_OF_A_35_MM_LENS = 35 / np.hypot(36, 24)  # of the diagonal


@pytest.fixture
def photos(tmp_path):
    """One photo with a 35 mm lens in its EXIF, one without EXIF."""
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    exif = Image.Exif()
    exif[0x8769] = {0xA405: 35}  # FocalLengthIn35mmFilm
    Image.new("RGB", (640, 480)).save(folder / "sub" / "\u00e9 1.jpg", exif=exif)
    Image.new("RGB", (640, 480)).save(folder / "b.jpg")
    return folder


def test_a_photo_without_exif_gets_the_guess_and_says_so(photos):
    chosen = choose_intrinsics(SIZES, photos=photos)["b.jpg"]
    assert chosen == Intrinsics(Camera("SIMPLE_RADIAL", 640, 480, (768.0, 320.0, 240.0, 0.0), known=False), "guess")
    assert not chosen.measured and choose_intrinsics(SIZES)["b.jpg"] == chosen
    assert guessed_camera(480, 640).params[0] == 768  # of the longer side


def test_exif_goes_before_the_guess_and_is_refined(photos):
    chosen = choose_intrinsics(SIZES, photos=photos)["sub/\u00e9 1.jpg"]
    assert chosen.source == "exif" and chosen.camera.known and not chosen.measured
    np.testing.assert_allclose(chosen.camera.params, (MM35_OF_A_35_MM_LENS * 800, 320, 240, 0), rtol=1e-3)


@pytest.mark.parametrize(
    ("sources", "expected", "source"),
    [
        ({}, None, "exif"),
        ({"own": OWN}, OWN, "database"),
        ({"own": OWN, "listed": LISTED}, LISTED, "file"),
        ({"own": OWN, "listed": LISTED, "given": GIVEN}, GIVEN, "command line"),
    ],
)
def test_command_line_goes_before_file_before_database_before_exif(photos, sources, expected, source):
    asked = {key: value if key == "given" else dict.fromkeys(SIZES, value) for key, value in sources.items()}
    chosen = choose_intrinsics(SIZES, photos=photos, **asked)["sub/\u00e9 1.jpg"]
    assert chosen.source == source and (expected is None or (chosen.camera == expected and chosen.measured))


def test_exif_goes_before_the_guess_that_a_database_holds(photos):
    own = dict.fromkeys(SIZES, guessed_camera(640, 480))
    chosen = choose_intrinsics(SIZES, own=own, photos=photos)
    assert {name: i.source for name, i in chosen.items()} == {"sub/\u00e9 1.jpg": "exif", "b.jpg": "database"}
    assert not chosen["b.jpg"].camera.known and not chosen["b.jpg"].measured


def test_a_database_camera_as_colmap_makes_it_of_exif_is_refined():
    plain = Camera("SIMPLE_RADIAL", 640, 480, (490.0, 320.0, 240.0, 0.0))
    moved = Camera("PINHOLE", 640, 480, (490.0, 490.0, 321.0, 240.0))
    assert [Intrinsics(c, "database").measured for c in (plain, moved, OWN)] == [False, True, True]


def test_a_size_in_the_features_is_not_needed_where_the_camera_or_photo_has_one(photos):
    unsized = dict.fromkeys(SIZES, (0, 0))
    assert choose_intrinsics(unsized, photos=photos)["b.jpg"].camera.width == 640
    with pytest.raises(ValueError, match=r"2 photos have neither intrinsics nor a size .*'sub/\u00e9 1.jpg', 'b.jpg'"):
        choose_intrinsics(unsized)


def test_camera_of_another_size_than_its_photo_is_refused():
    with pytest.raises(ValueError, match=r"'b.jpg' \(file\) is for 640 x 480 px, but the photo has 480 x 640"):
        choose_intrinsics({"b.jpg": (480, 640)}, listed={"b.jpg": LISTED})


def test_list_of_other_photos_is_refused_and_of_some_is_told(caplog):
    with pytest.raises(ValueError, match=r"2 of 2 photos are not in the list, .*it has 1, first \['images/b.jpg'\]"):
        choose_intrinsics(SIZES, listed={"images/b.jpg": LISTED})
    chosen = choose_intrinsics(SIZES, listed={"b.jpg": LISTED})
    assert [i.source for i in chosen.values()] == ["guess", "file"]
    assert "1 of 2 photos are not in the list" in caplog.text


def test_photos_that_the_folder_lacks_are_told(photos, caplog):
    (photos / "b.jpg").unlink()
    assert choose_intrinsics(SIZES, photos=photos)["b.jpg"].source == "guess"
    assert "holds no photo ['b.jpg'] (first of 1)" in caplog.text


def test_a_damaged_photo_is_named(photos):
    (photos / "b.jpg").write_bytes(b"no photo")
    with pytest.raises(ValueError, match="b.jpg: cannot be read as a photo"):
        choose_intrinsics(SIZES, photos=photos)


# --- Files of intrinsics ---------------------------------------------------------------------------------


def test_list_is_read_with_blanks_and_model_names_in_names(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("# comment\n\nsub/\u00e9 PINHOLE 1.jpg PINHOLE 640 480 500 510 320 240\n", encoding="utf-8")
    assert read_intrinsics(path) == {"sub/\u00e9 PINHOLE 1.jpg": LISTED}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a.jpg PINHOL 640 480 1 2 3 4", "expected 'name MODEL"),
        ("PINHOLE 640 480 10 20 3 4", "expected 'name MODEL"),
        ("a.jpg PINHOLE 640 480 10 20 3", "3 parameters, but PINHOLE has 4"),
        ("a.jpg PINHOLE 640 480 10 20 3 x", "with finite numbers"),
        ("a.jpg PINHOLE 640 480 0 2 3 4", "focal length is 0 px, expected above 0"),
        ("a.jpg PINHOLE 640 480 10 0 3 4", "focal length is 0 px, expected above 0"),
        ("a.jpg", "'a.jpg' .* has no intrinsics"),
        ("a.jpg PINHOLE 640.5 480 1 2 3 4", "whole numbers"),
        ("a.jpg PINHOLE 640 480 10 20 nan 4", "finite"),
        ("b.jpg PINHOLE 640 480 10 20 3 4\n" * 2, "listed twice"),
    ],
)
def test_line_that_is_not_as_expected_is_named(tmp_path, line, message):
    (tmp_path / "list.txt").write_text(line)
    with pytest.raises(ValueError, match=rf"list.txt(:\d)?: .*{message}"):
        read_intrinsics(tmp_path / "list.txt")


def test_missing_list_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="none.txt: no such list"):
        read_intrinsics(tmp_path / "none.txt")


def test_model_and_database_are_read_and_agree(tmp_path):
    options = pycolmap.SyntheticDatasetOptions()
    with pycolmap.Database.open(tmp_path / "d.db") as db:
        pycolmap.synthesize_dataset(options, db)
    before = (tmp_path / "d.db").read_bytes()
    from_database = read_intrinsics(tmp_path / "d.db")
    scene = make_scene(sorted(from_database))
    from_model = read_intrinsics(scene.write_model(tmp_path / "model"))
    assert {n: c.params for n, c in from_model.items()} == {n: c.params for n, c in from_database.items()}
    assert not any(c.known for c in from_database.values())  # as the synthetic database says
    assert (tmp_path / "d.db").read_bytes() == before


@pytest.mark.parametrize("name", sorted(set(pycolmap.CameraModelId.__members__) - {"INVALID"}))
def test_camera_models_are_colmaps(name):
    """Those of this version; the table knows newer ones, too."""
    number = pycolmap.CameraModelId.__members__[name]
    camera = pycolmap.Camera.create_from_model_id(1, number, 100.0, 640, 480)
    assert CAMERA_MODELS[int(number)] == name and PARAMETERS[name] == len(camera.params)
    first = focals(name)
    assert list(camera.focal_length_idxs()) == list(range(first))
    if first:
        assert list(camera.principal_point_idxs()) == [first, first + 1]
        assert list(camera.extra_params_idxs()) == list(range(first + 2, PARAMETERS[name]))


def test_a_pinhole_camera_has_the_intrinsics_that_it_was_made_of():
    k = np.array([[310.5, 0, 161.2], [0, 305.25, 119], [0, 0, 1]])
    camera = pinhole(k)
    made = pycolmap.Camera(model=camera.model, width=camera.width, height=camera.height, params=list(camera.params))
    np.testing.assert_array_equal(made.calibration_matrix(), k)
    assert (camera.width, camera.height) == (323, 238)


def test_camera_of_a_photo_is_read_from_the_database(tmp_path):
    with pycolmap.Database.open(tmp_path / "d.db") as db:
        camera = pycolmap.Camera(model="OPENCV", width=64, height=48, params=[60, 61, 32, 24, 0.1, 0.2, 0.3, 0.4])
        camera.has_prior_focal_length = True
        db.write_image(pycolmap.Image(name="a.jpg", camera_id=db.write_camera(camera)))
    with DatabaseReader(tmp_path / "d.db") as reader:
        assert reader.camera("a.jpg") == Camera("OPENCV", 64, 48, (60, 61, 32, 24, 0.1, 0.2, 0.3, 0.4))
    assert list(database_cameras(tmp_path / "d.db")) == ["a.jpg"]


def test_command_line_camera_of_an_unknown_model_is_refused():
    with pytest.raises(ValueError, match="--camera: camera model is 'NOPE', expected one of SIMPLE_PINHOLE"):
        parse_camera("NOPE 1 2 3", "--camera")


# --- Sharing ---------------------------------------------------------------------------------------------


def of_sizes(**sizes):
    return choose_intrinsics({name.replace("_", "/"): size for name, size in sizes.items()})


def test_each_photo_has_its_own_camera_unless_told():
    chosen = of_sizes(A_1=(640, 480), A_2=(640, 480), B_1=(800, 600))
    assert share_cameras(chosen) == {"A/1": ["A/1"], "A/2": ["A/2"], "B/1": ["B/1"]}
    assert share_cameras(chosen, "folder") == {"A": ["A/1", "A/2"], "B": ["B/1"]}
    assert list(share_cameras(chosen, "size").values()) == [["A/1", "A/2"], ["B/1"]]


def test_photos_of_two_sizes_cannot_share_a_camera():
    chosen = of_sizes(A_1=(640, 480), A_2=(800, 600))
    with pytest.raises(ValueError, match=r"'A/1' and 'A/2' cannot share .*640 x 480 px.*800 x 600 px"):
        share_cameras(chosen, "folder")


def test_photos_of_two_cameras_cannot_share_one():
    chosen = {"a": Intrinsics(LISTED, "file"), "b": Intrinsics(GIVEN, "file")}
    with pytest.raises(ValueError, match=r"'a' and 'b' cannot share a camera \(per size"):
        share_cameras(chosen, "size")


# --- Cameras that cannot be ----------------------------------------------------------------------------------

PLAIN = Camera("PINHOLE", 320, 240, (300, 300, 160, 120))
IMPOSSIBLE = [
    ({"params": (0, 300, 160, 120)}, "focal length is 0 px, expected above 0"),
    ({"params": (300, -300, 160, 120)}, "focal length is -300 px, expected above 0"),
    ({"params": (300, 1e-300, 160, 120)}, "focal length is 1e-300 px, expected 3.2 to 320000 for 320 px"),
    ({"params": (0.8, 1.1, 0.5, 0.5)}, "focal length is 0.8 px, .* in px, neither in mm nor as a share of the width"),
    ({"params": (300, 1e30, 160, 120)}, "focal length is 1e[+]30 px"),
    ({"params": (300, float("inf"), 160, 120)}, "expected finite ones"),
    ({"params": (300, 300, float("nan"), 120)}, "expected finite ones"),
    ({"params": (300, 300, 160, 1e30)}, "principal point is at 1e[+]30 px, expected within 32000"),
    ({"model": "SIMPLE_RADIAL", "params": (300, 160, 120, -1e30)}, "a parameter is -1e[+]30, expected within"),
    ({"width": -320}, "photo size is -320 x 240 px, expected above 0"),
    ({"height": 1 << 40}, "photo size is 320 x 1099511627776 px, expected at most"),
    ({"params": (300, 160, 120)}, "3 parameters, but PINHOLE has 4"),
]


@pytest.mark.parametrize(("changes", "message"), IMPOSSIBLE)
@pytest.mark.parametrize("source", ["given", "listed", "own"])
def test_a_camera_that_cannot_be_is_refused_whatever_it_comes_from(source, changes, message):
    camera = dataclasses.replace(PLAIN, **changes)
    cameras = camera if source == "given" else {"a.jpg": camera}
    with pytest.raises(ValueError, match=f"camera of 'a.jpg' .*{message}"):
        choose_intrinsics({"a.jpg": (0, 0)}, **{source: cameras})


@pytest.mark.parametrize("focal", [3.5, 300.0, 90_000.0])
def test_the_widest_and_the_longest_lenses_are_taken(focal):
    camera = dataclasses.replace(PLAIN, params=(focal, focal, -500, 900))
    assert choose_intrinsics({"a.jpg": (320, 240)}, given=camera)["a.jpg"].camera == camera


def test_a_folder_of_photos_that_was_mistyped_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="typo: no such folder of photos"):
        choose_intrinsics({"a.jpg": (320, 240)}, photos=tmp_path / "typo")
    with pytest.raises(ValueError, match=r"holds none of the 2 photos, first \['a.jpg', 'b.jpg'\]"):
        choose_intrinsics({"a.jpg": (320, 240), "b.jpg": (320, 240)}, photos=tmp_path)


def test_a_camera_without_a_focal_length_has_none_to_be_known(tmp_path):
    """COLMAP notes no focal length that was given."""
    spherical = Camera("EQUIRECTANGULAR", 2000, 1000, (2000.0, 1000.0))
    with NewDatabase(tmp_path / "a.db") as db:
        db.add_photo("a.jpg", db.add_camera(dataclasses.replace(spherical, known=False)))
    assert database_cameras(tmp_path / "a.db") == {"a.jpg": spherical}
    assert list(cameras_by_id(tmp_path / "a.db").values()) == [spherical]
    assert not set_cameras(tmp_path / "a.db", {1: spherical})
