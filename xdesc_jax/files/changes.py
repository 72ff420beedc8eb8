"""How the configuration of a result that is there differs from the one that is asked for.

In: the JSON record of a result, which keeps its configuration, and the configuration of now. Out: the differences as
people read them, for the refusal of `whole.already_done`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from xdesc_jax.files.fields import differing
from xdesc_jax.files.whole import json_text, read_json

OTHER = "other content"
_SHOWN = 80  # characters of a value
_HASH = re.compile("[0-9a-f]{12}")  # as `whole.config_hash` and its like give


def changes(
    record: Path,
    found_hash: str | None,
    config: Mapping[str, Any],
    names: Mapping[str, Any] | None = None,
    *,
    kept: str | None = "config",
    hash_kept: str = "config_hash",
    names_kept: Collection[str] = (),
    called: Mapping[str, str] | None = None,
) -> str:
    """The fields in which a result's configuration and this one differ, as 'ratio: 0.8 -> 0.9; model: opencv -> mixed'.

    What is known by its content is told by the files' names, or as other content where these are the same.

    Args:
        record: JSON of the result, with the hash of its configuration.
        found_hash: of the configuration that the result was made with.
        config: that is asked for.
        names: option of a field of `config` -> how a person named it, for those that are hashes of files.
        kept: key of the record under which the configuration is; None: its fields lie in the record itself.
        hash_kept: key of the hash.
        names_kept: keys of the record under which such names are; of one in several, the last counts.
        called: field of `config` -> its option, where that has another name.

    Returns:
        '' where the record is none of this result, or of a version that kept no more than the hash, and where what
        differs is of the version itself.
    """
    try:
        found = read_json(record)
    except (OSError, ValueError):
        return ""
    if not isinstance(found, dict) or found.get(hash_kept) != found_hash:
        return ""
    before = {key: found[key] for key in config if key in found} if kept is None else found.get(kept)
    if not isinstance(before, dict) or not before:
        return ""
    names_before: dict[str, Any] = {}
    for key in names_kept:
        names_before |= part if isinstance(part := found.get(key), dict) else {}
    before, config = ({(called or {}).get(key, key): of for key, of in fields.items()} for fields in (before, config))
    return between(before, config, names_before, names or {})


def between(
    before: Mapping[str, Any],
    config: Mapping[str, Any],
    names_before: Mapping[str, Any] | None = None,
    names: Mapping[str, Any] | None = None,
) -> str:
    """`changes` from a configuration that is at hand, with the names of then."""
    before, now, names_before, names_now = (
        json.loads(json_text(value or {}, "configuration")) for value in (before, config, names_before, names)
    )
    lines = []
    for field in sorted({*before, *now}):
        a, b = (_told(told.get(field)) for told in (names_before, names_now))
        parts = differing({field: before.get(field)}, {field: now.get(field)})
        if parts and field in names_before and field in names_now and a != b:
            lines.append(f"{field}: {a} -> {b}")
        else:
            lines += [f"{name}: {_told_change(*values)}" for name, values in parts.items()]
    return "; ".join(lines)


def _told_change(before: Any, now: Any) -> str:
    a, b = _told(before), _told(now)
    return OTHER if a == b or _holds_hash(before) or _holds_hash(now) else f"{a} -> {b}"


def _told(value: Any) -> str:
    text = (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)
    half = (_SHOWN - 3) // 2  # the end of a path tells more than its middle
    return text if len(text) <= _SHOWN else f"{text[:half]}...{text[-half:]}"


def _holds_hash(value: Any) -> bool:
    """Whether a value is a hash of content, or a list or mapping with one."""
    if isinstance(value, (list, dict)):
        return any(map(_holds_hash, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and _HASH.fullmatch(value) is not None
