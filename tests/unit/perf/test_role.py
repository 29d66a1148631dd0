"""When a publisher at a rate may publish, and how much."""
from types import SimpleNamespace

import pytest

from gomq_py.perf.role import PublisherRole

RATE = 1000
SECOND_NS = 1_000_000_000


def publisher(burst, published=0):
    return SimpleNamespace(
        options=SimpleNamespace(rate=RATE, burst=burst), published=published, _started_ns=0, due_ns=None)


@pytest.mark.parametrize(("burst", "published", "messages_of_time", "due", "next_due"), [
    (1, 0, 0, 0, 1),
    (1, 0, 3.5, 3, 4),
    (1, 3, 3.5, 0, 4),
    (5, 0, 4.5, 0, 5),
    (5, 0, 5.5, 5, 10),
    (5, 5, 14.5, 5, 15),
    (5, 5, 15.5, 10, 20),
])
def test_so_many_are_due_at_a_time_as_a_burst_has(burst, published, messages_of_time, due, next_due):
    one = publisher(burst, published)

    assert PublisherRole._by_rate(one, int(messages_of_time / RATE * SECOND_NS)) == due
    assert one.due_ns == pytest.approx(next_due / RATE * SECOND_NS, abs=10)


@pytest.mark.parametrize("burst", [1, 5])
def test_who_is_far_behind_begins_anew_with_one_burst(burst):
    one = publisher(burst)

    assert PublisherRole._by_rate(one, 3600 * SECOND_NS) == burst
    assert one.due_ns == pytest.approx(3600 * SECOND_NS + burst / RATE * SECOND_NS, abs=10)
