"""The stage `xdesc reconstruct`, from the words on the command line to the files."""

import json
import shutil

import h5py
import numpy as np
import pytest

from tests.support.exact_scene import CAMERA, NAMES, make_scene
from tests.support.in_use import check_refused_while_in_use
from xdesc_jax import cli
from xdesc_jax.colmap.bindings.api import pycolmap, read_model
from xdesc_jax.files.claim import inside
from xdesc_jax.mapping import reconstruct as stage
from xdesc_jax.mapping.reconstruct import SUMMARY, reconstruct
from xdesc_jax.matching.matches import MatchFile

LONELY = "z.jpg"  # has no matches


@pytest.fixture(scope="module")
def scene():
    return make_scene()


@pytest.fixture(scope="module")
def inputs(scene, tmp_path_factory):
    """Two feature files of different descriptors, matches of all but one photo, intrinsics and the true model."""
    folder = tmp_path_factory.mktemp("inputs")
    scene.write_features(folder / "a.h5", NAMES[:3])
    scene.write_features(folder / "b.h5", NAMES[3:], descriptor="sift")
    scene.write_matches(folder / "m.h5", lambda a, b: None if LONELY in (a, b) else scene.matches(a, b))
    (folder / "list.txt").write_text("".join(f"{name} {CAMERA}\n" for name in NAMES), encoding="utf-8")
    scene.write_model(folder / "true")
    return folder


def words(inputs, out, *more):
    given = ["reconstruct", inputs / "a.h5", inputs / "b.h5", out, "--matches", inputs / "m.h5"]
    return [str(word) for word in (*given, "--threads", 1, *more)]


@pytest.fixture(scope="module")
def made(inputs, tmp_path_factory):
    out = tmp_path_factory.mktemp("made") / "out"
    assert cli.main(words(inputs, out, "--intrinsics", inputs / "list.txt")) == 0
    return out


def test_database_models_and_summary_are_written(made):
    assert sorted(p.name for p in made.iterdir()) == ["database.db", "models", SUMMARY]
    summary = json.loads((made / SUMMARY).read_text())
    assert (summary["matched_pairs"], summary["verified_pairs"]) == (10, 10)
    assert summary["cameras"] == {"file": 6} and summary["database"]["photos"] == 6
    (model,) = summary["models"]
    registered = sorted(set(NAMES) - {LONELY})
    assert model["photo_names"] == registered and model["photos"] == 5 and model["points"] == 200
    assert model["observations"] == 1000 and model["mean_track_length"] == 5
    assert 0 < model["mean_reprojection_error_px"] < 0.01
    assert summary["not_registered"] == [LONELY]
    assert read_model(made / "models" / "0").names == tuple(registered)


def test_finished_work_is_not_done_again_and_other_settings_are_refused(inputs, made, monkeypatch, capsys):
    monkeypatch.setattr(stage, "verify", None)
    asked = words(inputs, made, "--intrinsics", inputs / "list.txt")
    assert cli.main(asked) == 0 and "up to date" in capsys.readouterr().out
    assert cli.main([*asked, "--seed", "1"]) == 2
    told = "database.db was made with another configuration (settings.seed: 0 -> 1)"
    assert told in capsys.readouterr().err


def test_other_photos_are_told_by_the_option_that_takes_them(inputs, made, tmp_path, capsys):
    (tmp_path / "only.txt").write_text("a b.jpg\nc.jpg\n")
    assert cli.main(words(inputs, made, "--intrinsics", inputs / "list.txt", "--only", tmp_path / "only.txt")) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "only: None -> " in told and "only.txt)" in told and "photos: other content" not in told


def test_overwrite_replaces_the_models(inputs, tmp_path):
    out = tmp_path / "out"
    assert cli.main(words(inputs, out, "--camera", CAMERA)) == 0
    assert cli.main(words(inputs, out, "--camera", CAMERA, "--seed", "1", "--overwrite")) == 0
    assert json.loads((out / SUMMARY).read_text())["config"]["settings"]["seed"] == 1


