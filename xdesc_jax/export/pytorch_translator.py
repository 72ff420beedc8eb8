"""The stage `xdesc import`: a translator of the paper's PyTorch code -> one model file; and the way back.

In: a checkpoint {'args': Namespace, 'epoch_idx': int, 'encoders': [(name, state_dict)], 'decoders': [...], ...}.
Each state dict holds a sequence 'network' of Linear, BatchNorm1d (perhaps) and ReLU, so with norms the Linears are
'network.0', 'network.3', ... and the norms 'network.1', 'network.4', ... Out: a model file whose layers have the
norms folded in. What follows the last layer is in a configuration file (see `pytorch_config`). Needs no jax.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xdesc_jax import __version__, console
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.export.pytorch_config import ENCODERS, SPACE, check, their_name, to_config, to_spec
from xdesc_jax.features.weights import select
from xdesc_jax.files import pytorch
from xdesc_jax.files.changes import changes
from xdesc_jax.files.whole import already_done, config_hash, content_hash, read_json, write_json
from xdesc_jax.networks.folding import BN_EPSILON, fold
from xdesc_jax.translation import bundle as model_file
from xdesc_jax.translation.bundle import Bundle, Layers, space_id

CONFIG = "xdesc_config"  # where 'args' of files written here holds the configuration
ROLES = ("encoder", "decoder")
_NORM = {"scale": "weight", "offset": "bias", "mean": "running_mean", "var": "running_var"}

NormedLayers = Sequence[Mapping[str, np.ndarray]]  # as `fold` takes them


def import_model(checkpoint: Path, out: Path, *, config: Path | None = None, overwrite: bool = False) -> Path:
    """PyTorch translator of the paper's authors -> model file.

    Args:
        checkpoint: their file (.pth or .pt).
        out: model file to write (.safetensors).
        config: their config.json, with an entry for each descriptor: {"NAME": {"descriptor_dim": 128,
            "hidden_dims": [256, 256], "l2_norm": true, "last_activation": null}}. Not needed for brief,
            sift-kornia, hardnet and sosnet, nor for files of `xdesc export --format pth`. An entry's "xdesc" says
            which descriptor of this package the name means.
        overwrite: replace another model.

    Returns:
        `out`.

    Raises:
        FileExistsError: `out` is another model and `overwrite` is off.
        ValueError: torch is not installed, a damaged or foreign file, or layers that do not fit.
    """
    checkpoint, out = Path(checkpoint), Path(out)
    if out.suffix != ".safetensors":
        raise ValueError(f"{out}: model files end in .safetensors")
    if not checkpoint.is_file():
        raise FileNotFoundError(f"{checkpoint}: no such PyTorch file")
    settings = check(read_json(config), str(config)) if config is not None else None
    made_of = {"checkpoint": content_hash(checkpoint), "config": settings, "version": __version__}
    expected, record = config_hash(list(made_of.values())), out.with_name(out.name + ".json")
    found = _found_hash(out)
    if already_done(out, found, expected, overwrite, differs=partial(changes, record, found, made_of, kept="made_of")):
        console.up_to_date(out)
        return out
    where = str(checkpoint) if config is None else f"{checkpoint} with {config}"
    source = {"checkpoint": checkpoint.name, "content": content_hash(checkpoint), "import_hash": expected}
    with console.status(f"reading {checkpoint}"):
        bundle = to_bundle(pytorch.read(checkpoint), settings, where, source)
    bundle.save(out)
    figures = {"space_id": bundle.space_id, "config_hash": expected, "made_of": made_of}
    write_json(record, {**figures, "provenance": bundle.provenance})
    _print(checkpoint, out, bundle)
    return out


def to_bundle(
    content: Any, config: Mapping[str, Any] | None, where: str, provenance: Mapping[str, Any] | None = None
) -> Bundle:
    """A checkpoint's content -> our model, with batch norms folded and without statistics of training rows.

    Args:
        content: as `pytorch.read` gives it.
        config: the checked configuration, if there is one.
        where: the file, for error messages.
        provenance: what to add to what the checkpoint says.

    Raises:
        ValueError: parts are missing, layers do not fit each other or the configuration, or unknown names.
    """
    states = _states(content, where)
    args = vars(content["args"]) if isinstance(content.get("args"), argparse.Namespace) else {}
    if config is None:
        config = check(args.get(CONFIG, {}), f"{where}: args.{CONFIG}")
    specs: dict[str, DescriptorSpec] = {}
    networks: dict[str, Layers] = {}
    names: dict[str, str] = {}
    widths: set[int] = set()
    for theirs in states["encoder"]:
        layers = {}
        for role in ROLES:
            layers[role] = read_layers(states[role][theirs], f"{where}: {role} of {theirs!r}", config.get("use_bn"))
        inner = {role: [len(layer["bias"]) for layer in layers[role]] for role in ROLES}
        spec = to_spec(theirs, len(layers["encoder"][0]["kernel"]), inner["encoder"][:-1], config, where)
        _check_widths(layers, inner, theirs, spec, config, where)
        if spec.name in specs:
            raise ValueError(
                f"{where}: {names[spec.name]!r} and {theirs!r} are both {spec.name!r}; tell them apart by "
                '"xdesc" in their entries of the file given by --config'
            )
        specs[spec.name], names[spec.name] = spec, theirs
        widths.add(inner["encoder"][-1])
        networks |= {f"{role}/{spec.name}": fold(layers[role]) for role in ROLES}
    if len(widths) != 1:
        raise ValueError(f"{where}: encoders give embeddings of widths {sorted(widths)}, expected one width")
    own = {"names": {t: ours for ours, t in names.items()}, "xdesc_jax": __version__}
    own |= {key: _plain(content[key]) for key in ("epoch_idx", "train_loss_history") if key in content}
    try:
        return Bundle(
            kind="encoder_decoder",
            specs=specs,
            embedding_width=widths.pop(),
            networks=networks,
            config=_plain({key: value for key, value in args.items() if key != CONFIG}),
            provenance={**own, **(provenance or {})},
            space_id=config.get(SPACE) if config.get(ENCODERS) == space_id(networks) else None,
        )
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _states(content: Any, where: str) -> dict[str, dict[str, Any]]:
    """role -> name -> state dict; both roles have the same names."""
    keys = list(content) if isinstance(content, dict) else type(content).__name__
    states: dict[str, dict[str, Any]] = {}
    for role in ROLES:
        key = f"{role}s"
        if not isinstance(content, dict) or key not in content:
            raise ValueError(f"{where}: not a translator: found {keys}, expected 'encoders' and 'decoders'")
        pairs = content[key]
        if not isinstance(pairs, list) or not all(
            isinstance(p, tuple | list) and len(p) == 2 and isinstance(p[0], str) and isinstance(p[1], dict)
            for p in pairs
        ):
            raise ValueError(f"{where}: {key!r} is no list of (name, state dict) pairs")
        states[role] = dict(pairs)
        if len(states[role]) != len(pairs) or not pairs:
            raise ValueError(f"{where}: {key!r} names {[p[0] for p in pairs]}, expected each once and at least one")
    if set(states["encoder"]) != set(states["decoder"]):
        raise ValueError(
            f"{where}: encoders of {sorted(states['encoder'])}, but decoders of {sorted(states['decoder'])}"
        )
    return states


def read_layers(state: Mapping[str, Any], where: str, norms: bool | None = None) -> list[dict[str, np.ndarray]]:
    """One state dict -> layers as `fold` takes them.

    Args:
        state: 'network.<i>.<parameter>' -> array; Linear weights are [out, in].
        where: file and network, for error messages.
        norms: whether batch norms must be there; None where either will do.

    Raises:
        ValueError: missing or unexpected names, shapes that do not chain, or values that are not finite floats.
    """
    state = {str(name): value for name, value in state.items()}
    has_norms = any(name.endswith(".running_mean") for name in state)
    if norms is not None and norms != has_norms:
        found = "holds" if has_norms else "lacks"
        raise ValueError(f"{where}: {found} batch norms, but the configuration says use_bn is {norms}")
    step = 3 if has_norms else 2
    parts = [name.split(".") for name in state]
    last = max((int(part[1]) for part in parts if len(part) == 3 and part[1].isdecimal()), default=0)
    count = min(last // step, len(state)) + 1  # no more than there are arrays, whatever number a name holds
    shapes: dict[str, tuple[int, ...]] = {}
    width: int | None = None
    for i in range(count):
        linear, norm = f"network.{step * i}", f"network.{step * i + 1}"
        shape = np.shape(state.get(f"{linear}.weight", np.empty((1, 1))))
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"{where}: '{linear}.weight' has shape {shape}, expected (out, in)")
        out, into = shape
        shapes |= {f"{linear}.weight": (out, into if width is None else width), f"{linear}.bias": (out,)}
        if has_norms and i < count - 1:
            shapes |= {f"{norm}.{parameter}": (out,) for parameter in _NORM.values()}
        width = out
    arrays = select({k: np.asarray(v) for k, v in state.items()}, shapes, where)
    layers = []
    for i in range(count):
        linear, norm = f"network.{step * i}", f"network.{step * i + 1}"
        layer = {"kernel": np.ascontiguousarray(arrays[f"{linear}.weight"].T), "bias": arrays[f"{linear}.bias"]}
        if has_norms and i < count - 1:
            layer |= {name: arrays[f"{norm}.{parameter}"] for name, parameter in _NORM.items()}
        layers.append(layer)
    return layers


def _check_widths(
    layers: Mapping[str, NormedLayers],
    inner: Mapping[str, list[int]],
    name: str,
    spec: DescriptorSpec,
    config: Mapping[str, Any],
    where: str,
) -> None:
    """Encoder and decoder of one descriptor against each other and the configuration."""
    embedding = inner["encoder"][-1]
    expected = config.get("emb_dim", embedding)
    found = {"encoder": embedding, "decoder": len(layers["decoder"][0]["kernel"])}
    for role in ROLES:
        if found[role] != expected:
            raise ValueError(f"{where}: {role} of {name!r} has embeddings of width {found[role]}, expected {expected}")
    if inner["decoder"][-1] != spec.width:
        raise ValueError(f"{where}: decoder of {name!r} gives width {inner['decoder'][-1]}, expected {spec.width}")
    hidden = config.get(name, {}).get("hidden_dims")
    for role in ROLES:
        wanted = hidden if role == "encoder" or hidden is None else hidden[::-1]
        if wanted is not None and inner[role][:-1] != wanted:
            raise ValueError(
                f"{where}: {role} of {name!r} has hidden widths {inner[role][:-1]}, but its entry asks for {wanted}"
            )


def to_checkpoint(
    specs: Mapping[str, DescriptorSpec],
    networks: Mapping[str, NormedLayers],
    embedding_width: int,
    epoch: int,
    where: str,
    space: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A model -> the content of a checkpoint that their code loads strictly, and the configuration it needs.

    Layers without a norm (those of a model file, where norms are folded) get one that gives back its input: mean 0,
    variance 1, and scale sqrt(1 + epsilon), which takes out what epsilon changes.

    Args:
        specs: descriptors by name.
        networks: 'encoder/<name>' and 'decoder/<name>' -> layers as `fold` takes them.
        embedding_width: E.
        epoch: number of the epoch, for the record.
        where: the model, for error messages.
        space: name of its joint space, which an import of the file gives back; None to let it have one of its own.

    Returns:
        Content for `pytorch.write`, and the configuration, which 'args' holds too.

    Raises:
        ValueError: pair networks, or a decoder's hidden widths that are not its encoder's in reverse.
    """
    hidden: dict[str, list[int]] = {}
    for name in specs:
        found: dict[str, list[int]] = {}
        for role in ROLES:
            if f"{role}/{name}" not in networks:
                raise ValueError(
                    f"{where}: no network '{role}/{name}', which their format needs; it has {', '.join(networks)}"
                )
            found[role] = [len(layer["bias"]) for layer in networks[f"{role}/{name}"]][:-1]
        if found["decoder"] != found["encoder"][::-1]:
            raise ValueError(
                f"{where}: {name!r} has hidden widths {found['encoder']} and {found['decoder']}, but their format has "
                "the decoder's as the encoder's in reverse"
            )
        hidden[name] = found["encoder"]
    config = to_config(specs, hidden, embedding_width)
    content: dict[str, Any] = {
        "args": argparse.Namespace(features=[their_name(name, specs) for name in specs], **{CONFIG: config}),
        "epoch_idx": epoch,
    }
    for role in ROLES:
        content[f"{role}s"] = [
            (their_name(name, specs), _state(networks[f"{role}/{name}"])) for name in specs
        ]  # fmt: skip
    if space is not None:  # `args` holds the configuration itself, so that both say it
        encoders = dict(content["encoders"])
        read = {
            f"encoder/{name}": fold(read_layers(encoders[their_name(name, specs)], f"{where}: encoder of {name!r}"))
            for name in specs
        }
        config |= {SPACE: space, ENCODERS: space_id(read)}
    return content, config


