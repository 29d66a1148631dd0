"""A broker that does what a test's script says: the far end of a client under test,
on a loopback socket in a thread of its own.
"""
import socket
import threading
from contextlib import contextmanager

from gomq_py.amqp.wire.frames import PROTOCOL_HEADER, FrameReader, content_frames, method_frame
from gomq_py.amqp.wire.methods import (
    ChannelOpen, ChannelOpenOk, ConnectionClose, ConnectionCloseOk, ConnectionOpen, ConnectionOpenOk,
    ConnectionStart, ConnectionStartOk, ConnectionTune, ConnectionTuneOk, decode_method,
)
from tests.support.waiting import TIMEOUT_S

SERVER_PROPERTIES = {"product": "scripted", "capabilities": {"publisher_confirms": True}}


class Peer:
    """One accepted connection, seen from the broker's side. Every wait is bounded by the socket's timeout."""

    def __init__(self, sock):
        sock.settimeout(TIMEOUT_S)
        self.socket = sock
        self._reader = FrameReader(0)

    def read_exactly(self, count):
        """Raw octets, before any frame."""
        octets = b""
        while len(octets) < count:
            octets += self.socket.recv(count - len(octets))
        return octets

    def frame(self):
        """The next frame of any kind; None when the client has closed the socket."""
        while (frame := self._reader.next_frame()) is None:
            octets = self.socket.recv(65536)
            if not octets:
                return None
            self._reader.feed(octets)
        return frame

    def expect(self, method_class):
        """The next frame, which must be this method; with the channel it came on."""
        kind, channel_id, payload = self.frame()
        assert kind == 1, f"a frame of type {kind} where {method_class.NAME} was expected"
        method = decode_method(payload)
        assert isinstance(method, method_class), f"{method!r} where {method_class.NAME} was expected"
        return channel_id, method

    def send(self, channel_id, method):
        """A method frame."""
        self.socket.sendall(method_frame(channel_id, method))

    def send_content(self, channel_id, method, body, properties=b"\x00\x00", frame_max=131072):
        """A method with its content."""
        self.socket.sendall(
            method_frame(channel_id, method) + content_frames(channel_id, properties, body, frame_max)
        )

    def handshake(self, **tune):
        """From protocol header to open-ok; the client's start-ok, tune-ok and open."""
        assert self.read_exactly(8) == PROTOCOL_HEADER
        self.send(
            0,
            ConnectionStart(
                version_minor=9, server_properties=SERVER_PROPERTIES, mechanisms=b"PLAIN AMQPLAIN EXTERNAL",
                locales=b"en_US",
            ),
        )
        start_ok = self.expect(ConnectionStartOk)[1]
        self.send(0, ConnectionTune(**{"channel_max": 2047, "frame_max": 131072, "heartbeat": 0, **tune}))
        tune_ok = self.expect(ConnectionTuneOk)[1]
        opened = self.expect(ConnectionOpen)[1]
        self.send(0, ConnectionOpenOk())
        return start_ok, tune_ok, opened

    def channel(self):
        """Let the client open a channel; its number."""
        channel_id, _ = self.expect(ChannelOpen)
        self.send(channel_id, ChannelOpenOk())
        return channel_id

    def farewell(self):
        """Let the client close the connection."""
        self.expect(ConnectionClose)
        self.send(0, ConnectionCloseOk())


class OctetPeer:
    """One accepted connection of which the script knows every octet.

    Every wait is bounded by the socket's timeout.
    """

    def __init__(self, sock):
        sock.settimeout(TIMEOUT_S)
        self.socket = sock

    def expect(self, *parts):
        """The next octets must be these."""
        expected = b"".join(parts)
        octets = b""
        while len(octets) < len(expected) and (more := self.socket.recv(len(expected) - len(octets))):
            octets += more
        assert octets == expected

    def expect_end(self):
        """The client must have closed the socket, and written nothing before."""
        assert self.socket.recv(100) == b""

    def send(self, *parts):
        """Write octets."""
        self.socket.sendall(b"".join(parts))


@contextmanager
def scripted_broker(
    script, tls_context=None, peer_class=Peer, schemes=("amqp", "amqps"), login="guest:guest@", path="/%2f"
):
    """The URL of a broker that runs ``script(peer)`` for its one client.

    What the script raises is raised at the end of the block.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT_S)
        failures = []

        def run():
            try:
                with listener.accept()[0] as sock:
                    script(peer_class(
                        sock if tls_context is None else tls_context.wrap_socket(sock, server_side=True)
                    ))
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run, name="scripted-broker", daemon=True)
        thread.start()
        try:
            yield f"{schemes[tls_context is not None]}://{login}127.0.0.1:{listener.getsockname()[1]}{path}"
        finally:
            thread.join(2 * TIMEOUT_S)
        if failures:
            raise failures[0]
