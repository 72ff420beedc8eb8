"""L2-Net with a sixteenth of its channels, where a test is of the training and not of the network."""

from xdesc_jax.features import l2net

SHARE = 16


def make_thin() -> None:
    """For the rest of a process, before anything is compiled in it; its rows are as wide as ever."""
    *hidden, last = l2net.LAYERS
    hidden = [n._replace(inputs=_thin(n.inputs), outputs=_thin(n.outputs)) for n in hidden]
    l2net.LAYERS = (*hidden, last._replace(inputs=_thin(last.inputs)))


def _thin(channels: int) -> int:
    return max(1, channels // SHARE)
