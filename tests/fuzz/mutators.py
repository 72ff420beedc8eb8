"""What becomes of a small valid file: its bytes, its words, its JSON, the arrays and rows that it holds.

In: a file, and a source of random choices. Out: the file changed in place, and in a few words what was changed. The
same choices give the same change.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

Mutator = Callable[[Path, random.Random], str]

_NUMBERS = (0, 1, -1, 2, 127, 255, 65535, 2**31 - 1, -(2**31), 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1)
_REALS = (float("nan"), float("inf"), -float("inf"), 1e300, -1e300, 1e-300, 0.0, -0.0, -1.0)
_WORDS = (
    "nan", "inf", "-inf", "1e400", "-1", "0", "1", "2147483648", "99999999999999999999", "9" * 400, "0x10", "1_0",
    "\u0663", "1.5", "", '"', '"a', "'", "#", "# a", "\\", "/", "..", "\0", "\ufeff", "\u2028", "\x0c", "é",
    "e\u0301", "\t", "\r", "a" * 3000, "None",
    "True", "[]", "{}", "()", "1/0", "PINHOLE", "OPENCV", "NO_MODEL", "a.jpg", "lambda: 1", "'text'", "10 ** 30",
)  # fmt: skip
_TEXTS = (
    "",
    "a",
    "é",
    "\0",
    "a b",
    "a/b",
    "\n",
    "a" * 3000,
    "NaN",
    "-1",
    "{}",
    "[1",
    "\ud800",
    "none",
    "float32",
    "..",
)
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 10**30, 10**400, 0.5, 1e308, *_REALS, [], {}, [[]], [None], [-1],
    {"": 0}, *_TEXTS,
)  # fmt: skip


# --- Bytes -----------------------------------------------------------------------------------------------------------


def _some(size: int, rng: random.Random) -> slice:
    """A stretch of a file, of any length from a byte to all of it, short ones more often."""
    start = rng.randrange(size) if size else 0
    return slice(start, min(size, start + 2 ** rng.randrange(max(size.bit_length(), 1))))


def change_bytes(path: Path, rng: random.Random) -> str:
    """The bytes of a file changed."""
    data, told = changed_bytes(path.read_bytes(), rng)
    path.write_bytes(data)
    return told


def changed_bytes(given: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Flipped bits, blocks of zeros, ones or noise, numbers that are too large, what is cut, lost or there twice."""
    data, told = bytearray(given), []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, size = _some(len(data), rng), len(data)
        kind = rng.choice(
            ("flip", "number", "real", "cut", "zeros", "ones", "noise", "lose", "double", "move", "append")
        )
        if kind == "flip" and size:
            for _ in range(rng.choice((1, 1, 2, 8))):
                data[rng.randrange(size)] ^= 1 << rng.randrange(8)
        elif kind in ("number", "real") and size:
            width = rng.choice((1, 2, 4, 8)) if kind == "number" else 8
            number = rng.choice(_NUMBERS) & (256**width - 1)
            packed = number.to_bytes(width, rng.choice(("little", "little", "big")))
            if kind == "real":
                packed = struct.pack("<d", rng.choice(_REALS))
            start = at.start - at.start % rng.choice((1, width))
            data[start : start + width] = packed[: max(size - start, 0)]
        elif kind == "cut":
            del data[
                rng.choice((at.start, size - min(size, rng.randrange(1, 9)), 0 if rng.random() < 0.1 else at.stop)) :
            ]
        elif kind in ("zeros", "ones"):
            data[at] = (b"\0" if kind == "zeros" else b"\xff") * (at.stop - at.start)
        elif kind == "noise":
            data[at] = rng.randbytes(at.stop - at.start)
        elif kind == "lose":
            del data[at]
        elif kind == "double":
            data[at.start : at.start] = data[at]
        elif kind == "move":
            block = data[at]
            del data[at]
            start = rng.randrange(len(data) + 1)
            data[start:start] = block
        elif kind == "append":
            data += rng.choice((b"\0", b"\xff" * 8, rng.randbytes(rng.randrange(1, 200)), bytes(data)))
        told.append(f"{kind} at {at.start}-{at.stop}")
    return bytes(data), ", ".join(told)


# --- Text ------------------------------------------------------------------------------------------------------------


