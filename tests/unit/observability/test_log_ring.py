"""Log ring: the last lines, bounded, with numbers that go on."""
import pytest

from gomq_py.observability import log_ring
from gomq_py.observability.log import logger

LOG = logger("ring-test")


@pytest.fixture
def heard():
    return []


@pytest.fixture
def ring(heard):
    one = log_ring.LogRing(lambda: heard.append(None))
    yield one
    one.close()


def mine(ring, number=0):
    return [line.message for line in ring.since(number) if line.source == "ring-test"]


def test_lines_are_kept_escaped_and_told_from_a_number_on(ring, heard):
    LOG.warning("one %s", "a\nb")
    before = ring.last
    LOG.error("to amqp://user:secret@host/")

    assert mine(ring) == ["one a\\nb", mine(ring, before)[0]]
    assert "secret" not in mine(ring, before)[0]
    assert [line.level for line in ring.since(before) if line.source == "ring-test"] == ["error"]
    assert len(heard) == ring.last >= 2  # others may have a line to say meanwhile
    assert ring.since(ring.last) == [] == ring.since(ring.last + 5)


def test_lines_and_octets_are_bounded(ring):
    for number in range(log_ring.LINES + 5):
        LOG.warning("%d", number)
    kept = ring.since(0)
    assert len(kept) == log_ring.LINES
    assert kept[0].number == kept[-1].number - log_ring.LINES + 1 >= 6

    for _ in range(log_ring.OCTETS // log_ring.LINE_MAX + 5):
        LOG.warning("x" * 20_000)
    kept = ring.since(0)
    assert sum(len(line.message) for line in kept) <= log_ring.OCTETS
    assert max(len(line.message) for line in kept) == log_ring.LINE_MAX


def test_bound_is_one_of_memory_whatever_the_characters(ring):
    for number in range(log_ring.LINES):
        LOG.warning("%d%s", number, "\U0001f430" * 400)
    kept = ring.since(0)
    assert kept[-1].message.startswith(f"{log_ring.LINES - 1}\U0001f430")
    assert sum(4 * len(line.message) for line in kept) <= log_ring.OCTETS


def test_nothing_is_heard_once_it_is_closed(ring):
    ring.close()
    LOG.warning("after")

    assert mine(ring) == []
