"""From records to what the networks take, and the figures of the training rows.

In: a records folder and a configuration. Out: batches for the loop, the function that makes canonical rows of a
batch on the device, and mean, deviation and scale of each descriptor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xdesc_jax.config import JitterConfig, TrainConfig
from xdesc_jax.data import open_source
from xdesc_jax.data.around import Neighbourhood
from xdesc_jax.data.schema import KEYPOINT as FRAMES
from xdesc_jax.data.schema import NEIGHBOURS, PATCH, PHOTO, POINT, TRAIN, RecordInfo
from xdesc_jax.data.source import Source
from xdesc_jax.descriptors import DescriptorSpec, get_spec, stored
from xdesc_jax.features.describe import describer, weight_file
from xdesc_jax.features.jitter import JitterSettings, jitter
from xdesc_jax.features.weights import parse_weights
from xdesc_jax.files.arrays import read_plain
from xdesc_jax.files.whole import atomic
from xdesc_jax.networks import frames as frame_form
from xdesc_jax.networks import mlp, neighbours_jax
from xdesc_jax.train.randomness import row_keys
from xdesc_jax.train.state import Batch
from xdesc_jax.train.translators.step import describe_inputs, read_inputs, thinned
from xdesc_jax.translation.bundle import Bundle
from xdesc_jax.translation.deviation import RowStatistics

STATISTICS_ROWS = 65536
SAMPLE_ROWS = 64

InputsOf = Callable[[Batch, jax.Array], dict[str, jax.Array]]


@dataclass(frozen=True)
class Statistics:
    """Figures of the training rows of each descriptor.

    Attributes:
        rows: mean, deviation and spread over photos of canonical rows, bits as 0 and 1.
        scale: the root mean square norm of the rows that have the descriptor, where it is neither binary nor of unit
            length, else 1; training divides by it, so that every translation loss is in units of a descriptor's length.
        sample: up to 64 rows in stored form, aligned between descriptors where some rows have all of them; with
            context, all of one photo.
        frames: of the sample's keypoints, [n, 2] float32; None where the model takes none.
        positions: theirs, px, [n, 2] float32; None without context.
        log2_sigma: mean over the training rows; None where the model takes no frames.
    """

    rows: dict[str, RowStatistics]
    scale: dict[str, float]
    sample: dict[str, np.ndarray]
    frames: np.ndarray | None = None
    log2_sigma: float | None = None
    positions: np.ndarray | None = None

    def save(self, path: Path) -> None:
        arrays: dict[str, Any] = {}
        for name, rows in self.rows.items():
            arrays |= {f"rows/{name}/{field}": value for field, value in rows.arrays().items()}
            arrays |= {f"scale/{name}": np.float32(self.scale[name]), f"sample/{name}": self.sample[name]}
        if self.frames is not None and self.log2_sigma is not None:
            arrays |= {"frames": self.frames, "log2_sigma": np.float64(self.log2_sigma)}
        if self.positions is not None:
            arrays["positions"] = self.positions
        with atomic(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Statistics:
        """Raises ValueError where the file is cut short, or lacks figures of a descriptor."""
        rows: dict[str, dict[str, np.ndarray]] = {}
        scale: dict[str, float] = {}
        sample: dict[str, np.ndarray] = {}
        frames = log2_sigma = positions = None
        try:
            for key, values in read_plain(path).items():
                match key.split("/"):
                    case ["rows", name, field]:
                        rows.setdefault(name, {})[field] = values
                    case ["scale", name]:
                        scale[name] = float(values)
                    case ["sample", name]:
                        sample[name] = values
                    case ["frames"]:
                        frames = values
                    case ["log2_sigma"]:
                        log2_sigma = float(values)
                    case ["positions"]:
                        positions = values
            if not rows.keys() == scale.keys() == sample.keys():
                held = [sorted(part) for part in (rows, scale, sample)]
                raise ValueError(f"rows, scales and samples are of {held}, expected the same descriptors")
            if frames is not None:
                frames = frame_form.check(frames, len(next(iter(sample.values()))), "frames")
            figures = {name: RowStatistics(**fields) for name, fields in rows.items()}
            for name, found in figures.items():
                found.check(len(np.atleast_1d(found.mean)), f"rows/{name}")
                if not 0 < scale[name] < np.inf or sample[name].ndim != 2:
                    told = f"{scale[name]} and {list(sample[name].shape)}"
                    raise ValueError(f"{name!r} has scale and sample {told}, expected a finite one, and rows")
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: statistics of the run cannot be read ({error})") from error
        return cls(figures, scale, sample, frames, log2_sigma, positions)


def choose_specs(info: RecordInfo | None, config: TrainConfig) -> dict[str, DescriptorSpec]:
    """The descriptors of a run, in the configuration's order.

    Raises:
        ValueError: fewer than one, one that the records lack, or inputs that do not tell what the networks take.
    """
    if config.inputs == "patches":
        if not config.descriptors:
            raise ValueError("descriptors: name them where they are computed from patches")
        if config.model.context.of != "none":
            told = f"inputs is 'patches' with model.context.of {config.model.context.of!r}"
            raise ValueError(f"{told}: patches have no neighbours; encoders that look at them need 'columns'")
        specs = {name: get_spec(name) for name in config.descriptors}
        if takes_frames(specs, config):
            raise ValueError(
                "inputs is 'patches', which have no frames; a joint space of frame 'image' needs 'columns'"
            )
        return specs
    assert info is not None
    names = config.descriptors or tuple(info.specs)
    if config.model.kind == "pair" and len(names) < 2:
        raise ValueError(f"pair networks need two descriptors or more, found {list(names)}")
    if missing := [name for name in names if name not in info.specs]:
        raise ValueError(f"{info.path}: records lack {missing} (they hold {', '.join(info.specs)})")
    specs = {name: info.specs[name] for name in names}
    frame_form.space_of(specs, config.model.frame)  # refuses descriptors that it does not allow
    return specs


def frame_of(info: RecordInfo | None, config: TrainConfig) -> str:
    """The frame of a run's joint space; raises ValueError as `choose_specs`."""
    return frame_form.space_of(choose_specs(info, config), config.model.frame)


