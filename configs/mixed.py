r"""Between descriptors of keypoints and features that see the photo as it lies: the shipped translator `mixed`.

    xdesc train --config configs/mixed.py --data RECORDS --workdir RUN

RECORDS hold colmap-sift, xfeat and aliked-n16rot at COLMAP's keypoints (`xdesc pipeline mixed` makes them). The joint
space is of frame 'image', so the SIFT rows go in with the scale and orientation of their keypoints. About 15 minutes
for 257 k rows on 2 CPU cores. What it reaches stands in the card of `mixed`.
"""

from xdesc_jax.config import LossConfig, ModelConfig, OptimizerConfig, TrainConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        epochs=5,
        resident=True,
        checkpoint_every=2000,
        model=ModelConfig(hidden_handcrafted=(768, 768)),
        # A SIFT row does not tell all of an upright one: the contrastive form ranks twice as well as distances do.
        loss=LossConfig(matching="contrastive", alpha=0.5, beta=0.5),
        optimizer=OptimizerConfig(schedule="cosine", warmup_steps=50),
    )
