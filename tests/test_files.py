"""Results appear whole or not at all."""

from __future__ import annotations

import pytest

from xdesc_jax.files import already_done, atomic, config_hash, read_json, staged, write_json


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
