"""One view of photos in feature files and databases."""

import contextlib
import json
import shutil
import sqlite3
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.databases import edit
from tests.support.feature_files import write_store
from xdesc_jax import cli
from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.cameras import choose_intrinsics
from xdesc_jax.colmap.database_writer import DatabaseWriter
from xdesc_jax.descriptors import get_spec, unit_rows
from xdesc_jax.features import keypoints
from xdesc_jax.features.keypoints import Keypoints, from_shapes, to_colmap
from xdesc_jax.features.store import ImageFeatures, StoreWriter
from xdesc_jax.files.whole import input_hash
from xdesc_jax.mapping.build import build_database
from xdesc_jax.matching.feature_set import FeatureSet
from xdesc_jax.matching.named_files import NamedFiles

XY = np.array([[3.25, 4.5], [10, 0], [7, 7]], np.float32)


@pytest.fixture
def database(tmp_path):
    """`d.jpg` with colmap-sift, its row 1 zero; `bare.jpg` without features; `odd.jpg` with bytes of unknown kind."""
    path = tmp_path / "map.db"
    types = pycolmap.FeatureExtractorType
    with pycolmap.Database.open(path) as db:
        camera = db.write_camera(pycolmap.Camera(model="SIMPLE_PINHOLE", width=64, height=48, params=[50, 32, 24]))
        for name, kind in {"d.jpg": types.SIFT, "bare.jpg": None, "odd.jpg": types.UNDEFINED}.items():
            image = db.write_image(pycolmap.Image(name=name, camera_id=camera))
            if kind is not None:
                db.write_keypoints(image, to_colmap(Keypoints(XY, np.full(3, 2.0), np.array([0, 0.5, -1]))))
                rows = np.arange(3 * 128, dtype=np.uint8).reshape(3, 128)
                rows[1] = 0
                db.write_descriptors(image, pycolmap.FeatureDescriptors(type=kind, data=rows))
    return path


def test_photos_of_all_files_are_there_with_what_they_hold(database, tmp_path):
    hardnet = write_store(tmp_path, "hardnet", ["a.jpg", "b.jpg"])
    with FeatureSet([hardnet, database]) as features:
        assert features.names == ["a.jpg", "b.jpg", "bare.jpg", "d.jpg", "odd.jpg"]
        assert features.held("a.jpg").spec.name == "hardnet" and features.held("d.jpg").spec.name == "colmap-sift"
        assert features.held("d.jpg").translated_from is None and features.held("bare.jpg") is None
        assert features.path("b.jpg") == hardnet and features.path("d.jpg") == database
        assert features.image_size("d.jpg") == (64, 48) and features.image_size("a.jpg") == (99, 99)
        assert "x.jpg" not in features and len(features) == 5


def test_shapes_of_keypoints_are_computed_once_a_photo(database, monkeypatch):
    asked = []
    monkeypatch.setattr(keypoints, "from_shapes", lambda xy, shapes: asked.append(len(xy)) or from_shapes(xy, shapes))
    with FeatureSet([database]) as features:
        features.read("d.jpg"), features.frames("d.jpg")
    assert asked == [3, 3]


def test_one_path_is_a_list_of_one(database):
    for path in (database, str(database)):
        with FeatureSet(path) as features:
            assert features.paths == [database] and len(features) == 3


def test_keypoints_of_a_database_get_the_origin_at_the_centre(database):
    with FeatureSet([database]) as features:
        photo = features.read("d.jpg")
        np.testing.assert_allclose(features.keypoints("d.jpg"), XY)
        np.testing.assert_allclose(photo.keypoints, XY)
        np.testing.assert_allclose(photo.scales, 2.0, atol=1e-6)
        np.testing.assert_allclose(photo.oris, [0, 0.5, -1], atol=1e-6)
        assert photo.valid.tolist() == [True, False, True] and photo.image_size == (64, 48)


def test_rows_of_which_nothing_is_said_need_a_name(database):
    with FeatureSet([database]) as features:
        with pytest.raises(
            ValueError, match=r"map\.db: does not say which descriptor 'odd.jpg' holds .*by --descriptor$"
        ):
            features.held("odd.jpg")
    with FeatureSet([database], hint="name it by --query-descriptor") as features:
        with pytest.raises(ValueError, match=r"'odd.jpg' holds .*; name it by --query-descriptor$"):
            features.held("odd.jpg")
    with FeatureSet([database], descriptor="colmap-sift") as features:
        assert features.held("odd.jpg").spec.name == "colmap-sift"


