"""The limits of a management port, each reached by clients on real sockets: who is let in, how long they may
take, how much they may send.
"""
import contextlib
import json
from types import SimpleNamespace

import gevent
import pytest
from flask import Flask, request
from gevent import socket
from gevent.select import POLLIN, poll

from gomq_py.http import clients as clients_module
from gomq_py.http import errors
from gomq_py.http.clients import LEAST_OCTETS_PER_S, Clients
from gomq_py.http.server import ManagementServer
from gomq_py.net.listener import bind_tcp
from tests.support.waiting import wait_until

SOON_S = 0.15
LONG_S = 40
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def settings():
    return SimpleNamespace(
        http_max_connections=100, http_max_connections_per_address=0, http_max_octets_before_login=20_000,
        http_request_timeout=LONG_S, http_idle_timeout=LONG_S, http_max_requests_per_connection=1000)


@pytest.fixture
def app():
    """/ answers, and keeps bodies in ``bodies``; /refused does not read what it is sent; /large answers with
    40 MB, which ``asked`` notes.
    """
    app = Flask("limits")
    app.bodies, app.asked = [], []
    errors.register(app)

    @app.route("/", methods=["GET", "POST"])
    def take():
        app.bodies.append(request.stream.read())
        return {"octets": len(app.bodies[-1])}

    @app.route("/refused", methods=["POST"])
    def refuse():
        raise errors.NotAuthorised("no")

    @app.route("/large")
    def large():
        app.asked.append("/large")
        return bytes(40_000_000)

    return app


@pytest.fixture
def server(settings, app):
    server = ManagementServer(bind_tcp("127.0.0.1", 0, 100), app, settings)
    server.start()
    yield server
    server.close()


@pytest.fixture
def connect(server):
    """A function that connects to the server, from an address of this machine."""
    made = []

    def come(host="127.0.0.1", octets=b""):
        made.append(Peer(server.address, host))
        made[-1].sendall(octets)
        return made[-1]

    yield come
    for client in made:
        client.close()


@pytest.fixture
def hurried(connect, settings):
    """A function: the client that sent these octets, and from then on has little time.

    It has been answered before, with time enough, so that its time begins with the octets however long
    this process stands still.
    """
    def come(octets):
        client = connect(octets=GET)
        assert client.answer()[0] == 200
        settings.http_request_timeout = SOON_S
        client.sendall(octets)
        return client

    return come


class Peer:
    """A client, octet by octet."""

    def __init__(self, address, host):
        self.socket = socket.create_connection(address, timeout=LONG_S, source_address=(host, 0))
        self.sendall = self.socket.sendall
        self._file = self.socket.makefile("rb")

    def answer(self):
        """(status, headers, body) of the next answer, which has a length."""
        status = self._file.readline()
        assert status, "closed without an answer"
        headers = dict(
            line.decode().strip().lower().split(": ", 1) for line in iter(self._file.readline, b"\r\n")
        )
        return int(status.split()[1]), headers, self._file.read(int(headers["content-length"]))

    def rest(self):
        """Everything until the server closes, in order or not."""
        octets = []
        with contextlib.suppress(ConnectionError):
            while piece := self._file.read1(1 << 20):
                octets.append(piece)
        return b"".join(octets)

    def close(self):
        """Without a word."""
        self._file.close()
        self.socket.close()

    def has_something(self):
        """Whether a read would not wait."""
        readable = poll()
        readable.register(self.socket, POLLIN)
        return bool(readable.poll(0))


def post(length, path=b"/", more=b""):
    return b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n" % (path, length, more)


# how many

def test_one_address_has_as_many_connections_as_its_limit(connect, settings):
    settings.http_max_connections_per_address = 2
    first, second = connect(octets=GET), connect(octets=GET)
    assert first.answer()[0] == second.answer()[0] == 200

    assert connect(octets=GET).rest() == b""
    assert connect("127.0.0.2", GET).answer()[0] == 200
    second.socket.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: connect(octets=GET.replace(b"1.1", b"1.0")).rest(), sleep=gevent.sleep)


def test_who_dawdles_longest_gives_way_when_the_port_is_full(connect, settings, monkeypatch):
    """Of the address that has the most; another one's connection, though older, stays."""
    monkeypatch.setattr(clients_module, "PATIENCE_S", SOON_S)
    settings.http_max_connections = 3
    other = connect("127.0.0.2", GET)
    assert other.answer()[0] == 200
    idle = [connect(octets=GET) for _ in range(2)]
    assert [client.answer()[0] for client in idle] == [200, 200]

    assert connect("127.0.0.3", GET).answer()[0] == 200

    assert idle[0].rest() == b""
    for client in (other, idle[1]):
        client.sendall(GET)
        assert client.answer()[0] == 200


