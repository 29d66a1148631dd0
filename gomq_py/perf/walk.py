"""Compiled loops of the load generator.

A PublishBatch holds publishes that are encoded in advance, in one buffer that is written again and again.
Only sequence numbers and timestamps in the bytes change. A write is a slice of whole messages, 16 to 64 KiB:
many messages share one system call.

A Walk parses received AMQP or MQTT bytes, without an object per frame or packet. It counts and checks
messages, measures their latency, and counts confirms or acknowledgements. The worker reads from its socket
into ``buffer``, after the ``kept`` bytes of an incomplete frame or packet, and calls ``walk``. A Walk writes
acks (for MQTT: PUBACK, PUBREC, PUBREL and PUBCOMP) into ``answers``. All other input goes into the list
``others``: AMQP methods such as channel.close as bytes, MQTT packets such as SUBACK as objects. A Walk checks
sizes before use; mqtt.wire.frames finds the packets.
"""
import os
import socket
from array import array
from bisect import bisect_right

from gomq_py import octets
from gomq_py.amqp.wire.errors import FrameError
from gomq_py.mqtt.wire import frames as mqtt_frames
from gomq_py.mqtt.wire.constants import (
    DEFAULT_LIMITS, IDENTIFIER_MAX, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SERVER,
)
from gomq_py.perf import bare_send

END_OF_RECORD = getattr(socket, "MSG_EOR", 0)
DELIVER, GET_OK, GET_EMPTY, RETURN, ACK, NACK = 0x3C003C, 0x3C0047, 0x3C0048, 0x3C0032, 0x3C0050, 0x3C0078
NUMBER_MASK = (1 << 48) - 1
# channel 1, delivery tag at 11, multiple at 19
ACK_FRAME = b"\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50" + bytes(9) + b"\xce"
assert len(ACK_FRAME) == 21
SUB_BUCKETS = 64
BUCKETS = 40 * SUB_BUCKETS  # up to 2^45 ns, which is ten hours
REGION_OCTETS = 8 * BUCKETS
_SEEN_OCTETS = 4 << 20  # all publishers together: tells doubles from late messages


class PublishBatch:
    """Encoded messages that are published again and again: message i is ``buffer[starts[i]:starts[i + 1]]``.

    ``timestamp_at`` and ``sequence_at``: offsets of 8-byte stamps in a body, or -1. Bodies must have room for
    them. ``identifier_before``: how far before each body MQTT's packet identifier lies; 0 over AMQP.
    """

    __slots__ = ("buffer", "starts", "count", "bodies", "timestamp_at", "sequence_at", "identifier_before")

    def __init__(self, messages, timestamp_at=-1, sequence_at=-1, identifier_before=0):
        """``messages``: for each message, (all bytes of its publish, offset of the body in them)."""
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
        """Write the timestamp, and numbers from ``sequence`` on, into bodies ``first`` to ``last - 1``."""
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
        """Write packet identifiers from ``identifier`` on into the messages; after 65535 follows 1."""
        if first < 0 or last > self.count or not self.identifier_before:
            raise IndexError("messages outside the batch, or without identifiers")
        p = octets.pointer(self.buffer)
        for i in range(first, last):
            octets.put_be16(p, self.bodies[i] - self.identifier_before, identifier)
            identifier = identifier + 1 if identifier < 65535 else 1

    def write_singly(self, sock, first, last, flags):
        """Write messages ``first`` to ``last`` (exclusive), one system call each. Raises OSError.

        Stops when the socket takes no more. Returns (messages written or begun, unwritten bytes of the last
        message begun).
        """
        # ``flags``: END_OF_RECORD sends one TCP segment per message. With TCP_NODELAY alone the kernel merges
        # waiting messages (20 were seen in one segment).
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
        """Return the end index of a write: messages from ``first`` on that fit, but at least one."""
        return max(first + 1, bisect_right(self.starts, self.starts[first] + limit_octets) - 1)


