"""Files of tensors: their bytes follow from their content."""

import json

import numpy as np
from safetensors import safe_open

from xdesc_jax.files.tensors import dtype_of, read_header, write

TENSORS = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.arange(3, dtype=np.float16), "c": np.zeros(0)}
ENTRIES = {name: json.dumps({"é": name}, ensure_ascii=False) for name in "zyxwvutsrq"}


def test_the_same_content_gives_the_same_bytes(tmp_path):
    first = write(tmp_path / "first.safetensors", TENSORS, ENTRIES).read_bytes()
    backwards = dict(reversed(ENTRIES.items()))
    assert all(write(tmp_path / "again.safetensors", TENSORS, backwards).read_bytes() == first for _ in range(3))


def test_the_library_reads_what_was_written(tmp_path):
    path = write(tmp_path / "file.safetensors", TENSORS, ENTRIES)
    with safe_open(path, "numpy") as file:
        assert file.metadata() == ENTRIES and set(file.keys()) == set(TENSORS)
        for name, expected in TENSORS.items():
            found = file.get_tensor(name)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


def test_others_may_read_the_file(tmp_path):
    path, plain = write(tmp_path / "file.safetensors", TENSORS, ENTRIES), tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


def test_the_header_says_entries_and_dtypes_without_a_tensor(tmp_path):
    path = write(tmp_path / "file.safetensors", TENSORS, ENTRIES)
    entries, tensors = read_header(path)
    assert entries == ENTRIES and {name: t["shape"] for name, t in tensors.items()} == {"a": [3], "b": [2, 3], "c": [0]}
    assert [dtype_of(path, ending) for ending in ("a", "b", "", "x")] == [
        "float16", "float32", "F64, float16, float32", "-",
    ]  # fmt: skip
