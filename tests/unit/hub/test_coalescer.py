"""Floods of small segments: which streams are read by the clock, how long they stay with it,
and the clock itself.
"""
import contextlib
import gc
import os
import time
from types import SimpleNamespace

import gevent
import pytest
from gevent import socket

from gomq_py.hub import coalescer as coalescer_module
from gomq_py.hub.buffers import INPUT_OCTETS, HubBuffers
from gomq_py.hub.coalescer import Coalescer
from gomq_py.net import stream as stream_module
from gomq_py.net.output import Output
from gomq_py.net.records import RECORDS_MAX
from gomq_py.net.stream import FLOOD_READS, LEAST_TOGETHER, SMALL_OCTETS, Lane, Stream
from tests.support import certificates
from tests.support.sockets import read_all, socket_pair, tls_pair
from tests.support.waiting import in_time, wait_until

SEGMENT = b"x" * 20
FAST_S, SLOW_S = 10e-6, 70e-6


class Clockless:
    """A coalescer whose ticks the test makes."""

    def __init__(self, has_clock=True):
        self.streams = []
        self.has_clock = has_clock

    def add(self, stream):
        if self.has_clock:
            self.streams.append(stream)
        return self.has_clock

    def discard(self, stream):
        self.streams.remove(stream)

    def tick(self):
        for stream in list(self.streams):
            stream.read_together()


class Taking(Lane):
    """A lane that takes everything, and its handler; ``answer`` is what it says to each read."""

    def __init__(self, output):
        self.output = output
        self.answer = b""
        self.reads = []
        self.pausing = self.hold = None
        self.plenty = False

    def process(self, start, end, now_ms):
        self.reads.append(end - start)
        if self.pausing is not None:
            self.hold = self.pausing.pause_reading("the test")
        return end

    def finish(self):
        if self.answer:
            self.output.write(self.answer)

    def has_plenty(self):
        return self.plenty


class Flooder:
    """A stream on a socket, its peer, and a clock that goes on by ``step_s`` whenever the stream has read."""

    def __init__(self, coalescer, clock, pair):
        self.coalescer = coalescer
        self.clock = clock
        ours, self.socket = pair
        buffers = HubBuffers(4096)
        output = Output(ours, buffers)
        self.stream = Stream(ours, buffers, output, coalescer)
        self.lane = Taking(output)
        self.running = gevent.spawn(read_all, self.stream, self.lane, self.lane)

    def send(self, octets):
        """Send and let the loop look; what comes in is not read before it does."""
        self.socket.sendall(octets)
        look_at_all_sockets()

    def flood(self, step_s=FAST_S, segment=SEGMENT, count=2 * FLOOD_READS):
        for _ in range(count):
            self.clock.now_s += step_s
            read = len(self.lane.reads)
            self.socket.sendall(segment)
            wait_until(lambda read=read: len(self.lane.reads) > read, sleep=gevent.sleep)
            if self.taken_in:
                break

    @property
    def taken_in(self):
        return self.stream in self.coalescer.streams


def look_at_all_sockets():
    """Return after a poll that found everything that was sent before."""
    one, other = socket_pair()
    with one, other:
        one.sendall(b"x")
        other.recv(1)
    gevent.sleep(0)


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(stream_module, "time", SimpleNamespace(monotonic=lambda: clock.now_s, time=time.time))
    return clock


@pytest.fixture
def make(clock):
    made = []

    def make(pair=None, **options):
        made.append(Flooder(Clockless(**options), clock, pair or socket_pair()))
        return made[-1]

    yield make
    for one in made:
        one.running.kill()


@pytest.fixture
def flooded(make):
    flooder = make()
    flooder.flood()
    assert flooder.taken_in
    flooder.lane.reads.clear()
    return flooder


def together(count=LEAST_TOGETHER):
    return SEGMENT * count


# who is read by the clock

