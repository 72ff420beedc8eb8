"""The stage `xdesc translate` on COLMAP databases."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from tests.support.databases import SPECS, edit, make_4, run, sift_rows, state, tables
from xdesc_jax.colmap.bindings.api import pycolmap
from xdesc_jax.colmap.database import DatabaseReader
from xdesc_jax.colmap.database_writer import DatabaseWriter
from xdesc_jax.descriptors import DescriptorSpec, pack_bits
from xdesc_jax.translation import database as translate_database
from xdesc_jax.translation.translate import translate
from xdesc_jax.translation.translator import Translator


@pytest.fixture
def mixed(database_3):
    """Of COLMAP 3, its second image with keypoints of 'plain' rows, its first of bits, its blank ones as they were."""
    out = database_3.with_name("mixed.db")
    with DatabaseWriter(database_3, out) as writer:
        writer.set_descriptors("sub/é.jpg", np.ones((3, 9), np.float32), SPECS["plain"], "bits")
        writer.set_descriptors("a b.jpg", bits(5), SPECS["bits"], None)
    return out


def bits(n):
    return pack_bits(np.random.default_rng(n).random((n, 19)) < 0.4)


def test_all_but_the_descriptors_is_kept(model, database, tmp_path):
    out = translate(database, tmp_path / "out.db", descriptor="colmap-sift", target="plain", model=model)
    before, after = tables(database), tables(out)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"descriptors", "xdesc_specs", "xdesc_images", "xdesc_attributes"}
    assert set(before) <= set(after)


@pytest.mark.parametrize("target", ["plain", "bits", "embedding"])
def test_each_image_holds_the_translation_of_its_rows(model, database, tmp_path, target):
    out = translate(database, tmp_path / "out.db", target=target, model=model)
    translator = Translator.load(model)
    with DatabaseReader(database) as before, DatabaseReader(out) as after:
        for name in before.names:
            old = before.descriptors(name)
            if not len(old):
                assert after.spec(name) is None
                continue
            assert after.spec(name) == translator.spec(target)
            assert after.translated_from(name) == "colmap-sift"
            expected = translator.stream("colmap-sift", target, storage=True)(old)
            np.testing.assert_array_equal(after.descriptors(name), expected)


def test_the_input_stays_as_it_is_and_alone(model, database, tmp_path):
    before = state(database.parent)
    translate(database, tmp_path / "out.db", target="plain", model=model)
    assert state(database.parent) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out.db", "out.db.json"]


def test_a_read_only_folder_is_enough(model, database, tmp_path):
    database.chmod(0o400)
    database.parent.chmod(0o500)
    try:
        before = state(database.parent)
        translate(database, tmp_path / "out.db", target="plain", model=model)
        assert state(database.parent) == before
    finally:
        database.parent.chmod(0o700)


def test_pycolmap_opens_the_result(model, database, tmp_path):
    out = translate(database, tmp_path / "out.db", target="plain", model=model)
    with DatabaseReader(out) as reader:
        rows = {image_id: reader.descriptors(name) for name, image_id in reader.ids.items()}
    with pycolmap.Database.open(out) as db:
        for image in db.read_all_images():
            found = db.read_descriptors(image.image_id)
            assert np.asarray(found.data).tobytes() == rows[image.image_id].tobytes()
            if len(rows[image.image_id]):
                assert found.type == pycolmap.FeatureExtractorType.UNDEFINED
        assert db.num_matched_image_pairs() == len(tables(database)["matches"])


def test_pycolmap_still_reads_rigs_frames_and_pose_priors(model, tmp_path):
    out = translate(make_4(tmp_path / "map.db"), tmp_path / "out.db", target="plain", model=model)
    with pycolmap.Database.open(out) as db:
        assert (db.num_rigs(), db.num_frames(), db.num_images(), db.num_cameras()) == (2, 6, 6, 2)
        assert len(db.read_all_pose_priors()) == 6


def test_colmap_itself_matches_rows_translated_to_its_sift(model, tmp_path):
    with DatabaseWriter(make_4(tmp_path / "map.db"), tmp_path / "bits.db") as writer:
        with DatabaseReader(tmp_path / "map.db") as reader:
            for name in reader.names:
                writer.set_descriptors(name, bits(len(reader.keypoints(name))), SPECS["bits"], None)
        writer.clear_matches()
    out = translate(tmp_path / "bits.db", tmp_path / "out.db", target="colmap-sift", model=model)
    options = pycolmap.FeatureMatchingOptions()
    options.use_gpu, options.num_threads = False, 1
    pycolmap.match_exhaustive(out, options, device=pycolmap.Device.cpu)
    with pycolmap.Database.open(out) as db:
        first = db.read_all_images()[0].image_id
        assert db.read_descriptors(first).type == pycolmap.FeatureExtractorType.SIFT
        assert db.num_matched_image_pairs() > 0


# --- Mixed descriptors -------------------------------------------------------------------------------------


def test_without_a_source_each_image_is_translated_from_what_it_holds(model, mixed, tmp_path):
    out = translate(mixed, tmp_path / "out.db", target="plain", model=model)
    with DatabaseReader(mixed) as before, DatabaseReader(out) as after:
        assert after.translated_from("a b.jpg") == "bits"
        assert after.translated_from("sub/é.jpg") == "bits"  # as before: it held 'plain' already
        np.testing.assert_array_equal(after.descriptors("sub/é.jpg"), before.descriptors("sub/é.jpg"))
        assert json.loads(after.attributes["ratios"]) == {"bits->plain": 0.6}
    summary = json.loads((tmp_path / "out.db.json").read_text())
    assert (summary["images"], summary["images_kept"], summary["images_without_descriptors"]) == (1, 1, 2)
    assert summary["rows"] == 5


def test_with_a_source_only_its_images_are_translated(model, mixed, tmp_path):
    out = translate(mixed, tmp_path / "out.db", descriptor="plain", target="colmap-sift", model=model)
    with DatabaseReader(out) as after:
        assert after.spec("a b.jpg") == SPECS["bits"]
        assert after.spec("sub/é.jpg").name == "colmap-sift"
        assert after.translated_from("sub/é.jpg") == "bits->plain"
    warnings = json.loads((tmp_path / "out.db.json").read_text())["warnings"]
    assert any(text.startswith("rows are translations already (bits -> plain)") for text in warnings)


def test_a_source_that_is_the_target_is_refused(model, mixed, tmp_path, capsys):
    arguments = ("--descriptor", "plain", "--target", "plain", "--model", model)
    assert run(mixed, tmp_path / "out.db", *arguments) == 2
    assert "nothing to translate: --descriptor and --target are both 'plain'" in capsys.readouterr().err


def test_an_image_of_a_descriptor_that_the_model_lacks_is_named_before_any_work(model, mixed, tmp_path, capsys):
    with DatabaseWriter(mixed, tmp_path / "other.db") as writer:
        writer.set_descriptors("sub/é.jpg", np.ones((3, 4), np.float32), DescriptorSpec("mine", 4), None)
    assert run(tmp_path / "other.db", tmp_path / "out.db", "--target", "plain", "--model", model) == 2
    assert "'sub/é.jpg' holds 'mine', which the model cannot take" in capsys.readouterr().err
    assert not [p.name for p in tmp_path.iterdir() if "out" in p.name]


def test_another_implementation_of_sift_is_refused(database_3, tmp_path, capsys):
    arguments = ("--source", "opencv-sift", "--target", "hardnet-xdesc", "--model", "colmap")
    assert run(database_3, tmp_path / "out.db", *arguments) == 2
    error = capsys.readouterr().err
    assert "no image holds 'opencv-sift', they hold colmap-sift" in error


def test_rows_of_which_nothing_is_said_need_the_source_and_its_width(model, database_3, tmp_path, capsys):
    rows = np.arange(27, dtype=np.float32).reshape(3, 9)
    with DatabaseWriter(database_3, tmp_path / "mine.db") as writer:
        writer.set_descriptors("sub/é.jpg", rows, SPECS["plain"], None)
    edit(tmp_path / "mine.db", "DROP TABLE xdesc_images")
    assert run(tmp_path / "mine.db", tmp_path / "out.db", "--target", "bits", "--model", model) == 2
    assert "does not say which descriptor 'sub/é.jpg' holds (type UNDEFINED, 36 bytes)" in capsys.readouterr().err
    out = translate(tmp_path / "mine.db", tmp_path / "out.db", descriptor="plain", target="bits", model=model)
    with DatabaseReader(out) as reader:
        expected = Translator.load(model).translate(rows, "plain", "bits", storage=True)
        np.testing.assert_array_equal(reader.descriptors("sub/é.jpg"), expected)
        assert reader.spec("a b.jpg").name == "colmap-sift"
    arguments = ("--source", "bits", "--target", "plain", "--model", model)
    assert run(tmp_path / "mine.db", tmp_path / "out2.db", *arguments) == 2
    assert "'sub/é.jpg' have 36 bytes, but 'bits' (3 x uint8) has 3" in capsys.readouterr().err


def test_sift_that_colmap_extracted_anew_is_translated_again(model, database_3, tmp_path):
    out = translate(database_3, tmp_path / "out.db", target="plain", model=model)
    edit(out, "UPDATE descriptors SET type = 0, cols = 128, data = ? WHERE image_id = 3", sift_rows(3, 7).tobytes())
    again = translate(out, tmp_path / "again.db", target="plain", model=model)
    with DatabaseReader(again) as reader:
        expected = Translator.load(model).stream("colmap-sift", "plain", storage=True)(sift_rows(3, 7))
        np.testing.assert_array_equal(reader.descriptors("sub/é.jpg"), expected)


# --- Bad input ---------------------------------------------------------------------------------------------


def test_a_damaged_blob_is_named_with_both_sizes_before_any_work(model, database_3, tmp_path, capsys):
    edit(database_3, "UPDATE descriptors SET data = substr(data, 1, 100) WHERE image_id = 3")
    assert run(database_3, tmp_path / "out.db", "--target", "plain", "--model", model) == 2
    error = capsys.readouterr().err
    assert "map.db: descriptors of 'sub/é.jpg' hold 100 bytes, expected 384 for 3 x 128 of uint8" in error
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in"]


def test_a_row_that_is_not_finite_is_named_and_nothing_is_left(model, mixed, tmp_path, capsys):
    rows = np.ones((3, 9), np.float32)
    rows[2, 4] = np.nan
    with DatabaseWriter(mixed, tmp_path / "nan.db") as writer:
        writer.set_descriptors("sub/é.jpg", rows, SPECS["plain"], None)
    assert run(tmp_path / "nan.db", tmp_path / "out.db", "--target", "bits", "--model", model) == 2
    assert "'sub/é.jpg': row 2 of 'plain' holds a value that is not finite" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "nan.db"]


@pytest.mark.parametrize("sql", ["DROP TABLE descriptors", "DELETE FROM descriptors"])
def test_a_map_without_descriptors_is_refused(model, database_3, tmp_path, capsys, sql):
    edit(database_3, sql)
    assert run(database_3, tmp_path / "out.db", "--target", "plain", "--model", model) == 2
    assert "map.db: nothing to translate: no image has descriptors (4 images)" in capsys.readouterr().err


@pytest.mark.parametrize("begin", ["BEGIN EXCLUSIVE", "BEGIN IMMEDIATE"])
def test_a_database_that_another_program_writes_is_refused(model, database, tmp_path, capsys, begin):
    program = (
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        f"db.execute('{begin}')\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, database], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout.readline() == "locked\n"
        before = state(database.parent)
        assert run(database, tmp_path / "out.db", "--target", "plain", "--model", model) == 2
        assert state(database.parent) == before
    error = capsys.readouterr().err
    assert "map.db: is being written by another program (database is locked)" in error
    assert not (tmp_path / "out.db").exists()


def test_a_database_that_changes_meanwhile_is_refused(model, database_3, tmp_path, capsys, monkeypatch):
    translated = DatabaseWriter.set_descriptors

    def change(self, *arguments):
        edit(database_3, "UPDATE images SET prior_tz = 7")
        translated(self, *arguments)

    monkeypatch.setattr(DatabaseWriter, "set_descriptors", change)
    assert run(database_3, tmp_path / "out.db", "--target", "plain", "--model", model) == 2
    assert "map.db: was changed by another program while it was read" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in"]


def test_a_full_disk_leaves_no_result_and_can_be_gone_on_from(model, database, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(translate_database, "COMMIT_SECONDS", 0)
    connect = sqlite3.connect

    def small(*arguments, **named):
        connection = connect(*arguments, **named)
        if not named.get("uri"):
            pages = database.stat().st_size // 4096 + 14
            connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr(sqlite3, "connect", small)
    arguments = ("--target", "colmap-sift", "--model", model)
    big = big_map(database, tmp_path / "big.db")
    assert run(big, tmp_path / "out.db", *arguments) == 2
    error = capsys.readouterr().err
    assert "out.db: cannot be written (" in error and "database or disk is full" in error and "run again" in error
    assert not (tmp_path / "out.db").exists()
    monkeypatch.setattr(sqlite3, "connect", connect)
    assert run(big, tmp_path / "out.db", *arguments) == 0


def big_map(database, out):
    """The map with 3 bytes a row, so that its translation to SIFT needs more pages."""
    with DatabaseReader(database) as reader, DatabaseWriter(database, out) as writer:
        for name in reader.names:
            writer.set_descriptors(name, bits(400), SPECS["bits"], None)
    return out


def test_other_numbers_of_keypoints_and_descriptors_are_warned_of(model, database_3, tmp_path):
    edit(database_3, "DELETE FROM keypoints WHERE image_id = 3")
    translate(database_3, tmp_path / "out.db", target="plain", model=model)
    warnings = json.loads((tmp_path / "out.db.json").read_text())["warnings"]
    assert any("1 image has other numbers of keypoints and descriptors, first 'sub/é.jpg'" in w for w in warnings)


def test_rows_that_do_not_look_like_the_training_are_warned_of(model, tmp_path):
    translate(make_4(tmp_path / "map.db"), tmp_path / "out.db", target="plain", model=model)
    warnings = json.loads((tmp_path / "out.db.json").read_text())["warnings"]
    assert any("do not look like the 'colmap-sift' of the training" in w for w in warnings)


@pytest.mark.parametrize("name", ["out.h5", "out.npy", "in/map.db"])
def test_an_output_of_another_format_or_the_input_itself_is_refused(model, database_3, tmp_path, name):
    before = database_3.read_bytes()
    assert run(database_3, tmp_path / name, "--target", "plain", "--model", model, "--overwrite") == 2
    assert database_3.read_bytes() == before


def test_an_output_that_is_open_elsewhere_is_refused(model, database_3, tmp_path, capsys):
    (tmp_path / "out.db-wal").write_bytes(b"pages of another database")
    assert run(database_3, tmp_path / "out.db", "--target", "plain", "--model", model) == 2
    assert "out.db-wal: " in capsys.readouterr().err
