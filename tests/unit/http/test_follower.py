"""A follower that passes clients on: which first requests it answers itself."""
import gevent
import pytest
from gevent import socket

from gomq_py.http.follower import LINE_OCTETS, is_own, request_line
from tests.support.waiting import in_time


@pytest.mark.parametrize("line", [
    b"GET /api/cluster HTTP/1.1\r", b"GET /api/cluster/ HTTP/1.1", b"HEAD /metrics?family=x HTTP/1.1",
    b"GET /api/health/checks/alarms HTTP/1.0", b"GET /metrics", b"GET /metrics\r",
])
def test_follower_answers_for_itself(line):
    assert is_own(line)


@pytest.mark.parametrize("line", [
    b"GET / HTTP/1.1", b"GET /api/clusters HTTP/1.1", b"GET /api/cluster-name HTTP/1.1",
    b"GET /api/healthy HTTP/1.1", b"GET /api/overview?path=/metrics HTTP/1.1", b"", b"GET", b"GET ",
    b"/api/cluster", b"\x16\x03\x01",
])
def test_leader_answers_everything_else(line):
    assert not is_own(line)


@pytest.fixture
def ends():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
    server.settimeout(in_time(20))
    yield client, server
    client.close()
    server.close()


def test_line_is_read_in_pieces_and_stays_on_the_socket(ends):
    client, server = ends
    reading = gevent.spawn(request_line, server)
    for octet in b"\r\nGET / HTTP/1.1\r\nHost: x":
        client.sendall(bytes([octet]))
        gevent.sleep(0)

    assert reading.get() == b"GET / HTTP/1.1\r"
    assert server.recv(2) == b"\r\n"
    assert not reading.exception


@pytest.mark.parametrize("sent, line", [
    (b"GET /metr", b"GET /metr"), (b"", b""), (b"x" * 2 * LINE_OCTETS, b"x" * LINE_OCTETS),
])
def test_line_without_an_end_is_what_came(ends, sent, line):
    client, server = ends
    client.sendall(sent)
    client.shutdown(socket.SHUT_WR)

    assert request_line(server) == line
