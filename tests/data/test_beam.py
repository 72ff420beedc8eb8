"""Records by a Beam pipeline: the bytes of the local stage, whatever happens on the way.

Skipped where Beam is not installed: pip install -e '.[dev,beam]', then pytest tests/data/test_beam.py.
"""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.aligned_stores import write_store

pytest.importorskip("apache_beam", reason="needs the beam extra")
pytest.importorskip("cv2", reason="needs the features extra")
pytest.importorskip("jax", reason="needs the features extra")
pytest.importorskip("tensorflow_datasets", reason="needs the train extra")

from tests.support.blob_photos import write_blobs
from tests.support.killed import kill_within
from xdesc_jax.cli import main
from xdesc_jax.data import beam as stage
from xdesc_jax.data import beam_steps, builder
from xdesc_jax.data.records import records
from xdesc_jax.descriptors import DescriptorSpec, register

SETTINGS = {"keypoints": "opencv", "max_keypoints": 40, "validation_share": 0.3, "rows_per_shard": 5}
records_beam = functools.partial(records, beam=True)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def same_files(a: Path, b: Path) -> bool:
    found, expected = files_of(a), files_of(b)
    assert found.keys() == expected.keys()
    return all(found[name] == content for name, content in expected.items())


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Four photos of blobs and a blank one, in sub-folders, with non-ASCII and upper-case names."""
    return write_blobs(tmp_path_factory.mktemp("photos"), ["a.png", "b.png", "blank.png", "sub/C.PNG", "été.png"])


@pytest.fixture(scope="module")
def local(photos, tmp_path_factory):
    """What the local stage makes of the photos."""
    out = tmp_path_factory.mktemp("local") / "out"
    records(out, photos=photos, **SETTINGS)
    return out


def test_photos_give_the_files_of_the_local_stage(photos, local, tmp_path, caplog):
    info = records_beam(tmp_path / "out", photos=photos, **SETTINGS)
    assert same_files(tmp_path / "out", local)
    assert len(info.shards["train"]) > 1 and len(set(info.shards["train"])) > 1 and info.counts["validation"]
    assert info.photos[2] == "blank.png" and "first ['blank.png']" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    "options",
    [
        {"rows_per_shard": 6, "validation_share": 0.5},
        {"rows_per_shard": 1, "seed": 5},
        {"max_rows_per_photo": 3, "seed": 1},
        {"validation_share": 0.0},
        {"rows_per_shard": 6, "validation_share": 0.5, "deal_by": "photo"},
    ],
)
def test_feature_files_give_the_files_of_the_local_stage(tmp_path, stores, options):
    records(tmp_path / "local", paired=tuple(stores), **options)
    records_beam(tmp_path / "out", paired=tuple(stores), **options)
    assert same_files(tmp_path / "out", tmp_path / "local")


def test_by_folder_feature_files_give_the_files_of_the_local_stage(tmp_path):
    counts = {f"{place}/{k}.jpg": 6 for place in "abcd" for k in range(2)}
    paths = tuple(write_store(tmp_path / f"{n}.h5", n, counts) for n in ("brief", "sift"))
    options = {"split_by": "folder", "validation_share": 0.5, "rows_per_shard": 5}
    records(tmp_path / "local", paired=paths, **options)
    info = records_beam(tmp_path / "out", paired=paths, **options)
    assert (
        same_files(tmp_path / "out", tmp_path / "local")
        and info.counts["validation"] % 10 == 0 < info.counts["validation"]
    )


def test_a_draw_of_rows_and_keypoints_from_a_file_give_the_files_of_the_local_stage(photos, tmp_path, monkeypatch):
    from xdesc_jax.features.extract import extract

    extract(photos, tmp_path / "features", descriptors=("brief",), keypoints="opencv", max_keypoints=40)
    monkeypatch.chdir(tmp_path)  # relative paths mean the same to workers
    options = {"photos": Path(os.path.relpath(photos)), "keypoints": "features/brief.h5", "max_rows_per_photo": 7}
    records(Path("local"), patches=False, **options)
    records_beam(Path("out"), patches=False, **options)
    assert same_files(Path("out"), Path("local"))


def test_worker_processes_give_the_files_of_the_local_stage_and_know_the_callers_descriptors(photos, tmp_path):
    def halves(patches):  # unknown to a new process
        rows = np.asarray(patches).reshape(-1, 2, 512).mean(axis=2) + np.float32(0.1)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    register(DescriptorSpec("halves-of-test-beam", 2), halves)
    options = {"photos": photos, "descriptors": ("brief", "halves-of-test-beam"), **SETTINGS}
    records(tmp_path / "local", **options)
    records_beam(tmp_path / "out", processes=2, **options)
    assert same_files(tmp_path / "out", tmp_path / "local")


def test_work_done_twice_changes_nothing(photos, local, tmp_path):
    records_beam(tmp_path / "out", photos=photos, beam_options=("direct_runner_bundle_repeat=1",), **SETTINGS)
    assert same_files(tmp_path / "out", local)


def test_an_unreadable_photo_is_left_out_with_a_warning_or_stops_a_strict_run(photos, tmp_path, caplog):
    root = tmp_path / "photos"
    root.mkdir()
    for name in ("a.png", "b.png"):
        (root / name).write_bytes((photos / name).read_bytes())
    (root / "bad.png").write_bytes((photos / "a.png").read_bytes()[:60])
    records(tmp_path / "local", photos=root, **SETTINGS)
    caplog.clear()
    records_beam(tmp_path / "out", photos=root, **SETTINGS)
    assert same_files(tmp_path / "out", tmp_path / "local")
    printed = " ".join(record.getMessage() for record in caplog.records)
    assert printed.count("bad.png") == 1 and "left out: " in printed and "no valid row" not in printed
    with pytest.raises(ValueError, match=r"bad\.png"):
        records_beam(tmp_path / "strict", photos=root, strict=True, **SETTINGS)
    assert not (tmp_path / "strict").exists()


def test_a_row_that_is_no_descriptor_stops_the_run_with_the_message_of_the_local_stage(tmp_path):
    import h5py

    paths = tuple(write_store(tmp_path / f"{name}.h5", name, {"a.jpg": 6, "b.jpg": 4}) for name in ("brief", "tfeat"))
    with h5py.File(paths[1], "r+") as file:
        file["b.jpg"]["descriptors"][:, 1] = np.nan
    messages = []
    for make in (records, records_beam):
        with pytest.raises(ValueError, match=r"tfeat\.h5: 'b\.jpg'") as caught:
            make(tmp_path / "out", paired=paths)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and not (tmp_path / "out").exists()


def test_photos_without_valid_rows_make_no_records(tmp_path):
    paths = tuple(write_store(tmp_path / f"{n}.h5", n, {"a": 0, "b": 0}) for n in ("brief", "sift"))
    with pytest.raises(ValueError, match="none of the 2 photos has a valid row"):
        records_beam(tmp_path / "out", paired=paths)
    assert not (tmp_path / "out").exists()


def test_finished_records_of_either_stage_are_kept_and_others_refused(tmp_path, stores, capsys, monkeypatch):
    out, options = tmp_path / "out", {"paired": tuple(stores), "rows_per_shard": 6}
    made = records(out, **options)
    with monkeypatch.context() as patch:
        patch.delattr(stage, "FnApiRunner")  # nothing runs
        assert records_beam(out, **options) == made
    assert "up to date" in capsys.readouterr().out
    with pytest.raises(FileExistsError, match="made with another configuration"):
        records_beam(out, seed=1, **options)
    records_beam(out, seed=1, overwrite=True, **options)
    assert records(out, seed=1, **options).config["seed"] == 1
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(FileExistsError, match="exists and is not a records folder"):
        records_beam(tmp_path / "mine", overwrite=True, **options)


def test_a_shard_that_fails_half_way_leaves_no_output_and_the_next_run_ends_as_an_undisturbed_one(
    photos, local, tmp_path, monkeypatch
):
    def fail(path, columns, shard):
        path.write_bytes(b"half")
        raise RuntimeError("the disk has gone")

    with monkeypatch.context() as patch:
        patch.setattr(builder, "write_shard", fail)
        with pytest.raises(OSError, match=r"failed on DirectRunner: .*the disk has gone.*photos are kept in"):
            records_beam(tmp_path / "out", photos=photos, **SETTINGS)
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / ".out.work" / "shards").glob("*tfrecord*"))
    assert len(list((tmp_path / ".out.work" / "parts").glob("*.npz"))) == 5
    records_beam(tmp_path / "out", photos=photos, **SETTINGS)
    assert same_files(tmp_path / "out", local)


@pytest.fixture(scope="module")
def killed(photos, tmp_path_factory):
    """The folder of a pipeline that was killed after two photos."""
    code = """
