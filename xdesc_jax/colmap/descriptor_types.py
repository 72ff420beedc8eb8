"""COLMAP's types of descriptors, and which of ours they are.

In: what a database says of an image's rows, or a spec. Out: the spec, or COLMAP's number. Rows of ALIKED lie there as
the bytes of float32 values (512 a row), those of SIFT as bytes; of whatever COLMAP has no type for, `own_tables` says
what it is.
"""

from __future__ import annotations

from xdesc_jax.descriptors import DescriptorSpec, get_spec

OTHER_TYPE, SIFT_TYPE = -1, 0
_TYPES = ("UNDEFINED", "SIFT", "ALIKED_N16ROT", "ALIKED_N32", "LOMA_B", "LOMA_B128")  # from -1 on
_NAMES = {SIFT_TYPE: "colmap-sift", 1: "aliked-n16rot", 2: "aliked-n32"}


def type_name(kind: int) -> str:
    """COLMAP's name of a type, as `pycolmap.FeatureExtractorType` has it; the number where it is not known here."""
    return _TYPES[kind - OTHER_TYPE] if 0 <= kind - OTHER_TYPE < len(_TYPES) else str(kind)


def typed_spec(kind: int, row_bytes: int) -> DescriptorSpec | None:
    """What rows of a type and of so many bytes are; None where the type does not say, or has other rows."""
    spec = get_spec(_NAMES[kind]) if kind in _NAMES else None
    return spec if spec is not None and _layout(spec)[0] == row_bytes else None


def type_of(spec: DescriptorSpec) -> int:
    """The type that COLMAP has for rows of a spec; `OTHER_TYPE` where it has none, or rows of another form."""
    for kind, name in _NAMES.items():
        if spec.name == name and _layout(spec) == _layout(get_spec(name)):
            return kind
    return OTHER_TYPE


def own_record(recorded: DescriptorSpec | None, kind: int | None) -> DescriptorSpec | None:
    """What our tables say of an image, unless COLMAP, which does not know of them, extracted its features anew.

    Args:
        recorded: as our tables say; None where they do not.
        kind: COLMAP's type of its descriptors; None where it has none.
    """
    if recorded is None or kind in (None, OTHER_TYPE, type_of(recorded)):
        return recorded
    return None


def _layout(spec: DescriptorSpec) -> tuple[int, str]:
    """Bytes of a row, and the dtype of its values."""
    return spec.stored_width * spec.stored_dtype.itemsize, spec.stored_dtype.name
