"""Reading photos, and writing pictures.

In: a folder of photos, or one file. Out: names relative to the folder, and uint8 pixels as the file holds
them: EXIF orientation is not applied (as in COLMAP; the other modules rely on it), transparency is dropped,
palettes, CMYK and 16-bit files are converted. What EXIF says is read apart.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xdesc_jax import console
from xdesc_jax.files.whole import atomic

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
MAX_SIDE_PX = 32766  # of the photos that cv2.remap cuts patches from
_WIDTH, _HEIGHT, _ORIENTATION = 0x0100, 0x0101, 0x0112  # tags of a TIFF
_16_BIT_MODES = ("I", "I;16", "I;16B", "I;16L", "I;16N")
_DAMAGE = (  # what Pillow raises at files that are damaged, beside its DecompressionBombError
    OSError, SyntaxError, EOFError, struct.error, zlib.error, ValueError, TypeError, LookupError, ArithmeticError,
)  # fmt: skip


class UnreadablePhoto(ValueError):
    """A file that is missing, empty, cut short, too large, or not a photo this package reads."""


def list_photos(root: Path | str, *, strict: bool = False, skipped: dict[str, str] | None = None) -> list[str]:
    """Names of all photos below `root`: relative, with '/' between folders, sorted.

    Any depth of folders (links to folders are followed once); suffixes in any case; hidden files and folders
    are left out, and so are, with a warning, names that are not UTF-8: no feature file can hold them.

    Args:
        root: the photos' folder.
        strict: raise at a name that is not UTF-8.
        skipped: receives such a name, as the bytes look in Python, and the reason.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: not a folder, no photo in it, or with `strict` a name that is not UTF-8.
    """
    root = Path(root)
    if not root.exists():
        raise FileNotFoundError(f"{root}: no such folder of photos")
    if not root.is_dir():
        raise ValueError(f"{root}: expected a folder of photos, found a file")
    names: list[str] = []
    unnamed: list[str] = []
    visited = set()
    for folder, subfolders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in visited:
            subfolders.clear()
            continue
        visited.add(real)
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in files:
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                found = (Path(folder) / name).relative_to(root).as_posix()
                (names if _is_utf8(found) else unnamed).append(found)
    for name in sorted(unnamed):
        reason = f"{os.fsencode(root / name)!r}: the photo's name is not UTF-8"
        if strict:
            raise UnreadablePhoto(reason)
        console.warn(f"left out: {reason}")
        if skipped is not None:
            skipped[repr(os.fsencode(name))] = reason
    if not names and unnamed:
        raise ValueError(f"{root}: no photo has a name in UTF-8, first of {len(unnamed)}: {os.fsencode(unnamed[0])!r}")
    if not names:
        raise ValueError(f"{root}: no photo found (suffixes looked for: {' '.join(SUFFIXES)})")
    return sorted(names)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_rgb(path: Path | str) -> np.ndarray:
    """Reads a photo as uint8 [H, W, 3]; gray photos have three equal channels.

    Raises:
        UnreadablePhoto: with the file and what is wrong with it.
    """
    return np.asarray(_open(Path(path)).convert("RGB"))


def read_gray(path: Path | str, *, max_side_px: int = MAX_SIDE_PX) -> np.ndarray:
    """Reads a photo as ITU-R 601 gray, uint8 [H, W]: 0.299 R + 0.587 G + 0.114 B.

    Args:
        path: the file.
        max_side_px: larger ones are refused; for pictures that no patches are cut from, such as columns of them.

    Raises:
        UnreadablePhoto: with the file and what is wrong with it.
    """
    return np.asarray(_open(Path(path), max_side_px).convert("L"))


def read_exif(path: Path | str, table: int | None = None) -> tuple[dict[int, Any], tuple[int, int]]:
    """What a photo's EXIF says, and the size of the file's own pixels, which it does not turn.

    Args:
        path: the file.
        table: tag of one of EXIF's further tables, whose tags are given in place of the first one's.

    Returns:
        Tag -> value, and (width, height) px; no tags and (0, 0) where there is no such file, or none of a photo.
    """
    from PIL import Image

    try:
        with Image.open(path) as photo:
            tags = photo.getexif()
            return dict(tags if table is None else tags.get_ifd(table)), _stored_size(photo)
    except (*_DAMAGE, Image.DecompressionBombError):
        return {}, (0, 0)


def scaled_down(pixels: np.ndarray, side: int | None) -> np.ndarray:
    """A photo, uint8 [H, W] or [H, W, 3], of at most `side` px, by means over areas; as it is where it is no larger."""
    import cv2

    longer = max(pixels.shape[:2])
    if side is None or longer <= side:
        return pixels
    width, height = (max(1, round(length * side / longer)) for length in pixels.shape[1::-1])
    return np.asarray(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA))


def write_png(path: Path, pixels: np.ndarray) -> None:
    """Writes uint8 [H, W] or RGB [H, W, 3], whole or not at all; folders are made.

    Raises:
        OSError: the file cannot be written.
    """
    import cv2

    encoded = cv2.imencode(".png", pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))[1]
    with atomic(path) as temporary:
        temporary.write_bytes(encoded.tobytes())


def _open(path: Path, max_side_px: int = MAX_SIDE_PX) -> Image.Image:
    """The decoded first frame, of mode L or RGB."""
    from PIL import Image

    try:
        if not path.exists():
            raise UnreadablePhoto(f"{path}: no such photo")
        if path.stat().st_size == 0:
            raise UnreadablePhoto(f"{path}: the photo is an empty file (0 bytes)")
        with Image.open(path) as image:
            if max(image.size) > max_side_px:
                width, height = image.size
                raise UnreadablePhoto(f"{path}: the photo has {width} x {height} px, at most {max_side_px} a side")
            _keep_as_stored(image)
            image.load()
            return _plain(image, path)
    except UnreadablePhoto:
        raise
    except (*_DAMAGE, Image.DecompressionBombError) as error:
        raise UnreadablePhoto(f"{path}: not a photo that can be read ({error})") from error


def _keep_as_stored(image: Image.Image) -> None:
    """Before it is decoded: newer versions of Pillow turn a TIFF as its orientation says, and no other photo."""
    size = _stored_size(image)
    if image.format == "TIFF" and image.getexif().pop(_ORIENTATION, None) is not None:
        image._size = size


def _stored_size(image: Image.Image) -> tuple[int, int]:
    """(width, height) px as the file holds them: of a TIFF Pillow says how it would be shown."""
    if image.format != "TIFF":
        return image.size
    tags = image.getexif()
    return tags[_WIDTH], tags[_HEIGHT]


def _plain(image: Image.Image, path: Path) -> Image.Image:
    from PIL import Image

    mode = image.mode
    if mode in ("L", "RGB"):
        return image.copy()
    if mode in _16_BIT_MODES:
        return Image.fromarray(_scale_16_bit(np.asarray(image), path))
    if mode == "F":
        raise UnreadablePhoto(f"{path}: pixels are floats, expected 8 or 16 bits per channel")
    if mode in ("1", "LA", "La"):
        return image.convert("LA").convert("L") if mode == "La" else image.convert("L")
    if mode in ("P", "PA", "RGBa"):
        image = image.convert("RGBA")
    return image.convert("RGB")


def _scale_16_bit(pixels: np.ndarray, path: Path) -> np.ndarray:
    """0..65535 -> 0..255, rounded; clipping would turn most of such a photo white."""
    low, high = int(pixels.min()), int(pixels.max())
    if low < 0 or high > 65535:
        raise UnreadablePhoto(f"{path}: pixel values span {low}..{high}, expected 0..65535")
    return np.rint(pixels.astype(np.float32) * np.float32(255 / 65535)).astype(np.uint8)
