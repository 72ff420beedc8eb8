"""The features of one query in memory, translated where they are compared.

In: keypoints and descriptors of a photo, stored or canonical. Out: its rows in each space that a map asks for.
What is not finite is zero, and so never matches.
"""

from __future__ import annotations

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec, canonical, pack_bits
from xdesc_jax.features.frames import of_usable
from xdesc_jax.matching.feature_set import Held
from xdesc_jax.networks.views import View
from xdesc_jax.translation.stream import DeviationWarning
from xdesc_jax.translation.translator import Translator


class QueryFeatures:
    """A query's keypoints and its rows in each space that they were asked for.

    Attributes:
        held: what the rows are.
        keypoints: [N, 2] float64.
        position: [N] int, equal for keypoints at one position.
        usable: [N] bool, has a finite position and a descriptor.
        warnings: what the translated rows give reason to warn of.

    Args:
        held: what the rows are.
        keypoints: [N, 2] px, origin at the centre of the first pixel.
        descriptors: [N, D], stored or canonical; bits packed or bool.
        frames: [N, 2] of the keypoints, sigma px and radians; None where they have none.
        translator: the model; None where nothing is translated.

    Raises:
        ValueError: other numbers of keypoints and rows, or rows that are not what they are said to be.
    """

    def __init__(
        self, held: Held, keypoints: np.ndarray, descriptors: np.ndarray, translator: Translator | None,
        frames: np.ndarray | None = None,
    ):  # fmt: skip
        self.held, self._translator, self._frames = held, translator, frames
        self.keypoints = np.asarray(keypoints, np.float64).reshape(-1, 2)
        rows, n = np.asarray(descriptors), len(self.keypoints)
        if rows.shape == (0,):
            rows = np.zeros((0, held.spec.width), np.bool_ if held.spec.binary else np.float32)
        if rows.ndim != 2 or len(rows) != n:
            raise ValueError(f"descriptors of {n} query keypoints have shape {list(rows.shape)}, expected [{n}, D]")
        finite = np.asarray(np.isfinite(self.keypoints).all(axis=1))
        if np.issubdtype(rows.dtype, np.floating):
            finite &= np.isfinite(rows).all(axis=1)
        rows = np.where(finite[:, None], rows, np.zeros((), rows.dtype))
        packed = held.spec.binary and rows.dtype == np.uint8
        self._canonical = canonical(rows, held.spec, packed=packed, where="the query")
        self.usable = np.asarray(self._canonical.any(axis=1))
        _, self.position = np.unique(np.where(finite[:, None], self.keypoints, -1), axis=0, return_inverse=True)
        self.position = self.position.reshape(-1)
        self._rows: dict[tuple[str, View | None], np.ndarray] = {}
        self.warnings: list[str] = []

    def rows(self, target: DescriptorSpec, view: View | None = None) -> np.ndarray:
        """Rows in `target` as `nearest` takes them; as `view` shows them, where one is given.

        Raises:
            ValueError: rows that do not become `target`, or a view of rows that are the same in all.
        """
        if (target.name, view) not in self._rows:
            self._rows[target.name, view] = self._translated(target, view)
        return self._rows[target.name, view]

    def takes_views(self, target: DescriptorSpec) -> bool:
        """Whether the rows in `target` differ from view to view."""
        return self._translator is not None and self._translator.takes_views(self.held.spec.name, target.name)

    def _translated(self, target: DescriptorSpec, view: View | None) -> np.ndarray:
        held = self.held.spec
        if held.name == target.name:
            return pack_bits(self._canonical) if target.binary else self._canonical
        if self._translator is None:
            raise ValueError(f"the query holds {held.name!r}, and there is no model to make {target.name!r} of it")
        expected = self._translator.spec(held.name)
        if (held.width, held.kind) != (expected.width, expected.kind):
            raise ValueError(
                f"the query's {held.name!r} is {held.kind} of width {held.width}, "
                f"but the model has {self._translator.describe()}"
            )
        stream = self._translator.stream(held.name, target.name, storage=target.binary)
        frames = of_usable(self._frames, self.usable)
        positions = np.where(self.usable[:, None], self.keypoints, 0)  # of the others, rows are zero
        rows = stream(self._canonical, where="the query", frames=frames, positions=positions, view=view)
        self.warnings += [text for category, text in stream.findings() if category is DeviationWarning]
        return rows
