"""A model's sample: a few rows of each descriptor, and what its networks make of them, for a self-check.

In: rows in their stored form, and outputs of the float32 networks. Out: the same, once they fit each other and the
descriptors' specs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.networks import frames


@dataclasses.dataclass(frozen=True)
class ParitySample:
    """Aligned rows of each descriptor and what the float32 flax networks make of them.

    Attributes:
        inputs: descriptor -> [n, stored_width] in the stored form.
        embeddings: descriptor -> [n, E] float32; empty for pair networks.
        translations: (source, target) -> [n, D] float32, probabilities of the bits for binary targets.
        frames: descriptor -> [n, 2] float32, frames of the rows' keypoints; none where the networks take none.
        positions: descriptor -> [n, 2] float32, px of the rows' keypoints in their photo, one and the same for all rows
            of a descriptor; none where the encoder takes no context.
    """

    inputs: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    embeddings: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    translations: dict[tuple[str, str], np.ndarray] = dataclasses.field(default_factory=dict)
    frames: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    positions: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def check(self, specs: Mapping[str, DescriptorSpec], embedding_width: int) -> None:
        """Raises ValueError where outputs are not of the inputs' rows, or an array has another width than its spec."""
        widths = {f"{name}/input": (name, rows, specs[name].stored_width) for name, rows in self.inputs.items()}
        widths |= {f"{name}/embedding": (name, rows, embedding_width) for name, rows in self.embeddings.items()}
        widths |= {f"{name}/frames": (name, rows, frames.COLUMNS) for name, rows in self.frames.items()}
        widths |= {f"{name}/positions": (name, rows, 2) for name, rows in self.positions.items()}
        widths |= {f"{a}/to/{b}": (a, rows, specs[b].width) for (a, b), rows in self.translations.items()}
        for key, (source, rows, width) in widths.items():
            if source not in self.inputs:
                raise ValueError(f"sample/{key} is of rows that are missing, expected sample/{source}/input")
            expected = (len(self.inputs[source]), width) if self.inputs[source].ndim else (0, width)
            if rows.shape != expected:
                raise ValueError(f"sample/{key} has shape {rows.shape}, expected {expected}")
