"""A sweep for trying things out: four settings at the widths of configs/tiny.py, which train together.

xdesc sweep --config configs/sweep_tiny.py --data RECORDS --workdir sweeps/tiny
"""

from xdesc_jax.config import ModelConfig, OptimizerConfig, TrainConfig
from xdesc_jax.sweep.config import SweepConfig


def get_config() -> SweepConfig:
    return SweepConfig(
        TrainConfig(
            epochs=2,
            batch_size=512,
            validation_rows=2048,
            model=ModelConfig(hidden_handcrafted=(256, 256), hidden_learned=(128, 128)),
            optimizer=OptimizerConfig(schedule="cosine"),
        ),
        grid={"loss.alpha": (0.1, 0.5), "optimizer.learning_rate": (1e-3, 4e-3)},
    )
