"""records.json: its round trip, and what a folder that is not what it should be gives."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest

from xdesc_jax.data.schema import FILE, RecordInfo, columns_of
from xdesc_jax.descriptors import DescriptorSpec, binary_spec


@pytest.fixture
def copy(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def change(folder, **fields) -> None:
    values = json.loads((folder / FILE).read_text())
    (folder / FILE).write_text(json.dumps({**values, **fields}))


def test_saving_and_loading_gives_the_same(copy):
    info = RecordInfo.load(copy)
    changed = dataclasses.replace(info, config={"a": [1, 2]}, photos=("été.jpg", "日本/1.jpg"))
    changed.save()
    assert RecordInfo.load(copy) == changed
    assert json.loads((copy / FILE).read_text())["config_hash"] == changed.config_hash != info.config_hash


def test_columns_have_the_stored_form():
    specs = {"odd": binary_spec("odd", 13), "mine": DescriptorSpec("mine", 7)}
    columns = columns_of(specs, has_patches=True)
    assert {name: (c.dtype.name, c.shape, c.row_bytes) for name, c in columns.items()} == {
        "odd": ("uint8", (2,), 2),
        "mine": ("float32", (7,), 28),
        "keypoint": ("float32", (4,), 16),
        "photo": ("int32", (), 4),
        "patch": ("uint8", (32, 32), 1024),
    }


@pytest.mark.parametrize("name", ["patch", "photo", "keypoint", "mask"])
def test_a_descriptor_named_as_another_column_is_refused(name):
    with pytest.raises(ValueError, match=f"{name!r} is the name of another column"):
        columns_of({name: DescriptorSpec(name, 4)}, has_patches=False)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: no such records folder"):
        RecordInfo.load(tmp_path / "nowhere")


def test_a_folder_without_records_is_refused_and_points_to_one_inside(copy, tmp_path):
    with pytest.raises(ValueError, match=f"not a records folder, it has no {FILE}; did you mean .*copy?"):
        RecordInfo.load(tmp_path)
    (copy / FILE).unlink()
    with pytest.raises(ValueError, match="not a records folder"):
        RecordInfo.load(copy)


def test_another_version_is_refused(copy):
    change(copy, version=99)
    with pytest.raises(ValueError, match="records version is 99, this package reads version 1"):
        RecordInfo.load(copy)


def test_a_cut_or_missing_json_is_an_error_that_names_it(copy):
    text = (copy / FILE).read_text()
    (copy / FILE).write_text(text[: len(text) // 2])
    with pytest.raises(ValueError, match=f"{FILE}: not valid JSON"):
        RecordInfo.load(copy)
    (copy / FILE).write_text('{"version": 1}')
    with pytest.raises(ValueError, match=f"{FILE}: lacks the field 'format'"):
        RecordInfo.load(copy)


def test_a_cut_data_file_is_named_with_both_sizes_before_it_is_read(copy):
    name = next(name for name in RecordInfo.load(copy).files if name.startswith(("train", "xdesc_records")))
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(data[:96])
    with pytest.raises(ValueError, match=f"{name}: damaged, has 96 bytes, expected {len(data)}"):
        RecordInfo.load(copy)
    (copy / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name}: missing from the records"):
        RecordInfo.load(copy)


def test_a_column_that_is_not_there_is_named_with_those_that_are(folder):
    with pytest.raises(ValueError, match=r"has no column 'hardnet' \(columns: brief, sift, keypoint, photo\)"):
        RecordInfo.load(folder).select(["sift", "hardnet"])


def test_counts_are_the_sums_of_the_shards(folder):
    info = RecordInfo.load(folder)
    assert sum(info.counts.values()) == 23 * 9
    for split, rows in info.shards.items():
        assert np.sum(rows) == info.counts[split] and max(rows) <= 10


@pytest.mark.parametrize(
    "fields",
    [
        {"format": "x"},
        {"specs": [7]},
        {"specs": [{"name": {}, "width": 3}]},
        {"specs": [{"name": "a", "width": -1}]},
        {"shards": {"train": [-1]}},
        {"shards": {"train": 7}},
        {"shards": []},
        {"photos": "ab"},
        {"photos": [1]},
        {"config": 1},
        {"files": {"train.photo.npy": "7"}},
        {"has_patches": 1},
        {"has_pairs": None},
    ],
)
def test_a_field_of_another_type_is_refused_with_the_file(copy, fields):
    change(copy, **fields)
    with pytest.raises(ValueError, match=r"records\.json: .*expected|records\.json: descriptor"):
        RecordInfo.load(copy)


@pytest.mark.parametrize("text", ["[]", "7", "null"])
def test_records_that_are_no_object_are_refused(copy, text):
    (copy / FILE).write_text(text)
    with pytest.raises(ValueError, match=r"records\.json: is a JSON .*, expected an object"):
        RecordInfo.load(copy)
