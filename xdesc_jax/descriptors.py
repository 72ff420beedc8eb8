"""What a descriptor is: names, widths, forms, and the registry of those the package knows.

In: descriptor arrays as files and libraries hold them. Out: their canonical form, which every other
module works with: unit-length (or plain) float32 [N, D], or bool [N, bits]. Imports numpy alone.

A name carries its implementation and never changes meaning: two descriptors of the same family from
different code (`sift`, `colmap-sift`, `opencv-sift`) are different descriptors.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from xdesc_jax.plugins import PLUGINS as PLUGINS
from xdesc_jax.plugins import load_plugins

EMBEDDING_PREFIX = "embedding:"
UNIT_TOLERANCE = 0.02  # float16 storage and rounding keep norms well inside 2 %
# A 0..255 form saturates peaked descriptors, which shortens them: a single value becomes 255 of 512.
STORED_NORM_RANGE = (0.49, 1.05)
_LEAST_VALUE = -1e-3  # of unit rows without negative values: what rounding makes of zeros
# Largest norms of rows of no unit length, nor ever all of them of norm 1; real photos reach 10, 5.3 and 3.0.
_LARGEST = {"tfeat": 11.4, "vgg": 20.0, "boostdesc-lbgm": 10.0}
_NO_FLOATS = 1e-30  # bits and whole numbers read as floats are below
_SQUARES_HOLD = 1e-15  # norms of which squares are well above float32's smallest number


@dataclasses.dataclass(frozen=True)
class DescriptorSpec:
    """One type of local descriptor.

    Attributes:
        name: identifies algorithm and implementation; lower case, no '/' or blank.
        width: number of values, or of bits for binary descriptors.
        kind: 'real' (compared by L2 distance) or 'binary' (compared by Hamming distance).
        normalized: whether the canonical form has unit L2 length; False for binary descriptors.
        storage_dtype: dtype on disk; binary descriptors are always packed uint8.
        storage_scale: stored value = rint(canonical value * storage_scale), clipped to 0..255, where the
            scale is not 1 (512 for SIFT as COLMAP and OpenCV keep it).
        hidden: default hidden widths of its encoder and decoder.
        output: activation behind the decoder's last layer: 'none', 'relu' or 'sigmoid'.
        frame: what rows are made of: a patch turned and scaled with its 'keypoint', or the 'image' as it lies.
    """

    name: str
    width: int
    kind: Literal["real", "binary"] = "real"
    normalized: bool = True
    storage_dtype: Literal["float32", "uint8"] = "float32"
    storage_scale: float = 1.0
    hidden: tuple[int, ...] = (256, 256)
    output: Literal["none", "relu", "sigmoid"] = "none"
    frame: Literal["keypoint", "image"] = "keypoint"

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if not isinstance(self.name, str) or not self.name or any(c in "/ \t\n" for c in self.name):
            raise ValueError(f"descriptor name {self.name!r}: must be non-empty, without '/' or blanks")
        for field, fits, expected in (
            ("width", _is_number(self.width, int, np.integer), "a whole number, at least 1"),
            ("kind", self.kind in ("real", "binary"), "'real' or 'binary'"),
            ("normalized", isinstance(self.normalized, bool), "True or False"),
            ("storage_dtype", self.storage_dtype in ("float32", "uint8"), "'float32' or 'uint8'"),
            ("storage_scale", _is_number(self.storage_scale, int, float), "a number above 0"),
            ("hidden", all(_is_number(h, int, np.integer) for h in self.hidden), "widths of at least 1"),
            ("output", self.output in ("none", "relu") or self.binary, "'none' or 'relu'"),
            ("frame", self.frame in ("keypoint", "image"), "'keypoint' or 'image'"),
        ):
            if not fits:
                raise ValueError(f"descriptor {self.name!r}: {field} is {getattr(self, field)!r}, expected {expected}")
        if self.binary and (self.normalized or self.output != "sigmoid"):
            raise ValueError(f"descriptor {self.name!r} is binary, expected normalized=False and output='sigmoid'")

    @property
    def binary(self) -> bool:
        return self.kind == "binary"

    @property
    def stored_width(self) -> int:
        """Columns of the stored form: bytes for binary descriptors, `width` otherwise."""
        return (self.width + 7) // 8 if self.binary else self.width

    @property
    def stored_dtype(self) -> np.dtype:
        return np.dtype(np.uint8 if self.binary else self.storage_dtype)

    @property
    def is_embedding(self) -> bool:
        return self.name.startswith(EMBEDDING_PREFIX)

    def to_dict(self) -> dict[str, Any]:
        fields = {**dataclasses.asdict(self), "hidden": list(self.hidden)}
        if self.frame == "keypoint":  # as files say nothing of it, and hashes of older ones hold
            del fields["frame"]
        return fields

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> DescriptorSpec:
        if unknown := sorted(set(fields) - {f.name for f in dataclasses.fields(cls)}):
            raise ValueError(f"descriptor spec {fields.get('name')!r} has unknown fields {unknown}")
        return cls(**fields)


def embedding_spec(space_id: str, width: int) -> DescriptorSpec:
    """The spec of embeddings in the joint space `space_id`; two spaces never compare."""
    return DescriptorSpec(EMBEDDING_PREFIX + space_id, width)


def binary_spec(name: str, bits: int, hidden: tuple[int, ...] = (1024, 1024)) -> DescriptorSpec:
    """Spec of a binary descriptor of `bits` bits."""
    return DescriptorSpec(name, bits, "binary", normalized=False, hidden=hidden, output="sigmoid")


def _is_number(value: Any, *types: Any) -> bool:
    return isinstance(value, types) and not isinstance(value, bool) and 0 < value < 1 << 31


# --- Forms -----------------------------------------------------------------------------------------------


def pack_bits(bits: np.ndarray) -> np.ndarray:
    """bool [N, bits] -> uint8 [N, ceil(bits/8)], bit k of a row in byte k // 8 at position k % 8."""
    if bits.dtype != np.bool_:
        raise ValueError(f"bits have dtype {bits.dtype}, expected bool")
    return np.packbits(bits, axis=-1, bitorder="little")


