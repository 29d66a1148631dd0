"""What gomq-py-ctl makes of answers that are not its own broker's."""
import contextlib
import json
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import trustme

from gomq_py.ctl.api import API, APIError
from tests.support import certificates
from tests.support.waiting import in_time


class Foreign(BaseHTTPRequestHandler):
    """A RabbitMQ: it has an overview, refuses policies and knows nothing else."""

    def do_GET(self):
        self._answer(*(
            (200, {"product_name": "RabbitMQ"}) if self.path == "/api/overview"
            else (404, {"error": "Object Not Found"})
        ))

    def do_POST(self):
        self._answer(405, None)

    def do_PUT(self):
        text = (
            'Validation failed\n\npattern should be regular expression but is invalid: '
            '{"missing",\n          1}\n'
        )
        self._answer(400, {
            "error": "bad_request",
            "reason": "vhost_or_user_not_found" if "permissions" in self.path else text,
        })

    def _answer(self, status, value):
        octets = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(octets)))
        self.end_headers()
        self.wfile.write(octets)

    def log_message(self, *_):
        """Nothing: not in tests."""


@pytest.fixture(scope="module")
def foreign():
    """The API of a RabbitMQ."""
    server = HTTPServer(("127.0.0.1", 0), Foreign)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield API(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("ask, text", [
    (lambda api: api.get("queues", "/", "jobs", "messages"), "is no gomq-py, and cannot do this"),
    (lambda api: api.post("queues", "/", "jobs", "move", body={}), "is no gomq-py, and cannot do this"),
    (lambda api: api.delete("queues", "/", "jobs", "contents"), "501"),
    (lambda api: api.get("queues", "/", "jobs"), "404: no queue 'jobs' in virtual host '/'"),
    (lambda api: api.get("parameters", "shovel", "/", "s"), "404: no shovel 's' in virtual host '/'"),
    (lambda api: api.put("permissions", "v", "joe", body={}), "400: no user 'joe' or no virtual host 'v'"),
    (lambda api: api.put("policies", "v", "p", body={}),
     '400: Validation failed: pattern should be regular expression but is invalid: {"missing",: 1}'),
])
def test_refusals_of_another_broker_are_one_line(foreign, ask, text):
    with pytest.raises(APIError) as refused:
        ask(foreign)

    assert text in str(refused.value) and "\n" not in str(refused.value)


def test_the_port_of_amqp_is_told_from_that_of_the_api():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        def answer():
            with contextlib.suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"AMQP\0\0\x09\x01")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(APIError, match="speaks AMQP") as refused:
            API(f"http://127.0.0.1:{listening.getsockname()[1]}").get("overview")
        thread.join(in_time(30))

    assert refused.value.exit_code == 2


@pytest.fixture
def asking(tmp_path):
    """The port of an HTTPS server that asks its clients for a certificate, and the files of one for them."""
    files = certificates.make(tmp_path / "server", authority=(authority := trustme.CA()))
    client = certificates.make_client(tmp_path / "client", authority, "ops@example.com")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.authority)
    context.load_cert_chain(files.certificate, files.key)
    context.verify_mode = ssl.CERT_REQUIRED
    server = HTTPServer(("127.0.0.1", 0), Foreign)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}", client
    server.shutdown()
    thread.join()
    server.server_close()


def test_client_shows_its_certificate(asking):
    uri, files = asking

    known = API(uri, authorities=files.authority, certificate=(files.certificate, files.key))
    unknown = API(uri, authorities=files.authority)

    assert known.get("overview") == {"product_name": "RabbitMQ"}
    with pytest.raises(APIError):
        unknown.get("overview")


def test_certificate_that_cannot_be_read_is_named(asking, tmp_path):
    uri, files = asking
    for certificate, key in ((tmp_path / "none.pem", None), (files.authority, None)):
        with pytest.raises(APIError, match=f"cannot use the certificate {certificate}: "):
            API(uri, authorities=files.authority, certificate=(certificate, key)).get("overview")