def takes_frames(specs: Mapping[str, DescriptorSpec], config: TrainConfig) -> bool:
    """Whether a network of the run takes the keypoints' frames."""
    networks = mlp.build_networks(specs, config.model)
    return any(frame_form.takes_frames(name, networks.specs, networks.frame) for name in networks.modules)


def open_split(
    data: Path,
    split: str,
    config: TrainConfig,
    specs: Mapping[str, DescriptorSpec],
    batch_size: int,
    host: int = 0,
    num_hosts: int = 1,
    looking: Sequence[str] | None = None,
    learning: Sequence[str] | None = None,
) -> Source:
    """One split of the records with the columns that this run reads; of several hosts, this host's part.

    Where only some descriptors learn and the training split is held in memory, rows that have none of these are passed
    over.

    Args:
        looking: the descriptors whose neighbours the batches hold, see `looking_at_neighbours`; those that look by the
            configuration by default.
        learning: the descriptors that learn, where the others are frozen.

    Raises:
        ValueError: context is wanted of records that are neither held in memory nor made with --deal-by photo; matches
            across views, of records that are not held in memory or do not say which rows are of one point.
    """
    patches = config.inputs == "patches"
    named = looking_at_neighbours(specs, config) if looking is None else looking
    context = config.model.context
    share = context.least_share if split == TRAIN else 1.0
    search = neighbours_jax.fastest()
    around = Neighbourhood(tuple(named), context.nearest, context.larger, share, search) if named else None
    columns = [] if patches else [*specs, *[FRAMES] * (around is not None or takes_frames(specs, config))]
    options: dict[str, Any] = {}
    if learning and config.resident and split == TRAIN and not patches:
        options["having"] = tuple(learning)
    if config.loss.across_views and split == TRAIN:
        _check_across_views(data, config)
        columns, options["in_twos"] = [*columns, POINT], True
    return open_source(
        data, split, batch_size, columns=columns, patches=patches, seed=config.data_seed, host=host,
        num_hosts=num_hosts, resident=config.resident, around=around, rows_a_photo=config.rows_a_photo, **options,
    )  # fmt: skip