import os, signal, sys
from pathlib import Path
from xdesc_jax.data import photos
from xdesc_jax.data.records import records
save, saved = photos.save_part, []
def save_and_die(*arguments):
    if len(saved) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    save(*arguments)
    saved.append(arguments)
photos.save_part = save_and_die
records(Path(sys.argv[2]), photos=Path(sys.argv[1]), beam=True, validation_share=0.3, keypoints="opencv",
        max_keypoints=40, rows_per_shard=5)
"""
    folder = tmp_path_factory.mktemp("killed")
    kill_within(code, photos, folder / "out")
    assert not (folder / "out").exists()
    assert len(list((folder / ".out.work" / "parts").glob("*.npz"))) == 2
    return folder


@pytest.mark.parametrize("resume", [records_beam, records])
def test_a_pipeline_killed_after_a_photo_keeps_it_and_either_stage_goes_on(killed, photos, local, tmp_path, resume):
    folder = Path(shutil.copytree(killed, tmp_path / "copied"))
    resume(folder / "out", photos=photos, **SETTINGS)
    assert same_files(folder / "out", local)
    assert [path.name for path in folder.iterdir()] == ["out"]


def test_a_photo_that_changes_between_the_steps_stops_the_run(tmp_path, stores, monkeypatch):
    kept = beam_steps.DealRows._kept
    monkeypatch.setattr(
        beam_steps.DealRows, "_kept", lambda self, name: {k: v[1:] for k, v in kept(self, name).items()}
    )
    with pytest.raises(OSError, match=r"a\.jpg: has 3 rows, had 4; it has changed during the run"):
        records_beam(tmp_path / "out", paired=tuple(stores))
    assert not (tmp_path / "out").exists()


def test_workers_that_write_elsewhere_are_noticed(tmp_path, stores, monkeypatch):
    monkeypatch.setattr(beam_steps.WriteShard, "process", lambda self, shard, layout: None)
    with pytest.raises(OSError, match="the pipeline ended without it; do its workers see this folder"):
        records_beam(tmp_path / "out", paired=tuple(stores))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "npy"}, "format is 'npy', a pipeline writes 'tfds' alone"),
        ({"processes": 0}, "processes is 0"),
        ({"processes": 2, "runner": "FlinkRunner"}, "FlinkRunner has Beam's options for that"),
        ({"beam_options": ("--runner=FlinkRunner",)}, "name the runner by --runner alone"),
        ({"rows_per_shard": 0}, "rows_per_shard is 0"),
        ({"runner": "NoSuchRunner"}, "NoSuchRunner"),
    ],
)
def test_settings_that_cannot_be_carried_out_are_refused(tmp_path, stores, options, message):
    with pytest.raises(ValueError, match=message):
        records_beam(tmp_path / "out", paired=tuple(stores), **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [{"runner": "FlinkRunner"}, {"beam_options": ("direct_num_workers=1",)}])
def test_what_is_a_pipelines_is_refused_without_one(tmp_path, stores, options):
    with pytest.raises(ValueError, match="--runner and --beam-options are a pipeline's: they need --beam"):
        records(tmp_path / "out", paired=tuple(stores), **options)
    assert not (tmp_path / "out").exists()


def test_the_stages_former_name_on_the_command_line_makes_a_pipeline(tmp_path, stores, capsys):
    given = ["--paired", *map(str, stores), "--rows-per-shard", "6"]
    assert main(["records-beam", str(tmp_path / "former"), *given]) == 0
    assert "running the pipeline on DirectRunner" in capsys.readouterr().err
    assert main(["records", "--beam", str(tmp_path / "now"), *given]) == 0
    assert same_files(tmp_path / "former", tmp_path / "now")


def test_the_command_line_takes_beams_options_with_and_without_dashes(tmp_path, stores, capsys):
    words = ["records-beam", str(tmp_path / "out"), "--paired", *map(str, stores)]
    assert main([*words, "--beam-options", "direct_runner_bundle_repeat=1", "direct_num_workers=1"]) == 0
    assert "--direct_runner_bundle_repeat=1, --direct_num_workers=1" in capsys.readouterr().err
    assert main([*words, "--overwrite", "--beam-options=--direct_runner_bundle_repeat=1"]) == 0
    assert "--direct_runner_bundle_repeat=1" in capsys.readouterr().err


def test_feature_files_are_opened_for_each_step_and_blocks_made_for_each_shard_however_many_photos_there_are(
    tmp_path, monkeypatch
):
    from xdesc_jax.data import paired

    opened, blocks, shards = [], [], 0
    store, found = paired.FeatureStore, beam_steps.DealRows._blocks
    monkeypatch.setattr(
        paired, "FeatureStore", lambda path, *spec, **hint: opened.append(path) or store(path, *spec, **hint)
    )
    monkeypatch.setattr(
        beam_steps.DealRows, "_blocks", lambda self: (blocks.append(block) or block for block in found(self))
    )
    made = []
    for photos in (6, 48):
        counts = {f"{i:02d}.jpg": 240 // photos for i in range(photos)}
        folder = tmp_path / str(photos)
        folder.mkdir()
        paths = tuple(write_store(folder / f"{name}.h5", name, counts) for name in ("brief", "sift"))
        opened.clear(), blocks.clear()
        info = records_beam(folder / "out", paired=paths, validation_share=0.0, rows_per_shard=20)
        shards = len(info.shards["train"])
        made.append((len(opened), len(blocks) / shards))
    bundles = 2  # that the runner makes of them here
    assert shards == 10 and all(files <= 2 * (1 + 2 * bundles) and share <= bundles for files, share in made), made


def test_rows_that_are_held_in_small_parts_give_the_files_of_the_local_stage(tmp_path, stores, monkeypatch):
    records(tmp_path / "local", paired=tuple(stores), rows_per_shard=6)
    monkeypatch.setattr(beam_steps, "HELD_BYTES", 2000)  # some rows
    records_beam(tmp_path / "out", paired=tuple(stores), rows_per_shard=6)
    assert same_files(tmp_path / "out", tmp_path / "local")


def test_what_goes_to_every_worker_does_not_grow_with_the_photos(tmp_path, stores, monkeypatch):
    import pickle

    sizes, process = [], beam_steps.DealRows.process

    def sized(self, photo, deals):
        sizes.append((len(pickle.dumps(deals)), len(pickle.dumps(photo))))
        return process(self, photo, deals)

    monkeypatch.setattr(beam_steps.DealRows, "process", sized)
    found = []
    for photos in (2, 40):
        folder = tmp_path / str(photos)
        folder.mkdir()
        counts = {f"{i:02d}.jpg": 80 // photos for i in range(photos)}
        paths = tuple(write_store(folder / f"{name}.h5", name, counts) for name in ("brief", "sift"))
        records_beam(folder / "out", paired=paths, validation_share=0.0)
        found.append(max(sizes))
        sizes.clear()
    assert found[0] == found[1]


def test_progress_is_looked_for_the_more_seldom_the_longer_it_takes():
    now, looked = [0.0], []

    def look():
        looked.append(now[0])
        now[0] += 2
        return str(len(looked))

    progress, told = stage.paced(look, clock=lambda: now[0]), []
    for _ in range(90):
        told.append(progress())
        now[0] += 1
    assert looked == [0, 42, 84] and told[:2] == ["1", "1"] and told[-1] == "3"
