"""Network: sockets in memory, between a process and a client of the world, another process, or itself.

An End is what the system keeps of one side of a connection: octets that have arrived, and a window for those
that are still to come. What is sent leaves in pieces whose sizes and times the seed draws, in order. Whoever
closes an end that holds unread octets resets the connection, as the system does; a process that ends closes
all of its ends.

The broker reads and writes ends by two classes, in place of its own: LoopSocket, which the loop serves, and
WaitingSocket, gevent's, for which greenlets wait.
"""
import contextlib
import errno
import os
import socket as system_socket
from collections import deque
from functools import partial
from zlib import crc32

import gevent
from gevent.socket import socket as GeventSocket

from tests.simulation.world import without_folders

WINDOWS = (1000, 5000, 65536, 1 << 20)  # octets
PIECES = (1, 7, 100, 1460, 65536)
DELAYS_S = (50e-6, 200e-6, 200e-6, 2e-3, 40e-3)
FIRST_DESCRIPTOR = 1_000_000  # none of the system's is so high
AMQP_PORT, MQTT_PORT, HTTP_PORT = 5672, 1883, 15672
ADDRESS = "127.0.0.1"
KNOWN_SHARE = 0.5  # of names that are found though the network is cut


class Network:
    """Who listens where. ``connect`` makes a pair of ends. ``is_calm``: all windows are wide, and nothing is
    late. ``cut_until_s``: until then nothing comes from one machine to the other.
    """

    def __init__(self, world):
        self.world = world
        self.random = world.random("network")
        self.is_calm = False
        self.cut_until_s = 0.0
        self.listening = {}  # port -> Listening
        self._ends = []
        self._ports = 40000

    def connect(self, port, hear):
        """The client's end of a new connection, or None where nobody listens. ``hear()`` is called when there
        is something to read, or room to write.
        """
        listening = self.listening.get(port)
        if listening is None:
            return None
        ours, theirs = self._pair(port)
        ours.hear = hear
        self.world.after(self.delay_s(), listening.arrive, theirs)
        return ours

    def _pair(self, port):
        self._ports += 1
        name = f"c{self._ports - 40000}"
        ours = End(self, name, (ADDRESS, self._ports), (ADDRESS, port))
        theirs = End(self, f"{name}'", ours.peer_address, ours.address)
        ours.peer, theirs.peer = theirs, ours
        self._ends += ours, theirs
        return ours, theirs

    def dial(self, process, port):
        """A process connects: its end, which is writable when that is decided. Raises OSError."""
        crosses = port not in process.machine.doors.values()
        if crosses and self.is_cut() and self.random.random() < 0.5:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        ours, theirs = self._pair(port)
        ours.crosses = theirs.crosses = crosses
        ours.is_asking = True
        ours.belong_to(process)
        self.world.after(self.delay_s(crosses), self._arrive, ours)
        return ours

    def _arrive(self, end):
        if end.is_closed:
            return
        listening = self.listening.get(end.peer_address[1])
        end.is_asking = False
        if listening is None:
            end.is_refused = True
        else:
            listening.arrive(end.peer)
        end.hear()

    def pair_of(self, process):
        """Both ends of a connection of a process with itself."""
        ends = self._pair(0)
        for end in ends:
            end.belong_to(process)
        return ends

    def is_cut(self):
        """Whether nothing comes from one machine to the other now."""
        return self.world.now_s < self.cut_until_s

    def cut(self, for_s, resets):
        """Nothing comes from one machine to the other for so long. ``resets``: a chance that a side of a
        connection gives it up.
        """
        self.world.say("network", f"is cut for {for_s} s")
        self.cut_until_s = self.world.now_s + for_s
        for end in self._ends:
            if end.crosses and not end.is_closed and self.random.random() < resets:
                end.reset()

    def addresses(self, host, port, *_):
        """In place of getaddrinfo: each name is that of a machine here. Raises OSError."""
        if not host[0].isdigit() and self.is_cut() and self.random.random() >= KNOWN_SHARE:
            raise system_socket.gaierror(system_socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(system_socket.AF_INET, system_socket.SOCK_STREAM, 6, "", (ADDRESS, port))]

    def calm(self):
        """From here on."""
        self.is_calm = True
        for end in self._ends:
            end.hear()

    def delay_s(self, crosses=False):
        """How long something is on its way. ``crosses``: from one machine to the other."""
        delay_s = DELAYS_S[0] if self.is_calm else self.random.choice(DELAYS_S)
        return delay_s + max(0.0, self.cut_until_s - self.world.now_s) if crosses else delay_s


