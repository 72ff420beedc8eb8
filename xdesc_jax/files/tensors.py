"""Writing .safetensors files so that the same content gives the same bytes, and reading their headers.

In: arrays and header entries. Out: a file, whole or not at all; or what a file says of its tensors. The library
writes header entries in an order of its own at each call, and files are told apart by the hash of their content.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax.files.whole import atomic, parse_json

LENGTH_BYTES = 8  # in which the file begins with the length of its header, little-endian
_ENTRIES = "__metadata__"
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "I8": "int8"}  # as the format calls them


def write(path: Path | str, tensors: Mapping[str, np.ndarray], entries: Mapping[str, str]) -> Path:
    """Writes tensors by name, and header entries in the order of their names.

    Args:
        path: the file.
        tensors: contiguous arrays.
        entries: texts by name.

    Source: the format's description, https://github.com/huggingface/safetensors#format.
    """
    import safetensors.numpy

    content = safetensors.numpy.save(dict(tensors), dict(entries))
    start = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    header = json.loads(content[LENGTH_BYTES:start])
    header[_ENTRIES] = dict(sorted(header[_ENTRIES].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    with atomic(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(LENGTH_BYTES, "little") + text)
        file.write(memoryview(content)[start:])
    return Path(path)


def read_header(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a file says of itself, without reading a tensor.

    Returns:
        Its entries, and of each tensor its dtype, shape and place by name.

    Raises:
        ValueError: no .safetensors file, or cut short.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        try:
            header = parse_json(file.read(length) if length < path.stat().st_size else b"")
        except ValueError as error:
            raise ValueError(f"{path}: not a readable safetensors file, or cut short ({error})") from error
    entries = header.pop(_ENTRIES, {}) if isinstance(header, dict) else None
    if not isinstance(entries, dict):
        raise ValueError(f"{path}: not a readable safetensors file, its header is no object of entries")
    return entries, header


def dtype_of(path: Path, ending: str) -> str:
    """The dtype of the tensors whose names end so, '-' where there are none; of several the names, sorted.

    Raises:
        ValueError: as `read_header`.
    """
    found = {tensor.get("dtype") for name, tensor in read_header(path)[1].items() if name.endswith(ending)}
    return ", ".join(sorted(_DTYPES.get(dtype, str(dtype)) for dtype in found)) or "-"
