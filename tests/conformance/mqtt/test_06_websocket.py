"""Chapter 6, MQTT over WebSocket (RFC 6455), frame by frame; for our broker, on its management port."""
import socket

import pytest

from tests.conformance.mqtt.statements import mqtt_3, mqtt_5
from tests.support.mqtt_wire import connect_packet
from tests.support.waiting import TIMEOUT_S

pytestmark = pytest.mark.mosquitto_differs("has a port of its own for it")
BINARY, TEXT, CLOSE, PING, PONG = 2, 1, 8, 9, 10
CONNACK = {4: b"\x20\x02\x00\x00", 5: b"\x20"}


class WebSocket:
    """A client's end."""

    def __init__(self, port, path="/mqtt", protocols="mqtt"):
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        offered = f"Sec-WebSocket-Protocol: {protocols}\r\n" if protocols else ""
        self.socket.sendall((
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{offered}\r\n"
        ).encode())
        self.read = b""
        while b"\r\n\r\n" not in self.read:
            data = self.socket.recv(65536)
            assert data, self.read
            self.read += data
        self.head, self.read = self.read.split(b"\r\n\r\n", 1)

    def send(self, octets, opcode=BINARY, final=True):
        """A frame with its mask (which is 0: any mask will do)."""
        size = len(octets)
        length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        self.socket.sendall(bytes([opcode | (0x80 if final else 0)]) + length + bytes(4) + octets)

    def frame(self):
        """(opcode, octets) of the next frame; None at the end."""
        while True:
            if len(self.read) >= 2:
                size = self.read[1] & 0x7F
                at = 2
                if size == 126:
                    size, at = int.from_bytes(self.read[2:4], "big"), 4
                if len(self.read) >= at + size:
                    found = self.read[0] & 0x0F, self.read[at:at + size]
                    self.read = self.read[at + size:]
                    return found
            try:
                data = self.socket.recv(65536)
            except ConnectionError:
                return None
            if not data:
                return None
            self.read += data

    def expect_close(self):
        """A close frame, or the end."""
        found = self.frame()
        assert found is None or found[0] == CLOSE, found


@pytest.fixture
def websocket(mqtt_server):
    opened = []

    def open_(**options):
        opened.append(WebSocket(mqtt_server.ports["http"], **options))
        return opened[-1]
    yield open_
    for each in opened:
        each.socket.close()


@mqtt_3("6.0.0-4")
@mqtt_5("6.0.0-4")
@pytest.mark.parametrize("protocols", ["mqtt", "chat, mqtt"])
def test_subprotocol_is_mqtt(websocket, protocols):
    head = websocket(protocols=protocols).head.lower()

    assert head.startswith(b"http/1.1 101")
    assert b"sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=" in head
    assert b"sec-websocket-protocol: mqtt" in head.split(b"\r\n")
    assert b"sec-websocket-extensions" not in head


@mqtt_3("6.0.0-2")
@mqtt_5("6.0.0-2")
def test_packets_need_not_be_aligned_with_frames(websocket, version):
    client = websocket()
    ping = b"\xc0\x00"
    octets = connect_packet(version, f"ws{version}") + ping + ping

    for at in range(0, len(octets) - 3, 7):
        client.send(octets[at:min(at + 7, len(octets) - 3)])
    client.send(octets[-3:-1], final=False)
    client.send(b"", PING)
    client.send(octets[-1:], 0)  # a continuation

    received = b""
    while not received.endswith(b"\xd0\x00\xd0\x00"):
        opcode, part = client.frame()
        if opcode != PONG:
            assert opcode == BINARY
            received += part
    assert received.startswith(CONNACK[version])


@mqtt_3("6.0.0-1")
@mqtt_5("6.0.0-1")
@pytest.mark.parametrize("first", [True, False])
def test_frame_that_is_not_binary_ends_the_connection(websocket, first):
    client = websocket()
    if not first:
        client.send(connect_packet(4, "wstext"))
        assert client.frame() == (BINARY, CONNACK[4])

    client.send(b"\xc0\x00" if not first else connect_packet(4, "wstext"), TEXT)

    client.expect_close()
