"""A web server that a test tells what to answer, in threads, down to the octet: what webhooks post to."""
import socket
import struct
import threading
from typing import NamedTuple

from tests.support.waiting import TIMEOUT_S, wait_until


class Request(NamedTuple):
    """``connection``: the number of the connection that it came over."""

    path: str
    headers: dict[str, str]
    body: bytes
    connection: int


def answer(status=200, *fields, body=b""):
    """The octets of an answer."""
    head = "\r\n".join([f"HTTP/1.1 {status} Said", *fields, f"Content-Length: {len(body)}"])
    return f"{head}\r\n\r\n".encode() + body


OK = answer()


class HookServer:
    """``answer(request)`` gives octets; None: the connection is reset; a function: it is called with the
    socket, and the connection ends. ``requests`` has all that came. The file of a certificate makes it TLS.
    """

    def __init__(self, answer=lambda request: OK, host="127.0.0.1", context=None):
        self.answer = answer
        self.requests = []
        self.ended = threading.Event()  # what answers for ever waits for this
        self._context = context
        self._listening = socket.create_server((host, 0))
        self.port = self._listening.getsockname()[1]
        self._connections = 0
        self._sockets = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self):
        self._threads[0].start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for one in (self._listening, *self._sockets):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def url(self, path="/in", host="127.0.0.1"):
        return f"http{'s' if self._context else ''}://{host}:{self.port}{path}"

    def hang_up(self):
        """End the connections there are."""
        for one in self._sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    @property
    def bodies(self):
        """Of all requests, in order."""
        return [request.body for request in self.requests]

    @property
    def arrived(self):
        """The same as numbers, repetitions left out."""
        return list(dict.fromkeys(int(body.partition(b" ")[0]) for body in self.bodies))

    def wait_for(self, count):
        """Until there were so many requests."""
        wait_until(lambda: len(self.requests) >= count, what=lambda: f"{count} requests: {self.bodies[:20]}")

    def _accept(self):
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            self._connections += 1
            self._sockets.append(accepted)
            thread = threading.Thread(target=self._serve, args=(accepted, self._connections), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, accepted, number):
        try:
            if self._context is not None:
                accepted = self._context.wrap_socket(accepted, server_side=True)
                self._sockets.append(accepted)  # the one before has given its descriptor away
            with accepted:
                while (request := _read(accepted, number)) is not None:
                    self.requests.append(request)
                    said = self.answer(request)
                    if said is None:
                        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        return
                    if callable(said):
                        said(accepted)
                        return
                    accepted.sendall(said)
        except OSError:
            pass


def _read(accepted, number):
    """The next Request; None at the end."""
    octets = b""
    while b"\r\n\r\n" not in octets:
        more = accepted.recv(65536)
        if not more:
            return None
        octets += more
    head, _, body = octets.partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in fields)}
    while len(body) < int(headers["content-length"]):
        more = accepted.recv(65536)
        if not more:
            return None
        body += more
    return Request(line.split(" ")[1], headers, body, number)
