"""Translating descriptors with a trained model, in numpy.

In: descriptor rows, stored or canonical, and a model file. Out: rows of another descriptor, or embeddings in
the model's joint space. Imports numpy alone; any number of rows passes in blocks through buffers that are
made once, so memory stays at input, output and some tens of MB.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from xdesc_jax import pretrained
from xdesc_jax.descriptors import EMBEDDING_PREFIX, DescriptorSpec, canonical, from_stored, stored, unit_rows
from xdesc_jax.translation import bundle as model_file
from xdesc_jax.translation import copies
from xdesc_jax.translation.bundle import Bundle, Layers
from xdesc_jax.translation.deviation import Deviation, RowStatistics
from xdesc_jax.translation.ratios import key

EMBEDDING = "embedding"
# 2048 x 1024 floats are 8 MB: large enough for full matrix-product speed, and the passes for bias and ReLU
# still find the block in the last-level cache.
BLOCK_ROWS = 2048
PARITY_TOLERANCE = 1e-5


class ZeroRowsWarning(UserWarning):
    """Zero descriptors (dark or flat patches) were given; their translations are zero rows."""


class DeviationWarning(UserWarning):
    """Rows do not look like those the model was trained on, as with another implementation or scale."""


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
        """Reads a model that ships with the package; an unknown name raises FileNotFoundError with near ones."""
        return cls.load(pretrained.path(name, "translator"))

    def embed(self, x: np.ndarray, source: str, *, packed: bool = False) -> np.ndarray:
        """Maps descriptors into the joint space.

        Args:
            x: [N, D] rows of `source`, stored or canonical; bool [N, bits] for binary ones.
            source: which descriptor they are.
            packed: binary rows are packed, uint8 [N, ceil(bits/8)], little-endian bits.

        Returns:
            float32 [N, E], unit rows; zero rows where the input is zero.

        Raises:
            ValueError: unknown source, no joint space, or rows that do not fit the spec (see `canonical`).

        Warns:
            ZeroRowsWarning, DeviationWarning.
        """
        return self.translate(x, source, EMBEDDING, packed=packed)

    def translate(
        self, x: np.ndarray, source: str, target: str, *, packed: bool = False, storage: bool = False
    ) -> np.ndarray:
        """Translates descriptors.

        Args:
            x: [N, D] rows of `source`, stored or canonical; bool [N, bits] for binary ones.
            source: which descriptor they are; 'embedding' or 'embedding:<space id>' for embeddings.
            target: what to make of them; 'embedding' for the joint space.
            packed: binary rows are packed, uint8 [N, ceil(bits/8)], little-endian bits.
            storage: give the stored form, not the canonical one.

        Returns:
            Canonical rows of `target`, float32 [N, D] or bool [N, bits]; with `storage` [N, stored_width] in
            its stored dtype. Zero rows where the input is zero.

        Raises:
            ValueError: unknown names, a space or pair the model does not have, or rows that do not fit.

        Warns:
            ZeroRowsWarning, DeviationWarning.
        """
        with self.stream(source, target, packed=packed, storage=storage) as translate:
            return translate(x)

    def translate_blocks(
        self,
        blocks: Iterable[np.ndarray],
        source: str,
        target: str,
        *,
        packed: bool = False,
        storage: bool = False,
    ) -> Iterator[np.ndarray]:
        """`translate` for a sequence of blocks; warns once, behind the last."""
        with self.stream(source, target, packed=packed, storage=storage) as translate:
            for block in blocks:
                yield translate(block)

    def stream(
        self, source: str, target: str, *, packed: bool = False, storage: bool = False, kept: bool = False
    ) -> Stream:
        """A translation of many blocks; use as a context manager (see `Stream`, for `kept` `canonical`)."""
        networks = [self.bundle.networks[name] for name in self.route(source, target)]
        statistics = self.bundle.statistics.get(source)
        return Stream(self.spec(source), self.spec(target), networks, statistics, packed, storage, kept)

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
            named = [f"{name}->{target}" for name in self.names if name != target]
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
            difference = float(np.abs(stream.probabilities(x) - rows).max(initial=0) / scale)
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
            near = difflib.get_close_matches(name, self.names + joint, n=3, cutoff=0.4)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
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
        if self.bundle.kind == "pair":
            route = [f"pair/{source}/{target}"]
        else:
            route = [] if start.is_embedding else [f"encoder/{source}"]
            route += [] if end.is_embedding else [f"decoder/{target}"]
        for name in route:
            if name not in self.bundle.networks:
                raise ValueError(
                    f"{self._where}: no network {name!r}, it has {', '.join(sorted(self.bundle.networks))}"
                )
        return route


class Stream:
    """Translates blocks of any size from one source to one target, and warns once, where the `with` ends.

    Attributes:
        target: spec of the rows it gives.
        rows: rows seen.
        zero_rows: rows among them that are zero.
    """

    def __init__(
        self,
        source: DescriptorSpec,
        target: DescriptorSpec,
        networks: list[Layers],
        statistics: RowStatistics | None,
        packed: bool,
        storage: bool,
        kept: bool = False,
    ):
        self.source, self.target = source, target
        self.rows = self.zero_rows = 0
        self._networks = [_Network(layers) for layers in networks]
        self._deviation = None
        if statistics is not None:
            self._deviation = Deviation(statistics, scaled=not (source.normalized or source.binary))
        self._form, self._storage = {"packed": packed, "kept": kept}, storage

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            for category, message in self.findings():
                warnings.warn(message, category, stacklevel=3)

    def findings(self) -> list[tuple[type[Warning], str]]:
        """What the rows seen so far give reason to warn of."""
        found: list[tuple[type[Warning], str]] = []
        if self.zero_rows:
            text = f"{self.zero_rows} of {self.rows} rows of {self.source.name!r} are zero and stay zero"
            found.append((ZeroRowsWarning, text))
        deviation = self._deviation.message() if self._deviation is not None else None
        if deviation is not None:
            text = f"rows do not look like the {self.source.name!r} of the training: {deviation}"
            found.append((DeviationWarning, text))
        return found

    def __call__(self, x: np.ndarray, out: np.ndarray | None = None, where: str = "", first_row: int = 0) -> np.ndarray:
        """Translates rows.

        Args:
            x: [N, D] rows of the source; N may be 0. May be a memory-mapped file.
            out: [N, W] array to fill, of the dtype that the stream gives.
            where: file or image, for error messages.
            first_row: what error messages call row 0.

        Returns:
            [N, W] rows of the target, `out` where given.
        """
        n = len(x) if np.ndim(x) == 2 else 0
        if out is None:
            spec = self.target
            width, dtype = (spec.stored_width, spec.stored_dtype) if self._storage else (spec.width, _dtype(spec))
            out = np.empty((n, width), dtype)
        for start in range(0, max(n, 1), BLOCK_ROWS):
            block = x if n == 0 else x[start : start + BLOCK_ROWS]
            rows = canonical(block, self.source, where=where, first_row=first_row + start, **self._form)
            y = self._block(rows)
            out[start : start + len(rows)] = stored(y, self.target) if self._storage else y
        return out

    def observe(self, x: np.ndarray, where: str = "") -> None:
        """Counts and compares rows without translating them: those that an earlier run has translated."""
        for start in range(0, len(x), BLOCK_ROWS):
            block = x[start : start + BLOCK_ROWS]
            self._count(canonical(block, self.source, where=where, first_row=start, **self._form))

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Canonical rows -> float32 [N, D], the probability of each bit where the target is binary."""
        y = self._forward(x.astype(np.float32))
        if self.target.binary:
            return _sigmoid(y)
        return _finish(y, self.target)

    def _block(self, rows: np.ndarray) -> np.ndarray:
        x, zero = self._count(rows)
        y = _finish(self._forward(x), self.target)
        if zero.any():
            y[zero] = 0
        return y

    def _count(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows as float32 and which of them are zero, once they are counted."""
        x = rows.astype(np.float32, copy=False)
        zero = np.asarray(~x.any(axis=1))
        zeros = int(zero.sum())
        self.rows += len(x)
        self.zero_rows += zeros
        if self._deviation is not None:
            self._deviation.update(x[~zero] if zeros else x)
        return x, zero

    def _forward(self, x: np.ndarray) -> np.ndarray:
        """Raw output of the last network; the embedding between two networks has unit length."""
        for i, network in enumerate(self._networks):
            x = network(unit_rows(x) if i > 0 else x)
        return x


class _Network:
    """An MLP with ReLU between its layers and buffers for one block of rows."""

    def __init__(self, layers: Layers):
        self._layers = layers
        self._buffers: list[np.ndarray] = [np.empty((0, len(bias)), np.float32) for _, bias in layers]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """float32 [n, in] -> float32 [n, out], a buffer that the next call overwrites."""
        if len(x) > len(self._buffers[0]):
            self._buffers = [np.empty((len(x), b.shape[1]), np.float32) for b in self._buffers]
        last = len(self._layers) - 1
        for i, (kernel, bias) in enumerate(self._layers):
            y = self._buffers[i][: len(x)]
            np.matmul(x, kernel, out=y)
            y += bias
            if i < last:
                np.maximum(y, 0, out=y)
            x = y
        return x


def _dtype(spec: DescriptorSpec) -> np.dtype:
    return np.dtype(np.bool_ if spec.binary else np.float32)


def _finish(y: np.ndarray, spec: DescriptorSpec) -> np.ndarray:
    """A network's raw output -> canonical rows; a bit's probability is over 0.5 where its logit is over 0."""
    if spec.binary:
        return y > 0
    if spec.output == "relu":
        y = np.maximum(y, 0)
    elif spec.output == "sigmoid":
        y = _sigmoid(y)
    return unit_rows(y) if spec.normalized else y


def _sigmoid(y: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * y))  # exp(-y) would overflow
