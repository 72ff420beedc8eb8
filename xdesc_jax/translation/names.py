"""What the name of a descriptor means where a model is at hand: the model's own descriptors go before the registry.

In: a name, and the model that was given, if any. Out: its spec. A descriptor that was added from files is known by its
model alone. Imports numpy alone.
"""

from __future__ import annotations

from typing import Protocol

from xdesc_jax.descriptors import EMBEDDING_PREFIX, DescriptorSpec, get_spec
from xdesc_jax.translation.translator import EMBEDDING


class Names(Protocol):
    """What is asked of a translator; `xdesc_jax.translation.translator.Translator` is one."""

    @property
    def names(self) -> list[str]: ...
    def spec(self, name: str) -> DescriptorSpec: ...
    def describe(self) -> str: ...


def named_spec(name: str, model: Names | None = None) -> DescriptorSpec:
    """The spec of a descriptor or of the model's joint space.

    Args:
        name: of a descriptor; 'embedding' or 'embedding:<space id>' for the joint space.
        model: what was given by --model; None where nothing was.

    Raises:
        ValueError: neither the model nor the registry knows it, or another joint space than the model's.
    """
    if model is not None and (name in model.names or name == EMBEDDING or name.startswith(EMBEDDING_PREFIX)):
        return model.spec(name)
    try:
        return get_spec(name)
    except ValueError as error:
        where = f"the model has {model.describe()}" if model is not None else "one of your own needs its --model"
        raise ValueError(f"{error}; {where}") from error
