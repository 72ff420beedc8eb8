"""Threads of matrix products are lent, and given back behind the last who took them."""

from __future__ import annotations

import numpy as np
import pytest
import threadpoolctl

from xdesc_jax.translation.blas import Threads, threads


class Library:
    def __init__(self, used: int | None):
        self.used = used

    def get_num_threads(self) -> int | None:
        return self.used

    def set_num_threads(self, num_threads: int) -> None:
        self.used = num_threads


def test_libraries_use_one_thread_until_the_last_caller_is_done():
    libraries = [Library(6), Library(4)]
    of = Threads(libraries)
    first, second = of.lent(), of.lent()
    assert first.__enter__() == second.__enter__() == 6
    first.__exit__(None, None, None)
    assert [library.used for library in libraries] == [1, 1]
    second.__exit__(None, None, None)
    assert [library.used for library in libraries] == [6, 4]


def test_threads_are_given_back_where_the_caller_fails():
    library = Library(6)
    with pytest.raises(OSError, match="full"), Threads([library]).lent():
        raise OSError("full")
    assert library.used == 6


@pytest.mark.parametrize("libraries", [[], [Library(None)]])
def test_without_a_library_that_tells_there_is_one_thread(libraries):
    with Threads(libraries).lent() as found:
        assert found == 1


def test_products_of_numpy_use_one_thread_while_theirs_are_lent():
    def used() -> list[int]:
        return [found["num_threads"] for found in threadpoolctl.threadpool_info() if found["user_api"] == "blas"]

    np.ones((2, 2)) @ np.ones((2, 2))
    before = used()
    with threads().lent() as found:
        assert found == max(before) and set(used()) == {1}
    assert used() == before
