"""Model files as .npz: numpy alone reads them, and damaged ones are refused by name."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

from tests.support.small_translators import encoder_decoder, rows
from xdesc_jax.files.arrays import open_array, read, write
from xdesc_jax.translation.bundle import load
from xdesc_jax.translation.translator import Translator


@pytest.fixture
def path(tmp_path):
    return encoder_decoder().save(tmp_path / "m.npz")


def test_numpy_alone_translates_with_the_file(path):
    with np.load(path) as file:
        header = json.loads(bytes(file["header"]))
        arrays = {name: file[name] for name in file.files}
    assert header["format"] == "xdesc-translator" and header["version"] == "1"
    x = rows(7)["plain"]
    y = x
    for network in ("encoder/plain", "decoder/grid"):
        count = len(header["layers"][network]["widths"]) - 1
        for i in range(count):
            y = y @ arrays[f"{network}/{i}/kernel"] + arrays[f"{network}/{i}/bias"]
            y = np.maximum(y, 0) if i < count - 1 else y
        y = np.maximum(y, 0) if header["layers"][network]["output_activation"] == "relu" else y
        y = y / np.linalg.norm(y, axis=1, keepdims=True)
    np.testing.assert_allclose(y, Translator.load(path).translate(x, "plain", "grid"), atol=1e-5)


def test_a_saved_model_loads_equal(path):
    found, expected = load(path), encoder_decoder()
    for field in ("kind", "specs", "embedding_width", "config", "provenance", "space_id", "ratios"):
        assert getattr(found, field) == getattr(expected, field)
    assert Translator(found).self_check() < 1e-5
    for name, statistics in expected.statistics.items():
        np.testing.assert_array_equal(found.statistics[name].photo_covariance, statistics.photo_covariance)


def test_the_same_content_gives_the_same_bytes(path, tmp_path):
    assert load(path).save(tmp_path / "again.npz").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("keep", [0, 5, 4000, -1])
def test_a_file_cut_short_is_refused_by_name(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match="m.npz: not an .npz file of this package, or cut short"):
        load(path)


def test_a_changed_byte_is_found(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    with pytest.raises(ValueError, match="m.npz: "):
        load(path)


def test_a_foreign_file_is_refused_by_name(tmp_path):
    np.savez(tmp_path / "m.npz", weight=np.zeros(3))
    with pytest.raises(ValueError, match="m.npz: .*holds no array 'header'"):
        load(tmp_path / "m.npz")
    np.savez(tmp_path / "m.npz", header=np.frombuffer(b"[1]", np.uint8))
    with pytest.raises(ValueError, match="m.npz: "):
        load(tmp_path / "m.npz")
    np.savez(tmp_path / "m.npz", header=np.frombuffer(b'{"format": "other"}', np.uint8))
    with pytest.raises(ValueError, match="m.npz: format is 'other'"):
        load(tmp_path / "m.npz")


def declaring(shape, dtype="<f4", stored=64):
    """A .npy file's bytes with a header of its own."""
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(stored)


BAD = [
    (declaring((-5, 128)), r"declares shape \[-5, 128\] of float32, expected numbers"),
    (
        declaring((4_000_000_000, 128)),
        r"declares shape \[4000000000, 128\] of float32, 2048000000000 bytes, of which 64",
    ),
    (declaring((17,)), "68 bytes, of which 64 are stored"),
    (declaring((2,), "|O"), "of object, expected numbers"),
    (declaring((2, "x")), "not an? (readable )?.npy"),
    (b"\x93NUMPY\x09\x00" + bytes(90), "array format version"),
    (b"", "not an? (readable )?.npy"),
]


@pytest.mark.parametrize(("content", "message"), BAD)
def test_an_array_that_declares_what_it_has_not_is_refused_unread(tmp_path, content, message):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(ValueError, match=f"a.npy: .*({message})"):
        open_array(tmp_path / "a.npy")


@pytest.mark.parametrize("content", [content for content, _ in BAD[:4]])
def test_an_archive_of_such_an_array_is_refused_unread(tmp_path, content):
    write(tmp_path / "a.npz", {"x": np.ones(3)}, {})
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("y.npy", content)
    with pytest.raises(ValueError, match="not an .npz file of this package, .*declares"):
        read(tmp_path / "a.npz")


@pytest.mark.parametrize("shape", [(3, 128), (3,)])
def test_a_whole_array_is_mapped(tmp_path, shape):
    np.save(tmp_path / "a.npy", np.zeros(shape, np.float32))
    assert open_array(tmp_path / "a.npy").shape == shape


@pytest.mark.parametrize(
    "header", [b"{'descr': '<f4', (", b"{'shape': (2,)}", b"7", b"{'descr': 'x', 'shape': (2,), 'a': 1}"]
)
def test_a_header_that_numpy_cannot_read_is_refused_by_name(tmp_path, header):
    data = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(8)
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.raises(ValueError, match="a.npy: not a readable .npy array, or cut short"):
        open_array(tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("header.npy", data)
    with pytest.raises(ValueError, match="not an .npz file of this package, or cut short"):
        read(tmp_path / "a.npz")


def test_an_archive_that_declares_more_than_it_can_hold_is_refused(path):
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        size = archive.infolist()[0].file_size
    at = data.index(b"PK\1\2") + 24  # in the first entry of the directory
    assert int.from_bytes(data[at : at + 4], "little") == size
    path.write_bytes(data[:at] + b"\xfe\xff\xff\xff" + data[at + 4 :])
    with pytest.raises(ValueError, match="declares 4294967294 bytes, more than it can hold"):
        read(path)
