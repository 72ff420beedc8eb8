"""Loss ablation of the supplement: the autoencoder variant of configs/paper.py.

xdesc train --config configs/ablation_autoencoder.py --data RECORDS --workdir runs/autoencoder
"""

from xdesc_jax.config import LossConfig, TrainConfig


def get_config() -> TrainConfig:
    return TrainConfig(loss=LossConfig(variant="autoencoder"))
