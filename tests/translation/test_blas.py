"""Threads of matrix products are lent, and given back behind the last who took them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

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


def used() -> list[int]:
    """Threads of the libraries of numpy's products."""
    return [found["num_threads"] for found in threadpoolctl.threadpool_info() if found["user_api"] == "blas"]


@pytest.fixture
def three() -> Iterator[None]:
    """Those libraries use three threads each. They are set by threads that end: threadpoolctl heeds one alone as long
    as it lives."""
    np.ones((2, 2)) @ np.ones((2, 2))
    libraries, before = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers, used()

    def use(numbers: list[int]) -> None:
        for library, number in zip(libraries, numbers, strict=True):
            thread = threading.Thread(target=library.set_num_threads, args=(number,))
            thread.start()
            thread.join()

    use([3] * len(before))
    yield
    use(before)


def test_products_of_numpy_use_one_thread_while_theirs_are_lent(three):
    with threads().lent() as found:
        assert found == 3 and set(used()) == {1}
    assert set(used()) == {3}


def test_the_last_caller_gives_back_what_another_thread_took(three):
    """The first one's thread lives on, as in a pool."""
    first, last = threads().lent(), threads().lent()
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        for thread, caller in ((one, first), (other, last)):
            thread.submit(caller.__enter__).result()
        assert set(used()) == {1}
        for thread, caller in ((one, first), (other, last)):
            thread.submit(caller.__exit__, None, None, None).result()
        assert set(used()) == {3}


def test_a_pool_has_as_many_threads_as_are_lent_and_each_says_that_one_is_used():
    """As a library heeds it whose numbers are a thread's own."""
    told: list[tuple[int, int]] = []

    class OfAThread(Library):
        def set_num_threads(self, num_threads: int) -> None:
            told.append((threading.get_ident(), num_threads))

    barrier = threading.Barrier(3)
    with Threads([OfAThread(3)]).pool() as pool:
        for at in [pool.submit(barrier.wait) for _ in range(3)]:
            at.result()
    assert [number for _, number in told] == [1, 1, 1, 1, 3]
    assert len({thread for thread, _ in told}) == 4 and told[0][0] == told[-1][0] == threading.get_ident()
