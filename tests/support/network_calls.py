"""What networks that need no torch tell a test: a line for every photo or pair that they are called for."""

from __future__ import annotations

CALLS = "XDESC_TEST_CALLS"  # names the file of the lines, where a test asks for them
