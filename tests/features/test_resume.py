"""Extraction that was finished, stopped or killed before, and extraction in several processes."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.in_use import check_refused_while_in_use
from tests.support.root import ROOT
from tests.support.textures import NAMES, SETTINGS, assert_same, read, texture
from xdesc_jax import descriptors
from xdesc_jax.descriptors import DescriptorSpec, register
from xdesc_jax.features import workers
from xdesc_jax.features.extract import ExtractSettings, extract, extract_parts
from xdesc_jax.features.images import read_gray
from xdesc_jax.features.parts import part_path
from xdesc_jax.features.store import StoreWriter
from xdesc_jax.files.claim import inside
from xdesc_jax.files.whole import read_json, write_json


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


def swap(path: Path, seed: int) -> None:
    """Replaces a gray photo by another of the same size in bytes and the same time of change."""
    before = path.stat()
    Image.fromarray(texture(97, 121, seed)).save(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_photo_changed_in_place_is_another_configuration(tmp_path, detected):
    (tmp_path / "photos").mkdir()
    path = tmp_path / "photos" / "a.pgm"
    Image.fromarray(texture(97, 121, seed=0)).save(path)
    parts = tmp_path / "out" / ".parts"
    list(extract_parts(path.parent, ["a.pgm"], ExtractSettings(**SETTINGS), parts))
    swap(path, seed=1)
    out = extract(path.parent, tmp_path / "out", **SETTINGS)
    assert detected == ["a.pgm", "a.pgm"]  # the part of the first photo is of no use
    swap(path, seed=2)
    with pytest.raises(FileExistsError, match="opencv-sift.h5 was made with another configuration"):
        extract(path.parent, out, **SETTINGS)


def test_finished_folder_may_be_called_like_markup(photos, tmp_path, capsys):
    for _ in range(2):
        extract(photos, tmp_path / "[" / "x]", **SETTINGS)
    assert "[/x]" in capsys.readouterr().out


def test_descriptor_is_added_to_finished_ones(photos, tmp_path):
    out = extract(photos, tmp_path / "out", descriptors=("brief",), keypoints="opencv")
    before = (out / "brief.h5").stat().st_mtime_ns
    extract(photos, out, descriptors=("brief", "sift"), keypoints="opencv")
    assert (out / "brief.h5").stat().st_mtime_ns == before
    for name in NAMES:
        a, b = read(out, "brief")[name], read(out, "sift")[name]
        np.testing.assert_array_equal(a.keypoints, b.keypoints)
        np.testing.assert_array_equal(a.valid, b.valid)


def test_file_cut_short_is_made_again(photos, tmp_path, caplog):
    out = extract(photos, tmp_path / "out", **SETTINGS)
    whole = read(out, "opencv-sift")
    path = out / "opencv-sift.h5"
    path.write_bytes(path.read_bytes()[:96])
    extract(photos, out, **SETTINGS)
    assert "it is made again" in caplog.text
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


def test_patches_are_kept_where_they_are_wanted_alone(photos, tmp_path, detected):
    parts, plain = tmp_path / "parts", ExtractSettings(**SETTINGS)
    wanted = dataclasses.replace(plain, patches=True)
    sizes = []
    for settings, works in ((plain, True), (plain, False), (wanted, True), (wanted, False), (plain, False)):
        detected.clear()
        [(_, found)] = extract_parts(photos, ["a.png"], settings, parts)
        assert detected == ["a.png"] * works and len(found) > 9
        assert found.patches.shape == (len(found) if settings.patches else 0, 32, 32)
        with np.load(part_path(parts, "a.png")) as arrays:
            sizes.append(arrays["patches"].nbytes)
    assert sizes[:2] == [0, 0] and set(sizes[2:]) == {1024 * len(found)}


def test_a_photo_that_is_replaced_before_it_is_read_stops_the_run(photos, tmp_path, monkeypatch):
    original = workers.detect_photo

    def replacing(path, *rest):
        if path.name == "A.png":
            (photos / "a.png").write_bytes(path.read_bytes())
        return original(path, *rest)

    monkeypatch.setattr(workers, "detect_photo", replacing)
    with pytest.raises(ValueError, match=r"a\.png: the photo has changed during the run; start it again"):
        extract(photos, tmp_path / "out", **SETTINGS)
    assert not (tmp_path / "out" / "opencv-sift.h5").exists()


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
import time
from pathlib import Path
from tests.features import test_resume
from xdesc_jax.descriptors import DescriptorSpec, register
if __name__ == "__main__":
    register(DescriptorSpec("probe", 2, normalized=False), test_resume._kills_parent, source="photo")
    test_resume.extract(Path(sys.argv[1]), Path(sys.argv[2]), **test_resume.PROBED, processes=2)
"""


def _process_after(seconds):
    time.sleep(seconds)
    return os.getpid()


