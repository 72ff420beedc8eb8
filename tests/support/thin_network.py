"""L2-Net with a sixteenth of its channels, where a test is of the training and not of the network."""

from xdesc_jax.features import l2net

SHARE = 16


def layers() -> tuple[l2net.Layer, ...]:
    """Those of the network, thinner; its rows are as wide as ever."""
    *hidden, last = l2net.LAYERS
    hidden = [n._replace(inputs=_thin(n.inputs), outputs=_thin(n.outputs)) for n in hidden]
    return (*hidden, last._replace(inputs=_thin(last.inputs)))


def make_thin() -> None:
    """For the rest of this process."""
    l2net.LAYERS = layers()


def _thin(channels: int) -> int:
    return max(1, channels // SHARE)
