"""Loss ablation of the supplement: the linear variant of configs/paper.py.

xdesc train --config configs/ablation_linear.py --data RECORDS --workdir runs/linear
"""

from xdesc_jax.config import LossConfig, TrainConfig


def get_config() -> TrainConfig:
    return TrainConfig(loss=LossConfig(variant="linear"))
