"""Several hosts: real processes on loopback, which end as one process does, together, or with a message."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.root import SUPPORT
from tests.support.thin_network import thin
from xdesc_jax.config import OptimizerConfig
from xdesc_jax.data.schema import RecordInfo
from xdesc_jax.train import hosts
from xdesc_jax.train.descriptors.run import train_descriptor
from xdesc_jax.train.translators import preparation
from xdesc_jax.train.translators.run import train
from xdesc_jax.train.translators.trained import load_model

SCRIPT = SUPPORT / "one_host.py"


@pytest.fixture(scope="module")
def config(toy_config):
    """Four epochs of four batches; rows on the devices, so that a batch has the same rows for any number of hosts."""
    return dataclasses.replace(
        toy_config, epochs=4, batch_size=60, checkpoint_every=5, log_every=1, resident=True,
        descriptors=("toy-bits", "toy-plain"),
        optimizer=OptimizerConfig(1e-3, "cosine", 3),
    )  # fmt: skip


@pytest.fixture(scope="module")
def config_file(config, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("config") / "config.py"
    values = repr(dataclasses.asdict(config))
    path.write_text(
        "from xdesc_jax.config import TrainConfig\nfrom xdesc_jax.files.fields import from_dict\n\n\n"
        f"def get_config():\n    return from_dict({values}, TrainConfig)\n"
    )
    return path


def where(data: Path, run: Path) -> tuple:
    return "--data", data, "--workdir", run


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(count, devices, arguments, stage="train", thin=False, **signals) -> list[subprocess.Popen]:
    """`count` hosts of `devices` devices each; `signals`: what the last one sends itself, and at which batch."""
    flags = os.environ["XLA_FLAGS"].replace("device_count=4", f"device_count={devices}")
    address = f"127.0.0.1:{free_port()}"
    processes = []
    for i in range(count):
        case = {
            "arguments": [
                stage,
                *map(str, arguments),
                "--coordinator",
                address,
                f"--num-hosts={count}",
                f"--host-id={i}",
            ],
            "thin": thin,
            **(signals if i == count - 1 else {}),
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, SCRIPT, json.dumps(case)],
                env=os.environ | {"XLA_FLAGS": flags},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )  # fmt: skip
        )
    return processes


def finished(processes) -> list[tuple[int, str, str]]:
    """Exit status, output and errors of each."""
    texts = [process.communicate(timeout=300) for process in processes]
    return [(process.returncode, *text) for process, text in zip(processes, texts, strict=True)]


def losses(run: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def assert_same(run: Path, expected: Path) -> None:
    """The same losses at all steps, validation figures and weights."""
    found, wanted = losses(run), losses(expected)
    assert sorted(found) == sorted(wanted)
    np.testing.assert_allclose([found[s] for s in wanted], list(wanted.values()), rtol=1e-5)
    figures = [json.loads((path / "validation.json").read_text()) for path in (run, expected)]
    assert [entry["step"] for entry in figures[0]] == [entry["step"] for entry in figures[1]]
    for a, b in zip(*figures, strict=True):
        assert a["mean_rank1"] == pytest.approx(b["mean_rank1"], abs=0.02)
    for key, layers in load_model(expected, "latest").networks.items():
        for a, b in zip(load_model(run, "latest").networks[key], layers, strict=True):
            for name in b:
                np.testing.assert_allclose(a[name], b[name], atol=1e-4)


@pytest.fixture(scope="module")
def one(config, toy_records, tmp_path_factory) -> Path:
    """One process, four devices, uninterrupted."""
    return train(config, toy_records, tmp_path_factory.mktemp("one") / "run")


@pytest.fixture(scope="module")
def stopped_by_two(config_file, toy_records, tmp_path_factory) -> tuple[Path, list[tuple[int, str, str]]]:
    """Two hosts of two devices; the second gets SIGTERM in the second epoch."""
    run = tmp_path_factory.mktemp("two") / "run"
    arguments = (*where(toy_records, run), "--config", config_file, "--host-timeout=60")
    return run, finished(start(2, 2, arguments, signal="SIGTERM", batch=7))


def test_sigterm_of_one_host_stops_all_at_one_step_with_a_checkpoint_and_status_0(stopped_by_two):
    run, ended = stopped_by_two
    assert [status for status, _, _ in ended] == [0, 0], ended
    step = max(losses(run))
    told = "another host was asked to stop: saved at step"
    assert f"{told} {step} of 16; started again" in " ".join(ended[0][2].split())
    assert sorted(path.name for path in (run / "checkpoints").iterdir())[-1] == f"{step:08d}"
    assert 2 <= step < 16


def test_each_host_says_that_it_is_there_and_one_writes_the_record(stopped_by_two):
    run, ended = stopped_by_two
    for i in range(2):
        lines = (run / "hosts" / f"{i}.log").read_text().splitlines()
        assert len(lines) == len(losses(run))
        assert f"host {i} of 2: step {len(lines)}, loss" in lines[-1] and lines[-1].endswith("rows/s")
        assert f"host {i} of 2: 2 x cpu" in ended[i][2]
    assert not any(
        word in ended[1][1] for word in ("epoch", "step", "result")
    )  # but lines of Gloo, which may run together
    assert len(list((run / "tensorboard").iterdir())) == 1


def test_what_two_hosts_began_one_ends_as_if_it_had_done_all(stopped_by_two, config, toy_records, one, tmp_path):
    run = Path(shutil.copytree(stopped_by_two[0], tmp_path / "run"))
    assert_same(train(config, toy_records, run), one)


def test_what_two_hosts_began_three_end_as_one_does(stopped_by_two, config_file, toy_records, one, tmp_path):
    """Under the other form."""
    run = Path(shutil.copytree(stopped_by_two[0], tmp_path / "run"))
    ended = finished(start(3, 1, (*where(toy_records, run), "--config", config_file, "--backend=sharded")))
    assert [status for status, _, _ in ended] == [0, 0, 0], ended
    assert_same(run, one)


def test_two_hosts_train_a_descriptor_as_one_does(pair_parts, descriptor_config, tmp_path):
    """With augmentation and dropout, stopped by SIGTERM and gone on with.

    The rate is so low that rounding does not decide later on which negative is the hardest.
    """
    run, one, config = tmp_path / "run", tmp_path / "one", tmp_path / "config.py"
    slow = dataclasses.replace(descriptor_config, optimizer=OptimizerConfig(1e-5, "linear", 2))
    values = repr(dataclasses.asdict(slow))
    config.write_text(
        "from xdesc_jax.files.fields import from_dict\n"
        "from xdesc_jax.train.descriptors.config import DescriptorConfig\n\n\n"
        f"def get_config():\n    return from_dict({values}, DescriptorConfig)\n"
    )
    words = ["--config", config, "--host-timeout=60"]
    words += [word for part in pair_parts for word in ("--data", f"{part.path}={part.weight}")]
    words += ["--workdir", run]
    ended = finished(start(2, 2, words, "train-descriptor", thin=True, signal="SIGTERM", batch=3))
    assert [status for status, _, _ in ended] == [0, 0], ended
    assert "another host was asked to stop: saved at step" in " ".join(ended[0][2].split())
    ended = finished(start(2, 2, words, "train-descriptor", thin=True))
    assert [status for status, _, _ in ended] == [0, 0], ended
    assert (run / "start.json").exists()
    with thin():
        train_descriptor(slow, pair_parts, one)
    found, wanted = losses(run), losses(one)
    assert sorted(found) == sorted(wanted)
    np.testing.assert_allclose([found[s] for s in wanted], list(wanted.values()), rtol=1e-4)
    figures = [json.loads((path / "validation.json").read_text())[-1] for path in (run, one)]
    assert figures[0]["mean_loss"] == pytest.approx(figures[1]["mean_loss"], rel=1e-4)


def test_a_host_that_stops_answering_ends_the_others_with_a_message(config_file, toy_records, tmp_path):
    """As one that is killed does, it keeps its connection. Each host reads its own shards here, of one descriptor."""
    arguments = (*where(toy_records, tmp_path / "run"), "--config", config_file, "--no-resident", "--host-timeout=10")
    arguments += ("--descriptors", "toy-unit")
    processes = start(2, 1, arguments, signal="SIGSTOP", batch=4)
    try:
        [(status, _, text)] = finished(processes[:1])
    finally:
        processes[1].kill()
        processes[1].communicate()
    assert status == 2, text
    assert "error: host 1 of 2 has not answered for 10 seconds; started again, the run goes on" in text


def test_what_one_host_is_refused_for_ends_all(config_file, toy_records, tmp_path):
    """Batches of 60 rows over two hosts of four devices."""
    ended = finished(start(2, 4, (*where(toy_records, tmp_path / "run"), "--config", config_file)))
    assert [status for status, _, _ in ended] == [2, 2]
    assert all("batch_size 60 does not divide over 8 devices of 2 hosts" in text for _, _, text in ended)
    assert not (tmp_path / "run").exists()


def test_more_hosts_than_shards_are_refused(config, toy_records, monkeypatch):
    monkeypatch.setattr("jax.process_count", lambda: 6)
    monkeypatch.setattr("jax.process_index", lambda: 5)
    info = RecordInfo.load(toy_records)
    with pytest.raises(ValueError, match="split 'train' has 5 shards for 6 hosts; make the records with smaller"):
        preparation.open_splits(toy_records, dataclasses.replace(config, resident=False), info.specs)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"coordinator": "here:1"}, "--num-hosts, --host-id is missing"),
        ({"coordinator": "here:1", "num_hosts": 2, "host_id": 2}, "--host-id is 2, expected 0 to 1"),
        ({"coordinator": "here", "num_hosts": 2, "host_id": 0}, "expected host:port"),
        ({"coordinator": "here:1", "num_hosts": 2, "host_id": 0, "timeout": 0}, "--host-timeout is 0"),
    ],
)
def test_settings_that_do_not_say_which_host_this_is_are_refused(given, message):
    with pytest.raises(ValueError, match=message), hosts.joined(**given):
        pass


@pytest.mark.parametrize(
    ("variables", "cluster"),
    [
        ({}, None),
        ({"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_NTASKS": "1"}, None),
        ({"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_NTASKS": "2"}, "Slurm"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}, "Kubernetes"),
        ({"TPU_WORKER_HOSTNAMES": "localhost"}, None),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, "TPU"),
    ],
)
def test_a_cluster_is_one_of_several_processes(variables, cluster, monkeypatch):
    for name in ("JAX_COORDINATOR_ADDRESS", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX", "TPU_WORKER_HOSTNAMES", "MEGASCALE_NUM_SLICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hosts.found_cluster() == cluster
    with hosts.joined(num_hosts=1):  # alone all the same
        assert not hosts.several() and hosts.is_lead()


def test_a_cluster_that_jax_cannot_read_is_named(monkeypatch):
    monkeypatch.setattr(hosts, "found_cluster", lambda: "Kubernetes")
    monkeypatch.setattr("jax.distributed.initialize", refuse)
    monkeypatch.setattr("jax.config.update", lambda *_: None)
    with pytest.raises(ValueError, match="Kubernetes: jax cannot tell the hosts of this job.*pass --coordinator"):
        hosts.joined().__enter__()


def refuse(*_, **__):
    raise ValueError("coordinator_address should be defined.")
