"""One network per ordered pair of descriptors, with as many weights as encoder and decoder (section 4.2).

Compare with configs/paper.py: the supplement finds the two on a par (figure 'Pair vs. encoder-decoder').

    xdesc train --config configs/pair.py --data RECORDS --workdir runs/pair --descriptors sift hardnet
"""

from xdesc_jax.config import ModelConfig, TrainConfig


def get_config() -> TrainConfig:
    return TrainConfig(model=ModelConfig(kind="pair"))
