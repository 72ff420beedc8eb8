"""Feature files: the only reader and writer of the .h5 format (hloc layout, one file per descriptor).

In: keypoints and descriptors of each photo. Out: `<descriptor>.h5`, which hloc can read: one group per
photo name with `keypoints` [N, 2] float32 and `descriptors` [D, N], and what hloc ignores: `scales`,
`oris` or `affine`, `valid`, and file attributes `spec`, `origin`, `version`. Coordinates have their origin
at the centre of the first pixel. Imports numpy and h5py alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xdesc_jax.descriptors import UNIT_TOLERANCE, DescriptorSpec, get_spec
from xdesc_jax.files.whole import atomic

if TYPE_CHECKING:
    import h5py

VERSION = 1
ORIGIN = "center"
DAMAGE = (OSError, KeyError, RuntimeError)  # what h5py raises where a file's inner structure is broken


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
    """

    keypoints: np.ndarray
    descriptors: np.ndarray
    valid: np.ndarray
    image_size: tuple[int, int]
    scales: np.ndarray | None = None
    oris: np.ndarray | None = None
    affine: np.ndarray | None = None
    real: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.keypoints)

    def usable_rows(self) -> np.ndarray:
        """The descriptors, in which rows that are not valid are zero."""
        return np.where(self.valid[:, None], self.descriptors, np.zeros((), self.descriptors.dtype))


