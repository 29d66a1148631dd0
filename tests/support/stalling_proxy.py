"""A proxy that stops reading: what a peer looks like whose machine, or the way to it, is gone without a word.
"""
import socket
import threading

ROOM = 16 * 1024


class StallingProxy:
    """Passes on connections to ``port`` of this machine, until ``hold``; ``port`` is its own. While it holds
    it accepts no connection, reads nothing and closes nothing.
    """

    def __init__(self, port):
        self._target = port
        self._open = threading.Event()
        self._open.set()
        self._sockets = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._closed = False
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._closed = True
        self._open.set()
        # a thread that waits in accept() is woken by shutdown alone
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def hold(self):
        """Pass on nothing from now on."""
        self._open.clear()

    def release(self):
        """Pass on what was held, and the rest."""
        self._open.set()

    def cut(self):
        """End all connections."""
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    def _serve(self):
        while not self._closed:
            try:
                near, _ = self._listening.accept()
                self._open.wait()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                continue
            for each in (near, far):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
                each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
            self._sockets += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source, target):
        try:
            while octets := source.recv(ROOM):
                self._open.wait()
                target.sendall(octets)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass
