"""A finished training of translators as plain numpy, ready to be exported.

In: a run directory. Out: a `TrainedModel`: the networks of a checkpoint with their batch norms, figures of the rows,
and where it all came from; with a frozen model, all of its members as they were, bit for bit.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xdesc_jax.config import ContextConfig, TrainConfig
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.files.fields import from_dict
from xdesc_jax.networks import frames as frame_form
from xdesc_jax.networks import mlp
from xdesc_jax.networks.context import OF_ROWS
from xdesc_jax.train.checkpoint import Position, load_state
from xdesc_jax.train.run_directory import figures_at, read_settings
from xdesc_jax.train.state import TrainState
from xdesc_jax.train.translators.distilled import pupils
from xdesc_jax.train.translators.frozen import freeze_members, load_frozen
from xdesc_jax.train.translators.inputs import Statistics
from xdesc_jax.train.translators.step import create_state
from xdesc_jax.translation import ratios
from xdesc_jax.translation.bundle import Bundle
from xdesc_jax.translation.deviation import RowStatistics

SETTINGS = ("config", "specs", "hash", "data", "init", "versions")  # of config.json, which loading needs


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A trained model as plain numpy, ready to be exported.

    Attributes:
        kind: 'encoder_decoder' or 'pair'.
        specs: descriptors by name.
        embedding_width: E; 0 for pair networks.
        networks: 'encoder/<name>', 'decoder/<name>' or 'pair/<source>/<target>' -> list of layers
            {kernel [N, M], bias [M]} and, but for the last, {scale, offset, mean, var} [M] of the batch norm
            that follows, epsilon 1e-5. They map canonical rows, whatever scale training used. 'context/<name>' -> the
            four layers of `networks.context`, for encoders that look at the photo's other rows.
        statistics: mean, deviation and spread over photos of the canonical rows of each descriptor.
        samples: up to 64 aligned training rows of each descriptor in stored form.
        config: the resolved configuration.
        provenance: data, steps, figures, versions.
        base: the model whose frozen networks are among these, and whose joint space it is; None where all are new.
        frame, harmonics, log2_sigma: of the joint space and the training's keypoints, see `Bundle`.
        sample_frames, sample_positions: of the keypoints of the samples [n, 2]; none where the networks take none.
        context: how encoders look at the photo's other rows; None where none does.
        space_id: the joint space that encoders learnt of another model; None where it is their own, or that of `base`.
    """

    kind: str
    specs: dict[str, DescriptorSpec]
    embedding_width: int
    networks: dict[str, list[dict[str, np.ndarray]]]
    statistics: dict[str, RowStatistics]
    samples: dict[str, np.ndarray]
    config: dict[str, Any]
    provenance: dict[str, Any]
    base: Bundle | None = None
    frame: str = frame_form.KEYPOINT
    harmonics: int = frame_form.HARMONICS
    log2_sigma: float | None = None
    sample_frames: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    sample_positions: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    context: ContextConfig | None = None
    space_id: str | None = None


def load_model(run: Path | str, which: str = "best") -> TrainedModel:
    """Reads the best or latest checkpoint of a run.

    Raises:
        FileNotFoundError: not a run directory.
        ValueError: no checkpoint yet, none that can be read, or an incomplete config.json.
    """
    run = Path(run)
    settings, (config, specs) = read_settings(run, "xdesc train", SETTINGS, _parsed)
    networks = mlp.build_networks(specs, config.model)
    base = load_frozen(run, settings)
    if base is not None:
        networks = freeze_members(networks, base, {})
    distilled = settings.get("distill")
    if distilled:
        networks = pupils(networks, distilled["looking"])
    fresh = jax.eval_shape(partial(create_state, networks, average=config.optimizer.ema > 0), jax.random.key(0))
    state, position = load_state(run, settings["hash"], fresh, which)
    statistics = Statistics.load(run / "statistics.npz")
    model = TrainedModel(
        kind=config.model.kind,
        specs=specs,
        embedding_width=config.model.embedding_width if config.model.kind == "encoder_decoder" else 0,
        networks={key: _layers(state, key, specs, statistics.scale) for key in networks.modules},
        statistics=_narrow(statistics.rows) if distilled else statistics.rows,
        samples=statistics.sample,
        sample_frames={} if statistics.frames is None else dict.fromkeys(specs, statistics.frames),
        sample_positions={} if statistics.positions is None else dict.fromkeys(specs, statistics.positions),
        context=config.model.context if networks.with_context else None,
        frame=networks.frame,
        log2_sigma=statistics.log2_sigma,
        harmonics=networks.harmonics,
        config=dataclasses.asdict(config),
        provenance=_provenance(run, settings, config, position) | ({"distilled": distilled} if distilled else {}),
        space_id=distilled["space_id"] if distilled else None,
    )
    return extend(model, base) if base is not None else model


