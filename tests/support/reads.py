"""What a connection is made with where a test hands it its reads, as net.stream would: no socket of the
system, and no breaks.
"""
from gomq_py.hub.turns import SlowWalk


class TakingSocket:
    """Takes everything, or nothing while it is ``stuck``; ``taken`` is what the peer was sent.
    ``descriptor`` is one that the loop may watch.
    """

    def __init__(self, descriptor, port):
        self._sock = self
        self._descriptor = descriptor
        self._port = port
        self.stuck = False
        self.taken = bytearray()

    def fileno(self):
        return self._descriptor

    def getsockname(self):
        return ("127.0.0.1", self._port)

    def send(self, view):
        if self.stuck:
            raise BlockingIOError
        self.taken += view
        return len(view)

    def recv_into(self, _view):
        raise BlockingIOError

    def shutdown(self, _how):
        pass


class UnhurriedWalk(SlowWalk):
    """No breaks: what an input does must not depend on the time it takes."""

    def is_over(self):
        return False

    def has_time(self):
        return True
