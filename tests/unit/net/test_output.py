"""Output: order, what a full socket does, limits, and a broken peer."""
import contextlib
from ssl import SSLWantWriteError

import pytest

from gomq_py.hub.buffers import HubBuffers
from gomq_py.net.output import KEEPS_UP_OCTETS, Output
from tests.support.no_switch import no_switch
from tests.support.sockets import receive_exactly, socket_pair

MEGABYTE = 1024 * 1024


@pytest.fixture
def pair():
    ours, theirs = socket_pair(16384)
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def output(pair):
    output = Output(pair[0], HubBuffers())
    yield output
    output.close()


def test_what_is_written_arrives_in_order(pair, output):
    for part in (b"one", bytearray(b"two"), b"three"):
        output.write(part)

    assert receive_exactly(pair[1], 11) == b"onetwothree"
    assert output.sent_octets == 11 and not output.blocked and output.pending_octets() == 0


def test_writing_to_a_full_socket_neither_waits_nor_loses(pair, output):
    data = bytes(range(256)) * 4096

    with no_switch():
        output.write(data)
        output.write(b"and more")

    assert output.blocked and output.pending_octets() > 0
    assert receive_exactly(pair[1], len(data) + 8) == data + b"and more"
    assert output.wait_drained(30) and not output.blocked


def test_a_bytearray_given_away_is_sent_whole(pair, output):
    data = bytes(range(256)) * 4096

    output.write(bytearray(data))

    assert receive_exactly(pair[1], len(data)) == data


def test_what_was_filled_leaves_behind_what_was_written(pair, output):
    output.cork()
    output.write(b"reply ")
    output.buffers.output[:8] = b"delivery"
    output.send_filled(8)
    output.uncork()

    assert receive_exactly(pair[1], 14) == b"reply delivery"


def test_the_output_buffer_may_be_filled_again_at_once(pair, output):
    """What a full socket does not take is copied out of the shared buffer."""
    size = 100_000
    for letter in b"ab":
        output.buffers.output[:size] = bytes((letter,)) * size
        output.send_filled(size)

    assert output.blocked
    assert receive_exactly(pair[1], 2 * size) == b"a" * size + b"b" * size


