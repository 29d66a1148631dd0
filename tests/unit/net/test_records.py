"""Several TLS records in one read, where there are several: of OpenSSL that reads ahead, and of one of which
nobody knows what it has.
"""
import contextlib
import ctypes
import select
import ssl
from socket import SHUT_WR
from ssl import SSLWantReadError, SSLWantWriteError

import pytest

from gomq_py.net import openssl, records
from gomq_py.net.records import RECORDS_MAX, RecordReader
from tests.support.waiting import in_time

ROOM = 100
# The head of a record of application data, and of so many octets.
HEAD = b"\x17\x03\x03\x00\x20"


class Peer:
    """Who sends records to a reader: each write is one."""

    def __init__(self, pair):
        self.ours, self.theirs = pair
        openssl.take_turns(self.ours._sslobj)  # as a handshaker does
        self.reader = RecordReader(self.ours._sslobj)

    def send(self, *parts):
        for part in parts:
            self.theirs.sendall(part)

    def send_in_part(self):
        self.theirs._sock.sendall(HEAD + b"some")

    def send_wrong(self):
        self.theirs._sock.sendall(HEAD + bytes(32))

    def change_keys(self, asks=True):
        """From the next record on, and ask for the same."""
        openssl._library().SSL_key_update(self._theirs(), int(asks))

    def sealed_changes_of_keys(self, count):
        """Records that say so, and nothing else."""
        sealed = b""
        for _ in range(count):
            self.change_keys(asks=False)
            openssl._library().SSL_do_handshake(self._theirs())
            sealed += self.ours._sock.recv(1000)
        return sealed

    def _theirs(self):
        return ctypes.c_void_p(openssl._word(self.theirs._sslobj, openssl.LIBRARY_AT))

    def leave_no_room(self):
        """For what is written to the peer."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.ours._sock.send(b"in plain")

    def make_room(self):
        """Read that."""
        self.theirs._sock.recv(1024 * 1024)

    def end(self):
        """Say that nothing follows, in TLS's words."""
        self.theirs.setblocking(False)
        with contextlib.suppress(ssl.SSLError):  # it wants to hear the same of us
            self.theirs._sslobj.shutdown()

    def cut_off(self):
        """End without a word."""
        self.theirs._sock.shutdown(SHUT_WR)

    def reset(self):
        """End as a system does whose client was killed with octets unread."""
        self.ours._sock.sendall(b"unread")
        self.theirs._sock.close()

    def read(self, most=ROOM):
        room = bytearray(most)
        return bytes(room[:self.reader.receive_into(memoryview(room))])


@pytest.fixture(params=["read ahead", "read one by one"])
def peer(pair, request, monkeypatch):
    if request.param == "read one by one":
        monkeypatch.setattr(records.openssl, "read_ahead", lambda ssl_object: 0)
    return Peer(pair)


def test_all_records_that_are_there_come_with_one_read(peer):
    peer.send(b"one", b"two", b"three")

    assert peer.read() == b"onetwothree"
    with pytest.raises(SSLWantReadError):
        peer.read()


def test_a_read_takes_no_more_than_there_is_room_for(peer):
    peer.send(b"a" * 60, b"b" * 60)

    assert peer.read() == b"a" * 60 + b"b" * 40
    assert peer.reader.pending()
    assert peer.read() == b"b" * 20


def test_a_read_takes_no_more_records_than_others_can_wait_for(peer):
    peer.send(*[b"r"] * (RECORDS_MAX + 1))

    assert peer.read(RECORDS_MAX + 1) == b"r" * RECORDS_MAX
    assert peer.reader.pending()
    assert peer.read() == b"r"


