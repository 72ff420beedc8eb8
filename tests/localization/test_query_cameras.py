"""The camera of each query: the list, one for all, other intrinsics, EXIF, and a guess."""

import dataclasses

import pytest
from PIL import Image

from tests.support.localize_stage import check_exact, results, run
from tests.support.place import rewrite
from xdesc_jax.cli import main
from xdesc_jax.colmap.bindings.api import pycolmap


@pytest.fixture(params=["list", "model", "database"])
def intrinsics(request, place, tmp_path):
    """The queries' cameras, as each source holds them."""
    if request.param == "list":
        (tmp_path / "cameras.txt").write_text(place.query_list)
        return tmp_path / "cameras.txt"
    model = pycolmap.Reconstruction()
    with pycolmap.Database.open(tmp_path / "cameras.db") as db:
        for number, name in enumerate(place.queries, start=1):
            camera = place.cameras[name]
            made = pycolmap.Camera(
                model=camera.model, width=camera.width, height=camera.height, params=camera.params, camera_id=number,
                has_prior_focal_length=True,
            )  # fmt: skip
            image = pycolmap.Image(name=name, camera_id=db.write_camera(made))
            db.write_image(image)
            model.add_camera_with_trivial_rig(made)
            image = pycolmap.Image(name=name, camera_id=number, image_id=number)
            model.add_image_with_trivial_frame(image, pycolmap.Rigid3d())
    model.write(tmp_path)
    return tmp_path / "cameras.db" if request.param == "database" else tmp_path


def test_intrinsics_come_from_a_list_a_model_or_a_database(place, tmp_path, bare, pairs, intrinsics):
    assert run(place, tmp_path / "out", bare, "--pairs", pairs, "--intrinsics", intrinsics) == 0
    check_exact(place, tmp_path / "out")


def words_of(camera, focal=None):
    return " ".join(
        map(str, (camera.model, camera.width, camera.height, focal or camera.params[0], *camera.params[1:]))
    )


def test_one_camera_is_of_all_queries_whose_line_says_none(place, tmp_path, bare, pairs):
    first, second = place.queries
    camera = place.cameras[second]
    assert run(place, tmp_path / "out", bare, "--pairs", pairs, "--camera", words_of(camera)) == 0
    check_exact(place, tmp_path / "out")
    found = results(tmp_path / "out")
    assert found["settings"]["camera"] == dataclasses.asdict(camera) | {"params": list(camera.params)}
    bare.write_text(f"{first} {words_of(camera, 700)}\n{second}\n")
    assert run(place, tmp_path / "listed", bare, "--pairs", pairs, "--camera", words_of(camera)) == 0
    focals = {name: entry["camera"]["params"][0] for name, entry in results(tmp_path / "listed")["queries"].items()}
    assert focals == {first: 700, second: camera.params[0]}
    # Another camera is another result.
    words = ["--pairs", pairs, "--camera", words_of(camera, 900)]
    assert run(place, tmp_path / "out", bare, *words) == 2


def test_without_a_list_all_photos_of_the_query_features_are_queries(place, tmp_path, pairs, capsys):
    asked = rewrite(place.features["own-a"], tmp_path / "q.h5", lambda n, photo: photo if n in place.queries else None)
    given = ["localize", place.model, tmp_path / "out", "--features", place.features["own-a"], "--pairs", pairs]
    camera = ["--camera", words_of(place.cameras[place.queries[0]])]
    assert main([str(word) for word in [*given, *camera]]) == 2
    assert "name the queries" in capsys.readouterr().err
    given += ["--query-features", asked]
    assert main([str(word) for word in given]) == 2
    assert "q.h5: 2 queries have no intrinsics" in " ".join(capsys.readouterr().err.split())
    assert main([str(word) for word in [*given, *camera]]) == 0
    check_exact(place, tmp_path / "out")


