"""Models of one joint space: copies with smaller weights, and those that add descriptors to another.

In: a model as its file holds it. Out: what its weights were rounded to, and whose joint space it is of. A copy keeps
the space of the model that it was made of: its embeddings differ from the other's by a rounding, far less than those of
one point in two photos do, so both match each other. Copies of older versions have a space of their own.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from xdesc_jax.translation.bundle import Bundle, form_of

WEIGHTS, SPACE_OF = "weights", "space_of"  # entries of the provenance, and of the one of these


def record(dtype: str, space_id: str | None) -> dict[str, Any]:
    """What the provenance of a copy in `dtype` says: its weights, and the space that it keeps (None: it has none)."""
    return {"dtype": dtype, SPACE_OF: space_id}


def rounded_to(bundle: Bundle) -> str | None:
    """The dtype that a copy's weights were rounded to; None where the model is no copy, or does not say."""
    about = bundle.provenance.get(WEIGHTS)
    dtype = about.get("dtype") if isinstance(about, dict) else None
    return dtype if isinstance(dtype, str) else None


def keeps_space(bundle: Bundle) -> bool:
    """Whether a copy says that it is of the joint space of the model that it was made of."""
    return rounded_to(bundle) is not None and bundle.provenance[WEIGHTS].get(SPACE_OF) is not None


def described(bundle: Bundle) -> str | None:
    """What people are told of a copy; None where the model is none."""
    dtype = rounded_to(bundle)
    if dtype is None:
        return None
    if bundle.space_id is None:
        return dtype
    if keeps_space(bundle):
        return f"{dtype}, a copy in the joint space of the model that it was made of"
    return f"{dtype}, a copy of an older version, whose joint space may be its own"


def other_space_hint(bundle: Bundle) -> str:
    """What helps where embeddings of another space meet a copy of an older version; '' for any other model."""
    dtype = rounded_to(bundle)
    if dtype is None or keeps_space(bundle):
        return ""
    return (
        f"; its {dtype} weights were exported by an older version, which gave copies a space of their own: export them "
        "again from the model of that space"
    )


def inherit_space(bundle: Bundle, base: Bundle) -> Bundle:
    """The bundle under the name of the joint space of `base`, which it extends by other descriptors.

    Embeddings of the two match each other because their common members compute the same numbers: what `base`
    holds must be here unchanged, and so its ratios hold on, too. This is the one way to a space id that is not
    derived from the encoders.

    Raises:
        ValueError: a spec or network of `base` is missing or differs.
    """
    if (bundle.frame, bundle.harmonics) != (base.frame, base.harmonics):
        raise ValueError(f"the space is of frame {bundle.frame!r}, expected {base.frame!r} as space {base.space_id}")
    if base.context is not None and form_of(bundle.context) != (form := form_of(base.context)):
        raise ValueError(f"context is {form_of(bundle.context)}, expected {form} as in space {base.space_id}")
    for name, spec in base.specs.items():
        if bundle.specs.get(name) != spec:
            raise ValueError(f"{name!r} is {bundle.specs.get(name)}, expected as in space {base.space_id}: {spec}")
    weights = bundle.weights()
    for name, layers in base.weights().items():
        expected = [array for layer in layers for array in layer]
        found = [array for layer in weights.get(name, []) for array in layer]
        if len(found) != len(expected) or not all(map(np.array_equal, found, expected)):
            raise ValueError(f"network {name!r} differs from that of space {base.space_id}")
    return dataclasses.replace(bundle, space_id=base.space_id, ratios=base.ratios | bundle.ratios)
