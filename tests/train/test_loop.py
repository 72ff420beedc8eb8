"""The loop around the step: what it takes from the devices, and when."""

import dataclasses
import itertools
import json
import math
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from xdesc_jax.networks.losses import Sum
from xdesc_jax.train.checkpoint import METRIC, Position
from xdesc_jax.train.devices import Batches
from xdesc_jax.train.loop import fit
from xdesc_jax.train.state import TrainState


@dataclasses.dataclass
class OnDevice:
    """A number that only `jax.device_get` takes to the host: what else reads it fails."""

    value: float

    def __array__(self, *_, **__):
        raise AssertionError("read without jax.device_get")

    __float__ = __array__


@pytest.fixture
def transfers(monkeypatch):
    """The number of numbers of each transfer of metrics."""
    found = []

    def device_get(tree):
        leaves = jax.tree.leaves(tree)
        if count := sum(isinstance(leaf, OnDevice) for leaf in leaves):
            found.append(count)
        return jax.tree.map(lambda leaf: leaf.value if isinstance(leaf, OnDevice) else leaf, tree)

    monkeypatch.setattr(jax, "device_get", device_get)
    return found


def run(folder, losses, log_every=4, checkpoint_every=100):
    """Two epochs of half of the losses each, one row of weight 2 a step."""
    config = SimpleNamespace(epochs=2, batch_size=2, log_every=log_every, checkpoint_every=checkpoint_every)
    numbers = itertools.count()

    def step(state, batch, key, hyper):
        loss = losses[next(numbers)]
        return state, {"loss": Sum(OnDevice(loss), OnDevice(1.0)), "part": Sum(OnDevice(2 * loss), OnDevice(2.0))}

    count = len(losses) // 2
    batches = Batches(count, lambda epoch, first: iter([{}] * (count - first)), lambda group: {})
    folder.mkdir()
    checkpoints = SimpleNamespace(save=lambda *_: None, verify=lambda: None, directory=folder / "checkpoints")
    state = TrainState(np.zeros((), np.int32), {}, {}, {})
    devices = SimpleNamespace(steps_per_dispatch=1, steps=lambda step: (step, step), replicate=lambda state: state)
    fit(
        state,
        Position(0, 0, 0),
        step,
        devices,
        batches,
        lambda _: {METRIC: 0.5},
        checkpoints,
        folder,
        config,
        None,
        None,
    )
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"], line["part"]) for line in lines if "loss" in line]


def test_metrics_leave_the_device_in_one_transfer_a_line_of_the_log(transfers, tmp_path):
    lines = run(tmp_path / "run", [float(i) for i in range(20)])
    assert transfers == [4 * steps for steps in (4, 4, 2, 2, 4, 4)]
    means = [np.mean(range(a, b)) for a, b in itertools.pairwise((0, 4, 8, 10, 12, 16, 20))]
    assert lines == [(end, m, m) for end, m in zip((4, 8, 10, 12, 16, 20), means, strict=True)]


def test_a_checkpoint_between_two_lines_takes_what_there_is(transfers, tmp_path):
    lines = run(tmp_path / "run", [float(i) for i in range(8)], log_every=100, checkpoint_every=3)
    assert [step for step, *_ in lines] == [3, 4, 6, 8] and transfers == [12, 4, 8, 8]


def test_a_loss_that_is_not_finite_is_told_with_its_own_step(transfers, tmp_path):
    losses = [1.0, 1.0, math.nan, 1.0, 1.0, 1.0, 1.0, 1.0]
    with pytest.raises(FloatingPointError, match=r"loss is nan at step 3 \(epoch 0, batch 2\)"):
        run(tmp_path / "run", losses)
    assert transfers == [16]
