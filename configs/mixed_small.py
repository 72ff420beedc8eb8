r"""Small encoders into the joint space of the shipped translator `mixed`, for devices that send embeddings.

    xdesc train --config configs/mixed_small.py --data RECORDS --workdir RUN --distill mixed

RECORDS are those that `mixed` is trained with (`xdesc pipeline mixed` makes them). Each encoder learns to give what the
large one gives; those that look at neighbours there do so here, by vectors of a quarter of the width. int8 files of one
encoder (`xdesc export RUN xfeat.npz --format npz --dtype int8 --source xfeat --target embedding`) stay below 300 kB. Of
the wide rows of `brief` one does with `--descriptors brief --model.hidden 144 144`.
"""

from xdesc_jax.config import ContextConfig, ModelConfig, OptimizerConfig, TrainConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        descriptors=("colmap-sift", "opencv-sift", "orb", "aliked-n16rot", "aliked-n16", "disk", "xfeat"),
        epochs=1,
        resident=True,
        checkpoint_every=1000,
        model=ModelConfig(hidden=(224, 224), context=ContextConfig(of="every", width=48, heads=3)),
        optimizer=OptimizerConfig(learning_rate=2e-3, schedule="cosine", warmup_steps=100, ema=0.998),
    )
