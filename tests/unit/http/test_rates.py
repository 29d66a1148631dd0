"""Rates over a clock that the test moves."""
from gomq_py.http.rates import Rates


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Thing:
    pass


def test_a_rate_is_the_change_between_two_looks():
    clock, thing = Clock(), Thing()
    rates = Rates(clock)
    first = rates.of(thing, "published", 100)
    clock.now = 5.0

    second = rates.of(thing, "published", 200)

    assert (first, second) == (0.0, 20.0)


def test_looks_in_quick_succession_share_a_rate():
    clock, thing = Clock(), Thing()
    rates = Rates(clock)
    rates.of(thing, "published", 0)
    clock.now = 2.0
    rates.of(thing, "published", 20)
    clock.now = 2.1

    assert rates.of(thing, "published", 1000) == 10.0


def test_after_a_long_pause_a_rate_starts_anew():
    clock, thing = Clock(), Thing()
    rates = Rates(clock)
    rates.of(thing, "published", 0)
    clock.now = 3600.0

    assert rates.of(thing, "published", 10**6) == 0.0
