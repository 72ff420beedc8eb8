"""SIGTERM, Ctrl-C: a checkpoint at the next dispatch, and a run that ends as if it had not been stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from pathlib import Path

import jax
import numpy as np
import pytest

from xdesc_jax import console
from xdesc_jax.train.descriptors.run import train_descriptor
from xdesc_jax.train.devices import Devices
from xdesc_jax.train.preemption import SIGNALS, Preempted, Stop
from xdesc_jax.train.translators.run import train
from xdesc_jax.train.translators.trained import load_model


def terminate_at(number: int, monkeypatch, by=signal.SIGTERM) -> None:
    """A signal when so many batches have been placed."""
    original, placed = Devices.batches, []

    def batches_of(*arguments):
        batches = original(*arguments)

        def place(group):
            placed.extend(group)
            if len(placed) - len(group) < number <= len(placed):
                os.kill(os.getpid(), by)
            return batches.place(group)

        return batches._replace(place=place)

    monkeypatch.setattr(Devices, "batches", batches_of)


def losses(run: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


@pytest.mark.parametrize("together, by, status", [(1, signal.SIGTERM, 0), (2, signal.SIGINT, 130)])
def test_a_terminated_run_is_saved_and_ends_as_an_uninterrupted_one(
    straight, toy_records, toy_config, tmp_path, monkeypatch, capsys, together, by, status
):
    console.set_verbosity()  # as the command does
    run, before = tmp_path / "run", [signal.getsignal(number) for number in SIGNALS]
    with monkeypatch.context() as changed:
        terminate_at(7, changed, by)
        with pytest.raises(Preempted) as stopped:
            train(toy_config, toy_records, run, steps_per_dispatch=together)
    step = stopped.value.step
    assert stopped.value.code == status and 5 <= step <= 8
    assert (
        f"{by.name}: saved at step {step} of 48; started again, the run goes on from there" in capsys.readouterr().err
    )
    assert (run / "checkpoints" / f"{step:08d}").is_dir()
    assert [signal.getsignal(number) for number in SIGNALS] == before
    train(toy_config, toy_records, run, steps_per_dispatch=together)
    assert f"going on from step {step} " in capsys.readouterr().err
    found, expected = (jax.tree.leaves(load_model(path, "latest").networks) for path in (run, straight))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=0 if together == 1 else 1e-3)


@pytest.mark.usefixtures("thin_network")
def test_a_terminated_descriptor_is_saved_and_ends_as_an_uninterrupted_one(
    descriptor_run_folder, pair_parts, descriptor_config, tmp_path, monkeypatch
):
    run = tmp_path / "run"
    with monkeypatch.context() as changed:
        terminate_at(2, changed)
        with pytest.raises(Preempted):
            train_descriptor(descriptor_config, pair_parts, run)
    assert 1 <= max(losses(run)) < 8
    train_descriptor(descriptor_config, pair_parts, run)
    assert losses(run)[8] == pytest.approx(losses(descriptor_run_folder)[8])
    figures = [json.loads((path / "validation.json").read_text()) for path in (run, descriptor_run_folder)]
    assert figures[0] == figures[1]


@pytest.fixture
def descriptor_run_folder(descriptor_run, tmp_path) -> Path:
    return Path(shutil.copytree(descriptor_run, tmp_path / "uninterrupted"))


@pytest.mark.parametrize("by", SIGNALS)
def test_a_second_signal_does_what_it_did_before(by):
    seen = []
    before = signal.signal(by, lambda *_: seen.append(1))
    try:
        with Stop() as stop:
            os.kill(os.getpid(), by)
            assert stop.here() and not seen
            os.kill(os.getpid(), by)
            assert stop.here() and seen
    finally:
        signal.signal(by, before)


def test_a_loop_in_another_thread_leaves_signals_alone():
    found = []

    def loop():
        with Stop() as stop:
            found.append(stop.here())

    thread = threading.Thread(target=loop)
    thread.start()
    thread.join()
    assert found == [False]
