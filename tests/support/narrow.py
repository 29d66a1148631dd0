"""A way to a broker that a test makes slow, stops or cuts: a relay on loopback between a client and a
port.
"""

import socket
import threading


class NarrowWay:
    """``amqp_url`` leads through here. ``rest_s`` passes between two pieces of ``piece`` octets each way."""

    def __init__(self, port, piece=65536, rest_s=0.0):
        self._port = port
        self._piece = piece
        self._rest_s = rest_s
        self._open = threading.Event()  # not set: nothing passes
        self._open.set()
        self._ended = threading.Event()
        self._sockets: list = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._open.set()
        self.cut()
        self._listener.close()

    @property
    def amqp_url(self):
        """Of the default vhost for guest."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def stop(self):
        """Let nothing through, and tell nobody."""
        self._open.clear()

    def go_on(self):
        """After ``stop``."""
        self._open.set()

    def cut(self):
        """End every connection that there is."""
        while self._sockets:
            each = self._sockets.pop()
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    def _accept(self):
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                continue  # the broker is away, or the listener closed
            self._sockets += [client, broker]
            for pair in ((client, broker), (broker, client)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source, target):
        try:
            while octets := source.recv(self._piece):
                self._open.wait()
                self._ended.wait(self._rest_s)
                target.sendall(octets)
            target.shutdown(socket.SHUT_WR)
        except (OSError, ValueError):
            pass  # cut