def test_who_keeps_up_gets_more_at_a_time_until_a_send_takes_less(pair, output):
    buffers = output.buffers
    for _ in range(KEEPS_UP_OCTETS // 4096):
        assert output.room_to_fill() == buffers.output_octets
        output.send_filled(4096)
        receive_exactly(pair[1], 4096)
    assert output.room_to_fill() == buffers.flood_output_octets

    while not output.blocked:
        output.send_filled(output.room_to_fill())

    assert output.room_to_fill() == buffers.output_octets


def test_a_corked_output_sends_once_uncorked(pair, output):
    output.cork()
    output.write(b"one")
    output.write(b"two")
    assert output.sent_octets == 0

    output.uncork()

    assert output.sent_octets == 6 and receive_exactly(pair[1], 6) == b"onetwo"


def test_drained_is_told_once_to_each_who_asked(pair, output):
    told = []
    output.on_drained = lambda: told.append("drained")
    output.write(b"x" * MEGABYTE)
    output.call_when_drained(lambda: told.append("me"))
    output.call_when_drained(told.clear)
    output.not_when_drained(told.clear)
    output.not_when_drained(told.clear)

    receive_exactly(pair[1], MEGABYTE)
    assert output.wait_drained(30)
    output.write(b"x" * MEGABYTE)
    receive_exactly(pair[1], MEGABYTE)
    assert output.wait_drained(30)

    assert told == ["drained", "me", "drained"]


def test_too_much_unread_is_told_once_until_it_was_drained(pair, output):
    told = []
    output.on_overflow = lambda: told.append(output.pending_octets())
    output.limit = 100_000

    for _ in range(4):
        output.write(b"x" * 60_000)
    assert len(told) == 1 and told[0] > 100_000
    receive_exactly(pair[1], 240_000)
    assert output.wait_drained(30)
    output.write(b"x" * 240_000)

    assert len(told) == 2


def test_answers_gathered_beyond_the_limit_are_no_overflow_while_the_socket_takes_them(pair, output):
    """Nobody would tell that such an output was drained."""
    told = []
    output.on_overflow = lambda: told.append(output.pending_octets())
    output.limit = 1000

    output.cork()
    output.write(b"x" * 5000)
    output.write(b"y")
    output.uncork()

    assert receive_exactly(pair[1], 5001) == b"x" * 5000 + b"y"
    assert told == []


def test_a_broken_peer_is_told_once_and_nothing_is_raised(pair, output):
    told = []
    output.on_broken = told.append
    pair[1].close()

    for _ in range(3):
        output.write(b"x")

    assert output.broken and output.error is told[0] and len(told) == 1
    assert isinstance(told[0], OSError) and output.pending_octets() == 0
    assert not output.wait_drained(1)


def test_a_peer_that_goes_while_the_output_is_blocked_is_noticed(pair, output):
    told = []
    output.on_broken = told.append
    output.write(b"x" * MEGABYTE)
    assert output.blocked

    pair[1].close()

    assert not output.wait_drained(30)
    assert len(told) == 1


def test_waiting_for_a_peer_that_does_not_read_ends_at_the_deadline(pair, output):
    output.write(b"x" * MEGABYTE)

    assert not output.wait_drained(0.01)


def test_a_closed_output_swallows_what_it_is_given(pair, output):
    output.write(b"x" * MEGABYTE)
    output.close()

    output.write(b"late")

    assert output.pending_octets() == 0


def test_limit_counts_again_once_a_large_message_has_gone_with_what_was_filled(pair):
    """Within one read, which has gathered it: it was sent before the delivery that was behind it."""
    output = Output(pair[0], HubBuffers(), 100)
    told = []
    output.on_overflow = lambda: told.append(output.pending_octets())
    output.cork()
    output.write_large(bytes(5000))
    output.send_filled(1)
    assert output.pending_octets() == 0

    while not told:  # nobody reads
        output.write(bytes(50))

    assert told[0] <= 150
    output.close()


class Tls:
    """Has OpenSSL's rule: what could not be written at all is tried again, with what follows it or alone."""

    receive_functions = None

    def __init__(self, fileno):
        self.fileno = lambda: fileno
        self.taken = b""
        self.wanted = None  # octets of the write that has to come again
        self.is_full = True

    def send(self, view):
        octets = bytes(view)
        if self.wanted is not None:
            assert octets.startswith(self.wanted), "SSL: BAD_LENGTH"
        if self.is_full:
            self.wanted = octets
            raise SSLWantWriteError
        self.wanted = None
        self.taken += octets[:16384]
        return min(16384, len(octets))


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_what_tls_could_not_take_is_tried_again_at_its_full_length(pair, kind):
    tls = Tls(pair[0].fileno())
    output = Output(tls, HubBuffers())
    data = bytes(range(256)) * 4096

    output.write(kind(data))
    tls.is_full = False
    assert output.wait_drained(30)

    assert tls.taken == data
    output.close()


def test_deliveries_that_tls_could_not_take_are_tried_again_at_their_full_length(pair):
    buffers = HubBuffers()
    count = buffers.flood_output_octets
    buffers.output_view[:count] = data = bytes(range(256)) * (count // 256)
    tls = Tls(pair[0].fileno())
    output = Output(tls, buffers)

    output.send_filled(count)
    tls.is_full = False
    assert output.wait_drained(30)

    assert tls.taken == data
    output.close()


# what gives its octets by and by

class Source:
    """``octets``, ``part`` of them at a time; ``closed`` counts."""

    def __init__(self, octets, part=4096, error=None):
        self.octets, self.part, self.error = octets, part, error
        self.calls = self.closed = 0

    @property
    def left(self):
        return len(self.octets)

    def send(self, send, fileno):
        self.calls += 1
        if self.error is not None:
            raise self.error
        sent = 0
        with contextlib.suppress(BlockingIOError):
            sent = send(self.octets[:self.part])
        self.octets = self.octets[sent:]
        return sent

    def close(self):
        self.closed += 1


def test_source_is_sent_between_what_was_written_before_and_after_it(pair, output):
    source = Source(bytes(range(256)) * 256)
    whole = b"before" + source.octets + b"after"

    output.cork()
    output.write(b"before")
    output.write_source(source)
    output.write(b"after")
    output.uncork()

    assert output.pending_octets() == len(whole) - output.sent_octets > 0 and output.blocked
    assert receive_exactly(pair[1], len(whole)) == whole
    assert output.wait_drained(30) and source.closed == 1 and output.sent_octets == len(whole)


def test_source_waits_for_what_the_socket_did_not_take_before_it(pair, output):
    """A read that is walked: its answers were gathered and do not fit."""
    before, source = bytes(range(256)) * 4096, Source(b"source")
    output.cork()
    output.write(before)

    output.write_source(source)
    output.buffers.output[:6] = b"filled"
    output.send_filled(6)
    output.uncork()

    assert source.calls == 0
    assert receive_exactly(pair[1], len(before) + 12) == before + b"sourcefilled"


def test_source_sends_once_for_each_look_at_the_sockets(pair, output):
    """However fast its peer is, others have their turn in between."""
    source = Source(bytes(10 * 1000), part=1000)

    with no_switch():
        output.write_source(source)
    assert source.calls == 1 and output.blocked

    assert receive_exactly(pair[1], 10_000) == bytes(10_000)
    assert output.wait_drained(30) and not output.blocked
    assert source.calls == 10


def test_waiters_hear_when_a_source_was_sent(pair, output):
    told = []
    output.write_source(Source(bytes(MEGABYTE), part=65536))
    output.call_when_drained(lambda: told.append(output.pending_octets()))

    receive_exactly(pair[1], MEGABYTE)
    assert output.wait_drained(30)

    assert told == [0]


@pytest.mark.parametrize("how", ["closed", "peer gone", "fault", "closed before"])
def test_source_is_closed_once_where_nobody_wants_it_any_more(pair, output, how):
    source = Source(bytes(MEGABYTE), part=MEGABYTE)
    if how == "closed before":
        output.close()
    output.write_source(source)

    if how == "closed":
        output.close()
    elif how == "peer gone":
        pair[1].close()
        assert not output.wait_drained(30)
    elif how == "fault":
        source.error = RuntimeError("a fault of the test")
        receive_exactly(pair[1], output.sent_octets)
        assert not output.wait_drained(30)

    assert output.broken and source.closed == 1 and output.pending_octets() == 0
    output.close()
    assert source.closed == 1


def test_source_whose_file_cannot_be_read_ends_the_connection(pair, output):
    told = []
    output.on_broken = told.append
    error = OSError(5, "no such sector")

    output.write_source(Source(b"x", error=error))

    assert told == [error] and output.broken


def test_what_is_no_plain_socket_takes_no_source(pair, output):
    assert output.takes_sources
    assert not Output(Tls(pair[0].fileno()), HubBuffers()).takes_sources
