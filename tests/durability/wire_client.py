"""A small AMQP client that keeps what arrives even when the broker is killed under it: nothing is hidden
behind callbacks or retries.

Built on the shared codec; conformance is checked elsewhere, with literal octets. One connection, one channel.
"""
import select
import socket
import time

from gomq_py.amqp.wire import methods
from gomq_py.amqp.wire.frames import (
    FRAME_BODY, FRAME_HEADER, FRAME_METHOD, PROTOCOL_HEADER, FrameReader, content_frames, decode_header,
    method_frame,
)
from gomq_py.amqp.wire.methods import decode_method
from tests.support.waiting import TIMEOUT_S

CHANNEL = 1
WITH_CONTENT = (methods.BasicDeliver, methods.BasicGetOk, methods.BasicReturn)


class Gone(Exception):
    """The broker's end of the connection is closed."""


class WireClient:
    """One connection with one open channel.

    ``receive`` gives what has arrived as (method, properties, body); the last two None without content.

    ``peer`` is a port of this machine, or a connected socket; ``poll`` is select.poll, or gevent's where the
    broker lives in this process.
    """

    def __init__(self, peer, timeout_s=TIMEOUT_S, poll=select.poll):
        self.frame_max = 131072
        self._reader = FrameReader(0)
        self._ready = []
        self._incoming = None  # [method, properties, octets missing, parts]
        self._unsent = b""
        self._poll = poll()
        if isinstance(peer, int):
            peer = socket.create_connection(("127.0.0.1", peer), timeout_s)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = peer
        self._socket.setblocking(False)
        self._poll.register(self._socket, select.POLLIN)
        self._deadline_s = timeout_s
        self._open()

    def fileno(self):
        return self._socket.fileno()

    def close(self):
        """Drop the connection without saying goodbye."""
        self._socket.close()

    def send(self, method, properties=None, body=b"", channel=CHANNEL):
        """Queue a method, with content when ``properties`` (wire form) are given,
        and send what the socket takes.
        """
        self._unsent += method_frame(channel, method)
        if properties is not None:
            self._unsent += content_frames(channel, properties, body, self.frame_max)
        self.push()

    def push(self):
        """Send what the socket takes.

        What was not sent when the broker dies is as if it had never been said.
        """
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return
            except OSError:  # reading goes on: what the broker said before it died counts
                self._unsent = b""
                return
            self._unsent = self._unsent[sent:]

    def receive(self, timeout_s=0.0):
        """Everything that has arrived; waits for something at most ``timeout_s``.

        Raises Gone when all is read and the other end is closed.
        """
        deadline = time.monotonic() + timeout_s
        while not self._ready and self._wait(deadline):
            self._read()
        ready, self._ready = self._ready, []
        return ready

    def call(self, method, reply, channel=CHANNEL):
        """Send and wait for the answer; returns it. What else arrives is kept for ``receive``.

        AssertionError when it is not the answer in time.
        """
        self.send(method, channel=channel)
        deadline = time.monotonic() + self._deadline_s
        kept = []
        while time.monotonic() < deadline:
            for position, (arrived, properties, body) in enumerate(batch := self.receive(0.2)):
                if isinstance(arrived, reply):
                    self._ready = kept + batch[position + 1:] + self._ready
                    return arrived
                assert not isinstance(arrived, (methods.ChannelClose, methods.ConnectionClose)), arrived
                kept.append((arrived, properties, body))
        raise AssertionError(f"no {reply.NAME} for {method}")

    def _open(self):
        self._unsent = PROTOCOL_HEADER
        self.push()
        self._expect(methods.ConnectionStart)
        self.send(
            methods.ConnectionStartOk(mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US"),
            channel=0,
        )
        tune = self._expect(methods.ConnectionTune)
        self.frame_max = tune.frame_max or self.frame_max
        self.send(
            methods.ConnectionTuneOk(channel_max=tune.channel_max, frame_max=self.frame_max, heartbeat=0),
            channel=0,
        )
        self.call(methods.ConnectionOpen(virtual_host="/"), methods.ConnectionOpenOk, channel=0)
        self.call(methods.ChannelOpen(), methods.ChannelOpenOk)

    def _expect(self, kind):
        deadline = time.monotonic() + self._deadline_s
        while time.monotonic() < deadline:
            if batch := self.receive(0.2):
                (method, _, _), self._ready = batch[0], batch[1:]
                assert isinstance(method, kind), method
                return method
        raise AssertionError(f"no {kind.NAME}")

    def _wait(self, deadline):
        while True:
            left = max(0.0, deadline - time.monotonic())
            self._poll.modify(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
            happened = sum(events for _, events in self._poll.poll(left * 1000))
            if happened & select.POLLOUT:
                self.push()
            if happened & ~select.POLLOUT or left == 0.0:
                return bool(happened & ~select.POLLOUT)

    def _read(self):
        try:
            octets = self._socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            octets = b""
        if not octets:
            raise Gone
        self._reader.feed(octets)
        while (frame := self._reader.next_frame()) is not None:
            self._take(*frame)

    def _take(self, kind, channel, payload):
        if kind == FRAME_METHOD:
            method = decode_method(payload)
            if isinstance(method, WITH_CONTENT):
                self._incoming = [method, None, 0, []]
            else:
                self._ready.append((method, None, None))
        elif kind == FRAME_HEADER:
            _, self._incoming[2], self._incoming[1] = decode_header(payload)
        elif kind == FRAME_BODY:
            self._incoming[2] -= len(payload)
            self._incoming[3].append(payload)
        if kind in (FRAME_HEADER, FRAME_BODY) and self._incoming[2] == 0:
            method, properties, _, parts = self._incoming
            self._ready.append((method, properties, b"".join(parts)))
            self._incoming = None
