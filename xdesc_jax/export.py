"""The stage `xdesc export`: a run directory -> one model file that needs numpy alone.

In: a trained model with its batch norms. Out: a .safetensors file (see `bundle`) with the norms folded into
the linear layers and a sample of rows with the results of the float32 networks. The file is written only if
numpy reproduces them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from xdesc_jax import __version__, console
from xdesc_jax.bundle import Bundle, Layers, ParitySample, inherit_space, load
from xdesc_jax.descriptors import DescriptorSpec, from_stored
from xdesc_jax.files import already_done, config_hash, write_json
from xdesc_jax.infer import PARITY_TOLERANCE, Translator
from xdesc_jax.models import BN_EPSILON, finish, forward, unit

if TYPE_CHECKING:
    from xdesc_jax.train.checkpoint import TrainedModel

SAMPLE_ROWS = 32


def export(run: Path, out: Path, *, which: Literal["best", "latest"] = "best", overwrite: bool = False) -> Path:
    """Run directory -> model file.

    Args:
        run: what `xdesc train` wrote.
        out: model file to write (.safetensors).
        which: the checkpoint of the best validation figures, or the latest.
        overwrite: replace another model.

    Returns:
        `out`.

    Raises:
        FileExistsError: `out` is another model and `overwrite` is off.
        ValueError: no checkpoint, or numpy does not reproduce the networks to 1e-5.
    """
    from xdesc_jax.train.checkpoint import load_model

    out = Path(out)
    if out.suffix != ".safetensors":
        raise ValueError(f"{out}: model files end in .safetensors")
    model = load_model(run, which)
    bundle = to_bundle(model, {"checkpoint": which, "xdesc_jax": __version__})
    expected = _hash(bundle)
    if already_done(out, _found_hash(out), expected, overwrite):
        console.out.print(f"{out} is up to date", markup=False)
        return out
    deviation = Translator(bundle, str(run)).self_check()
    bundle.save(out)
    figures = {
        "space_id": bundle.space_id,
        "parity_deviation": deviation,
        "megabytes": round(out.stat().st_size / 1e6, 3),
        "weights": {name: _weights(layers) for name, layers in bundle.networks.items()},
    }
    write_json(
        out.with_name(out.name + ".json"),
        {**figures, "config_hash": expected, "provenance": bundle.provenance},
    )
    _print(run, out, bundle, figures)
    return out


def to_bundle(model: TrainedModel, provenance: Mapping[str, Any] | None = None) -> Bundle:
    """The trained model with batch norms folded, and with the sample that it must reproduce.

    Args:
        model: trained networks, statistics and sample rows.
        provenance: what to add to the model's own.
    """
    bundle = Bundle(
        kind=model.kind,
        specs=model.specs,
        embedding_width=model.embedding_width,
        networks={name: fold(layers) for name, layers in model.networks.items()},
        statistics=model.statistics,
        sample=reference(model, {name: rows[:SAMPLE_ROWS] for name, rows in model.samples.items()}),
        config=model.config,
        provenance={**model.provenance, **(provenance or {})},
    )
    return inherit_space(bundle, model.base) if model.base else bundle


def fold(layers: Sequence[Mapping[str, np.ndarray]]) -> Layers:
    """Batch norms into the linear layers before them.

    scale * (x W + b - mean) / sqrt(var + eps) + offset = x (W g) + (b - mean) g + offset, where
    g = scale / sqrt(var + eps); computed in float64.

    Args:
        layers: each {kernel [N, M], bias [M]} and, where a norm follows, {scale, offset, mean, var} [M].
    """
    folded = []
    for layer in layers:
        values = {name: np.asarray(value, np.float64) for name, value in layer.items()}
        kernel, bias = values["kernel"], values["bias"]
        if "mean" in values:
            gain = values["scale"] / np.sqrt(values["var"] + BN_EPSILON)
            kernel, bias = kernel * gain, (bias - values["mean"]) * gain + values["offset"]
        folded.append((kernel.astype(np.float32), bias.astype(np.float32)))
    return folded


def reference(model: TrainedModel, samples: Mapping[str, np.ndarray]) -> ParitySample:
    """What the unfolded float32 networks make of stored rows [n, stored_width] of each descriptor."""
    rows = {n: np.asarray(from_stored(x, model.specs[n]), np.float32) for n, x in samples.items()}
    embeddings: dict[str, np.ndarray] = {}
    translations: dict[tuple[str, str], np.ndarray] = {}
    for network, layers in model.networks.items():
        role, source, *_ = network.split("/")
        if role == "encoder" and source in rows:
            embeddings[source] = np.asarray(unit(forward(layers, jnp.asarray(rows[source]))))
    for network, layers in model.networks.items():
        role, *names = network.split("/")
        if role == "pair":
            source, target = names
            translations[source, target] = _output(layers, rows[source], model.specs[target])
        elif role == "decoder":
            for source, embedding in embeddings.items():
                translations[source, names[0]] = _output(layers, embedding, model.specs[names[0]])
    return ParitySample(dict(samples), embeddings, translations)


def _output(layers: Sequence[Mapping[str, np.ndarray]], x: np.ndarray, spec: DescriptorSpec) -> np.ndarray:
    y = finish(forward(layers, jnp.asarray(x)), spec)
    return np.asarray(jax.nn.sigmoid(y) if spec.binary else y)


def _hash(bundle: Bundle) -> str:
    return config_hash([bundle.config, bundle.provenance])


def _found_hash(out: Path) -> str | None:
    try:
        return _hash(load(out))
    except (OSError, ValueError):
        return None


def _weights(layers: Layers) -> int:
    return sum(kernel.size + bias.size for kernel, bias in layers)


def _print(run: Path, out: Path, bundle: Bundle, figures: Mapping[str, Any]) -> None:
    console.settings(
        f"xdesc export -> {out}",
        {
            "run": run,
            "joint space": figures["space_id"] or "none (pair networks)",
            "parity": f"off by {figures['parity_deviation']:.2g} (at most {PARITY_TOLERANCE:g})",
            "size": f"{figures['megabytes']} MB",
        },
    )
    widths = {
        name: " ".join(str(w) for w in (layers[0][0].shape[0], *(len(bias) for _, bias in layers)))
        for name, layers in bundle.networks.items()
    }
    rows = [(name, widths[name], weights) for name, weights in figures["weights"].items()]
    console.table("networks", ("network", "widths", "weights"), rows)