@pytest.mark.parametrize("octets", [60, 1000, 4096, 16384])
def test_a_read_takes_more_than_is_read_ahead_at_a_time(peer, octets, monkeypatch):
    monkeypatch.setattr(records, "LONG_NS", int(in_time(30) * 1e9))
    sent = b"".join(bytes([number % 256]) * octets for number in range(2 ** 16 // octets // 2))
    peer.send(*[sent[at:at + octets] for at in range(0, len(sent), octets)][:RECORDS_MAX])
    sent = sent[:octets * RECORDS_MAX]

    assert peer.read(2 ** 16) == sent


def test_a_read_that_took_long_takes_no_more_than_was_read_ahead(pair, monkeypatch):
    """Else a peer that changes keys between its records keeps all others waiting for the room of a read."""
    monkeypatch.setattr(records, "LONG_NS", 0)
    monkeypatch.setattr(records, "PENDING_IS_KNOWN", True)
    peer = Peer(pair)
    sent = [bytes([letter]) * 16384 for letter in b"abcd"]
    peer.send(*sent)

    assert peer.read(2 ** 16) == b"".join(sent[:2])  # the second had begun in what was read ahead
    assert not peer.reader.pending()
    assert select.select([peer.ours], [], [], 0)[0], "it was read to its end"
    assert peer.read(2 ** 16) == b"".join(sent[2:])


def test_python_that_lays_out_its_objects_otherwise_reads_record_by_record(pair, monkeypatch):
    """The second record stays in the socket, which a read ahead would have emptied."""
    monkeypatch.setattr(openssl, "CONTEXT_AT", openssl.SOCKET_AT)
    peer = Peer(pair)
    peer.send(b"one", b"two")

    assert peer.read(3) == b"one"
    assert select.select([peer.ours._sock], [], [], 0)[0]
    assert peer.reader.pending()
    assert peer.read() == b"two"


def test_nothing_is_pending_where_all_was_read(peer):
    assert not peer.reader.pending()
    peer.send(b"one", b"two")
    peer.read()

    assert not peer.reader.pending()


def test_nothing_is_pending_of_a_record_for_whose_rest_the_socket_calls(peer):
    peer.send(b"one")
    peer.send_in_part()

    assert peer.read() == b"one"
    assert not peer.reader.pending()
    with pytest.raises(SSLWantReadError):
        peer.read()
    assert not peer.reader.pending()


def test_a_record_that_comes_in_pieces_is_read_when_it_is_whole(peer, monkeypatch):
    sent = []
    peer.send(b"before")
    assert peer.read() == b"before"
    ours, theirs = peer.ours._sock, peer.theirs
    peer.send(b"octets" * 5)
    sealed = ours.recv(1000)
    for octet in sealed[:-1]:
        theirs._sock.sendall(bytes([octet]))
        with pytest.raises(SSLWantReadError):
            peer.read()
        sent.append(octet)
    theirs._sock.sendall(sealed[-1:])

    assert peer.read() == b"octets" * 5


def test_of_what_waits_for_an_answer_to_a_change_of_keys_it_is_said_that_it_is_there(peer):
    """The socket does not call for what OpenSSL has read."""
    for record in (b"one", b"two", b"three"):
        peer.send(record)
        peer.change_keys()
    peer.send(b"four")
    peer.leave_no_room()
    got = b""
    with contextlib.suppress(SSLWantReadError, SSLWantWriteError):
        while True:
            got += peer.read(4)
    assert got != b"onetwothreefour"
    assert peer.reader.pending() or select.select([peer.ours], [], [], 0)[0]

    peer.make_room()
    while peer.reader.pending() or select.select([peer.ours], [], [], 0)[0]:
        with contextlib.suppress(SSLWantReadError):
            got += peer.read()
    assert got == b"onetwothreefour"


def test_of_changes_of_keys_a_read_deals_with_those_that_were_read_at_once(pair):
    """Else a peer that sends nothing else keeps all others waiting."""
    peer = Peer(pair)
    peer.send(b"before")
    assert peer.read() == b"before"
    peer.theirs._sock.sendall(peer.sealed_changes_of_keys(1000))
    peer.send(b"behind")

    with pytest.raises(SSLWantReadError):
        peer.read()
    assert select.select([peer.ours], [], [], 0)[0], "it was read to its end"
    got = b""
    while peer.reader.pending() or select.select([peer.ours], [], [], 0)[0]:
        with contextlib.suppress(SSLWantReadError):
            got += peer.read()
    assert got == b"behind"


ERRORS = {
    Peer.cut_off: (ssl.SSLEOFError, "EOF occurred in violation of protocol"),
    Peer.send_wrong: (ssl.SSLError, "(?i)decryption failed or bad record mac|record layer failure"),
    Peer.reset: (OSError, "EOF occurred in violation of protocol|reset by peer|Broken pipe"),
}


@pytest.mark.parametrize("end", ERRORS)
@pytest.mark.parametrize("before", [b"", b"words"])
def test_an_error_is_raised_after_what_came_before(peer, end, before):
    if before:
        peer.send(b"last", before)
    end(peer)

    if before:
        assert peer.read() == b"lastwords"
    error, text = ERRORS[end]
    with pytest.raises(error, match=text):
        peer.read()


@pytest.mark.parametrize("before", [b"", b"words"])
def test_an_end_is_read_after_what_came_before_and_again(peer, before):
    if before:
        peer.send(b"last", before)
    peer.end()

    if before:
        assert peer.read() == b"lastwords"
    assert peer.read() == b""
    assert peer.read() == b""


@pytest.mark.parametrize("end", [Peer.end, *ERRORS])
def test_an_end_is_pending_that_was_read_with_what_came_before(peer, end):
    peer.send(b"last")
    end(peer)

    assert peer.read() == b"last"
    if not peer.reader.pending():
        assert select.select([peer.ours], [], [], 0)[0], "the socket does not call"


def test_large_records_fill_the_room(peer):
    octets = bytes(range(256)) * 512
    peer.theirs.setblocking(False)
    sent, got = 0, b""
    while len(got) < len(octets):
        with contextlib.suppress(ssl.SSLWantWriteError):
            while sent < len(octets):
                sent += peer.theirs._sslobj.write(octets[sent:sent + 20_000])
        with contextlib.suppress(SSLWantReadError):
            got += peer.read(30_000)

    assert got == octets


def test_of_what_is_read_ahead_none_is_looked_for_in_vain(pair):
    """A look in vain raises, and costs more than a record."""
    peer = Peer(pair)
    for number in range(5):
        peer.send(b"%d" % number, b"+")
        assert peer.read() == b"%d+" % number
        assert not peer.reader.pending()


def test_what_cannot_be_filled_is_an_error(peer):
    peer.send(b"octets")

    with pytest.raises((TypeError, BufferError)):
        peer.reader.receive_into(memoryview(b"read only"))
    assert peer.read() == b"octets"
