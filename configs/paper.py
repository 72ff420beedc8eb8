"""The paper's training: all pairs, Adam 1e-3, batch 1024, 5 epochs (section 4.4, supplement B).

Expected: on 200 k rows of four descriptors about 15 minutes on 2 CPU cores; the paper trained 7.4 M rows in 30
minutes on one RTX 2080 Ti.

    xdesc train --config configs/paper.py --data RECORDS --workdir runs/paper
"""

from xdesc_jax.config import TrainConfig


def get_config() -> TrainConfig:
    return TrainConfig()
