"""The server's side of one MQTT client, behind its login, without a socket: octets in by reads as net.stream
hands them over, and what is sent.
"""
import gevent
from gevent import socket

from gomq_py.broker.verbs.access import Access
from gomq_py.broker.verbs.caller import Caller
from gomq_py.mqtt.server import subscribe
from gomq_py.mqtt.server.connection import Connection, ShownLimits
from gomq_py.mqtt.server.login import Greeting
from gomq_py.mqtt.wire.packets import ConnectPacket
from gomq_py.net.output import Output
from gomq_py.net.stream import Stream
from tests.support.exact import fenced
from tests.support.reads import TakingSocket, UnhurriedWalk
from tests.support.waiting import wait_until

NOW_MS = 1_700_000_000_000


class MQTTBench:
    """A client of ``version`` of an MQTTServer; ``is_slow``: every PUBLISH goes to the slow lane."""

    def __init__(self, server, version, is_slow=False, client_id="c", **connect):
        self.ours, theirs = socket.socketpair()
        self.theirs = theirs
        self.socket = TakingSocket(theirs.fileno(), 1883)
        self.buffers = server.hub.buffers
        self.is_slow = is_slow
        self.tail = b""
        greeting = Greeting(
            ConnectPacket(version=version, client_identifier=client_id, properties={}, **connect),
            server.settings)
        self.gate = server.gate
        self.admitted = server.gate.identify(self.socket, "127.0.0.1")
        self.gate.logged_in(self.admitted)
        self.connection = connection = Connection(server, self.socket, ("127.0.0.1", 1), self.admitted)
        connection.user, connection.vhost = server.broker.users.get("guest"), server.broker.vhosts["/"]
        connection.version, connection.client_id = version, client_id
        connection.limits = ShownLimits(0)
        connection.access = Access(connection.user, connection.vhost.name, client_id)
        connection.caller = Caller(connection.access, connection.vhost, connection, connection.name, 0)
        connection.output = Output(self.socket, self.buffers)
        connection.stream = Stream(self.socket, self.buffers, connection.output, server.hub.coalescer)
        connection.slow_walk = UnhurriedWalk(connection.stream, server.hub.slow_turns)
        connection.answers = subscribe.Answers(connection)
        server.hub.clients.register(connection)
        connection._connect(greeting)
        wait_until(lambda: connection.lane is not None, sleep=gevent.sleep)
        self.take()

    def read(self, octets):
        """One read of the connection. Returns whether there may be another."""
        connection = self.connection
        if connection.state != "open" or connection.stream.paused or connection.output.broken:
            return False
        start, end = self.buffers.reserve - len(self.tail), self.buffers.reserve + len(octets)
        assert start >= 0
        self.buffers.input[start:end] = self.tail + octets
        if self.is_slow:
            connection.lane.set_modes(True, connection.blocked_reason is not None)
        connection.output.cork()
        try:
            with fenced(self.buffers.input, end):
                position = connection.lane.process(start, end, NOW_MS)
            self.tail = bytes(self.buffers.input[position:end])
        finally:
            connection.lane.finish()
            connection.output.uncork()
        return True

    def take(self):
        """What was sent since the last call."""
        taken, self.socket.taken = bytes(self.socket.taken), bytearray()
        return taken

    def close(self):
        """The client is gone."""
        self.connection._leave_session()
        self.connection._end()
        self.gate.leave(self.admitted)
        self.ours.close()
        self.theirs.close()