class LatencyHistogram:
    """Counts durations in ns in 64 buckets per power of two, with an error of at most 1.6 %.

    Cheap enough for every message. ``region``: a writable memoryview of BUCKETS 64-bit numbers, written by a
    worker process and read by its parent.
    """

    __slots__ = ("buckets",)

    def __init__(self, region):
        self.buckets = region

    def add(self, value):
        """Count a duration in ns. Buckets are 1 ns wide below 128 ns, then 64 per power of two."""
        shift = 0
        while value >= 128:
            value >>= 1
            shift += 1
        if shift > 38:
            shift = 38
        self.buckets[shift * 64 + value] += 1


class ConfirmWindow:
    """Counts confirms, single or multiple, in any order. Publishes are numbered from 1. ``size``: most
    unconfirmed publishes. ``latencies``: a histogram of the times from ``note_sent`` to the confirm, or None.
    """

    __slots__ = ("confirmed", "refused", "low", "mask", "noted", "latencies", "sent_ns", "now_ns")

    def __init__(self, size, latencies=None):
        slots = 2
        while slots <= size:
            slots *= 2
        self.noted = bytearray(slots)
        self.latencies = latencies
        self.sent_ns = array("Q", bytes(8 * slots if latencies is not None else 8))
        self.now_ns = 0
        self.mask = slots - 1
        self.low = 1  # lowest unsettled sequence number
        self.confirmed = self.refused = 0

    def note_confirm(self, tag, multiple, refused):
        """Count a basic.ack or, if ``refused``, a basic.nack. Ignores unknown and confirmed tags."""
        if tag < self.low or tag > self.low + self.mask:
            return
        first = self.low if multiple else tag
        while first <= tag:
            if not self.noted[first & self.mask]:
                self.noted[first & self.mask] = 1
                self.confirmed += 1
                if refused:
                    self.refused += 1
                if self.latencies is not None and self.sent_ns[first & self.mask] <= self.now_ns:
                    self.latencies.add(self.now_ns - self.sent_ns[first & self.mask])
            first += 1
        while self.noted[self.low & self.mask]:
            self.noted[self.low & self.mask] = 0
            self.low += 1

    def note_sent(self, first, last, now_ns):
        """Note ``now_ns`` as the time at which publishes ``first`` to ``last`` (inclusive) are sent."""
        if self.latencies is None:
            return
        while first <= last:
            self.sent_ns[first & self.mask] = now_ns
            first += 1


class SequenceCheck:
    """Checks order and completeness of messages by the sequence number in each body.

    The upper 16 bits of the number are the publisher, the lower 48 count its messages from 0. From the offset
    ``filled_from`` on, every body must equal ``filler``, unless that is empty.

    ``following``, ``counts`` and ``sums`` have a 64-bit number per publisher: next number, count of messages,
    sum of their numbers. Count and sum show whether exactly the published messages arrived.
    """

    __slots__ = (
        "misordered", "corrupt", "filler", "filled_from", "following", "counts", "sums", "publishers"
    )

    def __init__(self, following, counts, sums, filler=b"", filled_from=0):
        self.following, self.counts, self.sums = following, counts, sums
        self.filler = filler
        self.filled_from = filled_from
        self.publishers = len(following)
        self.misordered = self.corrupt = 0

    def note(self, sequence):
        publisher = sequence >> 48
        number = sequence & NUMBER_MASK
        if publisher >= self.publishers:
            self.corrupt += 1
            return
        if number < self.following[publisher]:
            self.misordered += 1
        else:
            self.following[publisher] = number + 1
        self.counts[publisher] += 1
        self.sums[publisher] += number

    def compare(self, p, at, size, offset):
        """Count a body as corrupt if its part at ``offset``, ``p[at:at + size]``, differs from ``filler``."""
        if not self.filler:
            return 0
        if offset < self.filled_from:
            at += self.filled_from - offset
            size -= self.filled_from - offset
            offset = self.filled_from
        if (
            size > 0
            and (offset + size > len(self.filler) or not octets.same(p, at, self.filler, offset, size))
        ):
            self.corrupt += 1
        return 0


