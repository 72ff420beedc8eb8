"""Feature files: the only reader and writer of the .h5 format (hloc layout, one file per descriptor).

In: keypoints and descriptors of each photo. Out: `<descriptor>.h5`, which hloc can read: one group per photo name with
`keypoints` [N, 2] float32 and `descriptors` [D, N], and what hloc ignores: `scales`, `oris` or `affine`, `valid`,
`scores`, and attributes `spec`, `origin`, `version`. Coordinates begin at the centre of the first pixel. What arrays
declare is compared, with each other and with what is stored, before any is read. Imports numpy and h5py alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xdesc_jax.descriptors import UNIT_TOLERANCE, DescriptorSpec, as_spec, get_spec, in_stored_dtype, row_norms
from xdesc_jax.features.frames import of_others
from xdesc_jax.files.hdf5 import DAMAGE, Writer, array, content, dataset, groups_with, open_file
from xdesc_jax.files.whole import parse_json

if TYPE_CHECKING:
    import h5py

VERSION, ORIGIN = 1, "center"
SPEC_KEYS = ("spec_json", "spec")  # attributes that say what a file holds, the first before the second
# What a photo may have besides keypoints and descriptors: the shape behind its number of rows, and the dtype.
_OPTIONAL: dict[str, tuple[tuple[int, ...], type]] = {
    "scales": ((), np.float32), "oris": ((), np.float32), "affine": ((2, 2), np.float32), "valid": ((), np.bool_),
    "real": ((), np.bool_), "scores": ((), np.float32),
}  # fmt: skip
FRAME_FIELDS = ("scales", "oris", "affine")
Given = DescriptorSpec | str | None
NAME_IT = "name it by --descriptor"


@dataclasses.dataclass(frozen=True)
class ImageFeatures:
    """The features of one photo; all arrays have the same N rows.

    Attributes:
        keypoints: [N, 2] float32, x right and y down in px, origin at the first pixel's centre.
        descriptors: [N, stored_width] in the stored form of the file's spec; rows not valid are zero.
        valid: [N] bool; False where no descriptor could be computed.
        image_size: (width, height) in px.
        scales: [N] float32, sigma in px (COLMAP's scale, half of OpenCV's size), or None.
        oris: [N] float32, radians from x towards y, or None.
        affine: [N, 2, 2] float32 shape instead of scale and orientation, or None.
        real: [N] bool, rows that were extracted, in a file of translated rows (`xdesc map update`), or None.
        scores: [N] float32, the detector's, larger is better, or None.
    """

    keypoints: np.ndarray
    descriptors: np.ndarray
    valid: np.ndarray
    image_size: tuple[int, int]
    scales: np.ndarray | None = None
    oris: np.ndarray | None = None
    affine: np.ndarray | None = None
    real: np.ndarray | None = None
    scores: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.keypoints)

    def usable_rows(self) -> np.ndarray:
        """The descriptors, in which rows that are not valid are zero."""
        return np.where(self.valid[:, None], self.descriptors, np.zeros((), self.descriptors.dtype))

    def only_valid(self) -> ImageFeatures:
        """The features of the valid rows alone, in their order; their indices are no longer those of the file."""
        arrays = {name: getattr(self, name) for name in ("keypoints", "descriptors", *_OPTIONAL)}
        return dataclasses.replace(self, **{name: x[self.valid] for name, x in arrays.items() if x is not None})


class FeatureStore:
    """Reads a feature file; use as a context manager.

    Args:
        path: the .h5 file, ours or hloc's.
        spec: what the descriptors are, or a registered name, for files that do not say; must agree where they do.
        fallback: the same, but of no effect where the file says something else.
        hint: what to do where neither the file nor the caller says it, for the error.

    Raises:
        FileNotFoundError: no such file.
        TypeError: `spec` or `fallback` is neither a name nor a spec.
        ValueError: not an HDF5 file, a damaged one, a newer version, or a spec that is missing, malformed or disagrees.
    """

    def __init__(self, path: Path | str, spec: Given = None, *, fallback: Given = None, hint: str = NAME_IT):
        given, otherwise = as_spec(spec), as_spec(fallback)
        self.path, self._hint = Path(path), hint
        self._file = open_file(self.path, "feature file")
        try:
            try:
                self.attributes: dict[str, Any] = dict(self._file.attrs)
                self.names = groups_with(self._file, "keypoints")
            except DAMAGE as error:
                raise ValueError(f"{path}: is damaged, its photos cannot be listed ({error})") from error
            self._known = frozenset(self.names)
            found = self.attributes.get("version", VERSION)
            try:
                version = int(found)
            except (TypeError, ValueError, OverflowError) as error:
                raise ValueError(f"{path}: format version is {found!r}, expected a number") from error
            if version > VERSION:
                raise ValueError(f"{path}: format version {version}, this package reads up to {VERSION}")
            origin = str(self.attributes.get("origin", ORIGIN))
            if origin != ORIGIN:
                raise ValueError(f"{path}: keypoint origin is {origin!r}, expected {ORIGIN!r}")
            self.spec = self._resolve_spec(given, otherwise)
        except BaseException:
            self._file.close()
            raise

    @property
    def says_spec(self) -> bool:
        """Whether the file says what it holds."""
        return any(key in self.attributes for key in SPEC_KEYS)

    def _resolve_spec(self, given: DescriptorSpec | None, fallback: DescriptorSpec | None) -> DescriptorSpec:
        key = next((k for k in SPEC_KEYS if k in self.attributes), None)
        if key is None:
            if (known := given or fallback) is None:
                self.require_photos()
                raise ValueError(f"{self.path}: does not say which descriptor it holds; {self._hint}")
            return known
        value = self.attributes[key]
        try:
            of_caller = next((s for s in (given, fallback) if s is not None and s.name == str(value)), None)
            found = _parse_spec(value) if key == "spec_json" else of_caller or get_spec(str(value))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.path}: attribute {key!r} is {value!r}, expected a descriptor ({error})") from error
        if given is not None and given.name != found.name:
            raise ValueError(f"{self.path}: holds {found.name!r}, but {given.name!r} was asked for")
        return found

    def __enter__(self) -> FeatureStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def require_photos(self) -> None:
        """Raises ValueError where the file holds no photo, and says what it is."""
        if not self.names:
            with self._located("its content"):
                what = "a feature file without photos" if self.says_spec else content(self._file)
            raise ValueError(
                f"{self.path}: holds no photo: it is {what}, expected photos with keypoints and descriptors"
            )

    def count(self, name: str) -> int:
        """Number of keypoints of one photo."""
        with self.reading(name) as group:
            return self._count(name, group)

    def keypoints(self, name: str) -> np.ndarray:
        """Keypoints of one photo alone, [N, 2] float32."""
        with self.reading(name) as group:
            self._count(name, group)
            with np.errstate(over="ignore"):
                found = array(group, "keypoints", np.float32).reshape(-1, 2)
        if not (fine := np.isfinite(found).all(axis=1)).all():
            row = int(np.argmin(fine))
            raise ValueError(f"{self.path}: {name!r}: keypoint {row} is at {found[row].tolist()}, expected finite px")
        return found

    def frames(self, name: str) -> dict[str, np.ndarray]:
        """What a photo's keypoints have besides positions: `scales` and `oris` [N], or `affine` [N, 2, 2]."""
        with self.reading(name) as group:
            count = self._count(name, group)
            return {key: values for key, values in self._optional(group, count).items() if key in FRAME_FIELDS}

    def image_size(self, name: str) -> tuple[int, int]:
        """(width, height) of a photo in px; (0, 0) where the file does not say."""
        with self.reading(name) as group:
            if "image_size" not in group:
                return 0, 0
            values = array(group, "image_size", np.float64, (2,))
        width, height = values.tolist()
        if not all(0 <= v <= np.iinfo(np.int32).max and v == int(v) for v in (width, height)):
            raise ValueError(f"{self.path}: {name!r}: image_size is {[width, height]}, expected whole numbers of px")
        return int(width), int(height)

    def all_real(self, name: str) -> bool:
        """Whether all rows of a photo were extracted, in a file of translated ones (see `ImageFeatures.real`)."""
        with self.reading(name) as group:
            return "real" in group and bool(array(group, "real", shape=(self._count(name, group),)).all())

    def invalid(self, name: str) -> int:
        """Number of a photo's rows that are marked as not valid."""
        with self.reading(name) as group:
            return int((~array(group, "valid", bool, (self._count(name, group),))).sum()) if "valid" in group else 0

    def stored_form(self, name: str) -> str:
        """Dtype and width of a photo's descriptors as they lie in the file, 'none' where there are none."""
        with self.reading(name) as group:
            if "descriptors" not in group:
                return "none"
            found = dataset(group, "descriptors", (None, None))
            return f"{found.dtype} x {found.shape[0]}"

    def _count(self, name: str, group: h5py.Group) -> int:
        shape = dataset(group, "keypoints").shape
        none = len(shape) > 0 and shape[0] == 0  # other writers store no keypoints as [0]
        if not none and (len(shape) != 2 or shape[1] != 2):
            raise _Disagreement(f"{self.path}: {name!r}: keypoints have shape {shape}, expected [N, 2]")
        return int(shape[0])

    def _optional(self, group: h5py.Group, count: int) -> dict[str, np.ndarray]:
        found = {
            key: array(group, key, dtype, (count, *rest)) for key, (rest, dtype) in _OPTIONAL.items() if key in group
        }
        return found if "origin" in self.attributes else of_others(found)

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[h5py.Group]:
        """Yields the group of a photo; what goes wrong while it is read is told with the file and the photo."""
        if name not in self:
            raise KeyError(f"{self.path}: no photo {name!r} (first of {len(self)}: {self.names[:5]})")
        with self._located(f"features of {name!r}"):
            yield self._file[name]

    @contextlib.contextmanager
    def _located(self, what: str) -> Iterator[None]:
        try:
            yield
        except _Disagreement:
            raise
        except (*DAMAGE, ValueError, TypeError) as error:
            raise ValueError(f"{self.path}: {what} cannot be read ({error})") from error

    def read(self, name: str) -> ImageFeatures:
        """The features of one photo; keypoints become float32 and descriptors of their stored dtype, whatever the
        file holds (see `descriptors.in_stored_dtype`).

        Raises:
            KeyError: no such photo.
            ValueError: arrays disagree in length or width, rows are of another descriptor, or the file is damaged.
        """
        where = f"{self.path}: {name!r}"
        with self.reading(name) as group:
            count = self._count(name, group)
            found = dataset(group, "descriptors")
            # Shapes before rows: a few bytes can declare more than the memory holds.
            _check_rows(found.shape[::-1], found.dtype, count, self.spec, where)
            for key, (rest, _) in _OPTIONAL.items():
                if key in group:
                    _check_field(key, dataset(group, key).shape, (count, *rest), where)
            descriptors = np.ascontiguousarray(array(group, "descriptors").T)
            optional: dict[str, Any] = self._optional(group, count)
        size, keypoints = self.image_size(name), self.keypoints(name)
        if descriptors.dtype == np.float16:
            descriptors = descriptors.astype(np.float32)
        descriptors = in_stored_dtype(descriptors, self.spec, where)
        optional.setdefault("valid", np.asarray(descriptors.any(axis=1)))
        return ImageFeatures(keypoints, descriptors, image_size=size, **optional)

    def __iter__(self) -> Iterator[tuple[str, ImageFeatures]]:
        for name in self.names:
            yield name, self.read(name)


