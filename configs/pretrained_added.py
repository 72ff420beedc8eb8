r"""Descriptors added to the joint space of the shipped translators, whose other members stay as they are.

    xdesc train --config configs/pretrained_added.py --data RECORDS --workdir RUN --init MODEL \
        --freeze all --add colmap-sift teblid-512

A random target a source and step, and contrastive losses: about 40 minutes for two new descriptors and twice 1.5 M rows
on 2 CPU cores. What it reaches stands in the card of `colmap`.
"""

from xdesc_jax.config import LossConfig, ModelConfig, OptimizerConfig, TrainConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        epochs=2,
        resident=True,
        model=ModelConfig(hidden_handcrafted=(768, 768), hidden_learned=(512, 512)),
        loss=LossConfig(variant="linear", matching="contrastive", alpha=0.5, beta=0.5),
        optimizer=OptimizerConfig(schedule="cosine", warmup_steps=100, ema=0.998),
    )
