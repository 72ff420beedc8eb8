r"""SOSNet of our own: squared triplet loss with second-order similarity (Tian et al., CVPR 2019).

The batch of 256 pairs and the rate are those of a budget of hours on 2 CPU cores; start from HardNet's weights,
which are of the same network. The paper has 512 pairs; where a GPU is at hand: --batch-size 1024 --resident.

    xdesc train-descriptor --config configs/sosnet.py --data RECORDS --data OTHERS --workdir runs/sosnet \
        --init hardnet.safetensors
"""

from xdesc_jax.train.descriptors.config import DescriptorConfig


def get_config() -> DescriptorConfig:
    return DescriptorConfig(network="sosnet", loss="sosnet")
