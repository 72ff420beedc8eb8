"""What every training does with its run directory.

In: a folder, settings and checkpoints. Out: the folder cleared or found to be of this very run, the settings in its
`config.json`, the figures in its `validation.json`, and the state to go on from.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from xdesc_jax import console
from xdesc_jax.files import claim, dry_run
from xdesc_jax.files.fields import differences
from xdesc_jax.files.whole import making, read_json, write_json
from xdesc_jax.train import hosts
from xdesc_jax.train.checkpoint import Checkpoints, Position
from xdesc_jax.train.state import TrainState

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
_SHOWN = 80  # characters of an entry
SETTINGS, VALIDATION = "config.json", "validation.json"
Parsed = TypeVar("Parsed")


@contextlib.contextmanager
def claimed(run: Path, work: str) -> Iterator[None]:
    """Only this training works in the folder while the body runs; of several hosts, host 0 sees to it.

    Args:
        run: the run directory.
        work: the stage, as 'xdesc train'.

    Raises:
        InUse: another training does.
    """
    with claim.claimed(claim.inside(run), work, run) if hosts.is_lead() else contextlib.nullcontext():
        yield


def clear(run: Path, overwrite: bool, *, file: str = SETTINGS, kind: str = "run") -> None:
    """Discards a run where `overwrite`; raises FileExistsError for a folder of something else.

    Args:
        run: the folder.
        overwrite: whether to discard it.
        file: of its settings, by which it is known.
        kind: what it is called.
    """
    passing = (".partial", claim.SUFFIX)
    if run.exists() and not (run / file).exists() and any(p.suffix not in passing for p in run.iterdir()):
        raise FileExistsError(f"{run}: is not empty and holds no {kind}; choose another folder")
    if overwrite and hosts.is_lead() and run.exists():
        making(run)
        # The settings go last: without them, what a killed process left would not be known as a run.
        for path in sorted(run.iterdir(), key=lambda path: path.name == file):
            if path.suffix != claim.SUFFIX:  # with which this process holds the folder
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def keep_settings(
    run: Path,
    settings: dict[str, Any],
    decisive: Callable[[dict[str, Any]], Sequence[Any]],
    *,
    file: str = SETTINGS,
    progress: Callable[[], tuple[int, int, str]] | None = None,
) -> str:
    """Writes the settings with the versions of the libraries, or compares them with what is there.

    Args:
        run: the run directory.
        settings: what is kept; `hash` identifies the run.
        decisive: settings -> those parts, each by name, whose differences are told where the hash is another.
        file: where they are, in the folder.
        progress: how far it came, as 3, 5, 'epochs' have ended; by default by the epochs that were measured.

    Returns:
        The hash.

    Raises:
        ValueError: the run was started with other settings, and says which; or its settings are damaged.
    """
    path = run / file
    if not path.exists():
        making(run)
        versions = {name: importlib.metadata.version(name) for name in PACKAGES}
        write_json(path, {**settings, "versions": versions})
        return settings["hash"]
    found = read_json(path)
    try:
        difference = _difference(run, file, found, settings, decisive) if found["hash"] != settings["hash"] else None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        told = repr(found)[:_SHOWN]
        raise ValueError(f"{path}: holds {told}, expected settings as this stage keeps them; damaged?") from error
    if difference is not None:
        refusal = ValueError(difference)
        dry_run.output(run, dry_run.REFUSED, refusal)
        raise refusal
    if dry_run.active():
        done, planned, what = progress() if progress else _epochs(run, settings)
        dry_run.remark(f"{done} of {planned} {what} have ended")
        dry_run.output(run, dry_run.FINISHED if done >= planned else dry_run.CONTINUED)
    return settings["hash"]


def _epochs(run: Path, settings: dict[str, Any]) -> tuple[int, int, str]:
    return max((entry["epoch"] for entry in history(run)), default=0), settings["config"]["epochs"], "epochs"


def _difference(
    run: Path,
    file: str,
    found: dict[str, Any],
    settings: dict[str, Any],
    decisive: Callable[[dict[str, Any]], Sequence[Any]],
) -> str:
    """Why a run cannot go on with these settings."""
    if file == SETTINGS and (lacking := _lacking(found.get("config", {}), settings["config"])):
        return (
            f"{run}: was started by another stage or an earlier version, whose configuration has no "
            f"{', '.join(lacking)}; it cannot go on with this one. Choose another folder; what was trained here can be "
            "exported, and is a start with --init"
        )
    parts = zip(decisive(found), decisive(settings), strict=True)
    what = "; ".join(line for old, new in parts for line in differences(old, new))
    return f"{run}: was started with other settings ({what}); pass --overwrite or another folder"


def _lacking(found: dict[str, Any], expected: dict[str, Any], prefix: str = "") -> list[str]:
    """Fields of a configuration that an earlier version did not have."""
    names = []
    for name, value in expected.items():
        if name not in found:
            names.append(prefix + name)
        elif isinstance(value, dict) and isinstance(found[name], dict):
            names += _lacking(found[name], value, f"{prefix}{name}.")
    return names


def read_settings(
    run: Path, stage: str, keys: Sequence[str], parse: Callable[[dict[str, Any]], Parsed]
) -> tuple[dict[str, Any], Parsed]:
    """The settings that a run was made with.

    Args:
        run: the run directory.
        stage: the words that make such runs.
        keys: that its settings have.
        parse: settings -> what they say, as this version has it.

    Returns:
        The settings as they are kept, and parsed.

    Raises:
        FileNotFoundError: not a run directory.
        ValueError: the run of something else, or of a version whose configuration was another one.
    """
    path = run / SETTINGS
    if not path.exists():
        raise FileNotFoundError(f"{run}: not a run directory (no {SETTINGS}); see `{stage}`")
    settings = read_json(path)
    if not isinstance(settings, dict):
        raise ValueError(f"{path}: is a JSON {type(settings).__name__}, expected the settings of `{stage}`")
    if lacking := [key for key in keys if key not in settings]:
        raise ValueError(f"{path}: not of `{stage}`, lacks {lacking}, expected the keys {list(keys)}")
    try:
        return settings, parse(settings)
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # the dataclasses name the key
        raise ValueError(f"{path}: not a configuration of this version ({error})") from error


def history(run: Path) -> list[dict[str, Any]]:
    """Validation figures after each epoch, with its `step` and `epoch`.

    Raises:
        ValueError: the file is damaged.
    """
    path = run / VALIDATION
    entries = read_json(path) if path.exists() else []
    for entry in entries if isinstance(entries, list) else [entries]:
        found = [entry.get(key) for key in ("step", "epoch")] if isinstance(entry, dict) else [None]
        if not all(type(number) is int for number in found) or entry is entries:
            told = repr(entry)[:_SHOWN]
            raise ValueError(f"{path}: holds {told}, expected figures of epochs, each with its 'step' and 'epoch'")
    return entries


def figures_at(run: Path, step: int) -> dict[str, Any] | None:
    """Validation figures of a step; None where it was not measured."""
    return next((entry for entry in history(run) if entry["step"] == step), None)


def figure_told(value: float | str | None, digits: int = 3) -> str:
    """A figure of a history for a table; one that was not finite is null in the file."""
    if value is None:
        return "not finite"
    return value if isinstance(value, str) else f"{value:.{digits}f}"


def append_validation(run: Path, entry: dict[str, Any]) -> None:
    """Adds the figures of an epoch, in place of any of the same step or later."""
    write_json(run / VALIDATION, [e for e in history(run) if e["step"] < entry["step"]] + [entry])


def resumed(checkpoints: Checkpoints, like: TrainState) -> tuple[TrainState, Position] | None:
    """The latest good checkpoint, later ones set aside; None where the run has none."""
    found = checkpoints.restore(like)
    if found is not None:
        checkpoints.set_aside_after(found[1].step)
        at = found[1]
        console.info(f"going on from step {at.step:,} (epoch {at.epoch}, batch {at.batch:,})")
    return found
