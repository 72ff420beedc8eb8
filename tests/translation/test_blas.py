"""Threads of numpy's products are lent, and given back behind the last who took them."""

import pytest

from xdesc_jax.translation.blas import Threads, threads


class Library:
    used = 6

    def threads(self):
        return Threads(lambda: self.used, lambda n: setattr(self, "used", n))


def test_a_library_uses_one_thread_until_the_last_caller_is_done():
    library = Library()
    of = library.threads()
    first, second = of.lent(), of.lent()
    assert first.__enter__() == second.__enter__() == 6 and library.used == 1
    first.__exit__(None, None, None)
    assert library.used == 1
    second.__exit__(None, None, None)
    assert library.used == 6


def test_threads_are_given_back_where_the_caller_fails():
    library = Library()
    with pytest.raises(OSError, match="full"), library.threads().lent():
        raise OSError("full")
    assert library.used == 6


def test_products_of_numpy_have_threads():
    with threads().lent() as found, threads().lent() as again:
        assert found == again >= 1
