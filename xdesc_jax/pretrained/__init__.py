"""Files that ship with the package: translators, and weights of the package's own learned descriptors.

In: a name, or the path of a user's own file. Out: the path of the file and its card. Each is a pair in this
folder: `NAME.safetensors` and `NAME.json`, the card, which says where the file comes from and what it reaches.
Imports the standard library alone.

A card is a JSON object; it may hold more than this:
    name            as the file's
    kind            'translator' or 'weights' (of the descriptor `name`)
    descriptors     names of those that it translates between, or computes
    keypoints       detector of its training data: 'colmap' or 'opencv'
    data            what it was trained on
    rows, pairs     of a translator, of weights: how many of them
    steps           of the optimiser
    hardware, date  that and when it was trained
    config_hash     of the training configuration
    command         that makes the file
    limits          what works less well, where that is told
    figures         data set -> table of AP (average precision):
        {"native": {descriptor: AP}, "translation": {"source->target": AP}, "joint": {"query|database": AP}}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from xdesc_jax.console.words import did_you_mean
from xdesc_jax.files import dry_run
from xdesc_jax.files.whole import read_json
from xdesc_jax.pretrained import hub

FOLDER = Path(__file__).parent
KINDS = ("translator", "weights")
KEYS = {
    **dict.fromkeys(("name", "kind", "keypoints", "data", "hardware", "date", "config_hash", "command"), str),
    **{"descriptors": list, "steps": int, "figures": dict},
}

Kind = Literal["translator", "weights"]


def names(kind: Kind | None = None) -> list[str]:
    """Names of the shipped files, sorted; of one kind where it is given."""
    found = sorted(file.stem for file in FOLDER.glob("*.safetensors"))
    return [name for name in found if kind is None or card(name)["kind"] == kind]


def find(name: str, kind: Kind | None = None) -> Path | None:
    """The shipped file of that name; None where none ships, or one of another kind. Reads its card alone."""
    file = FOLDER / f"{name}.safetensors"
    if file.parent != FOLDER or not file.is_file():
        return None
    if kind is not None and card(name)["kind"] != kind:
        return None
    dry_run.read(file)
    return file


def path(name: str, kind: Kind | None = None) -> Path:
    """The shipped file of that name.

    Raises:
        FileNotFoundError: none of that name and kind; suggests near names and lists what there is.
    """
    if (file := find(name, kind)) is None:
        raise FileNotFoundError(f"no {kind or 'file'} {name!r} ships with the package{_near(name, names(kind))}")
    return file


def card(name: str) -> dict[str, Any]:
    """What is known of a shipped file (see the module for its keys).

    Raises:
        FileNotFoundError: the file has no card.
        ValueError: the card lacks a key, or holds a value of another type; names both.
    """
    file = FOLDER / f"{name}.json"
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such card")
    found = read_json(file)
    for key, kind in KEYS.items():
        if not isinstance(found, dict) or not isinstance(found.get(key), kind):
            held = repr(found.get(key)) if isinstance(found, dict) else f"a {type(found).__name__}"
            raise ValueError(f"{file}: {key!r} is {held}, expected a {kind.__name__}")
    if found["name"] != name or found["kind"] not in KINDS:
        raise ValueError(f"{file}: is of {found['kind']} {found['name']!r}, expected {' or '.join(KINDS)} {name!r}")
    count = "rows" if found["kind"] == "translator" else "pairs"
    if not isinstance(found.get(count), int):
        raise ValueError(f"{file}: {count!r} is {found.get(count)!r}, expected a number of {count}")
    return found


def resolve(model: Path | str, kind: Kind = "translator", *, or_run: bool = False) -> Path:
    """A user's own file, or else the shipped one of that name, or else the translator of the hub (see `hub`).

    Args:
        model: path of a file, or a name. A folder is no file: one named `colmap` does not hide the model.
        kind: of the shipped file.
        or_run: a run directory could have been meant as well, for the error.

    Raises:
        FileNotFoundError: none of them; suggests near names and lists what there is.
        ValueError: a folder.
    """
    own = Path(model)
    if own.is_file():
        return own
    if (shipped := find(str(model), kind)) is not None:
        return shipped
    if kind == "translator" and not own.exists() and (downloaded := hub.find(model)) is not None:
        return downloaded
    if own.is_dir():
        made = " (xdesc export makes one of a run directory)" if kind == "translator" else ""
        raise ValueError(f"{own}: is a folder, expected a {'model' if kind == 'translator' else 'weight'} file{made}")
    what = f"{'run directory or ' if or_run else ''}{'model' if kind == 'translator' else 'weight'}"
    raise FileNotFoundError(
        f"{own}: no such {what} file, nor one that ships with the package{_near(str(model), names(kind))}"
    )


def _near(name: str, known: list[str]) -> str:
    """Near names as a question, of a path only its very name, and what there is."""
    named = Path(name)
    if named.name != name or named.suffix:
        hint = did_you_mean(named.stem, known, cutoff=1)
    else:
        hint = did_you_mean(name, known, cutoff=0.7)
    return f"{hint} (there {'are ' + ', '.join(known) if known else 'is none'})"
