"""A better recipe than the paper's? One change at a time, then together.

    xdesc sweep --config configs/sweep_recipe.py --data RECORDS --workdir sweeps/recipe

The first member is the paper's training (section 4.4) with as many passes as the others: three, which 2 CPU cores go
through in a few minutes on 49 k rows. configs/best.py came of it; docs/results-recipes.md has the figures.
"""

from xdesc_jax.config import TrainConfig
from xdesc_jax.sweep.config import SweepConfig

COSINE = {"optimizer.schedule": "cosine", "optimizer.warmup_steps": 20}
FAST = COSINE | {"optimizer.learning_rate": 3e-3}
SMALL = {"batch_size": 256}
NARROW = {"model.hidden_handcrafted": (512, 512), "model.hidden_learned": (512, 512)}
SYMMETRIC = {"loss.negatives": "symmetric"}


def get_config() -> SweepConfig:
    return SweepConfig(
        TrainConfig(epochs=3, resident=True),
        members=(
            {},
            COSINE,
            FAST,
            {"loss.alpha": 0.5},
            SMALL,
            SYMMETRIC,
            NARROW,
            {"model.normalization": "none"},
            COSINE | {"loss.alpha": 0.5},
            COSINE | SMALL | {"loss.alpha": 0.5},
            COSINE | SMALL | SYMMETRIC | {"loss.alpha": 0.5},
            COSINE | SMALL | NARROW | {"loss.alpha": 0.5},
            FAST | SMALL | NARROW | SYMMETRIC | {"loss.alpha": 0.5},
            FAST | SMALL,
            SMALL | NARROW,
            FAST | SMALL | NARROW,
            FAST | NARROW | {"batch_size": 128},
        ),
    )
