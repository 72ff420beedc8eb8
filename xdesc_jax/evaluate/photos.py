"""The photos of an evaluation: their keypoints, and their rows in each form that is compared.

In: feature files, a translator. Out: rows of a photo as they are, translated or embedded, each computed once.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec, from_stored, get_spec, pack_bits, registered
from xdesc_jax.evaluate.scenes import Scene
from xdesc_jax.features.frames import of_features
from xdesc_jax.features.keypoints import displaced, most_exact
from xdesc_jax.features.store import FeatureStore


class Translates(Protocol):
    """What is asked of a translator; `xdesc_jax.translation.translator.Translator` is one."""

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def specs(self) -> Mapping[str, DescriptorSpec]: ...
    @property
    def space_id(self) -> str | None: ...
    def embed(
        self, x: np.ndarray, source: str, *, packed: bool = False, frames: np.ndarray | None = None,
        positions: np.ndarray | None = None,
    ) -> np.ndarray: ...  # fmt: skip
    def translate(
        self, x: np.ndarray, source: str, target: str, *, packed: bool = False, frames: np.ndarray | None = None,
        positions: np.ndarray | None = None,
    ) -> np.ndarray: ...  # fmt: skip
    def ratio(self, source: str, target: str, *, joint: bool = False) -> float | None: ...
    def gives(self, source: str, target: str) -> bool: ...


class Photo:
    """The valid keypoints of a photo, and their descriptors in each form asked for, computed once."""

    def __init__(
        self,
        xy: np.ndarray,
        stored: Mapping[str, np.ndarray],
        specs: Mapping[str, DescriptorSpec],
        translator: Translates | None,
        where: Mapping[str, str],
        frames: np.ndarray | None = None,
    ):
        self.xy, self.specs = xy, specs
        self._seen = {"frames": frames, "positions": xy}
        self._stored, self._translator, self._where = stored, translator, where
        self._forms: dict[tuple[str, ...], np.ndarray] = {}

    def native(self, name: str) -> np.ndarray:
        spec, rows, where = self.specs[name], self._stored[name], self._where[name]
        return self._once(("native", name), lambda: rows if spec.binary else from_stored(rows, spec, where))

    def embedded(self, source: str) -> np.ndarray:
        translator, rows, packed = self._source(source)
        return self._once(("embedded", source), lambda: translator.embed(rows, source, packed=packed, **self._seen))

    def translated(self, source: str, target: str) -> np.ndarray:
        translator, rows, packed = self._source(source)

        def make() -> np.ndarray:
            out = translator.translate(rows, source, target, packed=packed, **self._seen)
            return pack_bits(out) if self.specs[target].binary else out

        return self._once(("translated", source, target), make)

    def _source(self, name: str) -> tuple[Translates, np.ndarray, bool]:
        if self._translator is None:
            raise ValueError(f"translating {name!r} needs a model")
        rows, spec = self._stored[name], self._translator.specs.get(name, self.specs[name])
        # The translator checks its rows too, but cannot say where they come from.
        self._once(("checked", name), lambda: from_stored(rows, spec, self._where[name]))
        return self._translator, rows, spec.binary

    def _once(self, key: tuple[str, ...], make: Callable[[], np.ndarray]) -> np.ndarray:
        if key not in self._forms:
            self._forms[key] = make()
        return self._forms[key]


class Photos:
    """Photos read from the feature files; the last two are kept, so a scene's query is read once.

    Args:
        stores: feature file of each descriptor; all hold the same keypoints.
        translator: gives the translated and joint rows.
        specs: of all descriptors that are compared; those of the files where None.
    """

    def __init__(
        self,
        stores: Mapping[str, FeatureStore],
        translator: Translates | None,
        specs: Mapping[str, DescriptorSpec] | None = None,
    ):
        self._stores, self._translator = stores, translator
        self._specs = specs or {descriptor: store.spec for descriptor, store in stores.items()}
        self._read = functools.lru_cache(maxsize=2)(self._read_photo)

    def __getitem__(self, name: str) -> Photo:
        return self._read(name)

    def _read_photo(self, name: str) -> Photo:
        features = {descriptor: store.read(name) for descriptor, store in self._stores.items()}
        (first, reference), *others = features.items()
        valid = reference.valid.copy()
        expected = self._stores[first].path, reference.keypoints
        for other, rows in others:
            check_keypoints(name, self._stores[other].path, rows.keypoints, *expected)
            valid &= rows.valid
        stored = {descriptor: rows.descriptors[valid] for descriptor, rows in features.items()}
        where = {descriptor: f"{store.path}: {name!r}" for descriptor, store in self._stores.items()}
        frames = next((found for rows in features.values() if (found := of_features(rows)) is not None), None)
        frames = None if frames is None else frames[valid]
        xy = most_exact([rows.keypoints for rows in features.values()])
        return Photo(xy[valid], stored, self._specs, self._translator, where, frames)


def check_keypoints(name: str, path: Path, xy: np.ndarray, first: Path, expected: np.ndarray) -> None:
    """Raises ValueError where a photo's keypoints in a file are not those of the first one, but for hloc's rounding."""
    if len(xy) != len(expected) or displaced(xy, expected).any():
        raise ValueError(
            f"{path}: {name!r} has {len(xy)} keypoints that differ from the {len(expected)} of {first}; extract all "
            "descriptors together"
        )


@contextlib.contextmanager
def opened(stores: Mapping[str, Path | str], translator: Translates | None) -> Iterator[dict[str, FeatureStore]]:
    """Opens the feature file of each descriptor; raises ValueError where there is none, or one holds another."""
    if not stores:
        raise ValueError("no feature files to evaluate")
    with contextlib.ExitStack() as stack:
        found = {}
        for name, path in stores.items():
            # A file that does not say what it holds (hloc's) is taken to hold `name`.
            found[name] = stack.enter_context(_open_as(name, path, translator))
        yield found


def spec_by_name(name: str, translator: Translates | None) -> DescriptorSpec | None:
    """What a file called `name` holds, by the model, else by the registry; None where neither knows the name."""
    if translator is not None and name in translator.names:
        return translator.specs[name]
    return get_spec(name) if name in registered() else None


def _open_as(name: str, path: Path | str, translator: Translates | None) -> FeatureStore:
    store = FeatureStore(path, spec_by_name(name, translator))
    if store.spec.name != name:
        store.close()
        raise ValueError(f"{path}: holds {store.spec.name!r}, but {name!r} was asked for")
    return store


def check_photos(scenes: Sequence[Scene], stores: Mapping[str, FeatureStore]) -> None:
    """All photos are in all files, found out before any work."""
    names = [name for scene in scenes for name in scene.photos]
    for store in stores.values():
        missing = [name for name in names if name not in store]
        if missing:
            raise ValueError(
                f"{store.path}: lacks {len(missing)} of {len(names)} photos: {', '.join(missing[:5])} "
                f"(it holds {', '.join(store.names[:5]) or 'none'}, ...)"
            )


def check_specs(stores: Mapping[str, FeatureStore], translator: Translates | None) -> None:
    """All files hold rows of the width and kind that the translator takes and gives."""
    for name, store in stores.items():
        expected = translator.specs.get(name) if translator is not None else None
        if expected is not None and (store.spec.width, store.spec.kind) != (expected.width, expected.kind):
            raise ValueError(
                f"{store.path}: {name!r} is {store.spec.kind} of width {store.spec.width}, "
                f"but the translator's is {expected.kind} of width {expected.width}"
            )
