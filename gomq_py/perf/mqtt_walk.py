"""What a load generator's MQTT connection receives, walked without an object per packet: messages counted,
checked, timed and acknowledged, acknowledgements counted.

The packets are found by mqtt.wire.frames. The worker reads from its socket into ``buffer`` behind the
``kept`` octets of an incomplete packet and calls ``walk``. PUBACK, PUBREC, PUBREL and PUBCOMP are written
into ``answers``; packets that are not part of the load (SUBACK, DISCONNECT, what was refused, ...) are put
into ``others`` as objects.
"""
from gomq_py import octets
from gomq_py.mqtt.wire import frames
from gomq_py.mqtt.wire.constants import (
    DEFAULT_LIMITS, IDENTIFIER_MAX, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SERVER,
)
from gomq_py.perf.walk import ConfirmWindow, SequenceCheck

NUMBER_MASK = (1 << 48) - 1
_SEEN_OCTETS = 4 << 20  # over all publishers: what tells a double from a late one


class PacketWindow(ConfirmWindow):
    """A ConfirmWindow of packet identifiers: publish n, counted from 1,
    has the identifier (n - 1) % 65535 + 1.
    """

    __slots__ = ()

    def settle_packet(self, identifier, refused):
        """PUBACK, PUBCOMP or (``refused``) what says why not. Identifiers outside the window are ignored."""
        first = (self.low - 1) % IDENTIFIER_MAX
        ahead = (identifier - 1 + IDENTIFIER_MAX - first) % IDENTIFIER_MAX
        self.settle(self.low + ahead, False, refused)


class ArrivalCheck(SequenceCheck):
    """A SequenceCheck that tells what comes twice from what comes late: ``doubled`` is not counted among
    those that came. Of each publisher it remembers the last ``span`` numbers; what is older counts as late.
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
        """One body's number."""
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


class MQTTWalk:
    """The receiving half of one connection. Packets larger than ``packet_octets`` end it."""

    __slots__ = (
        "buffer", "kept", "delivered", "body_octets", "redelivered", "others", "answers", "answered",
        "packets", "version", "window", "check", "latencies", "sequence_at", "timestamp_at", "now_ns",
    )

    def __init__(
            self, version, read_octets=131072, packet_octets=65536, window=None, check=None, latencies=None,
            sequence_at=-1, timestamp_at=-1):
        """``check`` needs ``sequence_at`` and ``latencies`` ``timestamp_at``: offsets of 8 octets in bodies.
        """
        self.buffer = bytearray(packet_octets + read_octets)
        self.kept = 0
        self.delivered = self.body_octets = self.redelivered = 0
        self.others = []
        # Each answer is four octets, and no packet that is answered is shorter.
        self.answers = bytearray(len(self.buffer) + 8)
        self.answered = 0
        self.version = version
        self.packets = frames.PacketWalk(
            version, SERVER, DEFAULT_LIMITS._replace(packet_octets=packet_octets))
        self.window = window if window is not None else PacketWindow(1)
        self.check = check
        self.latencies = latencies
        self.sequence_at = sequence_at if check is not None else -1
        self.timestamp_at = timestamp_at if latencies is not None else -1
        self.now_ns = 0

    def walk(self, end, now_ns):
        """Take every whole packet of the first ``end`` octets, keep the rest at the front; how many messages
        came. Raises MQTTError.
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
        """A PUBLISH; numbers and timestamps lie in its body."""
        at = self.packets.payload_at
        size = self.packets.payload_length
        self.delivered += 1
        self.body_octets += size
        if self.packets.dup:
            self.redelivered += 1
        if self.sequence_at >= 0:
            if size >= self.sequence_at + 8:
                self.check.note(octets.le64(p, at + self.sequence_at))
            else:
                self.check.corrupt += 1
            self.check.compare(p, at, size, 0)
        if self.timestamp_at >= 0 and size >= self.timestamp_at + 8:
            stamped_ns = octets.le64(p, at + self.timestamp_at)
            if stamped_ns <= self.now_ns:
                self.latencies.add(self.now_ns - stamped_ns)
        if self.packets.qos:
            self.answer(PUBACK if self.packets.qos == 1 else PUBREC)
        return 0

    def answer(self, kind):
        """Append the answer to the packet found last."""
        if self.answered + 5 > len(self.answers):
            raise IndexError("answers that nobody has taken")
        p = octets.pointer(self.answers)
        self.answered = frames.write_acknowledgement(
            p, self.answered, self.version, kind, self.packets.packet_identifier, 0)
        return 0