def _check_across_views(data: Path, config: TrainConfig) -> None:
    """Raises ValueError where rows cannot be matched with those of other photos."""
    told = "loss.across_views is True"
    if config.inputs != "columns" or not config.resident:
        raise ValueError(
            f"{told}, with inputs {config.inputs!r} and resident {config.resident}: a row's like in another photo must "
            "be at hand; set resident=True, with inputs 'columns'"
        )
    if config.model.kind == "pair":
        raise ValueError(f"{told} with model.kind 'pair', which has no joint space to match rows in")
    if not RecordInfo.load(data).has_points:
        raise ValueError(
            f"{data}: {told}, but these records do not say which rows are of one point; make them of feature files "
            "with --across"
        )
    if config.batch_size % (together := 2 * jax.device_count()):
        raise ValueError(
            f"batch_size is {config.batch_size}, expected a multiple of {together} where loss.across_views is True: "
            f"rows come in twos, on {jax.device_count()} devices"
        )


def looking_at_neighbours(
    specs: Mapping[str, DescriptorSpec],
    config: TrainConfig,
    frozen: Bundle | None = None,
    teacher: Bundle | None = None,
) -> tuple[str, ...]:
    """The descriptors whose encoders look at neighbours.

    Args:
        frozen: the members that stay as they are, which look at neighbours or not, whatever the configuration says.
        teacher: the model whose embeddings encoders learn to give; its encoders look as well as theirs.
    """
    if config.inputs != "columns":
        return ()
    learning = mlp.build_networks(specs, config.model).with_context
    looking = {name for name in learning if frozen is None or name not in frozen.specs or name in frozen.contexts}
    looking |= set(teacher.contexts) if teacher is not None else set()
    return tuple(name for name in specs if name in looking)


def inputs_function(
    config: TrainConfig, specs: Mapping[str, DescriptorSpec], scales: Mapping[str, float], augment: bool
) -> InputsOf:
    """(batch, keys of its rows) -> canonical rows by descriptor; traceable, with jitter of patches where `augment`.

    Raises:
        ValueError: a descriptor that cannot be computed from patches, or lacks its weights.
    """
    if config.inputs == "columns":
        share = config.model.context.least_share if augment else 1.0
        return lambda batch, keys: thinned(read_inputs(batch, specs, scales), keys, share)
    files = weight_files(config, specs)
    describers = {name: describer(name, files.get(name)) for name in specs}
    settings = JitterSettings(**asdict(config.jitter))

    def describe(batch: Batch, keys: jax.Array) -> dict[str, jax.Array]:
        patches = batch[PATCH].astype(np.float32) / 255
        if augment and config.jitter != JitterConfig():
            patches = jitter(keys, patches, settings)
        return describe_inputs(patches, specs, scales, describers)

    return describe


def weight_files(config: TrainConfig, specs: Mapping[str, DescriptorSpec]) -> dict[str, Path]:
    """The weight file of each learned descriptor that the run computes from patches.

    Raises:
        ValueError: none is given, shipped or installed, or one is given that the run has no use for.
    """
    if config.inputs == "columns":
        return {}
    given = parse_weights(config.weights)
    if unused := sorted(set(given) - set(specs)):
        raise ValueError(f"weights are given for {unused}, the run has {list(specs)}")
    found = {name: weight_file(name, given.get(name)) for name in specs}
    return {name: file for name, file in found.items() if file is not None}