def test_a_flood_of_small_segments_is_read_at_the_ticks_only(make):
    flooder = make()
    flooder.flood()
    assert flooder.taken_in
    reads = len(flooder.lane.reads)

    for _ in range(5):
        flooder.send(SEGMENT)
    assert len(flooder.lane.reads) == reads
    flooder.coalescer.tick()

    assert len(flooder.lane.reads) == reads + 1 and flooder.lane.reads[-1] >= 5 * len(SEGMENT)
    assert flooder.taken_in


@pytest.mark.parametrize("how", [
    dict(step_s=SLOW_S), dict(segment=b"x" * SMALL_OCTETS), dict(count=FLOOD_READS - 1),
])
def test_what_is_slow_or_large_or_short_is_read_at_once(make, how):
    flooder = make()

    flooder.flood(**how)

    assert not flooder.taken_in


def test_a_peer_that_is_answered_is_read_at_once_because_it_may_wait_for_that(make):
    flooder = make()
    flooder.lane.answer = b"."

    flooder.flood(count=4 * FLOOD_READS)

    assert not flooder.taken_in


def test_a_peer_with_plenty_to_do_does_not_wait_for_its_answers(make):
    flooder = make()
    flooder.lane.answer, flooder.lane.plenty = b".", True

    flooder.flood()
    assert flooder.taken_in
    flooder.send(together())
    flooder.coalescer.tick()
    assert flooder.taken_in

    flooder.lane.plenty = False
    flooder.send(together())
    flooder.coalescer.tick()
    assert not flooder.taken_in


def test_a_large_read_begins_the_count_anew(make):
    flooder = make()
    for _ in range(4):
        flooder.flood(count=FLOOD_READS - 1)
        flooder.flood(count=1, segment=b"x" * SMALL_OCTETS)

    assert not flooder.taken_in


def test_what_is_like_a_socket_is_read_at_once(make):
    class Alike:
        """As net.websocket's."""

        def __init__(self, ours):
            self._ours = ours
            self.fileno, self.send = ours.fileno, ours._sock.send

        def receive_functions(self):
            return self._ours._sock.recv_into, lambda: 0

    ours, theirs = socket_pair()
    flooder = make((Alike(ours), theirs))

    flooder.flood(count=4 * FLOOD_READS)

    assert not flooder.taken_in


@pytest.mark.parametrize("count", [LEAST_TOGETHER, RECORDS_MAX + LEAST_TOGETHER])
def test_of_tls_all_records_that_are_there_are_read_at_a_tick(make, tmp_path, count):
    flooder = make(tls_pair(certificates.make(tmp_path / "files")))
    flooder.flood()
    assert flooder.taken_in
    read = sum(flooder.lane.reads)
    for _ in range(count):
        flooder.socket.sendall(SEGMENT)
    look_at_all_sockets()
    assert sum(flooder.lane.reads) == read

    flooder.coalescer.tick()

    wait_until(lambda: sum(flooder.lane.reads) == read + count * len(SEGMENT), sleep=gevent.sleep)
    assert flooder.taken_in


def test_without_a_clock_everything_is_read_at_once(make):
    flooder = make(has_clock=False)

    flooder.flood(count=4 * FLOOD_READS)

    assert sum(flooder.lane.reads) == 4 * FLOOD_READS * len(SEGMENT)


# how long

@pytest.mark.parametrize("octets", [b"", SEGMENT, together(LEAST_TOGETHER - 1), b"x" * INPUT_OCTETS])
def test_a_tick_with_little_or_with_much_is_the_last(flooded, octets):
    flooded.send(octets)
    flooded.coalescer.tick()
    assert not flooded.taken_in

    flooded.send(SEGMENT)

    wait_until(lambda: flooded.lane.reads and flooded.lane.reads[-1] == len(SEGMENT), sleep=gevent.sleep)


def test_a_tick_with_enough_is_not_the_last(flooded):
    for _ in range(3):
        flooded.send(together())
        flooded.coalescer.tick()

    assert flooded.taken_in and flooded.lane.reads == [len(together())] * 3


