"""The journal of a run: what is finished comes back bit for bit, what was cut or made otherwise does not."""

import numpy as np
import pytest

from xdesc_jax.files.journal import Journal

ENTRY = {
    "status": "localized",
    "figure": 0.1 + 0.2,
    "none": None,
    "names": ["é", 'b "c"'],
    "rows": np.arange(6, dtype=np.int32).reshape(3, 2).T,  # not in C order
    "values": np.array([np.nan, -0.0, np.inf, 1e-310]),
    "empty": np.zeros((0, 3), np.float32),
    "mask": np.array([True, False]),
    "scalar": np.array(2.5),
}


def check_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, np.ndarray):
            assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
            assert found[name].tobytes() == value.tobytes()
        else:
            assert found[name] == value


def test_entries_come_back_bit_for_bit(tmp_path):
    path = tmp_path / "deep" / ".part"
    with Journal(path, "hash") as journal:
        journal.add("a", ENTRY)
        journal.add("b", {"n": 1})
        check_same(journal["a"], ENTRY)
    with Journal(path, "hash") as journal:
        assert len(journal) == 2 and "a" in journal and "c" not in journal
        check_same(journal["a"], ENTRY)
        assert journal.recall("b", lambda: pytest.fail("it is there")) == {"n": 1}
        assert journal.recall("c", lambda: {"n": 3}) == {"n": 3}
    with Journal(path, "hash") as journal:
        assert len(journal) == 3
        journal.remove()
    assert not path.exists()


@pytest.mark.parametrize("kept", [1, 7, 40, -1])
def test_an_entry_that_was_being_written_is_dropped_and_made_again(tmp_path, kept):
    path = tmp_path / "part"
    with Journal(path, "hash") as journal:
        journal.add("a", ENTRY)
        whole = path.stat().st_size
        journal.add("b", ENTRY)
    content = path.read_bytes()
    path.write_bytes(content[: whole + kept] if kept > 0 else content[:kept])
    with Journal(path, "hash") as journal:
        assert len(journal) == 1 and path.stat().st_size == whole
        check_same(journal["a"], ENTRY)
        journal.add("b", ENTRY)
    assert path.read_bytes() == content


def test_a_damaged_entry_and_those_behind_it_are_not_used(tmp_path):
    path = tmp_path / "part"
    with Journal(path, "hash") as journal:
        journal.add("a", {"n": 1})
        whole = path.stat().st_size
        journal.add("b", {"n": 2})
        journal.add("c", {"n": 3})
    content = bytearray(path.read_bytes())
    content[whole + 20] ^= 1
    path.write_bytes(content)
    with Journal(path, "hash") as journal:
        assert len(journal) == 1 and journal["a"] == {"n": 1}


@pytest.mark.parametrize("content", [None, b"", b"something else that is no journal at all"])
def test_entries_of_other_settings_are_not_used_and_that_is_said(tmp_path, caplog, content):
    path = tmp_path / "part"
    if content is None:
        with Journal(path, "old") as journal:
            journal.add("a", ENTRY)
    else:
        path.write_bytes(content)
    with caplog.at_level("INFO", "xdesc_jax"), Journal(path, "new") as journal:
        assert len(journal) == 0
        journal.add("b", {"n": 2})
    assert (f"{path}: was made with other settings or inputs, or is damaged; it is not used" in caplog.text) == (
        content != b""
    )
    with Journal(path, "new") as journal:
        assert journal["b"] == {"n": 2}


def test_nothing_is_left_where_nothing_was_finished(tmp_path):
    with Journal(tmp_path / "part", "hash"):
        pass
    assert list(tmp_path.iterdir()) == []
