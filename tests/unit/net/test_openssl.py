"""What the ssl module's library can do and the module has no name for."""
import ctypes
import ssl
import sys
from socket import MSG_DONTWAIT, MSG_PEEK
from types import SimpleNamespace

import pytest

from gomq_py.net import openssl
from tests.support.sockets import tls_pair

ROOM = 100


@pytest.fixture
def no_memory_is_looked_at(monkeypatch):
    """Fails where it reads memory that may be anything."""
    def look(*_arguments):
        raise AssertionError("it looked")

    monkeypatch.setattr(openssl, "_word", look)


def left_in_socket(socket):
    """What OpenSSL has not read."""
    try:
        return socket._sock.recv(65536, MSG_PEEK | MSG_DONTWAIT)
    except BlockingIOError:
        return b""


def read(socket, most=ROOM):
    room = bytearray(most)
    return bytes(room[:socket._sslobj.read(most, room)])


def test_records_are_read_ahead_and_it_says_so(pair):
    ours, theirs = pair
    has_pending = openssl.has_pending(openssl.read_ahead(ours._sslobj))
    assert has_pending() == 0
    for record in (b"one", b"two"):
        theirs.sendall(record)

    assert read(ours) == b"one"
    assert (has_pending(), left_in_socket(ours)) == (1, b"")
    assert read(ours) == b"two"
    assert has_pending() == 0


def test_of_a_record_that_was_read_in_part_the_rest_is_pending(pair):
    ours, theirs = pair
    has_pending = openssl.has_pending(openssl.read_ahead(ours._sslobj))
    theirs.sendall(b"octets")

    assert read(ours, most=3) == b"oct"
    assert has_pending() == 1
    assert read(ours) == b"ets"
    assert has_pending() == 0


def test_the_beginning_of_a_record_is_pending(pair):
    ours, theirs = pair
    has_pending = openssl.has_pending(openssl.read_ahead(ours._sslobj))
    theirs._sock.sendall(b"\x17\x03\x03\x00\x40some")

    with pytest.raises(ssl.SSLWantReadError):
        read(ours)
    assert (has_pending(), left_in_socket(ours)) == (1, b"")


def test_functions_are_where_the_library_has_them(pair):
    ours, theirs = pair
    connection = openssl.read_ahead(ours._sslobj)
    read, has_pending, get_error = openssl.addresses()
    take = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)(read)
    ask = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(has_pending)
    why = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(get_error)
    room = ctypes.create_string_buffer(ROOM)
    theirs.sendall(b"octets")

    assert take(connection, room, 3) == 3 and room.value == b"oct"
    assert ask(connection) == 1
    assert take(connection, room, ROOM) == 3 and room.value == b"ets"
    assert why(connection, take(connection, room, ROOM)) == ssl.SSL_ERROR_WANT_READ


def test_of_whom_nothing_is_asked_reads_as_ever(pair):
    ours, theirs = pair
    for record in (b"one", b"two"):
        theirs.sendall(record)

    assert read(ours) == b"one"
    assert left_in_socket(ours)


def test_who_takes_turns_reads_nothing_behind_a_change_of_keys(pair):
    ours, theirs = pair
    openssl.take_turns(ours._sslobj)
    openssl._library().SSL_key_update(ctypes.c_void_p(openssl._word(theirs._sslobj, openssl.LIBRARY_AT)), 0)
    theirs.sendall(b"octets")

    with pytest.raises(ssl.SSLWantReadError):
        read(ours)
    assert left_in_socket(ours)
    assert read(ours) == b"octets"


@pytest.mark.usefixtures("no_memory_is_looked_at")
def test_the_kernel_reads_what_it_decrypts_itself(files):
    ours, theirs = tls_pair(files, kernel=True)
    with ours, theirs:
        assert openssl.read_ahead(ours._sslobj) == 0


@pytest.mark.usefixtures("no_memory_is_looked_at")
def test_other_interpreters_and_other_objects_are_left_alone(pair, monkeypatch):
    ours, _theirs = pair
    assert openssl.read_ahead(SimpleNamespace(context=ours._sslobj.context)) == 0
    monkeypatch.setattr(sys, "implementation", SimpleNamespace(name="another"))
    assert openssl.read_ahead(ours._sslobj) == 0
    openssl.take_turns(ours._sslobj)


@pytest.mark.parametrize("at", ["LIBRARY_AT", "CONTEXT_AT"])
def test_an_object_that_is_laid_out_otherwise_is_left_alone(pair, monkeypatch, at):
    ours, _theirs = pair
    word = openssl._word
    monkeypatch.setattr(
        openssl, "_word", lambda one, where: 0 if where == getattr(openssl, at) else word(one, where))

    assert openssl.read_ahead(ours._sslobj) == 0


def test_an_object_that_is_too_short_is_left_alone(pair, monkeypatch):
    ours, _theirs = pair
    monkeypatch.setattr(openssl, "CONTEXT_AT", type(ours._sslobj).__basicsize__)

    assert openssl.read_ahead(ours._sslobj) == 0


def test_a_library_that_keeps_its_names_to_itself_is_left_alone(pair, monkeypatch):
    ours, _theirs = pair
    monkeypatch.setattr(openssl.ctypes, "PyDLL", lambda name: SimpleNamespace())
    openssl._library.cache_clear()
    try:
        assert openssl.read_ahead(ours._sslobj) == 0
        openssl.take_turns(ours._sslobj)
    finally:
        openssl._library.cache_clear()