def infer_spec(path: Path | str, name: str) -> DescriptorSpec:
    """What a file holds: the spec in it, else one called `name` of its width, unit length where its rows are.

    Raises:
        ValueError: the file says another name, or has no float row to infer a spec from.
    """
    with FeatureStore(path, DescriptorSpec(name, 1)) as store:
        store.require_photos()
        if "spec" in store.attributes or "spec_json" in store.attributes:
            return store.spec
        for image in store.names:
            with store.reading(image) as group:
                rows = array(group, "descriptors", shape=(None, None)).T
            if not len(rows):
                continue
            if rows.dtype == np.uint8:
                raise ValueError(f"{path}: uint8 descriptors {name!r} need a registered spec")
            norms = row_norms(rows.astype(np.float32))
            unit = (np.abs(norms - 1) <= UNIT_TOLERANCE) | (norms == 0)
            return DescriptorSpec(name, rows.shape[1], normalized=bool(unit.all()))
    raise ValueError(f"{path}: no photo has a keypoint, the width of {name!r} cannot be told")


def _parse_spec(text: Any) -> DescriptorSpec:
    fields = parse_json(text)
    if not isinstance(fields, dict):
        raise TypeError("not a JSON object")
    spec = DescriptorSpec.from_dict(fields)
    np.dtype(spec.stored_dtype)  # raises where numpy knows no such dtype
    return spec