def _narrow(statistics: dict[str, RowStatistics]) -> dict[str, RowStatistics]:
    """Without the covariance, which would be the half of a device's file."""
    return {name: dataclasses.replace(of, photo_covariance=None) for name, of in statistics.items()}


def _parsed(settings: dict[str, Any]) -> tuple[TrainConfig, dict[str, DescriptorSpec]]:
    specs = {name: DescriptorSpec.from_dict(fields) for name, fields in settings["specs"].items()}
    return from_dict(settings["config"], TrainConfig), specs


def _provenance(run: Path, settings: dict[str, Any], config: TrainConfig, position: Position) -> dict[str, Any]:
    # A model file travels: where the records lay is nobody's concern there.
    data = settings["data"] | {"path": Path(settings["data"]["path"]).name}
    return {
        "data": data, "init": settings["init"], "versions": settings["versions"],
        "config_hash": config.hash, "steps": position.step, "rows_seen": position.step * config.batch_size,
        "validation": figures_at(run, position.step),
    }  # fmt: skip


def _layers(
    state: TrainState, key: str, specs: dict[str, DescriptorSpec], scales: dict[str, float]
) -> list[dict[str, np.ndarray]]:
    """One network as layers, with the scale that training divides unnormalised descriptors by folded in."""
    params, stats = (state.weights[kind][key] for kind in ("params", "batch_stats"))
    count = sum(name.startswith("linear") for name in params)
    layers = []
    for i in range(count):
        layer = dict(params[f"linear{i}"])
        if f"norm{i}" in params:
            layer |= params[f"norm{i}"] | stats[f"norm{i}"]
            layer["bias"] = np.zeros(layer["kernel"].shape[1])  # none before a batch norm
        layers.append({k: np.array(v, np.float32) for k, v in layer.items()})
    role, source, *target = key.split("/")
    width = specs[source].width
    for i in OF_ROWS.get(role, ()):
        layers[i]["kernel"][:width] /= np.float32(scales[source])  # behind them stand those of frames
    if role in ("decoder", "pair"):
        factor = np.float32(scales[target[0] if target else source])
        layers[-1] = {k: v * factor for k, v in layers[-1].items()}
    return layers


def extend(model: TrainedModel, base: Bundle) -> TrainedModel:
    """The trained model with all members of `base`, those that took no part too, as they are there."""
    networks: dict[str, list[dict[str, np.ndarray]]] = {
        name: [{"kernel": kernel, "bias": bias} for kernel, bias in layers] for name, layers in base.weights().items()
    }
    frozen = {"members": list(base.specs), "space_id": base.space_id, "provenance": base.provenance}
    measured = _measured(model.provenance["validation"], base)
    return dataclasses.replace(
        model,
        specs=base.specs | model.specs,
        networks=networks | model.networks,
        statistics=model.statistics | base.statistics,
        sample_frames=base.sample.frames | model.sample_frames,
        sample_positions=base.sample.positions | model.sample_positions,
        context=base.context or model.context,
        log2_sigma=base.log2_sigma,
        samples=base.sample.inputs | model.samples,  # the run's own rows are aligned with the new descriptor's
        provenance=model.provenance | {"frozen": frozen, "validation": measured},
        base=base,
    )


def _measured(own: dict[str, Any], base: Bundle) -> dict[str, Any]:
    """The run's figures, and by pair those that the model had before of networks that it still holds."""
    before = base.provenance.get("validation")
    if not isinstance(before, dict):
        return own

    def stands(pair: str) -> bool:
        mode, source, target = ratios.parted(pair)
        role = "decoder" if mode == "translated" else "encoder"
        return f"encoder/{source}" in base.networks and f"{role}/{target}" in base.networks

    return {
        key: {pair: value for pair, value in before.get(key, {}).items() if stands(pair)} | of
        if isinstance(of, dict) else of
        for key, of in own.items()
    }  # fmt: skip