def test_translated_rows_of_a_database_say_what_they_come_from(database, tmp_path):
    out, spec = tmp_path / "out.db", get_spec("hardnet-xdesc")
    rows = unit_rows(np.random.default_rng(0).normal(size=(3, 128)))
    with DatabaseWriter(database, out) as writer:
        writer.set_descriptors("d.jpg", rows, spec, "colmap-sift")
        writer.set_attribute("ratios", '{"colmap-sift->hardnet-xdesc": 0.8}')
    with FeatureSet([out]) as features:
        held = features.held("d.jpg")
        assert (held.spec, held.translated_from, held.source) == (spec, "colmap-sift", "colmap-sift")
        np.testing.assert_array_equal(features.read("d.jpg").descriptors, rows)
        assert features.ratios == {"colmap-sift->hardnet-xdesc": 0.8}


def test_a_photo_in_two_files_is_refused(tmp_path):
    a, b = write_store(tmp_path, "hardnet", ["a.jpg", "b.jpg"]), write_store(tmp_path, "sosnet", ["b.jpg", "c.jpg"])
    told = r"photo 'b.jpg' is in two files, .*hardnet\.h5 and .*sosnet\.h5; give one .* names begin with it"
    with pytest.raises(ValueError, match=told):
        FeatureSet([a, b])


def test_unknown_photos_are_told_five_at_a_time(tmp_path):
    with FeatureSet([write_store(tmp_path, "hardnet", ["a.jpg"])]) as features:
        with pytest.raises(ValueError, match=r"the list names 6 photos .* first \['0', '1', '2', '3', '4'\]"):
            features.check_names([*"012345", "a.jpg"], "the list")
        with pytest.raises(KeyError, match="no photo 'x.jpg'"):
            features.read("x.jpg")


def test_other_numbers_of_keypoints_and_rows_are_refused(database, tmp_path):
    out = tmp_path / "out.db"
    with DatabaseWriter(database, out) as writer:
        rows = unit_rows(np.random.default_rng(0).normal(size=(2, 128)))
        writer.set_descriptors("d.jpg", rows, get_spec("hardnet-xdesc"), None)
    with FeatureSet([out]) as features, pytest.raises(ValueError, match="'d.jpg' has 3 keypoints and 2 descriptors"):
        features.read("d.jpg")


def test_files_that_are_neither_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("no features here")
    with pytest.raises(ValueError, match=r"a\.txt: neither a feature file"):
        FeatureSet([tmp_path / "a.txt"])
    with pytest.raises(FileNotFoundError, match=r"b\.h5: no such feature file or COLMAP database"):
        FeatureSet([tmp_path / "b.h5"])
    with pytest.raises(ValueError, match=f"{tmp_path}: is a folder, expected a feature file or a COLMAP database$"):
        FeatureSet([tmp_path])
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["x.jpg/keypoints"] = np.zeros((1, 2))
    with pytest.raises(ValueError, match=rf"; did you mean {tmp_path}/c\.h5\?"):
        FeatureSet([tmp_path])
    with h5py.File(tmp_path / "c.h5", "a") as file:
        file["x.jpg/descriptors"] = np.zeros((128, 1))
    with pytest.raises(ValueError, match=r"c\.h5: does not say which descriptor it holds"):
        FeatureSet([tmp_path / "c.h5"])


def silent_and_brief(folder):
    """A file that does not say what it holds, and one of brief."""
    with h5py.File(folder / "silent.h5", "w") as file:
        file["a.jpg/keypoints"] = np.zeros((3, 2), np.float32)
        file["a.jpg/descriptors"] = unit_rows(np.random.default_rng(0).random((3, 128))).T
    with StoreWriter(folder / "brief.h5", get_spec("brief")) as store:
        xy, rows = np.zeros((3, 2), np.float32), np.ones((3, 64), np.uint8)
        store.write("b.jpg", ImageFeatures(xy, rows, np.ones(3, bool), (9, 9)))
    return folder / "silent.h5", folder / "brief.h5"


def test_a_given_descriptor_is_of_the_files_that_do_not_say(tmp_path):
    silent, brief = silent_and_brief(tmp_path)
    with FeatureSet([silent, brief], "sift") as features:
        assert features.held("a.jpg").spec.name == "sift" and features.held("b.jpg").spec.name == "brief"
        assert features.needs_descriptor
    with FeatureSet([brief], "brief") as features:
        assert not features.needs_descriptor


def test_a_given_descriptor_that_no_file_needs_or_holds_is_refused(tmp_path):
    _, brief = silent_and_brief(tmp_path)
    with pytest.raises(ValueError, match=r"brief\.h5: holds 'brief', but 'sift' was asked for"):
        FeatureSet([brief], "sift")


