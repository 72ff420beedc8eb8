"""What is said of a result that was made with another configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xdesc_jax.files.changes import between, changes
from xdesc_jax.files.whole import already_done, config_hash, write_json

A, B = "0123456789ab", "ba9876543210"
OLD = {"ratio": 0.8, "features": [A], "model": None, "order": [], "settings": {"seed": 0, "least": 5}}
NEW = {"ratio": 0.9, "features": [B], "model": B, "order": (), "settings": {"seed": 1, "least": 5}}


def record(folder: Path, config: dict, **more) -> Path:
    return write_json(folder / "out.json", {"config": config, "config_hash": config_hash(config), **more})


def test_settings_are_told_with_both_values_and_hashes_of_content_as_such(tmp_path):
    found = changes(record(tmp_path, OLD), config_hash(OLD), NEW)
    assert found == "features: other content; model: other content; ratio: 0.8 -> 0.9; settings.seed: 0 -> 1"


def test_files_are_told_by_the_names_that_a_person_gave_where_these_differ(tmp_path):
    kept = record(tmp_path, OLD, settings={"features": ["a.h5"], "model": None}, inputs={"features": ["a.h5", "b.h5"]})
    names = {"features": [Path("a.h5"), Path("b.h5")], "model": "mixed"}
    found = changes(kept, config_hash(OLD), NEW, names, names_kept=["settings", "inputs"])
    assert found.startswith("features: other content; model: None -> mixed; ratio")
    found = changes(kept, config_hash(OLD), NEW, names, names_kept=["settings"])
    assert found.startswith("features: a.h5 -> a.h5, b.h5; model: None -> mixed; ratio")


def test_fields_that_one_of_them_lacks_and_files_of_a_folder_are_told(tmp_path):
    old = {"nms": 2.0, "model": {"cameras.bin": A, "images.bin": A}}
    found = changes(record(tmp_path, old), config_hash(old), {"model": {"cameras.bin": A, "images.bin": B}})
    assert found == "model.images.bin: other content; nms: 2.0 -> None"


def test_a_field_is_told_as_the_option_that_a_person_gives(tmp_path):
    old, new = {"photos": A, "poses": None}, {"photos": B, "poses": A}
    given = {"photos": "folder", "only": "a.txt", "given_poses": None}
    names = {"only": Path("b.txt"), "given_poses": Path("model")}
    called = {"photos": "only", "poses": "given_poses"}
    kept = record(tmp_path, old, inputs=given)
    found = changes(kept, config_hash(old), new, names, names_kept=["inputs"], called=called)
    assert found == "given_poses: None -> model; only: a.txt -> b.txt"
    found = changes(kept, config_hash(old), new, {"only": "a.txt"}, names_kept=["inputs"], called=called)
    assert found == "given_poses: other content; only: other content"


def test_a_long_list_is_cut(tmp_path):
    old, new = ({"photos": [f"{letter}{i}.jpg" for i in range(99)]} for letter in "ab")
    found = changes(record(tmp_path, old), config_hash(old), new)
    assert found.startswith("photos: a0.jpg, a1.jpg") and " -> b0.jpg" in found and len(found) < 180


def test_a_configuration_that_lies_in_the_record_itself_is_compared_without_the_rest(tmp_path):
    path = write_json(tmp_path / "out.json", {"config_hash": A, "seed": 0, "views": 3, "made": 7})
    assert changes(path, A, {"seed": 1, "views": 3}, kept=None) == "seed: 0 -> 1"


@pytest.mark.parametrize(
    "text",
    [None, "[]", "{", json.dumps({"config_hash": A}), json.dumps({"config_hash": B, "config": OLD}),
     json.dumps({"config_hash": A, "config": 3})],
    ids=["missing", "list", "cut", "hash alone", "another result's", "no configuration"],
)  # fmt: skip
def test_a_record_that_does_not_tell_leaves_the_hashes(text, tmp_path):
    out, path = tmp_path / "out", tmp_path / "out.json"
    out.touch()
    if text is not None:
        path.write_text(text)
    told = f"another configuration \\(hash {A}, now {B}\\); choose another output or"
    with pytest.raises(FileExistsError, match=told):
        already_done(out, A, B, False, differs=lambda: changes(path, A, NEW))


def test_where_no_field_differs_it_is_the_version_that_does():
    assert between({"a": 1}, {"a": 1, "added": None}) == ""
