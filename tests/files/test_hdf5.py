"""HDF5 files that are written elsewhere, declare more than they hold, or meet a full disk."""

import struct
import subprocess
import sys

import h5py
import numpy as np
import pytest

from xdesc_jax.files import hdf5
from xdesc_jax.files.hdf5 import Writer, array, content, found_attribute, groups_with, open_file

HOLD = """
import h5py, sys
file = h5py.File(sys.argv[1], "a")
print("open", flush=True)
sys.stdin.read()
"""


def test_a_file_that_another_process_writes_is_said_to_be(tmp_path):
    path = tmp_path / "a.h5"
    h5py.File(path, "w").close()
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(ValueError, match="a.h5: is being written by another process"):
            open_file(path, "feature file")
        other.stdin.close()
    open_file(path, "feature file").close()


def test_missing_files_and_those_cut_short_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="a.h5: no such match file"):
        open_file(tmp_path / "a.h5", "match file")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.ones(9000)
    (tmp_path / "a.h5").write_bytes((tmp_path / "a.h5").read_bytes()[:5000])
    with pytest.raises(ValueError, match="a.h5: not a readable HDF5 file, or cut short"):
        open_file(tmp_path / "a.h5", "match file")


@pytest.mark.parametrize(
    "declared",
    [
        {"shape": (128, 4_000_000_000)},
        {"shape": (30_000_000, 2), "chunks": (1000, 2)},
        {"shape": (30_000_000, 2), "chunks": (1000, 2), "compression": "gzip"},
        {"shape": (0, 2), "maxshape": (None, 2), "written": (9, 2), "then": (30_000_000, 2)},
    ],
)
def test_what_is_declared_and_not_stored_is_never_read(tmp_path, declared):
    written, then = declared.pop("written", None), declared.pop("then", None)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("x", dtype=np.float32, **declared)
        if then:
            made.resize(written)
            made[:] = 1
            made.resize(then)
    with (
        h5py.File(tmp_path / "a.h5") as file,
        pytest.raises(ValueError, match="x declares .* bytes, of which .* are stored"),
    ):
        array(file, "x")


@pytest.mark.parametrize(
    "options", [{}, {"chunks": (4, 2)}, {"chunks": (4, 2), "compression": "gzip", "shuffle": True}]
)
@pytest.mark.parametrize("rows", [0, 4, 9])
def test_what_is_stored_is_read(tmp_path, options, rows):
    values = np.zeros((rows, 2), np.float32)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, **(options if rows else {}))
        assert array(file, "x", shape=(None, 2)).shape == (rows, 2)
        with pytest.raises(ValueError, match=r"x has shape \(\d, 2\), expected \(N, 3\)"):
            array(file, "x", shape=(None, 3))


def test_arrays_in_other_files_and_what_is_no_array_are_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("far", (9,), np.float32, external=[(str(tmp_path / "none.bin"), 0, 36)])
        file.create_virtual_dataset("made", h5py.VirtualLayout((4_000_000_000,), np.float32))
        file["empty"] = h5py.Empty("f4")
        file.create_group("group")
        for key in ("far", "made", "empty", "group"):
            with pytest.raises(ValueError, match=f"{key} (lies in other files|is empty|is a group)"):
                array(file, key)


def test_a_file_says_what_it_is(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        assert content(file) == "an empty HDF5 file"
        file["notes"] = 1
        assert content(file) == "an HDF5 file of other content, first ['notes']"
        file["a/keypoints"] = 1
        assert content(file) == "a feature file"
        file["a/b/matches0"] = 1
        assert content(file) == "a match file"
        file["a/a/global_descriptor"] = 1
        assert content(file) == "a file of global features"
    with h5py.File(tmp_path / "more.h5", "w") as file:
        file["a.jpg/extra/more"], file["a.jpg/global_descriptor"] = 1, 1  # before it by name
        assert content(file) == "a file of global features"


def test_to_say_what_a_file_is_no_more_is_looked_at_than_its_first_array(tmp_path, monkeypatch):
    looked_at, kind = [], hdf5._kind
    monkeypatch.setattr(hdf5, "_kind", lambda file, path: looked_at.append(path) or kind(file, path))
    with h5py.File(tmp_path / "old.h5", "w") as file:  # the layout of deep-image-matching
        for name in ("b.jpg", "c.jpg", "d.jpg"):
            file[f"a.jpg/{name}"] = np.zeros((2, 2), int)
        assert content(file) == "an HDF5 file of other content, first ['a.jpg']"
    assert looked_at == [b"a.jpg", b"a.jpg/b.jpg"]


FULL = """
import resource, sys
import numpy as np
from xdesc_jax.files import hdf5
from xdesc_jax.files.hdf5 import Writer
sys.dont_write_bytecode = True  # of which half would be written
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
many = sys.argv[5] == "many"
with Writer(sys.argv[1], many) as writer:
    for i in range(300):
        values = np.random.default_rng(i).random(int(sys.argv[3]))
        if many:
            writer.group(f"p{i}").create_dataset("x", data=values, chunks=values.shape, compression="gzip")
        else:
            writer.file[f"p{i}/x"] = values
        if sys.argv[4] == "each":
            writer.check()
"""


@pytest.mark.parametrize("when", ["each", "end"])
@pytest.mark.parametrize(
    ("limit", "values", "groups"),
    [(100, 3, "few"), (5000, 100, "few"), (50_000, 900, "few"), (60_000, 20_000, "few")]
    + [(30, 3, "many"), (5000, 100, "many"), (60_000, 3000, "many")],
)
def test_a_full_disk_is_told_with_the_file_and_leaves_the_old_one(tmp_path, when, limit, values, groups):
    path = tmp_path / "a.h5"
    path.write_text("old")
    words = [sys.executable, "-c", FULL, path, limit, values, when, groups]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    assert done.returncode == 1, done.stderr  # below 0 where HDF5 crashed the process
    assert done.stderr.splitlines()[-1] == f"OSError: [Errno 27] {path}: cannot be written (File too large)"
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_what_is_written_is_what_hdf5_reads(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {f"s/{i}": rng.random((i, 3)) for i in range(0, 400, 7)}
    with Writer(tmp_path / "a.h5") as writer:
        for key, values in arrays.items():
            writer.file[key] = values
    with h5py.File(tmp_path / "a.h5") as file:
        for key, values in arrays.items():
            np.testing.assert_array_equal(file[key][:], values)


def test_groups_are_listed_without_opening_anything_in_them(tmp_path, monkeypatch):
    """Folders, a group of the name, a photo in another one, and links of every kind."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("b.jpg", "a/é 1.jpg", "a/2.jpg", "a/2.jpg/inner.jpg", "keypoints/3.jpg"):
            file[f"{name}/keypoints"] = np.zeros((2, 2))
            file[f"{name}/scales"] = np.zeros(2)
        file.create_group("folder/keypoints")
        file.create_group("bare.jpg")["descriptors"] = np.zeros(3)
        file["keypoints/keypoints"] = np.zeros(1)
        file["soft.jpg/keypoints"] = h5py.SoftLink("/b.jpg/keypoints")
        file["lost.jpg/keypoints"] = h5py.SoftLink("/nowhere")
        file["round/about"] = file["a"]
        file["a/self"] = file["a"]
        expected = []
        file.visititems(
            lambda name, item: (
                expected.append(name)
                if isinstance(item, h5py.Group) and isinstance(item.get("keypoints"), h5py.Dataset)
                else None
            )
        )
    assert len(expected) == 7
    opened = []
    with h5py.File(tmp_path / "a.h5") as file:
        for kind in (h5py.Group, h5py.Dataset):
            monkeypatch.setattr(kind, "__init__", lambda self, *given, **named: opened.append(given))
        assert groups_with(file, "keypoints") == sorted(expected)
    assert opened == []


@pytest.mark.parametrize("number", [0, 7])
@pytest.mark.parametrize("size", [0, 2**64 - 16, 1 << 40])
def test_a_heap_that_hdf5_would_never_leave_is_refused(tmp_path, number, size):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["text"] = "of any length"
    found_attribute(tmp_path / "a.h5", "text")
    data = bytearray((tmp_path / "a.h5").read_bytes())
    at = data.index(b"GCOL") + 16  # the first object: number, references, nothing, size
    if number == 0 or size:
        data[at : at + 16] = struct.pack("<HHIQ", number, 1, 0, size)
        (tmp_path / "a.h5").write_bytes(data)
        assert found_attribute(tmp_path / "a.h5", "text") is None
        with pytest.raises(ValueError, match="a.h5: not a readable HDF5 file, or cut short .an object of"):
            open_file(tmp_path / "a.h5", "feature file")


def with_zeroed_heap(path, begin):
    """A file whose attribute's heap lies behind 1.5 MB of numbers, before 1.5 more, and has lost its objects."""
    with h5py.File(path, "w") as file:
        file["before"] = np.ones(begin, np.uint8)
        file.create_group("a").attrs["text"] = "of any length"
        file["behind"] = np.ones(3_000_000 - begin, np.uint8)
    data = bytearray(path.read_bytes())
    at = data.index(b"GCOL") + 16
    assert abs(at - begin) < 1 << 16
    data[at : at + 200] = bytes(200)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("begin", "anywhere", "found"),
    [(0, False, True), (3_000_000, False, True), (1_500_000, False, False), (1_500_000, True, True)],
)
def test_heaps_are_looked_for_where_texts_are_read(tmp_path, monkeypatch, begin, anywhere, found):
    """In the whole file or at its ends; also where one lies across two of the blocks in which it is read."""
    with_zeroed_heap(tmp_path / "a.h5", begin)
    at = (tmp_path / "a.h5").read_bytes().index(b"GCOL")
    monkeypatch.setattr(hdf5, "_BLOCK", at + 3 if at else 1 << 24)
    if found:
        with pytest.raises(ValueError, match=f"an object of 0 bytes in the heap at {at}, which has 4096"):
            open_file(tmp_path / "a.h5", "match file", anywhere)
    else:
        open_file(tmp_path / "a.h5", "feature file").close()
