"""``gomq-py-ctl`` against whatever may answer in a broker's place: one line and an exit code, and nothing
that drives the operator's terminal.
"""
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.ctl.running import in_process

COMMANDS = (
    ("list_queues",), ("status",), ("cluster_status",), ("doctor",), ("list_users",), ("add_user", "a", "b"),
    ("change_password", "a", "b"),
    ("set_user_tags", "a", "b"), ("close_all_connections",), ("export_definitions", "-"), ("peek", "q"),
    ("purge_queue", "q"), ("publish", "q", "x"), ("get", "q"), ("authenticate_user", "a", "b"),
    ("list_user_limits",), ("clear_vhost_limits",), ("restart_vhost",), ("trace_on",), ("ping",),
    ("check_alarms",), ("check_port_connectivity",), ("listeners",), ("log_tail",), ("report",),
    ("watch", "--count", "1"), ("list_queues", "nmae"),
)


def answer(body, status=b"200 OK"):
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


ANSWERS = {
    "deep": answer(b'{"a":' * 100_000), "list": answer(b"[]"), "of numbers": answer(b"[1, 2]"),
    "number": answer(b"7"), "null": answer(b"null"),
    "text": answer(b'"x"'), "object": answer(b"{}"), "of objects": answer(b"[{}]"),
    "digits": answer(b"[" + b"9" * 5000 + b"]"),
    "other types": answer(b'{"object_totals": [], "queue_totals": 3, "node": null}'),
    "no text": answer(b'[{"name": "\\ud800"}]'),
    "terminal": answer(b'{"reason": "\\u001b]0;done\\u0007"}', b"400 Bad Request"),
    "reason": answer(b'{"reason": [1]}', b"404 Not Found"),
    "binary": b"\0\xff\x01" * 100, "status": b"HTTP/1.1 99999999 x\r\n\r\n",
    "elsewhere": answer(b"", b"302 Found"),
    "less": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[]",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n",
}


@pytest.fixture(scope="module")
def somebody():
    """A server that answers every request with what it was told to; ``somebody.uri``."""

    class Somebody:
        said = b""

    with socket.create_server(("127.0.0.1", 0)) as listening:
        Somebody.uri = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def serve():
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return  # the test is over
                with client:
                    received = b""
                    while b"\r\n\r\n" not in received and (more := client.recv(65536)):
                        received += more
                    client.sendall(Somebody.said)

        threading.Thread(target=serve, daemon=True).start()
        yield Somebody
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("form", ["table", "json"])
def test_an_answer_of_any_shape_is_no_traceback(somebody, kind, form):
    somebody.said = ANSWERS[kind]

    for command in COMMANDS:
        done = in_process(somebody.uri, "-f", form, *command)

        assert done.exception is None or isinstance(done.exception, SystemExit), (command, done.exception)
        assert done.exit_code in (0, 1, 2)
        assert "\x1b" not in done.output and "\0" not in done.output


class Elsewhere(BaseHTTPRequestHandler):
    """A broker that knows no followers."""

    ANSWERS = {
        "/api/nodes": b'[{"name": "rabbit@here", "running": true}]', "/api/cluster-name": b'{"name": "here"}',
    }

    def do_GET(self):
        body = self.ANSWERS.get(self.path, b'{"error": "Object Not Found", "reason": "Not Found"}')
        self.send_response(200 if self.path in self.ANSWERS else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_cluster_of_a_broker_that_knows_no_followers_is_shown():
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever).start()
        shown = in_process(f"http://127.0.0.1:{server.server_port}", "cluster_status")
        server.shutdown()

    assert shown.exit_code == 0 and "rabbit@here" in shown.stdout
