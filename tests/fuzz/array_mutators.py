"""Arrays of a file that are others than the rest of the file says: HDF5, .npz, .npy and .safetensors.

In: a valid file, and a source of random choices. Out: the file with an array, a name or an attribute changed.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import warnings
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.fuzz.mutators import change_value, json_bytes

_DTYPES = ("f2", "f4", "f8", ">f4", "i1", "i4", "i8", "u1", "u4", "u8", "?", "c8", "S3", "V5", "M8[s]", "m8[s]")
_ODD: tuple[float, ...] = (np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-42, -1, -2, 0, 300, 2**31, 1e6)
_HUGE = ((1 << 40,), (1 << 33, 2), (2, 1 << 33), (1 << 62,), (128, 1 << 30))


def changed_array(values: np.ndarray, rng: random.Random) -> tuple[np.ndarray, str]:
    """An array with other values, of another dtype or of another shape."""
    kind = rng.choice(
        ("values", "values", "values", "all", "dtype", "shape", "rows", "columns", "transposed", "permuted")
    )
    values = np.array(values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind in ("values", "all") and values.dtype.kind in "fiub":
            odd = np.array(rng.choice(_ODD)).astype(values.dtype)
            if kind == "all" or not values.size:
                values[...] = odd
            else:
                flat = values.reshape(-1)
                for _ in range(rng.choice((1, 1, 3))):
                    flat[rng.randrange(values.size)] = odd
            kind += f" {odd}"
        elif kind == "dtype":
            dtype = rng.choice(_DTYPES)
            try:
                values = values.astype(dtype)
            except (TypeError, ValueError):
                values = np.zeros(values.shape, dtype)
            kind += f" {dtype}"
        elif kind == "shape":
            forms = [
                values.reshape(-1),
                values[None],
                values[..., None],
                np.zeros((), values.dtype),
                np.zeros((0, 2), values.dtype),
            ]
            values = forms[rng.randrange(len(forms))]
        elif kind in ("rows", "columns") and values.ndim:
            axis = 0 if kind == "rows" else values.ndim - 1
            count = rng.choice((0, 1, values.shape[axis] + 1, values.shape[axis] * 2, max(values.shape[axis] - 1, 0)))
            values = np.resize(np.moveaxis(values, axis, 0), (count, *np.moveaxis(values, axis, 0).shape[1:]))
            values = np.moveaxis(values, 0, axis)
        elif kind == "transposed":
            values = values.T
        elif kind == "permuted" and values.ndim:
            values = values[rng.sample(range(len(values)), len(values))]
    return values, f"{kind} -> {values.dtype} {values.shape}"


# --- HDF5 ------------------------------------------------------------------------------------------------------------


def change_hdf5(path: Path, rng: random.Random) -> str:
    """An array, group, link or attribute of an HDF5 file changed."""
    told = []
    with h5py.File(path, "r+") as file:
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            found: list[str] = []
            file.visit(found.append)
            attributed = [key for key in ("/", *found) if file.get(key) is not None and len(file[key].attrs)]
            with contextlib.suppress(OSError, KeyError, RuntimeError, ValueError):  # what HDF5 itself refuses
                if attributed and rng.random() < 0.3:
                    told.append(_change_attribute(file, rng.choice(attributed), rng))
                elif found:
                    told.append(_change_item(file, rng.choice(found), rng))
    return ", ".join(told) or "nothing"


def _change_item(file: h5py.File, key: str, rng: random.Random) -> str:
    item = file.get(key)
    attributes = {} if item is None else dict(item.attrs)
    parent, _, name = key.rpartition("/")
    group = file[parent] if parent else file
    kind = rng.choice(
        ("array",) * 8 + ("lose", "rename", "huge", "empty", "text", "group", "self", "link", "external", "scalar")
    )
    if kind == "array" and _is_small(item):
        values, kind = changed_array(item[()], rng)
        if values.dtype.kind in "mM":
            values = values.view("i8")
    elif kind in ("lose", "array"):
        del group[name]
        return f"{key}: lost"
    elif kind == "rename":
        group.move(
            name,
            rng.choice(("keypoints", "descriptors", "matches0", "a", "é", "x/y", "scales", "oris", "real", "valid"))
            + name[:1],
        )
        return f"{key}: renamed"
    elif kind == "self":
        group[f"{name}.again"] = file if rng.random() < 0.5 else group  # a circle of hard links
        return f"{key}: holds itself"
    elif kind in ("link", "external"):
        del group[name]
        aims = (h5py.SoftLink("/nowhere"), h5py.SoftLink("/"), h5py.SoftLink(f"/{key}"))
        group[name] = (
            rng.choice(aims) if kind == "link" else h5py.ExternalLink(rng.choice(("no.h5", "/etc/hostname")), "/")
        )
        return f"{key}: {kind}"
    else:
        values = None
    del group[name]
    if values is not None:
        packed = {"chunks": True, "compression": "gzip"} if values.size and values.ndim and rng.random() < 0.3 else {}
        group.create_dataset(name, data=values, **packed)
    elif kind == "huge":
        shape = rng.choice(_HUGE)
        chunks = tuple(min(n, 1 << 10) for n in shape) if rng.random() < 0.7 else None
        group.create_dataset(name, shape, rng.choice(("f4", "i4", "u1")), chunks=chunks)
    elif kind == "empty":
        group[name] = h5py.Empty("f4")
    elif kind == "text":
        group[name] = rng.choice(("text", "é", b"\xff\xfe", ["a", "b"]))
    elif kind == "scalar":
        group[name] = rng.choice((1, -1, np.nan, 2**40))
    else:
        group.create_group(name)
    for attribute, value in attributes.items():
        group[name].attrs[attribute] = value
    return f"{key}: {kind}"


def _is_small(item: Any) -> bool:
    """Whether an item is an array that can be read, and no huge one of a change before."""
    return isinstance(item, h5py.Dataset) and item.shape is not None and item.dtype.kind != "O" and item.size < 1 << 16


def _change_attribute(file: h5py.File, key: str, rng: random.Random) -> str:
    attributes = file[key].attrs
    name = rng.choice(sorted(attributes))
    value = attributes[name]
    if rng.random() < 0.15:
        del attributes[name]
        return f"{key}: attribute {name} lost"
    if isinstance(value, str) and value[:1] in ("{", "[") and rng.random() < 0.7:
        inner, told = change_value(json.loads(value), rng)
        attributes[name] = json_bytes(inner)[:60000].decode()
        return f"{key}: attribute {name}: {told}"
    if isinstance(value, np.ndarray) and rng.random() < 0.5:
        values, told = changed_array(value, rng)
        attributes[name] = values.view("i8") if values.dtype.kind in "mM" else values
        return f"{key}: attribute {name}: {told}"
    odd: tuple[Any, ...] = (
        "", "é", "a\nb", "x" * 3000, b"\xff\xfe", 0, -1, 2, 2**40, 1e300, np.nan, np.inf, True, np.zeros(0),
        np.zeros((2, 2)), np.arange(3), ["a", "b"], h5py.Empty("f4"), h5py.Empty("S1"),
    )  # fmt: skip
    attributes[name] = odd[rng.randrange(len(odd))]
    return f"{key}: attribute {name} is {attributes[name]!r}"[:200]


# --- numpy's formats -------------------------------------------------------------------------------------------------


def npy_bytes(values: np.ndarray, rng: random.Random) -> bytes:
    """An array in numpy's format, at times with a header that declares something else."""
    file = io.BytesIO()
    np.lib.format.write_array(file, values, version=rng.choice(((1, 0), (1, 0), (2, 0), (3, 0))))
    data = file.getvalue()
    if rng.random() < 0.25:
        shape = str(values.shape).encode()
        other = rng.choice((b"(99,)", b"(-1,)", b"(9999999999,)", b"(1,2,3)", b"()", b"(2**9,)", b"(True,)", b"[2]"))
        data = data.replace(shape, other.ljust(len(shape))[: max(len(shape), len(other))], 1)
    elif rng.random() < 0.1:
        data = data.replace(
            f"'{values.dtype.str}'".encode(), rng.choice((b"'|O'", b"'<f4'", b"'x'", b"[('a', '<f4')]")), 1
        )
    return data


