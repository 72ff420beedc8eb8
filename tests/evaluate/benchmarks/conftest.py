"""Runs of benchmarks without what takes most of their time here."""

import pytest

from xdesc_jax.reports.parts import Picture


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Charts are not drawn; `test_drawing` draws each once."""
    monkeypatch.setattr("xdesc_jax.reports.chart.chart", lambda *_, **words: Picture(b"", **words))