def unpack_bits(packed: np.ndarray, bits: int) -> np.ndarray:
    """uint8 [N, ceil(bits/8)] -> bool [N, bits]; the inverse of `pack_bits`."""
    if packed.dtype != np.uint8:
        raise ValueError(f"packed bits have dtype {packed.dtype}, expected uint8")
    return np.unpackbits(packed, axis=-1, count=bits, bitorder="little").astype(bool)


def unit_rows(x: np.ndarray) -> np.ndarray:
    """Rows scaled to unit L2 length, float32 [N, D]; zero rows stay zero."""
    x = np.asarray(x, np.float32)
    norms = row_norms(x)
    return x / np.where(norms > 0, norms, 1)[:, None]


def row_norms(x: np.ndarray) -> np.ndarray:
    """L2 lengths of rows [N, D], float32 [N]: 0 for zero rows alone, whatever their squares make of tiny values."""
    with np.errstate(over="ignore", under="ignore"):
        norms = np.sqrt(np.einsum("nd,nd->n", x, x, dtype=np.float32))
        odd = ~((norms > _SQUARES_HOLD) & (norms < np.inf))
        if odd.any():
            exact = np.linalg.norm(x[odd].astype(np.float64), axis=1)
            norms[odd] = np.where(exact > 0, np.maximum(exact, np.finfo(np.float32).smallest_subnormal), 0)
    return norms


