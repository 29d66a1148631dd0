"""A WebSocket as a socket: RFC 6455's own examples, pieces, control frames, what it forbids, and a peer that
does not read.
"""
import struct
from types import SimpleNamespace

import gevent
import pytest
from gevent import socket
from wsproto import ConnectionType
from wsproto.connection import Connection

from gomq_py.hub import turns as turns_module
from gomq_py.hub.buffers import HubBuffers
from gomq_py.hub.coalescer import Coalescer
from gomq_py.hub.scheduler import Scheduler
from gomq_py.hub.turns import SlowTurns
from gomq_py.net.output import Output
from gomq_py.net.stream import Lane, Stream
from gomq_py.net.websocket import WebSocket
from tests.support.door import poll_until
from tests.support.waiting import in_time
from tests.support.websockets import BINARY, CLOSE, CONTINUATION, PING, TEXT, frame

MASKED_HELLO = bytes.fromhex("82 85 37fa213d 7f9f4d5158")  # §5.7 has it as text


class Ends:
    """Both ends of one WebSocket, and the functions that a Stream has of ours."""

    def __init__(self, leaving=False, pair=None, turns=None, **options):
        ours, self.peer = pair or socket.socketpair()
        self.socket = WebSocket(
            ours, Connection(ConnectionType.SERVER), turns or SlowTurns(Scheduler()), lambda: leaving,
            **options)
        self.receive_into, self.pending = self.socket.receive_functions()
        self.peer.settimeout(in_time(10))

    def taken(self, room=65536):
        """What is to be received now, over as many reads as are called for; None where the end is there."""
        octets, buffer = b"", bytearray(room)
        while True:
            try:
                count = self.receive_into(memoryview(buffer))
            except BlockingIOError:
                count = -1
            if count == 0:
                assert not self.pending()
                return None if not octets else octets
            octets += buffer[:max(count, 0)]
            if not self.pending():
                return octets

    def told(self):
        """What the peer can read now."""
        gevent.sleep(0)
        self.peer.setblocking(False)
        octets = b""
        try:
            while more := self.peer.recv(65536):
                octets += more
        except BlockingIOError:
            pass
        return octets


@pytest.fixture
def ends():
    made = Ends()
    yield made
    made.socket.close()
    made.peer.close()


def test_masked_message_of_the_rfc_is_received(ends):
    ends.peer.sendall(MASKED_HELLO)

    assert ends.taken() == b"Hello"


@pytest.mark.parametrize("count", [1, 125, 126, 65535, 65536, 300_000])
def test_messages_of_all_forms_of_length_go_both_ways(ends, count):
    payload = bytes(number % 251 for number in range(count))
    sender = gevent.spawn(ends.peer.sendall, frame(payload))
    received = bytearray()

    def has_all():
        received.extend(ends.taken())
        return len(received) >= count

    poll_until(has_all)
    sender.join()

    sent, back = 0, b""
    while sent < count:
        try:
            sent += ends.socket.send(memoryview(payload)[sent:])
        except BlockingIOError:
            pass
        back += ends.told()
    back += ends.told()

    assert received == payload
    assert payloads(back) == payload


def payloads(frames):
    """What binary messages hold together, which are all there is."""
    octets = b""
    while frames:
        length, start = frames[1], 2
        if length >= 126:
            start = 4 if length == 126 else 10
            length = int.from_bytes(frames[2:start], "big")
        assert frames[0] == 0x82
        octets, frames = octets + frames[start:start + length], frames[start + length:]
    return octets


@pytest.mark.parametrize("size", [1000, 1_000_000])
def test_whoever_cannot_send_all_at_once_may_wait_with_the_rest(ends, size):
    """As logins do."""
    payload, sent, whole = bytes(number % 251 for number in range(size)), None, b""
    while sent is None or sent == size:
        whole += payload
        try:
            sent = ends.socket.send(payload)
        except BlockingIOError:
            sent = 0
    rest = gevent.spawn(ends.socket.sendall, payload[sent:])

    back = b""
    while not rest.ready():
        back += ends.told()
    rest.get()
    back += ends.told()

    assert payloads(back) == whole