def change_words(path: Path, rng: random.Random) -> str:
    """Words that are another, lost or there twice, lines likewise, other blanks and line ends."""
    lines, told = path.read_bytes().decode("utf-8", "replace").split("\n"), []
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(lines))
        words = lines[at].split(" ")
        kind = rng.choice(
            ("word", "word", "word", "part", "lose", "double", "swap", "line", "lines", "glue", "blanks", "first")
        )
        which = rng.randrange(len(words))
        if kind == "word":
            words[which] = rng.choice(_WORDS)
        elif kind == "part":  # of a word, so that brackets and names around it stay
            cut = rng.randrange(len(words[which]) + 1)
            end = min(len(words[which]), cut + rng.randrange(3))
            words[which] = words[which][:cut] + rng.choice(_WORDS) + words[which][end:]
        elif kind == "lose":
            del words[which]
        elif kind == "double":
            words.insert(which, words[which])
        elif kind == "swap":
            other = rng.randrange(len(words))
            words[which], words[other] = words[other], words[which]
        elif kind == "blanks":
            words[which] += rng.choice((" ", "\t", "\r", "\u00a0", "\u2003", "\v", "\r\n"))
        lines[at] = " ".join(words)
        if kind == "line":
            lines.insert(rng.randrange(len(lines) + 1), lines[at])
        elif kind == "lines":
            del lines[at : at + rng.choice((1, 1, 3, len(lines)))]
            lines = lines or [""]
        elif kind == "glue" and at + 1 < len(lines):
            lines[at] += lines.pop(at + 1)
        elif kind == "first":
            lines[0] = rng.choice(("\ufeff", "\ufeff\ufeff", "#", "\0", " ")) + lines[0]
        told.append(f"{kind} in line {at + 1}")
    text = rng.choice(("\n",) * 8 + ("\r\n", "\r")).join(lines)
    path.write_bytes(text.encode(rng.choice(("utf-8",) * 12 + ("utf-16", "latin-1", "utf-32")), "replace"))
    return ", ".join(told)


# --- JSON ------------------------------------------------------------------------------------------------------------


def change_value(value: Any, rng: random.Random) -> tuple[Any, str]:
    """A JSON value with one of its inner values, or itself, changed; what was changed."""
    places = [*_places(value, ())]
    place = rng.choice(places)
    kind = rng.choice(("value", "value", "value", "lose", "rename", "double", "swap", "nest", "as text", "in list"))
    here: Any = value
    for key in place[:-1]:
        here = here[key]
    if not place:
        return (rng.choice(_VALUES), "all of it") if kind == "value" else (value, "nothing")
    key = place[-1]
    if kind == "value":
        here[key] = rng.choice(_VALUES)
    elif kind == "lose":
        del here[key]
    elif kind == "rename" and isinstance(here, dict):
        here[rng.choice((*_TEXTS[:7], key.upper() if isinstance(key, str) else key))] = here.pop(key)
    elif kind == "double" and isinstance(here, list):
        here.insert(key, here[key])
    elif kind == "swap":
        other = rng.choice(list(here) if isinstance(here, dict) else range(len(here)))
        here[key], here[other] = here[other], here[key]
    elif kind == "nest":
        for _ in range(rng.choice((1, 2, 3000))):
            here[key] = [here[key]]
    elif kind == "as text":
        here[key] = str(here[key])
    else:
        here[key] = {"inner": here[key]}
    return value, f"{kind} at {'/'.join(map(str, place))}"[:200]


def _places(value: Any, at: tuple) -> list[tuple]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, found in inner for place in _places(found, (*at, key)))]


def json_bytes(value: Any) -> bytes:
    """The JSON of a value, nested as deep as it may be, with NaN and lone surrogates as they are."""
    try:
        return json.dumps(value).encode()
    except RecursionError:
        return b"[" * 100_000


def change_json_or_bytes(path: Path, rng: random.Random) -> str:
    """A file without a suffix changed, by what it holds."""
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return change_bytes(path, rng)
    return rng.choice((change_bytes, change_json, change_json))(path, rng)


def change_json(path: Path, rng: random.Random) -> str:
    """One value of a JSON file changed, or of the lines of a file of them."""
    lines = path.read_bytes().splitlines(keepends=True) if path.suffix == ".jsonl" else [path.read_bytes()]
    at = rng.randrange(len(lines))
    value, told = change_value(json.loads(lines[at]), rng)
    lines[at] = json_bytes(value) + b"\n"
    path.write_bytes(b"".join(lines))
    return told
