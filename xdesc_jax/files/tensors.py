"""Writing .safetensors files: the same content gives the same bytes.

In: arrays and header entries. Out: a file, whole or not at all. The library writes header entries in an order of
its own at each call, and files are told apart by the hash of their content.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from xdesc_jax.files.whole import atomic

_LENGTH_BYTES = 8  # in which the file begins with the length of its header, little-endian
_ENTRIES = "__metadata__"


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
    start = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    header = json.loads(content[_LENGTH_BYTES:start])
    header[_ENTRIES] = dict(sorted(header[_ENTRIES].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    with atomic(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
        file.write(memoryview(content)[start:])
    return Path(path)