def test_who_is_being_served_does_not_give_way(settings):
    clock = SimpleNamespace(now=100.0)
    looks = []
    clients = Clients(settings, lambda: looks.append(1), clock=lambda: clock.now)
    settings.http_max_connections = 1
    ours, theirs = socket.socketpair()
    client = clients.enter(ours, "192.0.2.1")
    clock.now += 1000

    assert not clients.has_room() and not client.late
    clients.leave(client)

    assert clients.has_room() and clients.count == 0 and looks == [1]
    clients.close()
    ours.close(), theirs.close()


# how long

def test_who_says_nothing_is_dropped(connect, settings):
    settings.http_request_timeout = SOON_S

    assert connect().rest() == b""


def test_head_that_does_not_come_in_time_is_answered_with_408(hurried):
    octets = hurried(GET[:-2]).rest()

    assert octets.startswith(b"HTTP/1.1 408 Request Timeout\r\n")


def test_head_in_drips_has_no_more_time_than_one_that_stops(hurried):
    client = hurried(b"GET / HTTP/1.1\r\n")

    def drip():
        client.sendall(b"X-A: b\r\n")
        return client.has_something()

    wait_until(drip, sleep=gevent.sleep)

    assert client.rest().startswith(b"HTTP/1.1 408")


def test_body_that_does_not_come_in_time_is_answered_with_408_and_nothing_is_done(hurried, app):
    client = hurried(post(100) + b"half")

    status, _, body = client.answer()

    assert (
        status == 408
        and json.loads(body)["reason"] == "the body did not come in time ([mgmt] request_timeout)"
    )
    assert app.bodies == [b""]  # of the request before
    assert client.rest() == b""


def test_body_in_drips_has_no_more_time_than_one_that_stops(hurried):
    client = hurried(post(1 << 20))

    def drip():
        client.sendall(b" ")
        return client.has_something()

    wait_until(drip, sleep=gevent.sleep)

    assert client.rest().startswith(b"HTTP/1.1 408")


def test_body_may_take_longer_the_longer_it_is(settings):
    clock = SimpleNamespace(now=100.0)
    clients = Clients(settings, lambda: None, clock=lambda: clock.now)
    client = clients.enter(None, "")
    clients.allow(client, 20)

    clients.took(client, 10 * LEAST_OCTETS_PER_S)

    assert client.until == 130.0


