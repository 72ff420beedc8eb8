"""Sweeps by job arrays: each script trains the shard that its queue's number says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.root import ROOT

PIPELINES = ROOT / "pipelines"


@pytest.fixture
def fake_programs(tmp_path) -> dict[str, str]:
    """`xdesc` and `scontrol` that print their words, and `srun` that fails: Slurm's kills what it runs when it gets
    SIGTERM, with which a task is told to save."""
    for name, body in (("xdesc", 'echo "$@"'), ("scontrol", 'echo "$@"'), ("srun", "exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    return {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}


def words(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_slurm_task_trains_its_shard(fake_programs):
    environment = fake_programs | {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8"}
    shown = words(["bash", str(PIPELINES / "sweep_slurm.sh"), "c.py", "data", "w"], environment)
    assert shown.startswith("sweep --config c.py --data data --workdir w") and "--shard 3/8" in shown


@pytest.mark.parametrize("fails", [False, True])
def test_a_slurm_task_whose_time_ends_puts_itself_back_once_it_has_saved(fake_programs, tmp_path, fails):
    """Slurm signals the script, which tells the training; one that cannot save is not begun again."""
    saving = f"trap 'echo saved; exit {int(fails)}' TERM; kill -TERM $SCRIPT; for _ in $(seq 500); do sleep 0.01; done"
    (tmp_path / "xdesc").write_text(f"#!/bin/sh\n{saving}\n")
    task = {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8", "SLURM_JOB_ID": "77"}
    command = ["bash", "-c", 'SCRIPT=$$ exec bash "$@"', "_", str(PIPELINES / "sweep_slurm.sh"), "c.py", "data", "w"]
    ended = subprocess.run(command, env=fake_programs | task, capture_output=True, text=True)
    assert ended.returncode == fails
    assert ended.stdout.split("\n") == ["saved", *["requeue 77"] * (not fails), ""]


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(["5"], {}), ([], {"JOB_COMPLETION_INDEX": "5"}), ([], {"AWS_BATCH_JOB_ARRAY_INDEX": "5"})],
)
def test_a_worker_of_a_queue_trains_its_shard(fake_programs, arguments, environment):
    command = ["sh", str(PIPELINES / "sweep_queue.sh"), "c.py", "data", "w", "6", *arguments]
    assert words(command, fake_programs | environment).split()[-2:] == ["--shard", "5/6"]


def test_a_worker_without_a_number_says_so(fake_programs):
    command = ["sh", str(PIPELINES / "sweep_queue.sh"), "c.py", "data", "w", "6"]
    ended = subprocess.run(command, env=fake_programs, capture_output=True, text=True)
    assert ended.returncode != 0 and "no index" in ended.stderr


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # submitit leaves its logs open
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_submitit_jobs_train_their_shards(monkeypatch, tmp_path):
    pytest.importorskip("submitit", reason="submitit is not installed")
    from pipelines import sweep_submitit

    monkeypatch.setattr(sweep_submitit, "sweep", lambda **settings: None)
    (tmp_path / "c.py").write_text(
        "from xdesc_jax.config import TrainConfig\nfrom xdesc_jax.sweep.config import SweepConfig\n\n\n"
        "def get_config():\n    return SweepConfig(TrainConfig())\n"
    )
    jobs = sweep_submitit.submit(
        tmp_path / "c.py", tmp_path / "data", tmp_path / "w", shards=3, cluster="debug", slurm=("slurm_partition=gpu",)
    )
    assert [job.result() for job in jobs] == ["0/3", "1/3", "2/3"]
    assert not (tmp_path / "w").exists() and sys.modules["submitit"]
    again = sweep_submitit.Shard(tmp_path, tmp_path, tmp_path, "0/3", 4).checkpoint()
    assert again.function.shard == "0/3"