class Listening:
    """The system's half of a listening socket of a process."""

    family, type, proto = system_socket.AF_INET, system_socket.SOCK_STREAM, 0

    def __init__(self, process, port):
        self.process = process
        self.name = f"port {port}"
        self.is_closed = False
        self._address = (ADDRESS, port)
        self._backlog = deque()
        self._descriptor = process.descriptor_of(self)
        process.machine.network.listening[port] = self

    def arrive(self, end):
        """A client has come. One that comes when the process is gone is reset."""
        if self.process.machine.network.listening.get(self._address[1]) is not self:
            end.reset()
            return
        self._backlog.append(end)
        self.process.hub.loop.socket_is_ready()

    def _accept(self):
        if not self._backlog:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        end = self._backlog.popleft()
        return end.belong_to(self.process), end.peer_address

    def is_readable(self):
        """Whether somebody waits to be accepted."""
        return bool(self._backlog)

    def is_writable(self):
        """It never is."""
        return False

    def fileno(self):
        """A number that no real descriptor has."""
        return self._descriptor

    def getsockname(self):
        """Where it listens."""
        return self._address

    def setsockopt(self, *_):
        """Nothing comes of it."""

    def vanish(self):
        """Its end is heard of at once."""

    def close(self):
        """Nobody is let in any more; who waits is reset."""
        self.is_closed = True
        listening = self.process.machine.network.listening
        if listening.get(self._address[1]) is self:
            del listening[self._address[1]]
        while self._backlog:
            self._backlog.popleft().reset()


class End:
    """One side of a connection. ``peer``: the other one. ``hear()`` is called when something has changed,
    ``moment(what)`` before something is done that the peer will see. ``is_asking``: nobody knows yet whether
    somebody listens there. ``crosses``: the other side is on the other machine. ``awaits()``: as a Client's.
    """

    family, type, proto = system_socket.AF_INET, system_socket.SOCK_STREAM, 0

    def __init__(self, network, name, address, peer_address):
        self.name = name
        self.address = address
        self.peer_address = peer_address
        self.peer = None
        self.hear = lambda: None
        self.awaits = tuple
        self.machine = None  # of the broker whose end this is
        self.moment = partial(network.world.say, name)
        self.descriptor = -1
        self.is_asking = self.is_refused = self.crosses = False
        self.share = None  # of the broker's work, at its end
        self._network = network
        self._world = network.world
        self._random = network.random
        self._window = network.random.choice(WINDOWS)
        self._arrived = bytearray()
        self._sent = bytearray()  # on its way to the peer
        self._has_more = False  # its program was about to say more than there was room for
        self._is_moving = False  # an event is to move some of it
        self._has_ended = False  # our side says no more
        self._peer_has_ended = False
        self._is_reset = False
        self.is_closed = False

    def belong_to(self, process):
        """It is a socket of the process. Returns its descriptor."""
        self.hear = process.hub.loop.socket_is_ready
        self.machine = process.machine
        self.moment = lambda what: process.moment(f"{self.name} {what}")
        return process.descriptor_of(self)

    # what the world asks

    def is_readable(self):
        """Whether a read would not have to wait."""
        return bool(self._arrived) or self._peer_has_ended or self._is_reset

    def is_writable(self):
        """Whether a write would not have to wait."""
        return not self.is_asking and (self._is_reset or self._has_ended or self._room() > 0)

    def is_sound(self):
        """Whether its program has heard all that the peer has said, or was about to, which has not ended."""
        peer = self.peer
        return not (
            self.is_closed or self.is_readable() or peer.is_closed or peer._is_reset or peer._has_ended
            or peer._sent or peer._has_more)

    @property
    def window(self):
        """Octets that may be on their way to it, or unread there."""
        return WINDOWS[-1] if self._network.is_calm else self._window

    def reset(self):
        """The connection ends for both sides, at once for this one."""
        if not self._is_reset:
            self._is_reset = True
            self._sent.clear()
            self._world.after(self._network.delay_s(self.crosses), self.peer.hear_of_reset)
            self.hear()

    def hear_of_reset(self):
        """The peer has reset the connection."""
        if not self._is_reset:
            self._world.say(self.name, "is reset")
            self._is_reset = True
            self._sent.clear()
            if self._random.random() < 0.5:  # what was not read by then may be lost
                self._arrived.clear()
            self.hear()

    def _room(self):
        return self.peer.window - len(self.peer._arrived) - len(self._sent)

    def _move_later(self):
        if not self._is_moving and (self._sent or self._has_ended):
            self._is_moving = True
            self._world.after(self._network.delay_s(self.crosses), self._move)

    def _move(self):
        """Some of what is on its way arrives; the end of it last."""
        self._is_moving = False
        peer = self.peer
        if self._is_reset or peer._is_reset:
            self._sent.clear()
        elif peer.is_closed and self._sent:
            self.hear_of_reset()
        elif self._sent:
            count = len(self._sent)
            if not self._network.is_calm:
                count = min(count, 1 + self._random.randrange(self._random.choice(PIECES)))
            peer._arrived += self._sent[:count]
            del self._sent[:count]
            peer.hear()
            self._move_later()
        elif self._has_ended and not peer._peer_has_ended:
            peer._peer_has_ended = True
            peer.hear()

    # what a program asks of a socket

    def send(self, data, flags=0):
        """Take some of the octets. Raises OSError."""
        if self._is_reset or self._has_ended or self.is_closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        room = self._room()
        self._has_more = room < len(data)
        if room <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        taken = bytes(data[:room])
        self.moment(f"sends {len(taken)} of {len(data)} {crc32(without_folders(taken)):08x}")
        if self.share is not None:
            self.share.sent(len(taken))
        self._sent += taken
        self._move_later()
        if self.machine is not None and self.machine.tells is not None:
            self.machine.tells(self.peer.awaits())
        return len(taken)

    def recv_into(self, buffer, count=0):
        """Read into a buffer. Raises OSError."""
        taken = self._take(count or len(buffer))
        buffer[:len(taken)] = taken
        return len(taken)

    def recvmsg_into(self, buffers):
        """Read into several. Raises OSError."""
        taken = memoryview(self._take(sum(len(buffer) for buffer in buffers)))
        total = len(taken)
        for buffer in buffers:
            part, taken = taken[:len(buffer)], taken[len(buffer):]
            buffer[:len(part)] = part
        return total, [], 0, None

    def recv(self, count):
        """Read. Raises OSError."""
        return self._take(count)

    def _take(self, most):
        if self.is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self._arrived:
            was_full = self.peer._room() <= 0
            taken = bytes(self._arrived[:most])
            del self._arrived[:most]
            if self.share is not None:
                self.share.read()
            if was_full:
                self._world.after(self._network.delay_s(self.crosses), self.peer.hear)
            return taken
        if self._is_reset:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        if self._peer_has_ended:
            return b""
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def shutdown(self, how):
        """Say no more, or hear no more. Raises OSError."""
        if self._is_reset or self.is_closed:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        if how != system_socket.SHUT_RD:
            self._has_ended = True
            self._move_later()
        if how != system_socket.SHUT_WR:
            self._peer_has_ended = True
            self.hear()

    def close(self):
        """The program lets go of it; octets that nobody read reset the connection."""
        if self.is_closed:
            return
        self.is_closed = True
        self._world.say(self.name, "closes")
        if self._arrived:
            self.reset()
        else:
            self._has_ended = True
            self._move_later()

    def vanish(self):
        """Its machine has lost its power: one on another machine hears of that when it sends something."""
        if self.crosses and not self.is_closed:
            self._world.say(self.name, "is gone without a word")
            self.is_closed = True
            self._sent.clear()

    def fileno(self):
        """A number that no real descriptor has."""
        return -1 if self.is_closed else self.descriptor

    detach = fileno

    def getsockname(self):
        """Our address."""
        return self.address

    def getpeername(self):
        """The peer's."""
        return self.peer_address

    def setsockopt(self, *_):
        """Nothing comes of it."""

    def getsockopt(self, level, option, *_):
        """There is a buffer, and nothing else to say. Raises OSError."""
        if (level, option) == (system_socket.SOL_SOCKET, system_socket.SO_SNDBUF):
            return WINDOWS[-1]
        raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))


