r"""Between descriptors of keypoints and features that see the photo as it lies: the shipped translator `mixed`.

    xdesc train --config configs/mixed.py --data RECORDS --workdir RUN

RECORDS hold colmap-sift, xfeat and aliked-n16rot at COLMAP's keypoints, and the two learned ones at each network's own,
of photos and rendered views of them (`xdesc pipeline mixed` makes them). The joint space is of frame 'image': SIFT
rows go in with the scale and orientation of their keypoints, and with what lies around them in the photo. About 50
minutes for 3.3 M rows on 2 CPU cores. What it reaches stands in the card of `mixed`.
"""

from xdesc_jax.config import ContextConfig, LossConfig, ModelConfig, OptimizerConfig, TrainConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        descriptors=("colmap-sift", "xfeat", "aliked-n16rot"),
        epochs=1,
        batch_size=512,  # more steps for the same rows
        resident=True,
        checkpoint_every=1000,
        # Twice the neighbours of the default: 11 to 27 % more right matches from the same rows, for a sixth more time.
        model=ModelConfig(hidden_handcrafted=(768, 768), context=ContextConfig(of="keypoint", nearest=24, larger=16)),
        # Against all rows of the batch: ranks twice as well as the nearest negative where rows do not tell all.
        loss=LossConfig(matching="contrastive", alpha=0.5, beta=0.5),
        optimizer=OptimizerConfig(schedule="cosine", warmup_steps=100, ema=0.998),
    )
