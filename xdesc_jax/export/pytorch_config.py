"""The configuration of the paper's PyTorch code, and which of our descriptors its names mean.

In: the JSON that lies beside its checkpoints, and the widths found in a checkpoint. Out: a spec for each
descriptor; and the way back. Weights alone do not say what follows the last layer, so the JSON does:

    {"use_bn": true, "emb_dim": 128, "emb_l2_norm": true, "emb_last_activation": null,
     "brief": {"descriptor_dim": 512, "hidden_dims": [1024, 1024], "l2_norm": false, "last_activation": "sigmoid"}, ...}

Three keys are ours. "xdesc" in an entry is the descriptor that the name means, by its name here or as all fields of a
spec; without it the authors' own names are known, and any other name is itself. "xdesc_space" names the joint space
of the weights, as long as they are those that "xdesc_encoders" is the digest of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from xdesc_jax.descriptors import DescriptorSpec, get_spec, registered

# Their BRIEF has our bit pattern and comparison; their SIFT is Kornia's of 2021.
KNOWN = {
    "brief": "brief",
    "sift-kornia": "sift-kornia05",
    "sift": "sift-kornia05",
    "hardnet": "hardnet",
    "sosnet": "sosnet",
}
_THEIRS = {"sift-kornia05": "sift-kornia"}  # ours -> theirs, where they differ

SPACE, ENCODERS = "xdesc_space", "xdesc_encoders"
_WHOLE = {
    "use_bn": bool, "emb_dim": int, "emb_l2_norm": bool, "emb_last_activation": str | None, SPACE: str, ENCODERS: str,
}  # fmt: skip
_ENTRY = {
    "descriptor_dim": int,
    "hidden_dims": list,
    "l2_norm": bool,
    "last_activation": str | None,
    "xdesc": str | dict,
}
_FINISH = ("l2_norm", "last_activation")  # what an entry must say of a descriptor that is not known


def check(config: Any, where: str) -> dict[str, Any]:
    """The configuration, if each of its values is one that the format has.

    Args:
        config: parsed JSON.
        where: its file, for error messages.

    Raises:
        ValueError: unknown keys, values of another type, or embeddings that are not plain rows of unit length.
    """
    if not isinstance(config, dict):
        raise ValueError(f"{where}: holds a {type(config).__name__}, expected an object with an entry per descriptor")
    for key, value in config.items():
        if isinstance(value, dict):
            _check_types(value, _ENTRY, f"{where}: entry {key!r}")
        else:
            _check_types({key: value}, _WHOLE, where)
    if not config.get("emb_l2_norm", True) or config.get("emb_last_activation"):
        found = {key: config.get(key) for key in ("emb_l2_norm", "emb_last_activation")}
        raise ValueError(f"{where}: {json.dumps(found)}, expected embeddings of unit length without activation")
    return config


def _check_types(values: Mapping[str, Any], types: Mapping[str, Any], where: str) -> None:
    for key, value in values.items():
        if key not in types:
            raise ValueError(f"{where}: unknown key {key!r}, expected some of {list(types)}")
        fits = isinstance(value, types[key]) and not (types[key] is int and isinstance(value, bool))
        if key == "hidden_dims" and fits:
            fits = all(type(width) is int for width in value)
        if not fits:
            expected = getattr(types[key], "__name__", types[key])
            raise ValueError(f"{where}: {key!r} is {json.dumps(value)}, expected {expected}")


def to_spec(name: str, width: int, hidden: Sequence[int], config: Mapping[str, Any], where: str) -> DescriptorSpec:
    """Which descriptor a name of a checkpoint means.

    Args:
        name: as in the checkpoint.
        width: values of the descriptor, as found in the weights.
        hidden: hidden widths of its encoder, as found.
        config: the checked configuration; may be empty.
        where: the files, for error messages.

    Raises:
        ValueError: an unknown name without an entry, or an entry that contradicts the weights or the spec.
    """
    entry = config.get(name, {})
    if isinstance(entry.get("xdesc"), dict):
        try:
            spec = DescriptorSpec.from_dict(entry["xdesc"])
        except (TypeError, ValueError) as error:
            raise ValueError(f'{where}: "xdesc" of {name!r} is no descriptor spec ({error})') from error
    elif "xdesc" in entry or name in KNOWN or (name in registered() and set(_FINISH) <= set(entry)):
        try:
            spec = get_spec(entry.get("xdesc", KNOWN.get(name, name)))
        except ValueError as error:
            raise ValueError(f'{where}: "xdesc" of {name!r}: {error}') from error
    elif set(_FINISH) <= set(entry):
        spec = _own(name, width, hidden, entry, where)
    else:
        example = {"descriptor_dim": width, "hidden_dims": list(hidden), "l2_norm": True, "last_activation": None}
        raise ValueError(
            f"{where}: nothing says what descriptor {name!r} is (known without an entry: {', '.join(KNOWN)}); write an "
            f"entry for it to the file given by --config, with the right values, as in: {json.dumps({name: example})}"
        )
    _check_entry(spec, name, width, entry, where)
    return spec


def _own(name: str, width: int, hidden: Sequence[int], entry: Mapping[str, Any], where: str) -> DescriptorSpec:
    """The spec of a descriptor that only the entry describes."""
    output = (entry["last_activation"] or "none").lower()
    if output not in ("none", "relu", "sigmoid"):
        raise ValueError(f"{where}: 'last_activation' of {name!r} is {output!r}, expected null, 'relu' or 'sigmoid'")
    kind = "binary" if output == "sigmoid" else "real"
    try:
        return DescriptorSpec(
            name,
            width,
            kind,  # type: ignore[arg-type]
            normalized=entry["l2_norm"],
            hidden=tuple(hidden),
            output=output,  # type: ignore[arg-type]
        )
    except ValueError as error:
        raise ValueError(f"{where}: entry {name!r}: {error}") from error


def _check_entry(spec: DescriptorSpec, name: str, width: int, entry: Mapping[str, Any], where: str) -> None:
    if spec.width != width:
        raise ValueError(f"{where}: {name!r} has width {width}, but the descriptor {spec.name!r} has {spec.width}")
    if entry.get("descriptor_dim", width) != width:
        raise ValueError(f"{where}: {name!r} has width {width}, but its entry says {entry['descriptor_dim']}")
    expected = _finish(spec)
    for key in _FINISH:
        found = entry.get(key, expected[key])
        if (found.lower() if isinstance(found, str) else found) != expected[key]:
            raise ValueError(
                f"{where}: entry {name!r} has {key} {json.dumps(found)}, but the descriptor {spec.name!r} has "
                f'{json.dumps(expected[key])}; if it is another, name it with "xdesc"'
            )


def _finish(spec: DescriptorSpec) -> dict[str, Any]:
    return {"l2_norm": spec.normalized, "last_activation": None if spec.output == "none" else spec.output}


def their_name(name: str, names: Mapping[str, Any]) -> str:
    """What a descriptor is called in their files, unless another of `names` has that name."""
    theirs = _THEIRS.get(name, name)
    return name if theirs in names else theirs


def to_config(
    specs: Mapping[str, DescriptorSpec], hidden: Mapping[str, Sequence[int]], embedding_width: int
) -> dict[str, Any]:
    """The configuration from which their code builds the networks of these descriptors.

    Args:
        specs: by our names.
        hidden: hidden widths of each encoder; its decoder has them in reverse.
        embedding_width: E.
    """
    config: dict[str, Any] = {
        "use_bn": True, "emb_dim": embedding_width, "emb_l2_norm": True, "emb_last_activation": None,
    }  # fmt: skip
    for name, spec in specs.items():
        config[their_name(name, specs)] = {
            "descriptor_dim": spec.width,
            "hidden_dims": list(hidden[name]),
            **_finish(spec),
            "xdesc": spec.to_dict(),
        }
    return config
