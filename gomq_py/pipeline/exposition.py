"""Shows Prometheus how many rows each job has read: over HTTP, or in a file that node_exporter reads."""
import contextlib
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from gomq_py.spark.errors import OptionError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LOOPBACK = "127.0.0.1"
# Longest time for one client; the others wait.
CLIENT_S = 5
# Interval of the check whether to end.
LOOK_EVERY_S = 0.1


def text_of(rows, lags, now_s):
    """Return the numbers of read and unread rows in Prometheus' text format.

    ``rows``: {job: rows read}. ``lags``: {job: unread messages, or None}. ``now_s``: the Unix time.
    """
    lines = ["# TYPE gomq_pipeline_rows_total counter"]
    lines += [f'gomq_pipeline_rows_total{{job="{_escaped(name)}"}} {rows[name]}' for name in sorted(rows)]
    lines += ["# TYPE gomq_pipeline_lag_rows gauge"]
    lines += [f'gomq_pipeline_lag_rows{{job="{_escaped(name)}"}} {lags[name]}' for name in sorted(rows)
              if lags.get(name) is not None]
    lines += ["# TYPE gomq_pipeline_updated_seconds gauge", f"gomq_pipeline_updated_seconds {now_s:.0f}"]
    return "\n".join(lines) + "\n"


def write(path, text):
    """Atomically replace the content of the file at ``path``."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def address_of(given):
    """Parse "HOST:PORT" or "PORT" into (host, port); the default host is loopback. Raises OptionError."""
    host, _, port = given.strip().rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
        raise OptionError(f"{given!r} is no address such as 9190 or 0.0.0.0:9190")
    return host.strip("[]") or LOOPBACK, int(port)


class Endpoint:
    """Serves the attribute ``text`` at http://ADDRESS/metrics, in a thread, until ``close``.

    ``given``: the address, see ``address_of``. The constructor raises OptionError if it cannot listen there.
    """

    def __init__(self, given):
        host, port = address_of(given)
        try:
            self._server = (_Server6 if ":" in host else _Server)((host, port), _Handler)
        except OSError as error:
            raise OptionError(
                f"metrics cannot be served at {host}:{port}: {error.strerror or error}") from None
        self.text = text_of({}, {}, 0)
        self._server.endpoint = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(LOOK_EVERY_S,), daemon=True)
        self._thread.start()

    @property
    def port(self):
        """The port on which the server listens; for port 0, the port that the system has chosen."""
        return self._server.server_address[1]

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(HTTPServer):
    endpoint: Endpoint

    def server_bind(self):
        # Skips HTTPServer's server_bind(), which asks the name service for this machine's name.
        super(HTTPServer, self).server_bind()
        self.server_name, self.server_port = "gomq-py-pipeline", self.server_address[1]

    def finish_request(self, request, client_address):
        """Serve a client. A client that is still connected after CLIENT_S seconds is disconnected."""
        guard = threading.Timer(CLIENT_S, _cut_off, (request,))
        guard.daemon = True
        guard.start()
        try:
            super().finish_request(request, client_address)
        finally:
            guard.cancel()

    def handle_error(self, request, client_address):
        """Do nothing, because a client that disconnects is not an error."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self):
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "There is /metrics alone")
            return
        octets = self.server.endpoint.text.encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(octets)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(octets)

    def log_message(self, format, *arguments):
        """Do nothing: a log of requests would disturb the progress shown on the terminal."""


def _cut_off(request):
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def _escaped(name):
    return name.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
