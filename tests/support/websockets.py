"""A WebSocket client's side, octet by octet, and a relay that lets any client of TCP speak through one."""
import base64
import os
import socket
import struct
import threading

from tests.support.waiting import in_time

# RFC 6455 §1.3.
KEY, ACCEPT = "dGhlIHNhbXBsZSBub25jZQ==", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
MASK = bytes.fromhex("37fa213d")
TEXT, BINARY, CLOSE, PING, PONG, CONTINUATION = 1, 2, 8, 9, 10, 0


def request(path="/", subprotocol="", key=KEY, **fields):
    """The octets of a client's handshake; None takes a field out, others are added."""
    lines = {
        "Host": "localhost", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": key,
        "Sec-WebSocket-Version": "13", **({"Sec-WebSocket-Protocol": subprotocol} if subprotocol else {}),
        **{name.replace("_", "-"): value for name, value in fields.items()},
    }
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value is not None)
    return f"GET {path} HTTP/1.1\r\n{text}\r\n".encode()


def frame(payload, opcode=BINARY, fin=True, mask=MASK, bits=0):
    """A client's frame (§5.2)."""
    first = (0x80 if fin else 0) | bits << 4 | opcode
    masked = 0x80 if mask else 0
    count = len(payload)
    if count <= 125:
        head = struct.pack(">BB", first, masked | count)
    elif count <= 0xFFFF:
        head = struct.pack(">BBH", first, masked | 126, count)
    else:
        head = struct.pack(">BBQ", first, masked | 127, count)
    if mask:
        repeated = (mask * (count // 4 + 1))[:count]
        payload = (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(count, "big")
    return head + mask + payload


class Client:
    """A WebSocket to ``port`` of this machine, over ``wrap(socket)`` where that is given."""

    def __init__(self, port, path="/", subprotocol="", wrap=None, **fields):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=in_time(60))
        if wrap is not None:
            self.socket = wrap(self.socket)
        self._octets = b""
        self.socket.sendall(request(path, subprotocol, base64.b64encode(os.urandom(16)).decode(), **fields))
        while b"\r\n\r\n" not in self._octets:
            more = self.socket.recv(65536)
            if not more:
                break
            self._octets += more
        head, _, self._octets = self._octets.partition(b"\r\n\r\n")
        self.status, *lines = head.decode().split("\r\n")
        self.fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, payload, **how):
        """One frame."""
        self.socket.sendall(frame(payload, **how))

    def next_frame(self):
        """(opcode, payload), neither fragmented nor masked; None at the end of the socket."""
        head = self._read(2)
        if len(head) < 2:
            return None
        assert head[0] & 0xF0 == 0x80 and head[1] < 0x80, head
        count = head[1]
        if count >= 126:
            count = int.from_bytes(self._read(2 if count == 126 else 8), "big")
        return head[0] & 0x0F, self._read(count)

    def next_payload(self, count):
        """So many octets of binary messages, however they are cut."""
        octets = b""
        while len(octets) < count:
            found = self.next_frame()
            assert found is not None and found[0] == BINARY, (found, octets)
            octets += found[1]
        assert len(octets) == count
        return octets

    def closed(self):
        """The code of the Close that comes next, with nothing behind it but the end."""
        opcode, payload = self.next_frame()
        assert opcode == CLOSE, (opcode, payload)
        self.send(payload[:2], opcode=CLOSE)
        assert self.next_frame() is None
        return int.from_bytes(payload[:2], "big")

    def _read(self, count):
        while len(self._octets) < count:
            more = self.socket.recv(65536)
            if not more:
                break
            self._octets += more
        octets, self._octets = self._octets[:count], self._octets[count:]
        return octets


class Relay:
    """A TCP port whose first connection goes through a WebSocket: what a client sends leaves in messages of
    frames of at most ``piece`` octets, ``frames`` to a message.
    """

    def __init__(self, port, subprotocol, piece=65536, frames=1):
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._target = (port, subprotocol)
        self._piece, self._frames = piece, frames
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._listening.close()
        self._thread.join(in_time(30))

    def _serve(self):
        plain, _ = self._listening.accept()
        port, subprotocol = self._target
        with plain, Client(port, subprotocol=subprotocol) as client:
            threading.Thread(target=self._upwards, args=(plain, client), daemon=True).start()
            while (found := client.next_frame()) is not None:
                if found[0] == CLOSE:
                    client.send(found[1][:2], opcode=CLOSE)
                else:
                    plain.sendall(found[1])

    def _upwards(self, plain, client):
        number = 0
        try:
            while octets := plain.recv(65536):
                frames = b""
                for start in range(0, len(octets), self._piece):
                    first, last = number % self._frames == 0, (number + 1) % self._frames == 0
                    number += 1
                    frames += frame(
                        octets[start:start + self._piece], BINARY if first else CONTINUATION, fin=last)
                client.socket.sendall(frames)
            client.send(struct.pack(">H", 1000), opcode=CLOSE)
        except OSError:
            pass
