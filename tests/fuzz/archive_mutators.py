"""Parts of a file whose check sums are right again: .png, .zip (PyTorch's files) and TFRecords.

In: a valid file, and a source of random choices. Out: the file with a part changed, lost, moved or there twice. What
changes bytes alone would be told by the sums, and so would never reach what reads behind them.
"""

from __future__ import annotations

import random
import struct
import zipfile
import zlib
from pathlib import Path

from tests.fuzz.mutators import changed_bytes

_SIGNATURE = 8  # bytes before the first part of a .png


def _changed_parts(parts: list[tuple[bytes, bytes]], rng: random.Random) -> str:
    """Parts (name, content) changed in place."""
    at = rng.randrange(len(parts))
    name, content = parts[at]
    kind = rng.choice(("content",) * 6 + ("lose", "twice", "move", "empty", "other"))
    if kind == "content":
        content, kind = changed_bytes(content, rng)
        parts[at] = name, content
    elif kind == "lose":
        del parts[at]
    elif kind == "twice":
        parts.insert(at, parts[at])
    elif kind == "move":
        parts.insert(rng.randrange(len(parts)), parts.pop(at))
    elif kind == "empty":
        parts[at] = name, b""
    else:
        parts[at] = name, rng.choice(parts)[1]
    return f"{name!r}: {kind}"


# --- .png ------------------------------------------------------------------------------------------------------------


def change_png(path: Path, rng: random.Random) -> str:
    """A chunk of a .png file changed, the packed pixels at times before they are packed."""
    data = path.read_bytes()
    parts, at = [], _SIGNATURE
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        parts.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    if rng.random() < 0.2:
        at = next(i for i, (name, _) in enumerate(parts) if name == b"IDAT")
        pixels, told = changed_bytes(zlib.decompress(parts[at][1]), rng)
        parts[at], told = (b"IDAT", zlib.compress(pixels)), f"pixels: {told}"
    elif rng.random() < 0.2:  # numbers of the head: width, height, bits, kind of color, packing, filter, rows
        head = list(struct.unpack(">IIBBBBB", parts[0][1]))
        which = rng.randrange(len(head))
        head[which] = rng.choice(
            (0, 1, 2, 3, 4, 6, 8, 16, 40, 255) if which > 1 else (0, 1, 13, 20000, 32766, 32767, 2**31)
        )
        parts[0], told = (b"IHDR", struct.pack(">IIBBBBB", *head)), f"head: {head}"
    else:
        told = _changed_parts(parts, rng)
    chunks = [
        len(content).to_bytes(4, "big") + name + content + zlib.crc32(name + content).to_bytes(4, "big")
        for name, content in parts
    ]
    path.write_bytes(data[:_SIGNATURE] + b"".join(chunks))
    return told


# --- .zip ------------------------------------------------------------------------------------------------------------


def change_zip(path: Path, rng: random.Random) -> str:
    """A member of an archive changed, lost, moved or there twice."""
    with zipfile.ZipFile(path) as archive:
        parts = [(name.encode(), archive.read(name)) for name in archive.namelist()]
    told = _changed_parts(parts, rng)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts:
            member = zipfile.ZipInfo(name.decode())
            if member.filename in archive.NameToInfo:
                member.filename += ".again"
            archive.writestr(member, content)
    return told


# --- TFRecords -------------------------------------------------------------------------------------------------------


def change_tfrecords(path: Path, rng: random.Random) -> str:
    """A record of a TFRecord file changed, lost, moved or there twice.

    Source of the layout: https://www.tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details".
    """
    data, parts, at = path.read_bytes(), [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        parts.append((str(len(parts)).encode(), data[at + 12 : at + 12 + length]))
        at += 16 + length
    told = _changed_parts(parts, rng)
    records = []
    for _, content in parts:
        length = len(content).to_bytes(8, "little")
        records.append(length + _masked_sum(length) + content + _masked_sum(content))
    path.write_bytes(b"".join(records))
    return told


def _masked_sum(data: bytes) -> bytes:
    found = 0xFFFFFFFF
    for byte in data:
        found = _TABLE[(found ^ byte) & 255] ^ (found >> 8)
    found ^= 0xFFFFFFFF
    return (((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def _table() -> list[int]:
    """Of CRC-32C, Castagnoli's polynomial."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()
