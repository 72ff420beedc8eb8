"""All members are checked before the first is trained."""

import dataclasses

import numpy as np
import pytest

from tests.support import toy_records as toy
from tests.support.aligned_stores import random_rows, write_aligned
from xdesc_jax.config import OptimizerConfig
from xdesc_jax.data.records import records
from xdesc_jax.data.schema import RecordInfo
from xdesc_jax.descriptors import DescriptorSpec
from xdesc_jax.sweep import run as sweep_run
from xdesc_jax.sweep.check import state_bytes
from xdesc_jax.sweep.config import SweepConfig
from xdesc_jax.sweep.stage import sweep
from xdesc_jax.train.devices import Devices
from xdesc_jax.train.translators.inputs import choose_specs

BASE = dataclasses.replace(toy.toy_config(), epochs=1)
GOOD = {"seed": 1}


class Reached(Exception):
    """Raised in place of a training."""


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ({"batch_size": 512}, "the member with batch_size: 512: .*split 'train' gives a host .* fewer than one batch"),
        ({"resident": True, "batch_size": 512}, "resident: yes, batch_size: 512: .*split 'train' gives a host"),
        (
            {"inputs": "patches", "descriptors": ("brief",)},
            "inputs: patches, descriptors: brief: .*has no column 'patch'",
        ),
        ({"model.kind": "pair", "descriptors": ("toy-unit",)}, "pair networks need two descriptors or more"),
        ({"descriptors": ("toy-unit", "surf")}, r"records lack \['surf'\]"),
        ({"optimizer.learning_rate": float("inf")}, "optimizer.learning_rate is inf, expected a number from 0"),
        ({"loss.margin": float("inf")}, "loss.margin is inf, expected a finite number"),
    ],
)
def test_a_member_that_cannot_be_trained_is_named_before_another_is(toy_folder, tmp_path, monkeypatch, member, message):
    monkeypatch.setattr(sweep_run, "train_group", lambda *_: pytest.fail("trained before all were checked"))
    with pytest.raises(ValueError, match=message):
        sweep(config=SweepConfig(BASE, members=(GOOD, member)), data=toy_folder, workdir=tmp_path / "w")
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(("limit", "population", "fits"), [(2.5, 3, False), (2.5, 2, True), (3.5, 3, True)])
def test_a_population_is_checked_against_the_memory_of_a_device(
    toy_folder, tmp_path, monkeypatch, limit, population, fits
):
    """Limits in members; of three, populations of two are one of two and one of one."""
    of_one = state_bytes(BASE, RecordInfo.load(toy_folder))
    monkeypatch.setattr(Devices, "memory_bytes", property(lambda _: int(limit * of_one)))

    def trained(*_):
        raise Reached("reached")

    monkeypatch.setattr(sweep_run, "train_group", trained)
    settings = SweepConfig(BASE, grid={"seed": (0, 1, 2)})
    expected = (Reached, "^reached$") if fits else (ValueError, "3 members together.*pass a smaller --population")
    with pytest.raises(expected[0], match=expected[1]):
        sweep(config=settings, data=toy_folder, workdir=tmp_path / "w", population=population)


@pytest.mark.parametrize("ema", [0.0, 0.5])
def test_the_bytes_of_a_member_are_its_weights_their_moments_and_their_average(toy_folder, ema):
    """By hand: of each layer a kernel; of a hidden one the norm's scale, offset and two running figures, of the last a
    bias; weights come with two moments, and an average repeats all but these; two counters."""
    info = RecordInfo.load(toy_folder)
    config = dataclasses.replace(BASE, optimizer=OptimizerConfig(ema=ema))
    specs = choose_specs(info, config)
    weights = running = 0
    for spec in specs.values():
        (hidden,) = spec.hidden
        for first, last in ((spec.width, 8), (8, spec.width)):
            weights += first * hidden + 2 * hidden + hidden * last + last
            running += 2 * hidden
    kept = weights * 3 + running + (weights + running if ema else 0)
    assert state_bytes(config, info) == 4 * (kept + 2)


def test_members_of_two_frames_do_not_train_together(tmp_path, monkeypatch):
    """With a descriptor that sees photos as they lie, networks of the others take frames, which alone they do not."""
    specs = {name: DescriptorSpec(name, 4, frame=frame) for name, frame in (("a", "keypoint"), ("b", "image"))}
    rng = np.random.default_rng(0)
    xy, shapes = rng.uniform(0, 64, (40, 2)).astype(np.float32), {"scales": np.ones(40), "oris": np.zeros(40)}
    photos = [({name: random_rows(rng, 40, spec) for name, spec in specs.items()}, xy, shapes) for _ in range(4)]
    paths = write_aligned(tmp_path, specs, photos)
    data = records(tmp_path / "records", paired=paths, format="npy", validation_share=0.25).path
    together = []

    def trained(members, *_):
        together.append([member.config.descriptors for member in members])
        raise Reached

    monkeypatch.setattr(sweep_run, "train_group", trained)
    settings = SweepConfig(BASE, grid={"descriptors": (("a",), ("a", "b"))})
    with pytest.raises(Reached):
        sweep(config=settings, data=data, workdir=tmp_path / "w")
    assert together == [[("a",)]]


@pytest.mark.parametrize(("resident", "fits"), [(True, True), (False, False)])
def test_context_is_refused_of_members_alone_that_do_not_hold_whole_photos(
    toy_folder, tmp_path, monkeypatch, resident, fits
):
    def trained(*_):
        raise Reached("reached")

    monkeypatch.setattr(sweep_run, "train_group", trained)
    settings = SweepConfig(BASE, members=({"model.context.of": "keypoint", "resident": resident},))
    expected = (Reached, "reached") if fits else (ValueError, "set resident=True, or make records with --deal-by photo")
    with pytest.raises(expected[0], match=expected[1]):
        sweep(config=settings, data=toy_folder, workdir=tmp_path / "w")
