"""The learned descriptors that ship with the package: a finished run -> weights and their card.

    xdesc pairs PAIRS --photos PHOTOS
    xdesc pairs PLACES --multiview PLACES_PHOTOS
    xdesc train-descriptor --config configs/hardnet.py --data PAIRS=0.7 --data PLACES=0.3 --workdir runs/hardnet
    python -m pipelines.descriptors runs/hardnet --scenes SCENES --warped OTHER_SCENES --out runs/hardnet-xdesc

SCENES and OTHER_SCENES (`xdesc scenes`, of photos kept out of training) give the figures of the card, where `sift`
and the same network before any training stand beside the trained one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from xdesc_jax import console
from xdesc_jax.evaluate.homography import Result
from xdesc_jax.evaluate.stages.homography import homography
from xdesc_jax.features import l2net
from xdesc_jax.features.weights import write_arrays
from xdesc_jax.files.whole import read_json, write_json
from xdesc_jax.train.descriptors.export import export_descriptor

REFERENCE = "sift"


def descriptors(*, run: Path, scenes: Path, warped: Path, out: Path, processes: int = 2) -> Path:
    """Exports a run and measures it.

    Args:
        run: what `xdesc train-descriptor` wrote.
        scenes: scenes with known homographies.
        warped: other such scenes.
        out: folder for the weights, their card and the evaluations.
        processes: that extract.

    Returns:
        The weight file, <out>/<name>.safetensors; the card is <out>/<name>.json.
    """
    network = read_json(run / "config.json")["config"]["network"]
    name = f"{network}-xdesc"
    weights = export_descriptor(run, out / f"{name}.safetensors")
    untrained = out / "untrained.safetensors"
    write_arrays(
        untrained, l2net.arrays_of(l2net.init(jax.random.key(0)), l2net.NETWORK_NAMES[network]), {"name": name}
    )
    figures = {}
    for title, folder in {"homography": scenes, "warped": warped}.items():
        found: dict[str, Any] = {}
        for label, file in {name: weights, "untrained": untrained}.items():
            results = homography(
                folder, out=out / title / label, descriptors=(REFERENCE, name), weights=(f"{name}={file}",),
                processes=processes,
            )  # fmt: skip
            found |= {label if d == name else d: measured for d, measured in native(results).items()}
        figures[title] = {
            "native": {d: measured["ap"] for d, measured in found.items()},
            "matching": found,
        }
    card = weights.with_suffix(".json")
    write_json(card, read_json(card) | {"figures": figures})
    console.result(weights, card=card)
    return weights


def native(results: list[Result]) -> dict[str, dict[str, float]]:
    """AP, correct matches and precision of each descriptor matched with itself."""
    return {
        r.comparison.source: {key: round(getattr(r.mean, key), 4) for key in ("ap", "mma_mean", "correct", "precision")}
        for r in results
        if r.comparison.mode == "native"
    }


if __name__ == "__main__":
    import sys

    from xdesc_jax.cli import run_function

    sys.exit(run_function(descriptors))
