"""Who may train members of a sweep while others do."""

import dataclasses
from pathlib import Path

import pytest

from tests.support import toy_records as toy
from xdesc_jax.data.schema import RecordInfo
from xdesc_jax.files.claim import InUse, claimed, holder, inside
from xdesc_jax.files.whole import write_json
from xdesc_jax.sweep.config import SweepConfig, expand, sweep_hash
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


def test_a_member_that_a_training_of_its_own_works_on_is_left_to_it(toy_folder, tmp_path, monkeypatch):
    """As `xdesc train --workdir W/members/NAME`, which goes on with a member."""
    monkeypatch.setattr("xdesc_jax.sweep.run.train_group", lambda *_: pytest.fail("two of them"))
    run = tmp_path / "w" / "members" / MEMBERS[1].name
    (tmp_path / "w").mkdir()
    sweep_json = tmp_path / "w" / "sweep.json"
    write_json(sweep_json, {"hash": sweep_hash(SETTINGS, RecordInfo.load(toy_folder).config_hash)})
    with claimed(inside(run), "xdesc train", run), pytest.raises(InUse, match=f"{run}: .* xdesc train, process"):
        sweep(config=SETTINGS, data=toy_folder, workdir=tmp_path / "w")