def collect_rows(
    batches: Iterable[Mapping[str, np.ndarray]], inputs_of: InputsOf, rows: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What the networks take of the first batches, and their photos, [n, ...] each; n at most `rows`, no padding."""
    parts: list[dict[str, np.ndarray]] = []
    photos: list[np.ndarray] = []
    compiled = jax.jit(inputs_of)
    for batch in batches:
        keep = np.asarray(batch["mask"])
        made = compiled(dict(batch), row_keys(jax.random.key(0), len(keep)))  # keys that nothing is drawn with
        parts.append({name: np.asarray(x)[keep] for name, x in made.items()})
        photos.append(np.asarray(batch[PHOTO])[keep])
        if sum(map(len, photos)) >= rows:
            break
    found = {name: np.concatenate([part[name] for part in parts])[:rows] for name in parts[0]}
    return found, np.concatenate(photos)[:rows]


def measure_statistics(
    source: Source, specs: Mapping[str, DescriptorSpec], config: TrainConfig, rows: int = STATISTICS_ROWS
) -> Statistics:
    """Figures of the first rows of the first epoch, and a sample.

    Raises:
        ValueError: rows that are not finite, none of a descriptor, or no frames where the networks take some.
    """
    ones = dict.fromkeys(specs, 1.0)
    inputs_of = inputs_function(config, specs, ones, augment=False)

    def with_keypoints(batch: Batch, keys: jax.Array) -> dict[str, jax.Array]:
        made = inputs_of(batch, keys)
        return {name: made[name] for name in specs} | ({FRAMES: batch[FRAMES]} if FRAMES in batch else {})

    # What lies around rows is made of the same rows, and would be many times as large.
    own = ({n: x for n, x in batch.items() if not n.startswith(f"{NEIGHBOURS}/")} for batch in source.epoch(0))
    found, photos = collect_rows(own, with_keypoints, rows)
    keypoints = found.pop(FRAMES, None)
    if damaged := [name for name, x in found.items() if not np.isfinite(x).all()]:
        raise ValueError(
            f"{source.info.path}: damaged, a row of {damaged[0]!r} among the first {len(photos)} is not finite"
        )
    shown = _sample_rows(found, photos, source)
    framed = [name for name, spec in specs.items() if spec.frame == frame_form.KEYPOINT]
    frames = positions = log2_sigma = None
    if keypoints is not None and source.around is not None:
        positions = keypoints[shown[(framed or list(specs))[0]], :2]
    if keypoints is not None and framed:
        told = keypoints[np.logical_or.reduce([found[name].any(axis=1) for name in framed])][:, 2:]
        try:
            log2_sigma = frame_form.mean_log2_sigma(frame_form.check(told, len(told)))
        except ValueError as error:
            raise ValueError(
                f"{source.info.path}: the model takes the keypoints' frames, which these rows lack: {error}; make "
                "records of keypoints with scales and orientations"
            ) from error
        frames = keypoints[shown[framed[0]], 2:]
    return Statistics(
        rows={name: RowStatistics.of(x, photos) for name, x in found.items()},
        scale={name: typical_norm(x) if plain(specs[name]) else 1.0 for name, x in found.items()},
        sample={name: stored(_canonical(x[shown[name]], specs[name]), specs[name]) for name, x in found.items()},
        frames=frames,
        log2_sigma=log2_sigma,
        positions=positions,
    )


def _sample_rows(found: Mapping[str, np.ndarray], photos: np.ndarray, source: Source) -> dict[str, np.ndarray]:
    """Which rows show a descriptor, as many of each: the same ones where some rows have all descriptors."""
    held = {name: x.any(axis=1) for name, x in found.items()}
    if without := [name for name, rows in held.items() if not rows.any()]:
        raise ValueError(f"{source.info.path}: none of the first {len(photos)} rows has {without[0]!r}")
    every = np.logical_and.reduce(list(held.values()))
    chosen = {}
    for name, own in held.items():
        rows = np.flatnonzero(every if every.any() else own)
        if source.around is not None:  # rows of one photo, which are each other's neighbours
            rows = rows[photos[rows] == np.bincount(photos[rows]).argmax()]
        chosen[name] = rows[:SAMPLE_ROWS]
    count = min(map(len, chosen.values()))
    return {name: rows[:count] for name, rows in chosen.items()}


def plain(spec: DescriptorSpec) -> bool:
    """Whether rows have a length of their own: neither bits nor of unit length."""
    return not (spec.binary or spec.normalized)


def typical_norm(x: np.ndarray) -> float:
    """Root mean square norm of the rows of x [N, D] that are not zero, as where a descriptor lacks; 1 where all are."""
    squares = np.sum(np.square(x), axis=1)
    there = squares[squares > 0]
    return float(np.sqrt(np.mean(there))) if len(there) else 1.0


def _canonical(rows: np.ndarray, spec: DescriptorSpec) -> np.ndarray:
    return rows > 0.5 if spec.binary else rows
