"""Fuzz target of etcd's client: what a server sends, however it is cut."""
import json
from unittest import mock

from gomq_py.cluster.core.records import View
from gomq_py.cluster.core.transactions import Outcome
from gomq_py.cluster.etcd import connection, messages
from gomq_py.cluster.etcd.connection import Connection, Endpoint
from gomq_py.cluster.etcd.messages import AnswerError, Refused
from gomq_py.net import connecting
from tests.fuzz.target import Draw, Target, pieces

PREFIX, LEASE = b"gomq/", 77
HEADER = {"cluster_id": "1", "member_id": "2", "revision": "9"}
KEPT = {"key": "Z29tcS9sZWFkZXI=", "create_revision": "2", "mod_revision": "5", "value": "eA==", "lease": "7"}
READERS = (
    lambda answer: messages.view_of(answer, PREFIX), lambda answer: messages.outcome_of(answer, PREFIX),
    lambda answer: messages.is_kept_alive(answer, LEASE), messages.lease_of, messages.token_of,
    messages.check_header, messages.cancel_reason,
)


class Pieces:
    """A socket that gives pieces, and then the end."""

    def __init__(self, parts):
        self._parts = list(parts)

    def recv(self, most):
        """The next piece."""
        if not self._parts:
            return b""
        part = self._parts.pop(0)
        if len(part) > most:
            self._parts.insert(0, part[most:])
        return part[:most]

    def sendall(self, octets):
        """Takes everything."""

    settimeout = close = lambda self, *_: None


def run_etcd(data):
    """An answer is read as a whole or refused, the same however it is cut; a stream ends. Nothing else is
    raised, and nothing of a wrong type is returned.
    """
    draw = Draw(data)
    number = draw.octet()
    sizes = tuple(draw.octets(3)) or (1,)
    stream = draw.rest()

    if number & 128:
        whole, pieced = _lines([stream]), _lines(pieces(stream, sizes))
        assert whole == pieced[:len(whole)]  # a fault hides the lines that have come with it
    else:
        read = READERS[number % len(READERS)]
        assert _answer([stream], read) == _answer(pieces(stream, sizes), read)


def _connected(parts):
    with mock.patch.object(connecting, "connect", lambda *_: Pieces(parts)):
        return Connection(Endpoint("etcd", 2379, False), [], None, 1.0)


def _answer(parts, read):
    made = _connected(parts)
    with mock.patch.object(connection, "give_way", lambda: None):
        try:
            status, octets = made.post("/v3/kv/range", b"{}", "")
            answer = messages.parse(octets)
            if status != connection.OK or "error" in answer:
                raise messages.refused_by(answer)
            found = read(answer)
        except (OSError, AnswerError, Refused) as error:
            assert len(str(error)) < 1000
            return type(error)
    assert found is None or isinstance(found, View | Outcome | bool | int | str)
    return found


def _lines(parts):
    lines = []
    with mock.patch.object(connection, "give_way", lambda: None):
        try:
            for line in _connected(parts).stream("/v3/watch", b"{}", "", 1.0):
                assert b"\n" not in line
                if line:
                    lines.append(line)
        except OSError:
            return lines


def sample_etcd():
    def whole(found, status=b"200 OK"):
        body = json.dumps(found).encode()
        return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)

    def chunked(*found):
        lines = [json.dumps(one).encode() + b"\n" for one in found]
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: a\r\n\r\n" + b"".join(
            b"%x\r\n%s\r\n" % (len(line), line) for line in lines) + b"0\r\na: b\r\n\r\n"

    view = {"header": HEADER, "kvs": [KEPT], "count": "1"}
    yield b"\x00\x01\x01\x01" + whole(view)
    yield b"\x01\x07\x01\x40" + whole(
        {"header": HEADER, "succeeded": True, "responses": [{"response_put": {}}, {"response_range": view}]})
    yield b"\x02\x40\x01\x01" + chunked({"result": {"header": HEADER, "ID": "77", "TTL": "5"}})
    yield b"\x03\x01\x10\x01" + whole({"header": HEADER, "ID": "77", "TTL": "5"})
    yield b"\x04\x01\x10\x01" + whole({"header": HEADER, "token": "a.1"})
    yield b"\x00\x01\x10\x01" + whole({"error": "x", "message": "x", "code": 5}, b"404 Not Found")
    yield b"\x00\xff\xff\xff" + b"HTTP/1.1 100 Continue\r\n\r\n" + whole(view)
    yield b"\x00\xff\xff\xff" + b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps(view).encode()
    stream = chunked(
        {"result": {"header": HEADER, "created": True}}, {"result": {"header": HEADER, "events": [KEPT]}},
        {"result": {"canceled": True, "cancel_reason": "x"}}, {"error": {"grpc_code": 14, "message": "x"}})
    yield b"\x80\x01\x01\x01" + stream
    yield b"\x80\x20\x07\x01" + stream[:-60]


WORDS = (
    b'"header"', b'"revision"', b'"kvs"', b'"key"', b'"Z29tcS8="', b'"responses"', b'"response_range"',
    b'"result"', b'"TTL"', b'"error"', b'"canceled"', b"null", b"\r\n\r\n", b"Content-Length: ",
    b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n",
)
TARGETS = {"etcd": Target(run_etcd, sample_etcd, 4096, WORDS)}
