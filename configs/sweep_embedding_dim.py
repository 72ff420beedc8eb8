"""How wide must the joint space be? The paper's training with 16 to 256 values an embedding, three seeds each.

    xdesc sweep --config configs/sweep_embedding_dim.py --data RECORDS --workdir sweeps/embedding_dim

Seeds of one width train together, widths in turn.
"""

from xdesc_jax.config import TrainConfig
from xdesc_jax.sweep.config import SweepConfig


def get_config() -> SweepConfig:
    return SweepConfig(TrainConfig(), grid={"model.embedding_width": (16, 32, 64, 128, 256), "seed": (0, 1, 2)})
