"""Stream: reads handed to a lane, tails kept, pauses, ends, and the turn of others."""
import contextlib
import ctypes
import fcntl
import functools
import itertools
import sys
import termios
from ssl import SSLWantWriteError

import gevent
import pytest
from gevent import socket

from gomq_py.hub import buffers as buffers_module
from gomq_py.hub.buffers import FIRST_OCTETS, FLOOD_OCTETS, INPUT_OCTETS, HubBuffers
from gomq_py.hub.coalescer import Coalescer
from gomq_py.net import openssl, stream as stream_module
from gomq_py.net.output import Output
from gomq_py.net.records import RECORDS_MAX
from gomq_py.net.stream import Lane, Stream
from tests.support import certificates
from tests.support.sockets import read_all, socket_pair, tls_pair
from tests.support.waiting import in_time, wait_until


# So long is looked whether the loop has nothing to do, and what it then turns.
SHORT_S, FEW_TURNS = 0.05, 100


class Lines(Lane):
    """A lane and handler for lines: takes whole lines (and dashes, the stuff of floods), leaves the rest,
    answers each when the batch is done.
    """

    def __init__(self, buffers, output):
        self.buffers = buffers
        self.output = output
        self.stream = self.hold = None
        self.lines = []
        self.calls = []

    def process(self, start, end, now_ms):
        self.calls.append("process")
        if self.buffers.input[start:end].strip(b"-") == b"":
            return end
        while True:
            at = self.buffers.input.find(b"\n", start, end)
            if at < 0:
                return start
            line = bytes(self.buffers.input[start:at])
            start = at + 1
            self.lines.append(line)
            if line == b"stop":
                self.stream.stop()
            elif line == b"wrong":
                raise ValueError("wrong line")
            elif line == b"pause":
                self.hold = self.stream.pause_reading("the test")
                return start
            self.output.write(b"ok " + line + b"\n")

    def finish(self):
        self.calls.append("finish")
        self.output.write(b".")

    def has_plenty(self):
        return False


class Peer:
    """A stream running in a greenlet, and the other end of its socket."""

    def __init__(self, buffers=None, coalescer=None, pair=None):
        ours, self.socket = pair or socket_pair()
        self.fileno = ours.fileno()
        buffers = buffers or HubBuffers(4096)
        output = Output(ours, buffers)
        self.stream = Stream(ours, buffers, output, coalescer or Coalescer())
        self.lane = Lines(buffers, output)
        self.lane.stream = self.stream
        self.running = gevent.spawn(read_all, self.stream, self.lane, self.lane)

    def send(self, octets):
        self.socket.sendall(octets)

    def waiting_octets(self):
        """Those that have come and were not read yet."""
        return int.from_bytes(fcntl.ioctl(self.fileno, termios.FIONREAD, bytes(4)), sys.byteorder)

    def wait_for(self, *lines):
        wait_until(
            lambda: self.lane.lines == list(lines), sleep=gevent.sleep, what=f"{self.lane.lines} == {lines}"
        )


def let_the_loop_poll():
    """Return after the loop has looked at all sockets again: another connection's line went through."""
    other = Peer()
    other.send(b"x\n")
    other.wait_for(b"x")
    other.running.kill()


@pytest.fixture
def peer():
    peer = Peer()
    yield peer
    peer.running.kill()


def test_what_arrives_is_walked_and_answered_in_one_piece(peer):
    peer.send(b"one\ntwo\n")

    peer.wait_for(b"one", b"two")
    assert peer.socket.recv(100) == b"ok one\nok two\n."
    assert peer.lane.calls == ["process", "finish"]
    assert peer.stream.received_octets == 8


def test_an_incomplete_tail_waits_for_the_rest(peer):
    for part in (b"on", b"e\ntw", b"o\n"):
        peer.send(part)
        gevent.sleep(0)

    peer.wait_for(b"one", b"two")


def test_little_is_kept_of_a_client_that_is_held_from_its_first_octets_on(peer):
    """Of a thousand publishers that wait for their queues' files it was 66 MB."""
    lines = [b"%d" % number for number in range(10_000)]
    peer.send(b"pause\n" + b"\n".join(lines) + b"\n")
    peer.wait_for(b"pause")
    let_the_loop_poll()
    assert peer.stream.received_octets <= FIRST_OCTETS

    peer.lane.hold.release()

    peer.wait_for(b"pause", *lines)


