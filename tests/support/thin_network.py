"""L2-Net with a sixteenth of its channels, where a test is of the training and not of the network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from xdesc_jax.features import l2net

SHARE = 16
WIDE_LAYERS, wide_init = l2net.LAYERS, l2net.init


def make_thin() -> None:
    """From now on; its rows are as wide as ever."""
    *hidden, last = WIDE_LAYERS
    hidden = [n._replace(inputs=_thin(n.inputs), outputs=_thin(n.outputs)) for n in hidden]
    l2net.LAYERS = (*hidden, last._replace(inputs=_thin(last.inputs)))
    l2net.init = lambda key: wide_init(key)  # jax knows what it compiled by the function, and its key is the same


@contextlib.contextmanager
def thin() -> Iterator[None]:
    """Within it; may be entered again there."""
    before = l2net.LAYERS, l2net.init
    make_thin()
    try:
        yield
    finally:
        l2net.LAYERS, l2net.init = before


def _thin(channels: int) -> int:
    return max(1, channels // SHARE)
