"""The loss ablation of the supplement, and beyond it: pairs used, distance of the triplet, weight of the matching loss.

    xdesc sweep --config configs/sweep_loss.py --data RECORDS --workdir sweeps/loss

24 configurations; the four weights of a kind of loss train together.
"""

from xdesc_jax.config import TrainConfig
from xdesc_jax.sweep.config import SweepConfig


def get_config() -> SweepConfig:
    return SweepConfig(
        TrainConfig(),
        grid={
            "loss.variant": ("quadratic", "linear", "autoencoder"),
            "loss.distance": ("squared", "euclidean"),
            "loss.alpha": (0.0, 0.1, 0.5, 1.0),
        },
    )
