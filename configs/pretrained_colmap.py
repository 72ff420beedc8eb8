"""First training of the shipped translator `colmap`: a random permutation of the descriptors each step.

`pipelines/pretrained.py` makes the records, runs this training and then the finish with the losses of all pairs.

    python -m pipelines.pretrained colmap --photos PHOTOS --scenes SCENES --calibration OTHER_SCENES --out runs/colmap
"""

from xdesc_jax.config import LossConfig, ModelConfig, OptimizerConfig, TrainConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        descriptors=("brief", "sift", "colmap-sift", "orb", "teblid-512", "hardnet-xdesc", "sosnet-xdesc"),
        epochs=4,
        resident=True,
        model=ModelConfig(hidden_handcrafted=(512, 512), hidden_learned=(512, 512)),
        loss=LossConfig(variant="linear", alpha=0.5, beta=0.5),
        optimizer=OptimizerConfig(learning_rate=1e-3, schedule="cosine", warmup_steps=100),
    )
