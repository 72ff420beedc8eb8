"""Ratio thresholds that belong to a model: at which first-to-second distance ratio its rows match.

In: the ratios of a model file, and what feature files say about the origin of their rows. Out: attributes of
a translated file, and the ratio at which two files match. Translated rows crowd together, so what is tuned on
a native descriptor is wrong for them. All ratios are on the L2 scale (see `nearest.metric_ratio`); keys are
    a        rows of `a` with rows of `a`
    a->b     rows of `a` translated to `b`, with native rows of `b`
    a|b      embeddings of `a` with embeddings of `b`
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from xdesc_jax.files.whole import parse_json

if TYPE_CHECKING:
    from xdesc_jax.descriptors import DescriptorSpec
    from xdesc_jax.features.store import FeatureStore

Mode = Literal["native", "translated", "joint"]
_SIGNS: dict[Mode, str] = {"translated": "->", "joint": "|"}
DEFAULT = 0.9  # the usual one for native descriptors
TRANSLATED_FROM, RATIOS = "translated_from", "ratios"  # attributes of a translated feature file


def key(mode: Mode, source: str, target: str) -> str:
    """The name of a ratio, or of another figure of two descriptors; see the module."""
    return source if mode == "native" else f"{source}{_SIGNS[mode]}{target}"


def parted(name: str) -> tuple[Mode, str, str]:
    """What `key` made a name of; of rows that were translated twice, 'a->b->c', the source is 'a->b'."""
    for mode, sign in _SIGNS.items():
        source, found, target = name.rpartition(sign)
        if found:
            return mode, source, target
    return "native", name, name


def possible(networks: Iterable[str]) -> set[str]:
    """Keys that a model of these networks (named as in a model file) can have."""
    parts = [name.split("/") for name in networks]
    encoders = [part[1] for part in parts if part[0] == "encoder"]
    decoders = [part[1] for part in parts if part[0] == "decoder"]
    routes = [(s, t) for s in encoders for t in decoders if s != t]
    routes += [(part[1], part[2]) for part in parts if part[0] == "pair"]
    names = {*encoders, *decoders, *(name for route in routes for name in route)}
    joint = {key("joint", s, t) for s in encoders for t in encoders}
    return {key("translated", s, t) for s, t in routes} | joint | names


def kept(ratios: Mapping[str, float], networks: Iterable[str]) -> dict[str, float]:
    """Of a model's ratios those that one of these networks can have."""
    able = possible(networks)
    return {name: ratio for name, ratio in ratios.items() if name in able}


def check(ratios: Mapping[str, Any]) -> None:
    """Raises ValueError where these are no ratios by name, or one is no number over 0 and at most 1."""
    if not isinstance(ratios, Mapping):
        raise ValueError(f"ratios are {ratios!r}, expected numbers by name")
    for name, value in ratios.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
            raise ValueError(f"ratio of {name!r} is {value!r}, expected a number over 0 and at most 1")


def parse(text: Any, path: Path) -> dict[str, float]:
    """Calibrated ratios from an attribute of a file; none where it has none.

    Raises:
        ValueError: they are damaged.
    """
    try:
        found = parse_json(text) if text is not None else {}
        check(found)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: attribute {RATIOS!r} is {text!r}, expected ratios ({error})") from error
    return found


def origin(store: FeatureStore, target: DescriptorSpec, ratios: Mapping[str, float]) -> dict[str, str]:
    """Attributes that tell where the rows of a translated file come from.

    Args:
        store: the file that is translated, itself perhaps a translation.
        target: what it becomes.
        ratios: those of the model.

    Returns:
        `translated_from`, the descriptor that was extracted ('a->b' where it became `b` in between, which no
        ratio is calibrated for), and `ratios`, JSON of those that may serve to match the file.
    """
    source, kept = trace(store.spec, store.attributes.get(TRANSLATED_FROM), target, ratios)
    return {TRANSLATED_FROM: source, RATIOS: json.dumps(kept)}


def trace(
    spec: DescriptorSpec, translated_from: str | None, target: DescriptorSpec, ratios: Mapping[str, float]
) -> tuple[str, dict[str, float]]:
    """`origin` of rows of `spec`: what the translated ones come from, and the ratios that may serve to match them."""
    if translated_from is None:
        source = spec.name
    else:  # embeddings are halfway on the same route
        source = translated_from if spec.is_embedding else key("translated", translated_from, spec.name)
    if target.is_embedding:
        kept = {k: v for k, v in ratios.items() if parted(k)[0] == "joint" and source in parted(k)[1:]}
    else:
        kept = {k: v for k, v in ratios.items() if k == key("translated", source, target.name)}
    return source, kept


def again(rows: Iterable[tuple[DescriptorSpec, str | None]]) -> list[str]:
    """A warning where rows to translate are translations themselves, given what they hold and are translated from."""
    routes = {f"{before} -> {spec.name}" for spec, before in rows if before is not None and not spec.is_embedding}
    if not routes:
        return []
    text = f"rows are translations already ({', '.join(sorted(routes))}), and lose again what a translation loses"
    return [f"{text}; translate the file that these were made of, where it is at hand"]


def strictest(*files: Mapping[str, float]) -> dict[str, float]:
    """The rule for ratios of several files, those of queries and of a map included: of each key the smallest, so that
    what any was calibrated to keep out stays out. A model's own ratios go before them (see `routes.Router`)."""
    keys = dict.fromkeys(key for ratios in files for key in ratios)
    return {key: min(ratios[key] for ratios in files if key in ratios) for key in keys}
