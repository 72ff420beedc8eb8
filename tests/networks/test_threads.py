"""Threads of a divided computation: no more than cores that the process may use, nor than four."""

import os

import pytest

from xdesc_jax.networks.threads import shared_threads


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (3, 3), (64, 4)])
def test_one_thread_a_usable_core_and_four_at_most(monkeypatch, cores, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert shared_threads() == threads
