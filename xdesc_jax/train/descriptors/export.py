"""The stage `xdesc export-descriptor`: a run directory -> float16 weights and their card.

In: a run of `xdesc train-descriptor`. Out: a .safetensors file under the names of the network's authors, which
`l2net.load_hardnet` and `load_sosnet` read, and a .json beside it that says how the weights came about. Nothing is
written where float16 does not hold them.
"""

from __future__ import annotations

import dataclasses
import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from xdesc_jax import __version__, console
from xdesc_jax.features.weights import write_arrays
from xdesc_jax.files.changes import changes
from xdesc_jax.files.fields import from_dict
from xdesc_jax.files.whole import already_done, config_hash, content_hash, read_json, recorded, write_json
from xdesc_jax.train.descriptors.config import DescriptorConfig

if TYPE_CHECKING:
    from xdesc_jax.features.l2net import L2Net
    from xdesc_jax.train.checkpoint import Position

SUFFIX = "-xdesc"  # our weights are never taken for the authors'
FLOAT16_DEVIATION = 0.01  # largest distance of unit descriptors that float16 weights may make
SETTINGS = ("config", "data", "init", "hash", "rows", "versions")  # of the run's config.json


class TrainedDescriptor(NamedTuple):
    """A network of a run, with where it was in training and the run's settings."""

    net: L2Net
    position: Position
    config: DescriptorConfig
    settings: dict[str, Any]


def export_descriptor(
    run: Path, out: Path, *, which: Literal["best", "latest"] = "best", overwrite: bool = False
) -> Path:
    """Run directory -> float16 weights, and a card that tells how they came about (OUT with .json).

    Args:
        run: what `xdesc train-descriptor` wrote.
        out: weight file to write (.safetensors).
        which: the checkpoint of the best validation figures, or the latest.
        overwrite: replace other weights.

    Returns:
        `out`.

    Raises:
        FileNotFoundError: not a run directory.
        FileExistsError: `out` holds other weights and `overwrite` is off.
        ValueError: no checkpoint, or weights that float16 does not hold.
    """
    run, out = Path(run), Path(out)
    if out.suffix != ".safetensors":
        raise ValueError(f"{out}: weight files end in .safetensors")
    with console.status(f"reading the {which} checkpoint"):
        trained = load_descriptor(run, which)
    card_path, expected = out.with_suffix(".json"), config_hash([trained.settings["hash"], trained.position.step])
    found = recorded(card_path, "export_hash")
    config = {"run_hash": trained.settings["hash"], "steps": trained.position.step}
    differs = partial(changes, card_path, found, config, kept=None, hash_kept="export_hash")
    if already_done(out, found, expected, overwrite, differs=differs):
        console.up_to_date(out)
        return out
    with console.status("checking the weights in float16"):
        arrays, deviation = float16_weights(trained.net, trained.config.network, out)
    name = trained.config.network + SUFFIX
    metadata = {"name": name, "network": trained.config.network, "run_hash": trained.settings["hash"]}
    write_arrays(out, arrays, metadata)
    figures = {
        "name": name,
        "export_hash": expected,
        "file": {"bytes": out.stat().st_size, "hash": content_hash(out), "float16_deviation": round(deviation, 6)},
    }
    write_json(card_path, figures | card(run, trained, which))
    console.figures(
        f"{run} -> {out}",
        {
            "checkpoint": f"{which}, step {trained.position.step}",
            "float16": f"descriptors off by {deviation:.2g} (at most {FLOAT16_DEVIATION:g})",
        },
    )
    console.result(out, card=card_path)
    return out


def load_descriptor(run: Path | str, which: str = "best") -> TrainedDescriptor:
    """Reads the best or latest checkpoint of a run.

    Raises:
        FileNotFoundError: not a run directory.
        ValueError: the run of something else, no checkpoint yet, or none that can be read.
    """
    import jax

    from xdesc_jax.features import l2net
    from xdesc_jax.train.checkpoint import load_state
    from xdesc_jax.train.descriptors.step import create_state, network_of
    from xdesc_jax.train.run_directory import read_settings

    run = Path(run)
    settings, config = read_settings(
        run, "xdesc train-descriptor", SETTINGS, lambda kept: from_dict(kept["config"], DescriptorConfig)
    )
    averaged = config.optimizer.ema > 0
    like = jax.eval_shape(lambda key: create_state(l2net.init(key), averaged), jax.random.key(0))
    state, position = load_state(run, settings["hash"], like, which)
    return TrainedDescriptor(network_of(**state.weights), position, config, settings)


