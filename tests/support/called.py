"""What a command line would call."""

from __future__ import annotations

import pytest

from xdesc_jax import cli, descriptors


def called(monkeypatch, words: list[str]) -> dict:
    """What the stage that these words name would be called with; it is not."""
    seen: dict = {}

    class Stopped(SystemExit):
        pass

    def begin(stage, given):
        seen.update(given)
        raise Stopped

    monkeypatch.setattr(cli, "_begin", begin)
    monkeypatch.setenv(descriptors.PLUGINS, "")  # which --plugin changes
    with pytest.raises(Stopped):
        cli.main(words)
    return seen
