"""Translating descriptors with a trained model, in numpy.

In: descriptor rows, stored or canonical, and a model file. Out: rows of another descriptor, or embeddings in
the model's joint space (see `stream`). Imports numpy alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from xdesc_jax import pretrained
from xdesc_jax.config import ContextConfig
from xdesc_jax.console.words import did_you_mean
from xdesc_jax.descriptors import EMBEDDING_PREFIX, DescriptorSpec, from_stored
from xdesc_jax.pretrained import hub
from xdesc_jax.translation import bundle as model_file
from xdesc_jax.translation import copies
from xdesc_jax.translation.bundle import Bundle, Layers
from xdesc_jax.translation.ratios import key
from xdesc_jax.translation.stream import Form, Stream, Way

EMBEDDING = "embedding"
PARITY_TOLERANCE = 1e-5


class Translator:
    """A trained translator.

    Attributes:
        bundle: the model as its file holds it.
        names: descriptors it knows.
        specs: their specs, by name.
        space_id: names the joint space; None for pair networks.
        embedding_spec: spec of embeddings, `embedding:<space_id>`; None for pair networks.
    """

    def __init__(self, bundle: Bundle, where: str = "the model"):
        self.bundle = bundle
        self.names = sorted(bundle.specs)
        self.specs = dict(bundle.specs)
        self.space_id = bundle.space_id
        self.embedding_spec = bundle.embedding_spec
        self._where = where

    @classmethod
    def load(cls, path: Path | str) -> Translator:
        """Reads a model file; raises FileNotFoundError or ValueError as `bundle.load`."""
        return cls(model_file.load(path), str(path))

    @classmethod
    def from_pretrained(cls, name: str) -> Translator:
        """Reads a model that ships with the package, or one of the Hugging Face hub.

        Args:
            name: of a shipped model, or 'user/model' (with '@revision' where asked) for the `translator.safetensors`
                of that repository, which is kept in the hub's cache.

        Raises:
            FileNotFoundError: an unknown name, with near ones; or the hub has none, or cannot be reached.
        """
        shipped = pretrained.find(name, "translator")
        return cls.load(shipped or (hub.fetch(name) if hub.is_name(name) else pretrained.path(name, "translator")))

    def embed(
        self, x: np.ndarray, source: str, *, packed: bool = False, frames: np.ndarray | None = None,
        positions: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        """Maps descriptors into the joint space.

        Args:
            x: [N, D] rows of `source`, stored or canonical; bool [N, bits] for binary ones.
            source: which descriptor they are.
            packed: binary rows are packed, uint8 [N, ceil(bits/8)], little-endian bits.
            frames, positions: of their keypoints, see `translate`.

        Returns:
            float32 [N, E], unit rows; zero rows where the input is zero.

        Raises:
            ValueError: unknown source, no joint space, or rows that do not fit the spec (see `canonical`).

        Warns:
            ZeroRowsWarning: rows that are zero.
            DeviationWarning: rows that do not look like those the model was trained on.
        """
        return self.translate(x, source, EMBEDDING, packed=packed, frames=frames, positions=positions)

    def translate(
        self, x: np.ndarray, source: str, target: str, *, packed: bool = False, storage: bool = False,
        frames: np.ndarray | None = None, positions: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        """Translates descriptors.

        Args:
            x: [N, D] rows of `source`, stored or canonical; bool [N, bits] for binary ones.
            source: which descriptor they are; 'embedding' or 'embedding:<space id>' for embeddings.
            target: what to make of them; 'embedding' for the joint space.
            packed: binary rows are packed, uint8 [N, ceil(bits/8)], little-endian bits.
            storage: give the stored form, not the canonical one.
            frames: [N, 2] of the keypoints that the rows stand at, sigma px and orientation in radians from x towards
                y; needed where `takes_frames` says so.
            positions: [N, 2] of these keypoints in their photo, px; needed where `takes_context` says so, and then `x`
                are all rows of one photo, which are each other's neighbours.

        Returns:
            Canonical rows of `target`, float32 [N, D] or bool [N, bits]; with `storage` [N, stored_width] in
            its stored dtype. Zero rows where the input is zero.

        Raises:
            ValueError: unknown names, a space or pair the model does not have, rows that do not fit, or frames or
                positions that are missing or do not fit.

        Warns:
            ZeroRowsWarning: rows that are zero.
            DeviationWarning: rows that do not look like those the model was trained on.
        """
        with self.stream(source, target, packed=packed, storage=storage) as translate:
            return translate(x, frames=frames, positions=positions)

    def translate_blocks(
        self,
        blocks: Iterable[np.ndarray],
        source: str,
        target: str,
        *,
        packed: bool = False,
        storage: bool = False,
    ) -> Iterator[np.ndarray]:
        """`translate` for a sequence of blocks; warns once, behind the last.

        Raises:
            ValueError: as `translate`, and where `takes_context` says that rows of whole photos are needed.
        """
        if self.takes_context(source, target):
            raise ValueError(
                f"{self._where}: its encoder of {source!r} looks at the photo's other rows, and blocks are no photos: "
                "call translate with all rows of a photo and their positions, photo by photo"
            )
        with self.stream(source, target, packed=packed, storage=storage) as translate:
            for block in blocks:
                yield translate(block)

    def stream(
        self, source: str, target: str, *, packed: bool = False, storage: bool = False, kept: bool = False
    ) -> Stream:
        """A translation of many blocks; use as a context manager (see `Stream`, for `kept` `canonical`)."""
        return Stream(self._way(source, target), Form(packed, kept, storage))

    def _way(self, source: str, target: str) -> Way:
        route, bundle = self.route(source, target), self.bundle
        return Way(
            self.spec(source), self.spec(target), [bundle.networks[name] for name in route],
            [bundle.harmonics * bundle.takes_frames(name) for name in route], self._context(route),
            bundle.statistics.get(source), bundle.log2_sigma, bundle.turning,
        )  # fmt: skip

    def gives(self, source: str, target: str) -> bool:
        """Whether the model has the networks for it; small encoders for devices give embeddings alone."""
        try:
            return bool(self.route(source, target))
        except ValueError:
            return False

    def takes_frames(self, source: str, target: str) -> bool:
        """Whether a translation needs the frames of the keypoints; ValueError where the model has none."""
        return self._way(source, target).takes_frames

    def takes_views(self, source: str, target: str) -> bool:
        """Whether other views of a photo give other rows (`networks.views`); ValueError where the model has none."""
        return source != target and self._way(source, target).takes_views

    def takes_context(self, source: str, target: str) -> bool:
        """Whether a translation looks at the photo's other rows, and so needs all of them, and positions.

        Raises:
            ValueError: the model has no such translation.
        """
        return self._context(self.route(source, target)) is not None

    def _context(self, route: Sequence[str]) -> tuple[Layers, ContextConfig] | None:
        """Layers and settings of the context that a route's first network takes; None where it takes none."""
        bundle = self.bundle
        if bundle.context is None or not bundle.takes_context(route[0]):
            return None
        return bundle.contexts[route[0].removeprefix("encoder/")], bundle.context

    def ratio(self, source: str, target: str, *, joint: bool = False) -> float | None:
        """The calibrated ratio threshold for matching rows of `source` with rows of `target`.

        Args:
            source: descriptor that is translated to `target`; equal to it for native rows.
            target: descriptor of the other rows.
            joint: both are embedded instead.

        Returns:
            Largest first-to-second distance ratio on the L2 scale; None where the model has none.

        Raises:
            ValueError: unknown names.
        """
        source, target = self.spec(source).name, self.spec(target).name
        return self.bundle.ratios.get(
            key("joint" if joint else "native" if source == target else "translated", source, target)
        )

    def order(self) -> tuple[str, ...]:
        """Its descriptors from the worst to the best target, by the mean rank-1 of the others' translations.

        Descriptors that the model was not validated with are left out.

        Raises:
            ValueError: the model was not validated.
        """
        validation = self.bundle.provenance.get("validation")
        rank1 = validation.get("rank1") if isinstance(validation, dict) else None
        scores: dict[str, float] = {}
        for target in self.names:
            named = [key("translated", name, target) for name in self.names if name != target]
            found = [rank1.get(key) for key in named] if isinstance(rank1, dict) else []
            others = [value for value in found if isinstance(value, (int, float))]
            if others:
                scores[target] = float(np.mean(others))
        if not scores:
            raise ValueError(
                f"{self._where}: holds no validation, so its descriptors have no order; give one by --order"
            )
        return tuple(sorted(scores, key=scores.__getitem__))

    def self_check(self) -> float:
        """Largest deviation from the float32 flax results kept in the model.

        It is absolute, but for descriptors with values over 1, where it is relative to the largest.

        Raises:
            ValueError: the model holds no sample, or deviates by more than 1e-5.
        """
        sample = self.bundle.sample
        expected = {(name, EMBEDDING): rows for name, rows in sample.embeddings.items()} | sample.translations
        if not expected:
            raise ValueError(f"{self._where}: holds no sample for a self-check")
        worst = 0.0
        for (source, target), rows in expected.items():
            x = from_stored(sample.inputs[source], self.specs[source], self._where)
            stream = self.stream(source, target)
            scale = np.abs(rows).max(initial=1)
            seen = sample.frames.get(source), sample.positions.get(source)
            found = stream.probabilities(x, *seen, where=f"{self._where}: sample")
            difference = float(np.abs(found - rows).max(initial=0) / scale)
            if not difference <= PARITY_TOLERANCE:
                raise ValueError(
                    f"{self._where}: {source} -> {target} is off by {difference:.2g} from the training "
                    f"network, expected at most {PARITY_TOLERANCE:g}"
                )
            worst = max(worst, difference)
        return worst

    def spec(self, name: str) -> DescriptorSpec:
        """Spec of a descriptor or of the joint space; an unknown name raises ValueError with near ones."""
        if name == EMBEDDING or name.startswith(EMBEDDING_PREFIX):
            if self.embedding_spec is None:
                raise ValueError(f"{self._where}: pair networks have no joint space, so nothing embeds with them")
            if name not in (EMBEDDING, self.embedding_spec.name):
                hint = copies.other_space_hint(self.bundle)
                raise ValueError(f"{self._where}: its joint space is {self.embedding_spec.name!r}, not {name!r}{hint}")
            return self.embedding_spec
        if name not in self.specs:
            joint = [EMBEDDING] if self.embedding_spec is not None else []
            hint = did_you_mean(name, self.names + joint)
            raise ValueError(f"{self._where}: no descriptor {name!r}, it has {self.describe()}{hint}")
        return self.specs[name]

    def describe(self) -> str:
        """The descriptors it has, with their widths, in one line."""
        units = {True: "bits", False: "values"}
        return ", ".join(f"{n} ({self.specs[n].width} {units[self.specs[n].binary]})" for n in self.names)

    def route(self, source: str, target: str) -> list[str]:
        """Names of the networks that lead from source to target; ValueError where the model has none."""
        start, end = self.spec(source), self.spec(target)
        if start.is_embedding and end.is_embedding:
            raise ValueError(f"{self._where}: source and target are both the joint space {start.name!r}")
        route = self._networks(start, end)
        if not self._has(route):
            ends = [*self.specs.values(), *([] if self.embedding_spec is None else [self.embedding_spec])]
            made = [EMBEDDING if e.is_embedding else e.name for e in ends if self._has(self._networks(start, e))]
            taken = [EMBEDDING if s.is_embedding else s.name for s in ends if self._has(self._networks(s, end))]
            raise ValueError(
                f"{self._where}: makes no {target!r} of {source!r}: of {source!r} it makes "
                f"{', '.join(made) or 'nothing'}, and {target!r} of {', '.join(taken) or 'nothing'}"
            )
        return route

    def _networks(self, start: DescriptorSpec, end: DescriptorSpec) -> list[str]:
        """Names of the networks that would lead from one to the other; none within the joint space."""
        if self.bundle.kind == "pair":
            return [f"pair/{start.name}/{end.name}"]
        encoder = [] if start.is_embedding else [f"encoder/{start.name}"]
        return encoder + ([] if end.is_embedding else [f"decoder/{end.name}"])

    def _has(self, route: Sequence[str]) -> bool:
        return bool(route) and all(name in self.bundle.networks for name in route)
