"""The MQTT door in this process: a real broker, and clients on socket pairs that
send and read literal octets.
"""
import time

import gevent
import pytest

from gomq_py.content import forms
from gomq_py.mqtt.server.server import MQTTServer
from gomq_py.mqtt.wire import crossing
from tests.support.door import SILENCE_S, SILENT_POLLS, Door, poll_the_loop, served_socket
from tests.support.sockets import receive_exactly
from tests.support.waiting import in_time

PATIENCE_S = in_time(30)
forms.register(crossing.MQTTForm())  # as a node does
# CONNECT of MQTT 3.1.1 and of 5: clean, keep alive 60 s, client "c", user "guest", password "guest".
CONNECT_311 = b"\x10\x1b\x00\x04MQTT\x04\xc2\x00\x3c\x00\x01c\x00\x05guest\x00\x05guest"
CONNECT_5 = b"\x10\x1c\x00\x04MQTT\x05\xc2\x00\x3c\x00\x00\x01c\x00\x05guest\x00\x05guest"
# The server's of MQTT 5 takes 16 topic aliases.
CONNACK_311, CONNACK_5 = b"\x20\x02\x00\x00", b"\x20\x06\x00\x00\x03\x22\x00\x10"


class Client:
    """The client's end of a socket whose other end the door serves."""

    def __init__(self, socket_):
        self.socket = socket_
        self.socket.settimeout(PATIENCE_S)

    def send(self, octets):
        self.socket.sendall(octets)

    def expect(self, octets):
        """The next octets must be these."""
        assert receive_exactly(self.socket, len(octets)) == octets

    def expect_both(self, one, other):
        """The next octets must be these two, in any order: promises wait for the end of a walk, which may be
        between them.
        """
        assert receive_exactly(self.socket, len(one) + len(other)) in (one + other, other + one)

    def expect_nothing(self):
        """Nothing must come for a while."""
        until = time.monotonic() + SILENCE_S
        for _ in range(SILENT_POLLS):
            poll_the_loop()
        self.socket.settimeout(max(until - time.monotonic(), 0.001))
        try:
            got = self.socket.recv(1000)
            raise AssertionError(f"nothing was awaited, but {got!r} came")
        except TimeoutError:
            pass
        finally:
            self.socket.settimeout(PATIENCE_S)

    def expect_end(self):
        """The server must close the socket, and say nothing more."""
        try:
            assert self.socket.recv(1000) == b""
        except ConnectionResetError:
            pass


class MQTTDoor:
    """A server over the broker of a Door."""

    def __init__(self, door):
        self.door = door
        self.hub, self.broker, self.settings = door.hub, door.broker, door.settings
        self.server = MQTTServer(door.broker, door.settings, door.hub)
        self.greenlets, self.clients = [], []

    def stranger(self):
        """A client that has said nothing yet."""
        self.clients.append(Client(served_socket(self.server, self.greenlets)))
        return self.clients[-1]

    def client(self, connect=CONNECT_311, connack=CONNACK_311):
        """One that is logged in."""
        client = self.stranger()
        client.send(connect)
        client.expect(connack)
        return client

    def connection(self):
        """The server's side of the only client."""
        (connection,) = self.hub.clients
        return connection


@pytest.fixture
def make_mqtt(tmp_path):
    """A function from settings to an MQTTDoor; all end with the test."""
    made = []

    def make(**settings):
        door = Door(tmp_path / str(len(made)), **settings)
        made.append(MQTTDoor(door))
        return made[-1]

    yield make
    for mqtt in made:
        for client in mqtt.clients:
            client.socket.close()
        gevent.joinall(mqtt.greenlets, timeout=PATIENCE_S)
        mqtt.door.__exit__()


@pytest.fixture
def mqtt(make_mqtt):
    return make_mqtt()