@pytest.mark.parametrize(
    ("camera", "message"),
    [
        ("PINHOLE 512 384 640 640 256 192", "(command line) is for 512 x 384 px, but the photo has 1024 x 768"),
        ("PINHOLE 1024 768 640 640", "--camera: 2 parameters, but PINHOLE has 4"),
        ("NOPE 1024 768 640", "--camera: camera model is 'NOPE'"),
        ("", "--camera: camera model is ''"),
    ],
)
def test_a_camera_that_cannot_be_the_queries_is_refused(place, tmp_path, bare, pairs, capsys, camera, message):
    assert run(place, tmp_path / "out", bare, "--pairs", pairs, "--camera", camera) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_a_camera_that_no_query_takes_is_told(place, tmp_path, queries, bare, pairs, capsys):
    words = ["--pairs", pairs, "--camera", words_of(place.cameras[place.queries[0]], 900)]
    assert run(place, tmp_path / "both", bare, *words, "--intrinsics", queries) == 2
    assert "--intrinsics and --camera both say cameras" in " ".join(capsys.readouterr().err.split())
    assert run(place, tmp_path / "out", queries, *words) == 0
    assert "of all 2 queries, so none takes that of --camera" in " ".join(capsys.readouterr().err.split())
    check_exact(place, tmp_path / "out")


def test_intrinsics_of_none_of_the_queries_are_refused_or_guessed(place, tmp_path, bare, pairs, capsys):
    """The map's own model, say: its cameras are of other photos."""
    words = ["--pairs", pairs, "--intrinsics", place.model]
    assert run(place, tmp_path / "out", bare, *words) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"of none of the 2 queries, first {sorted(place.queries)!r}; --camera says it of all, --assume-focal" in said
    assert run(place, tmp_path / "out", bare, *words, "--assume-focal") == 0
    assert all(entry["focal_px"] is not None for entry in results(tmp_path / "out")["queries"].values())


def test_the_query_list_goes_before_other_intrinsics(place, tmp_path, queries, pairs):
    first, second = place.query_list.splitlines()
    queries.write_text(f"{first}\n{place.queries[1]}\n")
    name, model, *_ = first.split()
    (tmp_path / "cameras.txt").write_text(f"{name} {model} 1024 768 700 512 384 0\n{second}\n")
    assert run(place, tmp_path / "out", queries, "--pairs", pairs, "--intrinsics", tmp_path / "cameras.txt") == 0
    check_exact(place, tmp_path / "out")


def write_photo(path, focal_35mm=None):
    exif = Image.Exif()
    if focal_35mm is not None:
        exif[0x8769] = {0xA405: focal_35mm, 0xA002: 1024, 0xA003: 768}
    Image.new("RGB", (1024, 768)).save(path, exif=exif)


def test_exif_is_read_where_nothing_else_knows_a_query(place, tmp_path, bare, pairs, capsys):
    (tmp_path / "photos").mkdir()
    for name in place.queries:  # 45 mm of 36 x 24 mm are 1280 px
        write_photo(tmp_path / "photos" / name, focal_35mm=43)
    assert run(place, tmp_path / "out", bare, "--pairs", pairs, "--photos", tmp_path / "photos") == 0
    assert all(entry["focal_px"] is None for entry in results(tmp_path / "out")["queries"].values())
    write_photo(tmp_path / "photos" / place.queries[0])
    words = ["--pairs", pairs, "--photos", tmp_path / "photos"]
    assert run(place, tmp_path / "other", bare, *words) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "1 query has no intrinsics" in error and place.queries[0] in error
    assert "; EXIF of --photos does not say them, --camera and --intrinsics do, --assume-focal guesses" in error
    assert run(place, tmp_path / "other", bare, *words, "--assume-focal") == 0
    assert results(tmp_path / "other")["queries"][place.queries[0]]["focal_px"] == pytest.approx(1280, abs=15)
    assert run(place, tmp_path / "none", bare, "--pairs", pairs, "--photos", tmp_path / "typo") == 2
    assert "typo: no such folder of photos" in capsys.readouterr().err