def _is_photo(item: Any) -> bool:
    """Whether an item of a file is a photo's group, and not a folder of photos that is called `keypoints`."""
    import h5py

    return isinstance(item, h5py.Group) and isinstance(item.get("keypoints"), h5py.Dataset)


class _Disagreement(ValueError):
    """Arrays that do not fit each other; the message names file and photo."""


def check(features: ImageFeatures, spec: DescriptorSpec, where: str) -> None:
    """Raises ValueError where the arrays of one photo disagree with each other or with the spec."""
    n = len(features.keypoints)
    _check_rows(features.descriptors.shape, features.descriptors.dtype, n, spec, where, ours=True)
    for field, (rest, _) in _OPTIONAL.items():
        value = getattr(features, field)
        if value is not None:
            _check_field(field, value.shape, (n, *rest), where)


def _check_rows(
    shape: tuple[int, ...], dtype: np.dtype, n: int, spec: DescriptorSpec, where: str, ours: bool = False
) -> None:
    if shape != (n, spec.stored_width):
        raise _Disagreement(
            f"{where}: descriptors have shape {shape}, expected ({n}, {spec.stored_width}) for {n} keypoints of "
            f"{spec.name!r}"
        )
    scaled = not spec.binary and spec.storage_scale != 1  # others keep either bytes or floats of these
    if (dtype == np.uint8) != (spec.stored_dtype == np.uint8) and (ours or not scaled):
        raise _Disagreement(
            f"{where}: descriptors have dtype {dtype}, but {spec.name!r} is stored as {spec.stored_dtype}"
        )


