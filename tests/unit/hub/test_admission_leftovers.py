"""Memory that many clients took is given back once it is quiet, and not while clients come and go."""
import pytest

from gomq_py.hub.admission import LULL_MS, MANY, Leftovers
from tests.support.queues import HandTimers


class Bench:
    """Leftovers on a clock; ``given_back`` is when."""

    def __init__(self):
        self.now_ms, self.given_back, self.is_ending = 0, [], False
        self.timers = HandTimers(self)
        self.leftovers = Leftovers(self.timers, self, lambda: self.given_back.append(self.now_ms))

    def are_waiting(self):
        return self.is_ending

    def leave(self, count):
        for _ in range(count):
            self.leftovers.one_left()

    def advance(self, ms):
        self.now_ms += ms
        self.timers.fire()


@pytest.fixture
def bench():
    return Bench()


def test_it_is_given_back_when_many_have_left_and_nobody_leaves_any_more(bench):
    bench.leave(MANY - 1)
    assert not bench.timers.pending

    bench.leave(1)
    bench.advance(LULL_MS)

    assert bench.given_back == [LULL_MS] and not bench.timers.pending


def test_it_is_kept_while_clients_come_and_go(bench):
    bench.leave(MANY)
    for _ in range(10):
        bench.advance(LULL_MS - 1)
        bench.leave(1)
        bench.advance(1)
    assert not bench.given_back

    bench.advance(LULL_MS)

    assert bench.given_back == [11 * LULL_MS]


def test_it_is_kept_until_all_that_they_had_has_ended(bench):
    bench.leave(MANY)
    bench.is_ending = True
    bench.advance(LULL_MS)
    assert not bench.given_back

    bench.is_ending = False
    bench.advance(LULL_MS)

    assert bench.given_back == [2 * LULL_MS]


def test_it_takes_as_many_again_until_the_next_time(bench):
    bench.leave(MANY)
    bench.advance(LULL_MS)

    bench.leave(MANY - 1)
    assert not bench.timers.pending
    bench.leave(1)
    bench.advance(LULL_MS)

    assert bench.given_back == [LULL_MS, 2 * LULL_MS]