def float16_weights(net: L2Net, network: str, where: Path | str) -> tuple[dict[str, np.ndarray], float]:
    """A network's arrays in float16 under its authors' names, and how far they move descriptors.

    Args:
        net: float32 weights.
        network: 'hardnet' or 'sosnet'.
        where: what the error names.

    Returns:
        Name -> float16 array, and the largest distance between unit descriptors of random patches.

    Raises:
        ValueError: a value is too large for float16, a variance becomes zero, or descriptors move too far.
    """
    import jax
    import jax.numpy as jnp

    from xdesc_jax.features import l2net
    from xdesc_jax.train.descriptors.step import describe

    wide = l2net.arrays_of(net, l2net.NETWORK_NAMES[network])
    arrays = {}
    for name, array in wide.items():
        with np.errstate(over="ignore"):  # reported below
            arrays[name] = array.astype(np.float16)
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"{where}: {name!r} has values up to {np.abs(array).max():g}, float16 ends at 65504")
        if name.endswith("running_var") and (arrays[name] == 0).any():
            raise ValueError(f"{where}: {name!r} has values down to {array.min():g}, which float16 makes 0")
    narrow = jax.tree.map(lambda x: jnp.asarray(np.float32(np.float16(x))), net)
    patches = sample_patches()
    rows, moved = (np.asarray(describe(n, patches, kind=network)) for n in (net, narrow))
    deviation = float(np.linalg.norm(rows - moved, axis=1).max())
    if not deviation <= FLOAT16_DEVIATION:
        raise ValueError(
            f"{where}: float16 moves descriptors by {deviation:g}, at most {FLOAT16_DEVIATION:g} is allowed"
        )
    return arrays, deviation


def sample_patches(count: int = 256) -> np.ndarray:
    """Random textures with detail at several sizes, uint8 [count, 32, 32]."""
    rng = np.random.default_rng(0)
    layers = [rng.normal(size=(count, n, n)).repeat(32 // n, axis=1).repeat(32 // n, axis=2) for n in (2, 4, 8, 16, 32)]
    texture = np.sum([layer / 2**i for i, layer in enumerate(layers)], axis=0)
    return np.clip(128 + 48 * texture, 0, 255).astype(np.uint8)


# --- Card ------------------------------------------------------------------------------------------------


def card(run: Path, trained: TrainedDescriptor, which: str) -> dict[str, Any]:
    """What there is to say about weights: data, training, figures, and the command that makes them."""
    from xdesc_jax.train.run_directory import figures_at

    config, settings, step = trained.config, trained.settings, trained.position.step
    before = settings.get("started_from")
    pairs = step * config.batch_size
    name = config.network + SUFFIX
    told = ", ".join(f"{n} ({settings['rows'][n]['train']} pairs to train on)" for n in settings["data"])
    return {
        "kind": "weights",
        "descriptors": [name],
        "keypoints": "opencv",  # the detector of `xdesc pairs`; places have COLMAP's
        "data": told,
        "records": {
            name: {"rows": settings["rows"][name], "records_hash": data["hash"]}
            | {"weight": data["weight"], "rows_a_batch": data["share"]}
            for name, data in settings["data"].items()
        },
        "pairs": pairs + ((before or {}).get("pairs") or 0),
        "pairs_of_this_run": pairs,
        "started_from": before,
        "steps": step,
        "batch_size": config.batch_size,
        "checkpoint": which,
        "date": datetime.date.today().isoformat(),
        "hardware": settings.get("device") or "not recorded",
        "config": dataclasses.asdict(config),
        "config_hash": config.hash,
        "run_hash": settings["hash"],
        "validation": figures_at(run, step),
        "validation_at_start": read_json(run / "start.json") if (run / "start.json").exists() else None,
        "versions": {"xdesc-jax": __version__} | settings["versions"],
        "command": training_command(config, settings),
        "figures": {},
    }


def training_command(config: DescriptorConfig, settings: dict[str, Any]) -> str:
    """The command line of a run, with records by their names."""
    words = ["xdesc train-descriptor"]
    words += [f"--data {name}={data['weight']:g}" for name, data in settings["data"].items()]
    words += ["--workdir RUN"]
    if settings["init"]:
        words.append(f"--init {(settings.get('started_from') or {}).get('name') or 'WEIGHTS'}")
    return " ".join(words + _flags(dataclasses.asdict(config), dataclasses.asdict(DescriptorConfig())))


def _flags(values: dict[str, Any], defaults: dict[str, Any], prefix: str = "") -> list[str]:
    """Options for the fields that differ from their defaults."""
    flags = []
    for name, value in values.items():
        option = name.replace("_", "-")
        if isinstance(value, dict):
            flags += _flags(value, defaults[name], f"{prefix}{option}.")
        elif value == defaults[name]:
            continue
        elif isinstance(value, bool):
            flags.append(f"--{prefix}{option}" if value else f"--{prefix}no-{option}")
        else:
            flags.append(f"--{prefix}{option} {value}")
    return flags
