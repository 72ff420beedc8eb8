"""Weight files of the learned descriptors: arrays by name, and the check that they fit.

In: a .npz, .safetensors or PyTorch (.pth, .pt) file. Out: numpy arrays under the names the file gives them,
checked against the names and shapes that a network expects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.files import pytorch, tensors
from xdesc_jax.files.arrays import read_plain

SHOWN = 5  # names listed in an error
WRAPPINGS = ("state_dict", "extractor")  # under which PyTorch files keep their weights, if not bare
TORCH_SUFFIXES = (".pth", ".pt", ".params")


def read_arrays(path: Path | str, prefix: str = "") -> dict[str, np.ndarray]:
    """Reads a weight file.

    Args:
        path: .npz, .safetensors, .pth, .pt or .params; a PyTorch file may wrap its weights (`WRAPPINGS`). Such files
            are read with `weights_only=True`, which runs no code from them, and need torch.
        prefix: keeps only names that start with it, and strips it from them.

    Returns:
        Name -> array, as in the file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file is of another kind, damaged, or needs torch where that is not installed.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such weight file")
    readers = {".npz": _read_npz, ".safetensors": _read_safetensors, **dict.fromkeys(TORCH_SUFFIXES, _read_torch)}
    if path.suffix.lower() not in readers:
        raise ValueError(f"{path}: unknown kind of weight file, expected one of {', '.join(readers)}")
    arrays = readers[path.suffix.lower()](path)
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def write_arrays(path: Path | str, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> Path:
    """Writes a .safetensors weight file, whole or not at all.

    Args:
        path: the file.
        arrays: by name.
        metadata: goes into the file's header.
    """
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return tensors.write(path, plain, metadata)


def select(
    arrays: Mapping[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]], where: Path | str
) -> dict[str, np.ndarray]:
    """Takes a network's arrays out of a weight file's, refusing anything that does not fit.

    Args:
        arrays: what the file holds.
        shapes: what the network needs: name -> shape. PyTorch's batch counters (`num_batches_tracked`) may
            be there and are left out; nothing else may.
        where: the file, for error messages.

    Returns:
        The names of `shapes` with float32 arrays of those shapes.

    Raises:
        ValueError: names are missing or unexpected, or an array has another shape, is not of floats, or
            holds a value that is not finite.
    """
    found = {name: array for name, array in arrays.items() if not name.endswith("num_batches_tracked")}
    missing = [name for name in shapes if name not in found]
    unexpected = [name for name in found if name not in shapes]
    if missing or unexpected:
        raise ValueError(
            f"{where}: not the expected network; missing {_listed(missing)}; unexpected {_listed(unexpected)}"
        )
    for name, shape in shapes.items():
        array = found[name]
        if array.shape != tuple(shape):
            raise ValueError(f"{where}: {name!r} has shape {array.shape}, expected {tuple(shape)}")
        if not np.issubdtype(array.dtype, np.floating):
            raise ValueError(f"{where}: {name!r} has dtype {array.dtype}, expected floats")
        if not np.isfinite(array).all():
            raise ValueError(f"{where}: {name!r} holds a value that is not finite")
    return {name: found[name].astype(np.float32) for name in shapes}


def _listed(names: list[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(repr, names[:SHOWN])) + more


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        return read_plain(path)
    except ValueError as error:
        raise ValueError(f"{path}: not a readable .npz file, or cut short ({error})") from error


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    import safetensors.numpy

    try:
        return safetensors.numpy.load_file(path)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path}: not a readable .safetensors file, or cut short ({error})") from error


def is_torch_file(path: Path) -> bool:
    """Whether the name is that of a PyTorch file."""
    return path.suffix.lower() in TORCH_SUFFIXES


def require_torch(path: Path | str) -> None:
    """Raises ValueError where torch, which reads `path`, is not installed."""
    if not pytorch.installed():
        raise ValueError(
            f"{path}: reading a PyTorch file needs torch, which is not installed; install it with: "
            f"{pytorch.EXTRA}, or save the file's arrays under the same names as .npz or .safetensors"
        )


def _read_torch(path: Path) -> dict[str, np.ndarray]:
    require_torch(path)
    return arrays_in(pytorch.read(path), path)


def arrays_in(content: Any, path: Path) -> dict[str, np.ndarray]:
    """The dictionary of arrays that a PyTorch file holds, bare or under a name of `WRAPPINGS`.

    Raises:
        ValueError: there is none; names the file.
    """
    if isinstance(content, dict):
        content = next((content[name] for name in WRAPPINGS if name in content), content)
    if not isinstance(content, dict) or not all(isinstance(v, np.ndarray) for v in content.values()):
        raise ValueError(f"{path}: holds no dictionary of arrays, bare or under {' or '.join(map(repr, WRAPPINGS))}")
    return content


def parse_weights(words: Sequence[str]) -> dict[str, Path]:
    """['tfeat=FILE', ...] -> {'tfeat': FILE}; a word of another form raises ValueError."""
    weights = {}
    for word in words:
        name, separator, file = word.partition("=")
        if not (name and separator and file):
            raise ValueError(f"weights {word!r}: expected NAME=FILE")
        weights[name] = Path(file)
    return weights