def _check_field(field: str, shape: tuple[int, ...], expected: tuple[int, ...], where: str) -> None:
    if shape != expected:
        raise _Disagreement(f"{where}: {field} has shape {shape}, expected {expected}")


class StoreWriter:
    """Writes a feature file; use as a context manager. The file appears when the block ends without error.

    Args:
        path: the .h5 file to make; an existing one is replaced at the end.
        spec: what the descriptors are.
        attributes: further file attributes (detector, configuration hash, ...).
    """

    def __init__(self, path: Path | str, spec: DescriptorSpec, attributes: dict[str, Any] | None = None):
        self.path = Path(path)
        self.spec = spec
        self._writer = Writer(path)
        self._attributes = attributes or {}

    def __enter__(self) -> StoreWriter:
        self._writer.__enter__()
        attributes = self._writer.file.attrs
        attributes.update(self._attributes)
        attributes.update(
            spec=self.spec.name, spec_json=json.dumps(self.spec.to_dict()), origin=ORIGIN, version=VERSION
        )
        if self.spec.binary:
            attributes["bits"] = self.spec.width
        return self

    def __exit__(self, *error: Any) -> None:
        self._writer.__exit__(*error)

    def write(self, name: str, features: ImageFeatures) -> None:
        """Adds one photo.

        Raises:
            ValueError: its arrays disagree, or the name was written before.
            OSError: it cannot be written, as where the disk is full.
        """
        check(features, self.spec, f"{self.path}: {name!r}")
        file = self._writer.file
        if _is_photo(file.get(name)):
            raise ValueError(f"{self.path}: photo {name!r} written twice")
        group = file.require_group(name)
        descriptors = np.where(features.valid[:, None], features.descriptors, 0)
        group["descriptors"] = np.ascontiguousarray(descriptors.T.astype(self.spec.stored_dtype))
        group["image_size"] = np.asarray(features.image_size, np.int32)
        for field, (_, dtype) in _OPTIONAL.items():
            value = getattr(features, field)
            if value is not None:
                group[field] = value.astype(dtype)
        group["keypoints"] = features.keypoints.astype(np.float32)
        self._writer.check()