class Walk:
    """Base of FrameWalk and MQTTWalk, which parse one connection's input. Bodies have 8-byte stamps: at
    offset ``sequence_at`` a number for ``check``, at ``timestamp_at`` a time for ``latencies``; -1: none.
    """

    __slots__ = (
        "buffer", "kept", "delivered", "body_octets", "redelivered", "others", "answers", "answered", "check",
        "latencies", "sequence_at", "timestamp_at", "now_ns",
    )

    def __init__(self, buffer_octets, answers_octets, check, latencies, sequence_at, timestamp_at):
        self.buffer = bytearray(buffer_octets)
        self.kept = 0
        self.delivered = self.body_octets = self.redelivered = 0
        self.others = []
        self.answers = bytearray(answers_octets)
        self.answered = 0
        self.check = check
        self.latencies = latencies
        self.sequence_at = sequence_at if check is not None else -1
        self.timestamp_at = timestamp_at if latencies is not None else -1
        self.now_ns = 0

    def take_content(self, p, at, size, offset):
        """Check and time the part ``p[at:at + size]`` of a body. ``offset``: of the part in the body."""
        if self.sequence_at >= 0:
            if not offset and size >= self.sequence_at + 8:
                self.check.note(octets.le64(p, at + self.sequence_at))
            elif not offset:
                self.check.corrupt += 1
            self.check.compare(p, at, size, offset)
        if self.timestamp_at >= 0 and not offset and size >= self.timestamp_at + 8:
            stamped_ns = octets.le64(p, at + self.timestamp_at)
            if stamped_ns <= self.now_ns:
                self.latencies.add(self.now_ns - stamped_ns)
        return 0