@pytest.mark.parametrize("stop_before", ["build_database", "verify", "map_incrementally", "_report"])
def test_stopped_run_goes_on_to_the_same_models(inputs, made, stop_before, tmp_path, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    asked = words(inputs, tmp_path / "out", "--intrinsics", inputs / "list.txt")
    with monkeypatch.context() as patch:
        patch.setattr(stage, stop_before, stop)
        assert cli.main(asked) == 130
    assert not (tmp_path / "out" / SUMMARY).exists()
    (tmp_path / "out" / ".models.1.partial" / "raw").mkdir(parents=True)  # as of a process that was killed
    (tmp_path / "out" / ".database.db.1.partial-wal").touch()
    assert cli.main(asked) == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["database.db", "models", SUMMARY]
    for name in ("points3D.bin", "images.bin", "cameras.bin"):
        assert (tmp_path / "out/models/0" / name).read_bytes() == (made / "models/0" / name).read_bytes()


def test_a_dry_run_leaves_an_unfinished_database_and_says_what_becomes_of_it(inputs, tmp_path, monkeypatch, capsys):
    asked, out = words(inputs, tmp_path / "out", "--intrinsics", inputs / "list.txt"), tmp_path / "out"

    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stage, "settle", stopped)
        assert cli.main(asked) != 0
    before = (out / stage.PARTIAL).read_bytes()
    for more, told in (((), "would go on"), (("--seed", "1"), "would be replaced")):
        capsys.readouterr()
        assert cli.main([*asked, *more, "--dry-run"]) == 0
        assert told in capsys.readouterr().out
        assert (out / stage.PARTIAL).read_bytes() == before


@pytest.mark.parametrize("gone", ["models", "models/0"])
def test_models_that_are_gone_are_made_again(inputs, made, tmp_path, gone, capsys):
    out = shutil.copytree(made, tmp_path / "out")
    shutil.rmtree(out / gone)
    asked = words(inputs, out, "--intrinsics", inputs / "list.txt")
    assert cli.main([*asked, "--dry-run"]) == 0 and "would go on" in capsys.readouterr().out
    assert cli.main(asked) == 0
    assert sorted(p.name for p in out.iterdir()) == ["database.db", "models", SUMMARY]
    for file in ("cameras.bin", "images.bin", "points3D.bin"):
        assert (out / "models" / "0" / file).read_bytes() == (made / "models" / "0" / file).read_bytes()


def test_given_poses_are_kept_with_their_cameras(scene, inputs, tmp_path):
    out = tmp_path / "out"
    assert cli.main(words(inputs, out, "--given-poses", inputs / "true")) == 0
    model, true = read_model(out / "models/0"), read_model(inputs / "true")
    assert model.names == true.names  # the photo without matches, too: its pose is known
    assert abs(model.translations - true.translations).max() < 1e-9
    assert json.loads((out / SUMMARY).read_text())["cameras"] == {"file": 6}
    assert model.residual_px.max() < 0.01 and len(model.points) == 200


def test_only_some_photos_are_taken(inputs, tmp_path):
    (tmp_path / "only.txt").write_text("\n".join(["a b.jpg", "c.jpg", "d.jpg", ""]))
    out = reconstruct(
        (inputs / "a.h5", inputs / "b.h5"), tmp_path / "out", matches=inputs / "m.h5", camera=CAMERA,
        only=tmp_path / "only.txt",
    )  # fmt: skip
    assert read_model(out / "models/0").names == ("a b.jpg", "c.jpg", "d.jpg")


@pytest.mark.parametrize("named", [(), ("--descriptor", "sift")])
def test_keypoints_alone_with_matches_of_a_dense_matcher_become_a_map(scene, tmp_path, named):
    """As hloc's `match_dense` writes LoFTR's: no descriptors, so nothing has to be said of them."""
    with h5py.File(tmp_path / "loftr.h5", "w") as file:
        for name in NAMES:
            file[f"{name}/keypoints"] = (scene.xy[name] - 0.5).astype(np.float32)
            file[f"{name}/score"] = np.ones(len(scene.xy[name]), np.float32)
    matches = scene.write_matches(tmp_path / "m.h5")
    asked = ["reconstruct", tmp_path / "loftr.h5", tmp_path / "out", "--matches", matches, "--camera", CAMERA, *named]
    assert cli.main([str(word) for word in asked]) == 0
    model = read_model(tmp_path / "out" / "models" / "0")
    assert len(model.names) == len(NAMES) and len(model.points) == 200 and model.residual_px.max() < 0.01