def _state(layers: NormedLayers) -> dict[str, np.ndarray]:
    state: dict[str, np.ndarray] = {}
    for i, layer in enumerate(layers):
        linear, norm = f"network.{3 * i}", f"network.{3 * i + 1}"
        state |= {f"{linear}.weight": layer["kernel"].T, f"{linear}.bias": layer["bias"]}
        if i == len(layers) - 1:
            break
        ones = np.ones(len(layer["bias"]))
        same = {"scale": ones * math.sqrt(1 + BN_EPSILON), "offset": 0 * ones, "mean": 0 * ones, "var": ones}
        state |= {f"{norm}.{parameter}": layer.get(name, same[name]) for name, parameter in _NORM.items()}
        state[f"{norm}.num_batches_tracked"] = np.array(0)  # counts for norms without momentum alone
    return {
        name: np.ascontiguousarray(value, np.float32 if value.dtype.kind == "f" else np.int64)
        for name, value in state.items()
    }


def _plain(value: Any) -> Any:
    """What JSON can hold of a checkpoint's settings; anything else as text."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def _found_hash(out: Path) -> str | None:
    try:
        return model_file.load(out).provenance.get("import_hash")
    except (OSError, ValueError):
        return None


def _print(checkpoint: Path, out: Path, bundle: Bundle) -> None:
    facts = {"joint space": bundle.space_id, "embedding width": bundle.embedding_width}
    console.figures(f"{checkpoint} -> {out}", facts)
    rows = []
    for theirs, name in bundle.provenance["names"].items():
        spec = bundle.specs[name]
        hidden = " ".join(str(len(bias)) for _, bias in bundle.networks[f"encoder/{name}"][:-1])
        rows.append((theirs, name, spec.width, hidden, spec.output, "yes" if spec.normalized else "no"))
    console.table("descriptors", ("in the file", "here", "width", "hidden", "output", "unit length"), rows)
    console.result(out, figures=out.with_name(out.name + ".json"))
