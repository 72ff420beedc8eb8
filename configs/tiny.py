"""Small networks for the demo and for trying things out: minutes on 2 CPU cores.

xdesc train --config configs/tiny.py --data RECORDS --workdir runs/tiny
"""

from xdesc_jax.config import ModelConfig, OptimizerConfig, TrainConfig


def get_config() -> TrainConfig:
    return TrainConfig(
        epochs=6,
        batch_size=512,
        validation_rows=2048,
        model=ModelConfig(hidden_handcrafted=(256, 256), hidden_learned=(128, 128)),
        optimizer=OptimizerConfig(learning_rate=2e-3, schedule="cosine"),
    )
