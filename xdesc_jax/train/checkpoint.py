"""Checkpoints: the one module that imports orbax, and the layout of a run directory.

In: training states. Out: `RUN/checkpoints/<step>` (the latest two and the best), each with a digest that is
verified after the save and on load; `RUN/config.json` and `RUN/statistics.npz`, from which a run can be
resumed or exported on any number of devices.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from xdesc_jax.config import TrainConfig, from_dict
from xdesc_jax.console import warn
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.files.whole import FULL, read_json
from xdesc_jax.networks import mlp
from xdesc_jax.train import hosts, parallel
from xdesc_jax.train.translators.frozen import extend, freeze_members, load_frozen
from xdesc_jax.train.translators.inputs import Statistics
from xdesc_jax.train.translators.step import TrainState, create_state
from xdesc_jax.translation.bundle import Bundle
from xdesc_jax.translation.deviation import RowStatistics

METRIC = "mean_rank1"
UNMEASURED = {METRIC: -1.0}  # of checkpoints within an epoch: worse than any that was measured
SETTINGS = ("config", "specs", "hash", "data", "init", "versions")  # of config.json, which loading needs


@dataclasses.dataclass(frozen=True)
class Position:
    """Where training goes on: the next batch of an epoch, and the steps done so far."""

    step: int
    epoch: int
    batch: int


class Checkpoints:
    """Saves and restores the states of one run.

    Saving is asynchronous: `save` returns once the state is copied; it is written while training goes on, and
    read back and compared before the next save or `close`. Of several hosts, all call each method; each writes its
    share of the arrays, and they come back on any number of hosts.

    Args:
        run: the run directory.
        config_hash: the configuration that the states belong to.
        read_only: whether the folder is left as it is.
    """

    def __init__(self, run: Path, config_hash: str, read_only: bool = False):
        self.directory = (Path(run) / "checkpoints").resolve()  # orbax refuses relative paths
        self.config_hash = config_hash
        policies = checkpoint_managers.AnyPreservationPolicy(
            [
                checkpoint_managers.LatestN(2),
                checkpoint_managers.BestN(
                    get_metric_fn=lambda m: m[METRIC], n=1, keep_checkpoints_without_metrics=False
                ),
            ]
        )
        options = ocp.CheckpointManagerOptions(
            preservation_policy=policies,
            best_fn=lambda m: m[METRIC],  # without it, metrics are not kept for later processes
            cleanup_tmp_directories=not read_only,
            create=not read_only,
            step_format_fixed_length=8,
        )
        self._manager = ocp.CheckpointManager(self.directory, options=options)
        self._unverified: tuple[int, str] | None = None

    def save(self, state: TrainState, position: Position, metrics: dict[str, float] | None = None) -> None:
        """Starts to write a state. Metrics, given at the end of an epoch, decide which is the best.

        Raises:
            FloatingPointError: a weight is not finite; nothing is written.
        """
        self.verify()
        state = jax.device_get(state)
        check_finite(state, position)
        tree = _tree(state)
        content = digest(tree)
        meta = {
            "position": dataclasses.asdict(position),
            "digest": content,
            "config_hash": self.config_hash,
            "metrics": metrics,
        }
        if hosts.several():  # of numpy arrays, host 0 would write all
            tree = parallel.replicate_globally(tree, parallel.choose_devices())
        items = ocp.args.Composite(state=ocp.args.StandardSave(tree), meta=ocp.args.JsonSave(meta))
        with self._writing():
            self._manager.save(position.step, args=items, metrics=metrics or UNMEASURED, force=True)
        self._unverified = (position.step, content)

    def verify(self) -> None:
        """Waits for the last save and compares what was written; a bad one is deleted and reported.

        Raises:
            OSError: it could not be written, or reads back differently; those before it are as they were.
        """
        if self._unverified is None:
            return
        (step, expected), self._unverified = self._unverified, None
        with self._writing():
            self._manager.wait_until_finished()
        stored = self._manager.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore()))
        if digest(jax.tree.map(np.asarray, stored["state"])) != expected:
            self._manager.delete(step)
            raise OSError(f"{self.directory}: the checkpoint of step {step} reads back differently; deleted")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, RuntimeError) as error:  # of tensorstore: with a text, but no number
            number = error.errno if isinstance(error, OSError) else None
            full = [n for n in FULL if n == number or os.strerror(n) in str(error)]
            if not full:
                raise
            raise OSError(
                full[0], f"{self.directory}: a checkpoint cannot be written ({os.strerror(full[0])}); "
                "those before it are as they were, and the run goes on from the last of them once there is room"
            ) from error  # fmt: skip

    def close(self) -> None:
        try:
            self.verify()
        finally:
            self._manager.close()

    def restore(self, like: TrainState, which: str = "latest") -> tuple[TrainState, Position] | None:
        """The latest (or best) good checkpoint as numpy arrays; damaged ones are passed over with a warning.

        Args:
            like: a state of the same architecture, or its shapes.
            which: 'latest' or 'best'.

        Returns:
            State and position, or None where the run has no checkpoint yet.

        Raises:
            ValueError: there are checkpoints, but none is good, or they belong to another configuration.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        if which == "best":  # those with metrics first, the best of them first
            steps.sort(key=self._rank, reverse=True)
        problems = []
        for step in steps:
            try:
                return self._restore_step(like, step)
            except (OSError, KeyError, ValueError, TypeError) as error:
                if isinstance(error, WrongConfigurationError):
                    raise
                text = (str(error).splitlines() or [type(error).__name__])[0]
                problems.append(f"step {step}: {text[:200]}")
                warn(f"{self.directory}: checkpoint of step {step} cannot be used, trying another ({problems[-1]})")
        if problems:
            raise ValueError(f"{self.directory}: no checkpoint can be read ({'; '.join(problems)})")
        return None

    def set_aside_after(self, step: int) -> None:
        """Moves checkpoints later than `step`, which could not be used, to `RUN/unusable`; others replace them."""
        for folder in sorted(self.directory.iterdir()) if hosts.is_lead() else ():
            if folder.name.isdigit() and int(folder.name) > step:
                target = self.directory.parent / "unusable" / f"{folder.name}-{time.time_ns()}"
                target.parent.mkdir(exist_ok=True)
                folder.rename(target)
        hosts.wait_for_all("checkpoints set aside")
        self._manager.reload()

    def _rank(self, step: int) -> float:
        try:
            metrics = self._manager.metrics(step)
        except (OSError, KeyError, ValueError):
            metrics = None
        return (metrics or UNMEASURED)[METRIC]

    def _restore_step(self, like: TrainState, step: int) -> tuple[TrainState, Position]:
        # The arrays' own shapes as numpy: what was saved on other devices must load on these.
        target = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), _tree(like))
        items = ocp.args.Composite(state=ocp.args.StandardRestore(target), meta=ocp.args.JsonRestore())
        found = self._manager.restore(step, args=items)
        meta = found["meta"]
        if meta["config_hash"] != self.config_hash:
            raise WrongConfigurationError(
                f"{self.directory}: made with configuration {meta['config_hash']}, not {self.config_hash}"
            )
        if digest(found["state"]) != meta["digest"]:
            raise ValueError("its content differs from what was saved")
        _check_shapes(found["state"], target)
        return type(like)(**found["state"]), Position(**meta["position"])


