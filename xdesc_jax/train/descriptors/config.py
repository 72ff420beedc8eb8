"""Configurations of descriptor training: frozen dataclasses, defaults here and nowhere else.

In: a `configs/*.py` file with `get_config()`. Out: a `DescriptorConfig`, printed, hashed and saved by every run.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from xdesc_jax.config import OptimizerConfig, Precision
from xdesc_jax.files.fields import check_finite
from xdesc_jax.files.whole import config_hash


@dataclasses.dataclass(frozen=True)
class AugmentationConfig:
    """Random changes of pairs on the device."""

    flips: bool = True
    """Mirror and turn by quarters, both patches of a pair alike."""
    gamma: float = 0.3
    """Standard deviation of the log exponent of gray values, each patch its own."""
    contrast: float = 0.3
    """Standard deviation of log contrast, each patch its own; what leaves the gray range is cut off."""


@dataclasses.dataclass(frozen=True)
class DescriptorConfig:
    """One training run of a descriptor."""

    network: Literal["hardnet", "sosnet"] = "hardnet"
    """Normalisation of patches and descriptors, and the names of exported weights."""
    loss: Literal["hardnet", "sosnet"] = "hardnet"
    """Triplet margin loss, or its square with second-order similarity."""
    margin: float = 1.0
    """Triplet margin, in units of the Euclidean distance."""
    epochs: int = 1
    """Passes over the records that last longest (see rows_per_epoch)."""
    rows_per_epoch: int | None = None
    """Pairs of an epoch; none: until every source has been gone through once."""
    batch_size: int = 256
    """Pairs a step, over all devices."""
    dropout: float = 0.1
    """Share of values dropped before the last layer."""
    weight_decay: float = 1e-4
    """Times the weights, added to the gradient before Adam; `optimizer.weight_decay` is that of AdamW."""
    precision: Precision = "default"
    """How exactly TPU and GPU multiply in the network: `default` is one pass of bfloat16 on TPU and TF32 on newer
    NVIDIA devices, `high` three passes on TPU and TF32, `highest` float32 itself. A CPU's products are float32."""
    mining_precision: Precision = "highest"
    """The same, of the similarities that negatives are chosen by."""
    seed: int = 0
    """Initial weights, data order, augmentation and dropout."""
    resident: bool = False
    """Hold all training pairs on every device instead of streaming them."""
    checkpoint_every: int = 500
    """Steps between checkpoints; one more at each end of an epoch."""
    log_every: int = 20
    """Steps between lines of the log."""
    validation_rows: int = 4096
    """Pairs of each validation split measured after each epoch; also the retrieval pool."""
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=2e-3, schedule="linear", warmup_steps=100)
    augmentation: AugmentationConfig = AugmentationConfig()

    def __post_init__(self) -> None:
        for field in ("epochs", "checkpoint_every", "log_every", "validation_rows"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} is {getattr(self, field)}, expected at least 1")
        if self.batch_size < 2:
            raise ValueError(f"batch_size is {self.batch_size}, expected at least 2: negatives come from the batch")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}, expected 0 to below 1")
        check_finite(self)

    @property
    def hash(self) -> str:
        return config_hash(dataclasses.asdict(self))
