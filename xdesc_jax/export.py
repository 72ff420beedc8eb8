"""The stage `xdesc export`: a run directory -> one model file that needs numpy alone, or PyTorch's form of it.

In: a trained model with its batch norms. Out: a .safetensors file (see `bundle`) with the norms folded into
the linear layers and a sample of rows with the results of the float32 networks; or a .pth checkpoint for the
paper's PyTorch code (see `pytorch_translator`), also of a model file. Either is written only if numpy reproduces
the sample from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from xdesc_jax import __version__, console, pretrained, pytorch_translator, torch_format
from xdesc_jax.bundle import Bundle, Layers, ParitySample, inherit_space, load
from xdesc_jax.descriptors import DescriptorSpec, from_stored
from xdesc_jax.files import already_done, config_hash, content_hash, read_json, write_json
from xdesc_jax.folding import fold
from xdesc_jax.infer import PARITY_TOLERANCE, Translator

if TYPE_CHECKING:
    from xdesc_jax.train.checkpoint import TrainedModel

SAMPLE_ROWS = 32


def export(
    run: Path,
    out: Path,
    *,
    which: Literal["best", "latest"] = "best",
    format: Literal["safetensors", "pth"] = "safetensors",
    dtype: Literal["float32", "float16"] = "float32",
    overwrite: bool = False,
) -> Path:
    """Run directory -> model file, or a checkpoint for the paper's PyTorch code.

    Args:
        run: what `xdesc train` wrote; for `pth` also a model file or the name of one that ships. Of a run, the
            PyTorch networks get its batch norms as they are. A model file holds them folded into the linear layers,
            so its PyTorch networks get norms that change nothing, and compute the same function.
        out: file to write, which ends in .safetensors or .pth as `format` is. Beside a .pth lies <out>.config.json,
            from which their code builds the networks.
        which: the checkpoint of the best validation figures, or the latest.
        format: `safetensors` for this package, `pth` for PyTorch (needs torch).
        dtype: of the weights in a .safetensors file; float16 halves it, and is computed with in float32.
        overwrite: replace another model.

    Returns:
        `out`.

    Raises:
        FileExistsError: `out` is another model and `overwrite` is off.
        ValueError: no checkpoint, numpy does not reproduce the networks to 1e-5, weights that float16 cannot hold, or
            a model that their code cannot.
    """
    run, out = Path(run), Path(out)
    if out.suffix != f".{format}":
        raise ValueError(f"{out}: model files end in .{format} for --format {format}, found {out.suffix!r}")
    if format == "pth" and not run.exists():
        run = pretrained.find(str(run), "translator") or run
    from_file = run.is_file()
    if from_file and format == "safetensors":
        raise ValueError(f"{run}: is a file, expected a run directory (--format pth also takes a model file)")
    if from_file:
        bundle = load(run)
        networks = {name: [{"kernel": k, "bias": b} for k, b in layers] for name, layers in bundle.networks.items()}
    else:
        from xdesc_jax.train.checkpoint import load_model

        model = load_model(run, which)
        provenance: dict[str, Any] = {"checkpoint": which, "xdesc_jax": __version__}
        if dtype == "float16" and format == "safetensors":
            model, provenance["rounding"] = rounded(model)
        bundle = to_bundle(model, provenance)
        networks = model.networks
    if format == "pth":
        return _export_pth(run, out, bundle, networks, overwrite)
    expected = _hash(bundle)
    if already_done(out, _found_hash(out), expected, overwrite):
        console.out.print(f"{out} is up to date", markup=False)
        return out
    deviation = Translator(bundle, str(run)).self_check()
    bundle.save(out, dtype)
    figures = _figures(bundle, deviation, out)
    write_json(
        out.with_name(out.name + ".json"),
        {**figures, "config_hash": expected, "provenance": bundle.provenance},
    )
    _print(run, out, bundle, figures)
    return out


def _export_pth(
    run: Path, out: Path, bundle: Bundle, networks: Mapping[str, Sequence[Mapping[str, np.ndarray]]], overwrite: bool
) -> Path:
    if bundle.kind != "encoder_decoder":
        raise ValueError(f"{run}: a model of kind {bundle.kind!r}, but their format holds encoders and decoders")
    expected = config_hash([bundle.config, bundle.provenance, bundle.space_id])
    beside = out.with_name(out.name + ".json")
    if already_done(out, _found_hash_pth(out, beside), expected, overwrite):
        console.out.print(f"{out} is up to date", markup=False)
        return out
    epoch = bundle.provenance.get("epoch_idx", 0)
    content, config = pytorch_translator.to_checkpoint(
        bundle.specs, networks, bundle.embedding_width, epoch, str(run)
    )  # fmt: skip
    deviation = None
    if bundle.sample.inputs:
        back = pytorch_translator.to_bundle(content, None, str(out))
        deviation = Translator(dataclasses.replace(back, sample=bundle.sample), str(out)).self_check()
    torch_format.write(out, content)
    write_json(out.with_name(out.name + ".config.json"), config)
    figures = _figures(bundle, deviation, out)
    record = {"config_hash": expected, "content": content_hash(out), "provenance": bundle.provenance}
    write_json(beside, {**figures, **record})
    _print(run, out, bundle, figures)
    return out


def _figures(bundle: Bundle, deviation: float | None, out: Path) -> dict[str, Any]:
    return {
        "space_id": bundle.space_id,
        "parity_deviation": deviation,
        "megabytes": round(out.stat().st_size / 1e6, 3),
        "weights": {name: _weights(layers) for name, layers in bundle.networks.items()},
    }


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


def rounded(model: TrainedModel) -> tuple[TrainedModel, float]:
    """The model with its folded weights rounded to float16, and the largest change that makes to the sample's rows.

    Raises:
        ValueError: a weight is beyond float16's range, or would change a member that the model leaves as it was.
    """
    networks: dict[str, list[dict[str, np.ndarray]]] = {}
    for name, layers in model.networks.items():
        networks[name] = []
        for arrays in fold(layers):
            with np.errstate(over="ignore"):
                kernel, bias = (a.astype(np.float16).astype(np.float32) for a in arrays)
            if not (np.isfinite(kernel).all() and np.isfinite(bias).all()):
                largest = max(float(np.abs(a).max()) for a in arrays)
                raise ValueError(f"{name}: a weight is {largest:g}, beyond the 65504 of float16; export as float32")
            networks[name].append({"kernel": kernel, "bias": bias})
            if model.base and name in model.base.networks and not all(map(np.array_equal, arrays, (kernel, bias))):
                raise ValueError(
                    f"{name}: is float32 in the model that was added to, and float16 would change it, so that old "
                    "embeddings were no longer of this space; export as float32"
                )
    half = dataclasses.replace(model, networks=networks)
    samples = {name: rows[:SAMPLE_ROWS] for name, rows in model.samples.items()}
    before, after = reference(model, samples), reference(half, samples)
    changes = [np.abs(before.embeddings[n] - after.embeddings[n]).max() for n in before.embeddings]
    changes += [np.abs(before.translations[n] - after.translations[n]).max() for n in before.translations]
    return half, float(max(changes, default=0.0))


def reference(model: TrainedModel, samples: Mapping[str, np.ndarray]) -> ParitySample:
    """What the unfolded float32 networks make of stored rows [n, stored_width] of each descriptor."""
    import jax.numpy as jnp

    from xdesc_jax.models import forward, unit

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
    import jax
    import jax.numpy as jnp

    from xdesc_jax.models import finish, forward

    y = finish(forward(layers, jnp.asarray(x)), spec)
    return np.asarray(jax.nn.sigmoid(y) if spec.binary else y)


def _hash(bundle: Bundle) -> str:
    return config_hash([bundle.config, bundle.provenance])


def _found_hash(out: Path) -> str | None:
    try:
        return _hash(load(out))
    except (OSError, ValueError):
        return None


def _found_hash_pth(out: Path, beside: Path) -> str | None:
    """The hash beside a .pth, if it was written for the file as it is now."""
    try:
        record = read_json(beside)
        return record["config_hash"] if record["content"] == content_hash(out) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _weights(layers: Layers) -> int:
    return sum(kernel.size + bias.size for kernel, bias in layers)


def _print(run: Path, out: Path, bundle: Bundle, figures: Mapping[str, Any]) -> None:
    deviation = figures["parity_deviation"]
    console.settings(
        f"xdesc export -> {out}",
        {
            "from": run,
            "joint space": figures["space_id"] or "none (pair networks)",
            "parity": "the model holds no sample"
            if deviation is None
            else f"off by {deviation:.2g} (at most {PARITY_TOLERANCE:g})",
            "size": f"{figures['megabytes']} MB",
        },
    )
    widths = {
        name: " ".join(str(w) for w in (layers[0][0].shape[0], *(len(bias) for _, bias in layers)))
        for name, layers in bundle.networks.items()
    }
    rows = [(name, widths[name], weights) for name, weights in figures["weights"].items()]
    console.table("networks", ("network", "widths", "weights"), rows)
