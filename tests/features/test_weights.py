import sys

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from xdesc_jax.features.weights import read_arrays, select, write_arrays
from xdesc_jax.files import pytorch

ARRAYS = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "a.bias": np.ones(2, np.float16)}
SHAPES = {"a.weight": (2, 3), "a.bias": (2,)}


def write(path, arrays):
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        safetensors.numpy.save_file(arrays, path)
    return path


@pytest.fixture(autouse=True)
def pytorch_files_in_this_process(monkeypatch):
    """Since torch is here anyway; the process of its own is tested with `pytorch`."""
    monkeypatch.setattr(pytorch, "read", pytorch.load)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_arrays_come_back_under_their_names(tmp_path, suffix):
    arrays = read_arrays(write(tmp_path / f"w{suffix}", ARRAYS))
    assert set(arrays) == set(ARRAYS)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, ARRAYS[name])


def test_written_arrays_are_read_back(tmp_path):
    path = write_arrays(tmp_path / "new" / "w.safetensors", {**ARRAYS, "turned": ARRAYS["a.weight"].T}, {"a": "b"})
    arrays = read_arrays(path)
    np.testing.assert_array_equal(arrays.pop("turned"), ARRAYS["a.weight"].T)
    assert {name: (a.dtype, a.tolist()) for name, a in arrays.items()} == {
        name: (a.dtype, a.tolist()) for name, a in ARRAYS.items()
    }
    with safetensors.safe_open(path, "numpy") as file:
        assert file.metadata() == {"a": "b"}
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_prefix_selects_and_is_stripped(tmp_path):
    path = write(tmp_path / "w.npz", {"net.a": np.ones(1), "net.b.c": np.ones(2), "other.a": np.ones(3)})
    assert {name: len(a) for name, a in read_arrays(path, "net.").items()} == {"a": 1, "b.c": 2}


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing.npz: no such weight file"):
        read_arrays(tmp_path / "nothing.npz")


def test_an_unknown_kind_of_file_is_refused(tmp_path):
    (tmp_path / "w.onnx").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"w.onnx: unknown kind .*\.npz, \.safetensors, \.pth"):
        read_arrays(tmp_path / "w.onnx")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("kept", [0, 30, 200])
def test_a_file_cut_short_is_named(tmp_path, suffix, kept):
    path = write(tmp_path / f"w{suffix}", {"a": np.zeros(99, np.float32)})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=rf"w{suffix}: not a readable {suffix} file, or cut short"):
        read_arrays(path)


def test_pickled_objects_in_npz_are_refused(tmp_path):
    np.savez(tmp_path / "w.npz", a=np.array([{}], object))
    with pytest.raises(ValueError, match="w.npz: not a readable"):
        read_arrays(tmp_path / "w.npz")


def test_a_pytorch_file_without_torch_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "w.pth").write_bytes(b"x")
    with pytest.raises(
        ValueError, match=r"w.pth: reading a PyTorch file needs torch.*xdesc-jax\[torch\].*\.npz or \.safetensors"
    ):
        read_arrays(tmp_path / "w.pth")


# Layouts of PyTorch files: the zip of today, and the one that the published checkpoints of 2017 to 2019 have.
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_pytorch_file_is_read_bare_or_as_state_dict(tmp_path, wrapped, zipped):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    weights = {"a": torch.arange(3.0), "b": torch.ones(2, dtype=torch.bfloat16), "c": torch.tensor(5)}
    content = {"epoch": 3, "state_dict": weights} if wrapped else weights
    torch.save(content, tmp_path / "w.pth", _use_new_zipfile_serialization=zipped)
    arrays = read_arrays(tmp_path / "w.pth")
    assert {name: (a.dtype.name, a.tolist()) for name, a in arrays.items()} == {
        "a": ("float32", [0, 1, 2]),
        "b": ("float32", [1, 1]),
        "c": ("int64", 5),
    }


def test_a_pytorch_file_with_objects_is_refused(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.save({"state_dict": {"a": torch.ones(1)}, "args": pytest.Item}, tmp_path / "w.pth")
    with pytest.raises(ValueError, match="w.pth: holds Python objects besides arrays, which are not loaded"):
        read_arrays(tmp_path / "w.pth")


def test_a_pytorch_file_may_be_named_params(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.save({"a": torch.ones(2)}, tmp_path / "w.params")
    assert read_arrays(tmp_path / "w.params")["a"].tolist() == [1, 1]


def test_a_pytorch_file_of_other_content_is_refused(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.save([torch.ones(1)], tmp_path / "w.pth")
    with pytest.raises(ValueError, match="w.pth: holds no dictionary of arrays"):
        read_arrays(tmp_path / "w.pth")


def test_a_pytorch_file_cut_short_is_named(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.save({"a": torch.ones(1)}, tmp_path / "w.pth")
    (tmp_path / "w.pth").write_bytes((tmp_path / "w.pth").read_bytes()[:200])
    with pytest.raises(ValueError, match="w.pth: not a readable PyTorch file, or cut short"):
        read_arrays(tmp_path / "w.pth")


def test_selected_arrays_are_float32_in_the_order_asked_for():
    selected = select(ARRAYS, SHAPES, "w")
    assert list(selected) == list(SHAPES) and {a.dtype for a in selected.values()} == {np.dtype(np.float32)}


def test_batch_counters_are_left_out():
    assert set(select({**ARRAYS, "a.num_batches_tracked": np.int64(3)}, SHAPES, "w")) == set(SHAPES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a.bias": None}, "w.npz: not the expected network; missing 'a.bias'; unexpected none"),
        ({"b": np.ones(1)}, "w.npz: not the expected network; missing none; unexpected 'b'"),
        ({f"b{i}": np.ones(1) for i in range(7)}, "unexpected 'b0', 'b1', 'b2', 'b3', 'b4' and 2 more"),
        ({"a.bias": np.ones(3)}, r"w.npz: 'a.bias' has shape \(3,\), expected \(2,\)"),
        ({"a.bias": np.ones(2, int)}, "w.npz: 'a.bias' has dtype int64, expected floats"),
        ({"a.bias": np.array([1, np.nan])}, "w.npz: 'a.bias' holds a value that is not finite"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    arrays = {k: v for k, v in {**ARRAYS, **change}.items() if v is not None}
    with pytest.raises(ValueError, match=message):
        select(arrays, SHAPES, "w.npz")
