"""The network between the nodes of a cluster: relays in the test's process, which need no special rights.

A relay stands in front of a node's cluster port. It knows who connects by the node id in the first frame, and
passes the octets over two Ways, one from the one node to the other and one back. A Way can be cut (octets and
ends of connections wait until it is healed, as in a network that loses packets) or slow.
"""
import contextlib
import socket
import struct
import threading
import time

from gomq_py.cluster.wire import frames, messages
from tests.support.waiting import in_time

_READ_OCTETS = 16 * 1024
_CONNECT_S = in_time(5)
# How often a connection that waits for a healed Way is looked at: it may be closed.
_LOOK_S = 0.1
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST


class Way:
    """One direction between two parties."""

    def __init__(self, name):
        self.name = name
        self.octets = 0  # that it has passed
        self._changed = threading.Condition()
        self._is_cut = self._is_over = False
        self._rate = 0

    def cut(self):
        """Pass nothing until ``heal``."""
        self._set(True, 0)

    def slow(self, octets_per_s):
        """Pass so much in a second, until ``heal``."""
        self._set(False, octets_per_s)

    def heal(self):
        """Pass what has waited, and the rest."""
        self._set(False, 0)

    def end(self):
        """Pass nothing any more; nobody waits."""
        self._is_over = True
        self._set(False, 0)

    def _set(self, is_cut, rate):
        with self._changed:
            self._is_cut, self._rate = is_cut, rate
            self._changed.notify_all()

    @property
    def is_cut(self):
        """Whether everything waits."""
        return self._is_cut

    def admit(self, octets=0):
        """Wait until so many may pass. Raises OSError at the end of all."""
        with self._changed:
            until = time.monotonic() + octets / self._rate if self._rate else 0.0
            while self._is_cut or self._rate and time.monotonic() < until:
                self._changed.wait(_LOOK_S)
            if self._is_over:
                raise ConnectionAbortedError
        self.octets += octets

    def admits(self):
        """Whether something may pass within a moment."""
        with self._changed:
            if self._is_cut:
                self._changed.wait(_LOOK_S)
            return not self._is_cut


class Relay:
    """Passes connections on to ``port`` of this machine. ``ways_of(near)`` names the Ways of an accepted
    socket, and what was read of it already: (there, back, octets). ``own_port``: a reserved one, or any.
    """

    def __init__(self, port, ways_of, own_port=0):
        self._target, self._ways_of = port, ways_of
        self._lock = threading.Lock()
        self._connections = set()
        self._listening = None
        self.port = own_port
        self.open()

    def open(self):
        """Accept connections."""
        if self._listening is None:
            self._listening = socket.create_server(("127.0.0.1", self.port))
            self.port = self._listening.getsockname()[1]
            threading.Thread(target=self._serve, args=(self._listening,), daemon=True).start()

    def close(self):
        """Refuse connections, as the machine of a process that is gone does. Those that are there stay."""
        listening, self._listening = self._listening, None
        if listening is not None:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # wakes accept()
            listening.close()

    def end(self):
        """Close everything."""
        self.close()
        self.reset()

    def reset(self, *ways):
        """End the connections over any of these Ways, or all."""
        with self._lock:
            chosen = [one for one in self._connections if not ways or set(one.ways) & set(ways)]
        for connection in chosen:
            connection.shut()

    def _serve(self, listening):
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(near,), daemon=True).start()

    def _relay(self, near):
        connection = _Connection(near)
        with self._lock:
            self._connections.add(connection)
        try:
            connection.run(self._target, self._ways_of)
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()


class _Connection:
    """One client of a relay."""

    def __init__(self, near):
        self.ways = ()
        self._near, self._far = near, None

    def run(self, port, ways_of):
        try:
            there, back, octets = ways_of(self._near)
            self.ways = (there, back)
            while not there.admits():
                if self._is_closed():
                    return
            self._far = socket.create_connection(("127.0.0.1", port), _CONNECT_S)
        except OSError:
            self._near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            return
        self._far.settimeout(None)
        for each in (self._near, self._far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        thread = threading.Thread(target=self._pump, args=(back, self._far, self._near, b""), daemon=True)
        thread.start()
        self._pump(there, self._near, self._far, octets)
        thread.join()

    def _is_closed(self):
        try:
            return not self._near.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False

    def _pump(self, way, source, target, octets):
        try:
            while octets or (octets := source.recv(_READ_OCTETS)):
                way.admit(len(octets))
                target.sendall(octets)
                octets = b""
            way.admit()
            target.shutdown(socket.SHUT_WR)
        except OSError:
            self.shut()

    def shut(self):
        """Have both sides notice the end."""
        for each in (self._near, self._far):
            if each is not None:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self):
        for each in (self._near, self._far):
            if each is not None:
                each.close()


class Network:
    """The Ways between the parties of a cluster, by name."""

    def __init__(self, name_of):
        """``name_of(node id)``: the name of the node with this id (16 octets), or None."""
        self._name_of = name_of
        self._ways = {}
        self._relays = []
        self.strangers = []  # first octets of connections from nobody

    def way(self, source, target):
        """The Way from one party to another."""
        return self._ways.setdefault((source, target), Way(f"{source} -> {target}"))

    def between(self, one, other):
        """Both Ways."""
        return self.way(one, other), self.way(other, one)

    def to_node(self, name, port, own_port):
        """A Relay in front of the cluster port of a node."""
        return self._made(Relay(port, lambda near: self._ways_of(near, name), own_port))

    def to_service(self, source, name, port):
        """A Relay of one node's own in front of a service."""
        return self._made(Relay(port, lambda _: (*self.between(source, name), b"")))

    def heal(self):
        """All Ways are open."""
        for way in list(self._ways.values()):
            way.heal()

    def reset(self, *ways):
        """End the connections over any of these Ways."""
        for relay in self._relays:
            relay.reset(*ways)

    def end(self):
        """Close everything."""
        for relay in self._relays:
            relay.end()
        for way in list(self._ways.values()):
            way.end()

    def _made(self, relay):
        self._relays.append(relay)
        return relay

    def _ways_of(self, near, target):
        octets = first_frame(near)
        source = self._name_of(caller_in(octets))
        if source is None:
            self.strangers.append((target, octets))
            raise ConnectionRefusedError
        return (*self.between(source, target), octets)


def first_frame(near):
    """What has come once the first frame is whole. Raises OSError for the end and for another protocol."""
    octets, needed = b"", frames.HEADER.size
    near.settimeout(_CONNECT_S)
    while len(octets) < needed:
        part = near.recv(_READ_OCTETS)
        if not part:
            raise ConnectionResetError
        octets += part
        if len(octets) >= frames.HEADER.size:
            magic, *_, length, _ = frames.HEADER.unpack_from(octets)
            if magic != frames.MAGIC or length > frames.LOGIN_MAX_PAYLOAD:
                raise ConnectionRefusedError
            needed = frames.HEADER.size + length
    near.settimeout(None)
    return octets


def caller_in(octets):
    """The node id in the first frame, which any login begins with."""
    at = frames.HEADER.size
    return octets[at:at + messages.ID_OCTETS]
