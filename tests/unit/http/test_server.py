"""Raw request paths to WSGI's PATH_INFO, and the ends of connections."""
import gevent
import pytest
from gevent import pywsgi, socket
from gevent.event import Event

from gomq_py.config.settings import Settings
from gomq_py.http.app import NameConverter
from gomq_py.http.server import ManagementServer, path_info
from tests.support.waiting import in_time


@pytest.mark.parametrize("raw, path", [
    ("/api/queues/%2F/q?x=%2F", "/api/queues/%2F/q"),
    ("/api/queues/%2f/q", "/api/queues/%2F/q"),
    ("/api/queues/a%20b", "/api/queues/a b"),
    ("/api/queues/100%25", "/api/queues/100%25"),
])
def test_encoded_slashes_and_percent_signs_stay_apart_from_real_ones(raw, path):
    assert path_info(raw) == path


@pytest.mark.parametrize("name", ["/", "%2F", "100%", "a/b%c"])
def test_a_name_comes_out_of_a_path_as_it_went_in(name):
    from urllib.parse import quote

    segment = path_info("/" + quote(name, safe=""))[1:]

    assert NameConverter.to_python(None, segment) == name


@pytest.fixture
def served():
    """``served(app)``: (server, a client's socket)."""
    opened = []

    def serve(app):
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = ManagementServer(listening, app, Settings())
        server.start()
        client = socket.create_connection(server.address, timeout=in_time(10))
        opened[:] = client, server
        return server, client

    yield serve
    for one in opened:
        one.close()


@pytest.mark.parametrize("octets", [
    b"GET / HTTP/1", b"GET / HTTP/1.", b"GET / HTT", b"GET / HTTP/1.1\r\nHost: a",
])
def test_request_that_is_cut_ends_without_a_traceback(served, capsys, octets):
    """On d1dc40df all but the last put a traceback of the library on standard error."""
    _, client = served(lambda environ, start_response: pytest.fail("a request was made of it"))

    client.sendall(octets)
    client.shutdown(socket.SHUT_WR)

    assert client.recv(100) == b""
    assert capsys.readouterr().err == ""


def test_server_that_starts_asks_no_name_server(served, monkeypatch):
    monkeypatch.setattr(pywsgi.socket, "getfqdn", lambda name: pytest.fail(f"asks for {name}"))

    served(lambda environ, start_response: [])


def test_server_that_closes_does_not_wait_for_the_rest_of_a_body(served):
    """On d1dc40df the client was still there after that, until it was late."""
    is_reading = Event()

    def read(environ, start_response):
        is_reading.set()
        environ["wsgi.input"].read()

    server, client = served(read)
    client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n1")
    assert is_reading.wait(in_time(10))

    server.close()
    gevent.idle()

    assert server.count == 0
