"""A space that lasts: descriptors trained into the joint space of a finished model, and decoders trained out of it.

In: a model file, what of it stays as it is, and the names to add, or to train anew. Out: the configuration of such a
run, its networks, of which some are fixed, and the model file kept with the run, from which they are exported (see
`trained`).
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xdesc_jax import console
from xdesc_jax.config import TrainConfig
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.files.fields import replaced
from xdesc_jax.files.whole import atomic, content_hash
from xdesc_jax.networks import mlp
from xdesc_jax.networks.frames import KEYPOINT
from xdesc_jax.networks.mlp import Networks
from xdesc_jax.train.translators.warmstart import scaled
from xdesc_jax.translation import ratios
from xdesc_jax.translation.bundle import Bundle, load
from xdesc_jax.translation.parity import ParitySample

FILE = "frozen.safetensors"  # the model file in the run directory, from which it is exported


def with_added(
    config: TrainConfig, held: Sequence[str] | None, bundle: Bundle | None, freeze: str, add: Sequence[str],
    decoders: Sequence[str] = (),
) -> TrainConfig:  # fmt: skip
    """The configuration with the descriptors of a run that adds to a model: its members, then the new ones.

    Args:
        config: its `descriptors` say which members take part; none for all that the records hold.
        held: the descriptors of the records; None where descriptors are computed from patches.
        bundle: the model of --init.
        freeze: 'all' or 'none'.
        add: names of new descriptors.
        decoders: of members, which learn on.

    Raises:
        ValueError: what does not go together.
    """
    if freeze not in ("all", "none"):
        raise ValueError(f"--freeze is {freeze!r}, expected 'all' or 'none'")
    if not add and not decoders:
        if freeze == "all":
            raise ValueError(
                "--freeze all leaves nothing to train; name new descriptors with --add, members with --retrain, or "
                "those whose decoders learn on with --decoders"
            )
        return config
    if bundle is None:
        raise ValueError(f"--add {' '.join(add)}: needs a model to add to, given with --init")
    _check_once("--add", add)
    if known := [name for name in add if name in bundle.specs]:
        raise ValueError(f"--add: the model already holds {known} (it holds {', '.join(bundle.specs)})")
    if held is not None and (missing := [name for name in add if name not in held]):
        raise ValueError(f"the records lack {missing}, which --add or --retrain names (they hold {', '.join(held)})")
    named = tuple(name for name in config.descriptors if name not in add)
    if strange := [name for name in named if name not in bundle.specs]:
        raise ValueError(f"descriptors: the model lacks {strange} (it holds {', '.join(bundle.specs)})")
    members = named or tuple(name for name in bundle.specs if held is None or name in held)
    if not members:
        raise ValueError(f"the records hold none of the model's {', '.join(bundle.specs)}, expected one or more")
    if freeze == "all" and bundle.kind != "encoder_decoder":
        raise ValueError(f"--freeze all: a model of kind {bundle.kind!r} has no joint space to add to")
    if missing := [name for name in decoders if name not in members]:
        raise ValueError(f"--decoders: {missing} are no members that take part (these are {', '.join(members)})")
    return dataclasses.replace(config, descriptors=(*members, *add))


def without(bundle: Bundle, names: Sequence[str]) -> Bundle:
    """The model without some of its members, in the same joint space.

    Raises:
        ValueError: names that it does not hold, that come twice, or all that it holds.
    """
    _check_once("--retrain", names)
    if missing := [name for name in names if name not in bundle.specs]:
        raise ValueError(f"--retrain: the model lacks {missing} (it holds {', '.join(bundle.specs)})")
    if names and set(names) == set(bundle.specs):
        raise ValueError("--retrain names all that the model holds: nothing is left to hold its joint space")

    def kept(held: dict[Any, Any]) -> dict[Any, Any]:
        """Of what is kept by descriptor, by network or by (source, target), what is of none of the names."""
        parts = {key: key if isinstance(key, tuple) else key.split("/") for key in held}
        return {key: value for key, value in held.items() if not set(parts[key]) & set(names)}

    networks, sample = kept(bundle.networks), bundle.sample
    return dataclasses.replace(
        bundle,
        specs=kept(bundle.specs),
        networks=networks,
        contexts=kept(bundle.contexts),
        statistics=kept(bundle.statistics),
        sample=ParitySample(*(kept(getattr(sample, field.name)) for field in dataclasses.fields(sample))),
        ratios=ratios.kept(bundle.ratios, networks),
    )


def without_decoders(bundle: Bundle, names: Sequence[str]) -> Bundle:
    """The model without the decoders of some of its members, in the same joint space, which encoders hold.

    Raises:
        ValueError: names whose decoders it does not hold, or that come twice.
    """
    _check_once("--decoders", names)
    keys = {f"decoder/{name}" for name in names}
    if missing := [name for name in names if f"decoder/{name}" not in bundle.networks]:
        raise ValueError(f"--decoders: the model has none of {missing} (it holds {', '.join(bundle.specs)})")
    networks = {name: layers for name, layers in bundle.networks.items() if name not in keys}
    translations = {ends: x for ends, x in bundle.sample.translations.items() if ends[1] not in names}
    sample = dataclasses.replace(bundle.sample, translations=translations)
    return dataclasses.replace(bundle, networks=networks, sample=sample, ratios=ratios.kept(bundle.ratios, networks))


def _check_once(option: str, names: Sequence[str]) -> None:
    """Raises ValueError where an option names a descriptor twice."""
    if len(set(names)) < len(names):
        raise ValueError(f"{option} {' '.join(names)}: names a descriptor twice")


def check_start(start: Bundle | None, freeze: str, add: Sequence[str]) -> None:
    """Raises ValueError where a model to start the added descriptors from holds none of them, or none are added."""
    if start is None:
        return
    if freeze != "all" or not add:
        raise ValueError(
            "--start is for descriptors that --freeze all --add or --retrain names; --init starts all others"
        )
    if not set(add) & set(start.specs):
        raise ValueError(f"--start: the model holds {sorted(start.specs)}, none of {list(add)}, which start from it")


def like(config: TrainConfig, bundle: Bundle, held: Mapping[str, DescriptorSpec]) -> TrainConfig:
    """The configuration with the model's frame of the space and context of encoders, where it leaves them open.

    Args:
        config: its `descriptors` take part; empty for all that the records hold.
        bundle: the model of --init.
        held: the descriptors of the records by name. Where none of those that take part could look at neighbours as
            the model's do, there is no context.
    """
    if config.model.frame == "auto":
        config = replaced(config, {"model.frame": bundle.frame, "model.harmonics": bundle.harmonics})
    if config.model.context.of == "none" and bundle.context is not None:
        names = [name for name in config.descriptors or held if name in held]
        if bundle.context.of == "keypoint" and all(held[name].frame != KEYPOINT for name in names):
            return config
        context = dataclasses.replace(bundle.context, least_share=config.model.context.least_share)
        config = replaced(config, {"model.context": context})
        told = f"{context.nearest} nearest and {context.larger} larger neighbours"
        console.info(f"--init: encoders look at {told}, as the model's do: --model.context.of none leaves that to it")
    return config


def freeze_members(networks: Networks, bundle: Bundle, scales: Mapping[str, float]) -> Networks:
    """The networks with those of the bundle fixed, for rows divided by `scales` (1 where not named)."""
    ones, held = dict.fromkeys(networks.names, 1.0), bundle.weights()
    layers = {
        name: [{"kernel": k, "bias": b} for k, b in scaled(bundle, name, ones | dict(scales))]
        for name in networks.modules
        if name in held
    }
    return mlp.freeze(networks, layers)


def keep_frozen(run: Path, init: Path) -> None:
    """Copies the model file into the run directory, so that the run can be exported without it."""
    if not (run / FILE).exists():
        with atomic(run / FILE) as temporary:
            shutil.copyfile(init, temporary)


def load_frozen(run: Path, settings: Mapping[str, Any]) -> Bundle | None:
    """What of a model a run leaves as it is; None where it trains all.

    Raises:
        ValueError: the file in the run directory is not the one that the run was started with.
    """
    if settings.get("freeze") != "all":
        return None
    path = run / FILE
    if (found := content_hash(path)) != settings["init"]:
        raise ValueError(f"{path}: has content hash {found}, expected {settings['init']}, with which the run began")
    return without_decoders(without(load(path), settings.get("retrain", ())), settings.get("decoders", ()))
