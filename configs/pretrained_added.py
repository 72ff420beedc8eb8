r"""Descriptors added to the joint space of the shipped translators, whose other members stay as they are.

    xdesc train --config configs/pretrained_added.py --data RECORDS --workdir RUN --init MODEL \
        --freeze all --add teblid-512

About 10 minutes for 98 k rows and one new descriptor on 2 CPU cores.
"""

from xdesc_jax.config import LossConfig, ModelConfig, OptimizerConfig, TrainConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        epochs=2,
        resident=True,
        model=ModelConfig(hidden_handcrafted=(512, 512), hidden_learned=(512, 512)),
        loss=LossConfig(alpha=0.5, beta=1.0),
        optimizer=OptimizerConfig(schedule="cosine", warmup_steps=20),
    )