def canonical(
    x: np.ndarray, spec: DescriptorSpec, *, packed: bool = False, where: str = "", first_row: int = 0,
    kept: bool = False, loose: bool = False,
) -> np.ndarray:  # fmt: skip
    """Brings descriptors from their stored or canonical form to the canonical one.

    Args:
        x: [N, D] in the stored form (uint8, or floats of 0..255 where the spec has a scale) or the
            canonical one (unit float, or bool [N, bits]); packed uint8 [N, ceil(bits/8)] with `packed`.
        spec: what the rows are.
        packed: binary rows are packed, little-endian bits.
        where: file or image, for error messages.
        first_row: what error messages call row 0, where `x` is one block of many.
        kept: rows are as files keep them: unit floats are another descriptor where files hold 0..255 floats.
        loose: no network reads them, so length of bytes (COLMAP makes synthetic ones) and signs are left alone.

    Returns:
        float32 [N, D], unit rows where the spec is normalized, or bool [N, bits]. Zero rows stay zero.

    Raises:
        ValueError: wrong rank, width, dtype or norm, a value below 0 where there is none, or one that is not finite;
            names the descriptor that the rows probably are.
    """
    x = np.asarray(x)
    at = f"{where}: " if where else ""
    width = spec.stored_width if packed else spec.width
    if x.ndim != 2 or x.shape[1] != width:
        raise ValueError(f"{at}descriptors have shape {x.shape}, but {spec.name!r} expects [N, {width}]")
    if spec.binary:
        expected = np.dtype(np.uint8 if packed else np.bool_)
        if x.dtype != expected:
            hint = "" if packed else " (packed bits need packed=True)"
            raise ValueError(f"{at}dtype is {x.dtype}, but {spec.name!r} expects {expected}{hint}")
        return unpack_bits(x, spec.width) if packed else x
    if packed:
        raise ValueError(f"{at}packed=True is for binary descriptors; {spec.name!r} is real-valued")
    as_bytes = x.dtype == np.uint8
    if as_bytes and spec.storage_scale == 1 or not (as_bytes or np.issubdtype(x.dtype, np.floating)):
        told = ("floats" if as_bytes else _told(spec)) + _probably(x, spec)
        raise ValueError(f"{at}dtype is {x.dtype}, but {spec.name!r} expects {told}")
    if as_bytes and spec.normalized:
        least = spec.storage_scale / 2 / np.sqrt(spec.width)
        if 0 < x.max(initial=0) < least:
            raise ValueError(
                f"{at}bytes are at most {x.max()}, but rows of {spec.name!r} have values over {least:.0f}: are they "
                "bits, or another descriptor?"
            )
    rows = x.astype(np.float32, copy=False)
    if not np.isfinite(rows).all():
        row = first_row + int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        raise ValueError(f"{at}row {row} of {spec.name!r} holds a value that is not finite")
    if not spec.normalized and 0 < (largest := np.abs(rows).max(initial=0)) < _NO_FLOATS:
        raise ValueError(f"{at}values are at most {largest:.2g}; are the bytes of {spec.name!r} no floats?")
    norms = row_norms(rows)
    free, ranges = (norms == 0) | (as_bytes and loose), _norms(spec, x.dtype, kept)
    fitting = [(norms >= low) & (norms <= high) | free for low, high in ranges]
    unit = False  # whether all rows are, of a descriptor whose rows never are
    if spec.name in _LARGEST and not loose and norms.any():
        unit = bool((np.abs(norms[norms > 0] - 1) <= UNIT_TOLERANCE).all())
    if unit or not any(fits.all() for fits in fitting):
        none = norms > 0 if unit else ~np.logical_or.reduce(fitting)
        row = int(np.argmax(none if none.any() else ~fitting[-1]))
        told = f"{_told(spec, kept)}{_probably(x, spec)}"
        raise ValueError(f"{at}row {first_row + row} has norm {norms[row]:.4g}, but {spec.name!r} expects {told}")
    if spec.output == "relu" and not loose and (below := rows < _LEAST_VALUE * np.maximum(norms, 1)[:, None]).any():
        row = int(np.argmax(below.any(axis=1)))
        raise ValueError(
            f"{at}row {first_row + row} holds {rows[row].min():.4g}, but {spec.name!r} has no value below 0"
            f"{_probably(x, spec)}"
        )
    if spec.normalized:
        return rows / np.where(norms > 0, norms, 1)[:, None]
    return rows / np.float32(spec.storage_scale) if as_bytes else rows


