"""The stage `xdesc export`: a run directory or model file -> one file, for this package or another run time.

In: a trained model with its batch norms, or a model file. Out: a model file (see `bundle`) with the norms folded into
the linear layers and a sample of rows with the results of the float32 networks; a .pth checkpoint for the paper's
PyTorch code (see `pytorch_translator`); or ONNX or StableHLO files (see `graphs`). Each is written only if it
reproduces the sample.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from xdesc_jax import __version__, console, pretrained
from xdesc_jax.descriptors import DescriptorSpec, from_stored
from xdesc_jax.export import graphs, pytorch_translator
from xdesc_jax.export.quantization import equal, quantized
from xdesc_jax.files import claim, pytorch
from xdesc_jax.files.changes import between, changes
from xdesc_jax.files.whole import already_done, config_hash, content_hash, staged, write_json
from xdesc_jax.networks import frames as frame_form
from xdesc_jax.networks import neighbours
from xdesc_jax.networks.folding import fold
from xdesc_jax.translation import copies
from xdesc_jax.translation import ratios as ratio_keys
from xdesc_jax.translation.bundle import Bundle, Layers, ParitySample, load
from xdesc_jax.translation.copies import inherit_space
from xdesc_jax.translation.parts import CONTEXT, Dtype
from xdesc_jax.translation.translator import PARITY_TOLERANCE, Translator

if TYPE_CHECKING:
    import jax

    from xdesc_jax.train.translators.trained import TrainedModel

SAMPLE_ROWS = 32
MODEL_FILES = ("safetensors", "npz")

Format = Literal["safetensors", "npz", "onnx", "stablehlo", "pth"]


def export(
    run: Path,
    out: Path,
    *,
    source: str | None = None,
    target: str | None = None,
    which: Literal["best", "latest"] = "best",
    format: Format = "safetensors",
    dtype: Dtype | None = None,
    overwrite: bool = False,
) -> Path:
    """Run directory or model file -> model file, ONNX, StableHLO, or a checkpoint for the paper's PyTorch code.

    Args:
        run: what `xdesc train` wrote, a model file, or the name of one that ships. A model file holds batch norms
            folded into the linear layers, so PyTorch networks made of it get norms that change nothing.
        out: what to write: a file that ends in .safetensors, .npz, .onnx, .stablehlo or .pth as `format` is. For ONNX
            or StableHLO of a whole model it is a folder with a file for each network. JSON with figures lies beside.
        source: with `target`: export this translation alone. A descriptor, or `embedding` for one decoder.
        target: a descriptor, or `embedding` for one encoder.
        which: of a run, the checkpoint of the best validation figures, or the latest.
        format: `safetensors` and `npz` for this package (the latter is read by numpy alone), `onnx` (needs onnx and
            onnxruntime), `stablehlo` (needs jax), `pth` for PyTorch (needs torch).
        dtype: of the weights in a .safetensors or .npz file: float16 is half as large as float32, int8 (with a scale
            for each output) a quarter. They are computed with in float32, and embeddings match those of the model
            itself. Without, a model file's own, and float32 of a run.
        overwrite: replace another model.

    Returns:
        `out`.

    Raises:
        FileNotFoundError: no such run or model file, nor a model of that name.
        FileExistsError: `out` is another model and `overwrite` is off.
        ValueError: no checkpoint, a package is missing, the file does not reproduce the networks to 1e-5, weights that
            float16 cannot hold, unknown names, or a model that the format cannot hold.
        InUse: another process writes it.
    """
    run, out = Path(run), Path(out)
    folder = format in graphs.FORMATS and source is None
    _check(out, source, target, format, dtype, folder)
    named = run
    if not run.exists():
        run = pretrained.resolve(run, or_run=True)
    if run.is_file():
        bundle = load(run)
        networks = {name: [{"kernel": k, "bias": b} for k, b in layers] for name, layers in bundle.networks.items()}
    else:
        with console.status(f"reading the {which} checkpoint"):
            from xdesc_jax.train.translators.trained import load_model

            model = load_model(run, which)
        bundle = to_bundle(model, {"checkpoint": which, "xdesc_jax": __version__})
        networks = model.networks
    with claim.claimed(claim.beside(out), "xdesc export", out):
        if format == "pth":
            return _export_pth(named, out, bundle, networks, overwrite)
        if bundle.sample.inputs:
            with console.status("checking the model against its sample"):
                Translator(bundle, str(run)).self_check()
        if format in graphs.FORMATS:
            translator, expected = Translator(bundle, str(run)), _hash(bundle)
            if source is None or target is None:
                return graphs.export_all(translator, out, format, expected, overwrite)
            return graphs.export_one(translator, source, target, out, format, expected, overwrite)
        stored = dtype or bundle.storage
        if stored != "float32":
            with console.status(f"rounding the weights to {stored}"):
                bundle = quantized(bundle, stored)
        if source is not None and target is not None:
            bundle = selected(bundle, source, target, str(run))
        return _export_bundle(named, out, dataclasses.replace(bundle, storage=stored), overwrite)


def _check(
    out: Path, source: str | None, target: str | None, format: Format, dtype: Dtype | None, folder: bool
) -> None:
    if (source is None) != (target is None):
        given, missing = ("--source", "--target") if target is None else ("--target", "--source")
        raise ValueError(f"{given} {source or target} needs {missing} beside it, a descriptor or 'embedding'")
    if folder and (out.suffix in graphs.SUFFIXES or out.is_file()):
        raise ValueError(
            f"{out}: is a file, but a whole model in {format} is a folder with a file for each network; name a folder, "
            "or a translation with --source and --target"
        )
    if not folder and out.suffix != f".{format}":
        other = f"; did you mean --format {out.suffix[1:]}?" if out.suffix[1:] in get_args(Format) else ""
        raise ValueError(f"{out}: model files end in .{format} for --format {format}, found {out.suffix!r}{other}")
    if format not in MODEL_FILES and dtype not in (None, "float32"):
        raise ValueError(f"--dtype {dtype} is for --format safetensors or npz, found --format {format}")
    if format == "pth" and source is not None:
        raise ValueError("--source and --target are not for --format pth, which holds a whole model")


def _export_bundle(run: Path, out: Path, bundle: Bundle, overwrite: bool) -> Path:
    expected = config_hash([_hash(bundle), bundle.storage, bundle.ratios])
    found = _found(out)
    found_hash = None if found is None else config_hash([_hash(found), found.storage, _ratios(found, bundle.ratios)])
    differs = lambda: "" if found is None else between(_told(found, bundle.ratios), _told(bundle, bundle.ratios))  # noqa: E731
    if already_done(out, found_hash, expected, overwrite, differs=differs):
        console.up_to_date(out)
        return out
    with staged(out) as temporary, console.status(f"writing and checking {out}"):
        bundle.save(temporary, bundle.storage)
        deviation = _check_written(temporary, out, bundle)
    figures = _figures(bundle, deviation, out) | {"loss": bundle.provenance.get("weights")}
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
    if bundle.contexts:
        raise ValueError(
            f"{run}: its encoders of {', '.join(sorted(bundle.contexts))} look at the photo's other rows, of which "
            "their format knows nothing: export ONNX (--format onnx), which takes them, or keep .safetensors or .npz"
        )
    if any(map(bundle.takes_frames, bundle.networks)):
        raise ValueError(f"{run}: its networks take the frames of keypoints, of which their format knows nothing")
    expected = _hash(bundle)
    beside = out.with_name(out.name + ".json")
    found = graphs.recorded_hash(beside, {"": out})
    config = {"provenance": bundle.provenance}
    if already_done(out, found, expected, overwrite, differs=partial(changes, beside, found, config, kept=None)):
        console.up_to_date(out)
        return out
    epoch = bundle.provenance.get("epoch_idx", 0)
    with console.status(f"writing and checking {out}"):
        content, config = pytorch_translator.to_checkpoint(
            bundle.specs, networks, bundle.embedding_width, epoch, str(run), bundle.space_id
        )  # fmt: skip
        deviation = None
        if bundle.sample.inputs:
            back = pytorch_translator.to_bundle(content, None, str(out))
            deviation = Translator(dataclasses.replace(back, sample=bundle.sample), str(out)).self_check()
        pytorch.write(out, content)
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
        "weights": {name: _weights(layers) for name, layers in bundle.weights().items()},
    }


def to_bundle(model: TrainedModel, provenance: Mapping[str, Any] | None = None) -> Bundle:
    """The trained model with batch norms folded, and with the sample that it must reproduce.

    Args:
        model: trained networks, statistics and sample rows.
        provenance: what to add to the model's own.
    """
    folded = {name: fold(layers) for name, layers in model.networks.items()}
    bundle = Bundle(
        kind=model.kind,
        specs=model.specs,
        embedding_width=model.embedding_width,
        networks={name: layers for name, layers in folded.items() if not name.startswith(CONTEXT)},
        contexts={n.removeprefix(CONTEXT): layers for n, layers in folded.items() if n.startswith(CONTEXT)},
        context=model.context,
        statistics=model.statistics,
        frame=model.frame,
        harmonics=model.harmonics,
        log2_sigma=model.log2_sigma,
        sample=reference(model, {name: rows[:SAMPLE_ROWS] for name, rows in model.samples.items()}),
        config=model.config,
        provenance={**model.provenance, **(provenance or {})},
        space_id=model.space_id,
    )
    return inherit_space(bundle, model.base) if model.base else bundle


def selected(bundle: Bundle, source: str, target: str, where: str) -> Bundle:
    """The model with nothing but what one translation needs; its joint space keeps its name.

    Args:
        bundle: the whole model.
        source: descriptor, or 'embedding'.
        target: descriptor, or 'embedding'.
        where: the model's file, for error messages.

    Raises:
        ValueError: unknown names, or a translation that the model does not have.
    """
    translator = Translator(bundle, where)
    networks = {name: bundle.networks[name] for name in translator.route(source, target)}
    names = {source, target} & set(bundle.specs)
    sample = ParitySample()
    if source in bundle.sample.inputs:
        embeddings = bundle.sample.embeddings.items()
        translations = bundle.sample.translations.items()
        sample = ParitySample(
            {source: bundle.sample.inputs[source]},
            {name: rows for name, rows in embeddings if name == source},
            {ends: rows for ends, rows in translations if ends == (source, target)},
            {name: rows for name, rows in bundle.sample.frames.items() if name == source},
            {name: rows for name, rows in bundle.sample.positions.items() if name == source},
        )
    return dataclasses.replace(
        bundle,
        specs={name: spec for name, spec in bundle.specs.items() if name in names},
        networks=networks,
        contexts={name: layers for name, layers in bundle.contexts.items() if f"encoder/{name}" in networks},
        statistics={name: held for name, held in bundle.statistics.items() if name == source},
        sample=sample,
        provenance={**bundle.provenance, "selected": [source, target]},
        ratios=ratio_keys.kept(bundle.ratios, networks),
    )


def reference(model: TrainedModel, samples: Mapping[str, np.ndarray]) -> ParitySample:
    """What the unfolded float32 networks make of stored rows [n, stored_width] of each descriptor."""
    import jax.numpy as jnp

    from xdesc_jax.networks.mlp import forward, look_around, pooled, unit

    rows = {n: np.asarray(from_stored(x, model.specs[n]), np.float32) for n, x in samples.items()}
    frames = {n: x[: len(samples[n])] for n, x in model.sample_frames.items() if n in samples}
    positions = {n: x[: len(samples[n])] for n, x in model.sample_positions.items() if n in samples}

    def taken(network: str, rows: np.ndarray, source: str) -> jnp.ndarray:
        framed = frame_form.takes_frames(network, model.specs, model.frame)
        x: jax.Array = jnp.asarray(rows)
        if framed:
            x = frame_form.behind(rows, jnp.asarray(frames[source]), model.harmonics, jnp)
        if not network.startswith("encoder/") or (layers := model.networks.get(CONTEXT + source)) is None:
            return x
        # The sample's rows are of one photo.
        assert model.context is not None
        turns = model.specs[source].frame == frame_form.KEYPOINT
        of, at = frames[source] if turns else None, positions[source]
        near = neighbours.find(at, of, *model.context.neighbours(turns))
        others, offsets, mask = None if of is None else of[near], at[near] - at[:, None], near != neighbours.NONE
        around = look_around(jnp.asarray(rows[near]), of, others, offsets, mask, model.harmonics, model.frame)
        return jnp.concatenate([x, pooled([(a["kernel"], a["bias"]) for a in layers], x, around)], axis=1)

    embeddings: dict[str, np.ndarray] = {}
    translations: dict[tuple[str, str], np.ndarray] = {}
    for network, layers in model.networks.items():
        role, source, *_ = network.split("/")
        if role == "encoder" and source in rows:
            embeddings[source] = np.asarray(unit(forward(layers, taken(network, rows[source], source))))
    for network, layers in model.networks.items():
        role, *names = network.split("/")
        if role == "pair":
            source, target = names
            x = taken(network, rows[source], source)
            translations[source, target] = _output(layers, x, model.specs[target])
        elif role == "decoder":
            framed = frame_form.takes_frames(network, model.specs, model.frame)
            for source, embedding in embeddings.items():
                if framed and source not in frames:  # keypoints without any are translated to rows that need none
                    continue
                x = taken(network, embedding, source)
                translations[source, names[0]] = _output(layers, x, model.specs[names[0]])
    return ParitySample(dict(samples), embeddings, translations, frames, positions)


def _output(layers: Sequence[Mapping[str, np.ndarray]], x: jax.Array, spec: DescriptorSpec) -> np.ndarray:
    import jax

    from xdesc_jax.networks.mlp import finish, forward

    y = finish(forward(layers, x), spec)
    return np.asarray(jax.nn.sigmoid(y) if spec.binary else y)


def _check_written(file: Path, out: Path, bundle: Bundle) -> float | None:
    """Largest deviation from the sample, if there is one, of a file that is to become `out`."""
    found = load(file)
    weights = found.weights()
    for name, layers in bundle.weights().items():
        if not equal(weights[name], layers):
            raise ValueError(f"{out}: network {name!r} reads otherwise than it was written")
    return Translator(found, str(out)).self_check() if found.sample.inputs else None


def _hash(bundle: Bundle) -> str:
    return config_hash([bundle.config, bundle.provenance, bundle.space_id])


def _found(out: Path) -> Bundle | None:
    """The model that a file holds; None where it holds none."""
    try:
        return load(out)
    except (OSError, ValueError):
        return None


def _ratios(bundle: Bundle, which: Collection[str]) -> dict[str, float | None]:
    """Those ratios of a model that count: its file may have been calibrated since."""
    return {key: bundle.ratios.get(key) for key in which}


def _told(bundle: Bundle, ratios: Collection[str]) -> dict[str, Any]:
    """What tells a model from others, for people."""
    about = {"model": bundle.config, "provenance": bundle.provenance, "joint space": bundle.space_id}
    return {**about, "dtype": bundle.storage, "ratios": _ratios(bundle, ratios)}


def _weights(layers: Layers) -> int:
    return sum(kernel.size + bias.size for kernel, bias in layers)


def _loss(loss: Mapping[str, Any] | None) -> dict[str, str]:
    """What smaller weights cost, as a line of the summary; nothing where they cost nothing."""
    if loss is None:
        return {}
    parts = [("largest change", "largest_change"), ("mean cosine distance", "cosine_distance")]
    parts += [("bits flipped", "bits_flipped")]
    text = ", ".join(f"{label} {loss[key]:.2g}" for label, key in parts if loss[key] is not None)
    return {f"loss of {loss['dtype']}": f"{text} (on the model's sample)"}


def _print(run: Path, out: Path, bundle: Bundle, figures: Mapping[str, Any]) -> None:
    deviation = figures["parity_deviation"]
    console.figures(
        f"{run} -> {out}",
        {
            "joint space": figures["space_id"] or "none (pair networks)",
            "parity": "the model holds no sample"
            if deviation is None
            else f"off by {deviation:.2g} (at most {PARITY_TOLERANCE:g})",
            "size": f"{figures['megabytes']} MB",
            **graphs.looks_at(bundle),
            **({"weights": told} if (told := copies.described(bundle)) else {}),
            **_loss(figures.get("loss")),
        },
    )
    widths = {
        name: " ".join(str(w) for w in (layers[0][0].shape[0], *(len(bias) for _, bias in layers)))
        for name, layers in bundle.networks.items()
    } | {
        f"context/{name}": ", ".join(f"{kernel.shape[0]} {kernel.shape[1]}" for kernel, _ in layers)
        for name, layers in bundle.contexts.items()
    }
    rows = [(name, widths[name], weights) for name, weights in figures["weights"].items()]
    console.table("networks", ("network", "widths", "weights"), rows)
    console.result(out, figures=out.with_name(out.name + ".json"))
