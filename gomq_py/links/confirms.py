"""Confirms: parses a target broker's answers to publishes (basic.ack, nack, return) in the read buffer.

Does no I/O, and makes no Python object for an accepted message. A ring of bytes has one byte for each of the
publishes ``low`` to ``following`` - 1: unsettled, confirmed or refused. A confirm of a message that was not
published, or a frame of another channel, raises an AMQPError. A basic.return does not say which publish it
returns. So all messages that are unsettled when it arrives count as refused once they are confirmed.
"""
from gomq_py import octets
from gomq_py.amqp.wire.errors import ChannelError, FrameError, UnexpectedFrame

ACK, NACK, RETURN = 0x3C0050, 0x3C0078, 0x3C0032
# Frame of a confirm: type, channel, size 13 | 60,80 or 60,120, number u64, bits | CE
CONFIRMED, REFUSED = 1, 2
FIRST_SLOTS = 16


class Confirms:
    """Tracks which publishes of a channel are confirmed or refused. Publishes are numbered from 1.

        low         number of the oldest unsettled publish; all publishes before it are confirmed or refused
        following   number of the next publish
        refused     numbers of refused publishes below ``low``, in order; the caller removes them
        others      (channel, payload) of methods that are no answers to publishes; the caller removes them
        returned    count of returned messages
        doubted     highest number of a publish that may have been returned
    """

    __slots__ = (
        "channel", "frame_most", "low", "following", "refused", "others", "marks", "mask", "returned",
        "doubted", "awaits_header", "body_left",
    )

    def __init__(self, channel, frame_max):
        self.channel = channel
        self.frame_most = frame_max or 131072
        self.low = self.following = 1
        self.refused = []
        self.others = []
        self.marks = bytearray(FIRST_SLOTS)
        self.mask = FIRST_SLOTS - 1
        self.returned = 0
        self.doubted = 0
        self.awaits_header = False  # the header of a returned message comes next
        self.body_left = 0  # bytes of a returned message's body still to come

    def published(self, count):
        """Add the next ``count`` publishes, which await confirms."""
        self.following += count
        slots = len(self.marks)
        if self.following - self.low > slots:
            while self.following - self.low > slots:
                slots *= 2
            marks = bytearray(slots)
            number = self.low
            while number < self.following - count:
                marks[number & (slots - 1)] = self.marks[number & self.mask]
                number += 1
            self.marks = marks
            self.mask = slots - 1

    def walk(self, buffer, end):
        """Parse the complete frames in ``buffer[:end]``, and stop after a method that goes to ``others``.
        Returns the number of parsed bytes. Raises AMQPError.
        """
        if end > len(buffer):
            raise IndexError("more bytes than the buffer holds")
        p = octets.pointer(buffer)
        at = 0
        while end - at >= 8 and not self.others:
            size = octets.be32(p, at + 3)
            if size > self.frame_most:
                raise FrameError(f"a frame of {size} bytes is larger than was agreed")
            if end - at < size + 8:
                break
            if p[at + 7 + size] != 0xCE:
                raise FrameError(f"a frame ends with byte {p[at + 7 + size]} instead of 206")
            self.take(p, at, size)
            at += size + 8
        return at

    def take(self, p, at, size):
        """Handle the frame at ``p[at]``, with ``size`` bytes of payload: a confirm, part of a returned
        message, or another method. Raises AMQPError.
        """
        channel = octets.be16(p, at + 1)
        if channel and channel != self.channel:
            raise ChannelError(f"a frame of type {p[at]} on channel {channel}, which is not open")
        if p[at] == 8 and not channel:
            return 0
        if channel and (self.awaits_header or self.body_left):
            return self.pass_over(p, at, size)
        if p[at] != 1:
            raise UnexpectedFrame(f"a frame of type {p[at]} on channel {channel}")
        if size < 4:
            raise FrameError("a method without class and method id")
        method = octets.be32(p, at + 7)
        if method == RETURN and channel:
            self.returned += 1
            if self.returned >= self.following > 1:
                raise UnexpectedFrame(
                    f"basic.return on channel {channel} of more messages than were published")
            self.doubted = self.following - 1
            self.awaits_header = True
            return 0
        if (method != ACK and method != NACK) or not channel:
            self.others.append((int(channel), bytes(p[at + 7:at + 7 + size])))
            return 0
        if size != 13:
            raise FrameError("cannot decode a confirm")
        self.note_confirm(octets.be64(p, at + 11), p[at + 19] & 1, CONFIRMED if method == ACK else REFUSED)
        return 0

    def pass_over(self, p, at, size):
        """Check and skip a returned message's header or body frame at ``p[at]``. Raises UnexpectedFrame."""
        if self.awaits_header:
            if p[at] != 2 or size < 14:
                raise UnexpectedFrame(f"a frame of type {p[at]} behind basic.return")
            self.awaits_header = False
            self.body_left = octets.be64(p, at + 11)
        elif p[at] != 3 or size > self.body_left:
            raise UnexpectedFrame(f"a frame of type {p[at]} in the body of a returned message")
        else:
            self.body_left -= size
        return 0

    def answered(self, number, is_refused):
        """Mark the publish ``number`` as confirmed or refused, for a target that does not speak AMQP."""
        self.note_confirm(number, False, REFUSED if is_refused else CONFIRMED)

    def note_confirm(self, number, multiple, how):
        """Mark the publish ``number`` (``multiple``: all publishes up to it) as ``how``, CONFIRMED or
        REFUSED. A publish that may have been returned becomes REFUSED. A marked publish keeps its first mark.
        Raises UnexpectedFrame if ``number`` was not published.
        """
        if number == 0 and multiple:
            number = self.following - 1
        if number >= self.following or not number and not multiple:
            raise UnexpectedFrame(
                f"a confirm of message {number}, and {self.following - 1} were published"
            )
        first = self.low if multiple else number
        if first < self.low:
            return
        while first <= number:
            if not self.marks[first & self.mask]:
                self.marks[first & self.mask] = REFUSED if first <= self.doubted else how
            first += 1
        while self.low < self.following:
            mark = self.marks[self.low & self.mask]
            if not mark:
                break
            if mark == REFUSED:
                self.refused.append(int(self.low))
            self.marks[self.low & self.mask] = 0
            self.low += 1
