"""What readers of a training must give: records, runs, checkpoints and weights, ours or another's.

In: a file or folder that may be damaged. Out: nothing; the reader's own error where it refuses the file; or `Wrong`.
"""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np

from tests.fuzz.checks import need, reals, spec_is_whole
from tests.fuzz.valid_files import WEIGHTS, small_state
from xdesc_jax.files import pytorch
from xdesc_jax.files.fields import wrong_types


def records(path: Path) -> None:
    from xdesc_jax.data import open_source
    from xdesc_jax.data.schema import RecordInfo

    info = RecordInfo.load(path)
    for spec in info.specs.values():
        spec_is_whole(spec)
    for split in info.counts:
        rows, ways = 0, (False, True) if info.format == "npy" else (False,)  # TensorFlow takes a second to begin
        for resident in ways:
            source = open_source(path, split, 4, resident=resident, remainder="pad")
            for batch in source.epoch(0):
                for name, column in source.info.select(None).items():
                    need(batch[name].shape == (4, *column.shape) and batch[name].dtype == column.dtype, name)
                photos = batch["photo"]
                need(((photos >= 0) & (photos < len(info.photos))).all(), f"photo of {len(info.photos)} is {photos}")
                rows += batch["mask"].sum()
        need(rows == len(ways) * info.counts[split], f"{rows} rows")


def run(path: Path) -> None:
    from xdesc_jax.train.log import read_log
    from xdesc_jax.train.run_directory import history, read_settings
    from xdesc_jax.train.translators.inputs import Statistics
    from xdesc_jax.train.translators.trained import SETTINGS, _parsed

    _, (config, specs) = read_settings(path, "xdesc train", SETTINGS, _parsed)
    need(not wrong_types(config), f"configuration: {wrong_types(config)}")
    for name, spec in specs.items():
        need(isinstance(name, str), name)
        spec_is_whole(spec)
    for entry in history(path):
        need(type(entry["epoch"]) is int and type(entry["step"]) is int, f"validation {entry}")
    need(all(isinstance(line, dict) for line in read_log(path)), "log")
    found = Statistics.load(path / "statistics.npz")
    for name, rows in found.rows.items():
        need(0 < found.scale[name] < np.inf, f"scale of {name}")
        need(name in found.sample and found.sample[name].ndim == 2, f"sample of {name}")
        for field, values in rows.arrays().items():
            reals(values, (values.shape[-1],) * (2 if field == "photo_covariance" else 1), f"{name}/{field}")


def checkpoint(path: Path) -> None:
    """What is given was saved so."""
    import jax

    from xdesc_jax.train.checkpoint import load_state

    expected = small_state()
    found, position = load_state(path, "0123456789ab", expected, "latest")
    for name in ("step", "epoch", "batch"):
        number = getattr(position, name)
        need(type(number) is int and number >= 0, f"{name} is {number!r}")
    for (where, a), (_, b) in zip(
        *(jax.tree_util.tree_leaves_with_path(tree) for tree in (found, expected)), strict=True
    ):
        a, b = np.asarray(a), np.asarray(b)
        need(a.dtype == b.dtype and np.array_equal(a, b), f"{jax.tree_util.keystr(where)} is {a}")


def weights(path: Path) -> None:
    from xdesc_jax.features.weights import read_arrays, select

    for name, values in select(read_arrays(path), WEIGHTS, path).items():
        need(values.dtype == np.float32, f"{name} is {values.dtype}")
        reals(values, WEIGHTS[name], name)


def pth_weights(path: Path) -> None:
    """Read in this process, whose memory is watched, and not in one of its own."""
    with mock.patch.object(pytorch, "read", pytorch.load):
        weights(path)


def pth_model(path: Path) -> None:
    """Read in this process, as `pth_weights`."""
    from xdesc_jax.export.pytorch_translator import to_bundle

    found = to_bundle(pytorch.load(path), None, str(path))
    for name, spec in found.specs.items():
        need(name == spec.name, name)
        spec_is_whole(spec)
    for name, layers in found.networks.items():
        for kernel, bias in layers:
            reals(kernel, (len(kernel), len(bias)), name)
            reals(bias, (len(bias),), name)
