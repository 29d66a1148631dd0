"""Publishes encoded in advance, in one buffer that is written again and again; only sequence numbers and
timestamps in the bodies change.

A write is a slice of whole messages, 16 to 64 KiB, so that many messages share one system call.
"""
import os
import socket
from array import array
from bisect import bisect_right

from gomq_py import octets
from gomq_py.perf import bare_send

END_OF_RECORD = getattr(socket, "MSG_EOR", 0)


class PublishBatch:
    """A cycle of messages. ``starts[i]``: where message i begins in ``buffer``; ``starts[count]``: its end.

    ``timestamp_at`` and ``sequence_at``: offsets of 8-byte stamps in a body, -1 for none; the bodies must be
    large enough. ``identifier_before``: distance of MQTT's packet identifier before each body, 0 for none.
    """

    __slots__ = ("buffer", "starts", "count", "bodies", "timestamp_at", "sequence_at", "identifier_before")

    def __init__(self, messages, timestamp_at=-1, sequence_at=-1, identifier_before=0):
        """``messages``: (all frames of a publish, offset of its body in them) each."""
        starts, bodies = array("q", [0]), array("q")
        for frames, body_at in messages:
            if body_at < identifier_before or identifier_before == 1:
                raise ValueError("there is no room for a packet identifier before a body")
            if (
                body_at + max(timestamp_at, sequence_at) + 8 > len(frames)
                and max(timestamp_at, sequence_at) >= 0
            ):
                raise ValueError("a body is too small for what is to be stamped into it")
            bodies.append(starts[len(starts) - 1] + body_at)
            starts.append(starts[len(starts) - 1] + len(frames))
        self.buffer = bytearray().join([frames for frames, _ in messages])
        self.starts = starts
        self.count = len(messages)
        self.bodies = bodies
        self.timestamp_at = timestamp_at
        self.sequence_at = sequence_at
        self.identifier_before = identifier_before

    def stamp(self, first, last, sequence, timestamp_ns):
        """Write numbers from ``sequence`` on, and one timestamp, into messages: little-endian."""
        if first < 0 or last > self.count:
            raise IndexError("messages outside the batch")
        p = octets.pointer(self.buffer)
        for i in range(first, last):
            at = self.bodies[i]
            if self.sequence_at >= 0:
                octets.put_le64(p, at + self.sequence_at, sequence)
                sequence += 1
            if self.timestamp_at >= 0:
                octets.put_le64(p, at + self.timestamp_at, timestamp_ns)

    def identify(self, first, last, identifier):
        """Write packet identifiers from ``identifier`` on into messages; after 65535 comes 1."""
        if first < 0 or last > self.count or not self.identifier_before:
            raise IndexError("messages outside the batch, or without identifiers")
        p = octets.pointer(self.buffer)
        for i in range(first, last):
            octets.put_be16(p, self.bodies[i] - self.identifier_before, identifier)
            identifier = identifier + 1 if identifier < 65535 else 1

    def write_singly(self, sock, first, last, flags):
        """Write the messages ``first`` to ``last`` (exclusive) with a system call each, until the socket
        takes no more. Raises OSError.

        Returns (messages begun, unwritten bytes of the last one). ``flags``: END_OF_RECORD for a TCP segment
        per message. TCP_NODELAY alone does not keep them apart: messages that wait are merged (20 to a
        segment were seen).
        """
        if bare_send.is_native() and type(sock) is socket.socket and sock.gettimeout() == 0:
            return self._write_bare(sock.fileno(), first, last, flags)
        room = memoryview(self.buffer)
        for i in range(first, last):
            start, end = self.starts[i], self.starts[i + 1]
            try:
                written = sock.send(room[start:end], flags)
            except BlockingIOError:
                return i - first, 0
            if written < end - start:
                return i + 1 - first, end - start - written
        return last - first, 0

    def _write_bare(self, descriptor, first, last, flags):
        """``write_singly`` for a non-blocking socket."""
        p = octets.pointer(self.buffer)
        end = self.starts[first]
        for i in range(first, last):
            start, end = end, self.starts[i + 1]
            written = bare_send.send(descriptor, p, start, end, flags)
            if written < 0:
                raise OSError(-written, os.strerror(-written))
            if written == 0:
                return i - first, 0
            if written < end - start:
                return i + 1 - first, end - start - written
        return last - first, 0

    def last_within(self, first, limit_octets):
        """End of the messages from ``first`` on that fit ``limit_octets``; at least one message."""
        return max(first + 1, bisect_right(self.starts, self.starts[first] + limit_octets) - 1)
