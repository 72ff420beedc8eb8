"""What a step changes: of translators and of learned descriptors alike.

In: networks' variables. Out: a pytree that is checkpointed whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import flax
import jax

Batch = Mapping[str, jax.Array]


@flax.struct.dataclass
class TrainState:
    """Everything a step changes. `step` counts the steps done."""

    step: jax.Array
    params: Any
    batch_stats: Any
    opt_state: Any
    average: Any = None  # {'params', 'batch_stats'}, averaged over the steps; None: not asked for

    @property
    def weights(self) -> dict[str, Any]:
        """'params' and 'batch_stats' that validation and export are of: the average, where there is one."""
        return self.average or {"params": self.params, "batch_stats": self.batch_stats}
