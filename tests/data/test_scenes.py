"""The stage `xdesc scenes`: when its folder counts as finished, and what keeps it from being made."""

import subprocess
import sys

import pytest

from tests.support.blob_photos import write_blobs
from tests.support.in_use import check_refused_while_in_use
from xdesc_jax import cli
from xdesc_jax.files.claim import beside


@pytest.fixture
def photos(tmp_path):
    return write_blobs(tmp_path / "photos", ["a.png", "b.png"])


def words(photos, out):
    return ["scenes", str(out), "--photos", str(photos), "--validation-share", "None", "--views", "2"]


def test_a_photo_replaced_under_its_name_is_another_input(photos, tmp_path, capsys):
    out = tmp_path / "out"
    assert cli.main(words(photos, out)) == 0 and cli.main(words(photos, out)) == 0
    assert "up to date" in capsys.readouterr().out
    (photos / "b.png").write_bytes((photos / "a.png").read_bytes())
    assert cli.main(words(photos, out)) == 2
    assert "made with another configuration (contents: other content)" in " ".join(capsys.readouterr().err.split())


def test_scenes_made_twice_at_once_say_who_makes_them(photos, tmp_path, capsys):
    out = tmp_path / "made" / "out"
    check_refused_while_in_use(words(photos, out), beside(out), out, capsys)


FULL_DISK = """
import resource, signal, sys
from xdesc_jax import cli
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.dont_write_bytecode = True  # of which half would be written
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, resource.RLIM_INFINITY))
sys.exit(cli.main(sys.argv[1:]))
"""


def test_a_picture_that_cannot_be_written_is_an_error_and_nothing_is_left(photos, tmp_path):
    """A limit to the size of files stands for the full disk."""
    given = [sys.executable, "-c", FULL_DISK, *words(photos, tmp_path / "out")]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"{tmp_path / 'out'}: cannot be written (File too large)" in done.stderr.replace("\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
