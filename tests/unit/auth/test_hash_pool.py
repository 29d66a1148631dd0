"""Costly hashes: some threads at the most, and the addresses in turn."""

import threading

import gevent

from gomq_py.auth.hash_pool import HashPool
from tests.support.waiting import in_time


class Work:
    """Functions that note when they run and end when they may."""

    def __init__(self):
        self.may_end = threading.Event()
        self.began, self.done = [], []

    def one(self, name):
        self.began.append(name)
        assert self.may_end.wait(in_time(30))
        self.done.append(name)
        return name


def test_no_more_run_at_once_than_there_are_places():
    hashes, work, running, most = HashPool(2), Work(), [], []

    def one():
        running.append(1)
        most.append(len(running))
        running.pop()

    work.may_end.set()
    greenlets = [gevent.spawn(hashes.run, "a", one) for _ in range(20)]
    gevent.joinall(greenlets, timeout=in_time(30), raise_error=True)

    assert len(most) == 20 and max(most) <= 2
    assert hashes._free == 2 and not hashes._line


def test_place_of_one_who_gives_up_is_free_when_the_thread_has_ended(hub):
    hashes, work = HashPool(1), Work()
    hasty = gevent.spawn(hashes.run, "a", work.one, "hasty")
    hub(lambda: work.began)
    patient = gevent.spawn(hashes.run, "b", work.one, "patient")
    hub(lambda: hashes._line)

    hasty.kill()
    still_waiting = len(hashes._line._rows)
    work.may_end.set()

    assert patient.get(timeout=in_time(30)) == "patient"
    assert still_waiting == 1 and work.done == ["hasty", "patient"] and hashes._free == 1


def test_an_address_with_many_attempts_is_as_far_as_one_with_one(hub):
    hashes, work = HashPool(1), Work()
    greenlets = [gevent.spawn(hashes.run, "many", work.one, f"many {number}") for number in range(10)]
    hub(lambda: len(hashes._line) == 9)
    greenlets.append(gevent.spawn(hashes.run, "one", work.one, "one"))
    hub(lambda: len(hashes._line._rows) == 2)

    work.may_end.set()
    gevent.joinall(greenlets, timeout=in_time(30), raise_error=True)

    assert work.done.index("one") <= 2 and len(work.done) == 11


def test_who_goes_while_waiting_leaves_its_place_to_others(hub):
    hashes, work = HashPool(1), Work()
    first = gevent.spawn(hashes.run, "a", work.one, "first")
    hub(lambda: work.began)
    gone = [gevent.spawn(hashes.run, address, work.one, "gone") for address in ("a", "b", "b")]
    last = gevent.spawn(hashes.run, "b", work.one, "last")
    hub(lambda: len(hashes._line) == 4)

    gevent.killall(gone)
    work.may_end.set()
    gevent.joinall([first, last], timeout=in_time(30), raise_error=True)

    assert work.done == ["first", "last"] and hashes._free == 1 and not hashes._line


def test_a_hash_that_raises_gives_its_place_back():
    hashes = HashPool(1)

    for _ in range(3):
        greenlet = gevent.spawn(hashes.run, "a", int, "no number")
        greenlet.join()
        assert isinstance(greenlet.exception, ValueError)

    assert hashes._free == 1