def test_a_worker_that_is_killed_while_it_waits_for_work_ends_the_others():
    found = workers.each(_process_after, [(0.0,), (1.0,)], 2)
    waiting = next(found)
    time.sleep(0.3)  # it then holds what the other one would wait for
    os.kill(waiting, signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises(OSError, match="a worker process ended"):
        list(found)
    assert time.monotonic() - started < 20


def test_killed_run_leaves_no_process_and_ends_in_the_same_files(photos, tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KILLS_AT": str(photos / sorted(NAMES)[2])}
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
            assert_same(read(tmp_path / "killed", descriptor)[name], read(tmp_path / "whole", descriptor)[name])
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


def test_an_extraction_started_twice_says_who_extracts(photos, tmp_path, capsys):
    words = ["extract", photos, tmp_path / "out", "--descriptors", "brief", "--keypoints", "opencv"]
    check_refused_while_in_use(words, inside(tmp_path / "out"), tmp_path / "out", capsys)


def test_what_differs_from_an_earlier_extraction_is_told(photos, tmp_path):
    out = extract(photos, tmp_path / "out", descriptors=("orb", "brief"), keypoints="opencv")
    with pytest.raises(FileExistsError, match=r"brief.h5 was made .* \(descriptors: brief orb -> brief\)"):
        extract(photos, out, descriptors=("brief",), keypoints="opencv")
    with pytest.raises(FileExistsError, match=r"orb.h5 was made .* \(max_keypoints: None -> 7\)"):
        extract(photos, out, descriptors=("orb", "brief"), keypoints="opencv", max_keypoints=7)
    Image.fromarray(texture(90, 90, seed=9)).save(photos / "new.png")
    with pytest.raises(FileExistsError, match=rf"orb.h5 was made .* \(photos: {len(NAMES)} -> {len(NAMES) + 1}\)"):
        extract(photos, out, descriptors=("orb", "brief"), keypoints="opencv")


def test_each_file_of_a_folder_keeps_what_it_was_made_by(photos, tmp_path):
    out = extract(photos, tmp_path / "out", descriptors=("opencv-sift",), keypoints="opencv")
    first = read_json(out / "extract.json")["files"]["opencv-sift"]
    (photos / "broken.png").write_bytes(b"none")
    extract(photos, out, descriptors=("brief",), keypoints="opencv", first_octave=0)
    found = read_json(out / "extract.json")
    assert found["files"]["opencv-sift"] == first and first["settings"]["first_octave"] == -1
    second = found["files"]["brief"]
    assert second["settings"]["first_octave"] == 0 and list(second["skipped"]) == ["broken.png"]
    latest = {key: value for key, value in found.items() if key not in ("files", "version")}
    assert latest == {key: value for key, value in second.items() if key not in ("file", "config_hash")}
    (photos / "broken.png").unlink()
    # Each is compared with what made it.
    with pytest.raises(FileExistsError, match=r"opencv-sift.h5 was made .* \(max_keypoints: None -> 7\)"):
        extract(photos, out, descriptors=("opencv-sift",), keypoints="opencv", max_keypoints=7)
    write_json(out / "extract.json", found | {"seconds": {"whole": 1.0}})  # of networks of the latest
    # What is finished is as it was made, and what is gone is not told.
    extract(photos, out, descriptors=("opencv-sift", "sift"), keypoints="opencv")
    (out / "brief.h5").unlink()
    extract(photos, out, descriptors=("sift-kornia05",), keypoints="opencv")
    found = read_json(out / "extract.json")["files"]
    assert found.keys() == {"opencv-sift", "sift", "sift-kornia05"} and found["opencv-sift"] == first
    assert found["sift"]["settings"]["descriptors"] == ["opencv-sift", "sift"]


def test_what_an_earlier_version_kept_of_a_folder_is_read(photos, tmp_path):
    """Of the latest extraction alone, once for all of its files."""
    out = extract(photos, tmp_path / "out", **SETTINGS, max_keypoints=30)
    found = read_json(out / "extract.json")
    files = {name: {key: held[key] for key in ("file", "config_hash")} for name, held in found["files"].items()}
    write_json(out / "extract.json", found | {"version": 1, "files": files})
    with pytest.raises(FileExistsError, match=r"opencv-sift.h5 was made .* \(max_keypoints: 30 -> 7\)"):
        extract(photos, out, **SETTINGS, max_keypoints=7)
    with pytest.raises(FileExistsError, match=r"\(opencv-sift.h5\) were made .* \(max_keypoints: 30 -> 7\)"):
        extract(photos, out, descriptors=("brief",), keypoints="opencv", max_keypoints=7)
    extract(photos, out, descriptors=("brief",), keypoints="opencv", max_keypoints=30)
    assert read_json(out / "extract.json")["files"]["opencv-sift"] == found["files"]["opencv-sift"]


@pytest.mark.parametrize("damaged", ["", "[]", '{"files": []}', '{"files": {"opencv-sift": 3}, "settings": 4}'])
def test_a_damaged_summary_stops_no_extraction(photos, tmp_path, damaged):
    out = extract(photos, tmp_path / "out", **SETTINGS)
    (out / "extract.json").write_text(damaged)
    extract(photos, out, descriptors=("brief",), keypoints="opencv")
    assert read_json(out / "extract.json")["files"]["brief"]["settings"]["keypoints"] == "opencv"


def test_all_files_of_a_folder_are_of_the_same_keypoints(photos, tmp_path, caplog):
    out = extract(photos, tmp_path / "out", **SETTINGS)
    before = (out / "extract.json").read_bytes()
    told = r"its files \(opencv-sift.h5\) were made with other keypoints \(keypoints: opencv -> colmap\)"
    with pytest.raises(FileExistsError, match=told):
        extract(photos, out, descriptors=("brief",), keypoints="colmap")
    assert not (out / "brief.h5").exists() and (out / "extract.json").read_bytes() == before
    extract(photos, out, descriptors=("brief",), keypoints="opencv")
    extract(photos, out, descriptors=("brief",), keypoints="opencv", max_keypoints=5, overwrite=True)
    assert "opencv-sift.h5 stay as they are, with keypoints of other settings" in caplog.text
    # Of one file that stays they are the same, of the other not.
    with pytest.raises(FileExistsError, match=r"\(opencv-sift.h5\) were made .* \(max_keypoints: None -> 5\)"):
        extract(photos, out, descriptors=("latch",), keypoints="opencv", max_keypoints=5)
    extract(photos, out, descriptors=("latch",), keypoints=str(out / "brief.h5"))
