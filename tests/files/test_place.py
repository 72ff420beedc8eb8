"""Results that cannot be written where they shall be: told before any work, by the name that was given."""

import pytest

from xdesc_jax.files import dry_run
from xdesc_jax.files.claim import beside, claimed, inside
from xdesc_jax.files.place import check_folder
from xdesc_jax.files.whole import already_done, making


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path):
    (tmp_path / "queries.txt").write_text("a")
    told = r"^.*queries.txt: is a file, expected a folder$"
    for out in (tmp_path / "queries.txt", tmp_path / "queries.txt" / "deeper" / "still"):
        with pytest.raises(NotADirectoryError, match=told):
            already_done(out / "brief.h5", None, "hash", False)
        with pytest.raises(NotADirectoryError, match=told), claimed(inside(out), "xdesc extract", out):
            pytest.fail("claimed")
        with pytest.raises(NotADirectoryError, match=told), dry_run.planning():
            making(out / "brief.h5")


@pytest.mark.parametrize("out", ["/proc/m.h5", "/proc/none/m.h5"])
def test_a_place_that_cannot_be_written_is_told_with_the_result_and_why(tmp_path, out):
    told = rf"^{out}: cannot be written here \([A-Z][a-z ]+\)$"
    path = tmp_path.__class__(out)
    with pytest.raises(OSError, match=told):
        already_done(path, None, "hash", False)
    with pytest.raises(OSError, match=told), claimed(beside(path), "xdesc match", path):
        pytest.fail("claimed")


def test_the_check_leaves_nothing_and_makes_no_folder(tmp_path):
    check_folder(tmp_path / "new" / "folder", tmp_path / "new" / "folder" / "out.h5")
    assert list(tmp_path.iterdir()) == []
