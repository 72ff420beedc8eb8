"""Copies of a model with smaller weights, and the joint space that their embeddings are of.

In: a model as its file holds it. Out: what its weights were rounded to, and whose joint space it is of. A copy keeps
the space of the model that it was made of: its embeddings differ from the other's by a rounding, far less than those of
one point in two photos do, so both match each other. Copies of older versions have a space of their own.
"""

from __future__ import annotations

from typing import Any

from xdesc_jax.translation.bundle import Bundle

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