def test_photos_that_are_not_taken_are_not_matched(inputs, tmp_path, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(stage, "build_database", stop)
    (tmp_path / "only.txt").write_text("a b.jpg\nc.jpg\n")
    asked = ["reconstruct", inputs / "a.h5", tmp_path / "out", "--camera", CAMERA, "--only", tmp_path / "only.txt"]
    assert cli.main([str(word) for word in (*asked, "--pairs", "exhaustive")]) == 130
    with MatchFile(tmp_path / "out" / "matches.h5") as file:
        assert file.pairs() == [("a b.jpg", "c.jpg")]


def test_database_with_matches_needs_nothing_else(made, tmp_path):
    assert cli.main(["reconstruct", str(made / "database.db"), str(tmp_path / "out"), "--threads", "1"]) == 0
    summary = json.loads((tmp_path / "out" / SUMMARY).read_text())
    assert summary["cameras"] == {"database": 6} and summary["models"][0]["photos"] == 5


def test_nothing_that_connects_is_an_error_with_the_reason(scene, inputs, tmp_path, capsys):
    none = scene.write_matches(tmp_path / "none.h5", lambda a, b: None)
    asked = [str(w) for w in ("reconstruct", inputs / "a.h5", tmp_path / "out", "--matches", none, "--camera", CAMERA)]
    # The match file names no photo, so one feature file is enough.
    assert cli.main(asked) == 2
    assert "no pair of its 3 photos has matches" in capsys.readouterr().err
    assert not (tmp_path / "out" / SUMMARY).exists() and not (tmp_path / "out" / "models").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--camera", "NOPE 1 2"), "--camera: camera model is 'NOPE'"),
        (("--camera", CAMERA.replace("1024", "1000")), "is for 1000 x 768 px, but the photo has 1024 x 768"),
        (("--intrinsics", "none.txt"), "none.txt: no such list"),
        (("--only", "none.txt"), "none.txt: no such list of photos"),
        (("--given-poses", "none"), "none: holds no COLMAP model"),
        (("--min-inliers", "0"), "min_inliers is 0, expected at least 1"),
    ],
)
def test_what_cannot_be_is_one_line_and_nothing_is_written(inputs, tmp_path, capsys, more, message):
    assert cli.main(words(inputs, tmp_path / "out", *more)) == 2
    shown = capsys.readouterr().err
    assert message in " ".join(shown.split()) and "Traceback" not in shown
    assert not list(tmp_path.iterdir())


def test_names_of_matches_and_poses_are_joined_before_any_work(scene, inputs, tmp_path, capsys):
    asked = ["reconstruct", inputs / "a.h5", tmp_path / "out", "--matches", inputs / "m.h5", "--camera", CAMERA]
    assert cli.main([str(word) for word in asked]) == 2
    assert "names 2 photos not in" in " ".join(capsys.readouterr().err.split())
    other = make_scene([f"images/{name}" for name in NAMES])
    assert cli.main(words(inputs, tmp_path / "too", "--given-poses", other.write_model(tmp_path / "other"))) == 2
    assert "6 of 6 photos have no given pose, first ['a b.jpg'" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists() and not (tmp_path / "too").exists()


def test_a_database_or_models_of_others_are_never_replaced(inputs, made, tmp_path, capsys):
    foreign = tmp_path / "out" / "database.db"
    foreign.parent.mkdir()
    pycolmap.Database.open(foreign).close()
    before = foreign.read_bytes()
    assert cli.main(words(inputs, tmp_path / "out", "--camera", CAMERA, "--overwrite")) == 2
    assert "database.db was not made by this stage" in capsys.readouterr().err and foreign.read_bytes() == before
    (tmp_path / "too" / "models").mkdir(parents=True)
    assert cli.main(words(inputs, tmp_path / "too", "--camera", CAMERA, "--overwrite")) == 2
    assert "exists without the database" in capsys.readouterr().err
    before = (made / "database.db").read_bytes()
    assert cli.main(["reconstruct", str(made / "database.db"), str(made), "--overwrite"]) == 2
    assert "is the input itself" in capsys.readouterr().err and (made / "database.db").read_bytes() == before


def test_stores_without_matches_and_databases_with_options_of_stores_are_refused(inputs, made, tmp_path, capsys):
    assert cli.main(["reconstruct", str(inputs / "a.h5"), str(tmp_path / "out")]) == 2
    assert (
        "matches are given by --matches, made by --pairs, or lie in a single COLMAP database" in capsys.readouterr().err
    )
    assert cli.main(["reconstruct", str(made / "database.db"), str(tmp_path / "out"), "--camera-per", "size"]) == 2
    assert "--camera-per needs --matches or --pairs" in capsys.readouterr().err


def test_a_reconstruction_started_twice_says_who_reconstructs(inputs, tmp_path, capsys):
    out = tmp_path / "out"
    check_refused_while_in_use(words(inputs, out), inside(out), out, capsys)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--camera", "PINHOLE"), "--camera: expected 'MODEL width height params...'"),
        (("--camera", "PINHOLE 1024 768 1000 512"), "--camera: 2 parameters, but PINHOLE has 4"),
        (("--camera", CAMERA.replace("1024", "1000")), "is for 1000 x 768 px, but the photo has 1024 x 768"),
        (("--intrinsics", "none.txt"), "none.txt: no such list"),
    ],
)
def test_cameras_are_checked_before_photos_are_matched(inputs, tmp_path, monkeypatch, capsys, more, message):
    monkeypatch.setattr(stage, "match", None)
    asked = ["reconstruct", inputs / "a.h5", tmp_path / "out", "--pairs", "exhaustive", *more]
    assert cli.main([str(word) for word in asked]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())