def test_reads_are_as_long_as_they_may_be_once_a_client_has_sent_something(peer):
    peer.send(b"-" * FIRST_OCTETS)
    wait_until(lambda: peer.stream.received_octets == FIRST_OCTETS, sleep=gevent.sleep)
    hold = peer.stream.pause_reading("all to be there")
    peer.send(b"-" * (2 * FIRST_OCTETS))
    wait_until(lambda: peer.waiting_octets() == 2 * FIRST_OCTETS, sleep=gevent.sleep)
    peer.lane.calls.clear()

    hold.release()

    wait_until(lambda: peer.stream.received_octets == 3 * FIRST_OCTETS, sleep=gevent.sleep)
    assert peer.lane.calls.count("process") == 1


def test_tails_of_connections_that_share_a_buffer_do_not_mix():
    buffers = HubBuffers(4096)
    peers = [Peer(buffers) for _ in range(3)]
    for part in (b"a", b"bc", b"d\n"):
        for number, peer in enumerate(peers):
            peer.send(b"%d" % number + part)
            gevent.sleep(0)

    for number, peer in enumerate(peers):
        peer.wait_for(b"%da%dbc%dd" % (number, number, number))
        peer.running.kill()


def test_the_end_of_the_peer_ends_the_run(peer):
    peer.send(b"one\n")
    peer.socket.shutdown(socket.SHUT_WR)

    peer.running.get(timeout=in_time(30))

    assert peer.lane.lines == [b"one"]


def test_stop_ends_the_run_after_the_walk(peer):
    peer.send(b"stop\nlast\n")

    peer.running.get(timeout=in_time(30))

    assert peer.lane.lines == [b"stop", b"last"]


def test_what_the_lane_raises_ends_the_run_after_what_was_taken_was_finished(peer):
    peer.send(b"one\nwrong\nnever\n")

    with pytest.raises(ValueError, match="wrong line"):
        peer.running.get(timeout=in_time(30))

    assert peer.lane.lines == [b"one", b"wrong"] and peer.lane.calls == ["process", "finish"]
    assert peer.socket.recv(100) == b"ok one\n."


def test_a_paused_stream_goes_on_where_the_walk_stopped(peer):
    peer.send(b"one\npause\ntwo\nthree\n")
    peer.wait_for(b"one", b"pause")
    peer.send(b"four\n")
    let_the_loop_poll()
    assert peer.lane.lines == [b"one", b"pause"]

    peer.lane.hold.release()

    peer.wait_for(b"one", b"pause", b"two", b"three", b"four")


def test_a_paused_stream_goes_on_with_the_records_that_were_read_ahead(tmp_path):
    peer = Peer(pair=tls_pair(certificates.make(tmp_path / "files")))
    records = [b"%d" % number for number in range(RECORDS_MAX)]
    hold = peer.stream.pause_reading("the test")
    peer.send(b"pause\n")
    for record in records:
        peer.send(record + b"\n")
    hold.release()
    peer.wait_for(b"pause")
    assert peer.waiting_octets() == 0

    peer.lane.hold.release()

    peer.wait_for(b"pause", *records)
    peer.running.kill()


def test_what_waits_for_an_answer_of_its_own_is_looked_for_now_and_then(monkeypatch):
    """OpenSSL's, to a change of keys, of a peer that does not read: each look at it is in vain."""
    looks, answered, sent = [], [], [b"line\n"]

    def receive_into(view):
        looks.append(view)
        if not answered:
            raise SSLWantWriteError
        octets = sent.pop()
        view[:len(octets)] = octets
        return len(octets)

    monkeypatch.setattr(stream_module, "receive_functions", lambda ours: (receive_into, lambda: len(sent)))
    peer = Peer()
    wait_until(lambda: looks, sleep=gevent.sleep)
    turns = 0
    while len(looks) < 5:
        gevent.sleep(0)
        turns += 1
    assert turns > 5 * len(looks)

    answered.append(True)

    peer.wait_for(b"line")
    peer.running.kill()