class LoopSocket:
    """In place of hub.loop_socket.LoopSocket."""

    def __init__(self, family, descriptor):
        self._sock = end = gevent.get_hub().process.sockets[descriptor]
        self.send, self.recv_into = end.send, end.recv_into

    def __getattr__(self, name):
        return getattr(self._sock, name)


def shut_down(descriptor, how=system_socket.SHUT_RDWR):
    """In place of hub.admission.shut_down."""
    with contextlib.suppress(OSError):
        gevent.get_hub().process.sockets[descriptor].shutdown(how)


def has_gone(client):
    """In place of http.server._has_gone, of gevent's socket of a client."""
    return client._sock._peer_has_ended or client._sock._is_reset


class WaitingSocket(GeventSocket):
    """gevent's socket over an End or a Listening."""

    def __init__(self, family=-1, type=-1, proto=-1, fileno=None):
        self._closed = False
        self._io_refs = 0
        self.timeout = None
        self.hub = gevent.get_hub()
        self._sock = self.hub.process.sockets[fileno]
        self._read_event = self.hub.loop.io(fileno, 1)
        self._write_event = self.hub.loop.io(fileno, 2)

    def accept(self):
        """As gevent's, whose sockets would be the system's. May switch."""
        while True:
            try:
                descriptor, address = self._sock._accept()
                return WaitingSocket(fileno=descriptor), address
            except BlockingIOError:
                if self.timeout == 0.0:
                    raise
            self._wait(self._read_event)


def dialled(_family, _kind, _protocol, address, _options):
    """In place of net.connecting._connected. May switch."""
    process = gevent.get_hub().process
    end = process.machine.network.dial(process, address[1])
    connecting = WaitingSocket(fileno=end.descriptor)
    try:
        while end.is_asking:
            connecting._wait(connecting._write_event)
        if end.is_refused:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    except BaseException:
        connecting.close()
        raise
    return connecting


def socketpair():
    """In place of gevent's: a connection of a process with itself."""
    process = gevent.get_hub().process
    return [WaitingSocket(fileno=end.descriptor) for end in process.machine.network.pair_of(process)]