def found_hash(path: Path | str) -> str | None:
    """The configuration hash in an .h5 file's attributes; None where there is no such file or attribute."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            return file.attrs.get("config_hash")
    except DAMAGE:
        return None


class FeatureStore:
    """Reads a feature file; use as a context manager.

    Args:
        path: the .h5 file, ours or hloc's.
        spec: what the descriptors are, for files that do not say (hloc's); must agree where they do.
        fallback: the same, but of no effect where the file says something else.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not an HDF5 file, a damaged one, a newer version, or a spec that is missing, malformed
            or disagrees.
    """

    def __init__(self, path: Path | str, spec: DescriptorSpec | None = None, *, fallback: DescriptorSpec | None = None):
        import h5py

        self.path = Path(path)
        if not self.path.exists():
            raise FileNotFoundError(f"{path}: no such feature file")
        try:
            self._file = h5py.File(self.path, "r")
        except OSError as error:
            raise ValueError(f"{path}: not a readable HDF5 file, or cut short ({error})") from error
        try:
            try:
                self.attributes: dict[str, Any] = dict(self._file.attrs)
                self.names = _image_names(self._file)
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
            self.spec = self._resolve_spec(spec, fallback)
        except BaseException:
            self._file.close()
            raise

    @property
    def says_spec(self) -> bool:
        """Whether the file says what it holds."""
        return "spec_json" in self.attributes or "spec" in self.attributes

    def _resolve_spec(self, given: DescriptorSpec | None, fallback: DescriptorSpec | None) -> DescriptorSpec:
        key = next((k for k in ("spec_json", "spec") if k in self.attributes), None)
        if key is None:
            if (known := given or fallback) is None:
                raise ValueError(f"{self.path}: does not say which descriptor it holds; name it by --descriptor")
            return known
        value = self.attributes[key]
        try:
            found = _parse_spec(value) if key == "spec_json" else get_spec(str(value))
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

    def count(self, name: str) -> int:
        """Number of keypoints of one photo."""
        with self.reading(name) as group:
            shape = group["keypoints"].shape
        self._check_keypoints(name, shape)
        return int(shape[0])

    def keypoints(self, name: str) -> np.ndarray:
        """Keypoints of one photo alone, [N, 2] float32."""
        with self.reading(name) as group:
            found = np.asarray(group["keypoints"], np.float32)
        self._check_keypoints(name, found.shape)
        return found.reshape(-1, 2)

    def all_real(self, name: str) -> bool:
        """Whether all rows of a photo were extracted, in a file of translated ones (see `ImageFeatures.real`)."""
        with self.reading(name) as group:
            return "real" in group and bool(np.all(group["real"]))

    def _check_keypoints(self, name: str, shape: tuple[int, ...]) -> None:
        none = len(shape) > 0 and shape[0] == 0  # other writers store no keypoints as [0]
        if not none and (len(shape) != 2 or shape[1] != 2):
            raise ValueError(f"{self.path}: {name!r}: keypoints have shape {shape}, expected [N, 2]")

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[h5py.Group]:
        """Yields the group of a photo; what goes wrong while it is read is told with the file and the photo."""
        if name not in self:
            raise KeyError(f"{self.path}: no photo {name!r} (first of {len(self)}: {self.names[:5]})")
        try:
            yield self._file[name]
        except (*DAMAGE, ValueError, TypeError) as error:
            raise ValueError(f"{self.path}: features of {name!r} cannot be read ({error})") from error

    def read(self, name: str) -> ImageFeatures:
        """The features of one photo; keypoints become float32 whatever the file holds.

        Raises:
            KeyError: no such photo.
            ValueError: arrays disagree in length or width, or the file is damaged.
        """
        keypoints = self.keypoints(name)
        with self.reading(name) as group:
            descriptors = np.ascontiguousarray(np.asarray(group["descriptors"]).T)
            optional = {k: np.asarray(group[k], np.float32) for k in ("scales", "oris", "affine") if k in group}
            size = tuple(int(v) for v in group["image_size"]) if "image_size" in group else (0, 0)
            if "valid" in group:
                valid = np.asarray(group["valid"], bool)
            else:
                valid = np.asarray(descriptors.any(axis=1))
            if "real" in group:
                optional["real"] = np.asarray(group["real"], bool)
        if descriptors.dtype == np.float16:
            descriptors = descriptors.astype(np.float32)
        features = ImageFeatures(keypoints, descriptors, valid, size, **optional)  # type: ignore[arg-type]
        check(features, self.spec, f"{self.path}: {name!r}")
        return features

    def __iter__(self) -> Iterator[tuple[str, ImageFeatures]]:
        for name in self.names:
            yield name, self.read(name)


def infer_spec(path: Path | str, name: str) -> DescriptorSpec:
    """What a file holds: the spec in it, else one called `name` of its width, unit length where its rows are.

    Raises:
        ValueError: the file says another name, or has no float row to infer a spec from.
    """
    with FeatureStore(path, DescriptorSpec(name, 1)) as store:
        if "spec" in store.attributes or "spec_json" in store.attributes:
            return store.spec
        for image in store.names:
            with store.reading(image) as group:
                rows = np.asarray(group["descriptors"]).T
            if rows.ndim != 2:
                raise ValueError(f"{path}: {image!r}: descriptors have shape {rows.shape}, expected [D, N]")
            if not len(rows):
                continue
            if rows.dtype == np.uint8:
                raise ValueError(f"{path}: uint8 descriptors {name!r} need a registered spec")
            norms = np.linalg.norm(rows.astype(np.float32), axis=1)
            unit = (np.abs(norms - 1) <= UNIT_TOLERANCE) | (norms == 0)
            return DescriptorSpec(name, rows.shape[1], normalized=bool(unit.all()))
    raise ValueError(f"{path}: no photo has a keypoint, the width of {name!r} cannot be told")


def _parse_spec(text: Any) -> DescriptorSpec:
    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise TypeError("not a JSON object")
    spec = DescriptorSpec.from_dict(fields)
    np.dtype(spec.stored_dtype)  # raises where numpy knows no such dtype
    return spec


def _is_photo(item: Any) -> bool:
    """Whether an item of a file is a photo's group, and not a folder of photos that is called `keypoints`."""
    import h5py

    return isinstance(item, h5py.Group) and isinstance(item.get("keypoints"), h5py.Dataset)


def _image_names(file: h5py.File) -> list[str]:
    names: list[str] = []

    def visit(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if _is_photo(item):
            names.append(name)

    file.visititems(visit)
    return sorted(names)


def check(features: ImageFeatures, spec: DescriptorSpec, where: str) -> None:
    """Raises ValueError where the arrays of one photo disagree with each other or with the spec."""
    n = len(features.keypoints)
    if features.descriptors.ndim != 2 or features.descriptors.shape != (n, spec.stored_width):
        raise ValueError(
            f"{where}: descriptors have shape {features.descriptors.shape}, "
            f"expected ({n}, {spec.stored_width}) for {n} keypoints of {spec.name!r}"
        )
    if (features.descriptors.dtype == np.uint8) != (spec.stored_dtype == np.uint8):
        raise ValueError(
            f"{where}: descriptors have dtype {features.descriptors.dtype}, "
            f"but {spec.name!r} is stored as {spec.stored_dtype}"
        )
    for field, shape in (("valid", (n,)), ("scales", (n,)), ("oris", (n,)), ("affine", (n, 2, 2)), ("real", (n,))):
        value = getattr(features, field)
        if value is not None and value.shape != shape:
            raise ValueError(f"{where}: {field} has shape {value.shape}, expected {shape}")


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
        self._attributes = attributes or {}

    def __enter__(self) -> StoreWriter:
        import h5py

        self._atomic = atomic(self.path)
        self._file = h5py.File(self._atomic.__enter__(), "w")
        self._file.attrs.update(self._attributes)
        self._file.attrs.update(
            spec=self.spec.name, spec_json=json.dumps(self.spec.to_dict()), origin=ORIGIN, version=VERSION
        )
        if self.spec.binary:
            self._file.attrs["bits"] = self.spec.width
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.close()
        self._atomic.__exit__(*error)

    def write(self, name: str, features: ImageFeatures) -> None:
        """Adds one photo; raises ValueError where its arrays disagree or the name was written before."""
        check(features, self.spec, f"{self.path}: {name!r}")
        if _is_photo(self._file.get(name)):
            raise ValueError(f"{self.path}: photo {name!r} written twice")
        group = self._file.require_group(name)
        descriptors = np.where(features.valid[:, None], features.descriptors, 0)
        group["descriptors"] = np.ascontiguousarray(descriptors.T.astype(self.spec.stored_dtype))
        group["valid"] = features.valid
        group["image_size"] = np.asarray(features.image_size, np.int32)
        for field in ("scales", "oris", "affine"):
            value = getattr(features, field)
            if value is not None:
                group[field] = value.astype(np.float32)
        if features.real is not None:
            group["real"] = features.real
        group["keypoints"] = features.keypoints.astype(np.float32)