class FrameWalk(Walk):
    """Parses the AMQP frames that one connection receives on its only channel, number 1."""

    __slots__ = (
        "returned", "empty_gets", "last_tag", "acked_tag", "ack_every", "window", "missing", "offset",
        "returning",
    )

    def __init__(
        self, frame_max, read_octets=131072, ack_every=0, window=None, check=None, latencies=None,
        sequence_at=-1, timestamp_at=-1,
    ):
        size = frame_max + 8 + read_octets
        # A delivery has at least 46 bytes and its ack 21.
        Walk.__init__(self, size, size // 46 * 21 + 42, check, latencies, sequence_at, timestamp_at)
        self.returned = self.empty_gets = self.last_tag = self.acked_tag = 0
        self.ack_every = ack_every
        self.window = window if window is not None else ConfirmWindow(1)
        # bytes of the current body that are missing, and that were received
        self.missing = self.offset = 0
        self.returning = False

    def walk(self, end, now_ns):
        """Parse the complete frames in the first ``end`` bytes of the buffer. Return the number of deliveries
        completed. Moves the bytes of an incomplete frame to the front. Raises FrameError.
        """
        if end > len(self.buffer):
            raise IndexError("more bytes than the buffer holds")
        p = octets.pointer(self.buffer)
        at = 0
        before = self.delivered
        self.now_ns = self.window.now_ns = now_ns
        while end - at >= 8:
            size = octets.be32(p, at + 3)
            frame_end = at + 7 + size
            if frame_end >= end:
                if size > len(self.buffer) - 8:
                    raise FrameError(f"a frame of {size} bytes is larger than was agreed")
                break
            if p[frame_end] != 0xCE:
                raise FrameError(f"a frame ends with byte {p[frame_end]} instead of 206")
            kind = p[at]
            if kind == 3:
                self.take_body(p, at + 7, size)
            elif kind == 1:
                self.take_method(p, at + 7, size)
            elif kind == 2:
                if size < 14:
                    raise FrameError(f"content header of {size} bytes")
                self.missing = octets.be64(p, at + 11)
                self.offset = 0
                if not self.missing:
                    self.complete()
            at = frame_end + 1
        self.kept = end - at
        if at:
            self.buffer[:self.kept] = self.buffer[at:end]
        return self.delivered - before

    def take_method(self, p, at, size):
        method = octets.be32(p, at) if size >= 4 else 0
        if method == DELIVER and size > 5 and size >= 14 + p[at + 4]:
            tag_at = at + 5 + p[at + 4]
        elif (method == ACK or method == NACK or method == GET_OK) and size >= 13:
            tag_at = at + 4
        else:
            tag_at = -1
        if tag_at < 0:
            if method == RETURN:
                self.returning = True
            elif method == GET_EMPTY:
                self.empty_gets += 1
            else:
                self.others.append(bytes(p[at:at + size]))
        elif method == DELIVER or method == GET_OK:
            self.last_tag = octets.be64(p, tag_at)
            self.redelivered += p[tag_at + 8] & 1
        else:
            self.window.note_confirm(octets.be64(p, tag_at), p[tag_at + 8] & 1, method == NACK)
        return 0

    def take_body(self, p, at, size):
        if size > self.missing:
            raise FrameError("a body is longer than its header says")
        if not self.returning:
            self.take_content(p, at, size, self.offset)
        self.body_octets += size
        self.offset += size
        self.missing -= size
        if not self.missing:
            self.complete()
        return 0

    def complete(self):
        """Count a message that has arrived completely, and ack it if an ack is due."""
        if self.returning:
            self.returning = False
            self.returned += 1
            return 0
        self.delivered += 1
        if self.ack_every and self.delivered % self.ack_every == 0:
            self.answer(self.ack_every > 1)
        return 0

    def answer(self, multiple):
        """Append to ``answers`` an ack of the last delivery or, if ``multiple``, of all up to the last."""
        if self.answered + 21 > len(self.answers):
            raise FrameError("more messages in one read than can be")
        p = octets.pointer(self.answers)
        octets.copy(p, self.answered, ACK_FRAME, 0, 21)
        octets.put_be64(p, self.answered + 11, self.last_tag)
        p[self.answered + 19] = multiple
        self.answered += 21
        self.acked_tag = self.last_tag
        return 0

    def ack_rest(self):
        """Append to ``answers`` an ack of all unacked deliveries."""
        if self.ack_every and self.last_tag > self.acked_tag:
            self.answer(True)


class PacketWindow(ConfirmWindow):
    """A ConfirmWindow for MQTT. Publish number n, from 1, has the packet identifier (n - 1) % 65535 + 1."""

    __slots__ = ()

    def note_packet_confirm(self, identifier, refused):
        """Count a PUBACK or PUBCOMP or, if ``refused``, a refusal. Ignores identifiers not in use."""
        first = (self.low - 1) % IDENTIFIER_MAX
        ahead = (identifier - 1 + IDENTIFIER_MAX - first) % IDENTIFIER_MAX
        self.note_confirm(self.low + ahead, False, refused)


class ArrivalCheck(SequenceCheck):
    """A SequenceCheck that tells duplicates from late messages. Duplicates count only in ``doubled``. The
    last ``span`` numbers of each publisher are remembered; an older number counts as late.
    """

    __slots__ = ("doubled", "span", "seen")

    def __init__(self, following, counts, sums, filler=b"", filled_from=0):
        SequenceCheck.__init__(self, following, counts, sums, filler, filled_from)
        span = 65536
        while span > 64 and span * len(following) > _SEEN_OCTETS:
            span //= 2
        self.span = span
        self.seen = bytearray(span * len(following))
        self.doubled = 0

    def note(self, sequence):
        publisher = sequence >> 48
        number = sequence & NUMBER_MASK
        if publisher >= self.publishers:
            self.corrupt += 1
            return
        at = publisher * self.span
        mask = self.span - 1
        following = self.following[publisher]
        if number >= following:
            skipped = following if number - following < self.span else number - mask
            while skipped < number:
                self.seen[at + (skipped & mask)] = 0
                skipped += 1
            self.following[publisher] = number + 1
        elif following - number <= self.span and self.seen[at + (number & mask)]:
            self.doubled += 1
            return
        else:
            self.misordered += 1
        if number + self.span >= following:
            self.seen[at + (number & mask)] = 1
        self.counts[publisher] += 1
        self.sums[publisher] += number


class MQTTWalk(Walk):
    """Parses the MQTT packets that one connection receives. Refuses packets larger than ``packet_octets``."""

    __slots__ = ("packets", "version", "window")

    def __init__(
            self, version, read_octets=131072, packet_octets=65536, window=None, check=None, latencies=None,
            sequence_at=-1, timestamp_at=-1):
        size = packet_octets + read_octets
        # Each answer has four bytes, and no answered packet is shorter.
        Walk.__init__(self, size, size + 8, check, latencies, sequence_at, timestamp_at)
        self.version = version
        self.packets = mqtt_frames.PacketWalk(
            version, SERVER, DEFAULT_LIMITS._replace(packet_octets=packet_octets))
        self.window = window if window is not None else PacketWindow(1)

    def walk(self, end, now_ns):
        """Parse the complete packets in the first ``end`` bytes of the buffer. Return the number of messages.
        Moves the bytes of an incomplete packet to the front. Raises MQTTError.
        """
        packets = self.packets
        packets.begin(self.buffer, 0, end)
        p = octets.pointer(self.buffer)
        before = self.delivered
        self.now_ns = now_ns
        while True:
            kind = packets.next_packet()
            if kind == 0:
                break
            if not packets.plain:
                self.others.append(packets.decode())
            elif kind == PUBLISH:
                self.take_message(p)
            elif kind == PUBREC:
                self.answer(PUBREL)
            elif kind == PUBREL:
                self.answer(PUBCOMP)
            else:
                self.window.note_packet_confirm(packets.packet_identifier, False)
        at = packets.finish()
        self.kept = end - at
        if at:
            self.buffer[:self.kept] = self.buffer[at:end]
        return self.delivered - before

    def take_message(self, p):
        at = self.packets.payload_at
        size = self.packets.payload_length
        self.delivered += 1
        self.body_octets += size
        if self.packets.dup:
            self.redelivered += 1
        self.take_content(p, at, size, 0)
        if self.packets.qos:
            self.answer(PUBACK if self.packets.qos == 1 else PUBREC)
        return 0

    def answer(self, kind):
        if self.answered + 5 > len(self.answers):
            raise IndexError("answers that nobody has taken")
        p = octets.pointer(self.answers)
        self.answered = mqtt_frames.write_acknowledgement(
            p, self.answered, self.version, kind, self.packets.packet_identifier, 0)
        return 0


def lower_bound(index):
    """Return the smallest duration, in ns, that is counted in the bucket ``index``."""
    if index < 2 * SUB_BUCKETS:
        return index
    shift = index // SUB_BUCKETS - 1
    return (index - shift * SUB_BUCKETS) << shift


def summarize(regions):
    """Return count, min, median, p75, p95, p99, p999 and max, in ms, of histograms; {"count": 0} if empty."""
    totals = [sum(counts) for counts in zip(*regions)]
    count = sum(totals)
    summary = {"count": count}
    if not count:
        return summary
    occupied = [index for index, number in enumerate(totals) if number]
    summary["min"] = lower_bound(min(occupied)) / 1e6
    for name, share in (("median", 0.5), ("p75", 0.75), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
        summary[name] = _quantile(totals, occupied, share * count) / 1e6
    summary["max"] = lower_bound(max(occupied)) / 1e6
    return summary


def _quantile(totals, occupied, rank):
    seen = 0
    for index in occupied:
        seen += totals[index]
        if seen >= rank:
            break
    return lower_bound(index)