def test_a_descriptor_named_for_a_database_that_holds_another_is_refused(database, tmp_path):
    _, brief = silent_and_brief(tmp_path)
    with FeatureSet([database], NamedFiles.of(f"sift={database}", [database])) as features:
        assert [features.held(name).spec.name for name in ("d.jpg", "odd.jpg")] == ["colmap-sift", "sift"]
    edit(database, "DELETE FROM descriptors WHERE image_id = 3")
    FeatureSet([brief, database], NamedFiles.of(f"colmap-sift={database}", [brief, database]))
    with pytest.raises(ValueError, match=r"\.db: holds 'colmap-sift', but 'sift' was asked for"):
        FeatureSet([brief, database], NamedFiles.of(f"sift={database}", [brief, database]))


def test_of_two_calibrated_ratios_the_strictest_counts(tmp_path):
    for name, ratios in (("a", {"brief->sift": 0.8, "brief->orb": 0.7}), ("b", {"brief->sift": 0.9})):
        with StoreWriter(tmp_path / f"{name}.h5", get_spec("brief"), {"ratios": json.dumps(ratios)}) as store:
            xy, rows = np.zeros((1, 2), np.float32), np.ones((1, 64), np.uint8)
            store.write(f"{name}.jpg", ImageFeatures(xy, rows, np.ones(1, bool), (9, 9)))
    for paths in ("ab", "ba"):
        with FeatureSet([tmp_path / f"{name}.h5" for name in paths]) as features:
            assert features.ratios == {"brief->sift": 0.8, "brief->orb": 0.7}


@contextlib.contextmanager
def rows_gone_in_the_log(database):
    """What another program wrote into a database of mode WAL, whose own file holds nothing of it yet."""
    with contextlib.closing(sqlite3.connect(database)) as writer:
        writer.execute("UPDATE descriptors SET data = zeroblob(length(data))")
        writer.commit()
        before = database.read_bytes()
        yield
        assert database.read_bytes() == before


def test_files_are_known_again_by_their_content_and_databases_by_their_log_too(database, tmp_path):
    hardnet = write_store(tmp_path, "hardnet", ["a.jpg"])
    edit(database, "PRAGMA journal_mode=WAL")
    with FeatureSet([hardnet, database]) as features:
        assert features.hashes() == [input_hash(hardnet), input_hash(database)]
        with rows_gone_in_the_log(database):
            of_store, of_database = features.hashes()
            assert of_store == input_hash(hardnet) and of_database != input_hash(database)


@pytest.fixture(scope="module")
def mapped(place, tmp_path_factory):
    """Folder with all photos of a place in `map.db`, their matches, and the list of the queries."""
    folder = tmp_path_factory.mktemp("mapped")
    (folder / "queries.txt").write_text(place.query_list)
    store = place.features["own-b"]
    assert cli.main(["match", str(store), str(folder / "m.h5"), "--pairs", "exhaustive"]) == 0
    with FeatureSet([store]) as features:
        cameras = choose_intrinsics(dict.fromkeys(features.names, (1024, 768)), own=place.cameras)
        build_database(folder / "map.db", features, cameras, folder / "m.h5")
    edit(folder / "map.db", "PRAGMA journal_mode=WAL")
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "match IN OUT --pairs exhaustive",
        "retrieve IN OUT --model MODEL",
        "localize MAP OUT --features IN --queries LIST --pairs exhaustive",
        "reconstruct IN OUT --matches MATCHES --threads 1",
        "map update MAP OUT --features IN --queries LIST --new-features STORE",
        "map update MAP OUT --features STORE --queries LIST --new-features IN",
    ],
)
def test_a_database_whose_log_has_grown_is_another_input(place, mapped, tmp_path, capsys, words):
    source = Path(shutil.copy(mapped / "map.db", tmp_path))
    named = {"IN": source, "OUT": tmp_path / "out.h5", "STORE": place.features["own-b"], "MODEL": place.translator}
    named |= {"MAP": place.model, "LIST": mapped / "queries.txt", "MATCHES": mapped / "m.h5"}
    given = [str(named.get(word, word)) for word in words.split()]
    assert cli.main(given) == 0 and cli.main(given) == 0
    assert "up to date" in capsys.readouterr().out
    with rows_gone_in_the_log(source):
        assert cli.main(given) == 2
    assert "choose another output or pass --overwrite" in " ".join(capsys.readouterr().err.split())