@pytest.mark.parametrize("is_held", [False, True])
def test_what_cannot_answer_a_change_of_keys_is_read_when_it_can(tmp_path, is_held):
    ours, theirs = pair = tls_pair(certificates.make(tmp_path / "files"))
    library = openssl._library()
    peer = Peer(pair=pair)
    peer.send(b"before\n")
    peer.wait_for(b"before")
    with contextlib.suppress(BlockingIOError):
        while True:
            ours._sock.send(b"in plain")
    hold = peer.stream.pause_reading("the test")
    for record in (b"one\n", b"two\n"):
        library.SSL_key_update(ctypes.c_void_p(openssl._word(theirs._sslobj, openssl.LIBRARY_AT)), 1)
        peer.send(record)
    hold.release()
    peer.wait_for(b"before", b"one")
    peer.send(b"three\n")  # for which the socket calls

    loop = gevent.get_hub().loop
    turns = loop.iteration
    with gevent.Timeout(SHORT_S, False):
        peer.running.join()
    assert loop.iteration - turns < FEW_TURNS, "it looks in vain"
    assert peer.lane.lines == [b"before", b"one"]
    if is_held:
        hold = peer.stream.pause_reading("the test")
        theirs._sock.recv(1024 * 1024)
        hold.release()
    else:
        theirs._sock.recv(1024 * 1024)

    peer.wait_for(b"before", b"one", b"two", b"three")
    peer.running.kill()


def test_a_stream_is_read_when_nobody_holds_it_and_a_hold_is_released_once(peer):
    first, second = peer.stream.pause_reading("room"), peer.stream.pause_reading("its turn")
    peer.send(b"one\n")
    first.release()
    first.release()
    let_the_loop_poll()
    assert peer.lane.lines == [] and peer.stream.paused and peer.stream.waits_for == ["its turn"]

    second.release()

    peer.wait_for(b"one")
    assert not peer.stream.paused and peer.stream.waits_for == []


def test_holds_that_do_not_matter_any_more_are_released_together(peer):
    holds = [peer.stream.pause_reading(waits_for) for waits_for in ("its turn", "its turn", "room")]
    assert peer.stream.waits_for == ["its turn", "room"]
    peer.send(b"one\n")

    peer.stream.release_all()

    peer.wait_for(b"one")
    for hold in holds:
        hold.release()
    assert not peer.stream.paused


def test_a_hold_of_a_stream_that_has_ended_may_be_released(peer):
    gevent.sleep(0)
    hold = peer.stream.pause_reading("room")
    peer.stream.stop()
    peer.running.get(timeout=in_time(30))

    hold.release()

    assert not peer.stream.paused


def test_a_peer_that_went_away_ends_the_run_with_the_error_of_the_output(peer):
    """The peer never reads: what is written to it breaks the connection, and the reader hears of it."""
    gevent.sleep(0)
    peer.socket.close()

    peer.lane.output.write(b"x")
    peer.lane.output.write(b"x")

    with pytest.raises(OSError):
        peer.running.get(timeout=in_time(30))


class IllSocket:
    """A socket that is none of the system's, as a WebSocket is, and has a fault."""

    def __init__(self, below, error):
        self.below = below
        self.error = error

    def fileno(self):
        return self.below.fileno()

    def receive_functions(self):
        return self.fail, None

    def fail(self, _view):
        raise self.error

    send = fail


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("a fault"), ConnectionResetError()])
def test_whatever_a_read_raises_ends_the_stream(error):
    ours, theirs = socket_pair()
    buffers = HubBuffers(4096)
    ill = IllSocket(ours, error)
    output = Output(ill, buffers)
    running = gevent.spawn(read_all, Stream(ill, buffers, output, Coalescer()), None, None)
    theirs.sendall(b"x")

    with pytest.raises(type(error)):
        running.get(timeout=in_time(30))


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("a fault"), ConnectionResetError()])
def test_whatever_a_write_raises_breaks_the_output_and_ends_the_stream(error):
    ours, _theirs = socket_pair()
    buffers = HubBuffers(4096)
    ill = IllSocket(ours, error)
    output = Output(ill, buffers)
    running = gevent.spawn(read_all, Stream(ill, buffers, output, Coalescer()), None, None)
    gevent.sleep(0)

    output.write(b"x")

    assert output.broken
    with pytest.raises(OSError):
        running.get(timeout=in_time(30))