class WrongConfigurationError(ValueError):
    """A checkpoint of another configuration."""


def check_finite(state: TrainState, position: Position) -> None:
    """Raises FloatingPointError where a weight, a running statistic or a moment is not finite."""
    for path, x in jax.tree_util.tree_flatten_with_path(_tree(jax.device_get(state)))[0]:
        if not np.isfinite(x).all():
            raise FloatingPointError(
                f"{jax.tree_util.keystr(path)} is not finite after step {position.step} "
                f"(epoch {position.epoch}, batch {position.batch}); stopped, not saved"
            )


def _tree(state: TrainState) -> dict[str, Any]:
    return {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}


def _check_shapes(found: Any, expected: Any) -> None:
    shapes = [
        {jax.tree_util.keystr(path): np.shape(x) for path, x in jax.tree_util.tree_flatten_with_path(_plain(tree))[0]}
        for tree in (found, expected)
    ]
    for name in sorted(shapes[0].keys() | shapes[1].keys()):
        if shapes[0].get(name) != shapes[1].get(name):
            raise ValueError(f"{name} has shape {shapes[0].get(name)}, the model wants {shapes[1].get(name)}")


def digest(tree: Any) -> str:
    """sha256 over the paths, shapes and bytes of a tree of arrays."""
    result = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(_plain(tree))[0]:
        array = np.asarray(leaf)
        result.update(f"{jax.tree_util.keystr(path)}{array.shape}{array.dtype}".encode())
        result.update(np.ascontiguousarray(array).tobytes())
    return result.hexdigest()


def _plain(tree: Any) -> Any:
    """Named tuples (optax) and dicts alike as dicts: orbax gives back what it likes."""
    if hasattr(tree, "_asdict"):
        tree = tree._asdict()
    return {k: _plain(v) for k, v in tree.items()} if isinstance(tree, dict) else tree


