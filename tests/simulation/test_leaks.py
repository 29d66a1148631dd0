"""Leaks: what grows from each count to the next is one; test_seeds has a broker with leaks."""
from collections import Counter

from tests.simulation import leaks


def test_what_grows_each_time_is_named():
    assert leaks.growing([Counter(timers=1), Counter(timers=2), Counter(timers=4)]) == ["timers: 1, 2, 4"]


def test_what_stays_or_comes_back_is_not():
    assert not leaks.growing([Counter(pairs=1, maps=3), Counter(pairs=2, maps=4), Counter(pairs=2, maps=3)])
