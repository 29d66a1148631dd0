"""Parser for a load generator's MQTT input, without an object per packet: counts, checks, times and
acknowledges messages, and counts acknowledgements.

mqtt.wire.frames finds the packets. The worker reads from its socket into ``buffer`` behind the ``kept`` bytes
of an incomplete packet and calls ``walk``. PUBACK, PUBREC, PUBREL and PUBCOMP are written into ``answers``;
packets outside of the load (SUBACK, DISCONNECT, refusals, ...) are put into ``others`` as objects.
"""
from gomq_py import octets
from gomq_py.mqtt.wire import frames
from gomq_py.mqtt.wire.constants import (
    DEFAULT_LIMITS, IDENTIFIER_MAX, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SERVER,
)
from gomq_py.perf.walk import ConfirmWindow, SequenceCheck, Walk

NUMBER_MASK = (1 << 48) - 1
_SEEN_OCTETS = 4 << 20  # all publishers together: tells doubles from late messages


class PacketWindow(ConfirmWindow):
    """A ConfirmWindow of packet identifiers: publish n, from 1 on, has (n - 1) % 65535 + 1."""

    __slots__ = ()

    def settle_packet(self, identifier, refused):
        """Settle a PUBACK, PUBCOMP or (``refused``) failure. Identifiers outside the window are ignored."""
        first = (self.low - 1) % IDENTIFIER_MAX
        ahead = (identifier - 1 + IDENTIFIER_MAX - first) % IDENTIFIER_MAX
        self.settle(self.low + ahead, False, refused)


class ArrivalCheck(SequenceCheck):
    """A SequenceCheck that tells doubled messages from late ones; ``doubled`` messages are not counted as
    arrived. Remembers the last ``span`` numbers of each publisher; older ones count as late.
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
    """The receiving half of one connection. A packet larger than ``packet_octets`` ends it."""

    __slots__ = ("packets", "version", "window")

    def __init__(
            self, version, read_octets=131072, packet_octets=65536, window=None, check=None, latencies=None,
            sequence_at=-1, timestamp_at=-1):
        size = packet_octets + read_octets
        # Each answer has four bytes, and no answered packet is shorter.
        Walk.__init__(self, size, size + 8, check, latencies, sequence_at, timestamp_at)
        self.version = version
        self.packets = frames.PacketWalk(
            version, SERVER, DEFAULT_LIMITS._replace(packet_octets=packet_octets))
        self.window = window if window is not None else PacketWindow(1)

    def walk(self, end, now_ns):
        """Parse the whole packets in the first ``end`` bytes and keep the rest at the front; returns the
        count of messages. Raises MQTTError.
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
                self.window.settle_packet(packets.packet_identifier, False)
        at = packets.finish()
        self.kept = end - at
        if at:
            self.buffer[:self.kept] = self.buffer[at:end]
        return self.delivered - before

    def take_message(self, p):
        """Take a PUBLISH, with number and timestamp in its body."""
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
        self.answered = frames.write_acknowledgement(
            p, self.answered, self.version, kind, self.packets.packet_identifier, 0)
        return 0
