"""Results appear whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from xdesc_jax.files.whole import (
    already_done,
    atomic,
    config_hash,
    read_json,
    recorded,
    remove_left,
    staged,
    write_json,
)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "result.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    target = tmp_path / "folder"
    target.mkdir()
    (target / "old").touch()
    with atomic(target) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert [p.name for p in target.iterdir()] == ["new"]


def test_a_folder_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    target = tmp_path / "folder"
    target.mkdir()
    (target / "old").touch()
    replace = os.replace

    def refused(source, to):
        if str(source).endswith(".partial"):
            raise PermissionError(errno.EACCES, "Permission denied", source)
        replace(source, to)

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(PermissionError, match=f"'{target}'$"), atomic(target) as temporary:
        temporary.mkdir()
    assert list(tmp_path.iterdir()) == [target] and [p.name for p in target.iterdir()] == ["old"]


def test_a_staged_file_has_its_own_name_and_appears_when_it_is_whole(tmp_path):
    target = tmp_path / "new" / "result.npz"
    with pytest.raises(RuntimeError), staged(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert list(target.parent.iterdir()) == []
    with staged(target) as temporary:
        assert temporary.name == "result.npz" and not target.exists()
        temporary.write_text("whole")
    assert target.read_text() == "whole" and list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("write", [atomic, staged])
def test_what_is_left_of_a_file_is_not_what_another_of_a_longer_name_is_writing(tmp_path, write):
    with write(tmp_path / "map.2") as temporary:
        temporary.write_text("half")
        remove_left(tmp_path / "map")
        assert temporary.read_text() == "half"
        remove_left(tmp_path / "map.2")
        assert not temporary.exists()
        temporary.parent.mkdir(exist_ok=True)
        temporary.write_text("whole")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("map.2", "whole")]


def test_cut_json_is_named(tmp_path):
    path = write_json(tmp_path / "a.json", {"é": [1.5]})
    assert read_json(path) == {"é": [1.5]}
    path.write_text(path.read_text()[:7])
    with pytest.raises(ValueError, match="a.json: not valid JSON"):
        read_json(path)


def test_finished_work_is_skipped_and_other_work_refused(tmp_path):
    path, mine = tmp_path / "out", config_hash({"a": 1})
    assert not already_done(path, None, mine, overwrite=False)
    path.touch()
    assert already_done(path, mine, mine, overwrite=False)
    assert not already_done(path, mine, mine, overwrite=True)
    with pytest.raises(FileExistsError, match="another configuration"):
        already_done(path, config_hash({"a": 2}), mine, overwrite=False)


def test_hash_does_not_depend_on_the_order_of_fields():
    assert config_hash({"a": 1, "b": [2]}) == config_hash({"b": [2], "a": 1}) != config_hash({"a": 1, "b": [3]})


FULL_DISK = """
import resource, signal, sys
import numpy as np
from xdesc_jax.descriptors import get_spec
from xdesc_jax.features.store import ImageFeatures, StoreWriter

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.dont_write_bytecode = True  # of which half would be written
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
with StoreWriter({path!r}, get_spec("hardnet")) as writer:
    for i in range(10):
        rows = np.ones((500, 128), np.float32)
        writer.write(f"{{i}}.jpg", ImageFeatures(rows[:, :2], rows, np.ones(500, bool), (9, 9)))
"""


def test_a_file_that_does_not_fit_on_the_disk_is_named_and_leaves_nothing(tmp_path):
    """A limit to the size of files stands for the full disk."""
    program = FULL_DISK.format(path=str(tmp_path / "a.h5"))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and f"{tmp_path / 'a.h5'}: cannot be written (File too large)" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("put", [atomic, staged])
def test_a_full_disk_is_told_with_the_file_and_not_the_temporary_one(tmp_path, put):
    with pytest.raises(OSError, match=f"{tmp_path / 'a.onnx'}: cannot be written") as told, put(tmp_path / "a.onnx"):
        raise OSError(errno.ENOSPC, "No space left on device")  # as `file.write` tells it
    assert told.value.errno == errno.ENOSPC and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("text", "message"), [("[" * 100_000, "nested too deeply"), ("{", "not valid JSON")])
def test_json_that_cannot_be_read_is_named(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=f"a.json: not valid JSON .*{message if 'deep' in message else ''}"):
        read_json(tmp_path / "a.json")


def test_what_a_result_records_is_read_and_other_json_refused(tmp_path):
    assert recorded(tmp_path / "a.json") is None
    assert recorded(write_json(tmp_path / "a.json", {"config_hash": "x"})) == "x"
    assert recorded(tmp_path / "a.json", "other") is None
    with pytest.raises(ValueError, match="a.json: is a JSON list, expected an object"):
        recorded(write_json(tmp_path / "a.json", [1]))


@pytest.mark.parametrize("error", [OSError, ValueError, PermissionError])
def test_errors_name_the_file_and_not_its_temporary_one(tmp_path, error):
    with pytest.raises(error) as told, atomic(tmp_path / "a.db") as temporary:
        raise error(f"{temporary}: cannot be written")
    assert str(told.value) == f"{tmp_path / 'a.db'}: cannot be written"


def test_an_error_of_the_system_names_the_file(tmp_path):
    with pytest.raises(FileNotFoundError) as told, atomic(tmp_path / "a.db") as temporary:
        temporary.open()
    assert "partial" not in str(told.value) and str(tmp_path / "a.db") in str(told.value)


def test_figures_that_are_not_finite_are_null_and_told_by_name(tmp_path, caplog):
    figures = {"loss": float("inf"), "rank1": {"brief->sift": float("nan"), "é": 0.5}, "rows": np.array([1, -np.inf])}
    caplog.set_level("WARNING", "xdesc_jax")  # a quiet stage before may have left it at errors alone
    path = write_json(tmp_path / "a.json", {"figures": figures, "path": tmp_path, "n": 3})
    strict = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert (
        strict
        == read_json(path)
        == {
            "figures": {"loss": None, "rank1": {"brief->sift": None, "é": 0.5}, "rows": [1, None]},
            "path": str(tmp_path),
            "n": 3,
        }
    )
    told = f"{path}: what is not finite is written as null (3 of them, first figures.loss is inf)"
    assert caplog.messages == [told]
    write_json(tmp_path / "b.json", {"rows": [0.5, float("nan")]})
    assert caplog.messages[1:] == [f"{tmp_path / 'b.json'}: what is not finite is written as null (rows[1] is nan)"]
    write_json(tmp_path / "c.json", {"rows": [0.5]})
    assert len(caplog.messages) == 2


def test_figures_that_others_wrote_as_no_json_are_read_as_null(tmp_path):
    (tmp_path / "a.json").write_text('{"a": NaN, "b": [Infinity, -Infinity, 1]}')
    assert read_json(tmp_path / "a.json") == {"a": None, "b": [None, None, 1]}


def test_names_that_are_no_utf8_are_escaped_in_json(tmp_path):
    path = write_json(tmp_path / "a.json", {"é\udcff": 1})
    assert path.read_bytes() == '{\n  "é\\udcff": 1\n}\n'.encode()
    assert read_json(path) == {"é\udcff": 1}