def test_a_busy_connection_leaves_others_their_turn(peer):
    """A flood on one connection: between two of its reads the other gets its own."""
    buffers = peer.lane.buffers
    other = Peer(buffers)
    order = []
    for each, name in ((peer, "busy"), (other, "quiet")):
        process = each.lane.process
        each.lane.process = lambda start, end, now_ms, process=process, name=name: (
            order.append(name), process(start, end, now_ms)
        )[1]
    flood = gevent.spawn(peer.send, b"-" * 60 * 1024 * 1024)
    wait_until(lambda: order.count("busy") > 3, sleep=gevent.sleep)

    other.send(b"hello\n")
    sent_at = len(order)
    other.wait_for(b"hello")

    flood.kill()
    other.running.kill()
    assert order.index("quiet") - sent_at <= 3


@pytest.mark.parametrize("is_reset", [False, True])
def test_reads_of_one_poll_find_only_so_many_ends_and_others_are_read_in_between(monkeypatch, is_reset):
    """7675f4c1 found all 60 in one poll."""
    monkeypatch.setattr(buffers_module, "ENDS", 10, raising=False)
    buffers, over, polls = HubBuffers(4096), [], []
    pairs, other = [socket_pair() for _ in range(60)], Peer(buffers)
    streams = [Stream(ours, buffers, Output(ours, buffers), Coalescer()) for ours, _ in pairs]
    for stream in streams:
        stream.begin(None, None, b"", functools.partial(over.append, stream))
    let_the_loop_poll()

    def look():
        if over and not polls[-1][0]:  # the first were found
            other.socket.send(b"hello\n")
        polls.append((len(over), len(other.lane.lines)))

    after_poll = gevent.get_hub().loop.check()
    after_poll.priority = after_poll.loop.MAXPRI  # before the sockets that the poll found
    for ours, theirs in pairs:
        if is_reset:
            ours.send(b"not read")
        theirs.close()
    after_poll.start(look)
    wait_until(lambda: polls and polls[-1] == (60, 1), sleep=gevent.sleep)

    after_poll.close()
    other.running.kill()
    for stream in streams:
        stream.end()
    assert max(after - before for (before, _), (after, _) in itertools.pairwise(polls)) == 10
    assert any(ended < 60 and lines for ended, lines in polls), f"another client waited for all ends: {polls}"
    assert {type(stream.error) for stream in streams} == {ConnectionResetError if is_reset else type(None)}


def sizes_of_reads(*peers, until):
    """What each peer's reads bring, as (peer's number, octets), of floods on all of them."""
    reads = []
    for number, peer in enumerate(peers):
        process = peer.lane.process
        peer.lane.process = lambda start, end, now_ms, process=process, number=number: (
            reads.append((number, end - start)), process(start, end, now_ms)
        )[1]
    floods = [gevent.spawn(peer.send, b"-" * 60 * 1024 * 1024) for peer in peers]
    wait_until(lambda: until(reads), sleep=gevent.sleep)
    for flood in floods:
        flood.kill()
    return reads


def test_who_floods_alone_is_read_more_at_a_time(peer):
    reads = sizes_of_reads(peer, until=lambda reads: any(size > INPUT_OCTETS for _, size in reads))

    assert reads[0][1] <= INPUT_OCTETS and max(size for _, size in reads) <= FLOOD_OCTETS


def test_two_that_flood_are_read_as_little_as_ever(peer):
    """A longer read of the one would delay the other."""
    other = Peer(peer.lane.buffers)
    full = lambda reads: [size for _, size in reads].count(INPUT_OCTETS)  # noqa: E731

    reads = sizes_of_reads(peer, other, until=lambda reads: full(reads) >= 20)

    other.running.kill()
    for before, after in zip(reads, reads[1:]):
        if before[0] != after[0]:
            assert after[1] <= INPUT_OCTETS


def test_who_was_held_is_read_less_again(peer):
    sizes_of_reads(peer, until=lambda reads: any(size > INPUT_OCTETS for _, size in reads))
    hold = peer.stream.pause_reading("the test")
    wait_until(lambda: peer.stream.paused, sleep=gevent.sleep)

    hold.release()
    reads = sizes_of_reads(peer, until=len)

    assert reads[0][1] <= INPUT_OCTETS


def test_stream_that_was_stopped_before_it_runs_reads_nothing():
    ours, theirs = socket_pair()
    buffers = HubBuffers(4096)
    output = Output(ours, buffers)
    stream = Stream(ours, buffers, output, Coalescer())
    lane = Lines(buffers, output)
    theirs.sendall(b"one\n")

    stream.stop()
    read_all(stream, lane, lane, b"rest\n")

    assert lane.calls == []