def test_octets_are_handed_on_before_their_frame_is_whole(ends):
    whole = frame(b"abcdef")
    seen = []
    for octet in whole:
        ends.peer.sendall(bytes([octet]))
        seen.append(ends.taken())

    assert seen == [b""] * 6 + [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_fragments_and_what_comes_between_them_are_one_stream(ends):
    ends.peer.sendall(
        frame(b"ab", fin=False) + frame(b"!", PING) + frame(b"cd", CONTINUATION, fin=False)
        + frame(b"", CONTINUATION, fin=False) + frame(b"e", CONTINUATION) + frame(b"f")
    )

    assert ends.taken() == b"abcdef"
    assert ends.told() == b"\x8a\x01!"


def test_what_does_not_fit_into_the_room_comes_with_the_next_read(ends):
    ends.peer.sendall(frame(b"abcdefg"))

    assert ends.taken(room=3) == b"abcdefg"


def test_nothing_is_kept_of_a_frame_that_was_taken(ends):
    ends.peer.sendall(frame(b"x" * 60_000))

    assert ends.taken() == b"x" * 60_000
    assert len(ends.socket._payload.obj) == 0


def test_frame_that_says_an_impossible_length_costs_nothing(ends):
    ends.peer.sendall(struct.pack(">BBQ", 0x82, 0xFF, (1 << 63) - 1) + b"\0\0\0\0" + b"x" * 1000)

    assert ends.taken() == b"x" * 1000
    assert ends.told() == b""


@pytest.mark.parametrize("octets, code", [
    (frame(b"x", mask=b""), 1002), (frame(b"x", TEXT), 1003), (frame(b"", TEXT, fin=False), 1003),
    (frame(b"\xff", TEXT), 1007), (frame(b"x", bits=4), 1002), (frame(b"x", bits=1), 1002),
    (frame(b"x", 3), 1002), (frame(b"x", 11), 1002), (frame(b"x", CONTINUATION), 1002),
    (frame(b"a", fin=False) + frame(b"b"), 1002), (frame(b"x", PING, fin=False), 1002),
    (frame(b"x" * 126, PING), 1002), (struct.pack(">BBQ", 0x82, 0xFF, 1 << 63) + b"\0\0\0\0", 1002),
    (struct.pack(">BBH", 0x82, 0xFE, 125) + b"\0\0\0\0", 1002), (frame(b"x", CLOSE), 1002),
    (frame(struct.pack(">H", 999), CLOSE), 1002), (frame(struct.pack(">H", 1005), CLOSE), 1002),
    (frame(struct.pack(">H", 1000) + b"\xff", CLOSE), 1007),
])
def test_what_the_rfc_forbids_ends_with_its_code(ends, octets, code):
    ends.peer.sendall(frame(b"before") + octets + frame(b"behind"))

    assert ends.taken() in (b"before", b"beforea")
    assert ends.taken() is None
    told = ends.told()
    assert (told[0], told[2:4]) == (0x88, struct.pack(">H", code))
    assert len(told) == 2 + told[1], "one frame, and nothing behind it"


@pytest.mark.parametrize("payload, answer", [
    (struct.pack(">H", 1000) + b"bye", struct.pack(">H", 1000) + b"bye"), (b"", b""),
    (struct.pack(">H", 3999), struct.pack(">H", 3999)),
])
def test_close_of_the_peer_is_answered_and_is_the_end(ends, payload, answer):
    ends.peer.sendall(frame(b"last") + frame(payload, CLOSE))

    buffer = memoryview(bytearray(100))
    assert ends.receive_into(buffer) == 4
    assert ends.pending(), "the socket will not call for the end"
    assert (ends.receive_into(buffer), ends.pending()) == (0, False)
    assert ends.told() == bytes([0x88, len(answer)]) + answer
    assert ends.socket.send(b"too late") == 8
    assert ends.told() == b""


@pytest.mark.parametrize("leaving, code", [(False, 1000), (True, 1001)])
def test_end_of_ours_is_said_once(leaving, code):
    ends = Ends(leaving)
    ends.socket.shutdown(socket.SHUT_WR)
    ends.socket.close()
    ends.socket.close()

    assert ends.peer.recv(100) == b"\x88\x02" + struct.pack(">H", code)
    assert ends.peer.recv(100) == b""


def test_after_our_end_what_comes_is_read_as_it_comes_and_nothing_is_answered(ends):
    ends.socket.shutdown(socket.SHUT_WR)
    ends.peer.sendall(frame(b"x", PING))

    assert ends.socket.recv(100) == frame(b"x", PING)
    assert ends.told()[:2] == b"\x88\x02"


def test_flood_of_tiny_frames_is_cut_into_reads(ends, monkeypatch):
    """With no time at all a read takes one frame, and the first one of a poll two."""
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    ends.peer.sendall(frame(b"x") * 30)
    buffer = memoryview(bytearray(65536))

    assert sum(ends.receive_into(buffer) for _ in range(25)) <= 26
    assert ends.pending()
    assert ends.taken() == b"x" * 4 or not ends.pending()


def test_flood_of_empty_frames_is_cut_too_and_does_not_pass_for_the_end(ends, monkeypatch):
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    ends.peer.sendall(frame(b"") * 10 + frame(b"x"))
    buffer = memoryview(bytearray(65536))

    with pytest.raises(BlockingIOError):
        ends.receive_into(buffer)
    assert ends.pending()
    assert ends.taken() == b"x"


def test_all_websockets_together_take_no_more_time_of_a_poll_than_one(monkeypatch):
    """What each is read is one frame, as much as those have that send no more."""
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    turns, buffer = SlowTurns(Scheduler()), memoryview(bytearray(65536))
    many = [Ends(turns=turns) for _ in range(50)]
    for one in many:
        one.peer.sendall(frame(b"x") * 100)

    loop = gevent.get_hub().loop
    before = loop.iteration
    poll_until(lambda: loop.iteration > before)  # a poll that nobody has asked in
    counts = [one.receive_into(buffer) for one in many]

    assert sum(counts) <= len(many) + 1
    for one in many:
        one.socket.close()
        one.peer.close()


def test_stream_with_frames_left_is_held_until_its_turn():
    held, reads = [], []

    class Counting(Lane):
        def process(self, start, end, now_ms):
            reads.append(end - start)
            return end

    turns = SimpleNamespace(has_time=lambda: False, wait=held.append)
    ends = Ends(turns=turns)
    buffers = HubBuffers(4096)
    stream = Stream(ends.socket, buffers, Output(ends.socket, buffers), Coalescer())

    stream.begin(Counting(), SimpleNamespace(has_plenty=bool), b"", bool)
    ends.peer.sendall(frame(b"x") * 10)
    poll_until(lambda: held)

    assert reads == [1] and held == [stream]
    stream.end()
    ends.socket.close()
    ends.peer.close()


def test_frames_that_a_reset_connection_left_are_dropped(monkeypatch):
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        theirs = socket.create_connection(listening.getsockname())
        ends = Ends(pair=(listening.accept()[0], theirs))
    theirs.sendall(frame(b"x") * 1000)
    buffer = memoryview(bytearray(65536))
    poll_until(lambda: ends.socket._socket._sock.recv(65536, socket.MSG_PEEK))
    assert ends.receive_into(buffer) <= 2

    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()

    with pytest.raises(ConnectionResetError):
        for _ in range(100):
            ends.receive_into(buffer)
    ends.socket.close()


def test_frames_that_a_client_sent_before_it_left_in_order_are_taken(ends, monkeypatch):
    """Messages at QoS 0, and nobody who waits for an answer to them."""
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    ends.peer.sendall(frame(b"x") * 100)

    ends.peer.close()

    octets = b""
    while (more := ends.taken()) is not None:
        octets += more
    assert octets == b"x" * 100


@pytest.mark.parametrize("opcode, payload", [(PING, b""), (PING, b"p" * 100), (BINARY, b""), (BINARY, b"x")])
def test_stranger_sends_no_more_frames_than_octets_before_its_login(opcode, payload):
    """What its login does not see of it: heads and control frames."""
    ends = Ends(most_before_login=1000, is_pending=lambda: True)
    octets = frame(payload, opcode)
    ends.peer.sendall(octets * 200)

    with pytest.raises(OSError, match="before the login"):
        for _ in range(1000):
            ends.socket.recv(100)

    assert close_code(ends) == 1008
    ends.peer.close()


def test_client_that_is_logged_in_sends_any_number_of_control_frames():
    asked = []
    ends = Ends(most_before_login=1000, is_pending=lambda: bool(asked.append(1)))
    ends.peer.sendall(frame(b"", PING) * 1000 + frame(b"x"))

    assert ends.socket.recv(100) == b"x"
    assert len(asked) == 1
    ends.socket.close()
    ends.peer.close()


def close_code(ends):
    """What the peer's Close frame from us says."""
    octets = ends.told()
    at = octets.index(b"\x88")
    return int.from_bytes(octets[at + 2:at + 4], "big")


def test_pongs_for_a_peer_that_does_not_read_take_no_memory(ends):
    payload = b"p" * 125
    fill(ends)
    for number in range(200):
        ends.peer.sendall(frame(payload[:-1] + bytes([number]), PING))
        assert ends.taken() == b""

    assert len(ends.socket._head) + len(ends.socket._pong) <= 300_000
    assert ends.socket._pong[-1] == 199


def fill(ends):
    """Send until the socket takes no more, in the middle of a frame; the octets that were taken."""
    payload = memoryview(bytes(range(256)) * 1000)
    taken = 0
    try:
        while True:
            count = ends.socket.send(payload)
            taken += count
            if count < len(payload):
                return taken, payload[count:]
    except BlockingIOError:
        return taken, payload


def test_control_frames_stand_between_frames_and_never_in_one(ends):
    taken, left = fill(ends)
    ends.peer.sendall(frame(b"now", PING))
    assert ends.taken() == b""
    read = b""
    while left:
        read += ends.told()
        try:
            count = ends.socket.send(left)
        except BlockingIOError:
            continue
        taken, left = taken + count, left[count:]
    read += ends.told()

    client = Connection(ConnectionType.CLIENT)
    client.receive_data(read)
    payload, pongs = b"", []
    for event in client.events():
        if type(event).__name__ == "Pong":
            pongs.append(bytes(event.payload))
        else:
            payload += event.data
    assert pongs == [b"now"]
    assert len(payload) == taken and payload == (bytes(range(256)) * (taken // 256 + 1))[:taken]


def test_after_a_close_the_frame_that_is_begun_is_ended_and_none_follows(ends):
    """RFC 6455 5.5.1: also where the rest of that frame comes with more behind it."""
    taken, left = fill(ends)
    ends.peer.sendall(frame(b"text", TEXT))
    assert ends.taken() is None
    left, read = memoryview(bytes(left) + b"x" * (1 << 20)), b""
    while left:
        read += ends.told()
        try:
            left = left[ends.socket.send(left):]
        except BlockingIOError:
            continue
    ends.socket.send(b"more")
    read += ends.told()

    assert read.endswith(b"\x88\x16\x03\xebbinary messages only")


def test_pong_that_the_socket_did_not_take_leaves_when_it_does():
    """With nothing else to send, nobody but the WebSocket itself waits for that."""
    ends = Ends()
    ends.socket._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    filler = b"\x89\x7d" + b"z" * 125
    raw = ends.socket._socket._sock
    count = 0
    try:
        while True:
            count += raw.send(filler * 10)
    except BlockingIOError:
        pass
    ends.peer.sendall(frame(b"now", PING))
    assert ends.taken() == b""

    read = b""
    with gevent.Timeout(in_time(10)):
        while len(read) < count + 5:
            read += ends.peer.recv(65536)

    assert read[count:] == b"\x8a\x03now"
    ends.socket.close()
    ends.peer.close()


def test_login_reads_and_writes_as_on_a_socket(ends):
    ends.socket.feed(frame(b"fed before"))
    ends.peer.sendall(frame(b"!", PING) + frame(b"then"))

    assert ends.socket.recv(4) == b"fed "
    assert ends.socket.recv(100) == b"before"
    assert ends.socket.recv(100) == b"then"
    ends.socket.sendall(b"answer")
    assert ends.told() == b"\x8a\x01!\x82\x06answer"
    ends.peer.close()
    assert ends.socket.recv(100) == b""


def test_login_of_tiny_frames_gives_others_a_turn(ends, monkeypatch):
    """A poll of the loop, in which all sockets are looked at, and not 50 of its callbacks."""
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    loop = gevent.get_hub().loop
    ends.socket.feed(frame(b"") * 20 + frame(b"x"))
    before = loop.iteration

    assert ends.socket.recv(1) == b"x"
    assert loop.iteration - before >= 9


def test_peer_that_is_gone_without_a_word_is_the_end_and_an_error_to_write_to(ends):
    ends.peer.close()

    assert ends.taken() is None
    with pytest.raises(OSError):
        ends.socket.send(b"x")


def test_only_what_is_known_of_a_socket_is_asked_below(ends):
    assert ends.socket.getsockname() == ""
    assert not hasattr(ends.socket, "_sslobj") and not hasattr(ends.socket, "getpeercert")
    assert ends.socket.fileno() >= 0


def test_opcode_of_what_is_sent_is_that_of_binary_messages(ends):
    ends.socket.send(b"x")

    assert ends.told() == bytes([0x80 | BINARY, 1]) + b"x"
