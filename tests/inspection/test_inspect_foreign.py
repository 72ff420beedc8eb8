"""What files are told that are of a known kind by their first bytes alone."""

import json

import pytest

from xdesc_jax.cli import main


def safetensors(header):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "header",
    [[1], {"__metadata__": [1]}, {"__metadata__": "x"}, b'{"a": ' + b"[" * 100_000, b"{" + b"\xff" * 9],
)
def test_a_header_of_another_form_is_one_line_with_the_file(tmp_path, capsys, header):
    path = tmp_path / "m.safetensors"
    path.write_bytes(safetensors(header))
    assert main(["inspect", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}: ") and error.count("\n") == 1
