"""First training of the shipped translators: all pairs, without the losses in the targets' own spaces.

These make a young network worse and an old one better, so `pipelines/pretrained.py` runs this training first, then
`finish`, then adds descriptors with `configs/pretrained_added.py`. 659 k rows of 1103 photos: 43 s on one H100.

    xdesc train --config configs/pretrained.py --data RECORDS --workdir runs/first
    python -m pipelines.pretrained --photos PHOTOS --scenes SCENES --calibration OTHER_SCENES --out runs/pretrained
"""

from xdesc_jax.config import LossConfig, ModelConfig, OptimizerConfig, TrainConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        descriptors=("brief", "sift", "opencv-sift", "orb", "hardnet-xdesc", "sosnet-xdesc"),
        epochs=5,
        resident=True,
        model=ModelConfig(hidden_handcrafted=(512, 512), hidden_learned=(512, 512)),
        loss=LossConfig(alpha=0.5),
        optimizer=OptimizerConfig(schedule="cosine", warmup_steps=100),
    )
