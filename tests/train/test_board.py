"""What hosts tell each other: set, read, waited for; by those who know the secret alone."""

import threading

import pytest

from xdesc_jax.train import board, watch
from xdesc_jax.train.board import Board, Keeper


@pytest.fixture
def keeper():
    made = Keeper()
    yield made
    made.close()


def host(keeper, number, secret=None):
    return Board(["127.0.0.1"], keeper.port, secret or keeper.secret, number)


def test_each_host_reads_what_the_others_told_last(keeper):
    first, second = host(keeper, 0), host(keeper, 1)
    first.put("beat", "1")
    second.put("beat", "7")
    second.put("beat", "8")
    first.put("failed", "line\nbreaks and \u65e5\u672c")
    assert second.read("beat") == {"beat/0": "1", "beat/1": "8"}
    assert first.read("") == {"beat/0": "1", "beat/1": "8", "failed/0": "line\nbreaks and \u65e5\u672c"}


def test_hosts_wait_for_each_other(keeper):
    passed = []

    def come(number):
        host(keeper, number).meet("here", 3, 60)
        passed.append(number)

    threads = [threading.Thread(target=come, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    with pytest.raises(TimeoutError, match="not told by all of 3 hosts"):
        host(keeper, 0).read_all("here", 3, 0.1)
    assert passed == []
    come(2)
    for thread in threads:
        thread.join()
    assert sorted(passed) == [0, 1, 2]


def test_an_address_that_leads_nowhere_is_passed_over(keeper):
    found = Board(["no-such-host.invalid", "127.0.0.1"], keeper.port, keeper.secret, 1)
    found.put("beat", "1")
    assert found.read("beat") == {"beat/1": "1"}


def test_somebody_without_the_secret_is_told_nothing(keeper, monkeypatch):
    host(keeper, 0).put("beat", "1")
    monkeypatch.setattr(board, "_CONNECTING", 0.5)
    with pytest.raises(ConnectionError, match="host 0 is not to be reached"):
        host(keeper, 1, secret="0" * 32)
    assert host(keeper, 0).read("") == {"beat/0": "1"}


def test_a_host_learns_that_host_0_is_gone():
    keeper = Keeper()
    found = host(keeper, 1)
    keeper.close()
    with pytest.raises(OSError):
        found.read("")


def test_hosts_that_do_not_say_where_to_stop_are_named(keeper, monkeypatch):
    """Of three, one is asked to stop, another answers, and the third hangs: that one is named, not the coordinator."""
    said, ended = [], threading.Event()
    monkeypatch.setattr(watch.jax, "process_index", lambda: 1)
    monkeypatch.setattr(watch.jax, "process_count", lambda: 3)
    monkeypatch.setattr(watch, "leave", lambda text: (said.append(text), ended.set()))
    host(keeper, 0).put("dispatches", "4")
    watching = watch.Watch(host(keeper, 1), 1.0)
    watching.asked = True
    assert ended.wait(30)
    watching.end()
    assert said[0].startswith("host 2 of 3 did not say where to stop; started again, the run goes on")
