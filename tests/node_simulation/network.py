"""Network between machines and etcd, of which each way may be cut by itself."""
import errno
import os
import socket as system_socket
from types import SimpleNamespace

import gevent

from tests.simulation.network import ADDRESS, Listening, Network, WaitingSocket

ETCD = "etcd"


class Ways(Network):
    """``places``: {port: name of the machine whose process listens there}."""

    def __init__(self, world):
        super().__init__(world)
        self.places = {}
        self._cut_until_s = {}  # (from, to): names

    def cut_way(self, source, target, for_s):
        """Nothing comes from one to the other for so long; it comes later."""
        self.world.say("network", f"nothing comes from {source} to {target} for {for_s:.2f} s")
        until_s = max(self._cut_until_s.get((source, target), 0.0), self.world.now_s + for_s)
        self._cut_until_s[source, target] = until_s

    def heal(self):
        """Everything comes again."""
        self._cut_until_s.clear()

    def lacks(self, source, target):
        """Whether nothing comes from one to the other now."""
        return self.world.now_s < self._cut_until_s.get((source, target), 0.0)

    def reset_some(self, share):
        """Connections between machines end."""
        for end in self._ends:
            if end.crosses and not end.is_closed and self.random.random() < share:
                end.reset()

    def dial(self, process, port):
        ours, theirs = self._pair(port)
        here, there = process.machine.name, self.places[port]
        ours.crosses, theirs.crosses = (here, there), (there, here)
        ours.is_asking = True
        ours.belong_to(process)
        self.world.after(self.delay_s(ours.crosses), self._arrive, ours)
        return ours

    def _arrive(self, end):
        listening = self.listening.get(end.peer_address[1])
        if listening is not None and not end.is_closed:
            listening.arrive(end.peer)
        self.world.after(self.delay_s(end.peer.crosses), self._is_answered, end, listening is None)

    @staticmethod
    def _is_answered(end, is_refused):
        if not end.is_closed:
            end.is_asking, end.is_refused = False, is_refused
            end.hear()

    def delay_s(self, crosses=False):
        delay_s = super().delay_s()
        return delay_s + max(0.0, self._cut_until_s.get(crosses, 0.0) - self.world.now_s)


class Lasting(WaitingSocket):
    """A listening socket that several descriptors of a process share, until all are closed."""

    def dup(self):
        """One more descriptor."""
        return Lasting(fileno=Shared(self._sock).fileno())


class Shared(Listening):
    """One more descriptor of a Listening, which its process keeps to its end."""

    def __init__(self, listening):
        self.process, self.name, self.is_closed = listening.process, listening.name, False
        self._listening, self._address = listening, listening._address
        self._accept, self.is_readable = listening._accept, listening.is_readable
        self._descriptor = self.process.descriptor_of(self)

    def close(self):
        self.is_closed = True


class Dialling(WaitingSocket):
    """In place of gevent's socket, where a program connects to another machine."""

    def __init__(self, family=-1, type=-1, proto=-1, fileno=None):
        self._sock = None
        self.timeout = None
        if fileno is not None:
            super().__init__(fileno=fileno)

    def connect(self, address):
        """May switch. Raises OSError."""
        process, timeout = gevent.get_hub().process, self.timeout
        end = process.machine.network.dial(process, address[1])
        super().__init__(fileno=end.descriptor)
        self.timeout = timeout
        while end.is_asking:
            self._wait(self._write_event)
        if end.is_refused:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    def close(self):
        if self._sock is not None:
            super().close()


def dialled(_family, _kind, _protocol, address, _options):
    """In place of net.connecting._connected. May switch. Raises OSError."""
    return create_connection(address)


def create_connection(address):
    """In place of gevent's. May switch. Raises OSError."""
    made = Dialling()
    try:
        made.connect(address)
    except BaseException:
        made.close()
        raise
    return made


def _addresses(host, port, *_, **__):
    return [(system_socket.AF_INET, system_socket.SOCK_STREAM, 6, "", (host, port))]


# In place of gevent.socket in modules that connect to other machines.
SOCKETS = SimpleNamespace(
    socket=Dialling, getaddrinfo=_addresses, create_connection=create_connection,
    gethostname=lambda: gevent.get_hub().process.machine.name, ADDRESS=ADDRESS,
    **{name: getattr(system_socket, name) for name in (
        "SHUT_RD", "SHUT_WR", "SHUT_RDWR", "SOCK_STREAM", "IPPROTO_TCP", "TCP_NODELAY", "SOL_SOCKET",
        "SO_KEEPALIVE")})