def _norms(spec: DescriptorSpec, dtype: np.dtype, kept: bool) -> list[tuple[float, float]]:
    """The ranges of norms that rows of this dtype may have; all rows are in one of them."""
    if not spec.normalized:
        return [(0, _LARGEST.get(spec.name, np.inf))]
    unit = [(1 - UNIT_TOLERANCE, 1 + UNIT_TOLERANCE)]
    if spec.storage_scale == 1:
        return unit
    low, high = STORED_NORM_RANGE
    as_stored = [(low * spec.storage_scale, high * spec.storage_scale)]
    return as_stored if dtype == np.uint8 or (kept and spec.stored_dtype != np.uint8) else unit + as_stored


def _told(spec: DescriptorSpec, kept: bool = False) -> str:
    """What rows of a descriptor are, for people."""
    if spec.storage_scale == 1:
        limit = f" of norms up to {_LARGEST[spec.name]:g}, not all 1" if spec.name in _LARGEST else ""
        return "unit-length floats" if spec.normalized else f"floats{limit}"
    unit = "" if kept and spec.stored_dtype != np.uint8 else "unit-length floats, "
    return f"{unit}uint8, or floats of norm {spec.storage_scale:g}"


def _probably(x: np.ndarray, given: DescriptorSpec) -> str:
    """The registered descriptors of which files hold such rows, as a question; '' where there are none."""
    norms, signed, names = row_norms(x.astype(np.float32)), bool((x < 0).any()), []
    for spec in (_REGISTRY[name].spec for name in registered()):
        alike = spec.width == x.shape[1] and spec.normalized and (x.dtype != np.uint8 or spec.stored_dtype == np.uint8)
        if alike and norms.any() and spec.name != given.name and (spec.output != "relu") == signed:
            low, high = _norms(spec, x.dtype, kept=True)[0]  # floats of bytes are of unit length first, as RootSIFT's
            if ((norms == 0) | (norms >= low) & (norms <= high)).all():
                names.append(repr(spec.name))
    return f"; are they {' or '.join(names)}?" if names else ""


def stored(x: np.ndarray, spec: DescriptorSpec) -> np.ndarray:
    """Canonical rows -> the form kept on disk: packed bits, 0..255 values, or float32, [N, stored_width]."""
    if spec.binary:
        return pack_bits(x)
    if spec.storage_scale == 1:
        return np.asarray(x, np.float32)
    return np.clip(np.rint(x * np.float32(spec.storage_scale)), 0, 255).astype(spec.stored_dtype)


def from_stored(x: np.ndarray, spec: DescriptorSpec, where: str = "") -> np.ndarray:
    """`canonical` for rows read from a store, a database or records, where bits are always packed."""
    return canonical(x, spec, packed=spec.binary, where=where, kept=True, loose=True)


def in_stored_dtype(x: np.ndarray, spec: DescriptorSpec, where: str = "") -> np.ndarray:
    """Rows [N, D] of a file of others in the dtype that ours have; RootSIFT becomes the bytes of 'colmap-sift'.

    Rows that are not finite stay so, and with them all are floats. Raises ValueError as `canonical`, which says
    `where`, for floats that cannot be those of the spec.
    """
    if spec.binary or spec.storage_scale == 1:
        return x
    if x.dtype == np.uint8:
        return x.astype(spec.stored_dtype)
    finite = np.isfinite(x).all(axis=1)
    rows = np.where(finite[:, None], x, 0)
    if spec.stored_dtype != np.uint8:
        norms = row_norms(rows)
        if ((norms > 0) & (norms < STORED_NORM_RANGE[0] * spec.storage_scale)).any():
            canonical(rows, spec, where=where, kept=True)  # says what they are
        return x
    unit = canonical(rows, spec, where=where, kept=True)
    whole = rows.max(initial=0) > 1 + UNIT_TOLERANCE  # bytes as floats
    if finite.all():
        return np.rint(x).astype(np.uint8) if whole else stored(unit, spec)
    return x if whole else x * np.float32(spec.storage_scale)


