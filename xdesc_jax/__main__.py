"""`python -m xdesc_jax`: the `xdesc` command."""

from xdesc_jax.cli import entry

entry()
