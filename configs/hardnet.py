"""HardNet of our own: triplet margin loss over the hardest negatives of the batch (Mishchuk et al., NeurIPS 2017).

The batch of 256 pairs and the rate are those of a budget of hours on 2 CPU cores. The paper has 1024 pairs; where
a GPU is at hand: --batch-size 1024 --resident.

    xdesc train-descriptor --config configs/hardnet.py --data RECORDS --data OTHERS --workdir runs/hardnet
"""

from xdesc_jax.train.descriptors.config import DescriptorConfig


def get_config() -> DescriptorConfig:
    return DescriptorConfig(network="hardnet", loss="hardnet")
