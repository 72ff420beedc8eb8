"""`python -m xdesc_jax`: the `xdesc` command."""

import sys

from xdesc_jax.cli import main

sys.exit(main())