def change_npy(path: Path, rng: random.Random) -> str:
    """Another array in a .npy file."""
    values, told = changed_array(np.load(path), rng)
    path.write_bytes(npy_bytes(values, rng))
    return told


def change_npz(path: Path, rng: random.Random) -> str:
    """An array of a .npz file changed, lost, under another name or there twice; or a value of its JSON header."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(members))
    kind = rng.choice(("array",) * 6 + ("lose", "rename", "twice", "no array", "packed"))
    told = kind
    method = zipfile.ZIP_DEFLATED if kind == "packed" else zipfile.ZIP_STORED
    if name == "header.npy" and kind == "array":
        header, told = change_value(json.loads(np.load(io.BytesIO(members[name])).tobytes()), rng)
        members[name] = npy_bytes(np.frombuffer(json_bytes(header), np.uint8), random.Random(1))
    elif kind == "array":
        values, told = changed_array(np.load(io.BytesIO(members[name])), rng)
        members[name] = npy_bytes(values, rng)
    elif kind == "lose":
        del members[name]
    elif kind == "rename":
        members[rng.choice(("a.npy", "é.npy", "../a.npy", name.removesuffix(".npy"), "a" + name))] = members.pop(name)
    elif kind == "no array":
        members[name] = rng.choice((b"", b"text", b"\x80\x04N.", b"\x93NUMPY\x07\x00"))
    with zipfile.ZipFile(path, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for member, data in members.items():
            for _ in range(1 + (kind == "twice" and member == name)):
                archive.writestr(zipfile.ZipInfo(member), data)
    return f"{name}: {told}"


def change_safetensors(path: Path, rng: random.Random) -> str:
    """A value of the header of a .safetensors file changed, or numbers of its tensors."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8:end]), data[end:]
    entries = header["__metadata__"]
    parsed = [name for name, text in entries.items() if text[:1] in ("{", "[")]
    kind = rng.random()
    if kind < 0.5 and parsed:  # JSON within the JSON
        name = rng.choice(sorted(parsed))
        inner, told = change_value(json.loads(entries[name]), rng)
        entries[name] = json_bytes(inner).decode()
        told = f"{name}: {told}"
    elif kind < 0.8:
        header, told = change_value(header, rng)
    else:
        values = np.frombuffer(body[: len(body) // 4 * 4], np.float32).copy()
        for _ in range(rng.choice((1, 3))):
            values[rng.randrange(len(values))] = rng.choice(_ODD)
        body, told = values.tobytes() + body[len(values) * 4 :], "values"
    text = json_bytes(header)
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return told
