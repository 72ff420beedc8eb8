"""Who may train members of a sweep while others do."""

import dataclasses
from pathlib import Path

import pytest

from tests.support import toy_records as toy
from xdesc_jax.files.claim import InUse, holder, inside
from xdesc_jax.sweep.config import SweepConfig, expand
from xdesc_jax.sweep.shards import claimed_shard
from xdesc_jax.sweep.stage import sweep

BASE = dataclasses.replace(toy.toy_config(), epochs=1)
SETTINGS = SweepConfig(BASE, grid={"seed": (0, 1, 2, 3)})
MEMBERS = expand(SETTINGS)


def test_a_sweep_started_twice_says_who_sweeps_there(toy_folder, tmp_path):
    workdir = tmp_path / "w"
    with claimed_shard(workdir, MEMBERS, 0, 1, overwrite=False) as start:
        start.close()
        with pytest.raises(
            InUse, match=rf"{workdir}: another process works on it: xdesc sweep --shard 0/1, process \d+"
        ):
            sweep(config=SETTINGS, data=toy_folder, workdir=workdir)
        assert [path.suffix for path in workdir.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("other", "free"), [((1, 2), True), ((0, 2), False), ((0, 4), False), ((2, 4), True), ((0, 1), False)]
)
def test_shards_of_other_members_alone_train_beside_each_other(tmp_path, other, free):
    """Of four members: the first half is held."""
    with claimed_shard(tmp_path, MEMBERS, 0, 2, overwrite=False) as start:
        start.close()
        if free:
            with claimed_shard(tmp_path, MEMBERS, *other, overwrite=False):
                assert holder(inside(tmp_path, f"shard-{other[0]}-of-{other[1]}")) is not None
            return
        with (
            pytest.raises(InUse, match="xdesc sweep --shard 0/2"),
            claimed_shard(tmp_path, MEMBERS, *other, overwrite=False),
        ):
            pytest.fail("two of them")


def test_a_sweep_is_not_overwritten_under_a_shard_that_trains(tmp_path):
    with claimed_shard(tmp_path, MEMBERS, 0, 2, overwrite=False) as start:
        start.close()
        with pytest.raises(InUse, match="to be overwritten"), claimed_shard(tmp_path, MEMBERS, 1, 2, overwrite=True):
            pytest.fail("two of them")
    with claimed_shard(tmp_path, MEMBERS, 1, 2, overwrite=True):
        assert Path(tmp_path).exists()
