"""Buffers for large bodies: which are used again, and when they go."""
import ctypes
import os

import pytest

from gomq_py.hub.buffers import KEPT_MS, KEPT_OCTETS, STEP_OCTETS, BodyBuffers
from tests.support.queues import HandTimers


class Clock:
    def __init__(self):
        self.now_ms = 1_700_000_000_000
        self.timers = HandTimers(self)

    def advance(self, ms):
        self.now_ms += ms
        self.timers.fire()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def buffers(clock):
    return BodyBuffers(clock.timers)


def test_a_buffer_has_the_room_asked_for_and_can_be_written(buffers):
    for octets in (1, STEP_OCTETS, STEP_OCTETS + 1, 5 << 20):
        lent = buffers.take(octets)

        lent.octets[octets - 1:octets] = b"x"
        assert octets <= len(lent.octets) < octets + STEP_OCTETS


def test_a_buffer_is_used_again_when_nobody_has_it(buffers):
    lent = buffers.take(1 << 20)
    lent.octets[:5] = b"first"
    del lent

    again = buffers.take(1 << 20)

    assert bytes(again.octets[:5]) == b"first"
    assert buffers.kept_octets() == 1 << 20


def test_a_buffer_in_use_is_nobody_elses(buffers):
    first, second = buffers.take(1 << 20), buffers.take(1 << 20)
    first.octets[:5], second.octets[:5] = b"first", b"other"

    assert bytes(first.octets[:5]) == b"first"


@pytest.mark.skipif(
    not os.path.exists("/sys/kernel/mm/transparent_hugepage"), reason="the system has no pages of 2 MiB")
def test_a_body_of_which_little_came_takes_no_large_pages(buffers):
    lent = buffers.take(8 << 20)

    assert "nh" in flags_at(ctypes.addressof(ctypes.c_char.from_buffer(lent.octets)))


def flags_at(address):
    """What the system keeps of the mapping there (proc_pid_smaps(5), VmFlags)."""
    is_there = False
    with open("/proc/self/smaps") as lines:
        for name, *values in map(str.split, lines):
            if "-" in name and ":" not in name:
                start, end = (int(one, 16) for one in name.split("-"))
                is_there = start <= address < end
            elif is_there and name == "VmFlags:":
                return values
    raise AssertionError(f"no mapping at {address:x}")


def test_a_small_body_does_not_take_a_large_buffer(buffers):
    buffers.take(16 << 20)

    assert len(buffers.take(1 << 20).octets) == 1 << 20


def test_no_more_is_kept_than_the_limit(buffers):
    in_use = [buffers.take(50 << 20) for _ in range(5)]

    assert len(in_use) == 5 and buffers.kept_octets() == 150 << 20 <= KEPT_OCTETS


def test_body_of_the_largest_usual_size_is_received_into_a_kept_buffer(buffers):
    lent = buffers.take(2048 + (128 << 20))
    lent.octets[:5] = b"first"
    del lent

    assert bytes(buffers.take(2048 + (128 << 20)).octets[:5]) == b"first"


def test_free_buffers_make_room_for_one_of_another_size_and_those_in_use_do_not(buffers):
    first, second = [buffers.take(50 << 20) for _ in range(2)]
    del first

    buffers.take(110 << 20)

    assert buffers.kept_octets() == 160 << 20
    buffers.take(130 << 20)
    assert buffers.kept_octets() == 50 << 20 and len(second.octets) == 50 << 20


def test_buffers_go_when_no_body_has_come_for_a_while(buffers, clock):
    buffers.take(1 << 20)
    clock.advance(KEPT_MS)
    buffers.take(1 << 20)
    clock.advance(KEPT_MS)
    assert buffers.kept_octets() == 1 << 20

    clock.advance(KEPT_MS)

    assert buffers.kept_octets() == 0 and not clock.timers.pending


def test_what_is_forgotten_while_it_is_in_use_stays_whole(buffers, clock):
    lent = buffers.take(1 << 20)
    lent.octets[:5] = b"first"
    clock.advance(KEPT_MS)
    clock.advance(KEPT_MS)

    buffers.take(1 << 20).octets[:5] = b"other"

    assert bytes(lent.octets[:5]) == b"first"
