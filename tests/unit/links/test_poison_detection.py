"""What is taken for a message's fault, and what for a destination without room."""
from types import SimpleNamespace

import pytest

from gomq_py.client.errors import ChannelClosed, ConnectionClosed
from gomq_py.links import poison_detection
from gomq_py.links.source_reader import LinkBatch
from gomq_py.links.poison_detection import (
    DOUBLED_MOST, FINAL_CODES, GIVEN_UP_FREELY, NACKED_S, PoisonDetection, is_final,
)

LIMIT = 4
CHECKSUM = 7


@pytest.fixture
def clock(monkeypatch):
    """Its ``now_s`` is what time it is."""
    clock = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr(poison_detection, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    return clock


@pytest.fixture
def suspicion(clock):
    return PoisonDetection(SimpleNamespace(has_lane=True, exchange="e"), LIMIT)


def give_up(suspicion):
    """A message is rejected at its source."""
    batch = LinkBatch(b"", 1, 1)
    batch.is_rejected = True
    suspicion.settled(batch)


def refused_long_ago(suspicion, clock):
    """So that the broker would have said by now that it has no room."""
    suspicion.refused()
    clock.now_s += NACKED_S


def least(suspicion):
    """How often a message must have been refused to be given up."""
    return next(count for count in range(1, 10_000) if suspicion.is_limit(count))


def test_refused_message_is_given_up_once_the_broker_could_have_said_that_it_has_no_room(suspicion, clock):
    suspicion.refused()
    clock.now_s += NACKED_S / 2
    suspicion.refused()

    assert not suspicion.is_limit(100)
    clock.now_s += NACKED_S / 2
    assert suspicion.is_limit(LIMIT) and not suspicion.is_limit(LIMIT - 1)


def test_refusals_before_the_destination_said_that_it_has_no_room_or_took_a_message_are_forgotten(
    suspicion, clock,
):
    for forget in (suspicion.has_no_room, lambda: suspicion.settled(LinkBatch(b"", 1, 1))):
        refused_long_ago(suspicion, clock)
        forget()
        suspicion.refused()

        assert not suspicion.is_limit(100)


def test_messages_in_a_row_are_given_up_ever_more_slowly_until_one_is_taken(suspicion, clock):
    refused_long_ago(suspicion, clock)
    needed = []
    for _ in range(GIVEN_UP_FREELY + 10):
        needed.append(least(suspicion))
        give_up(suspicion)

    assert needed[:GIVEN_UP_FREELY + 2] == [LIMIT] * GIVEN_UP_FREELY + [2 * LIMIT, 4 * LIMIT]
    assert needed[-1] == DOUBLED_MOST
    suspicion.settled(LinkBatch(b"", 1, 1))
    refused_long_ago(suspicion, clock)
    assert least(suspicion) == LIMIT


def test_limit_above_what_it_is_doubled_to_stays(clock):
    suspicion = PoisonDetection(SimpleNamespace(has_lane=True, exchange="e"), 2 * DOUBLED_MOST)
    refused_long_ago(suspicion, clock)
    for _ in range(GIVEN_UP_FREELY + 1):
        give_up(suspicion)

    assert least(suspicion) == 2 * DOUBLED_MOST


def test_web_servers_refusal_is_of_the_message_and_counts_at_once(clock):
    suspicion = PoisonDetection(SimpleNamespace(has_lane=False), LIMIT)
    suspicion.refused()
    for _ in range(10):
        give_up(suspicion)

    assert least(suspicion) == LIMIT


def test_without_a_limit_nothing_is_given_up(clock):
    for has_lane in (False, True):
        suspicion = PoisonDetection(SimpleNamespace(has_lane=has_lane, exchange="e"), 0)
        refused_long_ago(suspicion, clock)

        assert not suspicion.is_limit(10_000)


@pytest.mark.parametrize("text", [
    "INTERNAL_ERROR - the disk refused a change: [Errno 28] No space left on device",
    "INTERNAL_ERROR - {error,enospc}",
    "INTERNAL_ERROR - [Errno 122] Disk quota exceeded",
])
def test_connection_that_ends_for_want_of_room_is_no_messages_fault(suspicion, text):
    for kind in (ChannelClosed, ConnectionClosed):
        for _ in range(LIMIT):
            suspicion.alone = CHECKSUM
            suspicion.failed(kind(541, text), True)

    assert not suspicion.is_poison(CHECKSUM)


def test_connection_that_ends_by_a_fault_of_the_broker_may_be_a_messages_fault(suspicion):
    for _ in range(LIMIT):
        suspicion.alone = CHECKSUM
        suspicion.failed(ConnectionClosed(541, "INTERNAL_ERROR - Unexpected error, please report"), True)

    assert suspicion.is_poison(CHECKSUM)


def test_refusals_of_a_large_message_are_its_own_whatever_passes_it(suspicion, clock):
    for _ in range(LIMIT - 1):
        assert not suspicion.large_refused(CHECKSUM)
        suspicion.large_settled(CHECKSUM + 1)
        suspicion.settled(LinkBatch(b"", 1, 1))
        clock.now_s += NACKED_S

    assert not suspicion.large_refused(CHECKSUM + 1)
    assert suspicion.large_refused(CHECKSUM)


def test_refusals_of_a_large_message_are_forgotten_when_it_is_taken_or_the_destination_has_no_room(
    suspicion, clock,
):
    for forget in (suspicion.has_no_room, lambda: suspicion.large_settled(CHECKSUM)):
        for _ in range(LIMIT - 1):
            suspicion.large_refused(CHECKSUM)
        clock.now_s += NACKED_S
        forget()

        assert not suspicion.large_refused(CHECKSUM)


def test_refusals_of_as_many_large_messages_as_a_source_may_send_are_remembered(suspicion, monkeypatch):
    monkeypatch.setattr(poison_detection, "LARGE_MOST", 3)
    for checksum in range(4):
        suspicion.large_refused(checksum)

    assert list(suspicion._large) == [1, 2, 3]


@pytest.mark.parametrize("text, is_there", [
    ("NOT_FOUND - no queue 'q' in vhost '/'", False),
    ("NOT_FOUND - queue 'q' in vhost '/' is closed after a fault of its store: see the broker's log, then "
     "restart it", True),
    ("NOT_FOUND - queue 'q' in vhost '/' process is stopped by supervisor", True),
    ("NOT_FOUND - queue 'q' in vhost '/' has crashed and failed to restart", True),
    ("NOT_FOUND - home node 'rabbit@b' of durable queue 'q' in vhost '/' is down or inaccessible", True),
])
def test_queue_that_does_not_run_is_waited_for(text, is_there):
    """On 3a1b338e it ended a link that had just been set. Seed 382 of the simulation."""
    assert is_final(ChannelClosed(404, text), FINAL_CODES) is not is_there
