"""PyTorch files (.pth, .pt): the only module that imports torch, in a process of its own.

In: a file that `torch.save` wrote. Out: the same dictionaries and lists with numpy arrays for tensors; and back.
torch and pycolmap bring libraries of their own, which have clashed in one process depending on the order of
imports. So `read` and `write` start `python -m xdesc_jax.files.pytorch`, and the two sides exchange arrays and a
JSON tree in an .npz file.

Files are read with `weights_only=True`, which runs no code from them. Beyond what that admits, two kinds of objects
are: argparse.Namespace (settings), and floats of numpy (recorded losses).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.files.whole import atomic

EXTRA = "pip install 'xdesc-jax[torch]'"
REFUSED = 2  # exit status of the process where standard output says what is wrong with the file
_TREE = "tree"  # name of the JSON among the arrays, which are numbered


def installed() -> bool:
    """Whether torch can be imported; does not import it."""
    try:
        return importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):
        return False


def read(path: Path | str) -> Any:
    """Reads a PyTorch file in a process of its own.

    Args:
        path: .pth or .pt, of today's zip layout or the one before PyTorch 1.6.

    Returns:
        What was saved: dictionaries, lists, tuples, namespaces and plain values, with arrays for tensors
        (bfloat16 and float16 ones as float32).

    Raises:
        FileNotFoundError: no such file.
        ValueError: torch is not installed, or the file is not of PyTorch, cut short, or holds other objects.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such PyTorch file")
    _require_torch(path)
    with tempfile.TemporaryDirectory() as folder:
        exchange = Path(folder) / "content.npz"
        _run("read", path, exchange)
        with np.load(exchange) as arrays:
            return _decode(json.loads(str(arrays[_TREE])), arrays)


def write(path: Path | str, content: Any) -> Path:
    """Writes what `torch.load` gives back as `content`, in a process of its own; whole or not at all.

    Args:
        path: .pth or .pt.
        content: dictionaries, lists, tuples, namespaces and plain values; arrays become tensors.

    Raises:
        ValueError: torch is not installed, or content of another kind.
    """
    path = Path(path)
    arrays: list[np.ndarray] = []
    tree = json.dumps(_encode(content, arrays, str(path)))
    _require_torch(path)
    with tempfile.TemporaryDirectory() as folder, atomic(path) as temporary:
        exchange = Path(folder) / "content.npz"
        _save_exchange(exchange, tree, arrays)
        _run("write", temporary, exchange)
    return path


def load(path: Path | str) -> Any:
    """`read` in this very process, which imports torch into it."""
    import torch

    # The name under which numpy pickles its scalars is another in numpy 1 and 2; a float of either is one of 8 or
    # 4 bytes, so nothing but these types is needed.
    scalar = np.float64(0).__reduce__()[0]
    admitted: list[Any] = [argparse.Namespace, np.dtype, np.dtypes.Float64DType, np.dtypes.Float32DType]
    admitted += [(scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    try:
        with torch.serialization.safe_globals(admitted):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged stream makes the unpickler raise anything
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        if found:  # torch's own text advises to switch the protection off
            raise ValueError(
                f"{path}: holds Python objects besides arrays, which are not loaded: found {found[1]}, "
                "expected none but argparse.Namespace"
            ) from error
        reason = str(error).split(". ")[0].strip()
        if not reason or reason.startswith("Weights only load failed"):
            reason = "no stream of arrays"
        raise ValueError(
            f"{path}: not a readable PyTorch file, or cut short ({type(error).__name__}: {reason})"
        ) from error
    arrays: list[np.ndarray] = []
    return _decode(_encode(content, arrays, str(path)), {str(i): a for i, a in enumerate(arrays)})


def save(path: Path | str, content: Any) -> None:
    """`write` in this very process, which imports torch into it."""
    import torch

    def tensors(value: Any) -> Any:
        match value:
            case np.ndarray():
                return torch.from_numpy(np.array(value))
            case dict():
                return {k: tensors(v) for k, v in value.items()}
            case list() | tuple():
                return type(value)(map(tensors, value))
        return value

    torch.save(tensors(content), path)


def _require_torch(path: Path) -> None:
    if not installed():
        raise ValueError(f"{path}: a PyTorch file needs the package 'torch'; install it with: {EXTRA}")


def _run(action: str, path: Path, exchange: Path) -> None:
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    words = [sys.executable, "-m", "xdesc_jax.files.pytorch", action, str(path), str(exchange)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, encoding="utf-8")
    if done.returncode == REFUSED:
        raise ValueError(done.stdout.strip())
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise ValueError(f"{path}: torch failed with status {done.returncode} ({last[0]})")


def main(arguments: list[str]) -> int:
    """The process: 'read PTH NPZ' or 'write PTH NPZ'."""
    action, path, exchange = arguments
    try:
        if action == "read":
            arrays: list[np.ndarray] = []
            tree = json.dumps(_encode(load(path), arrays, path))
            _save_exchange(Path(exchange), tree, arrays)
        else:
            with np.load(exchange) as held:
                save(path, _decode(json.loads(str(held[_TREE])), held))
    except ValueError as error:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        print(error)
        return REFUSED
    return 0


def _save_exchange(path: Path, tree: str, arrays: list[np.ndarray]) -> None:
    named: dict[str, Any] = {str(i): array for i, array in enumerate(arrays)}
    named[_TREE] = np.array(tree)
    np.savez(path, **named)


def _encode(value: Any, arrays: list[np.ndarray], where: str) -> Any:
    """A tree that JSON can hold; tensors and arrays are appended to `arrays` and stand there by number."""
    if isinstance(value, np.floating):
        return float(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray) or hasattr(value, "detach"):
        arrays.append(value if isinstance(value, np.ndarray) else _array(value))
        return {"array": len(arrays) - 1}
    if isinstance(value, dict):
        pairs = [[k, _encode(v, arrays, where)] for k, v in value.items()]
        if all(isinstance(k, str | int) for k, _ in pairs):
            return {"dict": pairs}
    if isinstance(value, list | tuple):
        return {"list" if isinstance(value, list) else "tuple": [_encode(v, arrays, where) for v in value]}
    if isinstance(value, argparse.Namespace):
        return {"namespace": _encode(vars(value), arrays, where)}
    raise ValueError(
        f"{where}: holds a {type(value).__name__}, expected arrays, dictionaries by names, lists and plain values"
    )


def _array(tensor: Any) -> np.ndarray:
    # numpy has no bfloat16, hence float() for all short floats.
    short = tensor.is_floating_point() and tensor.element_size() < 4
    return np.asarray((tensor.float() if short else tensor).detach().cpu().numpy())


def _decode(tree: Any, arrays: Any) -> Any:
    """The inverse of `_encode`; `arrays` are by number as a string."""
    if not isinstance(tree, dict):
        return tree
    ((kind, value),) = tree.items()
    if kind == "array":
        return arrays[str(value)]
    if kind == "dict":
        return {k: _decode(v, arrays) for k, v in value}
    if kind == "namespace":
        return argparse.Namespace(**_decode(value, arrays))
    return (list if kind == "list" else tuple)(_decode(v, arrays) for v in value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