def test_a_flood_of_messages_of_1_KiB_of_which_a_read_finds_several_is_read_at_the_ticks(make):
    flooder = make()
    flooder.flood(segment=b"x" * 5000)
    assert flooder.taken_in
    read = sum(flooder.lane.reads)
    for _ in range(6):
        flooder.send(b"x" * 5000)
    assert sum(flooder.lane.reads) == read

    flooder.coalescer.tick()

    assert sum(flooder.lane.reads) == read + 30000 and flooder.taken_in


def test_an_answer_ends_it(flooded):
    flooded.lane.answer = b"."
    flooded.send(together())

    flooded.coalescer.tick()

    assert not flooded.taken_in


def test_the_end_of_the_peer_is_seen_at_a_tick(flooded):
    flooded.send(together())
    flooded.socket.shutdown(socket.SHUT_WR)
    flooded.coalescer.tick()
    flooded.coalescer.tick()

    flooded.running.get(timeout=in_time(30))

    assert flooded.lane.reads == [len(together())] and not flooded.taken_in


def test_a_pause_takes_it_out_and_a_resume_reads_at_once(flooded):
    hold = flooded.stream.pause_reading("the test")
    assert not flooded.taken_in
    flooded.send(together())
    assert flooded.lane.reads == []

    hold.release()

    wait_until(lambda: flooded.lane.reads == [len(together())], sleep=gevent.sleep)


def test_a_pause_in_the_middle_of_a_tick_holds(flooded):
    flooded.lane.pausing = flooded.stream
    flooded.send(together())
    flooded.coalescer.tick()
    flooded.send(SEGMENT)
    assert flooded.stream.paused and not flooded.taken_in and flooded.lane.reads == [len(together())]

    flooded.lane.pausing = None
    flooded.lane.hold.release()

    wait_until(lambda: flooded.lane.reads == [len(together()), len(SEGMENT)], sleep=gevent.sleep)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_an_ended_stream_is_out(flooded, end):
    if end == "stop":
        flooded.stream.stop()
    else:
        flooded.running.kill()

    assert not flooded.taken_in


# the clock

class Counted:
    """What a coalescer calls."""

    def __init__(self):
        self.ticks = 0

    def read_together(self):
        self.ticks += 1


def test_each_stream_is_called_at_each_tick_until_it_goes():
    coalescer, one, other = Coalescer(), Counted(), Counted()
    assert coalescer.add(one) and coalescer.add(other)
    wait_until(lambda: one.ticks > 3, sleep=gevent.sleep)
    assert one.ticks == other.ticks

    coalescer.discard(one)
    before = one.ticks
    wait_until(lambda: other.ticks > before + 3, sleep=gevent.sleep)

    assert one.ticks == before
    coalescer.discard(other)


def timers():
    """How many descriptors of the kernel's clocks this process has."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{number}") == "anon_inode:[timerfd]"
    return found


def test_the_descriptor_lives_as_long_as_there_are_streams():
    gc.collect()  # what earlier tests left must not be closed in the middle
    before = timers()
    coalescer, one, other = Coalescer(), Counted(), Counted()
    for _ in range(3):
        coalescer.add(one)
        coalescer.add(other)
        coalescer.discard(one)
        coalescer.discard(one)
        assert len(coalescer) == 1 and timers() == before + 1

        coalescer.discard(other)
        assert len(coalescer) == 0 and timers() == before


def test_a_kernel_without_such_clocks_is_no_error(monkeypatch):
    def refused(every_s):
        raise OSError("no")

    monkeypatch.setattr(coalescer_module, "_ticks", refused)

    assert not Coalescer().add(Counted())


def test_one_that_is_closed_reads_nothing_and_has_no_descriptor():
    coalescer, one = Coalescer(), Counted()
    assert coalescer.add(one)

    coalescer.close()

    assert len(coalescer) == 0 and coalescer._descriptor is None
    assert not coalescer.add(one)
    coalescer.discard(one)
