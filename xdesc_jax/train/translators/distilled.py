"""Small encoders for devices: trained to give what those of a finished model give, in its joint space.

In: a model file, the teacher, and a configuration, whose widths are the pupils'. Out: the configuration of such a run,
and its networks: encoders of the descriptors that both know, which learn, and the teacher's, which stay as they are.
What a device embeds with the one then matches what a server embeds with the other.

The loss is that of translations, squared distances of unit rows: FitNets' regression of a teacher's layer (Romero et
al., ICLR 2015), here of the last one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from xdesc_jax.config import ContextConfig, LossConfig, TrainConfig
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.files.fields import differing, leaves, replaced
from xdesc_jax.networks import mlp
from xdesc_jax.networks.mlp import Networks
from xdesc_jax.train.translators.frozen import freeze_members
from xdesc_jax.translation.bundle import Bundle


def taught(config: TrainConfig, held: Mapping[str, DescriptorSpec], teacher: Bundle) -> TrainConfig:
    """The configuration of a run whose encoders learn from those of `teacher`.

    Args:
        config: its `descriptors` say which; empty for all that the records hold and the teacher embeds.
        held: the descriptors of the records by name.
        teacher: the model; gives frame, harmonics and width of the joint space, and how many neighbours both look at.

    Raises:
        ValueError: a teacher or a configuration of pairs, settings of a loss, of which none is computed, or descriptors
            that the teacher does not embed, or knows otherwise than the records.
    """
    if teacher.kind != "encoder_decoder" or config.model.kind != "encoder_decoder":
        raise ValueError("--distill: pair networks have no joint space, expected a model of encoders and decoders")
    if config.inputs == "patches":
        raise ValueError("--distill: inputs is 'patches', expected 'columns', rows as the teacher takes them")
    if idle := differing(dataclasses.asdict(LossConfig()), dataclasses.asdict(config.loss), "loss."):
        told = ", ".join(f"{name} {value}" for name, (_, value) in idle.items())
        raise ValueError(
            f"--distill: settings of the loss have no effect ({told}): encoders learn the distance to the model's "
            "embeddings; leave them at their defaults"
        )
    embedded = [name for name in teacher.specs if f"encoder/{name}" in teacher.networks]
    if strange := [name for name in config.descriptors if name not in embedded]:
        raise ValueError(f"--distill: the model has no encoder of {strange}, it has those of {', '.join(embedded)}")
    names = config.descriptors or tuple(name for name in embedded if name in held)
    if not names:
        raise ValueError(f"--distill: the records hold none of the model's {', '.join(embedded)}")
    if other := [name for name in names if name in held and held[name] != teacher.specs[name]]:
        name = other[0]
        raise ValueError(f"--distill: the model's {name!r} is {teacher.specs[name]}, the data's is {held[name]}")
    of_space: dict[str, Any] = {
        "descriptors": names, "model.frame": teacher.frame, "model.harmonics": teacher.harmonics,
        "model.embedding_width": teacher.embedding_width,
    }  # fmt: skip
    if teacher.context is not None:
        of_space |= {f"model.context.{name}": getattr(teacher.context, name) for name in ("nearest", "larger")}
    given, default = leaves(config), leaves(TrainConfig())
    others = [name for name in of_space if given[name].value not in (of_space[name], default[name].value)]
    if others:
        told = ", ".join(f"{name} {given[name].value}, the model's is {of_space[name]}" for name in others)
        raise ValueError(f"--distill: the joint space is the model's ({told}); leave these at their defaults")
    return replaced(config, of_space)


def with_teacher(networks: Networks, config: TrainConfig, teacher: Bundle, scales: Mapping[str, float]) -> Networks:
    """The encoders of the networks, with the teacher's for rows divided by `scales`."""
    looking = teacher.contexts.keys() & set(networks.names)
    context = teacher.context if looking and teacher.context is not None else ContextConfig()
    model = dataclasses.replace(config.model, context=context)
    frozen = freeze_members(mlp.build_networks(networks.specs, model), teacher, scales)
    return pupils(networks, tuple(teacher.contexts))._replace(teacher=frozen._replace(modules={}))


def pupils(networks: Networks, looking: Sequence[str]) -> Networks:
    """The networks without decoders; of the encoders, those of `looking` alone look at neighbours, if any do."""
    modules = {name: module for name, module in networks.modules.items() if not name.startswith("decoder/")}
    widths = dict(networks.input_widths)
    for name in networks.with_context:
        if name not in looking:
            encoder = f"encoder/{name}"
            modules.pop(mlp.context_key(encoder))
            widths[encoder] = widths[mlp.context_key(encoder)]
    return networks._replace(modules=modules, input_widths=widths)


def settings_of(teacher: Bundle, model_hash: str) -> dict[str, Any]:
    """What a run keeps of the teacher: which model, its joint space, and whose encoders look at neighbours."""
    return {"model": model_hash, "space_id": teacher.space_id, "looking": sorted(teacher.contexts)}
