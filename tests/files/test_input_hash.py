"""What a stage knows its inputs by: small ones by content, large ones by size, time and samples, whole where asked."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from xdesc_jax.cli import main
from xdesc_jax.files.dry_run import planning
from xdesc_jax.files.whole import SAMPLE_BYTES, SAMPLES, WHOLE_BYTES, WHOLE_INPUTS, content_hash, input_hash

TIME_NS = 1_700_000_000_123_456_789


@pytest.fixture
def large(tmp_path):
    """A file of which nothing but a few bytes takes room on the disk."""
    path = tmp_path / "large.h5"
    with path.open("wb") as file:
        file.truncate(2 * WHOLE_BYTES)
    os.utime(path, ns=(TIME_NS, TIME_NS))
    return path


def write(path: Path, at: int, *, later: int = 0) -> None:
    """Changes a byte; the file's time is as before unless it is changed `later` ns."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"x")
    os.utime(path, ns=(TIME_NS, TIME_NS + later))


def bytes_read() -> int:
    """That this process has asked the system for, whatever for."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_a_small_file_is_known_by_its_content_alone(tmp_path):
    path = tmp_path / "small.txt"
    path.write_bytes(b"rows")
    os.utime(path, ns=(TIME_NS, TIME_NS))
    before = input_hash(path)
    assert before == hashlib.sha256(b"rows").hexdigest()[:12]
    os.utime(path, ns=(TIME_NS, TIME_NS + 1))
    assert input_hash(path) == before


def test_of_a_large_file_samples_are_read(large):
    start = bytes_read()
    input_hash(large)
    assert bytes_read() - start < SAMPLES * SAMPLE_BYTES + 4096 < WHOLE_BYTES // 10


def test_a_large_file_is_another_with_another_size_time_or_sample(large):
    size, before = large.stat().st_size, input_hash(large)
    assert input_hash(large) == before
    found = [before]
    for at in (0, (size - SAMPLE_BYTES) * 20 // (SAMPLES - 1), size - 1):
        write(large, at)
        found.append(input_hash(large))
    os.utime(large, ns=(TIME_NS, TIME_NS + 1))
    found.append(input_hash(large))
    os.truncate(large, size + 1)
    os.utime(large, ns=(TIME_NS, TIME_NS + 1))
    found.append(input_hash(large))
    assert len(set(found)) == len(found) == 6


def test_what_is_changed_between_samples_has_another_time(large):
    before = input_hash(large)
    write(large, SAMPLE_BYTES + 1, later=1)
    assert input_hash(large) != before


def test_a_large_file_is_read_whole_where_asked(large, monkeypatch):
    monkeypatch.setenv(WHOLE_INPUTS, "1")
    start, before = bytes_read(), input_hash(large)
    assert bytes_read() - start >= large.stat().st_size and before == content_hash(large)
    os.utime(large, ns=(TIME_NS, TIME_NS + 1))
    assert input_hash(large) == before
    write(large, SAMPLE_BYTES + 1)
    assert input_hash(large) != before


def test_the_command_line_asks_for_whole_inputs(monkeypatch, capsys):
    monkeypatch.setenv(WHOLE_INPUTS, "")
    assert main(["models", "--quiet"]) == 0 and not os.environ[WHOLE_INPUTS]
    assert main(["models", "--quiet", "--whole-inputs"]) == 0 and os.environ[WHOLE_INPUTS]


def test_a_dry_run_lists_a_large_input(large):
    with planning() as plan:
        input_hash(large)
    assert list(plan.inputs) == [large]