def test_client_that_does_not_read_its_answer_is_dropped(hurried, server, app, monkeypatch):
    monkeypatch.setattr(clients_module, "LEAST_OCTETS_PER_S", 1 << 30)
    client = hurried(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")

    wait_until(lambda: app.asked and server.count == 0, sleep=gevent.sleep)

    assert 0 < len(client.rest()) < 40_000_000


def test_connection_is_kept_between_requests_for_so_long(connect, settings):
    client = connect(octets=GET)
    assert client.answer()[0] == 200
    settings.http_idle_timeout = SOON_S
    client.sendall(GET)
    assert client.answer()[0] == 200

    assert client.rest() == b""


# how much

def test_head_over_the_limit_is_answered_with_431(connect, settings):
    client = connect(octets=b"GET / HTTP/1.1\r\n" + b"X-A: %s\r\n" % bytes(1000).replace(b"\0", b"a") * 30)

    assert client.rest().startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")


def test_request_line_over_the_limit_is_answered_with_414(connect):
    assert connect(octets=b"GET /" + b"a" * 10_000 + GET[5:]).rest().startswith(b"HTTP/1.1 414")


def test_too_many_headers_are_answered_with_431_and_no_traceback(connect, capfd):
    client = connect(octets=b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 200 + b"\r\n")

    assert client.rest().startswith(b"HTTP/1.1 431")
    assert "Traceback" not in capfd.readouterr().err


def test_body_of_a_refused_request_is_read_to_a_limit(connect):
    client = connect(octets=post(10_000, b"/refused") + bytes(10_000) + GET)
    assert [client.answer()[0], client.answer()[0]] == [401, 200]

    client.sendall(post(10_000_000, b"/refused") + bytes(30_000))

    assert client.rest().startswith(b"HTTP/1.1 401")


def test_body_that_was_not_asked_for_is_not_waited_for(connect):
    client = connect(octets=post(10_000_000, b"/refused", b"Expect: 100-continue\r\n"))

    assert client.rest().startswith(b"HTTP/1.1 401")


def test_body_is_asked_for_when_it_is_wanted(connect, app):
    client = connect(octets=post(5, b"/", b"Expect: 100-continue\r\n"))
    assert client.socket.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"

    client.sendall(b"12345")

    assert client.answer()[0] == 200 and app.bodies == [b"12345"]


def test_connection_ends_after_so_many_requests(connect, settings):
    settings.http_max_requests_per_connection = 2
    client = connect(octets=GET * 3)

    first, second = client.answer(), client.answer()

    assert "connection" not in first[1] and second[1]["connection"] == "close"
    assert client.rest() == b""


# what is not whole

def test_head_that_was_cut_is_no_request(connect, app):
    """As when a client dies: what it asked for may have been another thing than the half of it."""
    client = connect(octets=b"GET / HTTP/1.1\r\nHost: x\r\nX-Condi")
    client.socket.shutdown(socket.SHUT_WR)

    assert client.rest() == b"" and app.bodies == []


def test_body_that_was_cut_is_no_body(connect, app, caplog):
    client = connect(octets=post(100) + b"half")
    client.socket.shutdown(socket.SHUT_WR)

    assert client.answer()[0] == 400
    assert app.bodies == [] and "Traceback" not in caplog.text


def test_body_in_malformed_chunks_is_a_mistake_of_the_clients(connect, app, caplog):
    client = connect(
        octets=b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\r\n0\r\n\r\n"
    )

    status, _, body = client.answer()

    assert (status, json.loads(body)["reason"]) == (400, "the body is not in well-formed chunks")
    assert client.rest() == b"" and app.bodies == [] and "Traceback" not in caplog.text


# whose turn

def test_clients_that_ask_without_end_leave_the_loop_to_others(connect, app):
    """Each of twenty requests that lie ready is begun after a poll of the loop,
    in which whoever came meanwhile is served.
    """
    served, polls = [], []
    app.after_request(lambda response: served.append(len(polls)) or response)
    watcher = gevent.get_hub().loop.prepare()
    watcher.start(lambda: polls.append(1))
    clients = [connect(octets=GET * 10) for _ in range(2)]

    for client in clients:
        assert [client.answer()[0] for _ in range(10)] == [200] * 10
    watcher.stop()
    watcher.close()

    assert len(set(served)) == 20, served


# what a proxy may read otherwise

HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "octets",
    [
        POST
        + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(HIDDEN))
        + HIDDEN,
        POST + b"Content-Length: +5\r\n\r\n{}   " + HIDDEN,
        POST + b"Content-Length: 1_0\r\n\r\n{}        " + HIDDEN,
        POST + b"Transfer-Encoding: xchunked\r\nContent-Length: 2\r\n\r\n{}" + HIDDEN,
        POST + b"Transfer-Encoding: xchunked\r\n\r\n" + HIDDEN,
        POST + b"Transfer-Encoding : chunked\r\nContent-Length: 2\r\n\r\n{}" + HIDDEN,
        POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n" + HIDDEN,
        POST + b"garbage\r\nContent-Length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN,
        POST + b"X: y\r\n Content-Length: 2\r\n\r\n{}" + HIDDEN,
        POST + b"Content-Length: 2\n\r\n{}" + HIDDEN,
        POST + b"X: y\rContent-Length: 2\r\n\r\n{}" + HIDDEN,
        POST + b"X: \0\r\nContent-Length: 2\r\n\r\n{}" + HIDDEN,
        b"POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
        b"GET /\r\n\r\n" + HIDDEN,
        b"GET / HTTP/1.1\n\n" + HIDDEN,
        b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    ],
)
def test_after_a_head_that_servers_read_differently_the_connection_ends_with_400(connect, octets):
    rest = connect(octets=octets).rest()

    assert rest.startswith(b"HTTP/1.1 400 ") and rest.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "chunk",
    [
        b"2;a\nb\r\n{}\r\n0\r\n\r\n",
        b"2\n{}\r\n0\r\n\r\n",
        b"+2\r\n{}\r\n0\r\n\r\n",
        b"\r\n{}\r\n0\r\n\r\n",
        b"2\r\n{}\r\n0\r\nX : y\r\n\r\n",
    ],
)
@pytest.mark.parametrize("path", [b"/", b"/refused"])
def test_after_malformed_chunks_the_connection_ends_whether_or_not_the_body_was_wanted(
    connect, app, caplog, chunk, path
):
    rest = connect(
        octets=b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%s%s"
        % (path, chunk, HIDDEN)
    ).rest()

    assert rest.count(b"HTTP/1.1 ") == 1 and app.bodies == [] and "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (b"Connection: Upgrade\r\nUpgrade: websocket\r\n", 400),
        (b"Connection: Upgrade\r\nUpgrade: h2c\r\n", 200),
    ],
)
def test_request_to_upgrade_ends_where_its_body_does(connect, more, status):
    client = connect(octets=post(2, more=more) + b"{}" + GET)

    assert [client.answer()[0], client.answer()[0]] == [status, 200]