# --- Registry --------------------------------------------------------------------------------------------

Source = Literal["patch", "photo", "detector", "network"]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A registered descriptor: its spec and how it is computed, if the package can compute it.

    `describe` is a callable or a lazily imported 'module:name'. From 'patch' it maps float32
    [B, 32, 32] in 0..1 to canonical descriptors [B, D]; with `weighted`, it first takes the parameters that
    `load` ('module:name') reads from a weight file. From 'photo' it maps (gray uint8 [H, W], keypoints) to
    (stored descriptors [N, stored_width], valid bool [N]). From 'network' it is a
    `features.extractors.protocol.Extractor`, made and called in a process of its own.
    """

    spec: DescriptorSpec
    describe: Callable | str | None = None
    source: Source = "patch"
    load: Callable | str | None = None

    @property
    def weighted(self) -> bool:
        return self.load is not None or (self.source == "network" and self.describe is not None)


def resolve(function: Callable | str) -> Callable:
    """A callable itself, or the one that 'module:name' names, imported now."""
    if isinstance(function, str):
        module, name = function.split(":")
        return getattr(importlib.import_module(module), name)
    return function


_REGISTRY: dict[str, Entry] = {}


def register(
    spec: DescriptorSpec, describe: Callable | str | None = None, *,
    source: Source = "patch", load: Callable | str | None = None,
) -> DescriptorSpec:  # fmt: skip
    """Makes a descriptor known by name to every stage.

    Args:
        spec: name, width, kind and forms.
        describe: computes it (see `Entry`); None where rows come from files alone.
        source: what `describe` reads: 'patch', 'photo', 'network' (a photo, by a network that also detects), or
            'detector' where it comes with the keypoints.
        load: reads weights from a path, for descriptors that have them.

    Raises:
        ValueError: the name is taken by another spec.
    """
    known = _REGISTRY.get(spec.name)
    if known is not None and known.spec != spec:
        raise ValueError(f"descriptor {spec.name!r} is registered as {known.spec}, refused as {spec}")
    _REGISTRY[spec.name] = Entry(spec, describe, source, load)
    return spec


def get_entry(name: str) -> Entry:
    """The registry entry of `name`; an unknown name raises ValueError with near names."""
    load_plugins()
    if name not in _REGISTRY:
        from xdesc_jax.console.words import did_you_mean

        hint = did_you_mean(name, _REGISTRY)
        raise ValueError(f"unknown descriptor {name!r}{hint} (known: {', '.join(sorted(_REGISTRY))})")
    return _REGISTRY[name]


def get_spec(name: str) -> DescriptorSpec:
    """The spec registered under `name`; an unknown name raises ValueError with near names."""
    return get_entry(name).spec


def as_spec(spec: DescriptorSpec | str | None) -> DescriptorSpec | None:
    """A spec itself, or that of a registered name; None stays None. Raises as `get_spec`, TypeError for all else."""
    if spec is None or isinstance(spec, DescriptorSpec):
        return spec
    if isinstance(spec, str):
        return get_spec(spec)
    raise TypeError(f"descriptor is {spec!r}, expected a registered name or a DescriptorSpec")


def registered() -> list[str]:
    """Names of all registered descriptors, sorted."""
    load_plugins()
    return sorted(_REGISTRY)


# The package's own; by name, as plugins are, for that module imports this one.
importlib.import_module("xdesc_jax.features.registered")