# --- Run directory ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A trained model as plain numpy, ready to be exported.

    Attributes:
        kind: 'encoder_decoder' or 'pair'.
        specs: descriptors by name.
        embedding_width: E; 0 for pair networks.
        networks: 'encoder/<name>', 'decoder/<name>' or 'pair/<source>/<target>' -> list of layers
            {kernel [N, M], bias [M]} and, but for the last, {scale, offset, mean, var} [M] of the batch norm
            that follows, epsilon 1e-5. They map canonical rows, whatever scale training used.
        statistics: mean, deviation and spread over photos of the canonical rows of each descriptor.
        samples: up to 64 aligned training rows of each descriptor in stored form.
        config: the resolved configuration.
        provenance: data, steps, figures, versions.
        base: the model whose frozen networks are among these, and whose joint space it is; None where all are new.
    """

    kind: str
    specs: dict[str, DescriptorSpec]
    embedding_width: int
    networks: dict[str, list[dict[str, np.ndarray]]]
    statistics: dict[str, RowStatistics]
    samples: dict[str, np.ndarray]
    config: dict[str, Any]
    provenance: dict[str, Any]
    base: Bundle | None = None


def load_model(run: Path | str, which: str = "best") -> TrainedModel:
    """Reads the best or latest checkpoint of a run.

    Raises:
        FileNotFoundError: not a run directory.
        ValueError: no checkpoint yet, none that can be read, or an incomplete config.json.
    """
    run = Path(run)
    if not (run / "config.json").exists():
        raise FileNotFoundError(f"{run}: not a run directory (no config.json); see `xdesc train`")
    settings = read_json(run / "config.json")
    if lacking := [key for key in SETTINGS if key not in settings]:
        raise ValueError(f"{run / 'config.json'}: lacks {lacking}, expected the keys {list(SETTINGS)}")
    try:
        config = from_dict(settings["config"])
        specs = {name: DescriptorSpec.from_dict(fields) for name, fields in settings["specs"].items()}
    except (AttributeError, TypeError, ValueError) as error:  # the dataclasses name the key
        raise ValueError(f"{run / 'config.json'}: not a configuration of this version ({error})") from error
    networks = mlp.build_networks(specs, config.model)
    base = load_frozen(run, settings)
    if base is not None:
        networks = freeze_members(networks, base, {})
    fresh = jax.eval_shape(partial(create_state, networks), jax.random.key(0))
    state, position = load_state(run, settings["hash"], fresh, which)
    statistics = Statistics.load(run / "statistics.npz")
    model = TrainedModel(
        kind=config.model.kind,
        specs=specs,
        embedding_width=config.model.embedding_width if config.model.kind == "encoder_decoder" else 0,
        networks={key: _layers(state, key, statistics.scale) for key in networks.modules},
        statistics=statistics.rows,
        samples=statistics.sample,
        config=dataclasses.asdict(config),
        provenance=_provenance(run, settings, config, position),
    )
    return extend(model, base) if base is not None else model


def load_state(run: Path, config_hash: str, like: TrainState, which: str) -> tuple[TrainState, Position]:
    """The best or latest checkpoint of a run, for reading; raises ValueError where there is none that can be read."""
    found = Checkpoints(run, config_hash, read_only=True).restore(like, which)
    if found is None:
        raise ValueError(f"{run}: has no checkpoint yet")
    return found


def _provenance(run: Path, settings: dict[str, Any], config: TrainConfig, position: Position) -> dict[str, Any]:
    history = read_json(run / "validation.json") if (run / "validation.json").exists() else []
    figures = [entry for entry in history if entry["step"] == position.step]
    # A model file travels: where the records lay is nobody's concern there.
    data = settings["data"] | {"path": Path(settings["data"]["path"]).name}
    return {
        "data": data, "init": settings["init"], "versions": settings["versions"],
        "config_hash": config.hash, "steps": position.step, "rows_seen": position.step * config.batch_size,
        "validation": figures[-1] if figures else None,
    }  # fmt: skip


def _layers(state: TrainState, key: str, scales: dict[str, float]) -> list[dict[str, np.ndarray]]:
    """One network as layers, with the scale that training divides unnormalised descriptors by folded in."""
    params, stats = state.params[key], state.batch_stats[key]
    count = sum(name.startswith("linear") for name in params)
    layers = []
    for i in range(count):
        layer = dict(params[f"linear{i}"])
        if f"norm{i}" in params:
            layer |= params[f"norm{i}"] | stats[f"norm{i}"]
            layer["bias"] = np.zeros(layer["kernel"].shape[1])  # none before a batch norm
        layers.append({k: np.array(v, np.float32) for k, v in layer.items()})
    role, source, *target = key.split("/")
    if role in ("encoder", "pair"):
        layers[0]["kernel"] /= np.float32(scales[source])
    if role in ("decoder", "pair"):
        factor = np.float32(scales[target[0] if target else source])
        layers[-1] = {k: v * factor for k, v in layers[-1].items()}
    return layers
